"""The weights of a language model as integers: a grid for each output."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.base.shapes import Array
from vtaops.graph.learned_rounding import rounded as learned
from vtaops.language.files import Floats
from vtaops.language.floats import rounded


def on_grid(
    weight: Floats, bits: int, moment: Array | None
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Return weights as integers of so many bits, and the step of each output.

    With the second moments of what is multiplied, four bits are rounded so that the results change
    least.
    """
    largest = (1 << bits - 1) - 1
    steps = np.maximum(np.abs(weight).max(axis=1), 1e-9) / largest
    if moment is None:
        return rounded(weight / steps[:, None]), steps
    grid = np.broadcast_to(steps[:, None], weight.shape)
    found = learned(weight[None].astype(np.float64), grid[None], moment[None], largest)
    return found[0].astype(np.int8), steps
