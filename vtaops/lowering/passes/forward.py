"""The extension `forward`: what the output memory still holds is loaded from there, not from DRAM.

An operator stores its results, another one loads them. Where the output memory has not been written
in between, the load takes them from it: a tile a cycle, nothing over the port. Stores that nobody
loads any more fall away. Both are found on the finished order of operations: whatever the tilings
are, this is right; tilings for turns are such that much is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from vtaops.lowering.copies import MAX_SIZE
from vtaops.lowering.operation import Elements, Operation, Touch
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load, Store
from vtaops.program import NO_BUFFER, Buffer, Role

_WORTH = 4
"""Elements from the output memory for each instruction of a load, or the load stays as it is."""

_PARTS = 8
"""Stores that one may become."""


def forwarded(operations: Sequence[Operation], buffers: Sequence[Buffer]) -> list[Operation]:
    """Return the operations with loads from the output memory where it holds what they load.

    Parameters
    ----------
    operations : sequence of Operation
        In program order, with what they touch in DRAM.
    buffers : sequence of Buffer
        Of the program: what is stored to `SCRATCH` only the program reads.
    """
    images = _Images(operations)
    result: list[Operation] = []
    for place, operation in enumerate(operations):
        i = operation.instruction
        if isinstance(i, Load) and i.memory == Memory.INP and len(operation.touches) == 2:
            result += _load(operation, images.sources(operation.touches[1]))
        else:
            result.append(operation)
        images.follow(operation, place)
    return _needed(result, buffers)


class _Images:
    """What of DRAM the output memory holds, and where."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        sizes: dict[str, int] = {}
        for touch in {id(t): t for o in operations for t in o.touches}.values():
            if touch.elements.size:
                sizes[touch.space] = max(sizes.get(touch.space, 0), touch.end)
        # For each granule of DRAM the element that it was stored from, and when; -1: none.
        self._element = {s: np.full(n, -1, np.int64) for s, n in sizes.items() if _is_dram(s)}
        self._stored = {s: np.full(n, -1, np.int64) for s, n in sizes.items() if _is_dram(s)}
        self._written = np.full(sizes.get("acc", 0), -1, np.int64)

    def sources(self, touch: Touch) -> Elements:
        """Return the elements of the output memory that hold what is loaded; -1 where none."""
        element = self._element[touch.space][touch.elements]
        stored = self._stored[touch.space][touch.elements]
        intact = (element >= 0) & (self._written[element] < stored)
        return np.where(intact, element, -1)

    def follow(self, operation: Operation, place: int) -> None:
        """Remember what an operation does to DRAM and to the output memory."""
        i = operation.instruction
        if isinstance(i, Store):
            for touch in operation.touches:
                if _is_dram(touch.space):
                    own = i.sram_base + np.arange(len(touch.elements))
                    self._element[touch.space][touch.elements] = own
                    self._stored[touch.space][touch.elements] = place
            return
        for touch in operation.touches:
            if touch.space == "acc" and touch.write:
                self._written[touch.index] = place


def _is_dram(space: str) -> bool:
    return space.startswith("dram:")


@dataclass(frozen=True)
class _Piece:
    """Rows (y, count) and columns of a load; `source` is its first element in the output memory."""

    y: int
    rows: int
    x: int
    columns: int
    source: int = -1
    stride: int = 0


def _load(operation: Operation, sources: Elements) -> Iterator[Operation]:
    """Yield what a load becomes: loads from the output memory, and of DRAM what is not there."""
    i = operation.instruction
    assert isinstance(i, Load)
    if (sources < 0).all():
        yield operation
        return
    pieces = [*_pieces(sources.reshape(i.y_size, i.x_size))]
    # Rows of padding go with the first and the last piece, which must be as wide as the load.
    padded = (i.y_pad_top and pieces[0].columns < i.x_size) or (
        i.y_pad_bottom and pieces[-1].columns < i.x_size
    )
    if padded or (sources >= 0).sum() < _WORTH * len(pieces):
        yield operation
        return
    _, dram = operation.touches
    granules = dram.elements.reshape(i.y_size, i.x_size)
    for piece in pieces:
        yield _part(operation, i, piece, granules)


def _part(operation: Operation, i: Load, piece: _Piece, granules: Elements) -> Operation:
    """Return the load of a piece, with the padding beside it."""
    left = i.x_pad_left if piece.x == 0 else 0
    right = i.x_pad_right if piece.x + piece.columns == i.x_size else 0
    top = i.y_pad_top if piece.y == 0 and piece.x == 0 else 0
    last = piece.y + piece.rows == i.y_size and piece.x + piece.columns == i.x_size
    bottom = i.y_pad_bottom if last else 0
    row = i.sram_row
    base = i.sram_base
    if piece.y or piece.x:
        base += (i.y_pad_top + piece.y) * row + (i.x_pad_left + piece.x if piece.x else 0)
    load = replace(
        i,
        sram_base=base,
        y_size=piece.rows,
        x_size=piece.columns,
        x_pad_left=left,
        x_pad_right=right,
        y_pad_top=top,
        y_pad_bottom=bottom,
    )
    written = Touch("inp", base + np.arange(load.sram_size), write=True)
    if piece.source >= 0:
        load = replace(load, dram_base=piece.source, x_stride=piece.stride, forward=1)
        rows = piece.source + np.arange(piece.rows)[:, None] * piece.stride
        read = Touch("acc", np.unique(rows + np.arange(piece.columns)), write=False)
        return Operation(load, NO_BUFFER, (written, read), operator=operation.operator)
    load = replace(load, dram_base=i.dram_base + piece.y * i.x_stride + piece.x)
    box = granules[piece.y : piece.y + piece.rows, piece.x : piece.x + piece.columns]
    read = Touch(operation.touches[1].space, np.unique(box), write=False)
    return Operation(load, operation.relocation, (written, read), operator=operation.operator)


def _pieces(sources: Elements) -> Iterator[_Piece]:
    """Cut a matrix of sources into pieces in DRAM, and regular ones in the output memory."""
    rows = [_runs(row) for row in sources]
    y = 0
    while y < len(rows):
        if len(rows[y]) > 1:
            for x, columns in rows[y]:
                yield _Piece(y, 1, x, columns, int(sources[y, x]), columns)
            y += 1
            continue
        end = y + 1
        first = int(sources[y, 0])
        if first < 0:
            while end < len(rows) and len(rows[end]) == 1 and sources[end, 0] < 0:
                end += 1
            yield _Piece(y, end - y, 0, sources.shape[1])
        else:
            stride = sources.shape[1]
            if end < len(rows) and len(rows[end]) == 1 and sources[end, 0] >= 0:
                step = int(sources[end, 0]) - first
                if 0 <= step <= MAX_SIZE:
                    stride = step
                    while (
                        end < len(rows)
                        and len(rows[end]) == 1
                        and sources[end, 0] == first + (end - y) * stride
                    ):
                        end += 1
            yield _Piece(y, end - y, 0, sources.shape[1], first, stride)
        y = end


def _runs(row: Elements) -> list[tuple[int, int]]:
    """Return where a row is cut: (first, size) of runs in DRAM, or consecutive in the memory."""
    joined = np.where(row[:-1] >= 0, np.diff(row) == 1, row[1:] < 0)
    edges = [0, *(np.flatnonzero(~joined) + 1).tolist(), len(row)]
    return [(a, b - a) for a, b in pairwise(edges)]


def _needed(operations: list[Operation], buffers: Sequence[Buffer]) -> list[Operation]:
    """Return the operations; stores keep only what a load reads afterwards, or the host."""
    needed: dict[str, Elements] = {}
    kept: list[Operation] = []
    for operation in reversed(operations):
        i = operation.instruction
        parts = [operation]
        for touch in operation.touches:
            if not _is_dram(touch.space):
                continue
            mask = _of_size(needed, touch)
            if isinstance(i, Store):
                if buffers[operation.relocation].role is Role.SCRATCH:
                    parts = _stored(operation, i, mask[touch.elements])
                mask[touch.index] = False
            else:
                mask[touch.index] = True
        kept += reversed(parts)
    return kept[::-1]


def _of_size(masks: dict[str, Elements], touch: Touch) -> Elements:
    size = touch.end
    mask = masks.get(touch.space, np.zeros(0, np.bool_))
    if len(mask) < size:
        masks[touch.space] = mask = np.concatenate([mask, np.zeros(2 * size - len(mask), np.bool_)])
    return mask


def _stored(operation: Operation, i: Store, needed: Elements) -> list[Operation]:
    """Return the stores of what is needed of a store: of each row the part between its ends."""
    if len(needed) != i.y_size * i.x_size or needed.all():
        return [operation]
    rows = needed.reshape(i.y_size, i.x_size)
    own, dram = operation.touches
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
        read = Touch(own.space, first + np.arange(end - x), write=False)
        written = Touch(dram.space, granules[y, x:end], write=True)
        parts.append(
            Operation(store, operation.relocation, (read, written), operator=operation.operator)
        )
    return parts if len(parts) <= _PARTS else [operation]
