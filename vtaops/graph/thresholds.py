"""Find and prove fine scales that reproduce another requantization.

A requantization is monotone: for each value k there is a smallest sum that gives k or more, its
threshold. Two requantizations are equal on an interval of sums if their thresholds in it are. A
fine scale (`vtaops.base.fixed_point`) gives k or more at a sum ``a`` if::

    a * multiplier + half + nudge >= k << shift        (half - nudge where a < 0)

So each threshold bounds the nudge: from below at the first sum that must give k, from above at the
last sum that must not. `fine_scale_for` tries the multipliers next to the ratio and returns one
whose bounds admit an encodable nudge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vtaops.base.fixed_point import FINE_BITS, FINE_SHIFTS, NUDGES, nudged
from vtaops.graph.requantization import FineRequantization, Integers, Quotient, Requantization

NEIGHBOURS = sorted(range(-16, 17), key=abs)
"""Offsets of the multipliers to try, relative to the one nearest to the ratio."""

_CODES: Integers = np.array(sorted(NUDGES, key=abs), np.int64)


@dataclass(frozen=True)
class Steps:
    """The thresholds of a requantization on an interval of sums.

    Attributes
    ----------
    levels : ndarray of int64
        Values k before the zero point is added.
    first, last : ndarray of int64
        For each level, the first sum that gives k or more, and the last that gives less: outside
        the interval if k is never, or always, reached in it.
    low, high : int
        Bounds of the interval.
    """

    levels: Integers
    first: Integers
    last: Integers
    low: int
    high: int


@dataclass(frozen=True)
class FineScale:
    """A fine scale and the number of sums for which it is wrong.

    Attributes
    ----------
    multiplier, shift, nudge, kind : int
        See `vtaops.base.fixed_point`.
    differing : int
        Sums of the interval for which it is off by one step; 0: proven equal.
    """

    multiplier: int
    shift: int
    nudge: int
    kind: int
    differing: int = 0


def steps_of(
    levels: Integers, multiplier: int, shift: int, more: int, low: int, high: int
) -> Steps:
    """Return the steps of ``(a * multiplier + half + more) >> shift``, `more` signed as a."""
    half = (1 << shift) >> 1
    wanted = (levels if shift < _WIDE else levels.astype(object)) << shift
    if multiplier:
        negative, positive = (-((half + m - wanted) // multiplier) for m in (-more, more))
        level = np.where(negative < 0, negative, np.maximum(positive, 0))
        first = np.clip(level, low, high + 1)
    else:
        first = np.where(levels > 0, high + 1, low)
    first = first.astype(np.int64)
    return Steps(levels, first, first - 1, low, high)


_WIDE = 54
"""Shift from which on a level, shifted left, may not fit 64 bits."""


def steps_of_requantization(scaling: Requantization, channel: int, low: int, high: int) -> Steps:
    """Return the steps of one channel of a requantization on an interval of sums."""
    least, most = (bound - scaling.zero_point for bound in scaling.clip)
    numbers = scaling.multiplier, scaling.shift, scaling.by_sign
    multiplier, shift, more = (int(n[channel] if n.ndim else n) for n in numbers)
    return steps_of(np.arange(least + 1, most + 1), multiplier, shift, more, low, high)


def fine_scale_for(steps: Steps, ratio: float, kind: int) -> FineScale:
    """Return the fine scale of a kind that is nearest to steps; an equal one if possible.

    Parameters
    ----------
    steps : Steps
        Thresholds to reproduce.
    ratio : float
        Result divided by sum.
    kind : int
        Kind of the scale, 1..3.
    """
    shift = FINE_BITS - int(np.frexp(ratio)[1])  # sets the multiplier's top bit
    shift = min(max(shift, FINE_SHIFTS.start), FINE_SHIFTS.stop - 1)
    middle, values = round(ratio * 2.0**shift), nudged(kind, _CODES)
    near = (sorted((1 << FINE_BITS - 1, middle + n, (1 << FINE_BITS) - 1))[1] for n in NEIGHBOURS)
    tried = []
    for multiplier in dict.fromkeys(near):
        low, high = _bounds(steps, multiplier, shift)
        distance = np.maximum(low - values, 0) + np.maximum(values - high, 0)
        scale = FineScale(multiplier, shift, int(_CODES[np.argmin(distance)]), kind)
        if not distance.min():
            return scale
        tried.append(replace(scale, differing=differing(steps, scale)))
    return min(tried, key=lambda scale: scale.differing)


def _bounds(steps: Steps, multiplier: int, shift: int) -> tuple[int, int]:
    """Return the smallest and largest nudge for which a scale reproduces the steps."""
    wanted = (steps.levels << shift) - ((1 << shift) >> 1)
    reached, missed = steps.first <= steps.high, steps.last >= steps.low
    up = (wanted - steps.first * multiplier)[reached]  # lower bound of the signed nudge
    down = (wanted - 1 - steps.last * multiplier)[missed]  # upper bound
    below, under = steps.first[reached] < 0, steps.last[missed] < 0
    lower = np.concatenate([up[~below], -down[under]])
    upper = np.concatenate([down[~under], -up[below]])
    return int(lower.max(initial=-(1 << 40))), int(upper.min(initial=1 << 40))


def differing(steps: Steps, scale: FineScale) -> int:
    """Count the sums of the interval for which a scale gives another value than the steps.

    Sums between ``last`` and ``first`` do not occur and are not counted.
    """
    more = int(nudged(scale.kind, scale.nudge))
    limits = steps.low, steps.high
    first = steps_of(steps.levels, scale.multiplier, scale.shift, more, *limits).first
    late = np.maximum(first - np.clip(steps.first, steps.low, steps.high + 1), 0)
    early = np.maximum(np.clip(steps.last + 1, steps.low, steps.high + 1) - first, 0)
    return int((late + early).sum())


def quotient_scale(count: int) -> FineScale:
    """Return the fine scale that divides sums of `count` int8 values, halves away from zero."""
    levels = np.arange(-127, 128)
    above, below = levels * count - count // 2, levels * count - (count + 1) // 2 + 1
    first = np.where(levels > 0, above, below)
    steps = Steps(levels, first, first - 1, -128 * count, 127 * count)
    scales = [fine_scale_for(steps, 1 / count, kind) for kind in (1, 2)]
    return min(scales, key=lambda scale: scale.differing)


def scale_of_quotient(scaling: Quotient, count: int) -> FineRequantization:
    """Return the fine scale, of sums of `count` values with their zero points, of a quotient."""
    scale = quotient_scale(count)
    numbers = scale.multiplier, scale.shift, 0, scaling.clip
    return FineRequantization(*numbers, scale.nudge, scale.kind)
