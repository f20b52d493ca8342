"""The weights of a language model as integers: a grid for each output."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.base.learned_rounding import rounded as learned
from vtaops.base.shapes import Array
from vtaops.language.files import Floats
from vtaops.language.floats import rounded

SHARES = np.linspace(0.5, 1, 11)
"""What the largest integer of a grid of four bits may be, of an output's largest weight."""


def on_grid(
    weight: Floats, bits: int, moment: Array | None
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Return weights as integers of so many bits, and the step of each output.

    With the second moments of what is multiplied, four bits are rounded so that the results change
    least, and an output's largest weights may lie beyond its grid.
    """
    largest = (1 << bits - 1) - 1
    reach = np.maximum(np.abs(weight).max(axis=1), 1e-9)
    if bits == 8 or moment is None:
        steps = reach / largest
        return rounded(weight / steps[:, None]), steps
    exact = weight.astype(np.float64)
    found = np.stack(
        [_changed(exact, reach * share / largest, largest, moment) for share in SHARES]
    )
    steps = reach * SHARES[found.argmin(axis=0)] / largest
    grid = np.broadcast_to(steps[:, None], exact.shape)
    return learned(exact[None], grid[None], moment[None], largest)[0].astype(np.int8), steps


def _changed(weight: Array, steps: Array, largest: int, moment: Array) -> Array:
    """Return by how much rounding to nearest changes each result, squared."""
    near = np.clip(np.rint(weight / steps[:, None]), -largest, largest)
    error = near * steps[:, None] - weight
    return np.asarray(((error @ moment) * error).sum(axis=1))
