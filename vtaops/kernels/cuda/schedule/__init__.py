"""CUDA schedules: one file per operator family; `schedule` dispatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

Tiles = Callable[[Any, CudaTarget], Iterable[Any]]
"""``tiles(op, target)`` yields the tiles that a schedule accepts."""


_FAMILIES: dict[type, tuple[Schedule, Tiles | None]] = {
    ops.MatmulOp: (matmul.schedule_matmul, matmul.tiles),
    ops.Conv2dOp: (matmul.schedule_matmul, matmul.tiles),
    ops.DepthwiseOp: (window.schedule_window, window.tiles),
    ops.PoolOp: (window.schedule_window, window.tiles),
    ops.GlobalPoolOp: (reduction.schedule_global_pool, None),
    ops.SoftmaxOp: (reduction.schedule_softmax, None),
    ops.BroadcastOp: (elementwise.schedule_elementwise, None),
    ops.UnaryOp: (elementwise.schedule_elementwise, None),
    ops.NormalizeOp: (elementwise.schedule_elementwise, None),
}
"""Schedules by operator kind, for GPUs without tensor cores for its dtype."""


def family(op: ops.TensorOp, target: CudaTarget) -> tuple[Schedule, Tiles | None]:
    """Return an operator's CUDA schedule and its tiles, if any.

    Raises
    ------
    UnsupportedError
        If the operator kind has no CUDA schedule.
    """
    if isinstance(op, ops.MatmulOp | ops.Conv2dOp) and matmul_tensor.suits(op, target):
        return matmul_tensor.schedule_tensor, matmul_tensor.tiles
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
    return family(op, target)[0](op, target)
