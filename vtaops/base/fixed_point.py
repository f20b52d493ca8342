"""Limits of fixed-point scaling on VTA: by shifts, and with the extensions ``post`` and ``exact``.

A scale is one word. A coarse scale holds a 16-bit multiplier and a shift. A fine scale, of the
extension ``exact``, holds a 24-bit multiplier whose top bit is 1, a shift, and a nudge: nudge and
`BASES` give the amount added before the shift for non-negative sums and subtracted for negative
ones.
"""

from __future__ import annotations

from typing import Any

MAX_SHIFT = 31
"""Longest shift of an int32 sum."""

MULTIPLIER_BITS = 16
"""Width of an unsigned fixed-point multiplier."""

MAX_SCALE_SHIFT = 47
"""Longest shift of a sum times a multiplier: the product has 32 + 16 bits."""

TWO_DIGITS = 127 * 256 + 127
"""Largest factor of a tensor that two products can apply, one for each of two int8 digits."""

THREE_DIGITS = 127 * 256 * 256 + TWO_DIGITS
"""Largest factor that three products can apply."""

FINE_BITS = 24
"""Width of an unsigned fine multiplier."""

FINE_SHIFTS = range(20, 52)
"""Valid shifts of a fine scale."""

NUDGES = range(-8, 8)
"""Valid nudges of a fine scale, in steps of ``2**NUDGE_STEP``."""

NUDGE_STEP = 14

BASES = (0, 0, 1 << 23, 1 << 24)
"""Base of the nudge by kind of scale: 0 is coarse, 1 to 3 are fine. Kind 2 is for TFLite's double
rounding; kind 3 for the double rounding of means whose multiplier lost a bit."""


def nudged(kind: int, nudge: Any) -> Any:
    """Return the number that a nudge encodes; elementwise for a NumPy array."""
    return (BASES[kind] + nudge * (1 << NUDGE_STEP)) * (kind > 0)


def fine_scale(multiplier: Any, shift: Any, nudge: Any) -> Any:
    """Return the word of a fine scale, as an int32 value.

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
    """Return (multiplier, shift, nudge) of a fine scale; the inverse of `fine_scale`."""
    multiplier = word % (1 << (FINE_BITS - 1)) + (1 << (FINE_BITS - 1))
    return multiplier, (word >> (FINE_BITS - 1)) % 32 + FINE_SHIFTS.start, word >> 28
