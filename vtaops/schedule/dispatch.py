"""Schedules for VTA: blocking, virtual threads, scratchpads, tensorization."""

from __future__ import annotations

from functools import singledispatch

from tvm.s_tir import Schedule

from vtaops.base.errors import ScheduleError
from vtaops.machine.config import HardwareConfig
from vtaops.ops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    DepthwiseConv2dAlu,
    Elementwise,
    Gemm,
    MaxPool2d,
    Operator,
)
from vtaops.schedule.batch_matmul import schedule_batch_matmul
from vtaops.schedule.blocked import check_tiling
from vtaops.schedule.candidates import default_tiling
from vtaops.schedule.conv2d import schedule_conv2d
from vtaops.schedule.conv2d_transpose import schedule_conv2d_transpose
from vtaops.schedule.depthwise import schedule_depthwise
from vtaops.schedule.elementwise import schedule_elementwise
from vtaops.schedule.gemm import schedule_gemm
from vtaops.schedule.pooling import schedule_avg_pool2d, schedule_max_pool2d
from vtaops.schedule.tiling import Tiling


def schedule(op: Operator, config: HardwareConfig, tiling: Tiling | None = None) -> Schedule:
    """Return the schedule of `op` for VTA with the given or the default tiling.

    Raises
    ------
    ScheduleError
        If the tiling does not suit the operator or overflows a scratchpad.
    """
    if tiling is None:
        tiling = default_tiling(op, config)
    else:
        check_tiling(op, config, tiling)
    return _schedule(op, config, tiling)


@singledispatch
def _schedule(op: Operator, config: HardwareConfig, tiling: Tiling) -> Schedule:
    raise ScheduleError(f"there is no VTA schedule for {type(op).__name__}")


_schedule.register(Conv2d, schedule_conv2d)
_schedule.register(Gemm, schedule_gemm)
_schedule.register(BatchMatmul, schedule_batch_matmul)
_schedule.register(Conv2dTranspose, schedule_conv2d_transpose)
_schedule.register(DepthwiseConv2dAlu, schedule_depthwise)
_schedule.register(Elementwise, schedule_elementwise)
_schedule.register(MaxPool2d, schedule_max_pool2d)
_schedule.register(AvgPool2d, schedule_avg_pool2d)

__all__ = ["schedule"]
