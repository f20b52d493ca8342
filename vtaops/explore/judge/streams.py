"""Instruction streams that can be edited: operations without tokens, each with its own micro-ops.

`operations_of` takes a program apart, and `program_of` puts operations together: it places the
micro-ops and finds the tokens anew, as the compiler does. An edit therefore only says what happens
in which order and where; whether the result is right is for a `Judge` to say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from vtaops.base.errors import EncodingError
from vtaops.lowering.linking.tokens import FLAGS, insert_tokens
from vtaops.lowering.operation import Operation
from vtaops.machine.accesses import OFF
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Encoding,
    Finish,
    Instruction,
    Load,
    LoopInstruction,
    MemoryInstruction,
    Post,
)
from vtaops.program import MICRO_OPS, Program

Stream = list[Operation]

UNLOADED = Operation(Load(memory=Memory.UOP), relocation=MICRO_OPS)
"""Where the micro-ops are loaded that are first used from here on."""

_NO_TOKENS: dict[str, Any] = dict.fromkeys(FLAGS, 0)


def operations_of(program: Program) -> Stream:
    """Return the operations of a program, `UNLOADED` where it loads micro-ops."""
    table = Encoding.of(program.config).decode_micro_ops(program.micro_ops)
    memory = np.zeros((program.config.uop.depth, 3), np.int64)
    operations: Stream = []
    for instruction, relocation in zip(program.decode(), program.relocations.tolist(), strict=True):
        i = replace(instruction, **_NO_TOKENS)
        if isinstance(i, Load) and i.memory == Memory.UOP and not i.is_nop:
            memory[i.sram_base : i.sram_base + i.x_size] = table[i.dram_base :][: i.x_size]
            operations.append(UNLOADED)
        elif isinstance(i, LoopInstruction):
            rows = memory[i.uop_begin : i.uop_end].copy()
            operations.append(Operation(replace(i, uop_begin=0, uop_end=len(rows)), rows))
        elif not _is_derived(i):
            operations.append(Operation(i, relocation=relocation))
    return operations


def _is_derived(i: Instruction) -> bool:
    return isinstance(i, Finish) or (isinstance(i, MemoryInstruction) and i.is_nop)


def program_of(stream: Stream, like: Program) -> Program | None:
    """Return the program of operations on the buffers of another; None if it cannot be encoded."""
    placement = _Placement(like.config.uop.depth)
    for number, operation in enumerate(stream):
        placement.post = _post(operation, placement.post)
        if operation.post != placement.post and operation.micro_ops is not None:
            operation = stream[number] = replace(operation, post=placement.post)
        placement.append(operation)
    placement.close()
    if not placement.fits:
        return None
    ordered, places, flags = insert_tokens(placement.operations)
    moved = np.array([*placement.first_micro_ops, 0])[places]
    added = {"uop_begin": moved, "uop_end": moved, **dict(zip(FLAGS, flags.T, strict=True))}
    encoding, table = Encoding.of(like.config), [np.zeros((0, 3), np.int64), *placement.table]
    try:
        return Program(
            config=like.config,
            instructions=encoding.encode_all([o.instruction for o in ordered], added),
            relocations=np.array([o.relocation for o in ordered], np.int32),
            micro_ops=encoding.encode_micro_ops(np.concatenate(table)),
            buffers=like.buffers,
        )
    except EncodingError:
        return None


def _post(operation: Operation, before: Post) -> Post:
    i = operation.instruction
    return i if isinstance(i, Post) else before


class _Placement:
    """Operations with places for their micro-ops; each `UNLOADED` loads what is new.

    What no longer fits begins anew at the start of the memory.
    """

    def __init__(self, depth: int) -> None:
        self.operations: Stream = []
        self.first_micro_ops: list[int] = []
        self.table: list[Any] = []
        self.post = OFF
        self.fits = True
        self._depth, self._size, self._rows = depth, 0, 0
        self._places: dict[bytes, int] = {}
        self._waiting: Stream = []
        self._loads = False
        """Whether the waiting operations stand behind an `UNLOADED`."""

    def append(self, operation: Operation) -> None:
        if operation is UNLOADED:
            self.close()
            self._loads = True
        else:
            self._waiting.append(operation)

    def close(self) -> None:
        """Place the micro-ops of the waiting operations."""
        needed = _sequences(self._waiting)
        new = {*needed} - {*self._places}
        if self._size + sum(len(needed[key]) for key in new) > self._depth:
            self._places, self._size, new = {}, 0, {*needed}
        begin = self._size
        for key in (key for key in needed if key in new):
            self._places[key] = self._size
            self._size += len(needed[key])
            self.table.append(needed[key])
        self._load(begin, self._size - begin)
        for operation in self._waiting:
            rows = operation.micro_ops
            self.operations.append(operation)
            self.first_micro_ops.append(0 if rows is None else self._places[rows.tobytes()])
        self._waiting = []

    def _load(self, begin: int, count: int) -> None:
        self.fits &= self._size <= self._depth and (self._loads or not count)
        if count:
            load = Load(memory=Memory.UOP, sram_base=begin, dram_base=self._rows, y_size=1,
                        x_size=count, x_stride=count)  # fmt: skip
            self.operations.append(Operation(load, relocation=MICRO_OPS))
            self.first_micro_ops.append(0)
            self._rows += count


def _sequences(operations: Stream) -> dict[bytes, Any]:
    used = [o.micro_ops for o in operations if o.micro_ops is not None]
    return {rows.tobytes(): rows for rows in used}


# ------------------------------------------------------------------------------------ edits


def moved(stream: Stream, at: int, by: int) -> Stream:
    """Move an operation by so many places."""
    rest = stream[:at] + stream[at + 1 :]
    to = min(max(0, at + by), len(rest))
    return [*rest[:to], stream[at], *rest[to:]]


def split(stream: Stream, at: int, by: int) -> Stream | None:
    """Split an operation behind so many rows, elements or steps; None if it has not that many."""
    i = stream[at].instruction
    if isinstance(i, MemoryInstruction) and stream[at] is not UNLOADED:
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


def unloaded(stream: Stream, at: int, by: int) -> Stream:
    """Load micro-ops in two parts from here on; or no longer, where one begins."""
    if stream[at] is UNLOADED:
        return dropped(stream, at, by)
    return [*stream[:at], UNLOADED, *stream[at:]]


EDITS = {"move": moved, "split": split, "drop": dropped, "unload": unloaded}
"""Edits by name: functions of a stream, a place and a number; they return a new stream."""
