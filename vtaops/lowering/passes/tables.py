"""Map an operator's results through a table after post-processing (extension ``table``).

The table is not part of the operator: its results are computed, rounded and clipped as usual, and
mapped on the way to the output memory. So any operator with post-processed results can have one.
The fragment gains a parameter, the table, and loads it once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.lowering.operation import Fragment, Operation, Touch
from vtaops.machine.config import TABLE_VALUES, Memory
from vtaops.machine.isa import Load, LoopInstruction, Post, Store
from vtaops.machine.layout import Layout
from vtaops.program import Buffer, Role

TABLE = "table"
"""Name of the table's buffer: int8 (256,), the results for -128, -127, ..., 127."""

_WRITTEN = Touch("table", np.zeros(1, np.int64), write=True)
_READ = Touch(_WRITTEN.space, _WRITTEN.elements, write=False)


def with_table(fragment: Fragment) -> Fragment:
    """Return a fragment that maps its results through a table, its last buffer.

    Raises
    ------
    ScheduleError
        If a stored result is not post-processed.
    """
    layout = Layout(f"C1n{TABLE_VALUES}c")
    table = Buffer(TABLE, Role.PARAMETER, (TABLE_VALUES,), "int8", layout)
    load = Load(memory=Memory.TABLE, y_size=1, x_size=1, x_stride=1)
    operations = [Operation(load, len(fragment.buffers), (_WRITTEN,))]
    enabled, processed = False, np.zeros(fragment.config.acc.depth, np.bool_)
    for operation in fragment.operations:
        i = operation.instruction
        if isinstance(i, Store) and not processed[operation.touches[0].elements].all():
            raise ScheduleError("a table maps what is post-processed; this operator's is not")
        for touch in operation.writes:
            if touch.space == "acc":
                processed[touch.elements] = enabled
        if isinstance(i, Post):
            enabled = bool(i.enable)
            operation = replace(operation, instruction=i.with_fields(use_table=i.enable))
        elif enabled and isinstance(i, LoopInstruction) and not i.reset:
            operation = replace(operation, touches=(*operation.touches, _READ))
        operations.append(operation)
    buffers = (*fragment.buffers, table)
    return replace(fragment, operations=tuple(operations), buffers=buffers)
