"""CUDA schedules: one file per operator family; `schedule` dispatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vtaops.base.errors import UnsupportedError
from vtaops.kernels import ops
from vtaops.kernels.cuda.schedule import (
    elementwise,
    matmul,
    matmul_tensor,
    reduction,
    window,
)
from vtaops.kernels.cuda.target import CudaTarget

Schedule = Callable[..., Any]
"""``schedule(op, target, tile=None)`` returns a ``tvm.s_tir.Schedule``."""


_FAMILIES: dict[type, Schedule] = {
    ops.MatmulOp: matmul.schedule_matmul,
    ops.Conv2dOp: matmul.schedule_matmul,
    ops.DepthwiseOp: window.schedule_window,
    ops.PoolOp: window.schedule_window,
    ops.GlobalPoolOp: reduction.schedule_global_pool,
    ops.SoftmaxOp: reduction.schedule_softmax,
    ops.BroadcastOp: elementwise.schedule_elementwise,
    ops.UnaryOp: elementwise.schedule_elementwise,
    ops.NormalizeOp: elementwise.schedule_elementwise,
}
"""Schedules by operator kind, for GPUs without tensor cores for its dtype."""


def family(op: ops.TensorOp, target: CudaTarget) -> Schedule:
    """Return an operator's CUDA schedule.

    Raises
    ------
    UnsupportedError
        If the operator kind has no CUDA schedule.
    """
    if isinstance(op, ops.MatmulOp | ops.Conv2dOp) and matmul_tensor.suits(op, target):
        return matmul_tensor.schedule_tensor
    if type(op) not in _FAMILIES:
        raise UnsupportedError(f"there is no CUDA schedule for {type(op).__name__}")
    return _FAMILIES[type(op)]


def schedule(op: ops.TensorOp, target: CudaTarget) -> Any:
    """Schedule an operator for a GPU; return the ``tvm.s_tir.Schedule``.

    Raises
    ------
    UnsupportedError
        If the operator kind has no CUDA schedule.
    """
    return family(op, target)(op, target)
