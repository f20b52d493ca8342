"""NumPy reference sums and maxima over windows: the meaning of image operators on every back end.

Sums of products use matrix products of floats, which are exact: of float32 where no sum can reach
2**24, else of float64, below 2**53.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtaops.base.shapes import Array
from vtaops.base.window import Size, Window

SOME = 1 << 18
"""Scalars of the rows that `by_rows` gives at a time: the cache holds what is made of them."""


def by_rows(function: Callable[[Array], Array], rows: Array) -> Array:
    """Return what a function makes of each row (axis 0), applied to a few rows at a time.

    What is made of large weights on the way needs no new memory then, whose pages take longer to
    come than the sums.
    """
    few = max(1, SOME * len(rows) // rows.size)
    return np.concatenate([function(rows[at : at + few]) for at in range(0, len(rows), few)])


def magnitudes(weight: Array) -> Array:
    """Return the sum of the magnitudes of each row (axis 0), int64."""
    return by_rows(
        lambda rows: np.abs(rows.astype(np.int64)).sum(axis=1),
        weight.reshape(len(weight), -1),
    )


def padded(data: Array, window: Window, value: float = 0) -> Array:
    """Return images (N, C, H, W) padded with `value`."""
    top, left, bottom, right = window.padding
    return np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def convolve(data: Array, weight: Array, window: Window, groups: int = 1) -> Array:
    """Convolve (N, C, H, W) with (O, C / groups, KH, KW); return the sums as floats.

    One matrix product per tap; if depthwise, one elementwise product per tap.
    """
    outputs, inputs, kh, kw = weight.shape
    oh, ow = window.out_size(*data.shape[2:])
    largest = np.abs(data.astype(np.float32)).max(initial=0)
    exact = magnitudes(weight).max(initial=0) * largest < 1 << 23
    kind = np.float32 if exact else np.float64
    image = padded(data, window).astype(kind)
    taps = weight.astype(kind).reshape(groups, outputs // groups, inputs, kh, kw)
    total = np.zeros((len(data), groups, outputs // groups, oh * ow), kind)
    for dy, dx, seen in window.taps(oh, ow):
        pixels = image[seen].reshape(len(data), groups, inputs, oh * ow)
        tap = taps[..., dy, dx]
        total += tap * pixels if inputs == 1 else tap @ pixels
    return total.reshape(len(data), outputs, oh, ow)


def convolve_transposed(
    data: Array, weight: Array, window: Window, size: Size, groups: int = 1
) -> Array:
    """Return the sums, of `size`, of a transposed convolution with (C, O / groups, KH, KW).

    Every pixel adds its scaled kernel to the result; then the padding is cropped.
    """
    n, channels, height, width = data.shape
    (oh, ow), (top, left, *_), outputs = size, window.padding, groups * weight.shape[1]
    rows, columns = window.reach(height, width)
    whole = np.zeros((n, outputs, max(rows, top + oh), max(columns, left + ow)))
    pixels = data.astype(np.float64).reshape(n, groups, channels // groups, -1)
    taps = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2).astype(np.float64)
    for dy, dx, seen in window.taps(height, width):
        whole[seen] += (taps[..., dy, dx] @ pixels).reshape(n, outputs, height, width)
    return whole[:, :, top : top + oh, left : left + ow]


def over_windows(function: np.ufunc, data: Array, window: Window, value: float) -> Array:
    """Reduce every window of images padded with `value`: columns first, then rows."""
    rows, columns = window.out_size(*data.shape[2:])
    high, _ = window.reach(rows, 1)
    (kh, kw), (sh, sw) = window.kernel, window.strides
    across = Window((1, kw), (1, sw), dilation=(1, window.dilation[1]))
    down = Window((kh, 1), (sh, 1), dilation=(window.dilation[0], 1))
    data = padded(data, window, value)
    for axis, size in ((across, (high, columns)), (down, (rows, columns))):
        (_, _, first), *others = axis.taps(*size)
        total = data[first].copy()
        for _, _, seen in others:
            function(total, data[seen], out=total)
        data = total
    return data
