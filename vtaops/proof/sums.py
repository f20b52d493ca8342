"""Sums, products and maxima over windows of logical tensors, from which definitions are built."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.exact import by_rows
from vtaops.base.window import Size, Window
from vtaops.proof.terms import Fields, Floats, Terms

Weights = npt.NDArray[Any] | Terms
"""int8 numbers, or terms."""

LONGEST = 1 << 16
"""Number of products of residues with int8 numbers whose sum is exact in float64."""
GATHERED = 1 << 20
"""Number of residues combined in one matrix product: 8 MB, which a cache holds."""


def convolve(
    fields: Fields,
    x: Terms,
    weights: Weights,
    window: Window,
    groups: int = 1,
    border: bool = False,
) -> Terms:
    """Return the sums of a convolution of (N, C, H, W) with (O, C / groups, KH, KW).

    With `border`, pixels around the image count for the ranges of sums like those inside.
    """
    size = window.out_size(*x.shape[2:])
    image = np.pad(x.value, ((0, 0), *_sides(window))) if any(window.padding) else x.value
    inside = np.pad(np.ones(x.shape[2:]), _sides(window)[2:], constant_values=float(border))
    taps = [seen for *_, seen in window.taps(*size)]
    return _products(fields, x, image, inside, weights, groups, taps)


def convolve_transposed(
    fields: Fields,
    x: Terms,
    weights: Weights,
    window: Window,
    size: Size,
    groups: int = 1,
) -> Terms:
    """Return the sums, of `size`, of a transposed convolution with (C, O / groups, KH, KW).

    Pixel i adds to result ``i * stride + tap * dilation - padding``. Result r is therefore the sum
    over taps of the zero-stuffed image's pixels at ``r + padding - tap * dilation``.
    """

    def axis(
        taps: int, stride: int, gap: int, pixels: int, side: int, extent: int
    ) -> tuple[int, slice, list[slice]]:
        """Return the length of a canvas, its pixels, and what each tap reads for all results."""
        before, far = (taps - 1) * gap, (pixels - 1) * stride + 1
        starts = range(before + side, side - 1, -gap)
        places = [slice(start, start + extent) for start in starts]
        return before + max(far, side + extent), slice(before, before + far, stride), places

    (height, rows, down), (width, columns, across) = map(
        axis, window.kernel, window.strides, window.dilation, x.shape[2:], window.padding, size
    )
    image, inside = np.zeros((*x.value.shape[:3], height, width)), np.zeros((height, width))
    image[..., rows, columns] = x.value
    inside[rows, columns] = 1
    taps = [(..., first, second) for first in down for second in across]

    def turned(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        kernels: npt.NDArray[Any] = part.reshape(groups, -1, *part.shape[1:]).swapaxes(1, 2)
        return kernels.reshape(-1, *kernels.shape[2:])

    first = weights.moved(turned) if isinstance(weights, Terms) else turned(weights)
    return _products(fields, x, image, inside, first, groups, taps)


def _products(
    fields: Fields,
    x: Terms,
    image: Floats,
    inside: Floats,
    weights: Weights,
    groups: int,
    taps: Sequence[Any],
) -> Terms:
    """Return the sums over taps of the pixels that they read, times (O, C / groups, KH, KW).

    `x` has the range of the image's values where `inside` is 1; elsewhere it is zero.
    """
    counted = np.array([inside[seen] for seen in taps])
    numbers: Any = weights.value if isinstance(weights, Terms) else weights
    if isinstance(weights, Terms):
        used = numbers.any(axis=0).sum(axis=1)
        total, reach, radius = 0.0 * used, 128.0 * used, x.reach
    else:
        total = weights.sum(axis=1, dtype=np.float64)
        reach = by_rows(lambda rows: np.abs(rows.astype(np.float64)).sum(axis=1), weights)
        radius = x.radius
    value = _expanded(fields, image, numbers, groups, taps)
    middle, spread = (_counted(part, counted) for part in (total, reach))
    return Terms(value, x.middle * middle, radius * spread, degree=2)


def _counted(weights: Floats, counted: Floats) -> Floats:
    """Return the sums (1, O, rows, columns) of (O, KH, KW) over the taps that a pixel counts."""
    flat = counted.reshape(len(counted), -1)
    return (weights.reshape(len(weights), -1) @ flat).reshape(1, -1, *counted.shape[1:])


def _expanded(
    fields: Fields, image: Floats, weights: Any, groups: int, taps: Sequence[Any]
) -> Floats:
    """Return the sums of products with numbers, or with the residues of terms."""
    outputs, inputs, *_ = weights.shape[-4:]
    planes, n, channels, *_ = image.shape
    size = image[0, 0, 0][taps[0]].shape
    symbolic = weights.ndim == 5
    kernel = np.asarray(weights, np.float64)
    kernel = kernel.reshape(*kernel.shape[:-4], 1, groups, outputs // groups, inputs, len(taps))
    pixels = math.prod(size)
    value = np.zeros((planes, n, groups, outputs // groups, pixels))
    step = max(1, GATHERED // (n * channels * pixels))
    whole = symbolic or inputs * len(taps) > LONGEST
    for first in range(0, len(taps), step):
        chosen = slice(first, first + step)
        part = kernel[..., chosen].reshape(*kernel.shape[:-2], -1)
        seen = np.stack([image[tap] for tap in taps[chosen]], axis=3)
        seen = seen.reshape(planes, n, groups, -1, pixels)
        value += fields.matmul(part, seen) if whole else np.matmul(part, seen)
    return fields.centred(value).reshape(planes, n, outputs, *size)


def _sides(window: Window) -> tuple[tuple[int, int], ...]:
    top, left, bottom, right = window.padding
    return (0, 0), (0, 0), (top, bottom), (left, right)


def window_sums(fields: Fields, x: Terms, window: Window, border: bool = False) -> Terms:
    """Return the sum of each window of (N, C, H, W), with zeros around it."""
    ones = np.ones((x.shape[1], 1, *window.kernel))
    return convolve(fields, x, ones, window, x.shape[1], border)


def window_maxima(fields: Fields, x: Terms, window: Window) -> Terms:
    """Return the largest int8 of each window; padding is -128."""
    size = window.out_size(*x.shape[2:])
    image = np.pad(x.value, ((0, 0), *_sides(window)), constant_values=-128)
    taps = [Terms(image[seen], x.middle, x.radius) for *_, seen in window.taps(*size)]
    return fields.extremum_of(taps, 1)
