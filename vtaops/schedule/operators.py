"""The schedule of each operator: blocking, virtual threads, scratchpads, tensorization."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from vtaops import ops
from vtaops.base.errors import ScheduleError, UnsupportedError
from vtaops.machine.alu import AluOp
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.maxima import SeparateMaxima
from vtaops.ops.pooling import LEAST
from vtaops.schedule import steps
from vtaops.schedule.blocked import check_tiling
from vtaops.schedule.candidates import default_tiling
from vtaops.schedule.intrinsics import ACC_SCOPE, INP_SCOPE, WGT_SCOPE, alu_reduction, gemm, pool
from vtaops.schedule.tiling import Tiling


def schedule(op: Operator, config: HardwareConfig, tiling: Tiling | None = None) -> Schedule:
    """Schedule `op` for VTA with the given or the default tiling.

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


# --------------------------------------------------------------------- matrix products


@_schedule.register
def _(op: ops.Gemm, config: HardwareConfig, tiling: Tiling) -> Schedule:
    s = Schedule(op.declare(config))
    loops = steps.block_matrix(s, config, tiling)
    steps.attach_output_stages(s, "res_gem", op.stages, loops.tile, loops.channels)
    step = _block_product(s, config, tiling, "kernel_buf")
    steps.tensorize(s, config, "res_gem", op.stages, step)
    return s


@_schedule.register
def _(op: ops.BatchMatmul, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Schedule the pairs of matrices one after the other."""
    s = Schedule(op.declare(config))
    loops = steps.block_matrix(s, config, tiling)
    steps.attach_chain(s, op.stages, loops.tile)
    steps.place(s, "res_gem", loops.tile, ACC_SCOPE)
    if op.coarse:
        _attach_coarse(s, loops.tile)
    steps.attach_vectors(s, op.stages, loops.channels)
    step = _block_product(s, config, tiling, "other_buf", batch=True)
    if op.coarse:
        first = s.get_loops(s.get_sblock("res_coarse"))[-7]
        steps.tensorize_reduction(s, config, "res_coarse", first, 0, gemm(config))
    steps.tensorize(s, config, "res_gem", op.stages, step)
    return s


def _block_product(
    s: Schedule, config: HardwareConfig, tiling: Tiling, weights: str, *, batch: bool = False
) -> LoopRV:
    """Block the reduction of a matrix product; return the step loop, which loads operands."""
    *_, pair, mo, no, mi, ni, ko, ki = s.get_loops(s.get_sblock("res_gem"))
    step, k_i = s.split(ko, [None, tiling.ic // config.block_in])
    s.reorder(step, *([pair] if batch else []), mo, k_i, no, mi, ni, ki)
    attach_loads(s, step, weights)
    return step


def _attach_coarse(s: Schedule, tile: LoopRV) -> None:
    """Compute the coarse product and load its operands inside loop `tile`."""
    steps.place(s, "res_coarse", tile, ACC_SCOPE)
    attach_loads(s, tile, "other_coarse_buf", "data_coarse_buf")
    *_, one, mo, no, mi, ni, ko, ki = s.get_loops(s.get_sblock("res_coarse"))
    s.reorder(ko, one, mo, no, mi, ni, ki)


# ------------------------------------------------------------------------- convolutions


@_schedule.register
def _(op: ops.Conv2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Schedule in the tutorial's order: block, bind threads, copy, tensorize."""
    op = op.unfolded
    s = Schedule(op.declare(config))
    loops = steps.block_image(s, config, tiling)
    if op.residual and op.scales:  # the scaled residual, the convolution and their sum
        steps.attach_chain(s, op.stages, loops.tile)
        for block in ("res_conv", "res_residual_low", "res_residual_high"):
            steps.place(s, block, loops.tile, ACC_SCOPE)
        steps.place(s, "residual_buf", loops.tile, INP_SCOPE)
        for name in ("residual_high", "residual_low"):
            steps.place(s, f"{name}_buf", loops.tile, WGT_SCOPE)
        steps.attach_vectors(s, op.stages, loops.channels)
    else:
        steps.attach_output_stages(s, "res_conv", op.stages, loops.tile, loops.channels)

    *_, b, co, i, j, bi, ci, ic, dy, dx, ic_tns = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i, outside, inside = _block_taps(s, config, tiling, [ic, dy, dx])
    s.reorder(step, *outside, b, co, i, ic_i, *inside, j, bi, ci, ic_tns)
    attach_loads(s, [step, *outside][-1])

    steps.tensorize(s, config, "res_conv", op.stages, step)
    return s


@_schedule.register
def _(op: ops.Conv2dTranspose, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Schedule with a loop over the phases of the output.

    ``h`` and ``w`` of the tiling count pixels of one phase. With the kernel in parts, a tile is one
    row of the output, which belongs to one phase.
    """
    s = Schedule(op.declare(config))
    phases = op.rows.phases if tiling.taps == "all" else 1, op.columns.phases
    loops = steps.block_image(s, config, tiling, phases)
    steps.attach_output_stages(s, "res_conv", op.stages, loops.tile, loops.channels)

    *_, b, co, y, x, bi, ci, ic, ty, tx, lane = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i, outside, inside = _block_taps(s, config, tiling, [ic, ty, tx])
    s.reorder(step, *outside, b, co, ic_i, *inside, y, x, bi, ci, lane)
    attach_loads(s, [step, *outside][-1])

    s.decompose_reduction(s.get_sblock("res_conv"), step)

    # All phases of a tile share its input pixels and weights.
    *outer, y, x, bi, ci, lane = s.get_loops(s.get_sblock("res_conv_update"))
    y_i, phase_y = s.split(y, [None, phases[0]])
    x_i, phase_x = s.split(x, [None, phases[1]])
    sums = outer[-3 - len(inside) :]  # b, co, ic, and the taps of a step
    s.reorder(phase_y, phase_x, *sums, y_i, x_i, bi, ci, lane)
    steps.tensorize_decomposed(s, config, "res_conv", op.stages)
    return s


def _block_taps(
    s: Schedule, config: HardwareConfig, tiling: Tiling, sums: Sequence[LoopRV]
) -> tuple[LoopRV, LoopRV, list[LoopRV], list[LoopRV]]:
    """Block the reduction over channels and taps; return steps, channels, outer and inner taps."""
    channels, *taps = sums
    step, inner = s.split(channels, [None, tiling.ic // config.block_in])
    outside = {"all": 0, "row": 1, "one": 2}[tiling.taps]
    return step, inner, taps[:outside], taps[outside:]


def attach_loads(
    s: Schedule, step: LoopRV, weights: str = "kernel_buf", data: str = "data_buf"
) -> None:
    """Load input and weights inside loop `step`, into their scratchpads."""
    steps.place(s, data, step, INP_SCOPE)
    steps.place(s, weights, step, WGT_SCOPE)


# -------------------------------------------------------------------------- elementwise


@_schedule.register
def _(op: ops.Elementwise, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Schedule pieces of a row of tiles, or of each block; ``h`` of the tiling counts tiles."""
    s = Schedule(op.declare(config))
    *blocks, tiles, row, lane = s.get_loops(s.get_sblock("res"))
    piece, thread, inner = s.split(tiles, [None, tiling.h_threads, tiling.h])
    s.reorder(thread, *blocks, piece, inner, row, lane)
    steps.attach_chain(s, op.stages, piece)
    steps.attach_chain(s, [*op.offset_stages.values()], piece)
    for name, _, _ in reversed(op.products):
        steps.attach_factor(s, name, piece)
    for name in op.operands:
        steps.place(s, f"{name}_buf", piece, INP_SCOPE)
    steps.attach_vectors(s, op.stages, piece)

    steps.bind_threads(s, thread)
    steps.tensorize_stages(s, config, [*op.offset_stages.values(), *op.stages])
    return s


# ------------------------------------------------------------------------------ pooling


@_schedule.register
def _(op: ops.MaxPool2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    s = Schedule(op.declare(config))
    loops = steps.block_image(s, config, tiling)
    if separate := op.separate(config):
        _attach_separate(s, separate, loops.tile)
        return s
    steps.place(s, "res_max", loops.tile, ACC_SCOPE)
    *_, b, co, y, x, bi, ci, dy, dx = s.get_loops(s.get_sblock("res_max"))
    if op.reads_inputs(config):  # one instruction per window row
        steps.place(s, "data_buf", loops.tile, INP_SCOPE)
        maximum = pool(config)
        s.reorder(dy, b, co, y, x, dx, bi, ci)
    else:  # one per pixel: its real pixels form a rectangle
        steps.attach_product(s, "data", loops.tile)
        maximum = alu_reduction(config, AluOp.MAX)
        s.reorder(dy, dx, b, co, y, x, bi, ci)
    steps.tensorize_reduction(s, config, "res_max", dy, LEAST, maximum)
    return s


def _attach_separate(s: Schedule, maxima: SeparateMaxima, tile: LoopRV) -> None:
    """Compute maxima along the columns, then along the rows, inside loop `tile`.

    Lowering recognizes products and maxima that are not tensorized: tiles overlap
    (`attach_product`).
    """
    steps.attach_chain(s, maxima.stages, tile)
    steps.attach_chain(s, maxima.side_stages, tile)
    for name in maxima.products:
        steps.place(s, name, tile, ACC_SCOPE)
    attach_loads(s, tile, "data_scale_buf")


@_schedule.register
def _(op: ops.AvgPool2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Schedule like a convolution that does not mix channels.

    Raises
    ------
    UnsupportedError
        If border windows have fewer pixels than others.
    """
    if op.divides:
        raise UnsupportedError(
            "avg_pool2d with padding and count_include_pad=False divides border pixels by "
            "other numbers than inner ones; VTA shifts all of a tile alike"
        )
    s = Schedule(op.declare(config))
    loops = steps.block_image(s, config, tiling)
    steps.attach_output_stages(s, "res_sum", op.stages, loops.tile, loops.channels)

    *_, b, co, y, x, bi, ci, dy, dx, lane = s.get_loops(s.get_sblock("res_sum"))
    if tiling.taps == "all":
        attach_loads(s, loops.tile, "data_scale_buf")
        s.reorder(b, co, dy, dx, y, x, bi, ci, lane)
    else:  # the window's rows are loaded one after the other
        s.reorder(dy, b, co, dx, y, x, bi, ci, lane)
        attach_loads(s, dy, "data_scale_buf")
    steps.tensorize(s, config, "res_sum", op.stages, b if tiling.taps == "all" else dy)
    return s
