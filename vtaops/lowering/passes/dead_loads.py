"""Dead loads: a tile that no instruction reads before it is overwritten need not be loaded.

Where products with padding are left out, all products of a tile of weights, or of pixels, may be.
"""

from __future__ import annotations

from vtaops.lowering.operation import Operation
from vtaops.lowering.passes.uses import Live
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load


def without_dead_loads(operations: list[Operation]) -> list[Operation]:
    """Return the operations without the loads of inputs and weights that nobody reads."""
    live = Live("inp", "wgt")
    kept = []
    for operation in reversed(operations):
        i = operation.instruction
        operand = isinstance(i, Load) and i.memory in (Memory.INP, Memory.WGT)
        if not operand or live.read(operation.touches[0]).any():
            live.pass_back(operation)
            kept.append(operation)
    return kept[::-1]
