"""Window maxima along the columns, then along the rows, without initializing accumulators.

A maximum of two accumulators takes two cycles, so a 3x3 window is cheaper as three columns followed
by three rows. One tap of each axis is *in place*: its pixels enter the accumulators of the results
directly, so nothing is reset to -128 or copied. The other taps read side pixels; with a stride of 2
these differ from the pixels in place, and each is entered once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vtaops.base.window import Size, Window

Count = Any
"""An integer, or an array of integers."""

CYCLES = 2
"""Cycles to enter a tile into the accumulators (reset, product), and for a maximum of two tiles."""


@dataclass(frozen=True)
class AxisTaps:
    """The taps of a window along one axis.

    Attributes
    ----------
    anchor : int
        The tap that is in place; never in the padding.
    other_taps : tuple of int
        The other taps.
    start, step : int
        Side pixel i is pixel ``start + i * step`` of the padded image.
    stride : int
        Side pixels between the windows of neighbouring results.
    window : int
        Side pixels that one result's window spans; 0: none.
    """

    anchor: int
    other_taps: tuple[int, ...]
    start: int = 0
    step: int = 1
    stride: int = 1
    window: int = 0

    @staticmethod
    def of(window: Window, size: Size, axis: int) -> AxisTaps | None:
        """Return the taps along an axis of an image; None if some window reads only padding."""
        kernel, stride = window.kernel[axis], window.strides[axis]
        last = window.out_size(*size)[axis] - 1
        first_taps, last_taps = (window.taps_inside(axis, size[axis], i) for i in (0, last))
        inside = range(first_taps.start, last_taps.stop)
        if not inside:
            return None
        anchor = inside[len(inside) // 2]
        if kernel == 1:
            return AxisTaps(anchor, ())
        if stride == 2 and (kernel == 2 or (kernel == 3 and 1 in inside)):
            anchor = 1 if kernel == 3 else anchor
            return AxisTaps(anchor, _others(kernel, anchor), 1 - anchor % 2, 2, 1, kernel - 1)
        others = _others(kernel, anchor)
        return AxisTaps(anchor, others, others[0], 1, stride, others[-1] - others[0] + 1)

    def pixels(self, results: Count) -> Count:
        """Return the number of side pixels of neighbouring results."""
        return (results - 1) * self.stride + self.window if self.other_taps else results * 0

    def side(self, tap: int, result: Any) -> Any:
        """Return the side pixel that a tap reads for a result."""
        return result * self.stride + (tap - self.start) // self.step


def _others(kernel: int, anchor: int) -> tuple[int, ...]:
    return tuple(tap for tap in range(kernel) if tap != anchor)


@dataclass(frozen=True)
class SeparateMaxima:
    """Maxima along the columns, then along the rows.

    Attributes
    ----------
    rows, columns : AxisTaps
        Taps of the axes.
    stride : (int, int)
        Strides of the window.
    """

    rows: AxisTaps
    columns: AxisTaps
    stride: tuple[int, int]

    @staticmethod
    def of(window: Window, size: Size) -> SeparateMaxima | None:
        """Return the maxima over an image; None if some window has no tap inside it."""
        rows, columns = (AxisTaps.of(window, size, axis) for axis in (0, 1))
        if rows is None or columns is None:
            return None
        return SeparateMaxima(rows, columns, window.strides)

    def tiles(self, height: Count, width: Count) -> Count:
        """Return the number of accumulator tiles for a tile of results."""
        return (height + self.rows.pixels(height)) * (width + self.columns.pixels(width))

    def cycles(self, height: Count, width: Count) -> Count:
        """Return the cycles for a tile of results."""
        sides = self.rows.pixels(height) * width * len(self.columns.other_taps)
        results = height * width * (len(self.columns.other_taps) + len(self.rows.other_taps))
        return CYCLES * (self.tiles(height, width) + sides + results)

    @property
    def passes(self) -> int:
        """ALU passes over the results."""
        return len(self.rows.other_taps) + len(self.columns.other_taps)
