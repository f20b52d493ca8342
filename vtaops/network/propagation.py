"""How a storage propagates through an operator: forward to its result, and back to its inputs.

Most operators say by their pattern how their tensors are stored: those of windows store
(N, C, H, W) as it is, and those of rows have the last axis as channels. A reshape or a
transposition between two of them is a free view where both agree about the image: (1, C, L) between
convolutions of height 1 is (1, C, 1, L), and (1, H, W, C) between a transposition and a matrix
product is (1, C, H, W).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, filterfalse
from operator import mul

import numpy as np

from vtaops.graph import Node
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator, Pattern
from vtaops.network.storage import Shape, Storage, are_groups, as_image, as_images, as_tokens

VIEWS = ops.Reshape | ops.Transpose


def made(node: Node, given: Sequence[Storage]) -> Storage | None:
    """Return the storage of a result; None if the node cannot read inputs stored so."""
    count = 1 if node.op.pattern is Pattern.ROWS else len(given)
    if pattern_of(node) is Pattern.ELEMENTWISE:
        given = [storage.seen_as(given[0]) for storage in given]
    pairs = [*zip(node.inputs, given, strict=True)][:count]
    found = {forward(node, tensor.shape, storage) for tensor, storage in pairs}
    return found.pop() if len(found) == 1 else None


def makes(node: Node, given: Sequence[Storage], result: Storage) -> bool:
    """Return whether a node makes a result stored so of inputs stored so."""
    found = made(node, given)
    if found and isinstance(node.op, VIEWS):
        found = found.seen_as(result)
    return found == result or turns(node, given[0], result) or flattens(node, given[0], result)


def turns(node: Node, given: Storage, result: Storage) -> bool:
    """Return whether a view makes pixels of the channels of one matrix, and channels of pixels."""
    seen = forward(node, node.inputs[0].shape, given) if isinstance(node.op, VIEWS) else None
    if seen is None or seen.split or result.split:
        return False
    apart = min(seen.pixels, seen.image[1]) > 1 and seen.last != result.last
    return apart and (1, seen.pixels, seen.image[1]) == (*result.image[:2], result.pixels)


def flattens(node: Node, given: Storage, result: Storage) -> bool:
    """Return whether a reshape makes rows of the groups of an image's channels, or undoes that."""
    sides = (node.inputs[0].shape, given, result), (node.outputs[0].shape, result, given)
    return isinstance(node.op, ops.Reshape) and any(are_groups(*each) for each in sides)


def forward(node: Node, shape: Shape, storage: Storage) -> Storage | None:
    """Return the storage of a result if an input of this shape is stored so.

    None if the node cannot read it.
    """
    result = node.outputs[0].shape
    if mixes_heads(node, shape, storage):
        tail = storage.image[1] // shape[1]
        return Storage.of((1, result[1] * tail, *storage.image[2:]), outer=result[1])
    match pattern_of(node):
        case Pattern.WINDOWS:
            return as_image(result) if storage == as_image(shape) else None
        case Pattern.ELEMENTWISE:
            return storage if _has_channels(node.op, shape, storage) else None
        case Pattern.MOVEMENT:
            return _moved(node.op, storage, shape, result)
        case Pattern.ROWS | Pattern.PRODUCT:
            return _of_rows(node, shape, storage)
    return None


def backward(
    node: Node, shape: Shape, wanted: Storage | None, rows: Callable[[Shape], Storage]
) -> Storage | None:
    """Return the storage that a node prefers for an input of this shape.

    `wanted` is that which the readers of its result prefer, if any, and `rows` how rows are stored.
    """
    match pattern_of(node):
        case Pattern.WINDOWS:
            return as_image(shape)
        case Pattern.ELEMENTWISE:
            return wanted if _has_channels(node.op, shape, wanted) else as_image(shape)
        case Pattern.MOVEMENT:
            return wanted and _moved(node.op, wanted, node.outputs[0].shape, shape, back=True)
    return _best_rows(node, shape, wanted) or rows(_as_rows(node, shape))


def pattern_of(node: Node) -> Pattern | None:
    """Return by which pattern a node reads its tensors, which is mostly that of its operator.

    Values that differ by channel alone make the other operand an image, and images of one pixel are
    rows to a convolution that scales them.
    """
    pattern = node.op.pattern
    if pattern is Pattern.ELEMENTWISE and len({tensor.shape for tensor in node.inputs}) > 1:
        return Pattern.WINDOWS
    return Pattern.PRODUCT if _scales_rows(node) else pattern


def _best_rows(node: Node, shape: Shape, wanted: Storage | None) -> Storage | None:
    """Return the storage like `wanted` for the result; None if that holds no rows."""
    if wanted is None or (node.op.pattern is Pattern.ROWS and wanted.row_groups(shape)):
        return wanted
    given, result = (_as_rows(node, each) for each in (shape, node.outputs[0].shape))
    return wanted.with_channels(given[-1], last=True) if wanted.ends_in(result[-1]) else None


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
    if node.op.pattern is Pattern.ROWS:
        return storage if storage.row_groups(shape) else None
    inputs, outputs = (_as_rows(node, each)[-1] for each in (shape, node.outputs[0].shape))
    if storage.ends_in(inputs):
        return storage.with_channels(outputs, last=True)
    if not storage.last and math.prod(storage.image[1:]) == inputs:
        return as_images((*shape[:-1], outputs))
    return None


# ----------------------------------------------------------------------------------- movement


def _moved(
    op: GraphOperator, storage: Storage, shape: Shape, other: Shape, *, back: bool = False
) -> Storage | None:
    """Return the storage of what an operator makes of a tensor, or, `back`, of what it reads."""
    if isinstance(op, ops.Reshape):
        return storage.seen_as(as_image(other)) if back and len(other) == 4 else storage
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
