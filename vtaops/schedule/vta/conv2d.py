"""Schedule of Conv2d: the tutorial's order of blocking, threading, copying and tensorizing."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.config import HardwareConfig
from vtaops.ops import Conv2d
from vtaops.schedule.blocked import blocked_shape
from vtaops.schedule.tiling import Tiling
from vtaops.schedule.vta.stages import attach_loads, attach_output_stages, bind_threads, tensorize


def schedule_conv2d(op: Conv2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of a convolution; the tiling has been checked."""
    s = Schedule(op.declare(config))

    # Block the output; virtual threads take neighbouring tiles.
    batch, oc, y, x, *lanes = s.get_loops(s.get_sblock("res"))
    oc_o, oc_t, oc_i = s.split(oc, [None, tiling.oc_threads, tiling.oc // config.block_out])
    y_o, y_t, y_i = s.split(y, [None, tiling.h_threads, tiling.h])
    x_o, x_i = s.split(x, [None, tiling.w])
    pixels = [batch, y_o, x_o]
    sweep = [oc_o, *pixels] if tiling.keep == "wgt" else [*pixels, oc_o]
    s.reorder(oc_t, y_t, *sweep, oc_i, y_i, x_i, *lanes)
    thread = s.fuse(oc_t, y_t)
    attach_output_stages(s, "res_conv", op.stages, tile=sweep[-1], channels=oc_o)

    # Block the reduction; load the operands of each step.
    *_, b, co, i, j, bi, ci, ic, dy, dx, ic_tns = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i = s.split(ic, [None, tiling.ic // config.block_in])
    s.reorder(step, b, co, i, ic_i, dy, dx, j, bi, ci, ic_tns)
    attach_loads(s, step)

    bind_threads(s, thread)
    overhang = not blocked_shape(op, config).divided_by(tiling, config)
    tensorize(s, config, "res_conv", op.stages, step, overhang)
    return s
