"""StoredOp: a float32 operator whose arguments lie in memory as float16 or bfloat16.

Defines for both formats how a value is widened when read and rounded when stored.
bfloat16 is the upper half of a float32, so kernels know it as uint16 and need no instruction of
their own for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm import tirx

from vtaops.kernels.ops.common import Expr, Tensor, TensorOp, TensorSpec
from vtaops.kernels.ops.matmul import MatmulOp
from vtaops.kernels.ops.packed import PackedConv2dOp

STORAGE = ("float16", "bfloat16")
"""The dtypes of 16 bits."""


@dataclass(frozen=True)
class StoredOp(TensorOp):
    """A float32 operator between arguments of 16 bits: computed in float32, rounded once.

    Attributes
    ----------
    op : TensorOp
        What is computed.
    dtype : str
        One of `STORAGE`.
    names : tuple of str
        The arguments of `op`, its output among them, that lie in 16 bits.
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
        """The weights that a layer has packed, "" if there are none: read in vectors, each often.

        To widen them where they are read costs less than memory for a copy twice as long.
        """
        match self.op:
            case PackedConv2dOp():
                return "kernel"
            case MatmulOp() if self.op.panel:
                return "B"
        return ""

    def declare(self) -> list[Tensor]:
        """Return the tensors of `op`: what is computed, in float32."""
        return self.op.declare()

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        return self.op.compute(given)


def stored(op: TensorOp, dtypes: Sequence[str]) -> TensorOp:
    """Return a float32 operator as one between inputs of such dtypes, some of 16 bits perhaps.

    The result is stored as the first of them, the data.
    """
    arguments = zip(op.arguments, (*dtypes, dtypes[0]), strict=True)
    kinds = {spec.name: dtype for spec, dtype in arguments if dtype in STORAGE}
    return StoredOp(op, next(iter(kinds.values())), tuple(kinds)) if kinds else op


def bits_dtype(dtype: str) -> str:
    """Return the dtype under which kernels know a stored one."""
    return "uint16" if dtype == "bfloat16" else dtype


def widened(value: Expr, dtype: str) -> Expr:
    """Return a stored value as float32, exactly."""
    if dtype == "float16":
        return value.astype("float32")
    return tirx.reinterpret("float32", value.astype("uint32") << _bits(16))


def rounded(value: Expr, dtype: str) -> Expr:
    """Return a float32 number as it is stored: the nearest, of two the even one (IEEE 754).

    Beyond the largest it is infinite; NaN stays NaN.
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
