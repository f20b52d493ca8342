"""Sums, products and maxima over windows of logical tensors: what definitions are spelled in."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.window import Size, Window
from vtaops.proof.terms import EXACT, Fields, Floats, Terms

Weights = npt.NDArray[Any] | Terms
"""Numbers of int8, or terms."""


def convolve(
    fields: Fields,
    x: Terms,
    weights: Weights,
    window: Window,
    groups: int = 1,
    border: bool = False,
) -> Terms:
    """Return the sums of a convolution of (N, C, H, W) with (O, C / groups, KH, KW).

    `border`: whether pixels around the image count for the ranges of sums, as those inside do.
    """
    outputs, inputs, *_ = weights.shape
    n, _, height, width = x.shape
    size = window.out_size(height, width)
    taps = _by_tap(weights, groups, outputs // groups, inputs)
    sums = _Sums(fields, (2, n, groups, size[0] * size[1], outputs // groups))
    sides = _sides(window)
    image = np.pad(x.value, ((0, 0), *sides))
    inside = np.pad(np.ones((1, 1, height, width)), sides, constant_values=float(border))
    for number, (_, _, seen) in enumerate(window.taps(*size)):
        pixels = image[seen].reshape(2, n, groups, inputs, -1).swapaxes(-1, -2)
        sums.add(pixels, taps[number], inside[seen].reshape(-1, 1))
    value, middle, radius = (
        np.moveaxis(part, -1, -2).reshape(*part.shape[:-3], outputs, *size)
        for part in sums.parts(x)
    )
    return Terms(value, middle, radius)


def convolve_transposed(
    fields: Fields, x: Terms, weights: Weights, window: Window, size: Size
) -> Terms:
    """Return the sums, of `size`, of a transposed convolution with (C, O, KH, KW)."""
    n, channels, height, width = x.shape
    (oh, ow), (top, left, *_), outputs = size, window.padding, weights.shape[1]
    rows, columns = window.reach(height, width)
    canvas = max(rows, top + oh), max(columns, left + ow)
    turned = weights.moved(_turn) if isinstance(weights, Terms) else _turn(weights)
    taps = _by_tap(turned, 1, outputs, channels)
    value = np.zeros((2, n, outputs, *canvas))
    middle, radius = np.zeros((2, 1, outputs, *canvas))
    pixels = x.value.reshape(2, n, 1, channels, -1).swapaxes(-1, -2)
    for number, (_, _, seen) in enumerate(window.taps(height, width)):
        sums = _Sums(fields, (2, n, 1, height * width, outputs))
        sums.add(pixels, taps[number], np.ones((height * width, 1)))
        for whole, part in zip((value, middle, radius), sums.parts(x), strict=True):
            part = part.swapaxes(-1, -2).reshape(*part.shape[:-3], outputs, height, width)
            whole[seen] += part
    cut = (..., slice(top, top + oh), slice(left, left + ow))
    return Terms(fields.centred(value[cut]), middle[cut], radius[cut])


def _turn(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    turned: npt.NDArray[Any] = part.swapaxes(0, 1)
    return turned


def _sides(window: Window) -> tuple[tuple[int, int], ...]:
    top, left, bottom, right = window.padding
    return (0, 0), (0, 0), (top, bottom), (left, right)


def _by_tap(weights: Weights, groups: int, outputs: int, inputs: int) -> list[npt.NDArray[Any]]:
    """Return the weights of each tap: (groups, inputs, outputs), terms behind an axis of planes."""
    values = weights.value if isinstance(weights, Terms) else weights[None]
    taps = values.reshape(len(values), 1, groups, outputs, inputs, -1)
    taps = np.moveaxis(taps, -1, 0).swapaxes(-1, -2).astype(np.float64)
    return [tap if len(values) == 2 else tap[0] for tap in taps]


class _Sums:
    """Sums of products, (2, N, groups, pixels, outputs), with their ranges."""

    def __init__(self, fields: Fields, shape: tuple[int, ...]) -> None:
        self.fields = fields
        self.value = np.zeros(shape)
        *_, groups, pixels, outputs = shape
        self._total, self._reach = np.zeros((2, 1, groups, pixels, outputs))
        self._greatest = 0.0

    def add(self, x: Floats, w: Floats, inside: Floats) -> None:
        """Add ``x @ w``; `inside` says which pixels count, (pixels, 1)."""
        terms, inputs = w.ndim == x.ndim, x.shape[-1]
        if terms and inputs == 1:
            made, greatest = self.fields.product(np.broadcast_to(x, self.value.shape), w), 2.0**31
        elif terms:
            made, greatest = self.fields.matmul(x, w), 2.0**31
        else:
            made, greatest = x * w if inputs == 1 else np.matmul(x, w), inputs * 2.0**37
        if self._greatest + greatest > EXACT:
            self.fields.centred(self.value)
            self._greatest = 2.0**31
        self._greatest += greatest
        self.value += made
        sums = np.zeros(w.shape[1:]) if terms else w
        reach = np.full(w.shape[1:], 128.0) if terms else np.abs(w)
        self._total += inside * sums.sum(axis=-2, keepdims=True)
        self._reach += inside * reach.sum(axis=-2, keepdims=True)

    def parts(self, x: Terms) -> tuple[Floats, Floats, Floats]:
        """Return residues, middles and radii for inputs of the ranges of `x`."""
        radius = x.reach if not self._total.any() else x.radius
        return self.fields.centred(self.value), x.middle * self._total, radius * self._reach


def window_sums(fields: Fields, x: Terms, window: Window, border: bool = False) -> Terms:
    """Return the sum of each window of (N, C, H, W), with zeros around it."""
    size = window.out_size(*x.shape[2:])
    image = np.pad(x.value, ((0, 0), *_sides(window)))
    ones = np.ones((1, 1, *x.shape[2:]))
    inside = np.pad(ones, _sides(window), constant_values=float(border))
    value = np.zeros((2, *x.shape[:2], *size))
    count = np.zeros((1, 1, *size))
    for _, _, seen in window.taps(*size):
        value += image[seen]
        count += inside[seen]
    return Terms(fields.centred(value), x.middle * count, x.radius * count)


def window_maxima(fields: Fields, x: Terms, window: Window) -> Terms:
    """Return the greatest int8 of each window; padding is -128."""
    size = window.out_size(*x.shape[2:])
    image = np.pad(x.value, ((0, 0), *_sides(window)), constant_values=-128)
    taps = [Terms(image[seen], x.middle, x.radius) for _, _, seen in window.taps(*size)]
    return fields.extremum_of(taps, 1)
