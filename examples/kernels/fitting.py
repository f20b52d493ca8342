"""Which tiles a GPU can hold; the searches of the examples try only those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vtaops.base.errors import ScheduleError
from vtaops.kernels.cuda.target import CudaTarget


def fits(check: Callable[..., None], op: Any, tile: Any, target: CudaTarget) -> bool:
    """Return whether ``check(op, tile, target)`` accepts a tile."""
    try:
        check(op, tile, target)
    except ScheduleError:
        return False
    return True
