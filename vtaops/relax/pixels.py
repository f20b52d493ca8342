"""Operators that move pixels between channels and space: depth to space, space to depth.

Front ends express them as a reshape, a transposition of six axes and a reshape. On integers they
are convolutions whose weights are 0 or 1, so VTA can execute them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import Convolution, Requantization, TransposedConvolution
from vtaops.graph.operators import GraphOperator
from vtaops.relax.values import Value

MOST_WEIGHTS = 1 << 22
"""Maximum number of weights of such a convolution: one per channel, channel and pixel."""


def moved_pixels(
    value: Value,
) -> tuple[Value, Callable[[Requantization], GraphOperator]] | None:
    """Return the image that a value rearranges, and a function that makes the operator; else None.

    The function takes an identity requantization.
    """
    turned = value.args[0]
    if len(value.shape) != 4 or turned.op != "permute_dims" or len(turned.shape) != 6:
        return None
    split = turned.args[0]
    if split.op != "reshape" or len(split.args[0].shape) != 4 or turned.attrs.axes is None:
        return None
    image, axes = split.args[0], tuple(int(axis) % 6 for axis in turned.attrs.axes)
    for find in (_to_space, _to_depth):
        make = find(image.shape, split.shape, axes, value.shape)
        if make is not None:
            return image, make
    return None


def _to_space(
    image: tuple[int, ...], split: tuple[int, ...], axes: tuple[int, ...], result: tuple[int, ...]
) -> Callable[[Requantization], GraphOperator] | None:
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
) -> Callable[[Requantization], GraphOperator] | None:
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
