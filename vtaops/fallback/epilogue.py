"""AluEpilogue: the passes of the vector ALU as the epilogue of a sum on any processor.

The stages are those that an operator of the VTA lists for its accumulators, so both compute the
same, overflows included: sums and products wrap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vtaops.kernels.ops.common import Expr, Tensor, TensorSpec
from vtaops.kernels.ops.epilogue import Epilogue, reading_sums
from vtaops.machine.isa import AluOp
from vtaops.ops.epilogue import VECTORS, ScaleStage, Stage, lane_meaning, scale_meaning


@dataclass(frozen=True)
class AluEpilogue(Epilogue):
    """Passes of the vector ALU, then the low 8 bits.

    Attributes
    ----------
    stages : tuple of AluStage or ScaleStage
        The passes.
    residual_scale : int
        Factor of an operand that is a tensor.
    """

    stages: tuple[Stage, ...] = ()
    residual_scale: int = 1

    def result_dtype(self, accumulator: str) -> str:
        return "int8"

    def inputs(self, channels: int, shape: tuple[int, ...], dtype: str) -> tuple[TensorSpec, ...]:
        operands = [name for stage in self.stages for name in stage.operands]
        return tuple(
            TensorSpec(name, (channels,), "int32")
            if name in VECTORS
            else TensorSpec(name, shape, "int8")
            for name in operands
        )

    def bind(
        self, arguments: dict[str, Tensor], dtype: str = "int32", *, scaled: bool = False
    ) -> Callable[..., Expr]:
        def apply(value: Expr, channel: Expr, *index: Expr) -> Expr:
            for stage in self.stages:
                operands = [
                    arguments[name][channel]
                    if name in VECTORS
                    else arguments[name](*index).astype("int32") * self.residual_scale
                    for name in stage.operands
                ]
                if isinstance(stage, ScaleStage):
                    value = scale_meaning(value, operands, stage.zero_point, stage.clip)
                else:
                    value = _pass(stage.op, value, *(operands or [stage.imm]))
            return value.astype("int8")

        return reading_sums(apply)


def _pass(op: AluOp, first: Expr, second: Expr) -> Expr:
    """Return what a pass computes; int32 that overflows is undefined in LLVM, int64 does not."""
    if not op.wraps:
        return lane_meaning(op, first, second)
    other = second if isinstance(second, int) else second.astype("int64")
    return lane_meaning(op, first.astype("int64"), other).astype("int32")
