"""One fixed-point scale for all channels, as operators of VTA take it."""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.graph import Requantization
from vtaops.ops.epilogue import MAX_SCALE_SHIFT, MULTIPLIER_BITS


def uniform(scaling: Requantization, factor: int = 1) -> dict[str, Any] | None:
    """Return the parameters of one scale for all channels; None if there is no such scale.

    `factor` multiplies the sums before, exactly.
    """
    multiplier, shift = np.unique(scaling.multiplier), np.unique(scaling.shift)
    if multiplier.size > 1 or shift.size > 1 or factor < 0:
        return None
    product = int(multiplier[0]) * factor
    if product >= 1 << MULTIPLIER_BITS:
        return None
    scale = {"multiplier": product, "shift": int(shift[0])}
    if not product:  # a multiplier of 0 means none: this one leaves nothing of 32 bits either
        scale = {"multiplier": 1, "shift": MAX_SCALE_SHIFT}
    return {**scale, "zero_point": scaling.zero_point}


def as_int32(value: int) -> int:
    """Return an integer as int32 holds it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
