"""Cover a copy of tiles by 2-D DMA accesses. Pure arithmetic on index grids.

A copy is a grid of DRAM element numbers in SRAM order, with `ZERO` for padding and `SKIP` for
elements that need not be written (tiles beyond the edge of the operator).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vtaops.machine.isa import Load, values_of

ZERO = -1
SKIP = -2

MAX_SIZE = values_of(Load, "x_size")[-1]
"""Largest x_size, y_size and x_stride of one instruction."""

MAX_PAD = values_of(Load, "x_pad_left")[-1]
"""Largest padding on one side of one instruction."""

Grid = npt.NDArray[np.int64]

_FAR = 1 << 62


class BlockTransfer(NamedTuple):
    """Fields of a LOAD or STORE, in their order; `sram_base` counts from the start of the grid."""

    sram_base: int
    dram_base: int
    y_size: int
    x_size: int
    x_stride: int
    y_pad_top: int = 0
    y_pad_bottom: int = 0
    x_pad_left: int = 0
    x_pad_right: int = 0


def cover(grid: Grid, pads: bool) -> list[BlockTransfer]:
    """Return accesses that together perform a copy.

    Parameters
    ----------
    grid : ndarray of int64
        DRAM element of each SRAM element, `ZERO` or `SKIP`; SRAM order is row-major.
    pads : bool
        Whether the instruction can write zeros around its rows.

    Notes
    -----
    Tries the whole grid as one access, with rows of each product of trailing extents; if that
    fails, splits the outermost axis and recurses. So a padded copy of several channel blocks
    becomes one access per block: the hardware cannot pad a third dimension.
    """
    return list(_cover(grid, 0, pads))


def _cover(grid: Grid, sram: int, pads: bool) -> Iterator[BlockTransfer]:
    flat = grid.ravel()
    used = np.flatnonzero(flat != SKIP)
    if not used.size:
        return
    first, last = int(used[0]), int(used[-1]) + 1
    single = _single_access(flat, grid.shape, first, last, pads)
    if single is not None:
        yield BlockTransfer(single.sram_base + sram, *single[1:])
    elif grid.ndim > 1:
        known: dict[bytes, list[BlockTransfer]] = {}  # equal parts recur at other places
        for index, part in enumerate(grid):
            lowest = int(part.min(where=part >= 0, initial=_FAR)) % _FAR
            form = np.where(part >= 0, part - lowest, part)
            transfers = known.setdefault(form.tobytes(), [])
            if not transfers:
                transfers += _cover(form, 0, pads)
            at = sram + index * part.size
            for one in transfers:
                dram = one.dram_base + lowest * (one.y_size > 0)
                yield BlockTransfer(one.sram_base + at, dram, *one[2:])
    else:
        for begin, end in _runs(flat):
            run = _single_access(flat, flat.shape, begin, end, pads)
            assert run is not None
            yield BlockTransfer(run.sram_base + sram, *run[1:])


def _single_access(
    flat: Grid, shape: tuple[int, ...], first: int, last: int, pads: bool
) -> BlockTransfer | None:
    """Return one access that writes ``flat[first:last]``, or None if no instruction can."""
    if (flat[first:last] < 0).all():
        return _zeros(first, last - first) if (flat[first:last] == ZERO).all() and pads else None
    widths = np.cumprod(np.array(shape[::-1], dtype=np.int64))[::-1]
    for width in dict.fromkeys((*widths.tolist(), 1)):  # loops of one iteration repeat widths
        # Exactly the used part; otherwise whole grid rows, where skipped elements become padding.
        whole_rows = first - first % width, last + -last % width
        for begin, end in dict.fromkeys(((first, last), whole_rows)):
            if (end - begin) % width == 0:
                access = _rectangle(flat[begin:end].reshape(-1, width), pads)
                if access is not None:
                    return access._replace(sram_base=begin)
    access = _rectangle(flat[first:last].reshape(1, -1), pads)
    return access and access._replace(sram_base=first)


def _rectangle(rows: Grid, pads: bool) -> BlockTransfer | None:
    """Return one access for a matrix of elements whose valid part is a rectangle, or None."""
    valid = rows >= 0
    used_rows, used_columns = np.flatnonzero(valid.any(1)), np.flatnonzero(valid.any(0))
    if not used_rows.size:
        return None
    top, bottom = int(used_rows[0]), len(rows) - 1 - int(used_rows[-1])
    left, right = int(used_columns[0]), rows.shape[1] - 1 - int(used_columns[-1])
    sides = (top, bottom, left, right)
    if max(sides) > MAX_PAD or (any(sides) and not pads):
        return None
    box = rows[top : len(rows) - bottom, left : rows.shape[1] - right]
    y_size, x_size = box.shape
    stride = int(box[1, 0] - box[0, 0]) if y_size > 1 else x_size
    expected = box[0, 0] + np.arange(y_size)[:, None] * stride + np.arange(x_size)
    if not (box == expected).all() or not 0 <= stride <= MAX_SIZE or max(box.shape) > MAX_SIZE:
        return None
    return BlockTransfer(0, int(box[0, 0]), y_size, x_size, stride, *sides)


def _zeros(sram: int, count: int) -> BlockTransfer | None:
    """Return an access that reads nothing and writes one row of zeros; None if too long."""
    return BlockTransfer(sram, 0, 0, count, count, y_pad_top=1) if count <= MAX_SIZE else None


def _runs(flat: Grid) -> Iterator[tuple[int, int]]:
    """Split a row into runs of consecutive DRAM elements and runs of zeros, skipping the rest."""
    step = np.diff(flat)
    same = ((step == 1) & (flat[:-1] >= 0)) | ((flat[:-1] == ZERO) & (flat[1:] == ZERO))
    edges = [0, *(np.flatnonzero(~same) + 1).tolist(), len(flat)]
    for begin, end in pairwise(edges):
        if flat[begin] != SKIP:
            for part in range(begin, end, MAX_SIZE):
                yield part, min(end, part + MAX_SIZE)
