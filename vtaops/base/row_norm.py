"""Statistics of rows on integers: means, reciprocals and their roots, for norms and softmax.

In operations of 32 bits that any arithmetic provides: NumPy's integers, terms of a proof, and the
compiler's record of ALU operations. ``docs/quantization.md`` has it as formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

MEAN_BITS = 6
"""Bits of a mean behind the point."""
PLACES = 15
"""Bits of a normalised value, of which the largest possible is 1."""
SHIFTS = (16, 8, 4, 2)
"""Shifts that may bring a sum of squares to 29 or 30 bits."""
LARGEST = 32767
"""Largest immediate."""


class Arithmetic(Protocol):
    """Operations on int32, which wrap; a second operand is like the first, or a number."""

    def add(self, x: Any, y: Any) -> Any:
        """Return the sum."""

    def mul(self, x: Any, y: Any) -> Any:
        """Return the product."""

    def shr(self, x: Any, y: Any) -> Any:
        """Return x shifted to the right, or by negative y to the left."""

    def clip(self, x: Any, low: float, high: float) -> Any:
        """Return x within bounds."""

    def total(self, x: Any) -> Any:
        """Return the sums along the last axis, which stays."""


def mean_scale(count: int) -> tuple[int, int]:
    """Return a factor and a shift that divide a sum of so many int8 numbers."""
    shift = min(13 + math.floor(math.log2(count)), 23)
    return round((1 << shift) / count), shift


def square_scale(count: int) -> tuple[int, int]:
    """Return a factor and a shift that divide the square of the rest of a sum by the count."""
    shift = min(30 - math.ceil(math.log2(count)), 14 + math.floor(math.log2(count)))
    return round((1 << shift) / count), shift


def spread_bits(count: int) -> int:
    """Return the bits behind the point, an even number, of a sum of squares of so many numbers."""
    return max(0, 14 - math.ceil(math.log2(count))) // 2 * 2


def statistics(
    a: Arithmetic, x: Any, count: int, epsilon: int, center: int | None = None
) -> tuple[Any, Any, Any]:
    """Return what brings rows about 0, in 64ths, the reciprocal root, and the shift of products.

    Rows are taken about their mean, or about a `center`.
    """
    if center is None:
        offset, spread = _about_mean(a, x, count)
    else:
        offset, spread = -center << MEAN_BITS, _about(a, x, count, center)
    bits = spread_bits(count)
    spread = _plus(a, spread, epsilon)
    spread = a.clip(spread, 1 << max(0, bits - 2), math.inf)
    spread, moved = _normalised(a, spread, SHIFTS)
    root = a.add(a.mul(a.shr(a.mul(spread, 20316), 16), -1), 17859)
    for _ in range(3):
        error = a.shr(a.mul(a.shr(a.mul(root, root), 14), spread), 14)
        root = a.shr(a.mul(root, a.add(a.mul(error, -1), 3 << 13)), 14)
    return offset, root, a.add(a.shr(moved, 1), 13 + MEAN_BITS - bits // 2)


def _normalised(a: Arithmetic, x: Any, shifts: Sequence[int]) -> tuple[Any, Any]:
    """Return 15 bits of positive numbers from the highest one on, and negative shifts to them."""
    moved = None
    for shift in shifts:
        small = a.mul(a.add(a.clip(a.shr(x, 30 - shift), -math.inf, 1), -1), shift)
        x = a.shr(x, small)
        moved = small if moved is None else a.add(moved, small)
    return a.shr(x, 15), moved


def _about_mean(a: Arithmetic, x: Any, count: int) -> tuple[Any, Any]:
    """Return the negative mean in 64ths, and the squares about it with `spread_bits`."""
    total, squares = a.total(x), a.total(a.mul(x, x))
    factor, shift = mean_scale(count)
    mean = a.shr(a.add(a.shr(a.mul(total, factor), shift - MEAN_BITS - 1), 1), 1)
    whole = a.shr(a.add(mean, 1 << MEAN_BITS - 1), MEAN_BITS)
    rest = a.add(total, a.mul(whole, -count))
    factor, shift = square_scale(count)
    bits = spread_bits(count)
    square = a.shr(a.mul(a.mul(rest, rest), factor), shift - bits)
    spread = a.add(squares, a.mul(a.mul(whole, a.add(total, rest)), -1))
    return a.mul(mean, -1), a.add(a.mul(spread, 1 << bits), a.mul(square, -1))


def _about(a: Arithmetic, x: Any, count: int, center: int) -> Any:
    """Return the sums of squares about a number, with `spread_bits`."""
    spread = a.total(a.mul(x, x))
    if center:
        total = a.total(x)
        rest = a.add(total, a.mul(_always(a, total, count), -center))
        spread = a.add(spread, a.mul(a.add(total, rest), -center))
    return a.mul(spread, 1 << spread_bits(count))


def _always(a: Arithmetic, x: Any, number: int) -> Any:
    """Return a number for each row."""
    return a.clip(a.clip(x, -math.inf, number), number, math.inf)


def _plus(a: Arithmetic, x: Any, number: int) -> Any:
    """Return the sum of x and a number of two immediates, which the first is made of 2**14."""
    if number > LARGEST:
        high, number = divmod(number, 1 << 14)
        x = a.add(x, a.mul(_always(a, x, high), 1 << 14))
    return a.add(x, number) if number else x


MIDDLE, MOST_EXPONENTIAL = 32640, 65279
"""An exponential of 0, as two digits of int8 less this number, and that of 1."""

UNCOUNTED = -512
"""What a mask adds to values of rows that do not count."""

FURTHEST = -254
"""Steps below the maximum of its row of what counts, at least: what is 255 below does not."""


def shares(a: Arithmetic, high: Any, low: Any, count: int) -> Any:
    """Return exponentials of two digits as 2**22 times their shares in their sum."""
    inverse, shift = inverse_total(a, high, low, count)
    exponentials = a.add(a.add(a.mul(high, 256), low), MIDDLE)
    return a.shr(a.mul(exponentials, inverse), shift)


def inverse_total(a: Arithmetic, high: Any, low: Any, count: int) -> tuple[Any, Any]:
    """Return the reciprocals of the sums of exponentials, and the shifts of products with them."""
    total = a.add(a.mul(a.total(high), 256), a.total(low))
    total = a.add(total, a.mul(_always(a, total, count), MIDDLE))
    total, moved = _normalised(a, total, (*SHIFTS, 1))
    inverse = a.add(a.mul(a.shr(a.mul(total, 30840), 16), -1), 23130)
    for _ in range(2):
        error = a.shr(a.mul(inverse, total), 15)
        inverse = a.shr(a.mul(inverse, a.add(a.mul(error, -1), 1 << 14)), 13)
    return inverse, a.add(moved, 21)
