"""Schedule of Conv2dTranspose: that of a convolution, with a loop over the phases of the output."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.machine.config import HardwareConfig
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
    """Return the schedule; ``h`` and ``w`` of the tiling count pixels of one phase.

    In parts of the kernel, a tile is one row of the output: its rows are of one phase.
    """
    s = Schedule(op.declare(config))
    phases = op.rows.phases if tiling.taps == "all" else 1, op.columns.phases
    loops = block_image(s, config, tiling, phases)
    attach_output_stages(s, "res_conv", op.stages, loops.tile, loops.channels)

    *_, b, co, y, x, bi, ci, ic, ty, tx, lane = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i = s.split(ic, [None, tiling.ic // config.block_in])
    outside = {"all": [], "row": [ty], "one": [ty, tx]}[tiling.taps]
    inside = [tap for tap in (ty, tx) if tap not in outside]
    s.reorder(step, *outside, b, co, ic_i, *inside, y, x, bi, ci, lane)
    attach_loads(s, [step, *outside][-1])

    bind_threads(s, loops.thread)
    s.decompose_reduction(s.get_sblock("res_conv"), step)

    # All phases of a tile share its input pixels and weights.
    *outer, y, x, bi, ci, lane = s.get_loops(s.get_sblock("res_conv_update"))
    y_i, phase_y = s.split(y, [None, phases[0]])
    x_i, phase_x = s.split(x, [None, phases[1]])
    sums = outer[-3 - len(inside) :]  # b, co, ic, and the taps of a step
    s.reorder(phase_y, phase_x, *sums, y_i, x_i, bi, ci, lane)
    tensorize_decomposed(s, config, "res_conv", op.stages)
    return s
