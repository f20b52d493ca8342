"""The extension `forward`: load from the output memory instead of DRAM if it holds the data.

An operator stores its results, and another loads them. If the output memory has not been
overwritten in between, the load reads it directly: one tile per cycle, no port traffic. Stores
without remaining readers are removed. The pass works on the final order of operations and is
correct for any tilings; tilings for turns are chosen so that it finds much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import vtaops._uses as _uses
from vtaops.lowering.copies import MAX_SIZE
from vtaops.lowering.operation import Elements, Operation, PassContext
from vtaops.machine.accesses import listed
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load, Store
from vtaops.program import Buffer, Role

# `python -m benchmarks heuristics`, MobileNet on pynq_ext, 2026-11-28: _WORTH 2 +0.08 %, 8 +0.06 %
# cycles; _PARTS 4 and 16: none.
_WORTH = 4
"""Minimum elements from the output memory per load where one becomes several; below that it stays
as is."""

_PARTS = 8
"""Maximum number of stores that one may be split into."""


def forwarded(operations: list[Operation], context: PassContext) -> list[Operation]:
    """Replace loads by loads from the output memory if it holds the data."""
    asked = [_takes_tiles(operation) for operation in operations]
    if not any(asked):
        return _needed(operations, context.buffers)
    stored = [i.sram_base if isinstance(i := o.instruction, Store) else -1 for o in operations]
    found = _uses.sources(
        operations, np.array(stored, np.int64), np.array(asked, np.int64), Memory.ACC
    )
    loaded = [
        part
        for place, operation in enumerate(operations)
        for part in (_load(operation, found[place]) if place in found else (operation,))
    ]
    return _needed(loaded, context.buffers)


def _takes_tiles(operation: Operation) -> bool:
    """Whether it loads inputs from DRAM that the program stores to."""
    i = operation.instruction
    return isinstance(i, Load) and i.memory == Memory.INP and bool(operation.dram)


@dataclass(frozen=True)
class _Piece:
    """Rows and columns of a load; `source` is its first output-memory element, or -1 for DRAM."""

    y: int
    rows: int
    x: int
    columns: int
    source: int
    stride: int


def _load(operation: Operation, sources: Elements) -> Iterator[Operation]:
    """Yield the replacements of a load: output-memory loads, and DRAM loads for the rest.

    `sources` are the output-memory elements that hold the loaded data; -1 for those in DRAM alone.
    """
    i = operation.instruction
    assert isinstance(i, Load)
    held = np.count_nonzero(sources >= 0)
    pieces = [*_pieces(sources.reshape(i.y_size, i.x_size))]
    # Rows of padding go with the first and the last piece, which must be as wide as the load.
    narrow_ends = (i.y_pad_top and pieces[0].columns < i.x_size) or (
        i.y_pad_bottom and pieces[-1].columns < i.x_size
    )
    if narrow_ends or (len(pieces) > 1 and held < _WORTH * len(pieces)):
        yield operation
        return
    granules = operation.dram[0].elements.reshape(i.y_size, i.x_size)
    for piece in pieces:
        yield _part(operation, i, piece, granules)


def _part(operation: Operation, i: Load, piece: _Piece, granules: Elements) -> Operation:
    """Return the load of a piece, with its adjacent padding."""
    leftmost, rightmost = piece.x == 0, piece.x + piece.columns == i.x_size
    first = leftmost and piece.y == 0
    last = rightmost and piece.y + piece.rows == i.y_size
    base = i.sram_base
    if not first:
        column = 0 if leftmost else i.x_pad_left + piece.x
        base += (i.y_pad_top + piece.y) * i.sram_row + column
    at: dict[str, int] = {"dram_base": i.dram_base + piece.y * i.x_stride + piece.x}
    if forwards := piece.source >= 0:
        at = {"dram_base": piece.source, "x_stride": piece.stride, "forward": 1}
    load = replace(
        i,
        **at,
        sram_base=base,
        y_size=piece.rows,
        x_size=piece.columns,
        x_pad_left=i.x_pad_left * leftmost,
        x_pad_right=i.x_pad_right * rightmost,
        y_pad_top=i.y_pad_top * first,
        y_pad_bottom=i.y_pad_bottom * last,
    )
    if forwards:
        return Operation(load, operator=operation.operator)
    box = granules[piece.y : piece.y + piece.rows, piece.x : piece.x + piece.columns]
    read = listed(operation.dram[0].memory, box.ravel())
    return replace(operation, instruction=load, dram=(read,))


def _pieces(sources: Elements) -> Iterator[_Piece]:
    """Split a matrix of sources into DRAM pieces and regular output-memory pieces.

    A run is a part of a row in DRAM, or of consecutive output-memory elements.
    """
    height, width = sources.shape
    before, after = sources[:, :-1], sources[:, 1:]
    joined = after == np.where(before >= 0, before + 1, -1)
    broken = np.flatnonzero(~joined.all(axis=1)).tolist()  # rows of several runs
    y = 0
    while y < height:
        if broken and y == broken[0]:
            broken.pop(0)
            edges = [0, *(np.flatnonzero(~joined[y]) + 1).tolist(), width]
            for x, end in pairwise(edges):
                yield _Piece(y, 1, x, end - x, int(sources[y, x]), end - x)
            y += 1
        else:
            firsts = sources[y : broken[0] if broken else height, 0]
            count, stride = _regular(firsts, width)
            yield _Piece(y, count, 0, width, int(firsts[0]), stride)
            y += count


def _regular(firsts: Elements, width: int) -> tuple[int, int]:
    """Return the number of rows, starting at `firsts`, that one load reads, and its stride."""
    stride = width
    if firsts[0] < 0:
        joined = firsts < 0
    else:
        if len(firsts) > 1 and firsts[1] >= 0 and 0 <= firsts[1] - firsts[0] <= MAX_SIZE:
            stride = int(firsts[1] - firsts[0])
        joined = firsts == firsts[0] + np.arange(len(firsts)) * stride
    return len(joined) if joined.all() else int(joined.argmin()), stride


def _needed(operations: list[Operation], buffers: Sequence[Buffer]) -> list[Operation]:
    """Drop stored elements that neither a later load nor the host reads."""
    scratch = [buffer.role is Role.SCRATCH for buffer in buffers]
    asked = [
        isinstance(o.instruction, Store) and scratch[o.relocation] and bool(o.dram)
        for o in operations
    ]
    if not any(asked):
        return operations
    found = _uses.needed(operations, np.array(asked, np.int64))
    return [
        part
        for place, operation in enumerate(operations)
        for part in (_stored(operation, found[place]) if place in found else (operation,))
    ]


def _stored(operation: Operation, needed: npt.NDArray[np.bool_]) -> list[Operation]:
    """Return the stores of the needed elements: of each row the part between its ends."""
    i = operation.instruction
    assert isinstance(i, Store)
    if len(needed) != i.y_size * i.x_size:
        return [operation]
    rows = needed.reshape(i.y_size, i.x_size)
    (dram,) = operation.dram
    granules = dram.elements.reshape(rows.shape)
    parts = []
    for y in np.flatnonzero(rows.any(axis=1)).tolist():
        columns = np.flatnonzero(rows[y])
        x, end = int(columns[0]), int(columns[-1]) + 1
        first = i.sram_base + y * i.x_size + x
        store = replace(
            i,
            sram_base=first,
            dram_base=i.dram_base + y * i.x_stride + x,
            y_size=1,
            x_size=end - x,
            x_stride=end - x,
        )
        written = listed(dram.memory, granules[y, x:end], writes=True, reads=False)
        parts.append(replace(operation, instruction=store, dram=(written,)))
    return parts if len(parts) <= _PARTS else [operation]
