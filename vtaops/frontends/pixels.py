"""Operators that move pixels between channels and space: depth to space, space to depth.

Front ends express them as a reshape, a transposition of six axes and a reshape. On integers they
are convolutions whose weights are 0 or 1, so VTA can execute them.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.constants import computed_from
from vtaops.frontends.grids import through_pairs
from vtaops.frontends.values import Value
from vtaops.graph import Convolution, TransposedConvolution

MOST_WEIGHTS = 1 << 22
"""Maximum number of weights of such a convolution: one per channel, channel and pixel."""

PixelMove = partial[Convolution] | partial[TransposedConvolution]
"""Makes the operator from an identity requantization."""


def moved_pixels(value: Value) -> tuple[Value, PixelMove] | None:
    """Return the image that a value rearranges, and a function that makes the operator; else None.

    The value is a DepthToSpace, a SpaceToDepth, or the reshape at the end of one that is spelled
    out. Where elements come from is seen on an image of their numbers.
    """
    nodes = [value] if value.op in ("DepthToSpace", "SpaceToDepth") else _spelled_out(value)
    if not nodes:
        return None
    image = nodes[0].first
    before, after = image.static_shape, value.static_shape
    index: Array | None = np.arange(np.prod(before)).reshape(before)
    for node in nodes:
        index = computed_from(node, index)
    if index is None:
        return None
    kind: type[Convolution | TransposedConvolution] = TransposedConvolution
    deep = before
    if after[2:] < before[2:]:  # to depth, which is to space backwards
        kind, deep, index = Convolution, after, np.argsort(index, axis=None).reshape(before)
    weight = _weight(index, deep)
    return None if weight is None else (image, partial(kind, weight, strides=weight.shape[2:]))


def _spelled_out(value: Value) -> list[Value]:
    """Return the reshape, the transposition and the reshape of which a value is the last."""
    turned = through_pairs(value.first)
    if len(value.static_shape) != 4 or turned.op != "Transpose" or len(turned.static_shape) != 6:
        return []
    split = through_pairs(turned.first)
    whole = split.op == "Reshape" and len(split.first.static_shape) == 4
    return [split, turned, value] if whole else []


def _weight(index: Array, deep: tuple[int, ...]) -> Array | None:
    """Return weights with a one where a channel of a deep image is a pixel of each block.

    `index` are the numbers of the elements of the deep image that a wide one consists of. None if
    these are not blocks of pixels, or too many.
    """
    (n, c, h, w), (batch, _, height, width) = deep, index.shape
    if not index.size or c * c > MOST_WEIGHTS:
        return None
    rows, columns = height // h, width // w
    if (batch, height, width) != (n, rows * h, columns * w):
        return None
    source = index[0, :, :rows, :columns] // (h * w)
    blocks = np.arange(index.size).reshape(deep)[:, source].transpose(0, 1, 4, 2, 5, 3)
    if not np.array_equal(blocks.reshape(index.shape), index):
        return None
    return np.asarray(np.equal.outer(np.arange(c), source), np.int8)
