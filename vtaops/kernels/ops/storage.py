"""StoredOp: a float32 operator with arguments stored as float16 or bfloat16.

Defines for both formats how values are widened on load and rounded on store. bfloat16 is the upper
half of a float32, so kernels handle it as uint16 and need no special instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from vtaops.kernels.ops.common import Expr, Tensor, TensorOp, TensorSpec
from vtaops.kernels.ops.matmul import MatmulOp
from vtaops.kernels.ops.packed import PackedConv2dOp

STORAGE = ("float16", "bfloat16")
"""The 16-bit dtypes."""


@dataclass(frozen=True)
class StoredOp(TensorOp):
    """A float32 operator on 16-bit arguments: computed in float32, rounded once.

    Attributes
    ----------
    op : TensorOp
        The float32 operator.
    dtype : str
        One of `STORAGE`.
    names : tuple of str
        The arguments of `op`, including its output, that are stored in 16 bits.
    """

    op: TensorOp
    dtype: str
    names: tuple[str, ...]

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return tuple(
            replace(spec, dtype=self.dtype) if spec.name in self.names else spec
            for spec in self.op.arguments
        )

    @property
    def flops(self) -> int:
        return self.op.flops

    @property
    def packed(self) -> str:
        """Name of the packed weights, "" if none: read as vectors, many times each.

        Widening them on every read costs less than the memory for a copy twice as large.
        """
        match self.op:
            case PackedConv2dOp():
                return "kernel"
            case MatmulOp() if self.op.panel:
                return "B"
        return ""

    def declare(self) -> list[Tensor]:
        """Declare `op`, the float32 computation."""
        return self.op.declare()

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        return self.op.compute(given)


def stored(op: TensorOp, dtypes: Sequence[str]) -> TensorOp:
    """Return a float32 operator with inputs of the given dtypes, some possibly 16-bit.

    The result has the dtype of the first input, the data.
    """
    arguments = zip(op.arguments, (*dtypes, dtypes[0]), strict=True)
    kinds = {spec.name: dtype for spec, dtype in arguments if dtype in STORAGE}
    return StoredOp(op, next(iter(kinds.values())), tuple(kinds)) if kinds else op


def bits_dtype(dtype: str) -> str:
    """Return the dtype by which kernels handle a stored dtype."""
    return "uint16" if dtype == "bfloat16" else dtype


def widened(value: Expr, dtype: str) -> Expr:
    """Widen a stored value to float32, exactly."""
    if dtype == "float16":
        return value.astype("float32")
    return tirx.reinterpret("float32", value.astype("uint32") << _bits(16))


def rounded(value: Expr, dtype: str) -> Expr:
    """Round a float32 number to a stored dtype: to nearest even (IEEE 754).

    Overflow gives infinity; NaN stays NaN.
    """
    if dtype == "float16":
        return value.astype("float16")
    number = tirx.Var("number", "float32")
    bits = tirx.reinterpret("uint32", number)
    even = (bits + _bits(0x7FFF) + (bits >> _bits(16) & _bits(1))) >> _bits(16)
    quiet = bits >> _bits(16) | _bits(0x40)
    stored = tirx.Select(tirx.isnan(number), quiet, even).astype("uint16")
    return tirx.Let(number, value, stored)


def _bits(value: int) -> Expr:
    return tirx.const(value, "uint32")
