"""Scales as a part of the weights, on hardware that can only shift.

A scale that is no power of two multiplies the weights, the bias and the residual's factor of its
channel, ``round(w * scale * 2**shift)``, and one shift for all channels follows the sums. Weights
then have two int8 digits (`vtaops.ops.Conv2d.wide`). The shift is the longest with which they have
no more, and no sum leaves int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vtaops.base.exact import magnitudes
from vtaops.base.fixed_point import MAX_SHIFT, THREE_DIGITS, TWO_DIGITS
from vtaops.base.shapes import Array
from vtaops.graph import Requantization, Tensor
from vtaops.graph.operator import ACCUMULATOR
from vtaops.graph.operators import Convolution, Dense

LEAST = 2.0**-60
"""Scales below this give the same results."""


def ratios(scaling: Requantization) -> Array:
    """Return the scales in steps of the result, one or one for each channel."""
    return np.asarray(np.maximum(scaling.multiplier / 2.0**scaling.shift, LEAST))


def longest_shift(ratio: Array, weight: float, sums: Array, zero_point: int) -> int:
    """Return the longest shift with which weights have two digits, and sums fit int32.

    Parameters
    ----------
    ratio : ndarray of float64
        The scales.
    weight : ndarray of float64
        The largest weight of each channel.
    sums : ndarray of float64
        A bound of the sums of each channel.
    zero_point : int
        That of the result, which is added before the shift.
    """
    room = (
        TWO_DIGITS / (ratio * weight).max(),
        (ACCUMULATOR - 1) / ((ratio * sums).max() + abs(zero_point) + 1),
    )
    return min(MAX_SHIFT, int(np.floor(np.log2(min(room)))))


def in_digits(scaling: Requantization) -> bool:
    """Return whether multipliers of two digits and one shift scale all channels."""
    one = type(scaling) is Requantization and np.unique(scaling.shift).size == 1
    return one and int(scaling.multiplier.max()) <= TWO_DIGITS


def nearest(scaling: Requantization) -> Requantization:
    """Return the nearest scales of values that are multipliers of two digits and one shift."""
    ratio = ratios(scaling)
    shift = max(0, longest_shift(ratio, 1.0, 256.0 * np.ones(1), scaling.zero_point))
    multiplier = np.rint(ratio * 2.0**shift).astype(np.int64)
    return Requantization(multiplier, shift, scaling.zero_point, scaling.clip)


def folded(
    op: Convolution | Dense, inputs: Sequence[Tensor], low: Array, high: Array
) -> tuple[Convolution | Dense, float] | None:
    """Return an operator with its scales in its weights; None if they are too large.

    Also returns how far its results can be from the given ones before they are rounded, in steps.

    Parameters
    ----------
    op : Convolution or Dense
        The operator, with weights of int8.
    inputs : sequence of Tensor
        The data, and the residual if there is one.
    low, high : ndarray of int64
        The least and the greatest value of the data, less its zero point.
    """
    scaling, residual = op.requantization, getattr(op, "residual_factor", None)
    weight, channels = op.weight.astype(np.float64), len(op.weight)
    ratio = np.broadcast_to(ratios(scaling), (channels,))
    bias = 0.0 if op.bias is None else op.bias.astype(np.float64)
    reach = [128.0 + abs(tensor.zero_point) for tensor in inputs]
    factor = 0 if residual is None else residual
    sums = magnitudes(op.weight) * reach[0] + np.abs(bias) + factor * reach[-1]
    greatest = np.maximum(np.abs(weight).reshape(channels, -1).max(axis=1), LEAST)
    shift = min(
        int(np.log2(THREE_DIGITS / max((factor * ratio).max(), LEAST))),
        longest_shift(ratio, greatest, sums, scaling.zero_point),
    )
    if shift < 1:
        return None
    scale = ratio * 2.0**shift
    exact = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    made = np.rint(exact)
    changes: dict[str, Any] = {"weight": made.astype(np.int16)}
    if op.bias is not None:
        changes["bias"] = np.rint(bias * scale).astype(np.int32)
    if residual is not None:
        changes["residual_factor"] = np.maximum(np.rint(factor * scale), 1).astype(np.int64)
    shifted = Requantization(1, shift, scaling.zero_point, scaling.clip)
    off = (made - exact).reshape(channels, -1) / 2.0**shift
    furthest = max(abs(float(np.min(low))), abs(float(np.max(high))))
    rounding = 2.0**-shift  # of the bias and of the residual's factor, at most
    added = rounding * (0.5 + (0.0 if residual is None else 0.5 * reach[-1]))
    largest = float(np.abs(off).sum(axis=1).max() * furthest + added)
    return replace(op, **changes, requantization=shifted), largest
