"""What passes hand to the def-use index of operations (``vtaops._uses.Uses``)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Elements

Flags = npt.NDArray[np.bool_]


class Followed(IntEnum):
    """When `Uses.read_later` follows what an operation does, as in C++."""

    NEVER = 0
    ALWAYS = 1
    IF_READ = 2


def mask_of(elements: Elements, depth: int) -> Flags:
    """Return a flag for each of `depth` elements: whether it is among some."""
    mask = np.zeros(depth, np.bool_)
    mask[elements] = True
    return mask
