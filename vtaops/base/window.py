"""Window: how a kernel slides over an image, and the size of the result.

The operators of the accelerator, of graphs and of CPU and GPU kernels all hold a `Window`; result
sizes are computed only here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import (
    LONGEST_AXIS,
    SIDES,
    Padding,
    Pair,
    Sides,
    as_pair,
    ceil_div,
    require_at_least,
    resolve_padding,
)

Size = tuple[int, int]
"""(height, width)."""


@dataclass(frozen=True)
class Window:
    """A kernel that slides over a padded image.

    Attributes
    ----------
    kernel, strides, dilation : (int, int)
        Kernel size, stride between windows, and distance between taps, in pixels (height, width).
    padding : (int, int, int, int)
        Pixels added at the top, left, bottom and right.
    ceil : bool
        Whether a last window may extend past the padded image, if it starts inside the image or its
        leading padding (PyTorch's ``ceil_mode``).

    Raises
    ------
    ShapeError
        If a kernel, stride or dilation is below 1 or above `LONGEST_AXIS`, or a padding is
        negative.
    """

    kernel: Size
    strides: Size = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Size = (1, 1)
    ceil: bool = False

    @staticmethod
    def of(
        kernel: int | tuple[int, ...],
        strides: Pair | None = 1,
        padding: Padding | tuple[int, ...] | str = 0,
        dilation: Pair = 1,
        ceil: bool = False,
    ) -> Window:
        """Create a window from user-supplied parameters; `strides` None: the kernel size.

        Raises
        ------
        ShapeError
            As the class, or if padding is "same" with strides other than 1.
        """
        window = Window(
            as_pair("kernel", kernel),
            as_pair("strides", kernel if strides is None else strides),
            dilation=as_pair("dilation", dilation),
            ceil=ceil,
        )
        return replace(window, padding=resolve_padding(padding, window.extent, window.strides))

    def __post_init__(self) -> None:
        for name, (vertical, horizontal) in (
            ("kernel", self.kernel),
            ("stride", self.strides),
            ("dilation", self.dilation),
        ):
            require_at_least(1, **{f"{name}_h": vertical, f"{name}_w": horizontal})
            if max(vertical, horizontal) > LONGEST_AXIS:
                raise ShapeError(
                    f"{name} is {(vertical, horizontal)}; no image has more than {LONGEST_AXIS} "
                    f"pixels along an axis"
                )
        require_at_least(0, **dict(zip(SIDES, self.padding, strict=True)))

    @property
    def extent(self) -> Size:
        """Pixels that the window spans (height, width), dilation included."""
        return self.reach(1, 1)

    @property
    def count(self) -> int:
        """Number of taps."""
        return prod(self.kernel)

    @property
    def text(self) -> str:
        """Display form: ``3x3 /2``."""
        (kh, kw), (sh, sw) = self.kernel, self.strides
        return f"{kh}x{kw}" + ("" if sh == sw == 1 else f" /{sh}" if sh == sw else f" /{sh}x{sw}")

    def padded(self, height: int, width: int) -> Size:
        """Return the size of an image including its padding."""
        top, left, bottom, right = self.padding
        return height + top + bottom, width + left + right

    def out_size(self, height: int, width: int) -> Size:
        """Return (rows, columns) of the result for an image of `height` by `width` pixels.

        Raises
        ------
        ShapeError
            If the window exceeds the padded image.
        """
        padded, beyond = self.padded(height, width), self.beyond(height, width)
        for name, extent, pixels in zip(("height", "width"), self.extent, padded, strict=True):
            if extent > pixels:
                raise ShapeError(
                    f"the window spans {extent} pixels in {name}, the padded image has {pixels}; "
                    f"enlarge image or padding"
                )
        rows, columns = (
            (padded[axis] + beyond[axis] - self.extent[axis]) // self.strides[axis] + 1
            for axis in (0, 1)
        )
        return rows, columns

    def transposed_size(self, height: int, width: int, added: Size) -> Size:
        """Return (rows, columns) of a transposed convolution, including `added` ones."""
        top, left, bottom, right = self.padding
        rows, columns = self.reach(height, width)
        return rows - top - bottom + added[0], columns - left - right + added[1]

    def beyond(self, height: int, width: int) -> Size:
        """Return the rows and columns by which the last windows extend past the padded image."""
        overhang = [0, 0]
        for axis, pixels in enumerate((height, width) if self.ceil else ()):
            before, stride, extent = self.padding[axis], self.strides[axis], self.extent[axis]
            padded = before + pixels + self.padding[axis + 2]
            start = ceil_div(padded - extent, stride) * stride
            if start < before + pixels:
                overhang[axis] = max(start + extent - padded, 0)
        return overhang[0], overhang[1]

    def reach(self, rows: int, columns: int) -> Size:
        """Return the rows and columns of pixels that `rows` by `columns` windows cover."""
        down, across = (
            (results - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1
            for axis, results in enumerate((rows, columns))
        )
        return down, across

    def taps_inside(self, axis: int, pixels: int, result: int) -> range:
        """Return the taps of a result's window that read the image along an axis of `pixels`.

        The other taps read padding.
        """
        start, step = result * self.strides[axis] - self.padding[axis], self.dilation[axis]
        kernel = self.kernel[axis]
        stop = min(kernel, ceil_div(pixels - start, step))
        return range(min(ceil_div(max(0, -start), step), kernel), max(0, stop))

    def pixel(self, i: Any, j: Any, kh: Any, kw: Any) -> tuple[Any, Any]:
        """Return (row, column) of the padded image under tap (kh, kw) of the window at (i, j).

        Accepts numbers, arrays or expressions.
        """
        (sh, sw), (dh, dw) = self.strides, self.dilation
        return i * sh + kh * dh, j * sw + kw * dw

    def taps(self, rows: int, columns: int) -> Iterator[tuple[int, int, Any]]:
        """Yield each tap (kh, kw) with the index of the pixels that it reads for all results.

        The index applies to the last two axes of padded images.
        """
        (sh, sw), (dh, dw) = self.strides, self.dilation
        for kh in range(self.kernel[0]):
            down = slice(kh * dh, kh * dh + (rows - 1) * sh + 1, sh)
            for kw in range(self.kernel[1]):
                yield kh, kw, (..., down, slice(kw * dw, kw * dw + (columns - 1) * sw + 1, sw))

    def check_for_pooling(self, beyond: Size = (0, 0)) -> None:
        """Reject windows that could lie entirely in padding.

        Raises
        ------
        ShapeError
            If the padding, less the part past the last windows (`beyond`), exceeds half the window.
        """
        for axis in (0, 1):
            behind = self.padding[axis + 2] - beyond[axis]
            if 2 * max(self.padding[axis], behind) > self.extent[axis]:
                raise ShapeError(
                    f"padding is {self.padding}; pooling allows at most half the window "
                    f"{self.kernel}"
                )
