"""Gemm and Conv2d with TVM's primitives: blocking, virtual threads, scratchpads, tensorization.

What the tutorials show, and a second opinion: the trees that `vtaops.compile` builds directly
(`vtaops.lowering.tree`) give the same programs.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops import ops
from vtaops.base.errors import ScheduleError
from vtaops.base.names import checked_call
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.schedule import steps
from vtaops.schedule.candidates import check_tiling, default_tiling
from vtaops.schedule.tiling import Tiling


@checked_call
def schedule(op: Operator, config: HardwareConfig, tiling: Tiling | None = None) -> Schedule:
    """Schedule `op` for VTA with the given or the default tiling.

    Raises
    ------
    ScheduleError
        If the tiling does not suit the operator or overflows a scratchpad, or the operator is
        neither a `Gemm` nor a `Conv2d`.
    """
    if tiling is None:
        tiling = default_tiling(op, config)
    else:
        check_tiling(op, config, tiling)
    if isinstance(op, ops.Gemm):
        return _schedule_of_gemm(op, config, tiling)
    if isinstance(op, ops.Conv2d):
        return _schedule_of_conv2d(op, config, tiling)
    raise ScheduleError(
        f"there is no TVM schedule of {type(op).__name__}, only of Gemm and Conv2d; "
        f"vtaops.compile builds its loops directly"
    )


def _schedule_of_gemm(op: ops.Gemm, config: HardwareConfig, tiling: Tiling) -> Schedule:
    s = Schedule(op.declare(config))
    loops = steps.block_matrix(s, config, tiling)
    steps.attach_output_stages(s, "res_gem", op.stages, loops.tile, loops.channels)
    *_, mo, no, mi, ni, ko, ki = s.get_loops(s.get_sblock("res_gem"))
    step, k_i = s.split(ko, [None, tiling.ic // config.block_in])
    s.reorder(step, mo, k_i, no, mi, ni, ki)
    steps.attach_loads(s, step)
    steps.tensorize(s, config, "res_gem", op.stages, step)
    return s


def _schedule_of_conv2d(op: ops.Conv2d, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Schedule in the tutorial's order: block, bind threads, copy, tensorize."""
    s, op = Schedule(op.declare(config)), op.unfolded
    loops = steps.block_image(s, config, tiling)
    steps.attach_output_stages(s, "res_conv", op.stages, loops.tile, loops.channels)

    *_, b, co, i, j, bi, ci, ic, dy, dx, ic_tns = s.get_loops(s.get_sblock("res_conv"))
    step, ic_i = s.split(ic, [None, tiling.ic // config.block_in])
    apart = {"all": 0, "row": 1, "one": 2}[tiling.taps]  # the taps that are multiplied one by one
    outside, inside = [dy, dx][:apart], [dy, dx][apart:]
    s.reorder(step, *outside, b, co, i, ic_i, *inside, j, bi, ci, ic_tns)
    steps.attach_loads(s, [step, *outside][-1])

    steps.tensorize(s, config, "res_conv", op.stages, step)
    return s
