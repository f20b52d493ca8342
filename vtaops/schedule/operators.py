"""Gemm and Conv2d with TVM's primitives: blocking, virtual threads, scratchpads, tensorization.

What the tutorials show, and a second opinion: the trees that `vtaops.compile` builds directly
(`vtaops.lowering.tree`) give the same programs.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from vtaops import ops
from vtaops.base.names import checked_call
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.schedule import steps
from vtaops.schedule.calls import VTHREAD
from vtaops.schedule.candidates import check_tiling, default_tiling
from vtaops.schedule.tiling import CHOICES, Tiling


@checked_call
def schedule(op: Operator, config: HardwareConfig, tiling: Tiling | None = None) -> Schedule:
    """Schedule `op` for VTA with the given or the default tiling.

    Raises
    ------
    ScheduleError
        If the tiling does not suit the operator or overflows a scratchpad, or the operator has no
        declaration (`Operator.declare`).
    """
    if tiling is None:
        tiling = default_tiling(op, config)
    else:
        check_tiling(op, config, tiling)
    s, image = Schedule(op.declare(config)), isinstance(op, ops.Conv2d)
    sums = "res_conv" if image else "res_gem"
    channels, tile = _blocked(s, config, tiling, image)
    steps.attach_output_stages(s, sums, op.stages, tile, channels)
    loops = s.get_loops(s.get_sblock(sums))
    if image:
        *_, b, co, i, j, bi, ci, ic, dy, dx, lane = loops
        apart = CHOICES["taps"].index(tiling.taps)  # how many taps are multiplied one by one
        outside, before, inside = [dy, dx][:apart], [b, co, i], [*[dy, dx][apart:], j]
    else:
        *_, i, co, bi, ci, ic, lane = loops
        outside, before, inside = [], [i], [co]
    step, ic_i = s.split(ic, [None, tiling.ic // config.block_in])
    s.reorder(step, *outside, *before, ic_i, *inside, bi, ci, lane)
    steps.attach_loads(s, [step, *outside][-1])
    steps.tensorize(s, config, sums, op.stages, step)
    return s


def _blocked(
    s: Schedule, config: HardwareConfig, tiling: Tiling, image: bool
) -> tuple[LoopRV, LoopRV]:
    """Block the result ``res``; virtual threads take neighbouring tiles.

    Returns the loop over channel tiles, and the innermost one around a tile.
    """
    loops = s.get_loops(s.get_sblock("res"))
    y, oc = (loops[2], loops[1]) if image else loops[:2]
    oc_o, oc_t, oc_i = s.split(oc, [None, tiling.oc_threads, tiling.oc // config.block_out])
    y_o, y_t, y_i = s.split(y, [None, tiling.h_threads, tiling.h])
    pixels, tile = [y_o], [y_i, oc_i]
    if image:
        x_o, x_i = s.split(loops[3], [None, tiling.w])
        pixels, tile = [loops[0], y_o, x_o], [oc_i, y_i, x_i]
    sweep = [oc_o, *pixels] if tiling.keep == "wgt" else [*pixels, oc_o]
    s.reorder(oc_t, y_t, *sweep, *tile, *loops[4 if image else 2 :])
    thread = s.fuse(oc_t, y_t)
    if int(s.get(thread).extent) > 1:  # now: later TVM could not prove that windows allow it
        s.bind(thread, VTHREAD)
    return oc_o, sweep[-1]
