"""Schedule of BatchMatmul: that of a matrix product, for one pair of matrices after the other."""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from vtaops.machine.config import HardwareConfig
from vtaops.ops import BatchMatmul
from vtaops.schedule import intrinsics
from vtaops.schedule.intrinsics import ACC_SCOPE, INP_SCOPE, WGT_SCOPE
from vtaops.schedule.steps import (
    attach_chain,
    attach_vectors,
    bind_threads,
    place,
    tensorize,
    tensorize_reduction,
)
from vtaops.schedule.tiling import Tiling


def schedule_batch_matmul(op: BatchMatmul, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of a batch of matrix products; the tiling has been checked."""
    s = Schedule(op.declare(config))

    b, m, n, *lanes = s.get_loops(s.get_sblock("res"))
    n_o, n_t, n_i = s.split(n, [None, tiling.oc_threads, tiling.oc // config.block_out])
    m_o, m_t, m_i = s.split(m, [None, tiling.h_threads, tiling.h])
    sweep = [n_o, m_o] if tiling.keep == "wgt" else [m_o, n_o]
    s.reorder(n_t, m_t, b, *sweep, m_i, n_i, *lanes)
    thread = s.fuse(n_t, m_t)
    attach_chain(s, op.stages, sweep[-1])
    place(s, "res_gem", sweep[-1], ACC_SCOPE)
    if op.coarse:
        _attach_coarse(s, sweep[-1])
    attach_vectors(s, op.stages, n_o)

    *_, one, mo, no, mi, ni, ko, ki = s.get_loops(s.get_sblock("res_gem"))
    step, k_i = s.split(ko, [None, tiling.ic // config.block_in])
    s.reorder(step, one, mo, k_i, no, mi, ni, ki)
    place(s, "data_buf", step, INP_SCOPE)
    place(s, "other_buf", step, WGT_SCOPE)

    bind_threads(s, thread)
    if op.coarse:
        first = s.get_loops(s.get_sblock("res_coarse"))[-7]
        tensorize_reduction(s, config, "res_coarse", first, 0, intrinsics.gemm(config))
    tensorize(s, config, "res_gem", op.stages, step)
    return s


def _attach_coarse(s: Schedule, tile: LoopRV) -> None:
    """Compute the coarse product, and load its operands, inside loop `tile`."""
    place(s, "res_coarse", tile, ACC_SCOPE)
    place(s, "data_coarse_buf", tile, INP_SCOPE)
    place(s, "other_coarse_buf", tile, WGT_SCOPE)
    *_, one, mo, no, mi, ni, ko, ki = s.get_loops(s.get_sblock("res_coarse"))
    s.reorder(ko, one, mo, no, mi, ni, ki)
