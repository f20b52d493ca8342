"""Fixed-point softmax of int8 values, bit for bit equal to TFLite's reference kernel.

Numbers are 32-bit integers with a binary point: Qn.m has n bits before it. An exponential is a
Taylor polynomial around -1/8 times factors for the bits beyond a quarter; the reciprocal of the sum
takes three Newton steps. The 256 differences to the maximum have 256 precomputed exponentials, so a
row costs a sum, a reciprocal and one product per value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.graph.requantization import Integers, quantized_multiplier

INT32 = (-(1 << 31), (1 << 31) - 1)
SUM_BITS = 12
"""Bits before the binary point of a sum of exponentials."""
MOST = (1 << SUM_BITS) - 1
"""Maximum number of exponentials that a sum can hold."""
INPUT_BITS = 5
"""Bits before the binary point of a scaled difference."""


def softmax(values: npt.NDArray[np.int8], scale: float) -> npt.NDArray[np.int8]:
    """Return the softmax along the last axis, in steps of 1/256 from the zero point -128.

    Parameters
    ----------
    values : ndarray of int8
        The input.
    scale : float
        Real value of one input step.
    """
    terms_of, reach = exponentials(scale)
    below = values.max(axis=-1, keepdims=True).astype(np.int64) - values
    terms, counted = terms_of[below], below <= reach
    total = np.where(counted, _shifted_right(terms, SUM_BITS), 0).sum(-1, keepdims=True)
    zeros = 32 - np.frexp(total.astype(np.float64))[1]  # leading zeros of 32 bits
    inverse = _one_over_one_plus((total << zeros) - (1 << 31))
    quotient = _shifted_right(_product(inverse, terms), SUM_BITS - zeros + 23)
    probabilities = np.where(counted, np.clip(quotient - 128, -128, 127), -128)
    return probabilities.astype(np.int8)


def exponentials(scale: float) -> tuple[Integers, int]:
    """Return exp(-d * scale), Q0.31, for d = 0..255, and the largest d that counts in a sum."""
    real = min(scale * (1 << (31 - INPUT_BITS)), (1 << 31) - 1.0)
    multiplier, shift = quantized_multiplier(real)
    left_shift = 31 - shift
    reach = math.floor(((1 << INPUT_BITS) - 1) * (1 << (31 - INPUT_BITS)) / (1 << left_shift))
    difference = np.arange(256, dtype=np.int64)
    counted = np.where(difference <= reach, -difference, 0)
    return _exponential(_product(counted << left_shift, np.int64(multiplier))), min(reach, 255)


def _exponential(x: Integers) -> Integers:
    """Return exp(x) as Q0.31 for x <= 0 as Q5.26."""
    quarter = np.int64(1 << 24)
    rest = (x & (quarter - 1)) - quarter  # -1/4 <= rest < 0
    result, beyond = _near_zero(rest << INPUT_BITS), rest - x
    for exponent in range(-2, INPUT_BITS):
        factor = math.floor(math.exp(-(2.0**exponent)) * (1 << 31) + 0.5)
        has = beyond & (1 << (26 + exponent)) != 0
        result = np.where(has, _product(result, np.int64(factor)), result)
    return np.where(x == 0, INT32[1], result)


def _near_zero(x: Integers) -> Integers:
    """Return exp(x) for -1/4 <= x < 0, both Q0.31."""
    middle = np.int64(1895147668)  # exp(-1/8)
    third = np.int64(715827883)
    x = x + (1 << 28)
    square = _product(x, x)
    quartic = _shifted_right(_product(square, square), 2)
    terms = _product(quartic + _product(square, x), third) + square
    result: Integers = middle + _product(middle, x + _shifted_right(terms, 1))
    return result


def _one_over_one_plus(x: Integers) -> Integers:
    """Return 1 / (1 + x) for 0 <= x < 1, both Q0.31."""
    half = (x + INT32[1] + 1) >> 1  # of the denominator
    estimate = 1515870810 + _product(half, np.int64(-1010580540))  # Q2.29: 48/17 - 32/17 * half
    for _ in range(3):
        rest = (1 << 29) - _product(half, estimate)
        estimate = estimate + np.clip(_product(estimate, rest) << 2, *INT32)
    result: Integers = np.clip(estimate << 1, *INT32)
    return result


def _product(a: Integers, b: Any) -> Integers:
    """Return the high half of 2 * a * b, rounded to nearest, halves up."""
    product = a * b
    nudge = np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    total = product + nudge
    result: Integers = np.sign(total) * (np.abs(total) >> 31)
    return result


def _shifted_right(x: Integers, bits: Any) -> Integers:
    """Return ``x / 2**bits``, rounded to nearest, halves away from zero."""
    half = (np.int64(1) << np.asarray(bits, np.int64)) >> 1
    result: Integers = np.sign(x) * ((np.abs(x) + half) >> bits)
    return result
