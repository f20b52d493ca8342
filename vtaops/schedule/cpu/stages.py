"""The optimisation steps of matmul, conv2d, depthwise convolution and conv1d on the CPU.

Each function returns a complete schedule of the plain declaration; the last stage of each operator
is the schedule that `vtaops.cpu` runs.
"""

from __future__ import annotations

from typing import Any

from vtaops.kernels.build import create_schedule
from vtaops.kernels.target import CpuTarget
from vtaops.ops.tensor import Conv1dOp, Conv2dOp, DepthwiseOp, MatmulOp
from vtaops.schedule.cpu.conv1d import schedule_conv1d
from vtaops.schedule.cpu.convolution import ConvTile, schedule_conv2d
from vtaops.schedule.cpu.matmul import MatmulTile, schedule_matmul
from vtaops.schedule.cpu.tiles import largest_divisor
from vtaops.schedule.cpu.window import schedule_depthwise
from vtaops.schedule.stages import Stage

_BLOCK = 32


def schedule_default(op: Any, _: CpuTarget) -> Any:
    """Return the plain declaration, unscheduled."""
    return create_schedule(op.declare())


def _vector(s: Any, loop: Any, lanes: int) -> tuple[Any, Any]:
    """Split a vector off a loop and return both parts; the vector's length divides the loop."""
    extent = int(s.get(loop).extent)
    outer, inner = s.split(loop, [None, largest_divisor(extent, lanes)])
    s.vectorize(inner)
    return outer, inner


# --- matmul -----------------------------------------------------------------------------------


def _matmul_reorder(op: MatmulOp, target: CpuTarget, threads: bool = False) -> Any:
    s = create_schedule(op.declare())
    i, j, k = s.get_loops(s.get_sblock("C"))
    s.reorder(i, k, j)
    _vector(s, j, target.lanes)
    if threads:
        s.parallel(i)
    return s


def _matmul_parallel(op: MatmulOp, target: CpuTarget) -> Any:
    return _matmul_reorder(op, target, threads=True)


def _matmul_blocked(op: MatmulOp, target: CpuTarget, cached: bool = False) -> Any:
    s = create_schedule(op.declare())
    block = s.get_sblock("C")
    stored = s.cache_write(block, 0, "global") if cached else None
    i, j, k = s.get_loops(block)
    i, row = s.split(i, [None, largest_divisor(op.m, _BLOCK)])
    j, column = s.split(j, [None, largest_divisor(op.n, _BLOCK)])
    k, step = s.split(k, [None, largest_divisor(op.k, 4)])
    s.reorder(i, j, k, step, row, column)
    outer = s.fuse(i, j)
    s.parallel(outer)
    _vector(s, column, target.lanes)
    if stored is not None:
        s.reverse_compute_at(stored, outer)
    return s


def _matmul_cached(op: MatmulOp, target: CpuTarget) -> Any:
    return _matmul_blocked(op, target, cached=True)


def _matmul_registers(op: MatmulOp, target: CpuTarget) -> Any:
    rows, columns = largest_divisor(op.m, 8), largest_divisor(op.n, 2 * target.lanes)
    if columns % target.lanes:
        return schedule_matmul(op, target)
    return schedule_matmul(op, target, MatmulTile(rows, columns, pack_a=False, pack_b=False))


def _matmul_packed(op: MatmulOp, target: CpuTarget) -> Any:
    rows, columns = largest_divisor(op.m, 8), 2 * target.lanes
    return schedule_matmul(op, target, MatmulTile(rows, columns, pack_a=False, pack_b=True))


MATMUL = (
    Stage("default", "Three loops i, j, k as declared.", schedule_default),
    Stage(
        "reorder",
        "k before j: neighbouring steps read neighbouring elements of B, and j is vectorised.",
        _matmul_reorder,
    ),
    Stage("parallel", "The rows of C are shared among the threads.", _matmul_parallel),
    Stage(
        "blocked",
        "Blocks of 32 x 32 elements of C, sums in steps of 4: operands are reused from the cache.",
        _matmul_blocked,
    ),
    Stage(
        "cached",
        "A block of C is summed in a small local array and stored once (write cache).",
        _matmul_cached,
    ),
    Stage(
        "registers",
        "The block shrinks to what the vector registers hold; its loops are unrolled.",
        _matmul_registers,
    ),
    Stage(
        "packed",
        "B is copied into panels as wide as a block: no far jumps between its rows.",
        _matmul_packed,
    ),
    Stage(
        "tuned", "The tile is chosen by a cost model, packing by the size of B.", schedule_matmul
    ),
)

# --- conv2d -----------------------------------------------------------------------------------


def _conv2d_parallel(op: Conv2dOp, target: CpuTarget) -> Any:
    s = create_schedule(op.declare())
    n, c, i, j, ic, kh, kw = s.get_loops(s.get_sblock("result"))
    s.reorder(n, c, i, ic, kh, kw, j)
    s.parallel(s.fuse(n, c))
    _vector(s, j, target.lanes)
    return s


def _conv2d_blocked(op: Conv2dOp, target: CpuTarget, cached: bool = False) -> Any:
    s = create_schedule(op.declare())
    block = s.get_sblock("result")
    stored = s.cache_write(block, 0, "global") if cached else None
    n, c, i, j, ic, kh, kw = s.get_loops(block)
    rows, columns = op.out_size
    c, channel = s.split(c, [None, largest_divisor(op.out_channels, 8)])
    i, row = s.split(i, [None, largest_divisor(rows, 8)])
    j, column = s.split(j, [None, largest_divisor(columns, _BLOCK)])
    s.reorder(n, c, i, j, ic, kh, kw, channel, row, column)
    outer = s.fuse(n, c, i)
    s.parallel(outer)
    _vector(s, column, target.lanes)
    if stored is not None:
        s.reverse_compute_at(stored, j)
    return s


def _conv2d_cached(op: Conv2dOp, target: CpuTarget) -> Any:
    return _conv2d_blocked(op, target, cached=True)


def _conv2d_registers(op: Conv2dOp, target: CpuTarget) -> Any:
    return schedule_conv2d(op, target, ConvTile("columns", 4, target.lanes))


CONV2D = (
    Stage("default", "Seven loops as declared, the padded image beforehand.", schedule_default),
    Stage(
        "parallel",
        "Columns innermost and vectorised; images and channels are shared among the threads.",
        _conv2d_parallel,
    ),
    Stage(
        "blocked",
        "Blocks of 8 channels, 8 rows and up to 32 columns reuse image and kernel.",
        _conv2d_blocked,
    ),
    Stage(
        "cached",
        "A block is summed in a small local array and stored once (write cache).",
        _conv2d_cached,
    ),
    Stage(
        "packed",
        "A tile of 4 channels by one vector of columns stays in registers; the kernel is packed by "
        "channel, so that its values lie together.",
        _conv2d_registers,
    ),
    Stage(
        "tuned", "The tile fills the registers; narrow images use channel lanes.", schedule_conv2d
    ),
)

# --- depthwise convolution --------------------------------------------------------------------


def _depthwise_parallel(op: DepthwiseOp, _: CpuTarget) -> Any:
    s = create_schedule(op.declare())
    n, c, *_rest = s.get_loops(s.get_sblock("result"))
    s.parallel(s.fuse(n, c))
    return s


def _depthwise_cached(op: DepthwiseOp, target: CpuTarget, vectors: bool = False) -> Any:
    s = create_schedule(op.declare())
    block = s.get_sblock("result")
    n, c, i, j, kh, kw = s.get_loops(block)
    channel = s.fuse(n, c)
    s.parallel(channel)
    if vectors:
        s.reorder(channel, i, kh, kw, j)
        _vector(s, j, target.lanes)
    if any(op.window.padding) and op.multiplier == 1:
        s.compute_at(s.get_sblock("padded"), channel)
    return s


def _depthwise_vectors(op: DepthwiseOp, target: CpuTarget) -> Any:
    return _depthwise_cached(op, target, vectors=True)


DEPTHWISE = (
    Stage("default", "Six loops as declared, the padded image beforehand.", schedule_default),
    Stage("parallel", "Channels are shared among the threads.", _depthwise_parallel),
    Stage(
        "cached",
        "Each channel is padded just before it is used: the copy stays in the first-level cache.",
        _depthwise_cached,
    ),
    Stage(
        "vectorized",
        "Columns innermost, in vectors; one tap of the kernel at a time.",
        _depthwise_vectors,
    ),
    Stage(
        "tuned",
        "Tiles of some rows by one vector of columns stay in registers; the taps are unrolled.",
        schedule_depthwise,
    ),
)

# --- conv1d -----------------------------------------------------------------------------------


def _conv1d_split(op: Conv1dOp, target: CpuTarget, steps: int = 1) -> Any:
    """Schedule the first `steps` steps: split, reorder, unroll, vectorise."""
    s = create_schedule(op.declare())
    i, k = s.get_loops(s.get_sblock("result"))
    i, inner = s.split(i, [None, largest_divisor(op.out_length, 4 * target.lanes)])
    if steps >= 2:
        s.reorder(i, k, inner)
    if steps >= 4:
        _vector(s, inner, target.lanes)
    if steps >= 3 and op.kernel <= 32:
        s.unroll(k)
    return s


def _conv1d_reorder(op: Conv1dOp, target: CpuTarget) -> Any:
    return _conv1d_split(op, target, 2)


def _conv1d_unroll(op: Conv1dOp, target: CpuTarget) -> Any:
    return _conv1d_split(op, target, 3)


def _conv1d_vectorize(op: Conv1dOp, target: CpuTarget) -> Any:
    return _conv1d_split(op, target, 4)


CONV1D = (
    Stage("default", "Two loops as declared, the padded signal beforehand.", schedule_default),
    Stage("split", "Results in blocks of some vectors.", _conv1d_split),
    Stage(
        "reorder", "Taps outside, results inside: neighbours are read together.", _conv1d_reorder
    ),
    Stage("unroll", "The taps are unrolled.", _conv1d_unroll),
    Stage("vectorize", "Results in vectors.", _conv1d_vectorize),
    Stage(
        "tuned",
        "The block stays in registers, the padded samples in the first-level cache; threads.",
        schedule_conv1d,
    ),
)

STAGES: dict[type, tuple[Stage, ...]] = {
    MatmulOp: MATMUL,
    Conv2dOp: CONV2D,
    DepthwiseOp: DEPTHWISE,
    Conv1dOp: CONV1D,
}
"""The stages of the operators that have them."""
