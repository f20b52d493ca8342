"""CPU schedule of the 1-D convolution: blocks in the first-level cache, tiles in registers."""

from __future__ import annotations

from typing import Any

from tvm import te

from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_FLOPS, hold_in_registers, parallel_if
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import ceil_div
from vtaops.kernels.ops.convolution import Conv1dOp

_BLOCK = 4096
"""Results per block: its padded samples stay in the first-level cache."""

_UNROLLED_TAPS = 32


def tiles(op: Conv1dOp, target: CpuTarget) -> tuple[int, ...]:
    """Return the candidate tiles: numbers of result vectors."""
    return 1, 2, 4, 8


def schedule_conv1d(op: Conv1dOp, target: CpuTarget, vectors: int = 4) -> Any:
    """Schedule the convolution; a tile has `vectors` vectors of results."""
    tile = vectors * target.lanes
    tiles = ceil_div(op.out_length, tile)
    blocks = ceil_div(tiles * tile, _BLOCK)
    per_block = ceil_div(tiles, blocks)
    length = blocks * per_block * tile
    tensors = op.placeholders()
    total = te.compute((length,), op.sums(tensors, length, copied=True), name="total")
    result = te.compute((op.out_length,), lambda i: total[i], name="result")
    s = create_schedule([*tensors.values(), result])
    worth = op.flops >= PARALLEL_FLOPS
    sums = s.get_sblock("total")
    i, k = s.get_loops(sums)
    block, i, vector, lane = s.split(i, [None, per_block, vectors, target.lanes])
    s.reorder(k, vector, lane)
    s.reverse_compute_at(s.get_sblock("result"), i)
    parallel_if(s, block, worth and blocks > 1)
    if op.kernel <= _UNROLLED_TAPS:
        s.unroll(k)
    hold_in_registers(s, sums, k, lane, vector)
    s.compute_at(s.get_sblock("padded"), block)
    return s
