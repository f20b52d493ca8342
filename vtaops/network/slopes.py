"""Leaky ReLUs on hardware without tables: the factors nearest to a table of two slopes.

A leaky ReLU is imported as the table of its 256 results, which is exact. Hardware without tables,
or whose tables cannot differ between channels, multiplies by two small factors instead, if that
moves no result by more than a step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vtaops.base.fixed_point import MAX_SHIFT
from vtaops.base.shapes import Array
from vtaops.graph import Requantization
from vtaops.graph.operators import LookupTable

LARGEST = 127
"""Largest factor, and largest difference of two."""


def nearest_factors(
    op: LookupTable, zero_point: int, *, shifts_only: bool
) -> tuple[Array, Requantization, int] | None:
    """Return the leaky ReLU nearest to a table, and for how many values it is a step off.

    That is the factor of what is above the zero point with those below it, one or one for each
    channel, and the scale of the products.

    None if the table has not two slopes, or no factors come within a step of all its results.

    Parameters
    ----------
    op, zero_point
        The table, and the zero point of its input.
    shifts_only
        Whether the hardware can only shift the products.
    """
    tables = op.table.reshape(-1, 256).astype(np.int64)
    steps = np.arange(-128, 128) - zero_point
    bounds = int(tables.min()), int(tables.max())
    above = _slope(steps, tables - op.zero_point, tables, bounds)
    below = [_slope(-steps, op.zero_point - row, -row, (-bounds[1], -bounds[0])) for row in tables]
    if above is None or above <= 0 or None in below:
        return None
    found = []
    for ratio in _ratios(above, shifts_only=shifts_only):
        factors = np.rint(np.array([above, *below]) / ratio).astype(np.int64)
        if factors[0] < 1 or max(factors.max(), np.ptp(factors)) > LARGEST:
            continue
        scaling = Requantization.from_ratio(ratio, op.zero_point, bounds)
        products = steps * np.where(steps >= 0, factors[0], factors[1:, None])
        apart = np.abs(scaling.apply(products) - tables)
        if apart.max() <= 1:
            found.append((factors, scaling, int(np.count_nonzero(apart))))
    return min(found, key=lambda one: one[-1], default=None)


def _ratios(slope: float, *, shifts_only: bool) -> Iterator[float]:
    """Yield the scales to try for the products with the factors."""
    if shifts_only:
        yield from (2.0**-shift for shift in range(MAX_SHIFT + 1))
    else:
        yield from (slope / factor for factor in range(1, LARGEST + 1))


def _slope(steps: Array, results: Array, values: Array, bounds: tuple[int, int]) -> float | None:
    """Return the slope of results at positive steps, rounded to nearest; None if there is none.

    Values at the bounds may be saturated.
    """
    right = steps > 0
    steps, results, values = steps[right], results[..., right], values[..., right]
    tolerance = 0.5 + 1e-4
    low = ((results - tolerance) / steps)[values > bounds[0]].max(initial=-np.inf)
    high = ((results + tolerance) / steps)[values < bounds[1]].min(initial=np.inf)
    if low > high:
        return None
    simple = 2.0 ** np.floor(np.log2(high)) if 0 < high < np.inf else 0.0
    if low <= simple <= high:
        return float(simple)
    return float(np.clip((low + high) / 2 if np.isfinite(low + high) else 0.0, low, high))
