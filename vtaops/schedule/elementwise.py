"""Schedule of Elementwise: tiles in a row, loaded, widened, combined and stored in pieces."""

from __future__ import annotations

from tvm.s_tir import Schedule

from vtaops.machine.config import HardwareConfig
from vtaops.ops import Elementwise
from vtaops.schedule.intrinsics import INP_SCOPE
from vtaops.schedule.steps import (
    attach_chain,
    attach_factor,
    attach_vectors,
    bind_threads,
    place,
    tensorize_stages,
)
from vtaops.schedule.tiling import Tiling


def schedule_elementwise(op: Elementwise, config: HardwareConfig, tiling: Tiling) -> Schedule:
    """Return the schedule of an elementwise operator; ``h`` of the tiling counts tiles."""
    s = Schedule(op.declare(config))
    tiles, *lanes = s.get_loops(s.get_sblock("res"))
    piece, thread, inner = s.split(tiles, [None, tiling.h_threads, tiling.h])
    s.reorder(thread, piece, inner, *lanes)
    attach_chain(s, op.stages, piece)
    for name, _, _ in reversed(op.products):
        attach_factor(s, name, piece)
    for name in ("data", "other") if op.binary else ("data",):
        place(s, f"{name}_buf", piece, INP_SCOPE)
    attach_vectors(s, op.stages, piece)

    bind_threads(s, thread)
    tensorize_stages(s, config, op.stages)
    return s
