"""Elementwise operators: broadcast arithmetic, unary functions, per-channel normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.kernels.ops.activations import ACTIVATIONS
from vtaops.kernels.ops.common import Expr, Tensor, TensorOp, TensorSpec, largest, smallest, specs
from vtaops.kernels.ops.epilogue import Epilogue, FusedOp

BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "minimum": smallest,
    "maximum": largest,
}
"""Binary functions by NumPy's names."""


@dataclass(frozen=True)
class BroadcastOp(TensorOp):
    """Arithmetic of two tensors under NumPy's broadcasting.

    Attributes
    ----------
    name : str
        A key of `BINARY`.
    shape_a, shape_b : tuple of int
        Shapes of equal rank; extents are equal or 1.
    dtype : str
        Dtype of the operands and the result.
    """

    name: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    dtype: str = "float32"

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        shape = tuple(b if a == 1 else a for a, b in zip(self.shape_a, self.shape_b, strict=True))
        return specs(self.dtype, A=self.shape_a, B=self.shape_b, C=shape)

    @property
    def flops(self) -> int:
        return prod(self.output.shape)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        a, b = given.values()

        def read(tensor: Tensor, index: tuple[Expr, ...]) -> Expr:
            at = [0 if extent == 1 else i for i, extent in zip(index, tensor.shape, strict=True)]
            return tensor(*at)

        function = BINARY[self.name]
        return te.compute(
            self.output.shape, lambda *index: function(read(a, index), read(b, index)), name="C"
        )


def broadcast_op(
    name: str, shape_a: tuple[int, ...], shape_b: tuple[int, ...], dtype: str
) -> BroadcastOp:
    """Return the broadcast operator, merging neighbouring axes that broadcast alike.

    (2, 3, 4) with (1, 1, 4) becomes (6, 4) with (1, 4): fewer loops, fewer kernels.

    Raises
    ------
    ShapeError
        If the shapes do not broadcast.
    """
    rank = max(len(shape_a), len(shape_b), 1)
    left = (1,) * (rank - len(shape_a)) + shape_a
    right = (1,) * (rank - len(shape_b)) + shape_b
    merged: list[list[int]] = []
    for a, b in zip(left, right, strict=True):
        if a != b and 1 not in (a, b):
            raise ShapeError(
                f"shapes {shape_a} and {shape_b} do not broadcast: extents {a} and {b} must be "
                f"equal or 1"
            )
        if a == b == 1:
            continue
        if merged and _alike(merged[-1], a, b):
            merged[-1][0] *= a
            merged[-1][1] *= b
        else:
            merged.append([a, b])
    merged = merged or [[1, 1]]
    return BroadcastOp(name, tuple(a for a, _ in merged), tuple(b for _, b in merged), dtype)


def _alike(last: list[int], a: int, b: int) -> bool:
    """Whether the axes with extents `last` and (a, b) broadcast the same operand, or none."""
    return (last[0] == 1, last[1] == 1) == (a == 1, b == 1)


@dataclass(frozen=True)
class UnaryOp(TensorOp):
    """An elementwise function of a vector, by its name in `ACTIVATIONS`."""

    name: str
    size: int
    dtype: str = "float32"

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return specs(self.dtype, A=(self.size,), C=(self.size,))

    @property
    def flops(self) -> int:
        return self.size

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        function = ACTIVATIONS[self.name]
        return te.compute((self.size,), lambda i: function(given["A"][i]), name="C")


@dataclass(frozen=True)
class NormalizeOp(FusedOp):
    """A standalone epilogue: batch norm, or scale and shift, of (batch, channels, pixels) data."""

    batch: int
    channels: int
    pixels: int
    epilogue: Epilogue
    accumulator = "float32"  # not a field: the only dtype

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        shape = (self.batch, self.channels, self.pixels)
        end = self.epilogue.arguments("result", self.channels, shape, "float32")
        return specs(data=shape) + end

    @property
    def flops(self) -> int:
        return 2 * prod(self.output.shape)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        return self.result(given["data"], self.epilogue.bind(given))
