"""Map an operator's results through a table after post-processing (extension ``table``).

The table is not part of the operator: its results are computed, rounded and clipped as usual, and
mapped on the way to the output memory. So any operator with post-processed results can have one.
The fragment gains a parameter, the table, and loads it once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vtaops.base.errors import ScheduleError
from vtaops.lowering.operation import Fragment, Operation
from vtaops.machine.accesses import OFF
from vtaops.machine.config import TABLE_VALUES, Memory
from vtaops.machine.isa import Load, LoopInstruction, Post, Store
from vtaops.machine.layout import Layout
from vtaops.program import Buffer, Role

TABLE = "table"
"""Name of the table's buffer: int8 (256,), the results for -128, -127, ..., 127."""


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
    operations = [Operation(load, relocation=len(fragment.buffers))]
    setting, processed = OFF, np.zeros(fragment.config.acc.depth, np.bool_)
    for operation in fragment.operations:
        i = operation.instruction
        if isinstance(i, Store) and not processed[operation.scratchpads[0].indices].all():
            raise ScheduleError("a table maps what is post-processed; this operator's is not")
        for access in operation.of(Memory.ACC):
            if access.writes:
                processed[access.indices] = setting.enable
        if isinstance(i, Post):
            setting = replace(i, use_table=i.enable)
            operation = replace(operation, instruction=setting)
        elif isinstance(i, LoopInstruction):
            operation = operation.having(post=setting)
        operations.append(operation)
    buffers = (*fragment.buffers, table)
    return replace(fragment, operations=tuple(operations), buffers=buffers)
