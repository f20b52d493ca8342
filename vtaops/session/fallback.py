"""Fallback: VTA operators on the host.

Convolutions and matrix products become the kernels of `vtaops.cpu` or `vtaops.cuda` that TVM
compiles, with the ALU passes as epilogue, and use dot-product instructions and tensor cores. NumPy
computes all other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, Int8Array
from vtaops.kernels import cpu, cuda
from vtaops.kernels.calls.backend import RunnableKernel
from vtaops.kernels.ops import Conv2dOp, DepthwiseOp, MatmulOp, TensorOp
from vtaops.kernels.ops.common import Expr, Tensor, TensorSpec
from vtaops.kernels.ops.epilogue import Epilogue, reading_sums
from vtaops.machine.alu import AluOp
from vtaops.machine.config import HardwareConfig
from vtaops.machine.views import Plus
from vtaops.ops import Conv2d, Conv2dTranspose, Gemm, Operator
from vtaops.ops.declarations import lane_meaning, scale_meaning
from vtaops.ops.epilogue import Epilogue as VtaEpilogue
from vtaops.ops.epilogue import ScaleStage
from vtaops.ops.reference import evaluate
from vtaops.program import Buffer, Role

_SOURCES = ("session", "ops")
"""Source folders of the epilogue."""


def run(op: Operator, arrays: Sequence[npt.ArrayLike], host: str = "cpu") -> Int8Array:
    """Run an operator on the host; a kernel is compiled at the first call and cached.

    Parameters
    ----------
    op : Operator
        The operator.
    arrays : sequence of array_like
        Its arguments, as for VTA.
    host : "cpu" or "cuda"
        The processor.

    Raises
    ------
    ShapeError
        If number, shapes or dtypes of the arguments do not match the operator.
    DeviceError
        If no GPU is available.
    """
    buffers = _buffers(op)
    given = _checked(buffers, arrays)
    if not on_kernels(op):
        return evaluate(op, given)
    views = [buffer.layout.view for buffer in buffers]
    # A bias holds half a step for rounding, as VTA's.
    images = [v.apply(a) if isinstance(v, Plus) else a for v, a in zip(views, given, strict=False)]
    if isinstance(op, Conv2dTranspose):
        op, images = _as_convolution(op, images)
    found = kernel(op, host)
    specs = found.op.inputs
    inputs = [
        np.ascontiguousarray(image).reshape(spec.shape)
        for image, spec in zip(images, specs, strict=True)
    ]
    return cast(Int8Array, found(*inputs).reshape(buffers[-1].shape))


def on_kernels(op: Operator) -> bool:
    """Whether kernels compute an operator on the host, not NumPy."""
    if isinstance(op, Conv2d):
        return not (op.wide or op.bias_tiles or (op.residual and op.scales))
    return isinstance(op, Gemm | Conv2dTranspose)


@lru_cache(maxsize=1024)
def kernel(op: Gemm | Conv2d, host: str = "cpu") -> RunnableKernel:
    """Return an operator's kernel for the host."""
    make: Callable[..., RunnableKernel] = cuda.kernel if host == "cuda" else cpu.kernel
    return make(host_op(op), None, _SOURCES)


def host_op(op: Gemm | Conv2d) -> TensorOp:
    """Return the CPU or GPU operator equivalent to a VTA operator."""
    end = AluEpilogue(end=op.epilogue)
    if isinstance(op, Gemm):
        return MatmulOp(op.m, op.n, op.k, "int8", "int8", True, end)
    image = op.batch, op.in_channels, op.height, op.width
    if op.groups == op.in_channels > 1:
        return DepthwiseOp(*image, op.window, op.out_channels // op.groups, "int8", end)
    return Conv2dOp(*image, op.out_channels, op.window, op.groups, "int8", end)


@dataclass(frozen=True)
class AluEpilogue(Epilogue):
    """The epilogue of a VTA operator on any processor, from int32 sums to int8.

    The stages are those of the accelerator, so both compute the same, including overflows.
    """

    end: VtaEpilogue | None = None

    def result_dtype(self, accumulator: str) -> str:
        return "int8"

    def inputs(self, channels: int, shape: tuple[int, ...], dtype: str) -> tuple[TensorSpec, ...]:
        assert self.end is not None
        residual = [TensorSpec("residual", shape, "int8")] if self.end.residual else []
        return (*(TensorSpec(name, (channels,), "int32") for name in self.end.vectors), *residual)

    def bind(
        self, arguments: dict[str, Tensor], dtype: str = "int32", *, scaled: bool = False
    ) -> Callable[..., Expr]:
        end = self.end
        assert end is not None

        def operand(name: str, channel: Expr, index: tuple[Expr, ...]) -> Expr:
            if end.residual and name == "residual":
                return arguments[name](*index).astype("int32") * end.residual.scale
            return arguments[name][channel]

        def apply(value: Expr, channel: Expr, *index: Expr) -> Expr:
            for stage in end.stages:
                others = [operand(name, channel, index) for name in stage.operands]
                if isinstance(stage, ScaleStage):
                    value = scale_meaning(stage, value, others)
                else:
                    value = wrapping(stage.op, value, *(others or [stage.imm]))
            return value.astype("int8")

        return reading_sums(apply)


def wrapping(op: AluOp, first: Expr, second: Any) -> Expr:
    """Return an operation of the vector ALU for LLVM, where overflow of int32 is undefined."""
    if not op.wraps:
        return lane_meaning(op, first, second)
    other = second if isinstance(second, int) else second.astype("int64")
    return lane_meaning(op, first.astype("int64"), other).astype("int32")


@lru_cache(maxsize=1024)
def _buffers(op: Operator) -> tuple[Buffer, ...]:
    """Return an operator's buffers, whose logical shapes are those on any configuration."""
    return op.buffers(HardwareConfig())


def _checked(buffers: tuple[Buffer, ...], arrays: Sequence[npt.ArrayLike]) -> list[Array]:
    """Return the arguments, whose number, shapes and types must be those of the buffers."""
    inputs = [b for b in buffers if b.role in (Role.INPUT, Role.PARAMETER)]
    if len(arrays) != len(inputs):
        names = ", ".join(buffer.name for buffer in inputs)
        raise ShapeError(f"{len(arrays)} arrays given; the operator takes {len(inputs)}: {names}")
    return [buffer.checked(array) for buffer, array in zip(inputs, arrays, strict=True)]


def _as_convolution(op: Conv2dTranspose, images: list[Array]) -> tuple[Conv2d, list[Array]]:
    """Rewrite a transposed convolution as one over the image with zeros between its pixels.

    VTA multiplies no such zeros; on a CPU, dot products with them are faster than loops over the
    phases without.
    """
    (kh, kw), (sh, sw), (top, left, *_) = op.window.kernel, op.window.strides, op.pads
    data, kernel, *rest = images
    height, width = op.out_size[0] + kh - 1, op.out_size[1] + kw - 1
    rows = np.arange(op.height) * sh + kh - 1 - top
    columns = np.arange(op.width) * sw + kw - 1 - left
    seen_rows = np.flatnonzero((rows >= 0) & (rows < height))
    seen_columns = np.flatnonzero((columns >= 0) & (columns < width))
    stretched = np.zeros((op.batch, op.in_channels, height, width), np.int8)
    stretched[:, :, rows[seen_rows][:, None], columns[seen_columns]] = data[
        :, :, seen_rows[:, None], seen_columns
    ]
    convolution = Conv2d(
        batch=op.batch, in_channels=op.in_channels, out_channels=op.out_channels, height=height,
        width=width, kernel=(kh, kw), bias=op.bias, shift=op.shift, clip=op.clip,
        rounding=op.rounding, scales=op.scales, fine=op.fine, zero_point=op.zero_point,
    )  # fmt: skip
    flipped = np.ascontiguousarray(kernel[:, :, ::-1, ::-1].swapaxes(0, 1))
    return convolution, [stretched, flipped, *rest]
