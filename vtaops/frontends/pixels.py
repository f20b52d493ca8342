"""Operators that move pixels between channels and space: depth to space, space to depth.

Front ends express them as a reshape, a transposition of six axes and a reshape. On integers they
are convolutions whose weights are 0 or 1, so VTA can execute them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.grids import through_pairs
from vtaops.frontends.steps import first, shape_of
from vtaops.frontends.values import Value
from vtaops.graph import Convolution, Requantization, TransposedConvolution
from vtaops.graph.operators import GraphOperator

MOST_WEIGHTS = 1 << 22
"""Maximum number of weights of such a convolution: one per channel, channel and pixel."""


Make = Callable[[Requantization], GraphOperator]
"""Makes the operator from an identity requantization."""


def moved_pixels(value: Value) -> tuple[Value, Make] | None:
    """Return the image that a value rearranges, and a function that makes the operator; else None.

    The value is a DepthToSpace, a SpaceToDepth, or the reshape at the end of one that is spelled
    out.
    """
    if value.op not in ("DepthToSpace", "SpaceToDepth"):
        return _spelled_out(value)
    image = first(value)
    make = _of_operator(value, shape_of(image))
    return None if make is None else (image, make)


def _spelled_out(value: Value) -> tuple[Value, Make] | None:
    turned = through_pairs(first(value))
    if len(shape_of(value)) != 4 or turned.op != "Transpose" or len(shape_of(turned)) != 6:
        return None
    split = through_pairs(first(turned))
    axes = turned.attrs.get("perm")
    if split.op != "Reshape" or len(shape_of(first(split))) != 4 or axes is None:
        return None
    image = first(split)
    for find in (_to_space, _to_depth):
        make = find(shape_of(image), shape_of(split), tuple(axes), shape_of(value))
        if make is not None:
            return image, make
    return None


def _of_operator(value: Value, image: tuple[int, ...]) -> Make | None:
    n, c, h, w = image
    size = int(value.attrs["blocksize"])
    if value.op == "SpaceToDepth":
        split = (n, c, h // size, size, w // size, size)
        return _to_depth(image, split, (0, 3, 5, 1, 2, 4), shape_of(value))
    depth = c // size**2
    if value.attrs.get("mode", "DCR") == "DCR":
        split, axes = (n, size, size, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, axes = (n, depth, size, size, h, w), (0, 1, 4, 2, 5, 3)
    return _to_space(image, split, axes, shape_of(value))


def _to_space(
    image: tuple[int, ...], split: tuple[int, ...], axes: tuple[int, ...], result: tuple[int, ...]
) -> Make | None:
    """Depth to space: the three parts of the channels become channels, rows and columns."""
    n, c, h, w = image
    first, channel, row, block_h, column, block_w = axes
    if (split[0], *split[4:]) != (n, h, w) or (first, row, column) != (0, 4, 5):
        return None
    parts = split[channel], split[block_h], split[block_w]
    if result != (n, parts[0], h * parts[1], w * parts[2]) or c * np.prod(parts) > MOST_WEIGHTS:
        return None
    order = (channel - 1, block_h - 1, block_w - 1)
    weight = _ones(np.arange(c).reshape(split[1:4]).transpose(order), c)
    return lambda unchanged: TransposedConvolution(
        weight, None, unchanged, strides=(parts[1], parts[2])
    )


def _to_depth(
    image: tuple[int, ...], split: tuple[int, ...], axes: tuple[int, ...], result: tuple[int, ...]
) -> Make | None:
    """Space to depth: rows and columns within a block become parts of the channels."""
    n, c, h, _ = image
    if split[:2] != (n, c) or split[2] * split[3] != h or (axes[0], *axes[4:]) != (0, 2, 4):
        return None
    blocks = split[3], split[5]
    outputs = c * blocks[0] * blocks[1]
    if result != (n, outputs, split[2], split[4]) or outputs * outputs > MOST_WEIGHTS:
        return None
    inner = [(1, 3, 5).index(axis) for axis in axes[1:4]]  # order of (channel, row, column)
    sources = np.arange(outputs).reshape(c, *blocks).transpose(inner).reshape(-1)
    weight = np.zeros((outputs, outputs), np.int8)
    weight[np.arange(outputs), sources] = 1
    whole = weight.reshape(outputs, c, *blocks)
    return lambda unchanged: Convolution(whole, None, unchanged, strides=blocks)


def _ones(sources: Array, channels: int) -> Array:
    """Return weights (channels, o, i, j) with a one at the source of (o, i, j)."""
    weight = np.zeros((channels, *sources.shape), np.int8)
    np.put_along_axis(weight, sources[None], 1, axis=0)
    return weight
