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
    Instruction,
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
    operation = stream[at]
    i, halves = operation.instruction, _halves(operation.instruction, by)
    if halves is None:
        return None
    first, second = (replace(operation, instruction=replace(i, **half)) for half in halves)
    if isinstance(i, LoopInstruction):
        second = replace(second, micro_ops=rows_behind(operation, _split_side(i), by))
    return [*stream[:at], first, second, *stream[at + 1 :]]


def _split_side(i: LoopInstruction) -> str:
    return "out" if i.iter_out > 1 else "in"


def _halves(i: Instruction, by: int) -> tuple[dict[str, int], dict[str, int]] | None:
    """Return the fields by which the halves of an instruction differ from it."""
    if isinstance(i, LoopInstruction):
        name = f"iter_{_split_side(i)}"
        rest = getattr(i, name) - by
        return ({name: by}, {name: rest}) if min(by, rest) > 0 else None
    if not isinstance(i, MemoryInstruction):
        return None
    if 0 < by < i.y_size:
        sram, dram = (i.y_pad_top + by) * i.sram_row, by * i.x_stride
        first = {"y_size": by, "y_pad_bottom": 0}
        second = {"y_size": i.y_size - by, "y_pad_top": 0}
    elif i.y_size == 1 and 0 < by < i.x_size == i.sram_size:
        sram = dram = by
        first, second = ({"x_size": n, "x_stride": n} for n in (by, i.x_size - by))
    else:
        return None
    return first, {**second, "sram_base": i.sram_base + sram, "dram_base": i.dram_base + dram}


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
