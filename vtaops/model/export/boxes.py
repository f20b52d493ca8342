"""Rearranged arrays as boxes that record the source of each element, without moving any.

A `StridedView` is an array made of boxes: within a box, the elements of one source lie at regular
steps. Transpositions, slices, padding, windows and layouts turn one view into another. In the
end every box becomes one `COPY` step of a bundle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import ceil_div
from vtaops.base.window import Window
from vtaops.machine.layout import Layout
from vtaops.machine.views import Flat, Patches, View, constant_values
from vtaops.model.export.blob import SlotNumber

Shape = tuple[int, ...]
InOrder = Callable[["StridedView"], SlotNumber]
"""Puts an array in C order in a slot."""


@dataclass(frozen=True)
class Box:
    """A part of an array that comes from one source.

    Attributes
    ----------
    source : SlotNumber or tuple of int
        The source, or its elements if they are constants.
    first : int
        Source element at the first corner of the box.
    start, extent, steps : tuple of int
        For each axis: the start of the box in the array, its size, and the distance in the source
        between adjacent elements.
    """

    source: SlotNumber | Shape
    first: int
    start: Shape
    extent: Shape
    steps: Shape

    def on(self, axis: int, start: int, extent: int, step: int, skipped: int = 0) -> Box:
        """Return the box with another range on an axis, `skipped` source elements later."""
        first = self.first + skipped * self.steps[axis]
        parts = zip((self.start, self.extent, self.steps), (start, extent, step), strict=True)
        found = [(*part[:axis], value, *part[axis + 1 :]) for part, value in parts]
        return Box(self.source, first, *found)

    def with_axis(self, axis: int, start: int, extent: int, step: int) -> Box:
        """Return the box with a new axis."""
        parts = zip((self.start, self.extent, self.steps), (start, extent, step), strict=True)
        found = [(*part[:axis], value, *part[axis:]) for part, value in parts]
        return Box(self.source, self.first, *found)


@dataclass(frozen=True)
class StridedView:
    """An array that consists of boxes."""

    shape: Shape
    boxes: tuple[Box, ...]

    @staticmethod
    def of(source: SlotNumber, shape: Shape) -> StridedView:
        """Return a whole source in C order."""
        return StridedView(shape, (Box(source, 0, (0,) * len(shape), shape, strides(shape)),))

    @staticmethod
    def constants(values: Iterable[int], shape: Shape, axis: int) -> StridedView:
        """Return an array of constants: one value, or one for each element of an axis."""
        found = tuple(values)
        steps = tuple(int(at == axis and len(found) > 1) for at in range(len(shape)))
        return StridedView(shape, (Box(found, 0, (0,) * len(shape), shape, steps),))

    @property
    def whole(self) -> SlotNumber | None:
        """The source if the array is all of it, from its first element in C order; else None."""
        box, *others = self.boxes
        if others or isinstance(box.source, tuple) or box.first or box.extent != self.shape:
            return None
        pairs = zip(self.shape, box.steps, strides(self.shape), strict=True)
        return box.source if all(n == 1 or a == b for n, a, b in pairs) else None

    def transposed(self, axes: Sequence[int]) -> StridedView:
        """Return the array with its axes in another order."""

        def turned(values: Shape) -> Shape:
            return tuple(values[axis] for axis in axes)

        boxes = [
            replace(b, start=turned(b.start), extent=turned(b.extent), steps=turned(b.steps))
            for b in self.boxes
        ]
        return StridedView(turned(self.shape), tuple(boxes))

    def sliced(self, axis: int, start: int, count: int, step: int = 1) -> StridedView:
        """Return `count` elements of an axis, starting at `start`."""
        found = []
        for box in self.boxes:
            low, high = box.start[axis], box.start[axis] + box.extent[axis]
            first = max(0, ceil_div(low - start, step))
            end = min(count, ceil_div(high - start, step))
            if first < end:
                skipped = start + first * step - low
                wide = box.steps[axis] * step
                found.append(box.on(axis, first, end - first, wide, skipped))
        return StridedView(_with(self.shape, axis, count), tuple(found))

    def padded(self, axis: int, before: int, after: int, value: int) -> StridedView:
        """Return the array with a constant before and after the elements of an axis."""
        shapes = [_with(self.shape, axis, count) for count in (before, after)]
        first, last = (StridedView.constants([value], shape, axis) for shape in shapes)
        return joined([part for part in (first, self, last) if part.shape[axis]], axis)

    def split(self, axis: int, block: int) -> StridedView:
        """Return the array with an axis split in two, (extent // block, block)."""
        boxes = [part for box in self.boxes for part in _split(box, axis, block)]
        cut = self.shape[axis] // block, block
        return StridedView((*self.shape[:axis], *cut, *self.shape[axis + 1 :]), tuple(boxes))

    def repeated(self, axis: int, count: int) -> StridedView:
        """Return the array with a new axis along which it is repeated."""
        boxes = [box.with_axis(axis, 0, count, 0) for box in self.boxes]
        return StridedView((*self.shape[:axis], count, *self.shape[axis:]), tuple(boxes))

    def expanded(self, shape: Shape) -> StridedView:
        """Return the array whose axes of one element are repeated, as ``numpy.broadcast_to``."""
        found = self
        for count in reversed(shape[: len(shape) - len(self.shape)]):
            found = found.repeated(0, count)
        boxes = found.boxes
        for axis, (own, wanted) in enumerate(zip(found.shape, shape, strict=True)):
            if own < wanted:
                boxes = tuple(box.on(axis, 0, wanted, 0) for box in boxes)
        return StridedView(shape, boxes)


def strides(shape: Shape) -> Shape:
    """Return the C-order strides of an array in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def joined(parts: Sequence[StridedView], axis: int) -> StridedView:
    """Return the concatenation of arrays along an axis."""
    starts = [0, *accumulate(part.shape[axis] for part in parts)]
    boxes = [
        box.on(axis, box.start[axis] + start, box.extent[axis], box.steps[axis])
        for part, start in zip(parts, starts, strict=False)
        for box in part.boxes
    ]
    return StridedView(_with(parts[0].shape, axis, starts[-1]), tuple(boxes))


def constant_lanes(shape: Shape, axis: int, count: int) -> list[StridedView]:
    """Return arrays to join for `count` constant lanes on an axis; `shape` says the others."""
    shape = _with(shape, axis, count)
    return [StridedView.constants(constant_values(count), shape, axis)] if count else []


def packed(array: StridedView, layout: Layout, in_order: InOrder) -> StridedView:
    """Return an array in the order of a layout, like `Layout.pack`.

    Raises
    ------
    UnsupportedError
        If the layout has a view that arguments of networks do not use.
    """
    if layout.view is not None:
        array = _viewed(array, layout.view, in_order)
    blocks, letters = dict(layout.blocks), list(layout.axes)
    for axis in layout.axes:
        if size := blocks.get(axis.lower()):
            at = letters.index(axis)
            array = array.padded(at, 0, -array.shape[at] % size, 0).split(at, size)
            letters.insert(at + 1, axis.lower())
    wanted = [*layout.outer, *(letter for letter, _ in layout.blocks)]
    array = array.transposed([letters.index(letter) for letter in wanted if letter in letters])
    for at, letter in enumerate(wanted):
        if letter not in letters:
            array = array.repeated(at, blocks[letter])
    return array


def copies(array: StridedView) -> Iterator[tuple[Box, int, list[tuple[int, int, int]]]]:
    """Yield each box, the place of its first element, and (extent, source step, step) by axis.

    Contiguous axes are merged. The last axis is one of adjacent elements, else it is long with
    small steps, so that a step copies adjacent memory; the others are also ordered by their steps.
    """
    places = strides(array.shape)
    for box in array.boxes:
        axes = _joined_axes(zip(box.extent, box.steps, places, strict=True))
        axes.sort(key=lambda axis: (axis[1:] == (1, 1), axis[0] >= 8, -axis[1] - axis[2], axis[0]))
        at = sum(start * place for start, place in zip(box.start, places, strict=True))
        yield box, at, axes


def _joined_axes(axes: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the axes of a copy without axes of extent 1, merging adjacent axes where possible."""
    found: list[tuple[int, int, int]] = []
    for extent, source, place in axes:
        if extent == 1:
            continue
        if found and found[-1][1:] == (extent * source, extent * place):
            extent *= found.pop()[0]
        found.append((extent, source, place))
    return found or [(1, 1, 1)]


def _viewed(array: StridedView, view: View, in_order: InOrder) -> StridedView:
    if isinstance(view, Flat):
        return StridedView.of(in_order(array), (math.prod(array.shape),))
    if isinstance(view, Patches):
        return _taps(array, view.window, view.constants, in_order)
    raise UnsupportedError(f"no C code packs a tensor through the view {view}")


def _taps(array: StridedView, window: Window, constants: int, in_order: InOrder) -> StridedView:
    """Return the pixels of each tap of a window as channels, followed by channels of constants.

    Of the image with its border, channels last, the pixels of a window's row are adjacent.
    """
    rows, columns = window.out_size(*array.shape[2:])
    top, left, bottom, right = window.padding
    image = array.padded(2, top, bottom, 0).padded(3, left, right, 0).transposed((0, 2, 3, 1))
    slot, (plane, row, pixel, _) = in_order(image), strides(image.shape)
    (down, across), (n, *_, channels) = window.dilation, image.shape
    together = window.kernel[1] if across == 1 else 1
    shape = n, together * channels, rows, columns
    steps = plane, 1, row * window.strides[0], pixel * window.strides[1]
    taps = [
        StridedView(
            shape, (Box(slot, y * down * row + x * across * pixel, (0,) * 4, shape, steps),)
        )
        for y in range(window.kernel[0])
        for x in range(0, window.kernel[1], together)
    ]
    return joined([*taps, *constant_lanes(shape, 1, constants)], 1)


def _split(box: Box, axis: int, block: int) -> Iterator[Box]:
    """Yield the parts of a box in its first partial block, its whole blocks, and its last one."""
    start, end, step = box.start[axis], box.start[axis] + box.extent[axis], box.steps[axis]
    first = min(end, ceil_div(start, block) * block)
    cuts = sorted({start, first, max(first, end // block * block), end})
    for low, high in pairwise(cuts):
        inner = min(high - low, block)
        part = box.on(axis, low // block, (high - low) // inner, step * block, low - start)
        yield part.with_axis(axis + 1, low % block, inner, step)


def _with(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])
