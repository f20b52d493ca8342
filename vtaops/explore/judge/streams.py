"""Instruction streams that can be edited: operations without tokens, each with its own micro-ops.

`operations_of` takes a program apart, and `program_of` links operations as the compiler does, which
places micro-ops and finds tokens anew. An edit therefore only says what happens in which order and
where; whether the result is right is for a `Judge` to say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vtaops.base.errors import VTAError
from vtaops.lowering.linking.link import link, whole
from vtaops.lowering.operation import Fragment, Operation
from vtaops.lowering.options import DEFAULT_OPTIONS
from vtaops.machine.accesses import OFF
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    LoopInstruction,
    MemoryInstruction,
    Post,
)
from vtaops.machine.text import TOKENS
from vtaops.program import OperatorRecord, Program
from vtaops.program.timing.hazards import walk

Stream = list[Operation]

_NO_TOKENS: dict[str, Any] = dict.fromkeys(TOKENS, 0)


def operations_of(program: Program) -> Stream:
    """Return the operations of a program without what `program_of` adds."""
    operations: Stream = []
    for (_, instruction, rows), relocation in zip(walk(program), program.relocations, strict=True):
        i = replace(instruction, **_NO_TOKENS)
        if isinstance(i, LoopInstruction):
            operations.append(Operation(replace(i, uop_begin=0, uop_end=len(rows)), rows))
        elif isinstance(i, Post) or (
            isinstance(i, MemoryInstruction) and not i.is_nop and i.memory != Memory.UOP
        ):
            operations.append(Operation(i, relocation=int(relocation)))
    return operations


def program_of(stream: Stream, like: Program) -> Program | None:
    """Return the program of operations on the buffers of another; None if there is none."""
    post, operations = OFF, []
    for operation in stream:
        post = operation.instruction if isinstance(operation.instruction, Post) else post
        if operation.micro_ops is not None and operation.post != post:
            operation = replace(operation, post=post)
        operations.append(operation)
    about = like.buffers, DEFAULT_OPTIONS, OperatorRecord()
    fragment = Fragment(like.config, tuple(operations), *about)
    try:
        return replace(link([whole(fragment)], like.buffers), operators=())
    except VTAError:
        return None


# ------------------------------------------------------------------------------------ edits


def moved(stream: Stream, at: int, by: int) -> Stream:
    """Move an operation by so many places."""
    rest = stream[:at] + stream[at + 1 :]
    to = min(max(0, at + by), len(rest))
    return [*rest[:to], stream[at], *rest[to:]]


def split(stream: Stream, at: int, by: int) -> Stream | None:
    """Split an operation behind so many rows, elements or steps; None if it has not that many."""
    i = stream[at].instruction
    if isinstance(i, MemoryInstruction):
        parts = _transfers(i, by)
        made = [replace(stream[at], instruction=part) for part in parts]
    elif isinstance(i, LoopInstruction):
        made = _loops(stream[at], by)
    else:
        return None
    return [*stream[:at], *made, *stream[at + 1 :]] if made else None


def _transfers(i: MemoryInstruction, by: int) -> tuple[MemoryInstruction, ...]:
    if 0 < by < i.y_size:
        places = i.sram_base + (i.y_pad_top + by) * i.sram_row, i.dram_base + by * i.x_stride
        second = replace(i, y_size=i.y_size - by, y_pad_top=0)
        return replace(i, y_size=by, y_pad_bottom=0), _at(second, *places)
    if i.y_size == 1 and 0 < by < i.x_size == i.sram_size:
        rest = i.x_size - by
        second = replace(i, x_size=rest, x_stride=rest)
        return replace(i, x_size=by, x_stride=by), _at(second, i.sram_base + by, i.dram_base + by)
    return ()


def _at(i: MemoryInstruction, sram_base: int, dram_base: int) -> MemoryInstruction:
    return replace(i, sram_base=sram_base, dram_base=dram_base)


def _loops(operation: Operation, by: int) -> Stream:
    i = operation.instruction
    assert isinstance(i, LoopInstruction)
    side = "out" if i.iter_out > 1 else "in"
    name = f"iter_{side}"
    count = getattr(i, name)
    if not 0 < by < count:
        return []
    rows, halves = rows_behind(operation, side, by), ({name: by}, {name: count - by})
    first, second = (replace(i, **half) for half in halves)
    return [replace(operation, instruction=first),
            replace(operation, instruction=second, micro_ops=rows)]  # fmt: skip


def rows_behind(operation: Operation, side: str, count: int) -> Any:
    """Return the micro-ops of a loop, so many steps of one of its sides later."""
    i = operation.instruction
    steps = [getattr(i, f"{operand}_factor_{side}", 0) for operand in ("dst", "src", "wgt")]
    return operation.micro_ops + count * np.array(steps)


def dropped(stream: Stream, at: int, by: int) -> Stream:
    """Leave an operation out."""
    return stream[:at] + stream[at + 1 :]


EDITS = {"move": moved, "split": split, "drop": dropped}
"""Edits by name: functions of a stream, a place and a number; they return a new stream."""
