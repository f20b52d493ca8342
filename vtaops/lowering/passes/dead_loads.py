"""Dead-load elimination: drop loads of tiles that are overwritten before any read.

If products with padding are skipped, all products of a weight or input tile may be.
"""

from __future__ import annotations

from vtaops.lowering.operation import Operation, PassContext
from vtaops.lowering.passes.uses import Live
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load


def without_dead_loads(operations: list[Operation], _: PassContext) -> list[Operation]:
    """Drop the loads of inputs and weights that nothing reads."""
    live = Live(Memory.INP, Memory.WGT)
    kept = []
    for operation in reversed(operations):
        i = operation.instruction
        operand = isinstance(i, Load) and i.memory in (Memory.INP, Memory.WGT)
        if not operand or live.read(operation.scratchpads[0]).any():
            live.pass_back(operation)
            kept.append(operation)
    return kept[::-1]
