"""CPU schedules: one file per operator family; `schedule` dispatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vtaops.base.errors import UnsupportedError
from vtaops.kernels import ops
from vtaops.kernels.cpu.schedule import (
    convolution,
    elementwise,
    matmul,
    packed,
    pointwise,
    pooling,
    quantized,
    reduction,
    window,
)
from vtaops.kernels.cpu.schedule.rewrites import of_stack, of_stored
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.storage import StoredOp

Schedule = Callable[..., Any]
"""``schedule(op, target, tile=None)`` returns a ``tvm.s_tir.Schedule``."""


_FAMILIES: dict[type, Schedule] = {
    ops.MatmulOp: matmul.schedule_matmul,
    ops.Conv2dOp: convolution.schedule_conv2d,
    ops.PackedConv2dOp: packed.schedule_packed_conv2d,
    ops.PackedWindowOp: packed.schedule_packed_window,
    ops.DepthwiseOp: window.schedule_depthwise,
    ops.PoolOp: pooling.schedule_pool,
    ops.GlobalPoolOp: reduction.schedule_global_pool,
    ops.SoftmaxOp: reduction.schedule_softmax,
    ops.BroadcastOp: elementwise.schedule_elementwise,
    ops.UnaryOp: elementwise.schedule_elementwise,
    ops.NormalizeOp: elementwise.schedule_normalize,
}
"""Schedules by operator kind; `family` handles special cases."""


def family(op: ops.TensorOp, target: CpuTarget) -> Schedule:
    """Return an operator's CPU schedule.

    Raises
    ------
    UnsupportedError
        If the operator kind has no CPU schedule.
    """
    match op:
        case StoredOp():
            return of_stored(family(op.op, target))
        case ops.StackedMatmulOp():
            return of_stack(family(op.op, target))
        case ops.MatmulOp() if op.dtype_a != "float32":
            return quantized.schedule_matmul
        case ops.Conv2dOp(dtype="float32") if pointwise.suits(op, target):
            return pointwise.schedule_pointwise
    if type(op) not in _FAMILIES:
        raise UnsupportedError(f"there is no CPU schedule for {type(op).__name__}")
    return _FAMILIES[type(op)]


def schedule(op: ops.TensorOp, target: CpuTarget) -> Any:
    """Schedule an operator for a CPU; return the ``tvm.s_tir.Schedule``.

    Raises
    ------
    UnsupportedError
        If the operator kind has no CPU schedule.
    """
    return family(op, target)(op, target)
