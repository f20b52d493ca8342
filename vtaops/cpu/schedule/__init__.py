"""How operators run on a CPU: one file per operator family; `schedule` finds the right one."""

from __future__ import annotations

from typing import Any

from vtaops.cpu.schedule import (
    conv1d,
    convolution,
    elementwise,
    matmul,
    pointwise,
    quantized,
    reduction,
    window,
)
from vtaops.cpu.target import CpuTarget
from vtaops.errors import UnsupportedError
from vtaops.kernels.ops import (
    BroadcastOp,
    Conv1dOp,
    Conv2dOp,
    DepthwiseOp,
    GlobalPoolOp,
    MatmulOp,
    NormalizeOp,
    PackedConv2dOp,
    PoolOp,
    SoftmaxOp,
    TensorOp,
    UnaryOp,
)


def schedule(op: TensorOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel (``tvm.s_tir.Schedule``) of an operator for a CPU.

    Raises
    ------
    UnsupportedError
        If there is no CPU schedule for this kind of operator.
    """
    match op:
        case MatmulOp(dtype_a="float32"):
            return matmul.schedule_matmul(op, target)
        case MatmulOp():
            return quantized.schedule_matmul(op, target)
        case Conv2dOp(dtype="float32") if pointwise.suits(op, target):
            return pointwise.schedule_pointwise(op, target)
        case Conv2dOp(dtype="float32"):
            return convolution.schedule_conv2d(op, target)
        case Conv2dOp():
            return quantized.schedule_conv2d(op, target)
        case PackedConv2dOp(dtype="float32"):
            return convolution.schedule_packed_conv2d(op, target)
        case PackedConv2dOp():
            return quantized.schedule_packed_conv2d(op, target)
        case DepthwiseOp():
            return window.schedule_depthwise(op, target)
        case PoolOp():
            return window.schedule_pool(op, target)
        case GlobalPoolOp():
            return reduction.schedule_global_pool(op, target)
        case SoftmaxOp():
            return reduction.schedule_softmax(op, target)
        case Conv1dOp():
            return conv1d.schedule_conv1d(op, target)
        case BroadcastOp() | UnaryOp():
            return elementwise.schedule_elementwise(op, target)
        case NormalizeOp():
            return elementwise.schedule_normalize(op, target)
    raise UnsupportedError(f"there is no CPU schedule for {type(op).__name__}")
