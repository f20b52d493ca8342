"""Arrays of places: what rearranges an array rearranges where its elements lie, without moving any.

A place is a number: a constant of eight bits is its own, and elements of slots have others. So
NumPy's transpositions, slices, padding and concatenations, views and layouts rearrange places like
data. In the end every box of places at regular steps becomes one `COPY` step of a bundle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from vtaops.model.export.blob import SlotNumber

Places = npt.NDArray[np.int64]
Axis = tuple[int, int, int]
"""Of a copy: its extent, and the steps in the source and in the result."""

_BITS = 40
"""Of a place: its element; above these is one more than the number of its slot."""
_NO_STEP = -1


def places(slot: SlotNumber, shape: Sequence[int]) -> Places:
    """Return the places of an array that fills a slot in C order."""
    return (slot + 1 << _BITS) + np.arange(math.prod(shape)).reshape(shape)


def source_of(place: int) -> tuple[SlotNumber | None, int]:
    """Return the slot of a place and its element there, or None and the constant."""
    slot, element = divmod(place, 1 << _BITS)
    return (SlotNumber(slot - 1), element) if slot > 0 else (None, place)


def copies(array: Places) -> Iterator[tuple[int, int, list[Axis]]]:
    """Yield the first place of each box, where it belongs in the array, and the axes of its copy.

    Contiguous axes are merged. The last axis is one of adjacent elements, else it is long with
    small steps, so that a step copies adjacent memory; the others are also ordered by their steps.
    """
    strides = [math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    for first, at, axes in _boxes(array, strides, 0, []) if array.size else ():
        joined = _joined(sorted(axes, key=lambda one: -one[2]))
        joined.sort(
            key=lambda axis: (axis[1:] == (1, 1), axis[0] >= 8, -axis[1] - axis[2], axis[0])
        )
        yield first, at, joined


def _boxes(
    array: Places, strides: Sequence[int], at: int, axes: list[Axis]
) -> Iterator[tuple[int, int, list[Axis]]]:
    """Yield the boxes of an array without the axes that all of it has in common."""
    if not array.ndim:
        yield int(array), at, axes
        return
    steps = []
    for axis, extent in enumerate(array.shape):
        found = _steps(array, axis)
        if extent == 1 or (found.flat[0] != _NO_STEP and (found == found.flat[0]).all()):
            common = [(extent, int(found.flat[0]), strides[axis])] if extent > 1 else []
            others = [*strides[:axis], *strides[axis + 1 :]]
            yield from _boxes(array.take([0], axis).squeeze(axis), others, at, axes + common)
            return
        steps.append(found)
    axis, cuts = _cuts(steps)
    for begin, end in zip([0, *cuts], [*cuts, array.shape[axis]], strict=True):
        part = array.take(range(begin, end), axis)
        yield from _boxes(part, strides, at + begin * strides[axis], axes)


def _steps(array: Places, axis: int) -> Places:
    """Return the steps between neighbours on an axis; `_NO_STEP` if no copy takes such."""
    slots = array >> _BITS
    steps, moves = np.diff(array, axis=axis), np.diff(slots, axis=axis) != 0
    constant = slots.take(range(steps.shape[axis]), axis) < 1
    return np.where(moves | (steps < 0) | (constant & (steps != 0)), _NO_STEP, steps)


def _cuts(steps: Sequence[Places]) -> tuple[int, list[int]]:
    """Return an axis, and where an array with these steps is cut on it.

    It is cut where steps on other axes change. If none do, all lines of an axis are alike, and cut
    where their step does.
    """
    for axis in range(len(steps)):
        others = (np.moveaxis(each, axis, 0) for at, each in enumerate(steps) if at != axis)
        changes = [np.diff(each, axis=0).any(axis=tuple(range(1, each.ndim))) for each in others]
        if cuts := (1 + np.flatnonzero(np.any(changes, axis=0))).tolist():
            return axis, cuts
    for axis, each in enumerate(steps):
        line = np.moveaxis(each, axis, -1).reshape(-1, each.shape[axis])[0].tolist()
        if cuts := _ends(line):
            return axis, cuts
    raise AssertionError("an array without cuts has only common axes")


def _ends(line: Sequence[int]) -> list[int]:
    """Return where a line with these steps is cut, so that each part has one step."""
    begin, cuts = 0, list[int]()
    for number, step in enumerate(line):
        if step == _NO_STEP or step != line[begin]:
            begin = number + 1
            cuts.append(begin)
    return cuts


def _joined(axes: Sequence[Axis]) -> list[Axis]:
    """Return the axes of a copy, adjacent ones merged where possible."""
    found: list[Axis] = []
    for extent, source, place in axes:
        if found and found[-1][1:] == (extent * source, extent * place):
            extent *= found.pop()[0]
        found.append((extent, source, place))
    return found or [(1, 1, 1)]
