"""Dead-load elimination: drop loads of tiles that are overwritten before any read.

If products with padding are skipped, all products of a weight or input tile may be.
"""

from __future__ import annotations

import vtaops._uses as _uses
from vtaops.lowering.operation import Operation
from vtaops.lowering.passes.uses import Followed, column
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load


def without_dead_loads(operations: list[Operation]) -> list[Operation]:
    """Drop the loads of inputs and weights that nothing reads."""
    followed = [Followed.IF_READ if _loads_operand(o) else Followed.ALWAYS for o in operations]
    read = _uses.Uses(operations).read_later(column(followed)).tolist()
    uses = zip(operations, read, followed, strict=True)
    return [o for o, is_read, way in uses if is_read or way is Followed.ALWAYS]


def _loads_operand(operation: Operation) -> bool:
    i = operation.instruction
    return isinstance(i, Load) and i.memory in (Memory.INP, Memory.WGT)
