"""Gemm: product of int8 matrices, with bias, shift and clip; a dense layer."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te

from vtaops.config import HardwareConfig
from vtaops.layout import bias_layout, matrix_layout, weight_layout
from vtaops.ops.base import Operator, require_at_least
from vtaops.ops.postprocess import (
    AluStage,
    Lane,
    Rounding,
    alu_stages,
    check_postprocessing,
    check_rounding,
    declare_postprocessing,
    half_step,
)
from vtaops.program import Buffer, Role


@dataclass(frozen=True)
class Gemm(Operator):
    """``out = int8(clip((data @ weight.T + bias) >> shift))``.

    Parameters
    ----------
    m, n, k : int
        ``data`` is (m, k), ``weight`` (n, k), the result (m, n). Any sizes; they are padded with
        zeros to whole tiles.
    bias : bool
        Whether an int32 bias (n,) is added before the shift.
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        How the shift rounds: towards minus infinity, or to the nearest, halves upwards.

    Raises
    ------
    ShapeError
        If a parameter is out of range.

    Notes
    -----
    Accumulators are int32 and wrap; with ``k <= 131071`` no input can overflow them.
    """

    m: int = 1
    n: int = 16
    k: int = 16
    bias: bool = False
    shift: int = 8
    clip: tuple[int, int] | None = (0, 127)
    rounding: Rounding = "truncate"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, m=self.m, n=self.n, k=self.k)
        check_postprocessing(self.shift, self.clip)
        check_rounding(self.rounding)

    @property
    def summary(self) -> str:
        return f"gemm {self.m}x{self.k} . {self.k}x{self.n}"

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k

    @property
    def stages(self) -> list[AluStage]:
        return alu_stages(self.bias, self.shift, self.clip, self.rounding)

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        layout = bias_layout(config, plus=half_step(self.shift, self.rounding))
        bias = Buffer("bias", Role.PARAMETER, (self.n,), "int32", layout)
        return (
            Buffer("data", Role.INPUT, (self.m, self.k), "int8", matrix_layout(config)),
            Buffer("weight", Role.PARAMETER, (self.n, self.k), "int8", weight_layout(config)),
            *([bias] if self.bias else []),
            Buffer("res", Role.OUTPUT, (self.m, self.n), "int8", matrix_layout(config)),
        )

    def tensors(self, config: HardwareConfig) -> list[te.Tensor]:
        shapes = {buffer.name: buffer.packed_shape for buffer in self.buffers(config)}
        data = te.placeholder(shapes["data"], "int8", name="data")
        weight = te.placeholder(shapes["weight"], "int8", name="weight")
        data_buf = te.compute(data.shape, lambda *i: data(*i), name="data_buf")
        kernel_buf = te.compute(weight.shape, lambda *i: weight(*i), name="kernel_buf")
        ko = te.reduce_axis((0, shapes["data"][1]), name="ko")
        ki = te.reduce_axis((0, config.block_in), name="ki")
        acc = te.compute(
            shapes["res"],
            lambda mo, no, mi, ni: te.sum(
                data_buf[mo, ko, mi, ki].astype("int32")
                * kernel_buf[no, ko, ni, ki].astype("int32"),
                axis=[ko, ki],
            ),
            name="res_gem",
        )
        arguments = [data, weight]
        operands: dict[str, Lane] = {}
        if self.bias:
            bias = te.placeholder(shapes["bias"], "int32", name="bias")
            bias_buf = te.compute(bias.shape, lambda *i: bias(*i), name="bias_buf")
            arguments.append(bias)
            operands["bias"] = lambda mo, no, mi, ni: bias_buf[no, mi, ni]

        res = declare_postprocessing(acc, self.stages, operands)
        return [*arguments, res]
