"""Window maxima along the columns, then along the rows, without initializing accumulators.

A maximum of two accumulators takes two cycles, so a 3x3 window is cheaper as three columns followed
by three rows. One tap of each axis is *in place*: its pixels enter the accumulators of the results
directly, so nothing is reset to -128 or copied. The other taps read side pixels; with a stride of 2
these differ from the pixels in place, and each is entered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te

from vtaops.base.window import Size, Window
from vtaops.machine.alu import AluOp
from vtaops.machine.config import HardwareConfig
from vtaops.ops.declarations import Lane, declare_product_at
from vtaops.ops.epilogue import AluStage, declare_stages

Count = Any
"""An integer, or an array of integers."""

CYCLES = 2
"""Cycles to enter a tile into the accumulators (reset, product), and for a maximum of two tiles."""


@dataclass(frozen=True)
class AxisTaps:
    """The taps of a window along one axis.

    Attributes
    ----------
    place : int
        The tap in place; never in the padding.
    sides : tuple of int
        The other taps.
    start, step : int
        Side pixel i is pixel ``start + i * step`` of the padded image.
    stride : int
        Side pixels between the windows of neighbouring results.
    window : int
        Side pixels that one result's window spans; 0: none.
    """

    place: int
    sides: tuple[int, ...]
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
        place = inside[len(inside) // 2]
        if kernel == 1:
            return AxisTaps(place, ())
        if stride == 2 and (kernel == 2 or (kernel == 3 and 1 in inside)):
            place = 1 if kernel == 3 else place
            return AxisTaps(place, _others(kernel, place), 1 - place % 2, 2, 1, kernel - 1)
        sides = _others(kernel, place)
        return AxisTaps(place, sides, sides[0], 1, stride, sides[-1] - sides[0] + 1)

    def pixels(self, results: Count) -> Count:
        """Return the number of side pixels of neighbouring results."""
        return (results - 1) * self.stride + self.window if self.sides else results * 0

    def side(self, tap: int, result: Any) -> Any:
        """Return the side pixel that a tap reads for a result."""
        return result * self.stride + (tap - self.start) // self.step


def _others(kernel: int, place: int) -> tuple[int, ...]:
    return tuple(tap for tap in range(kernel) if tap != place)


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
        sides = self.rows.pixels(height) * width * len(self.columns.sides)
        results = height * width * (len(self.columns.sides) + len(self.rows.sides))
        return CYCLES * (self.tiles(height, width) + sides + results)

    @property
    def instructions(self) -> int:
        """Minimum number of instructions for a tile."""
        return 2 * len(self.products) + len(self.side_stages) + len(self.stages)

    @property
    def products(self) -> dict[str, tuple[bool, bool]]:
        """The products that fill the accumulators: name to (side rows, side columns)."""
        found = {"res_place": (False, False)}
        if self.columns.sides:
            found["res_beside"] = (False, True)
        if self.rows.sides:
            found["res_above"] = (True, False)
        if self.rows.sides and self.columns.sides:
            found["res_corners"] = (True, True)
        return found

    @property
    def side_stages(self) -> Sequence[AluStage]:
        """The maxima of side rows along the columns."""
        taps = self.columns.sides if self.rows.sides else ()
        return [AluStage(f"res_side_{tap}", AluOp.MAX, None, f"corner_{tap}") for tap in taps]

    @property
    def stages(self) -> Sequence[AluStage]:
        """The maxima of results along the columns, then along the rows."""
        beside = [AluStage(f"res_x_{t}", AluOp.MAX, None, f"x_{t}") for t in self.columns.sides]
        above = [AluStage(f"res_y_{t}", AluOp.MAX, None, f"y_{t}") for t in self.rows.sides]
        return [*beside, *above]

    def declare(
        self, pixels: te.Tensor, scale: te.Tensor, shape: Sequence[int], config: HardwareConfig
    ) -> te.Tensor:
        """Declare the maxima of on-chip padded pixels; `shape` is that of the packed result."""
        batch, channels, height, width, *lanes = shape

        def product(name: str) -> te.Tensor:
            above, beside = self.products[name]
            extents = (
                self.rows.pixels(height) if above else height,
                self.columns.pixels(width) if beside else width,
            )

            def pixel(b: Any, c: Any, y: Any, x: Any, *lane: Any) -> Any:
                row = _pixel(self.rows, self.stride[0], y, above)
                return pixels(b, c, row, _pixel(self.columns, self.stride[1], x, beside), *lane)

            return declare_product_at(
                name, (batch, channels, *extents, *lanes), pixel, scale, config
            )

        found = {name: product(name) for name in self.products}
        operands: dict[str, Lane] = {}
        for tap in self.columns.sides:
            operands[f"x_{tap}"] = self._beside(found["res_beside"], tap)
            if self.rows.sides:
                operands[f"corner_{tap}"] = self._beside(found["res_corners"], tap)
        if self.rows.sides:
            above = declare_stages(found["res_above"], self.side_stages, operands)
            for tap in self.rows.sides:
                operands[f"y_{tap}"] = self._above(above, tap)
        return declare_stages(found["res_place"], self.stages, operands)

    def _beside(self, tensor: te.Tensor, tap: int) -> Lane:
        return lambda b, c, y, x, *lane: tensor(b, c, y, self.columns.side(tap, x), *lane)

    def _above(self, tensor: te.Tensor, tap: int) -> Lane:
        return lambda b, c, y, x, *lane: tensor(b, c, self.rows.side(tap, y), x, *lane)


def _pixel(axis: AxisTaps, stride: int, index: Any, side: bool) -> Any:
    """Return the padded-image pixel of a result, or of a side pixel."""
    return axis.start + index * axis.step if side else index * stride + axis.place
