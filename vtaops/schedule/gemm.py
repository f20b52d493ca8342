"""Schedule of Gemm: blocking of rows, columns and reduction; threads, copies, tensorization."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.machine.config import HardwareConfig
from vtaops.ops import Gemm
from vtaops.schedule.steps import attach_loads, attach_output_stages, bind_threads, tensorize
from vtaops.schedule.tiling import Tiling


def schedule_gemm(op: Gemm, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of a matrix product; the tiling has been checked."""
    s = Schedule(op.declare(config))

    m, n, *lanes = s.get_loops(s.get_sblock("res"))
    n_o, n_t, n_i = s.split(n, [None, tiling.oc_threads, tiling.oc // config.block_out])
    m_o, m_t, m_i = s.split(m, [None, tiling.h_threads, tiling.h])
    sweep = [n_o, m_o] if tiling.keep == "wgt" else [m_o, n_o]
    s.reorder(n_t, m_t, *sweep, m_i, n_i, *lanes)
    thread = s.fuse(n_t, m_t)
    attach_output_stages(s, "res_gem", op.stages, tile=sweep[-1], channels=n_o)

    *_, mo, no, mi, ni, ko, ki = s.get_loops(s.get_sblock("res_gem"))
    step, k_i = s.split(ko, [None, tiling.ic // config.block_in])
    s.reorder(step, mo, k_i, no, mi, ni, ki)
    attach_loads(s, step)

    bind_threads(s, thread)
    tensorize(s, config, "res_gem", op.stages, step)
    return s
