"""Schedule of Conv2d: the tutorial's order of blocking, threading, copying and tensorizing."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.config import HardwareConfig
from vtaops.ops import Conv2d
from vtaops.schedule.steps import (
    attach_loads,
    attach_output_stages,
    bind_threads,
    block_image,
    tensorize,
)
from vtaops.schedule.tiling import Tiling


def schedule_conv2d(op: Conv2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of a convolution; the tiling has been checked."""
    op = op.unfolded
    s = Schedule(op.declare(config))

    loops = block_image(s, config, tiling)
    attach_output_stages(s, "res_conv", op.stages, loops.tile, loops.channels)

    # Block the reduction; load the operands of each step.
    *_, b, co, i, j, bi, ci, ic, dy, dx, ic_tns = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i = s.split(ic, [None, tiling.ic // config.block_in])
    outside = {"all": [], "row": [dy], "one": [dy, dx]}[tiling.taps]
    inside = [tap for tap in (dy, dx) if tap not in outside]
    s.reorder(step, *outside, b, co, i, ic_i, *inside, j, bi, ci, ic_tns)
    attach_loads(s, [step, *outside][-1])

    bind_threads(s, loops.thread)
    tensorize(s, config, "res_conv", op.stages, step)
    return s
