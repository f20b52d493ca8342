"""Shared by all tensor operators: argument descriptions, windows and padding.

Independent of schedules and arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import te, tirx

from vtaops.base.shapes import ceil_div as ceil_div
from vtaops.base.window import Window as Window

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
"""Accumulator dtype for each operand dtype."""


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
    """An operator with static shapes. Subclasses are frozen dataclasses: they are cache keys."""

    @property
    @abstractmethod
    def arguments(self) -> tuple[TensorSpec, ...]:
        """The kernel's arguments: the inputs in call order, then the result."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic operations by definition; a multiply-add counts as two."""

    @abstractmethod
    def compute(self, given: dict[str, Tensor]) -> Tensor:
        """Declare the result in te from the inputs by name."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, in call order."""
        return self.arguments[:-1]

    @property
    def output(self) -> TensorSpec:
        """The result."""
        return self.arguments[-1]

    @property
    def nbytes(self) -> int:
        """Bytes of all arguments: the minimum memory traffic."""
        return sum(spec.nbytes for spec in self.arguments)

    def declare(self) -> list[Tensor]:
        """Declare the operator in te; return the inputs, then the output."""
        tensors = self.placeholders()
        return [*tensors.values(), self.compute(tensors)]

    def placeholders(self) -> dict[str, Tensor]:
        """Return the te placeholders of the inputs, by name."""
        return {spec.name: spec.placeholder() for spec in self.inputs}


def specs(dtype: str = "float32", **shapes: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    """Return arguments of one dtype, given as name=shape."""
    return tuple(TensorSpec(name, shape, dtype) for name, shape in shapes.items())


def pad_image(image: Tensor, window: Window, value: Expr, name: str = "padded") -> Tensor:
    """Declare an image (..., rows, columns) padded with `value` for a window."""
    top, left, bottom, right = window.padding
    if not any(window.padding):
        return image
    *lead, height, width = (int(extent) for extent in image.shape)

    def pixel(*index: Expr) -> Expr:
        at = (*index[:-2], index[-2] - top, index[-1] - left)
        return inside_or(image, at, (-2, -1), value)

    return te.compute((*lead, height + top + bottom, width + left + right), pixel, name=name)


def inside_or(image: Tensor, index: tuple[Expr, ...], axes: tuple[int, ...], value: Expr) -> Expr:
    """Return ``image[index]`` if the index is inside the image along `axes`, else `value`."""
    bounds = [index[a] >= 0 for a in axes] + [index[a] < image.shape[a] for a in axes]
    return tirx.if_then_else(tirx.all(*bounds), image(*index), value)


def largest(a: Expr, b: Expr) -> Expr:
    """Return the maximum of two values; NaN if either is NaN, as in NumPy and PyTorch."""
    return tirx.max(a, b) if _integer(a) else tirx.Select(tirx.any(a > b, tirx.isnan(a)), a, b)


def smallest(a: Expr, b: Expr) -> Expr:
    """Return the minimum of two values; NaN if either is NaN."""
    return tirx.min(a, b) if _integer(a) else tirx.Select(tirx.any(a < b, tirx.isnan(a)), a, b)


def at_least(low: Expr, x: Expr) -> Expr:
    """Return max(low, x); NaN if `x` is NaN. One comparison fewer than `largest`."""
    return tirx.max(x, low) if _integer(x) else tirx.Select(x < low, low, x)


def at_most(high: Expr, x: Expr) -> Expr:
    """Return min(high, x); NaN if `x` is NaN."""
    return tirx.min(x, high) if _integer(x) else tirx.Select(x > high, high, x)


def _integer(x: Expr) -> bool:
    return "int" in dtype_of(x)


def dtype_of(x: Expr) -> str:
    """Return the dtype of an expression."""
    return str(x.expr_ty())


def lowest(dtype: str) -> Expr:
    """Return the identity of a maximum: minus infinity, or the smallest integer."""
    return tirx.const(float("-inf"), dtype) if "float" in dtype else tirx.min_value(dtype)


reduce_largest = te.comm_reducer(largest, lowest, name="largest")
"""``reduce_largest(value, axis)``: the te reduction by `largest`."""


def zero(dtype: str) -> Expr:
    """Return the constant 0 of a dtype."""
    return tirx.const(0, dtype)


def window_axes(window: Window) -> tuple[Expr, Expr]:
    """Return the reduction axes (row, column) of a window."""
    return (
        te.reduce_axis((0, window.kernel[0]), name="kh"),
        te.reduce_axis((0, window.kernel[1]), name="kw"),
    )


def largest_divisor(extent: int, limit: int) -> int:
    """Return the largest divisor of `extent` that is at most `limit`."""
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)


def round_up(value: int, multiple: int) -> int:
    """Return `value` rounded up to a multiple of `multiple`."""
    return ceil_div(value, multiple) * multiple
