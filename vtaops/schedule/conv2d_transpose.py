"""Schedule of Conv2dTranspose: that of a convolution, with a loop over the phases of the output."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.config import HardwareConfig
from vtaops.ops import Conv2dTranspose
from vtaops.schedule.steps import (
    attach_loads,
    attach_output_stages,
    bind_threads,
    block_image,
    tensorize_decomposed,
)
from vtaops.schedule.tiling import Tiling


def schedule_conv2d_transpose(
    op: Conv2dTranspose, config: HardwareConfig, tiling: Tiling
) -> Schedule:
    """Return the schedule; ``h`` and ``w`` of the tiling count pixels of one phase."""
    s = Schedule(op.declare(config))
    phases = op.rows.phases, op.columns.phases
    loops = block_image(s, config, tiling, phases)
    attach_output_stages(s, "res_conv", op.stages, loops.tile, loops.channels)

    *_, b, co, y, x, bi, ci, ic, ty, tx, lane = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i = s.split(ic, [None, tiling.ic // config.block_in])
    s.reorder(step, b, co, ic_i, ty, tx, y, x, bi, ci, lane)
    attach_loads(s, step)

    bind_threads(s, loops.thread)
    s.decompose_reduction(s.get_sblock("res_conv"), step)

    # All phases of a tile share its input pixels and weights.
    *_, b, co, ic, ty, tx, y, x, bi, ci, lane = s.get_loops(s.get_sblock("res_conv_update"))
    y_i, phase_y = s.split(y, [None, phases[0]])
    x_i, phase_x = s.split(x, [None, phases[1]])
    s.reorder(phase_y, phase_x, b, co, ic, ty, tx, y_i, x_i, bi, ci, lane)
    tensorize_decomposed(s, config, "res_conv", op.stages)
    return s
