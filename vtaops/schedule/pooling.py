"""Schedules of MaxPool2d and AvgPool2d: blocked like a convolution that mixes no channels."""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from vtaops.base.errors import UnsupportedError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.ops import AvgPool2d, MaxPool2d
from vtaops.ops.maxima import SeparateMaxima
from vtaops.ops.pooling import LEAST
from vtaops.schedule.intrinsics import ACC_SCOPE, INP_SCOPE, WGT_SCOPE, alu_reduction, pool
from vtaops.schedule.steps import (
    attach_chain,
    attach_output_stages,
    attach_product,
    bind_threads,
    block_image,
    place,
    tensorize,
    tensorize_reduction,
)
from vtaops.schedule.tiling import Tiling


def schedule_max_pool2d(op: MaxPool2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of a maximum pool; the tiling has been checked."""
    s = Schedule(op.declare(config))
    loops = block_image(s, config, tiling)
    bind_threads(s, loops.thread)  # later TVM could not prove that overlapping windows allow it
    if separate := op.separate(config):
        _attach_separate(s, separate, loops.tile)
        return s
    place(s, "res_max", loops.tile, ACC_SCOPE)
    if op.reads_inputs(config):
        place(s, "data_buf", loops.tile, INP_SCOPE)
        maximum = pool(config)
    else:
        attach_product(s, "data", loops.tile)
        maximum = alu_reduction(config, AluOp.MAX)

    *_, b, co, y, x, bi, ci, dy, dx = s.get_loops(s.get_sblock("res_max"))
    if op.reads_inputs(config):  # one instruction for each row of the window
        s.reorder(dy, b, co, y, x, dx, bi, ci)
    else:  # one for each pixel: its real pixels form a rectangle
        s.reorder(dy, dx, b, co, y, x, bi, ci)

    tensorize_reduction(s, config, "res_max", dy, LEAST, maximum)
    return s


def _attach_separate(s: Schedule, maxima: SeparateMaxima, tile: LoopRV) -> None:
    """Take maxima along the columns, then along the rows, inside loop `tile`.

    Lowering recognises products and maxima as they stand: tiles overlap (`attach_product`).
    """
    attach_chain(s, maxima.stages, tile)
    attach_chain(s, maxima.side_stages, tile)
    for name in maxima.products:
        place(s, name, tile, ACC_SCOPE)
    place(s, "data_buf", tile, INP_SCOPE)
    place(s, "data_scale_buf", tile, WGT_SCOPE)


def schedule_avg_pool2d(op: AvgPool2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of an average pool; the tiling has been checked.

    Raises
    ------
    UnsupportedError
        If windows at the border have fewer pixels than others.
    """
    if op.divides:
        raise UnsupportedError(
            "avg_pool2d with padding and count_include_pad=False divides border pixels by "
            "other numbers than inner ones; VTA shifts all of a tile alike"
        )
    s = Schedule(op.declare(config))
    loops = block_image(s, config, tiling)
    attach_output_stages(s, "res_sum", op.stages, loops.tile, loops.channels)
    place(s, "data_buf", loops.tile, INP_SCOPE)
    place(s, "data_scale_buf", loops.tile, WGT_SCOPE)

    *_, b, co, y, x, bi, ci, dy, dx, lane = s.get_loops(s.get_sblock("res_sum"))
    s.reorder(b, co, dy, dx, y, x, bi, ci, lane)

    bind_threads(s, loops.thread)
    tensorize(s, config, "res_sum", op.stages, b)
    return s
