"""The storage of every tensor of a graph: which image holds it, and in which order.

An image (N, C, H, W) holds a tensor in the order of its own axes, with channels last, or with some
of them outside of the pixels, as heads of attention are. Most operators say how their tensors are
stored: convolutions and pools store (N, C, H, W) as it is, and matrix products read the channels of
the last axis. A reshape or a transposition between two of
them is a free view where both agree about the image: (1, C, L) between convolutions of height 1 is
(1, C, 1, L), and (1, H, W, C) between a transposition and a matrix product is (1, C, H, W).
Other tensors take the storage that their readers prefer.

Each operator stands here twice: `forward` says what it makes of a storage, and `backward` which
storage of an input it prefers. `_Readers` asks all that read a tensor; `storages` decides in order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
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
_MOVES = ops.Reshape | ops.Transpose
_VIEWS = _MOVES | ops.Concat | ops.Slice | ops.Expand


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
        if not self.split:
            return self
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
        n, channels, *_ = self.image
        outside = n * self.outer
        groups = [] if self.last else [(n, outside)]
        if self.last or self.split:
            groups.append((outside * self.pixels, n * channels * self.pixels))
        reached, axes = [1, *accumulate(shape, mul)], set[int]()
        for ends in groups:
            if not {*ends} <= {*reached}:
                return None
            bounds = [at for at, count in enumerate(reached) if count in ends]
            axes |= {*range(bounds[0], bounds[-1])}
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


# ------------------------------------------------------------------------------- matrices


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


def _operand(node: Node, number: int, graph: Graph) -> Storage:
    """Return the storage that a product of two tensors prefers for an operand.

    Pixels are what the maker of the operand, before views, has as pixels: all but the last axis.
    The host makes an input of the graph as it is wanted, with an image for each matrix. Single rows
    that are no view are stacked.
    """
    count, rows, columns = shape = matrices_of(node, number)
    given = graph.maker(node.inputs[number])
    if given is None and number == 1:
        return as_image((count, rows, columns, 1))
    maker, swapped = _behind_views(given, graph)
    if given is not None and given is maker and (number, rows) == (0, 1):
        return stacked(shape)
    pixels, channels = (columns, count * rows) if swapped else (rows, count * columns)
    return Storage.of((1, channels, pixels, 1), outer=channels if swapped else count)


def _behind_views(maker: Node | None, graph: Graph) -> tuple[Node | None, bool]:
    """Return what made a tensor before views, and whether these swapped its last axis."""
    swapped = False
    while maker is not None and isinstance(maker.op, _MOVES | ops.Expand):
        if isinstance(maker.op, ops.Transpose) and maker.op.axes[-1] != len(maker.op.axes) - 1:
            swapped = not swapped
        maker = graph.maker(maker.inputs[0])
    return maker, swapped


def _product(node: Node, readers: _Readers) -> Storage | None:
    """Return the storage of a product of two tensors: what readers prefer, or a matrix an image.

    Matrices of one row are the rows of one image, where functions of rows take them all at once.
    None if it makes nothing that its readers take: then it is a launch of its own.
    """
    count, rows, columns = shape = matrices_of(node, 2)
    (result,), apart = node.outputs, Storage.of((count, columns, rows, 1), last=True)
    wish = readers.wishes.get(result.name)
    if wish is None:
        return apart
    heads = Storage.of((1, count * columns, rows, 1), outer=count)
    known = [stacked(shape)] * (rows == 1)
    if wish.best:
        held = held_matrices(wish.best, shape)
        if held is Held.ROWS_ARE_PIXELS or (held is Held.STACKED and len(result.shape) == 3):
            known.append(wish.best)
    return next((s for s in (*known, apart, heads) if readers.take(result, s)), None)


# ------------------------------------------------------------------------------ decisions

DEPTH = 50
"""Maximum number of readers behind readers that are asked."""


def as_image(shape: Shape) -> Storage:
    """Return the storage of an image as it is, or of another tensor whose axis 1 are channels."""
    height, width = shape[2:] if len(shape) == 4 else (1, math.prod(shape[2:]))
    return Storage.of((shape[0], shape[1], height, width))


def as_images(shape: Shape) -> Storage:
    """Return the storage of a tensor as rows: its last axis are the channels of single pixels."""
    return Storage.of((math.prod(shape[:-1]), shape[-1], 1, 1))


def as_tokens(shape: Shape) -> Storage:
    """Return the storage of a tensor as rows that are pixels, as products of two tensors need."""
    batch = 1 if len(shape) < 3 else shape[0]
    pixels = math.prod(shape[:-1]) // batch
    return Storage.of((batch, shape[-1], pixels, 1), last=True)


@dataclass(frozen=True)
class Wish:
    """What the readers of a tensor want of its storage.

    Attributes
    ----------
    best : Storage or None
        The storage that they prefer.
    direct : bool
        Whether they compute; a view can also be made on the host, where it costs nothing.
    """

    best: Storage | None
    direct: bool = True

    @property
    def rank(self) -> int:
        """Wishes of a higher rank go first."""
        return 0 if self.best is None else 1 + self.direct


class _Readers:
    """The readers of a graph's tensors on VTA, and their `wishes`, by the name of the tensor."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.wishes = graph, dict[str, Wish]()
        moved = any(isinstance(n.op, ops.Matmul | ROWS | ops.Transpose) for n in graph.nodes)
        self._rows = as_tokens if moved else as_images
        self._taken: dict[tuple[str, Storage], bool] = {}
        self._asked = defaultdict[str, list[tuple[Node, int]]](list)
        for node in reversed(graph.nodes):
            for number, tensor in enumerate(node.inputs):
                if wish := self._wish(node, number):
                    self._asked[tensor.name].append((node, number))
                    if wish.rank >= self.wishes.get(tensor.name, wish).rank:
                        self.wishes[tensor.name] = wish

    def best(self, tensor: Tensor) -> Storage | None:
        """Return the storage that readers prefer, heads as images, or the natural one."""
        wish = self.wishes.get(tensor.name)
        return wish.best.apart if wish and wish.best else self.natural(tensor.shape)

    def natural(self, shape: Shape) -> Storage | None:
        """Return the storage of a tensor of which nothing else is known: an image, or rows."""
        if len(shape) == 4:
            return as_image(shape)
        return self._rows(shape) if len(shape) > 1 else None

    def take(self, tensor: Tensor, storage: Storage, depth: int = 0) -> bool:
        """Return whether all readers read a tensor in a storage, and theirs the results."""
        if depth == DEPTH:
            return storage == self.wishes[tensor.name].best
        key = tensor.name, storage
        if key not in self._taken:
            asked = self._asked[tensor.name]
            self._taken[key] = all(self._takes(*each, storage, depth + 1) for each in asked)
        return self._taken[key]

    def _wish(self, node: Node, number: int) -> Wish | None:
        """Return what a node wants of an input; None if it is the host's."""
        if isinstance(node.op, ops.Matmul):
            return Wish(_operand(node, number, self.graph))
        beyond, shape = self.wishes.get(node.outputs[0].name), node.inputs[number].shape
        if not (isinstance(node.op, _COMPUTES) or (beyond and isinstance(node.op, _VIEWS))):
            return None
        best = backward(node, shape, beyond.best if beyond else None, self._rows)
        if best and self._reads_host(node):
            best = best.apart
        direct = beyond is None or beyond.direct
        return Wish(best, direct if _reads_values(node) else not isinstance(node.op, _MOVES))

    def _takes(self, node: Node, number: int, storage: Storage, depth: int) -> bool:
        if isinstance(node.op, ops.Matmul):
            held = held_matrices(storage, matrices_of(node, number))
            return held not in ((None, Held.STACKED) if number else (None,))
        (result, *_), shape = node.outputs, node.inputs[number].shape
        made, images = forward(node, shape, storage), _reads_images(node)
        if made is None or (images and storage == as_image(shape)):
            return made is not None
        if storage.split and self._reads_host(node):
            return False
        wish = self.wishes.get(result.name)
        if wish is None:
            return not images  # heads are for what takes such
        return any(self.take(result, seen, depth) for seen in _seen(node, made, wish))

    def _reads_host(self, node: Node) -> bool:
        """Return whether a node computes on values of the host, which does not make heads."""
        makers = map(self.graph.maker, node.inputs)
        made = (m is None or isinstance(m.op, ops.Constant | ops.Quantize) for m in makers)
        return _reads_values(node) and any(made)


def _seen(node: Node, result: Storage, wish: Wish) -> tuple[Storage, ...]:
    """Return storages as which a view shows what another one holds, the best first."""
    return (result.seen_as(wish.best), result) if isinstance(node.op, _MOVES) else (result,)


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
    readers = _Readers(graph)
    found = {t.name: best for t in graph.inputs if (best := readers.best(t))}
    for node in graph.nodes:
        if isinstance(node.op, ops.RowSoftmax):  # a mask has an image for each matrix
            found |= {mask.name: found[node.inputs[0].name].apart for mask in node.inputs[1:]}
        if isinstance(node.op, ops.Matmul):
            result = _product(node, readers)
        else:
            result = _result(node, found, readers)
        for tensor in node.outputs:
            if storage := result or readers.best(tensor):
                found[tensor.name] = storage
    return found


def _result(node: Node, found: Mapping[str, Storage], readers: _Readers) -> Storage | None:
    """Return the storage of a result; None if its readers decide."""
    given, (tensor, *_) = [found.get(each.name) for each in node.inputs], node.outputs
    result = None if None in given else made(node, [*filter(None, given)])
    if result is None or not isinstance(node.op, _VIEWS):
        return result
    wish, own = readers.wishes.get(tensor.name), readers.natural(tensor.shape)
    if wish is None:
        return result if own in (None, result) else None
    seen = _seen(node, result, wish)
    return next((s for s in seen if s == own or readers.take(tensor, s)), None)


# ------------------------------------------------------------- what operators read and make


def made(node: Node, given: Sequence[Storage]) -> Storage | None:
    """Return the storage of a result; None if the node cannot read inputs stored so."""
    count = 1 if isinstance(node.op, ROWS) else len(given)
    if _reads_values(node):
        given = [storage.seen_as(given[0]) for storage in given]
    pairs = [*zip(node.inputs, given, strict=True)][:count]
    found = {forward(node, tensor.shape, storage) for tensor, storage in pairs}
    return found.pop() if len(found) == 1 else None


def makes(node: Node, given: Sequence[Storage], result: Storage) -> bool:
    """Return whether a node makes a result stored so of inputs stored so."""
    found = made(node, given)
    if found and isinstance(node.op, _MOVES):
        found = found.seen_as(result)
    return found == result or turns(node, given[0], result) or flattens(node, given[0], result)


def turns(node: Node, given: Storage, result: Storage) -> bool:
    """Return whether a view makes pixels of the channels of one matrix, and channels of pixels."""
    seen = forward(node, node.inputs[0].shape, given) if isinstance(node.op, _MOVES) else None
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
    if mixes_heads(node, shape, storage):
        tail = storage.image[1] // shape[1]
        return Storage.of((1, result[1] * tail, *storage.image[2:]), outer=result[1])
    if _reads_images(node):
        return as_image(result) if storage == as_image(shape) else None
    if isinstance(op, POINTWISE):
        return storage if _has_channels(op, shape, storage) else None
    if _reads_rows(node):
        return _of_rows(node, shape, storage)
    return storage if isinstance(op, ops.Reshape) else _moved(op, storage, shape, result)


def backward(
    node: Node, shape: Shape, wanted: Storage | None, rows: Callable[[Shape], Storage]
) -> Storage | None:
    """Return the storage that a node prefers for an input of this shape.

    `wanted` is that which the readers of its result prefer, if any, and `rows` how rows are stored.
    """
    op, result = node.op, node.outputs[0].shape
    if _reads_images(node):
        return as_image(shape)
    if isinstance(op, POINTWISE):
        return wanted if _has_channels(op, shape, wanted) else as_image(shape)
    if _reads_rows(node):
        return _best_rows(node, shape, wanted) or rows(_as_rows(node, shape))
    if wanted is None:
        return None
    if isinstance(op, ops.Reshape):
        return wanted.seen_as(as_image(shape)) if len(shape) == 4 else wanted
    return _moved(op, wanted, result, shape, back=True)


def _reads_values(node: Node) -> bool:
    """Return whether a node computes on single values, of tensors of one shape."""
    return isinstance(node.op, POINTWISE) and not _reads_images(node)


def _best_rows(node: Node, shape: Shape, wanted: Storage | None) -> Storage | None:
    """Return the storage like `wanted` for the result; None if that holds no rows."""
    if wanted is None or (isinstance(node.op, ROWS) and wanted.row_groups(shape)):
        return wanted
    given, result = (_as_rows(node, each) for each in (shape, node.outputs[0].shape))
    return wanted.with_channels(given[-1], last=True) if wanted.ends_in(result[-1]) else None


def _reads_rows(node: Node) -> bool:
    """Return whether a node reads rows: its channels are the last axis, or those of one pixel."""
    return isinstance(node.op, ops.Dense | ROWS) or _scales_rows(node)


def _as_rows(node: Node, shape: Shape) -> Shape:
    """Return the shape of a tensor of a node that reads rows, whose last axis are channels."""
    return shape[:2] if isinstance(node.op, ops.Convolution) else shape


def _reads_images(node: Node) -> bool:
    """Return whether a node reads images as they are: windows, or a gate (N, C, 1, 1)."""
    if isinstance(node.op, POINTWISE):
        return any(tensor.shape != node.inputs[0].shape for tensor in node.inputs)
    return isinstance(node.op, PIXELWISE) and not _scales_rows(node)


def _scales_rows(node: Node) -> bool:
    """Return whether a node multiplies rows, images of one pixel, by a number for each channel."""
    if not isinstance(node.op, ops.Convolution):
        return False
    channels = node.outputs[0].shape[1]
    alone = node.op.groups == channels and node.op.weight.shape == (channels, 1, 1, 1)
    return alone and {t.shape[1:] for t in (*node.inputs, *node.outputs)} == {(channels, 1, 1)}


def mixes_heads(node: Node, shape: Shape, storage: Storage) -> bool:
    """Return whether a node is a convolution of one pixel whose channels are stored as heads."""
    if not isinstance(node.op, ops.Convolution) or not storage.split:
        return False
    op, heads = node.op, (storage.image[0], storage.outer) == shape[:2]
    one = op.weight.shape[2:] == op.strides == (1, 1) and op.padding == (0, 0, 0, 0)
    whole = op.groups == len(node.inputs) == 1 < len(op.weight)
    return heads and shape[0] == 1 and one and whole


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


def _of_rows(node: Node, shape: Shape, storage: Storage) -> Storage | None:
    """Return the storage of a function of rows, or of a product that flattens an image."""
    if isinstance(node.op, ROWS):
        return storage if storage.row_groups(shape) else None
    inputs, outputs = (_as_rows(node, each)[-1] for each in (shape, node.outputs[0].shape))
    if storage.ends_in(inputs):
        return storage.with_channels(outputs, last=True)
    if not storage.last and math.prod(storage.image[1:]) == inputs:
        return as_images((*shape[:-1], outputs))
    return None


# ------------------------------------------------------------------------------------ views


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
    if (len(shape), axis) == (3, 1) and 1 in (shape[1], other[1]):
        rows = as_tokens(shape)
        return as_tokens(other) if storage in (rows, Storage.of(rows.image)) else None
    if len(shape) != 4 or axis < 1:
        return None
    if axis > 1 and storage == as_image(shape):
        return as_image(other)
    if axis > 2 or storage.image != (shape[0], shape[3], 1, 1):
        return None
    n, h, w, c = other
    return Storage.of((n, c, h, w), last=True)


def _repeated(storage: Storage, shape: Shape, other: Shape) -> Storage | None:
    """Return the storage of a tensor of another shape, which repeats heads, or has each once.

    Repeated heads are an axis of five or more; images of four repeat their channels by weights.
    """
    axes = [axis for axis, pair in enumerate(zip(shape, other, strict=False)) if len({*pair}) > 1]
    if len(shape) < 5 or len(shape) != len(other) or len(axes) != 1:
        return None
    (axis,), (n, c, h, w), outer = axes, storage.image, storage.outer
    before = math.prod(shape[:axis])
    heads = n <= before <= n * outer // shape[axis]
    if not (heads or before >= n * outer * h * w):
        return None
    c, grown = (x * other[axis] // shape[axis] for x in (c, outer))
    return Storage.of((n, c, h, w), outer=grown if heads else outer)
