"""The storage of every tensor of a graph: which image holds it, and in which order.

An image (N, C, H, W) holds a tensor in the order of its own axes, with channels last, or with some
of them outside of the pixels, as heads of attention are. Most operators say how their tensors are
stored: convolutions and pools store (N, C, H, W) as it is, and matrix products read the channels of
the last axis. A reshape or a transposition between two of
them is a free view where both agree about the image: (1, C, L) between convolutions of height 1 is
(1, C, 1, L), and (1, H, W, C) between a transposition and a matrix product is (1, C, H, W).
Other tensors take the storage that their readers prefer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from itertools import accumulate, filterfalse
from operator import mul
from weakref import WeakKeyDictionary

import numpy as np

from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator

Image = tuple[int, int, int, int]
Shape = tuple[int, ...]

PIXELWISE = (
    ops.Convolution
    | ops.TransposedConvolution
    | ops.MaxPool
    | ops.AveragePool
    | ops.Upsample
    | ops.Pad
)
POINTWISE = (
    ops.Requantize | ops.LookupTable | ops.Add | ops.RescaledAdd | ops.Multiply | ops.Extremum
)


ROWS = ops.RowNorm | ops.RowSoftmax
"""Functions of rows: the last axis are the channels."""

_COMPUTES = PIXELWISE | POINTWISE | ROWS | ops.Dense
_VIEWS = ops.Reshape | ops.Transpose | ops.Concat | ops.Slice | ops.Expand


@dataclass(frozen=True)
class Storage:
    """How an image holds a tensor.

    Attributes
    ----------
    image : (int, int, int, int)
        (N, C, H, W).
    outer : int
        The scalars of the tensor, in C order, are those of (N, outer, H, W, C / outer): C if its
        order is that of the image, 1 if channels are last.
    """

    image: Image
    outer: int

    @staticmethod
    def of(image: Image, *, last: bool = False, outer: int | None = None) -> Storage:
        """Return a storage; of one pixel or one channel, all orders are the same."""
        channels = image[1]
        outer = (1 if last else channels) if outer is None else outer
        return Storage(image, outer if min(channels, image[2] * image[3]) > 1 else channels)

    def __str__(self) -> str:
        n, c, h, w = self.image
        if self.split:
            return f"{n} x {self.outer} x {h} x {w} x {c // self.outer}"
        return f"{n} x {h} x {w} x {c}" if self.last else f"{n} x {c} x {h} x {w}"

    @property
    def last(self) -> bool:
        """Whether the scalars of the tensor, in C order, are those of (N, H, W, C)."""
        return self.outer == 1 < self.image[1]

    @property
    def split(self) -> bool:
        """Whether some of the channels are outside of the pixels, and some inside."""
        return 1 < self.outer < self.image[1]

    @property
    def apart(self) -> Storage:
        """The storage with the channels that are outside of the pixels as images."""
        n, c, h, w = self.image
        return Storage.of((n * self.outer, c // self.outer, h, w), last=True)

    @property
    def parts(self) -> tuple[int, ...]:
        """The axes of the image, the channels in two parts if they are split."""
        n, c, h, w = self.image
        return (n, self.outer, c // self.outer, h, w) if self.split else self.image

    @property
    def order(self) -> tuple[int, ...]:
        """The order of the image's `parts` in the tensor; empty if it is that of the image."""
        if self.split:
            return 0, 1, 3, 4, 2
        return (0, 2, 3, 1) if self.last else ()

    @property
    def pixels(self) -> int:
        """Number of pixels of an image of the batch."""
        return self.image[2] * self.image[3]

    def ends_in(self, channels: int) -> bool:
        """Return whether the last axis of the tensor, of this extent, are the channels."""
        return self.image[1] == channels and (self.last or min(self.pixels, channels) == 1)

    def channel_axes(self, shape: Shape) -> tuple[int, ...] | None:
        """Return the axes of the tensor, whose shape this is, that are the channels together.

        Axes of one element beside them belong to them. None if there are none.
        """
        outside = self.image[0] * self.outer
        reached, axes = [1, *accumulate(shape, mul)], set[int]()
        groups = [] if self.last else [(self.image[0], outside)]
        if self.last or self.split:
            groups.append((outside * self.pixels, self.image[0] * self.image[1] * self.pixels))
        for ends in groups:
            if not {*ends} <= {*reached}:
                return None
            behind = len(reached) - 1 - reached[::-1].index(ends[1])
            axes |= {*range(reached.index(ends[0]), behind)}
        return tuple(sorted(axes))

    def pixel_axis(self, axis: int, shape: Shape) -> int | None:
        """Return the axis of the image (2 or 3) that an axis of the tensor is; None if neither."""
        n, c, h, w = self.image
        base, tail = n * self.outer, c // self.outer
        around = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        return {(base, h, w * tail): 2, (base * h, w, tail): 3}.get(around)

    def row_groups(self, shape: Shape) -> int:
        """Return how many rows of the last axis the channels of a pixel are; 0 if they are none."""
        if self.ends_in(shape[-1]):
            return 1
        axes = self.channel_axes(shape) or ()
        whole = self.image[0] == 1 and len(shape) - 1 in axes
        return self.image[1] // shape[-1] if whole else 0

    def seen_as(self, other: Storage | None) -> Storage:
        """Return the storage with the pixels in the rows of another one, if it has as many."""
        if other is None or (*self.image[:2], self.pixels) != (*other.image[:2], other.pixels):
            return self
        return Storage(other.image, self.outer)

    def with_channels(self, channels: int, *, last: bool = False) -> Storage:
        """Return the storage of a tensor with another number of channels.

        Whether they are `last` must be given for one channel, which has no order.
        """
        n, _, h, w = self.image
        return Storage.of((n, channels, h, w), last=self.last or last)


class Held(Enum):
    """How an image holds matrices: what their rows and columns are."""

    ROWS_ARE_PIXELS = auto()
    COLUMNS_ARE_PIXELS = auto()
    ROWS_ARE_IMAGES = auto()
    STACKED = auto()
    """Rows are pixels, those of one matrix below those of another."""


def held_matrices(storage: Storage, shape: tuple[int, int, int]) -> Held | None:
    """Return how an image holds matrices, (number, rows, columns); None if it holds none.

    Different matrices are images, channels, or pixels; rows or columns that are not pixels are
    channels.
    """
    (count, rows, columns), (n, channels, *_) = shape, storage.image
    groups, one = count // n, min(channels, storage.pixels) == 1
    if n in (1, count):
        size = storage.pixels, channels
        if size == (rows, groups * columns) and (one or storage.outer == groups):
            return Held.ROWS_ARE_PIXELS
        if size == (columns, groups * rows) and storage.outer == channels:
            return Held.COLUMNS_ARE_PIXELS
    if storage.pixels == 1 and (n, channels) == (count * rows, columns):
        return Held.ROWS_ARE_IMAGES
    return Held.STACKED if storage == stacked(shape) else None


def stacked(shape: tuple[int, int, int]) -> Storage:
    """Return the storage of matrices in one image, one below the other."""
    count, rows, columns = shape
    return Storage.of((1, columns, count * rows, 1), last=True)


def matrices_of(node: Node, operand: int) -> tuple[int, int, int]:
    """Return the number, rows and columns of an operand's matrices, or of the result's (2)."""
    tensor = (*node.inputs, *node.outputs)[operand]
    count = math.prod(node.inputs[1].shape[:-2])
    rows = tensor.shape[-2] if operand == 1 else math.prod(tensor.shape[:-1]) // count
    return count, rows, tensor.shape[-1]


@dataclass(frozen=True, eq=False)
class Wish:
    """What the readers of a tensor want of its storage.

    Attributes
    ----------
    best : Storage or None
        The storage that they prefer.
    takes : callable
        Whether they read the tensor in a storage.
    depth : int
        Number of readers behind readers that are asked.
    direct : bool
        Whether they compute; a view can also be made on the host, where it costs nothing.
    """

    best: Storage | None
    takes: Callable[[Storage], bool]
    depth: int = 0
    direct: bool = True

    @property
    def rank(self) -> tuple[bool, bool]:
        """Wishes of a higher rank go first."""
        return self.best is not None and self.direct, self.best is not None

    def beside(self, other: Wish) -> Wish:
        """Return the wish of two readers; the storage is that of this one if they are alike."""
        first = self if self.rank >= other.rank else other
        depth = max(self.depth, other.depth) + 1
        both = cache(lambda storage: self.takes(storage) and other.takes(storage))
        return replace(first, takes=both, depth=depth)


DEPTH = 50
"""Maximum number of readers behind readers that are asked."""


Rows = Callable[[Shape], Storage]
"""The storage of a tensor whose last axis are the channels."""


def natural(shape: Shape, rows: Rows) -> Storage | None:
    """Return the storage of a tensor of which nothing else is known; None if there is none.

    Images are stored as they are, and other tensors as rows.
    """
    if len(shape) == 4:
        return as_image(shape)
    return rows(shape) if len(shape) > 1 else None


def as_image(shape: Shape) -> Storage:
    """Return the storage of an image as it is, or of another tensor whose axis 1 are channels."""
    height, width = shape[2:] if len(shape) == 4 else (1, math.prod(shape[2:]))
    return Storage.of((shape[0], shape[1], height, width))


def as_rows(shape: Shape) -> Storage:
    """Return the storage of a tensor as rows: its last axis are the channels of single pixels."""
    return Storage.of((math.prod(shape[:-1]), shape[-1], 1, 1))


def as_tokens(shape: Shape) -> Storage:
    """Return the storage of a tensor as rows that are pixels, as products of two tensors need."""
    batch = 1 if len(shape) < 3 else shape[0]
    pixels = math.prod(shape[:-1]) // batch
    return Storage.of((batch, shape[-1], pixels, 1), last=True)


def _transposed(shape: Shape, axes: Shape, storage: Storage) -> Storage | None:
    """Return the storage after a transposition that moves channels, or swaps them and pixels."""
    group = storage.channel_axes(shape) or ()
    moved = [axis for axis in axes if shape[axis] > 1]
    if moved == sorted(moved):
        return storage
    others, batch = [*filterfalse(group.__contains__, moved)], storage.image[0]
    before = _others_before(moved, group, shape)
    if others != sorted(others) or not {*before.values()} <= {batch, batch * storage.pixels}:
        return None
    outside = (shape[axis] for axis, count in before.items() if count == batch)
    return Storage.of(storage.image, outer=math.prod(outside))


def _others_before(axes: Sequence[int], channels: Sequence[int], shape: Shape) -> dict[int, int]:
    """Return the elements of the axes before each axis of channels that are none themselves."""
    sizes = (1 if axis in channels else shape[axis] for axis in axes)
    found = zip(axes, accumulate(sizes, mul), strict=True)
    return {axis: count for axis, count in found if axis in channels}


_KNOWN: WeakKeyDictionary[Graph, tuple[int, dict[str, Storage]]] = WeakKeyDictionary()
"""Storages with the number of tensors that a graph had, which only grows."""


def storages(graph: Graph) -> dict[str, Storage]:
    """Return the storage of each tensor by name, without those that no image holds."""
    size, found = _KNOWN.get(graph, (-1, {}))
    if size != len(graph.tensors):
        found = _decided(graph)
        _KNOWN[graph] = len(graph.tensors), found
    return found


def _decided(graph: Graph) -> dict[str, Storage]:
    rows = _rows_of(graph)
    wishes = _wishes(graph, rows)
    found = {t.name: best for t in graph.inputs if (best := _best(t, wishes, rows))}
    for node in graph.nodes:
        if isinstance(node.op, ops.RowSoftmax):  # a mask has an image for each matrix
            found |= {mask.name: found[node.inputs[0].name].apart for mask in node.inputs[1:]}
        if isinstance(node.op, ops.Matmul):
            result = _of_product(node, wishes)
        else:
            result = _of_result(node, found, wishes, rows)
        for tensor in node.outputs:
            if storage := result or _best(tensor, wishes, rows):
                found[tensor.name] = storage
    return found


def _rows_of(graph: Graph) -> Rows:
    """Return how rows are stored: as pixels, if matrices are multiplied, or as images of one."""
    pixels = any(isinstance(node.op, ops.Matmul | ROWS) or _swaps(node) for node in graph.nodes)
    return as_tokens if pixels else as_rows


def _of_result(
    node: Node, found: Mapping[str, Storage], wishes: Mapping[str, Wish], rows: Rows
) -> Storage | None:
    """Return the storage of a result; None if its readers decide."""
    known = all(tensor.name in found for tensor in node.inputs)
    result = made(node, [found[tensor.name] for tensor in node.inputs]) if known else None
    if result is None or not isinstance(node.op, _VIEWS):
        return result
    wish, own = wishes.get(node.outputs[0].name), natural(node.outputs[0].shape, rows)
    if wish is None:
        return result if own in (None, result) else None
    return next(filter(lambda s: s == own or wish.takes(s), _seen(node, result, wish)), None)


def _seen(node: Node, result: Storage, wish: Wish) -> tuple[Storage, ...]:
    """Return storages as which a view shows what another one holds, the best first."""
    if not isinstance(node.op, ops.Reshape | ops.Transpose):
        return (result,)
    return result.seen_as(wish.best), result


def _of_product(node: Node, wishes: Mapping[str, Wish]) -> Storage | None:
    """Return the storage of a product of two tensors: what readers prefer, or a matrix an image.

    Matrices of one row are the rows of one image, where functions of rows take them all at once.
    None if it makes nothing that its readers take: then it is a launch of its own.
    """
    count, rows, columns = shape = matrices_of(node, 2)
    wish, apart = wishes.get(node.outputs[0].name), Storage.of((count, columns, rows, 1), last=True)
    if wish is None:
        return apart
    heads = Storage.of((1, count * columns, rows, 1), outer=count)
    rank = len(node.outputs[0].shape)
    able = (Held.ROWS_ARE_PIXELS, Held.STACKED) if rank == 3 else (Held.ROWS_ARE_PIXELS,)
    makes = held_matrices(wish.best or apart, shape) in able
    best = wish.best if wish.best and makes else apart
    known = best, apart, heads
    return next(filter(wish.takes, (stacked(shape), *known) if rows == 1 else known), None)


def _best(tensor: Tensor, wishes: Mapping[str, Wish], rows: Rows) -> Storage | None:
    """Return the storage that readers prefer, or the natural one."""
    return _unsplit(wishes.get(tensor.name)) or natural(tensor.shape, rows)


# ------------------------------------------------------------- what operators read and make


def made(node: Node, given: Sequence[Storage]) -> Storage | None:
    """Return the storage of a result; None if the node cannot read inputs stored so."""
    if isinstance(node.op, ROWS):
        return forward(node, node.inputs[0].shape, given[0])
    found = {forward(node, tensor.shape, storage) for tensor, storage in _alike(node, given)}
    return found.pop() if len(found) == 1 else None


def _alike(node: Node, given: Sequence[Storage]) -> list[tuple[Tensor, Storage]]:
    """Return the inputs of a node, the pixels of sums in the rows of the first.

    A single pixel that is joined to images of more is left out: it is one more of them.
    """
    if isinstance(node.op, POINTWISE) and not _reads_images(node):
        given = [storage.seen_as(given[0]) for storage in given]
    joins = isinstance(node.op, ops.Concat)
    larger = {storage.image[:2] for storage in given if joins and storage.pixels > 1}
    pairs = zip(node.inputs, given, strict=True)
    return [(t, s) for t, s in pairs if s.pixels > 1 or s.image[:2] not in larger]


def makes(node: Node, given: Sequence[Storage], result: Storage) -> bool:
    """Return whether a node makes a result stored so of inputs stored so."""
    found = made(node, given)
    if isinstance(node.op, ops.Reshape | ops.Transpose) and found:
        found = found.seen_as(result)
    return found == result or turns(node, given[0], result) or flattens(node, given[0], result)


def _swaps(node: Node) -> bool:
    """Return whether a node transposes one matrix."""
    if not isinstance(node.op, ops.Transpose) or len(node.op.axes) < 2:
        return False
    *before, rows, columns = node.inputs[0].shape
    *first, last, second = node.op.axes
    in_order = [*first, second, last] == sorted(node.op.axes)
    return in_order and math.prod(before) == 1 < min(rows, columns)


def turns(node: Node, given: Storage, result: Storage) -> bool:
    """Return whether a view makes pixels of the channels of one matrix, and channels of pixels."""
    if not isinstance(node.op, ops.Reshape | ops.Transpose):
        return False
    seen = forward(node, node.inputs[0].shape, given)
    if seen is None or seen.split or result.split:
        return False
    apart = min(seen.pixels, seen.image[1]) > 1 and seen.last != result.last
    return apart and (1, seen.pixels, seen.image[1]) == (*result.image[:2], result.pixels)


def flattens(node: Node, given: Storage, result: Storage) -> bool:
    """Return whether a reshape makes rows of the groups of an image's channels, or undoes that."""
    sides = (node.inputs[0].shape, given, result), (node.outputs[0].shape, result, given)
    return isinstance(node.op, ops.Reshape) and any(are_groups(*each) for each in sides)


def are_groups(shape: Shape, image: Storage, rows: Storage) -> bool:
    """Return whether rows hold the groups of the channels of one image, each with its pixels."""
    if len(shape) != 4 or shape[0] != 1 or image != as_image(shape) or image.pixels == 1:
        return False
    groups = rows.pixels
    held = rows.image[0] == 1 and rows.image[1] * groups == math.prod(shape)
    return held and shape[1] % groups == 0 and (groups == 1 or rows.last)


def forward(node: Node, shape: Shape, storage: Storage) -> Storage | None:
    """Return the storage of a result if an input of this shape is stored so.

    None if the node cannot read it.
    """
    op, result = node.op, node.outputs[0].shape
    if _reads_images(node):
        return _of_image(node, shape, storage)
    if isinstance(op, POINTWISE):
        return storage if _has_channels(op, shape, storage) else None
    if _reads_rows(node):
        return _of_rows(node, shape, storage)
    return storage if isinstance(op, ops.Reshape) else _moved(op, storage, shape, result)


def _moved(
    op: GraphOperator, storage: Storage, shape: Shape, other: Shape, *, back: bool = False
) -> Storage | None:
    """Return the storage of what an operator makes of a tensor, or, `back`, of what it reads."""
    if isinstance(op, ops.Concat | ops.Slice):
        return _resized(storage, shape, other, op.axis % len(shape))
    if isinstance(op, ops.Transpose):
        axes = tuple(np.argsort(op.axes).tolist()) if back else op.axes
        return _transposed(shape, axes, storage)
    return _repeated(storage, shape, other) if isinstance(op, ops.Expand) else None


def _of_image(node: Node, shape: Shape, storage: Storage) -> Storage | None:
    """Return the storage of what is computed of an image, or of heads; None if it cannot be."""
    result = node.outputs[0].shape
    if mixes_heads(node, shape, storage):
        tail = storage.image[1] // shape[1]
        return Storage.of((1, result[1] * tail, *storage.image[2:]), outer=result[1])
    return as_image(result) if storage == as_image(shape) else None


def backward(node: Node, shape: Shape, wanted: Storage | None, rows: Rows) -> Storage | None:
    """Return the storage that a node prefers for an input of this shape.

    `wanted` is that which the readers of its result prefer, if any.
    """
    op, result = node.op, node.outputs[0].shape
    if _reads_images(node):
        return as_image(shape)
    if isinstance(op, POINTWISE):
        return wanted if _has_channels(op, shape, wanted) else as_image(shape)
    if _reads_rows(node):
        return _best_rows(node, shape, wanted, rows)
    if wanted is None:
        return None
    if isinstance(op, ops.Reshape):
        return _in_rows(wanted, shape)
    return _moved(op, wanted, result, shape, back=True)


def _in_rows(storage: Storage, shape: Shape) -> Storage:
    """Return the storage with the pixels in the rows of a tensor, if its shape has these."""
    if len(shape) != 4 or storage.split:
        return storage
    n, c, h, w = (shape[0], shape[3], *shape[1:3]) if storage.last else shape
    return storage.seen_as(Storage.of((n, c, h, w), last=storage.last))


def mixes_heads(node: Node, shape: Shape, storage: Storage) -> bool:
    """Return whether a node is a convolution of one pixel whose channels are stored as heads."""
    if not isinstance(node.op, ops.Convolution) or not storage.split:
        return False
    op, heads = node.op, (storage.image[0], storage.outer) == shape[:2]
    one = op.weight.shape[2:] == op.strides == (1, 1) and op.padding == (0, 0, 0, 0)
    whole = op.groups == len(node.inputs) == 1 < len(op.weight)
    return heads and shape[0] == 1 and one and whole


def _reads_images(node: Node) -> bool:
    """Return whether a node reads images as they are: windows, or a gate (N, C, 1, 1)."""
    if isinstance(node.op, POINTWISE):
        return any(tensor.shape != node.inputs[0].shape for tensor in node.inputs)
    return isinstance(node.op, PIXELWISE) and not _scales_rows(node)


def _reads_rows(node: Node) -> bool:
    """Return whether a node reads rows: its channels are the last axis, or those of one pixel."""
    return isinstance(node.op, ops.Dense | ROWS) or _scales_rows(node)


def _as_rows(node: Node, shape: Shape) -> Shape:
    """Return the shape of a tensor of a node that reads rows, whose last axis are channels."""
    return shape[:2] if isinstance(node.op, ops.Convolution) else shape


def _scales_rows(node: Node) -> bool:
    """Return whether a node multiplies rows, images of one pixel, by a number for each channel."""
    if not isinstance(node.op, ops.Convolution):
        return False
    channels = node.outputs[0].shape[1]
    alone = node.op.groups == channels and node.op.weight.shape == (channels, 1, 1, 1)
    return alone and {t.shape[1:] for t in (*node.inputs, *node.outputs)} == {(channels, 1, 1)}


def _has_channels(op: GraphOperator, shape: Shape, storage: Storage | None) -> bool:
    """Return whether the channels of a storage are those by which a function may differ."""
    if storage is None or not by_channel(op):
        return not by_channel(op)
    return 1 in (storage.channel_axes(shape) or ()) and shape[1] == storage.image[1]


def by_channel(op: GraphOperator) -> bool:
    """Return whether a function of one value differs between the channels on axis 1."""
    if isinstance(op, ops.LookupTable):
        return op.table.ndim > 1
    return isinstance(op, ops.Requantize) and op.requantization.channels > 1


def _best_rows(node: Node, shape: Shape, wanted: Storage | None, rows: Rows) -> Storage:
    """Return the storage that a function of rows prefers, like `wanted` for its result."""
    given, result = (_as_rows(node, each) for each in (shape, node.outputs[0].shape))
    if isinstance(node.op, ROWS) and wanted is not None and wanted.row_groups(shape):
        return wanted
    if wanted is not None and wanted.ends_in(result[-1]):
        return wanted.with_channels(given[-1], last=True)
    return rows(given)


def _of_rows(node: Node, shape: Shape, storage: Storage) -> Storage | None:
    """Return the storage of a function of rows; None if it cannot read its input so."""
    op = node.op
    if isinstance(op, ROWS):
        return storage if storage.row_groups(shape) else None
    if not isinstance(op, ops.Dense):
        return storage if storage.ends_in(_as_rows(node, shape)[-1]) else None
    outputs, inputs = op.weight.shape
    if storage.ends_in(inputs):
        return storage.with_channels(outputs, last=True)
    if not storage.last and math.prod(storage.image[1:]) == inputs:
        return as_rows((*shape[:-1], outputs))  # it flattens the image
    return None


def joins_pixels(node: Node, storages: Mapping[str, Storage]) -> bool:
    """Return whether pixels are joined or cut, which moves them, and not channels."""
    assert isinstance(node.op, ops.Concat | ops.Slice)
    whole = (node.outputs if isinstance(node.op, ops.Concat) else node.inputs)[0]
    axes = storages[whole.name].channel_axes(whole.shape)
    return axes is None or node.op.axis % len(whole.shape) not in axes


def _resized(storage: Storage, shape: Shape, other: Shape, axis: int) -> Storage | None:
    """Return the storage of a tensor of another shape, which differs on an axis of images."""
    pixels = _of_pixels(storage, shape, other, axis)
    if pixels is not None:
        return pixels
    axes = storage.channel_axes(shape)
    if (storage.image[1], shape[axis]) == (1, 1) and len(shape) == axis + 1 != 4:
        axes = (axis,)  # a single channel, which has no order
    if axes is not None and axis in axes:
        channels = math.prod(other[at] for at in axes)
        if storage.split:
            outside = math.prod(shape[: axis + 1]) <= storage.image[0] * storage.outer
            outer = storage.outer * other[axis] // shape[axis] if outside else storage.outer
            return Storage.of((storage.image[0], channels, *storage.image[2:]), outer=outer)
        last = math.prod(shape[axes[-1] + 1 :]) == 1
        return storage.with_channels(channels, last=last)
    at, image = storage.pixel_axis(axis, shape), [*storage.image]
    if at is None:
        return None
    image[at] = other[axis]
    return Storage.of((image[0], image[1], image[2], image[3]), outer=storage.outer)


def _of_pixels(storage: Storage, shape: Shape, other: Shape, axis: int) -> Storage | None:
    """Return the storage of a tensor of another shape, where a single row or column has no order.

    None if the axis is none of pixels, or nothing is single.
    """
    if _are_tokens(storage, shape, other, axis):
        return as_tokens(other)
    if len(shape) != 4 or axis < 1:
        return None
    if axis > 1 and storage == as_image(shape):
        return as_image(other)
    n, h, w, c = other
    single = axis < 3 and storage.image == (shape[0], shape[3], 1, 1)
    return Storage.of((n, c, h, w), last=True) if single else None


def _are_tokens(storage: Storage, shape: Shape, other: Shape, axis: int) -> bool:
    """Return whether one of two tensors is a single pixel, which has no order, of the others."""
    if len(shape) != 3 or axis != 1 or 1 not in (shape[1], other[1]):
        return False
    rows = as_tokens(shape)
    return storage in (rows, Storage.of(rows.image))


def _repeated(storage: Storage, shape: Shape, other: Shape) -> Storage | None:
    """Return the storage of a tensor of another shape, which repeats heads, or has each once.

    Repeated heads are an axis of five or more; images of four repeat their channels by weights.
    """
    if len(shape) < 5 or len(shape) != len(other):
        return None
    axis = next((a for a, pair in enumerate(zip(shape, other, strict=True)) if len({*pair}) > 1), 0)
    (n, c, h, w), outer, before = storage.image, storage.outer, math.prod(shape[:axis])
    heads = n <= before <= n * outer // shape[axis]
    if shape[axis + 1 :] != other[axis + 1 :] or not (heads or before >= n * outer * h * w):
        return None
    c, grown = (x * other[axis] // shape[axis] for x in (c, outer))
    return Storage.of((n, c, h, w), outer=grown if heads else outer)


# ------------------------------------------------------------------- what readers want


def _wishes(graph: Graph, rows: Rows) -> dict[str, Wish]:
    """Return what the readers of each tensor want; nothing if none of them is VTA's."""
    wishes: dict[str, Wish] = {}
    for node in reversed(graph.nodes):
        beyond = wishes.get(node.outputs[0].name)
        for number, tensor in enumerate(node.inputs):
            if isinstance(node.op, ops.Matmul):
                wish: Wish | None = _wish_of_product(node, number, graph)
            else:
                wish = _wish(node, tensor.shape, beyond, rows)
                wish = _apart(wish) if wish and _reads_host(node, graph) else wish
            known = wishes.get(tensor.name)
            if wish is not None:
                wish = wish.beside(known) if known else wish
                wishes[tensor.name] = wish if wish.depth < DEPTH else _exactly(wish.best)
    return wishes


def _wish(node: Node, shape: Shape, beyond: Wish | None, rows: Rows) -> Wish | None:
    """Return what a node wants of an input of a shape, if `beyond` wants its result."""
    computes, images = isinstance(node.op, _COMPUTES), _reads_images(node)
    if not computes and (beyond is None or not isinstance(node.op, _VIEWS)):
        return None

    def takes(storage: Storage) -> bool:
        result = forward(node, shape, storage)
        if result is None or (images and storage == as_image(shape)):
            return result is not None
        if beyond is None:
            return not images  # heads are for what takes such
        return any(map(beyond.takes, _seen(node, result, beyond)))

    best = backward(node, shape, beyond.best if beyond else None, rows)
    depth = 0 if images else getattr(beyond, "depth", -1) + 1
    return Wish(best, cache(takes), depth, _is_direct(node, beyond))


def _is_direct(node: Node, beyond: Wish | None) -> bool:
    """Return whether a node, or what reads its result, computes."""
    if isinstance(node.op, POINTWISE) and not _reads_images(node):
        return beyond is None or beyond.direct
    return not isinstance(node.op, ops.Reshape | ops.Transpose)


def _reads_host(node: Node, graph: Graph) -> bool:
    """Return whether a node computes on what the host makes, which does not make heads."""
    makers = [graph.maker(tensor) for tensor in node.inputs]
    made = [maker is None or isinstance(maker.op, ops.Constant | ops.Quantize) for maker in makers]
    return isinstance(node.op, POINTWISE) and any(made)


def _apart(wish: Wish) -> Wish:
    """Return the wish of what takes heads as images only."""
    takes = cache(lambda s: not s.split and wish.takes(s))
    return replace(wish, best=_unsplit(wish), takes=takes, depth=wish.depth + 1)


def _unsplit(wish: Wish | None) -> Storage | None:
    """Return what readers prefer, with heads as images."""
    best = wish.best if wish else None
    return best.apart if best and best.split else best


def _behind_views(maker: Node | None, graph: Graph) -> tuple[Node | None, bool]:
    """Return what made a tensor before views, and whether these swapped its last axis."""
    swapped = False
    while maker is not None and isinstance(maker.op, ops.Transpose | ops.Reshape | ops.Expand):
        if isinstance(maker.op, ops.Transpose) and maker.op.axes[-1] != len(maker.op.axes) - 1:
            swapped = not swapped
        maker = graph.maker(maker.inputs[0])
    return maker, swapped


def _wish_of_product(node: Node, operand: int, graph: Graph) -> Wish:
    """Return what a product of two tensors wants of an operand.

    Pixels are what the maker of the operand, before views, has as pixels: all but the last axis.
    The host makes an input of the graph as it is wanted, with an image for each matrix. Single rows
    that are no view are stacked.
    """
    given, shape = graph.maker(node.inputs[operand]), matrices_of(node, operand)
    (count, rows, columns), (maker, swapped) = shape, _behind_views(given, graph)
    pixels, channels = (columns, rows) if swapped else (rows, columns)
    outer = count * channels if swapped else count
    best = Storage.of((1, count * channels, pixels, 1), outer=outer)
    if given is None:
        best = as_image((count, rows, columns, 1)) if operand == 1 else best
    elif given is maker and (operand, rows) == (0, 1):
        best = stacked(shape)
    refused = {None, Held.STACKED} if operand == 1 else {None}
    return Wish(best, lambda storage: held_matrices(storage, shape) not in refused)


def _exactly(wanted: Storage | None) -> Wish:
    return Wish(wanted, lambda storage: storage == wanted)
