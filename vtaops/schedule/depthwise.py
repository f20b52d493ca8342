"""Schedule of DepthwiseConv2dAlu: tap by tap, load the pixels widened, multiply, add."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.ops import DepthwiseConv2dAlu
from vtaops.ops.depthwise import MULTIPLY
from vtaops.schedule.intrinsics import ACC_SCOPE, alu_reduction
from vtaops.schedule.steps import (
    attach_output_stages,
    bind_threads,
    block_image,
    place,
    tensorize_reduction,
    tensorize_stages,
)
from vtaops.schedule.tiling import Tiling


def schedule_depthwise(op: DepthwiseConv2dAlu, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule; the tiling has been checked."""
    s = Schedule(op.declare(config))
    loops = block_image(s, config, tiling)
    attach_output_stages(s, "res_total", op.stages, loops.tile, loops.channels)

    *_, b, c, y, x, row, lane, dy, dx = s.get_loops(s.get_sblock("res_total"))
    s.reorder(dy, dx, b, c, y, x, row, lane)
    place(s, MULTIPLY.name, dx, ACC_SCOPE)
    place(s, "pixel_buf", dx, ACC_SCOPE)
    place(s, "kernel_buf", loops.channels, ACC_SCOPE)

    bind_threads(s, loops.thread)
    addition = alu_reduction(config, AluOp.ADD)
    tensorize_reduction(s, config, "res_total", dy, 0, addition)
    tensorize_stages(s, config, [MULTIPLY, *op.stages])
    return s
