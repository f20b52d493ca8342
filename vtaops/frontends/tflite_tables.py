"""Functions of one int8 value as TFLite's reference kernels round them: tables of 256 results."""

from __future__ import annotations

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.requantization import TfliteRequantization, quantized_multiplier

Grids = tuple[float, int, float]
"""Scale and zero point of the operand, and scale of the result, whose zero point is added later."""


def leaky_relu(grids: Grids, slopes: Array, unit: float | None = None) -> Array:
    """Return a LeakyReLU or a PReLU, in a row for each slope.

    Parameters
    ----------
    grids
        The grids.
    slopes
        The slopes: floats, or integers in steps of `unit`.
    """
    x, ratio = _steps(grids)
    own, result = np.float32(grids[0]), np.float32(grids[2])
    if unit is None:
        rows = [product(x, float(own * np.float32(slope) / result)) for slope in slopes]
    else:
        less = float(own * np.float32(unit) / result)
        rows = [product(x * int(slope), less) for slope in slopes]
    return np.where(x >= 0, product(x, float(ratio)), np.array(rows))


def absolute(grids: Grids) -> Array:
    """Return the absolute value."""
    x, ratio = _steps(grids)
    return product(np.abs(x), float(ratio))


def hard_swish(grids: Grids) -> Array:
    """Return a HardSwish, which TFLite computes in 16-bit fixed point."""
    x, _ = _steps(grids)
    fine, high = np.float32(1 / 128) * np.float32(grids[0]), x * 128
    factor, power = _half_multiplier(float(fine / np.float32(grids[2])))
    gate, shift = _half_multiplier(float(fine / np.float32(3 / 32768)))
    result, open_ = _high_product(high, factor), high
    open_ = _saturated(open_ << max(shift - 1, 0))
    open_ = _high_product(open_, gate)
    open_ = _saturated(open_ << 1) if shift > 0 else _divided(open_, -shift)
    open_ = (open_ + (1 << 15)) >> 1
    whole = open_ * result
    return _divided(np.sign(whole) * (np.abs(whole) >> 15), -power)


def product(steps: Array, ratio: float) -> Array:
    """Return integers times a real number; the sign of that is put on behind the rounding."""
    if not ratio:
        return np.zeros_like(steps)
    scaling = TfliteRequantization.from_ratio(abs(ratio))
    half = scaling.half + scaling.by_sign * np.where(steps < 0, -1, 1)
    values = steps * scaling.multiplier + half >> scaling.shift
    return np.asarray(values if ratio > 0 else -values)


def _steps(grids: Grids) -> tuple[Array, np.float32]:
    """Return the steps of -128, ..., 127 above zero, and the ratio of the scales as TFLite's."""
    scale, zero, result = grids
    return np.arange(-128, 128) - zero, np.float32(scale) / np.float32(result)


def _half_multiplier(ratio: float) -> tuple[int, int]:
    """Return a multiplier of 15 bits, and the power of two by which it is multiplied."""
    multiplier, shift = quantized_multiplier(ratio)
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), 31 - shift


def _saturated(values: Array) -> Array:
    return np.clip(values, -(1 << 15), (1 << 15) - 1)


def _high_product(values: Array, factor: int) -> Array:
    """Return the high halves of twice the products of 16-bit integers, rounded."""
    whole = values * factor
    whole = whole + np.where(whole >= 0, 1 << 14, 1 - (1 << 14))
    return np.asarray(np.sign(whole) * (np.abs(whole) >> 15))


def _divided(values: Array, power: int) -> Array:
    """Return integers over a power of two, halves away from zero."""
    half = (1 << power) >> 1
    return np.asarray(np.sign(values) * (np.abs(values) + half >> power))
