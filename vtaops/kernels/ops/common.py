"""What all tensor operators share: argument descriptions, windows and padding.

Knows nothing of schedules or of arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, tirx

from vtaops.base.errors import ShapeError

Expr = Any
"""A TIR expression. TVM gives no useful static types."""

Tensor = Any
"""A te tensor."""

ACCUMULATOR = {
    "float16": "float32",
    "float32": "float32",
    "float64": "float64",
    "int8": "int32",
    "uint8": "int32",
}
"""The dtype in which sums of products of a dtype are formed."""


@dataclass(frozen=True)
class TensorSpec:
    """Name, shape and dtype of one argument of an operator."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * int("".join(filter(str.isdigit, self.dtype))) // 8

    def placeholder(self) -> Tensor:
        """Return the te placeholder of this argument."""
        return te.placeholder(self.shape, dtype=self.dtype, name=self.name)


class TensorOp(ABC):
    """One operator with static shapes. Subclasses are frozen dataclasses: they are cache keys."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The arguments, in call order."""

    @property
    @abstractmethod
    def output(self) -> TensorSpec:
        """The result, which follows the inputs in the kernel's argument list."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic operations by the definition; a multiply-add counts as two."""

    @abstractmethod
    def declare(self) -> list[Tensor]:
        """Return the te tensors of the definition: the inputs, then the output."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arguments: the memory traffic that cannot be avoided."""
        return sum(spec.nbytes for spec in (*self.inputs, self.output))

    def placeholders(self) -> dict[str, Tensor]:
        """Return the te placeholders of the inputs, by name."""
        return {spec.name: spec.placeholder() for spec in self.inputs}


@dataclass(frozen=True)
class SlidingWindow:
    """A window that slides over the rows and columns of an image.

    Attributes
    ----------
    kernel, strides, dilation : (int, int)
        Vertical and horizontal, in pixels.
    padding : (int, int, int, int)
        Pixels added at the top, left, bottom and right.

    Raises
    ------
    ShapeError
        If a size, stride or dilation is below 1, or a padding is negative.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        for name in ("kernel", "strides", "dilation"):
            if min(getattr(self, name)) < 1:
                raise ShapeError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if min(self.padding) < 0:
            raise ShapeError(f"padding is {self.padding}; it must not be negative")

    def output(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns of the result for an image of `height` by `width` pixels.

        Raises
        ------
        ShapeError
            If the window does not fit into the padded image.
        """
        top, left, bottom, right = self.padding
        rows = self._positions(height + top + bottom, 0)
        columns = self._positions(width + left + right, 1)
        if rows < 1 or columns < 1:
            raise ShapeError(
                f"a window of {self.kernel} with dilation {self.dilation} does not fit into an "
                f"image of {height}x{width} padded by {self.padding}; enlarge image or padding"
            )
        return rows, columns

    def beyond(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns by which one more window would reach over the padded image.

        None where it would begin behind the image and its padding at the top or left, or where the
        windows end with the image (PyTorch's ``ceil_mode``).
        """
        found = []
        for axis, extent in enumerate((height, width)):
            padded = extent + self.padding[axis] + self.padding[axis + 2]
            stride = self.strides[axis]
            span = self._span(axis)
            start = ceil_div(padded - span, stride) * stride
            inside = start < extent + self.padding[axis]
            found.append(max(start + span - padded, 0) if inside else 0)
        return found[0], found[1]

    def check_for_pooling(self, beyond: tuple[int, int] = (0, 0)) -> None:
        """Refuse windows that could lie in the padding alone.

        Raises
        ------
        ShapeError
            If the padding, less what reaches over the image (see `beyond`), exceeds half of them.
        """
        for axis in (0, 1):
            behind = self.padding[axis + 2] - beyond[axis]
            if 2 * max(self.padding[axis], behind) > self._span(axis):
                raise ShapeError(
                    f"padding is {self.padding}; pooling allows at most half the window "
                    f"{self.kernel}"
                )

    def pixel(self, i: Expr, j: Expr, kh: Expr, kw: Expr) -> tuple[Expr, Expr]:
        """Return (row, column) of the padded image under tap (kh, kw) of the window at (i, j)."""
        (sh, sw), (dh, dw) = self.strides, self.dilation
        return i * sh + kh * dh, j * sw + kw * dw

    def reach(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the rows and columns of pixels under the windows of so many results."""
        down, across = (
            (extent - 1) * self.strides[axis] + self._span(axis)
            for axis, extent in enumerate((rows, columns))
        )
        return down, across

    def _span(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def _positions(self, extent: int, axis: int) -> int:
        span = self._span(axis)
        return (extent - span) // self.strides[axis] + 1


def pad_image(image: Tensor, window: SlidingWindow, value: Expr, name: str = "padded") -> Tensor:
    """Declare an image (..., rows, columns) surrounded by `value` as the window asks."""
    top, left, bottom, right = window.padding
    if not any(window.padding):
        return image
    *lead, height, width = (int(extent) for extent in image.shape)

    def pixel(*index: Expr) -> Expr:
        row, column = index[-2] - top, index[-1] - left
        inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
        return tirx.if_then_else(inside, image(*index[:-2], row, column), value)

    return te.compute((*lead, height + top + bottom, width + left + right), pixel, name=name)


def largest(a: Expr, b: Expr) -> Expr:
    """Return the greater of two; NaN if one is, as NumPy and PyTorch have it."""
    return tirx.max(a, b) if _integer(a) else tirx.Select(tirx.any(a > b, tirx.isnan(a)), a, b)


def smallest(a: Expr, b: Expr) -> Expr:
    """Return the lesser of two; NaN if one is."""
    return tirx.min(a, b) if _integer(a) else tirx.Select(tirx.any(a < b, tirx.isnan(a)), a, b)


def at_least(low: Expr, x: Expr) -> Expr:
    """Return the greater of a number and `x`; NaN if `x` is: one comparison less than `largest`."""
    return tirx.max(x, low) if _integer(x) else tirx.Select(x < low, low, x)


def at_most(high: Expr, x: Expr) -> Expr:
    """Return the lesser of a number and `x`; NaN if `x` is."""
    return tirx.min(x, high) if _integer(x) else tirx.Select(x > high, high, x)


def _integer(x: Expr) -> bool:
    return "int" in dtype_of(x)


def dtype_of(x: Expr) -> str:
    """Return the dtype of an expression."""
    return str(x.expr_ty())


def lowest(dtype: str) -> Expr:
    """Return what is neutral for a maximum: minus infinity, or the least integer."""
    return tirx.const(float("-inf"), dtype) if "float" in dtype else tirx.min_value(dtype)


reduce_largest = te.comm_reducer(largest, lowest, name="largest")
"""``reduce_largest(value, axis)``: the te reduction by `largest`."""


def zero(dtype: str) -> Expr:
    """Return the constant 0 of a dtype."""
    return tirx.const(0, dtype)


def window_axes(window: SlidingWindow) -> tuple[Expr, Expr]:
    """Return the reduction axes (row, column) of a window."""
    return (
        te.reduce_axis((0, window.kernel[0]), name="kh"),
        te.reduce_axis((0, window.kernel[1]), name="kw"),
    )


def ceil_div(value: int, divisor: int) -> int:
    """Return `value` / `divisor`, rounded up."""
    return -(-value // divisor)


def largest_divisor(extent: int, limit: int) -> int:
    """Return the largest divisor of `extent` that is at most `limit`."""
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is not below `value`."""
    return ceil_div(value, multiple) * multiple
