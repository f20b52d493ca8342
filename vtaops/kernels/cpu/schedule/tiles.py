"""Shared by all CPU schedules: tile sizes, and the thresholds for threads.

A tile of results is held in vector registers over the whole reduction; everything else follows
from the number of registers.
"""

from __future__ import annotations

from typing import Any

from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import ceil_div, largest_divisor, round_up

FIRST_CACHE = 1 << 15
"""Effective size of the first-level cache, in bytes."""

STRETCH = 1024
"""Maximum result columns that stay in the first-level cache while sums are added to them."""

STEPS = 8
"""Reduction steps that are added to a stretch at a time."""

WIDEST = 6
"""Maximum vectors of a tile's rows."""

HIDING = 8
"""Vectors of sums that hide a multiply-add's latency: two per cycle, four cycles each."""

PARALLEL_FLOPS = 1 << 21
"""Operations above which starting the threads (some microseconds) pays."""

PARALLEL_ELEMENTS = 1 << 16
"""The same for elementwise operators, which are memory-bound, in elements."""


def blocks_by_columns(
    columns: int, blocks: int, steps: int, limit: int, divide: bool = False, most: int = WIDEST
) -> tuple[int, int]:
    """Return the register tile (blocks, columns) of sums whose lanes are channels.

    The cheapest with at most `limit` vectors: multiply-adds, two per cycle with a latency of four,
    or loads if these bound; weights, each fetched once per tile; and storing the results, which are
    cropped if tiles are not whole.

    Parameters
    ----------
    columns, blocks : int
        Result columns per row, and vectors of channels.
    steps : int
        Length of the sums.
    limit : int
        Vectors that registers hold.
    divide : bool
        Whether a tile's blocks must divide `blocks`.
    most : int
        Maximum vectors of channels in a tile.
    """

    def cost(tile: tuple[int, int]) -> float:
        count, width = tile
        tiles = ceil_div(columns, width) * ceil_div(blocks, count)
        step = max(count * width / 2, 4.0, (count + width) / 2 + 0.5) + 0.5 + count / 2
        return tiles * (steps * step + count * width * (4 if columns % width else 1))

    counts = [count for count in range(1, most + 1) if not (divide and blocks % count)]
    widest = {count: limit // count for count in counts}
    if 8 < limit <= 16:  # weights and pixels need the other registers, or LLVM spills sums
        widest = {count: min(8, (limit + 3) // count - 1) for count in counts}
    widths = [(c, w) for c in counts for w in range(1, min(widest[c], columns) + 1)]
    return min(widths, key=cost)


def stretch_of(columns: int) -> int:
    """Return the columns to sum at a time: the most that divide the row, or the whole row.

    A remainder is not vectorized and takes eight times as long.
    """
    length = largest_divisor(columns, STRETCH)
    return length if length >= STRETCH // 4 else columns


def add_to_stretch(s: Any, block: Any, stretch: Any, dims: int) -> None:
    """Accumulate sums for a stretch of columns at a time, pass after pass over the columns.

    The `dims` innermost loops of the block are rows, columns, passes and optionally their steps.
    """
    s.compute_at(block, stretch, preserve_unit_loops=True)
    i, j, passes, *steps = s.get_loops(block)[-dims:]
    s.reorder(passes, i, j, *steps)
    for step in steps:
        s.unroll(step)
    s.decompose_reduction(block, passes)


def rows_of_tile(rows: int, vectors: int, target: CpuTarget) -> int:
    """Return the rows, of `vectors` vectors each, of a tile whose lanes are columns.

    The sums fill half of the registers: LLVM keeps broadcast values in registers as well. Of 16
    registers 12 if no row is left over then: 8 just hide a multiply-add's latency. Narrow tiles
    have 8 to 12 rows, the number that leaves the fewest over.
    """
    if target.narrow_tiles:
        fitting = range(min(rows, HIDING), min(rows, 12) + 1)
        return min(fitting, key=lambda most: round_up(rows, most))
    most = min(target.accumulators, 16) // vectors
    return most if rows % most == 0 else min(ceil_div(target.registers // 2, vectors), rows)


def parallel_if(schedule: Any, loop: Any, worth: bool) -> None:
    """Run a loop on all threads if worthwhile."""
    if worth:
        schedule.parallel(loop)


def share(s: Any, loop: Any, worth: bool, target: CpuTarget) -> Any:
    """Run a loop on all threads if worthwhile, in a few long chunks; return the inner loop.

    TVM allocates a thread's buffers once per iteration of the parallel loop.
    """
    if not worth:
        return loop
    chunks = largest_divisor(int(s.get(loop).extent), 4 * target.cores)
    if chunks < target.cores:
        s.parallel(loop)
        return loop
    chunk, inner = s.split(loop, [chunks, None])
    s.parallel(chunk)
    return inner


def split_vector(s: Any, loop: Any, lanes: int) -> tuple[Any, Any]:
    """Split a vector, whose length divides the loop, off a loop; return both parts."""
    outer, inner = s.split(loop, [None, largest_divisor(int(s.get(loop).extent), lanes)])
    s.vectorize(inner)
    return outer, inner


def store_vectors(s: Any, block: Any, dims: int, lanes: int) -> None:
    """Write a finished tile back in whole vectors; its `dims` innermost loops have no tails.

    The compiler then sees that the tile never leaves the registers, which it does not always detect
    by itself.
    """
    *outer, last = s.get_loops(block)[-dims:]
    if int(s.get(last).extent) % lanes:
        return
    vector, lane = s.split(last, [None, lanes])
    s.vectorize(lane)
    for loop in (*outer, vector):
        s.unroll(loop)


def part_tiles(s: Any, *loops: Any) -> None:
    """Generate separate code for the last tile of loops over tiles if it exceeds the result.

    The others then have no conditions, and it computes no cropped results.
    """
    for loop in loops:
        s.annotate(loop, "pragma_loop_partition_hint", True)


def cut_vector(s: Any, loop: Any, lanes: int) -> Any:
    """Split vectors of at most `lanes` off a loop, the last narrower; return the outer loop."""
    width = min(lanes, int(s.get(loop).extent))
    outer, lane = s.split(loop, [None, width])
    if width > 1:
        s.vectorize(lane)
    part_tiles(s, outer, lane)
    return outer


def write_cut(s: Any, result: Any, lanes: int, *tiles: Any, dims: int = 2) -> None:
    """Write a tile of sums back inside the innermost of the loops over `tiles`, in whole vectors.

    The part beyond the result is cropped: see `part_tiles`. `dims` is the number of innermost loops
    of the result.
    """
    s.reverse_compute_at(result, tiles[-1], preserve_unit_loops=True)
    *rows, last = s.get_loops(result)[-dims:]
    for loop in (*rows, cut_vector(s, last, lanes)):
        s.unroll(loop)
    part_tiles(s, *tiles)


def write_back(
    s: Any, total: Any, result: Any, loop: Any, lanes: int, exact: bool, dims: int = 2
) -> None:
    """Write a tile of the sums `total`, whose tiles are inside `loop`, through `result`.

    If tiles are not `exact`, it is copied out of the registers in whole vectors and then cropped.
    `dims` is the number of innermost loops of the result, as for `store_vectors`.
    """
    if not exact:
        copy = s.cache_write(total, 0, "global")
        s.reverse_compute_at(copy, loop, preserve_unit_loops=True)
        store_vectors(s, copy, 2, lanes)
    s.reverse_compute_at(result, loop, preserve_unit_loops=True)
    if exact:
        store_vectors(s, result, dims, lanes)


def hold_in_registers(s: Any, block: Any, outer: Any, *tile: Any, intrinsic: str = "") -> None:
    """Keep a tile of sums in registers, from zero to the last product.

    Parameters
    ----------
    s : tvm.s_tir.Schedule
        The schedule.
    block : SBlockRV
        The block of the sums.
    outer : LoopRV
        The outermost reduction loop.
    *tile : LoopRV
        The loops of the tile, from the innermost, which is vectorized; the others are unrolled.
    intrinsic : str
        Intrinsic for a vector with its inner reduction loops; empty: LLVM vectorizes.
    """
    lane, *others = tile
    for loop in others:
        s.unroll(loop)
    if not intrinsic:
        s.vectorize(lane)
    start = s.decompose_reduction(block, outer)
    first, *others = s.get_loops(start)[: -1 - len(tile) : -1]
    s.vectorize(first)
    for loop in others:
        s.unroll(loop)
    if intrinsic:
        s.tensorize(lane, intrinsic)
