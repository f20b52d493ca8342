"""CPU schedules: one file per operator family; `schedule` dispatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vtaops.base.errors import UnsupportedError
from vtaops.kernels import ops
from vtaops.kernels.cpu.schedule import (
    amx,
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
from vtaops.kernels.cpu.schedule.stack import of_stack
from vtaops.kernels.cpu.schedule.storage import of_stored
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.storage import StoredOp

Schedule = Callable[..., Any]
"""``schedule(op, target, tile=None)`` returns a ``tvm.s_tir.Schedule``."""

Tiles = Callable[[Any, CpuTarget], Iterable[Any]]
"""``tiles(op, target)`` yields the tiles that a schedule accepts."""


_FAMILIES: dict[type, tuple[Schedule, Tiles | None]] = {
    ops.MatmulOp: (matmul.schedule_matmul, matmul.tiles),
    ops.Conv2dOp: (convolution.schedule_conv2d, convolution.tiles),
    ops.PackedConv2dOp: (packed.schedule_packed_conv2d, packed.tiles),
    ops.PackedWindowOp: (packed.schedule_packed_window, packed.widths),
    ops.DepthwiseOp: (window.schedule_depthwise, window.tiles),
    ops.PoolOp: (pooling.schedule_pool, pooling.tiles),
    ops.GlobalPoolOp: (reduction.schedule_global_pool, None),
    ops.SoftmaxOp: (reduction.schedule_softmax, None),
    ops.BroadcastOp: (elementwise.schedule_elementwise, None),
    ops.UnaryOp: (elementwise.schedule_elementwise, None),
    ops.NormalizeOp: (elementwise.schedule_normalize, None),
}
"""Schedules by operator kind; `family` handles special cases."""


def family(op: ops.TensorOp, target: CpuTarget) -> tuple[Schedule, Tiles | None]:
    """Return an operator's CPU schedule and its tiles, if any.

    Raises
    ------
    UnsupportedError
        If the operator kind has no CPU schedule.
    """
    match op:
        case StoredOp():
            return of_stored(family(op.op, target)[0]), None
        case ops.StackedMatmulOp():
            return of_stack(family(op.op, target)[0]), None
        case ops.MatmulOp() if op.dtype_a != "float32":
            return quantized.schedule_matmul, None
        case ops.Conv2dOp(dtype="float32") if pointwise.suits(op, target):
            return pointwise.schedule_pointwise, pointwise.tiles
        case ops.PackedConv2dOp() if op.gathered > 1:
            return amx.schedule_packed_conv2d, None
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
    return family(op, target)[0](op, target)
