"""Fine scales with the thresholds of another requantisation, found and proven.

A requantisation is monotone: for each value k there is a first sum that gives k or more, its
threshold. Two requantisations are equal on an interval of sums if their thresholds in it are. A
fine scale (`vtaops.base.fixed_point`) gives k or more at a sum ``a`` if::

    a * multiplier + half + nudge >= k << shift        (half - nudge where a < 0)

So each threshold bounds the nudge: from below at the first sum that must give k, from above at the
last sum that must not. `fine_scale_for` tries the multipliers next to the ratio and takes one whose
bounds hold a nudge that the hardware has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vtaops.base.fixed_point import FINE_BITS, FINE_SHIFTS, NUDGES, nudged
from vtaops.graph.requantization import Requantization

Integers = npt.NDArray[np.int64]

NEIGHBOURS = sorted(range(-16, 17), key=abs)
"""Multipliers that are tried, relative to the one next to the ratio."""

_CODES: Integers = np.array(sorted(NUDGES, key=abs), np.int64)


@dataclass(frozen=True)
class Steps:
    """Where the values of a requantisation step.

    Attributes
    ----------
    levels : ndarray of int64
        Values k before the zero point is added.
    first, last : ndarray of int64
        For each, the first sum that gives k or more, and the last that gives less: beyond the
        interval where k is never, or always, reached in it.
    low, high : int
        The interval.
    """

    levels: Integers
    first: Integers
    last: Integers
    low: int
    high: int


@dataclass(frozen=True)
class FineScale:
    """A fine scale, and at how many sums it gives another value than it should.

    Attributes
    ----------
    multiplier, shift, nudge, kind : int
        See `vtaops.base.fixed_point`.
    differing : int
        Sums of the interval at which it is one step off; 0: it is proven equal.
    """

    multiplier: int
    shift: int
    nudge: int
    kind: int
    differing: int = 0


def steps_of(
    levels: Integers, multiplier: int, shift: int, more: int, low: int, high: int
) -> Steps:
    """Return the steps of ``(a * multiplier + half + more) >> shift``, `more` by the sign of a."""
    if not multiplier:
        first = np.where(levels > 0, high + 1, low)
        return Steps(levels, first, first - 1, low, high)
    half = (1 << shift) >> 1
    wide = levels if shift < 54 else levels.astype(object)
    wanted = wide << shift
    negative = -((half - more - wanted) // multiplier)
    positive = -((half + more - wanted) // multiplier)
    found = np.where(negative < 0, negative, np.maximum(positive, 0))
    first = np.clip(found, low, high + 1).astype(np.int64)
    return Steps(levels, first, first - 1, low, high)


def steps_of_requantization(scaling: Requantization, channel: int, low: int, high: int) -> Steps:
    """Return the steps of a requantisation of one channel on an interval of sums."""
    least, most = (bound - scaling.zero_point for bound in scaling.clip)
    numbers = (scaling.multiplier, scaling.shift, scaling.by_sign)
    multiplier, shift, more = (int(part[channel] if part.ndim else part) for part in numbers)
    return steps_of(np.arange(least + 1, most + 1), multiplier, shift, more, low, high)


def fine_scale_for(steps: Steps, ratio: float, kind: int, shift: int | None = None) -> FineScale:
    """Return the fine scale of a kind that is nearest to steps: equal, if one is.

    Parameters
    ----------
    steps : Steps
        What it should do.
    ratio : float
        Result over sum.
    kind : int
        1..3.
    shift : int, optional
        Of the scale; by default the one that gives the multiplier its highest bit.
    """
    own = FINE_BITS - int(np.frexp(ratio)[1])
    shift = min(max(own if shift is None else shift, FINE_SHIFTS.start), FINE_SHIFTS.stop - 1)
    middle = round(ratio * 2.0**shift)
    smallest, greatest = 1 << (FINE_BITS - 1), (1 << FINE_BITS) - 1
    best: FineScale | None = None
    for offset in NEIGHBOURS:
        multiplier = middle + offset
        if not smallest <= multiplier <= greatest:
            continue
        low, high = _bounds(steps, multiplier, shift)
        values = nudged(kind, _CODES)
        inside = (low <= values) & (values <= high)
        if inside.any():
            return FineScale(multiplier, shift, int(_CODES[inside][0]), kind)
        distance = np.maximum(low - values, 0) + np.maximum(values - high, 0)
        found = FineScale(multiplier, shift, int(_CODES[np.argmin(distance)]), kind)
        found = replace(found, differing=differing(steps, found))
        if best is None or found.differing < best.differing:
            best = found
    if best is None:  # beyond the shifts: as small, or as great, as they allow
        best = FineScale(smallest if middle < smallest else greatest, shift, 0, kind)
        best = replace(best, differing=differing(steps, best))
    return best


def _bounds(steps: Steps, multiplier: int, shift: int) -> tuple[int, int]:
    """Return the least and the greatest nudge with which a scale has the steps."""
    wanted = (steps.levels << shift) - ((1 << shift) >> 1)
    reached, missed = steps.first <= steps.high, steps.last >= steps.low
    up = (wanted - steps.first * multiplier)[reached]  # the nudge, with its sign, is at least that
    down = (wanted - 1 - steps.last * multiplier)[missed]  # and at most that
    below, under = steps.first[reached] < 0, steps.last[missed] < 0
    lower = np.concatenate([up[~below], -down[under]])
    upper = np.concatenate([down[~under], -up[below]])
    return int(lower.max(initial=-(1 << 40))), int(upper.min(initial=1 << 40))


def differing(steps: Steps, scale: FineScale) -> int:
    """Return at how many sums of the interval a scale gives another value than the steps say.

    A sum between ``last`` and ``first``, which does not occur, counts for nothing.
    """
    more = int(nudged(scale.kind, scale.nudge))
    limits = steps.low, steps.high
    found = steps_of(steps.levels, scale.multiplier, scale.shift, more, *limits).first
    late = np.maximum(found - np.clip(steps.first, steps.low, steps.high + 1), 0)
    early = np.maximum(np.clip(steps.last + 1, steps.low, steps.high + 1) - found, 0)
    return int((late + early).sum())


def quotient_scale(count: int) -> FineScale:
    """Return the fine scale that divides sums of `count` int8 values, halves away from zero."""
    levels = np.arange(-127, 128)
    above, below = levels * count - count // 2, levels * count - (count + 1) // 2 + 1
    first = np.where(levels > 0, above, below)
    steps = Steps(levels, first, first - 1, -128 * count, 127 * count)
    found = [fine_scale_for(steps, 1 / count, kind) for kind in (1, 2)]
    return min(found, key=lambda scale: scale.differing)
