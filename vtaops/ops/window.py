"""ImageWindow: how a pooling or convolution window slides over an image; rules of shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import te, tirx

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import (
    SIDES,
    Padding,
    Pair,
    as_pair,
    check_padded,
    require_at_least,
    resolve_padding,
)


@dataclass(frozen=True)
class ImageWindow:
    """A window that slides over a padded image.

    Attributes
    ----------
    size : (int, int)
        Image (height, width) without padding.
    kernel, stride : (int, int)
        Window and step.
    pads : (int, int, int, int)
        Padding (top, left, bottom, right).

    Raises
    ------
    ShapeError
        If a number is out of range or the window exceeds the padded image.
    """

    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pads: tuple[int, int, int, int]

    @staticmethod
    def of(size: tuple[int, int], kernel: Pair, strides: Pair, padding: Padding) -> ImageWindow:
        """Read the parameters as users write them."""
        window, step = as_pair("kernel", kernel), as_pair("strides", strides)
        return ImageWindow(size, window, step, resolve_padding(padding, window, step))

    def __post_init__(self) -> None:
        names = ("height", "width", "kernel_h", "kernel_w", "stride_h", "stride_w")
        numbers = (*self.size, *self.kernel, *self.stride)
        require_at_least(1, **dict(zip(names, numbers, strict=True)))
        require_at_least(0, **dict(zip(SIDES, self.pads, strict=True)))
        check_padded(self.padded_size)
        for axis, extent, needed in zip(
            ("height", "width"), self.padded_size, self.kernel, strict=True
        ):
            if needed > extent:
                raise ShapeError(
                    f"the window spans {needed} pixels in {axis}, the padded image has {extent}"
                )

    @property
    def padded_size(self) -> tuple[int, int]:
        """Image (height, width) with padding."""
        top, left, bottom, right = self.pads
        return self.size[0] + top + bottom, self.size[1] + left + right

    @property
    def out_size(self) -> tuple[int, int]:
        """Output (height, width)."""
        (ph, pw), (kh, kw), (sh, sw) = self.padded_size, self.kernel, self.stride
        return (ph - kh) // sh + 1, (pw - kw) // sw + 1

    @property
    def count(self) -> int:
        """Pixels of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def text(self) -> str:
        """For people: ``3x3 /2``."""
        (kh, kw), (sh, sw) = self.kernel, self.stride
        return f"{kh}x{kw}" + ("" if sh == sw == 1 else f" /{sh}" if sh == sw else f" /{sh}x{sw}")

    def pixels(self, axis: int, position: Any) -> Any:
        """Return how many pixels of the image a window has along an axis, as a TIR expression."""
        first = position * self.stride[axis] - self.pads[axis]
        last = tirx.min(first + self.kernel[axis], self.size[axis])
        return tirx.max(last - tirx.max(first, 0), 0)

    def declare_padded(self, data: te.Tensor, value: int) -> te.Tensor:
        """Declare the stage ``data_buf``: packed images with `value` around them."""
        n, c, height, width, *tile = (int(extent) for extent in data.shape)
        top, left, _, _ = self.pads

        def body(b, ci, y, x, *lanes):  # type: ignore[no-untyped-def]
            pixel = data(b, ci, y - top, x - left, *lanes)
            if not any(self.pads):
                return pixel
            inside = tirx.all(y >= top, y < height + top, x >= left, x < width + left)
            return tirx.if_then_else(inside, pixel, tvm.tirx.const(value, "int8"))

        return te.compute((n, c, *self.padded_size, *tile), body, name="data_buf")
