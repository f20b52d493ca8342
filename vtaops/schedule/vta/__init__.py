"""Schedules for VTA: blocking, virtual threads, scratchpads, tensorization."""

from __future__ import annotations

from functools import singledispatch

from tvm.s_tir import Schedule

from vtaops.config import HardwareConfig
from vtaops.errors import ScheduleError
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.schedule.blocked import check_tiling
from vtaops.schedule.default import default_tiling
from vtaops.schedule.tiling import Tiling
from vtaops.schedule.vta.conv2d import schedule_conv2d
from vtaops.schedule.vta.gemm import schedule_gemm


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

__all__ = ["schedule"]
