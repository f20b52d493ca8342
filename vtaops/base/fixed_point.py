"""Limits of fixed-point scaling on VTA: by shifts, and with the extensions ``post`` and ``exact``.

A scale is one word. Coarse ones hold a multiplier of 16 bits and a shift. Fine ones, of the
extension ``exact``, hold a multiplier of 24 bits whose highest bit is 1, a shift, and a nudge: with
`BASES` it says what the rounding gains where the sum is not negative, and loses where it is.
"""

from __future__ import annotations

from typing import Any

MAX_SHIFT = 31
"""Longest shift of an int32 sum."""

MULTIPLIER_BITS = 16
"""Width of a fixed-point multiplier: unsigned."""

MAX_SCALE_SHIFT = 47
"""Longest shift of a sum times a multiplier: a product has 32 + 16 bits."""

TWO_DIGITS = 127 * 256 + 127
"""Greatest factor of a tensor that two products multiply: one of two int8 digits."""

FINE_BITS = 24
"""Width of a fine multiplier: unsigned."""

FINE_SHIFTS = range(20, 52)
"""Shifts of a fine scale."""

NUDGES = range(-8, 8)
"""Nudges of a fine scale, in steps of ``2**NUDGE_STEP``."""

NUDGE_STEP = 14

BASES = (0, 0, 1 << 23, 1 << 24)
"""What is added to the steps, by the kind of scales: 0 are coarse ones, 1 to 3 fine ones. The kind
2 is for TFLite's two roundings; 3 for those of means whose multiplier has a bit less."""


def nudged(kind: int, nudge: Any) -> Any:
    """Return the number that a nudge stands for; an array for an array of NumPy."""
    return (BASES[kind] + nudge * (1 << NUDGE_STEP)) * (kind > 0)


def fine_scale(multiplier: Any, shift: Any, nudge: Any) -> Any:
    """Return the word of a fine scale, as an int32 holds it.

    Parameters
    ----------
    multiplier : int or ndarray of int64
        2**23..2**24 - 1.
    shift, nudge : int or ndarray of int64
        20..51; -8..7.
    """
    low = multiplier % (1 << (FINE_BITS - 1))
    word = low | (shift - FINE_SHIFTS.start) << (FINE_BITS - 1) | (nudge % 16) << 28
    return word - (word >= 1 << 31) * (1 << 32)


def fine_parts(word: Any) -> tuple[Any, Any, Any]:
    """Return multiplier, shift and nudge of a fine scale: what `fine_scale` was given."""
    multiplier = word % (1 << (FINE_BITS - 1)) + (1 << (FINE_BITS - 1))
    return multiplier, (word >> (FINE_BITS - 1)) % 32 + FINE_SHIFTS.start, word >> 28
