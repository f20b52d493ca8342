"""How operators run on an NVIDIA GPU: one file per family; `schedule` finds the right one."""

from __future__ import annotations

from typing import Any

from vtaops.cuda.schedule import (
    conv1d,
    convolution,
    elementwise,
    matmul,
    matmul_tensor,
    packed,
    reduction,
    separable,
    window,
)
from vtaops.cuda.target import CudaTarget
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
    SeparableOp,
    SoftmaxOp,
    TensorOp,
    UnaryOp,
)


def schedule(op: TensorOp, target: CudaTarget) -> Any:
    """Return the scheduled kernel (``tvm.s_tir.Schedule``) of an operator for a GPU.

    Raises
    ------
    UnsupportedError
        If there is no CUDA schedule for this kind of operator.
    """
    match op:
        case MatmulOp() if matmul_tensor.suits(op):
            return matmul_tensor.schedule_tensor(op, target)
        case MatmulOp():
            return matmul.schedule_matmul(op, target)
        case Conv2dOp():
            return convolution.schedule_conv2d(op, target)
        case PackedConv2dOp():
            return packed.schedule_packed(op, target)
        case DepthwiseOp() | PoolOp():
            return window.schedule_window(op, target)
        case SeparableOp():
            return separable.schedule_separable(op, target)
        case GlobalPoolOp():
            return reduction.schedule_global_pool(op, target)
        case SoftmaxOp():
            return reduction.schedule_softmax(op, target)
        case Conv1dOp():
            return conv1d.schedule_conv1d(op, target)
        case BroadcastOp() | UnaryOp() | NormalizeOp():
            return elementwise.schedule_elementwise(op, target)
    raise UnsupportedError(f"there is no CUDA schedule for {type(op).__name__}")
