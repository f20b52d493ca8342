"""Schedule of Conv2d: the tutorial's order of blocking, threading, copying and tensorizing."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.machine.config import HardwareConfig
from vtaops.ops import Conv2d
from vtaops.schedule.intrinsics import ACC_SCOPE, INP_SCOPE, WGT_SCOPE
from vtaops.schedule.steps import (
    ImageLoops,
    attach_chain,
    attach_loads,
    attach_output_stages,
    attach_vectors,
    bind_threads,
    block_image,
    place,
    tensorize,
)
from vtaops.schedule.tiling import Tiling


def schedule_conv2d(op: Conv2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of a convolution; the tiling has been checked."""
    op = op.unfolded
    s = Schedule(op.declare(config))

    loops = block_image(s, config, tiling)
    if op.residual and op.scales:
        _attach_scaled_sum(s, op, loops)
    else:
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


def _attach_scaled_sum(s: Schedule, op: Conv2d, loops: ImageLoops) -> None:
    """Compute a residual with factors, the convolution and their sum inside loop `tile`."""
    attach_chain(s, op.stages, loops.tile)
    for block in ("res_conv", "res_residual_low", "res_residual_high"):
        place(s, block, loops.tile, ACC_SCOPE)
    place(s, "residual_buf", loops.tile, INP_SCOPE)
    for name in ("residual_high", "residual_low"):
        place(s, f"{name}_buf", loops.tile, WGT_SCOPE)
    attach_vectors(s, op.stages, loops.channels)
