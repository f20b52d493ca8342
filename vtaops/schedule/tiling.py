"""Tiling: how an operator is cut into pieces that fit the scratchpads."""

from __future__ import annotations

from dataclasses import dataclass

from vtaops.errors import ScheduleError


@dataclass(frozen=True)
class Tiling:
    """Blocking and virtual threads of one operator, in channels and pixels.

    Each virtual thread works on a tile of ``oc`` output channels and ``h`` x ``w`` output pixels
    and reads the input in steps of ``ic`` channels; threads share the scratchpads and hide the
    loads of one under the computation of the other. For a matrix product, ``oc`` counts columns of
    the result, ``ic`` the reduction, ``h`` its rows, and ``w`` is 1.

    Tiles need not divide the operator; the last ones are smaller.

    Parameters
    ----------
    oc, ic : int
        Output and input channels of a tile; multiples of the block of the configuration.
    h, w : int
        Output rows and columns of a tile.
    oc_threads, h_threads : int
        Virtual threads over neighbouring tiles along the output channels or the rows.

    Raises
    ------
    ScheduleError
        If a value is no positive integer.
    """

    oc: int
    ic: int
    h: int = 1
    w: int = 1
    oc_threads: int = 1
    h_threads: int = 1

    def __post_init__(self) -> None:
        for name in ("oc", "ic", "h", "w", "oc_threads", "h_threads"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ScheduleError(f"tiling {name} is {value!r}; it must be a positive integer")

    @property
    def threads(self) -> int:
        """Number of virtual threads."""
        return self.oc_threads * self.h_threads
