"""CPU schedules of VTA operators on plain tensors: what does not run on VTA runs so.

Everything but the image on its way into a sum is inlined into the loops of the result. LLVM makes
vectors of the innermost loops; ours is to put the right ones there.
"""

from __future__ import annotations

from typing import Any

from vtaops.cpu.schedule.tiles import PARALLEL_ELEMENTS, parallel_if
from vtaops.cpu.target import CpuTarget
from vtaops.fallback.plain import PlainOp, inline_into_result
from vtaops.kernels.build import block_names, create_schedule
from vtaops.ops import AvgPool2d, MaxPool2d

_ROW = 16
"""Results from which on a row of them is innermost; in shorter ones, the pixels of a window are."""


def schedule_plain(op: PlainOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel of an operator of the VTA."""
    s = create_schedule(op.declare())
    worth = op.nbytes >= PARALLEL_ELEMENTS
    if isinstance(op.op, MaxPool2d | AvgPool2d):
        _schedule_pool(s, worth)
    else:
        inline_into_result(s)
        parallel_if(s, _outer(s, target), worth)
    return s


def _outer(s: Any, target: CpuTarget) -> Any:
    """Return a loop over pieces of the result."""
    loops = s.get_loops(s.get_sblock("res"))
    pieces = 4 * target.cores
    return s.split(s.fuse(*loops), [pieces, None])[0]


def _schedule_pool(s: Any, worth: bool) -> None:
    """Pad (and widen) a channel at a time, then reduce row by row."""
    image = "res_data" if "res_data" in block_names(s) else "data_buf"
    window = "res_max" if image == "res_data" else "res_sum"
    inline_into_result(s, keep=(image,))
    n, c, row, *_ = s.get_loops(s.get_sblock("res"))
    channel = s.fuse(n, c)
    parallel_if(s, channel, worth)
    s.compute_at(s.get_sblock(window), row, preserve_unit_loops=True)
    s.compute_at(s.get_sblock(image), channel)
    column, _, _, *pixels = s.get_loops(s.get_sblock(window))[2:]
    if int(s.get(column).extent) >= _ROW:
        s.reorder(*pixels, column)
        s.decompose_reduction(s.get_sblock(window), pixels[0])
