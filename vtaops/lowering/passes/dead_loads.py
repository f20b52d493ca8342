"""Dead-load elimination: drop loads of tiles that are overwritten before any read.

If products with padding are skipped, all products of a weight or input tile may be.
"""

from __future__ import annotations

from itertools import compress

import numpy as np

import vtaops._uses as _uses
from vtaops.lowering.operation import Operation
from vtaops.lowering.passes.uses import Followed
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load


def without_dead_loads(operations: list[Operation]) -> list[Operation]:
    """Drop the loads of inputs and weights that nothing reads."""
    loads = np.array([_loads_operand(operation) for operation in operations], np.bool_)
    followed = np.where(loads, int(Followed.IF_READ), int(Followed.ALWAYS))
    read = _uses.Uses(operations).read_later(followed)
    return [*compress(operations, (read | ~loads).tolist())]


def _loads_operand(operation: Operation) -> bool:
    i = operation.instruction
    return isinstance(i, Load) and i.memory in (Memory.INP, Memory.WGT)
