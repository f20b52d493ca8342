"""The optimisation steps of the operators on the CPU, by kind.

Each function returns a complete schedule of the plain declaration; the last stage of each operator
is the schedule that `vtaops.cpu` runs. The first operators are compute-bound. The others
are memory-bound, so only the order and the number of accesses matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import te, tirx

from vtaops.kernels import ops
from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.convolution import ConvTile, schedule_conv2d
from vtaops.kernels.cpu.schedule.elementwise import schedule_elementwise, schedule_normalize
from vtaops.kernels.cpu.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.kernels.cpu.schedule.pooling import schedule_pool
from vtaops.kernels.cpu.schedule.tiles import hold_in_registers, split_vector
from vtaops.kernels.cpu.schedule.window import schedule_depthwise
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.lessons.stages import Stage, schedule_default
from vtaops.kernels.ops.common import Expr, largest_divisor, pad_image, zero

_BLOCK = 32


def _declared(op: ops.TensorOp, name: str) -> tuple[Any, Any, list[Any]]:
    """Return the schedule of the plain declaration, a block of it by name, and its loops."""
    s = create_schedule(op.declare())
    block = s.get_sblock(name)
    return s, block, list(s.get_loops(block))


# --- matmul -----------------------------------------------------------------------------------


def _matmul_rows(op: ops.MatmulOp, target: CpuTarget, threads: bool = False) -> Any:
    """Schedule rows of C, k outside j."""
    s, _, (i, j, k) = _declared(op, "C")
    s.reorder(i, k, j)
    split_vector(s, j, target.lanes)
    if threads:
        s.parallel(i)
    return s


def _matmul_blocks(op: ops.MatmulOp, target: CpuTarget, cached: bool = False) -> Any:
    """Schedule blocks of C."""
    s, block, (i, j, k) = _declared(op, "C")
    stored = s.cache_write(block, 0, "global") if cached else None
    i, row = s.split(i, [None, largest_divisor(op.m, _BLOCK)])
    j, column = s.split(j, [None, largest_divisor(op.n, _BLOCK)])
    k, step = s.split(k, [None, largest_divisor(op.k, 4)])
    s.reorder(i, j, k, step, row, column)
    outer = s.fuse(i, j)
    s.parallel(outer)
    split_vector(s, column, target.lanes)
    if stored is not None:
        s.reverse_compute_at(stored, outer)
    return s


def _matmul_registers(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """Schedule the block that vector registers hold."""
    rows, columns = _register_rows(op, target), largest_divisor(op.n, 2 * target.lanes)
    if columns % target.lanes:
        return schedule_matmul(op, target)
    return schedule_matmul(op, target, MatmulTile(rows, columns, pack_b=False))


def _register_rows(op: ops.MatmulOp, target: CpuTarget) -> int:
    """Return the rows of two vectors that registers hold."""
    return largest_divisor(op.m, min(8, target.accumulators // 2))


def _matmul_packed(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """Schedule the same block, B packed."""
    rows, columns = _register_rows(op, target), 2 * target.lanes
    return schedule_matmul(op, target, MatmulTile(rows, columns, pack_b=True))


# --- conv2d -----------------------------------------------------------------------------------


def _conv2d_parallel(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """Schedule columns innermost."""
    s, _, (n, c, i, j, ic, kh, kw) = _declared(op, "result")
    s.reorder(n, c, i, ic, kh, kw, j)
    s.parallel(s.fuse(n, c))
    split_vector(s, j, target.lanes)
    return s


def _conv2d_blocks(op: ops.Conv2dOp, target: CpuTarget, cached: bool = False) -> Any:
    """Schedule blocks of channels, rows and columns."""
    s, block, (n, c, i, j, ic, kh, kw) = _declared(op, "result")
    stored = s.cache_write(block, 0, "global") if cached else None
    rows, columns = op.out_size
    c, channel = s.split(c, [None, largest_divisor(op.out_channels, 8)])
    i, row = s.split(i, [None, largest_divisor(rows, 8)])
    j, column = s.split(j, [None, largest_divisor(columns, _BLOCK)])
    s.reorder(n, c, i, j, ic, kh, kw, channel, row, column)
    outer = s.fuse(n, c, i)
    s.parallel(outer)
    split_vector(s, column, target.lanes)
    if stored is not None:
        s.reverse_compute_at(stored, j)
    return s


def _conv2d_registers(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """Schedule 4 channels by one vector of columns."""
    return schedule_conv2d(op, target, ConvTile("columns", 4, target.lanes))


def _conv2d_packed(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """Schedule the convolution of packed data."""
    if op.groups > 1 or not op.epilogue.empty:
        return schedule_conv2d(op, target)
    outer, inner = (largest_divisor(n, target.lanes) for n in (op.out_channels, op.in_channels))
    tensors = op.placeholders()
    padded = pad_image(tensors["data"], op.window, zero(op.dtype))
    image = te.compute(
        (op.batch, op.in_channels // inner, *padded.shape[2:], inner),
        lambda n, c, i, j, ci: padded[n, c * inner + ci, i, j],
        name="pack_data",
    )
    kernel = te.compute(
        (op.out_channels // outer, op.in_channels // inner, *op.window.kernel, inner, outer),
        lambda o, c, kh, kw, ci, co: tensors["kernel"][o * outer + co, c * inner + ci, kh, kw],
        name="pack_kernel",
    )
    blocks = op.batch, op.in_channels // inner, op.height, op.width, op.out_channels // outer
    packed = ops.PackedConv2dOp(*blocks, op.window, outer, in_block=inner)
    sums = packed.sums(op.window, image, kernel, in_groups=False)
    total = te.compute(packed.output.shape, sums, name="total")
    result = te.compute(
        op.output.shape, lambda n, o, i, j: total[n, o // outer, i, j, o % outer], name="result"
    )
    s = create_schedule([*tensors.values(), result])
    return _schedule_packed(s, largest_divisor(op.out_size[1], target.registers // 2))


def _schedule_packed(s: Any, columns: int) -> Any:
    """Schedule the blocks of `_conv2d_packed`; a tile has some columns of one block of channels."""
    product = s.get_sblock("total")
    copy = s.cache_write(product, 0, "global")
    n, o, i, j, channel, block, kh, kw, lane = s.get_loops(product)
    j, column = s.split(j, [None, columns])
    s.reorder(n, o, i, j, block, kh, kw, lane, column, channel)
    s.parallel(s.fuse(n, o, i))
    s.reverse_compute_at(copy, j, preserve_unit_loops=True)
    s.vectorize(s.get_loops(copy)[-1])
    hold_in_registers(s, product, block, channel, column)
    for name in ("pack_data", "pack_kernel", "result"):
        s.parallel(s.fuse(*s.get_loops(s.get_sblock(name))[:2]))
    return s


# --- depthwise convolution --------------------------------------------------------------------


def _depthwise_parallel(op: ops.DepthwiseOp, target: CpuTarget) -> Any:
    """Schedule the channels on all threads."""
    s, _, (n, c, *_) = _declared(op, "result")
    s.parallel(s.fuse(n, c))
    return s


def _depthwise_channels(op: ops.DepthwiseOp, target: CpuTarget, vectors: bool = False) -> Any:
    """Schedule channel by channel."""
    s, _, (n, c, i, j, kh, kw) = _declared(op, "result")
    channel = s.fuse(n, c)
    s.parallel(channel)
    if vectors:
        s.reorder(channel, i, kh, kw, j)
        split_vector(s, j, target.lanes)
    if any(op.window.padding) and op.multiplier == 1:
        s.compute_at(s.get_sblock("padded"), channel)
    return s


# --- addition ---------------------------------------------------------------------------------


def _add_columns_outside(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """Schedule columns outermost."""
    s, _, (row, column) = _declared(op, "C")
    s.reorder(column, row)
    split_vector(s, row, target.lanes)
    s.parallel(column)
    return s


def _add_rows(op: ops.BroadcastOp, target: CpuTarget, vectors: bool = False) -> Any:
    """Schedule the loops as declared, the outermost in parallel."""
    s, _, loops = _declared(op, "C")
    if vectors:
        loops[-1:] = split_vector(s, loops[-1], target.lanes)
    s.parallel(loops[0])
    return s


# --- pooling ----------------------------------------------------------------------------------


def _pool_rows(op: ops.PoolOp, target: CpuTarget, staged: bool = False) -> Any:
    """Schedule rows of results."""
    name = "result" if op.kind == "max" else "total"
    s, _, (n, c, i, j, kh, kw) = _declared(op, name)
    s.reorder(n, c, i, kh, kw, j)
    split_vector(s, j, target.lanes)
    row = s.fuse(n, c, i)
    s.parallel(row)
    if name == "total":
        s.reverse_compute_at(s.get_sblock("result"), row)
    if any(op.window.padding) and staged:
        s.compute_at(s.get_sblock("padded"), row)
    elif any(op.window.padding):
        s.compute_inline(s.get_sblock("padded"))
    return s


# --- batch normalisation ----------------------------------------------------------------------


def _norm_passes(op: ops.NormalizeOp, target: CpuTarget, fused: bool = False) -> Any:
    """Schedule the formula as it is written, one tensor per operation."""
    tensors, shape = op.placeholders(), op.output.shape
    data, gamma, beta, mean, variance = tensors.values()
    small = tirx.const(op.epilogue.batch_norm or 0.0, "float32")

    def divide(n: Expr, c: Expr, p: Expr) -> Expr:
        return centred[n, c, p] / tirx.sqrt(variance[c] + small)

    centred = te.compute(shape, lambda n, c, p: data[n, c, p] - mean[c], name="centred")
    unit = te.compute(shape, divide, name="unit")
    scaled = te.compute(shape, lambda n, c, p: unit[n, c, p] * gamma[c], name="scaled")
    result = te.compute(shape, lambda n, c, p: scaled[n, c, p] + beta[c], name="result")
    s = create_schedule([*tensors.values(), result])
    if fused:
        for name in ("centred", "unit", "scaled"):
            s.compute_inline(s.get_sblock(name))
        n, c, p = s.get_loops(s.get_sblock("result"))
        split_vector(s, p, target.lanes)
        s.parallel(s.fuse(n, c))
    return s


MATMUL = (
    Stage(
        "default",
        "The three loops i, j, k as declared.",
        schedule_default,
    ),
    Stage(
        "reorder",
        "Loop k moves outside loop j: successive iterations read neighbouring elements "
        "of B, and j is vectorised.",
        _matmul_rows,
    ),
    Stage(
        "parallel",
        "The threads share the rows of C.",
        partial(_matmul_rows, threads=True),
    ),
    Stage(
        "blocked",
        "C is computed in blocks of 32 x 32 elements, four steps of k at a time: "
        "operands are reused from the cache.",
        _matmul_blocks,
    ),
    Stage(
        "cached",
        "A block of C is summed in a small local array and stored once (write cache).",
        partial(_matmul_blocks, cached=True),
    ),
    Stage(
        "registers",
        "The block shrinks to what the vector registers hold; its loops are unrolled.",
        _matmul_registers,
    ),
    Stage(
        "packed",
        "B is packed into panels as wide as a block, so that its rows lie next to each other.",
        _matmul_packed,
    ),
    Stage(
        "tuned",
        "A cost model chooses the tile; the size of B decides whether it is packed.",
        schedule_matmul,
    ),
)

CONV2D = (
    Stage(
        "default",
        "The seven loops as declared, after the image is padded.",
        schedule_default,
    ),
    Stage(
        "parallel",
        "The loop over columns is innermost and vectorised; the threads share images and channels.",
        _conv2d_parallel,
    ),
    Stage(
        "blocked",
        "The result is computed in blocks of 8 channels, 8 rows and up to 32 columns, "
        "which reuse image and kernel from the cache.",
        _conv2d_blocks,
    ),
    Stage(
        "cached",
        "A block is summed in a small local array and stored once (write cache).",
        partial(_conv2d_blocks, cached=True),
    ),
    Stage(
        "registers",
        "The block shrinks to 4 channels by one vector of columns, which stay in "
        "registers; the kernel is packed in the order in which it is read.",
        _conv2d_registers,
    ),
    Stage(
        "packed",
        "Data and result are packed in blocks of channels as well (NCHW[x]c) and "
        "unpacked afterwards: a vector holds neighbouring channels, and the sums of "
        "several pixels stay in registers.",
        _conv2d_packed,
    ),
    Stage(
        "tuned",
        "Back to NCHW: the tile fills the registers; for narrow images a vector holds "
        "channels instead of columns.",
        schedule_conv2d,
    ),
)

DEPTHWISE = (
    Stage(
        "default",
        "The six loops as declared, after the image is padded.",
        schedule_default,
    ),
    Stage(
        "parallel",
        "The threads share the channels.",
        _depthwise_parallel,
    ),
    Stage(
        "cached",
        "Each channel is padded just before it is used, so the copy stays in the L1 cache.",
        _depthwise_channels,
    ),
    Stage(
        "vectorized",
        "The loop over columns is innermost and vectorised; it runs once per tap of the kernel.",
        partial(_depthwise_channels, vectors=True),
    ),
    Stage(
        "tuned",
        "Tiles of a few rows by one vector of columns stay in registers; the loops over "
        "taps are unrolled.",
        schedule_depthwise,
    ),
)

VECTOR_ADD = (
    Stage(
        "default",
        "The one loop as declared, which LLVM vectorises.",
        schedule_default,
    ),
    Stage(
        "parallel",
        "The threads share the elements.",
        _add_rows,
    ),
    Stage(
        "vectorized",
        "The loop is vectorised; the threads share the vectors.",
        partial(_add_rows, vectors=True),
    ),
    Stage(
        "tuned",
        "Each thread takes a few long chunks; short arrays are added on one thread.",
        schedule_elementwise,
    ),
)

BROADCAST_ADD = (
    Stage(
        "default",
        "The two loops as declared, rows outermost.",
        schedule_default,
    ),
    Stage(
        "bad",
        "Columns are outermost, so that no element of A is broadcast to a vector; but B "
        "is read with a stride.",
        _add_columns_outside,
    ),
    Stage(
        "good",
        "Rows are outermost and shared by the threads; columns are vectorised.",
        partial(_add_rows, vectors=True),
    ),
    Stage(
        "tuned",
        "The same, but on one thread if there is little to compute.",
        schedule_elementwise,
    ),
)

POOL = (
    Stage(
        "default",
        "The six loops as declared, after the image is padded.",
        schedule_default,
    ),
    Stage(
        "inlined",
        "The threads share rows, and columns are vectorised; a condition replaces the padded copy.",
        _pool_rows,
    ),
    Stage(
        "staged",
        "The same, but the rows that a row of results needs are first copied, padded, "
        "to a small array.",
        partial(_pool_rows, staged=True),
    ),
    Stage(
        "tuned",
        "The maximum or sum runs down the columns of a window first, then along its "
        "row; several small images are pooled at once.",
        schedule_pool,
    ),
)

BATCH_NORM = (
    Stage(
        "default",
        "Four passes over the data, one per operation of the formula.",
        _norm_passes,
    ),
    Stage(
        "fused",
        "One pass computes the whole formula for each element. The threads share the "
        "channels; pixels are vectorised.",
        partial(_norm_passes, fused=True),
    ),
    Stage(
        "tuned",
        "Square root and quotient are computed once per channel and folded into a scale "
        "and a shift: one multiply-add per element remains.",
        schedule_normalize,
    ),
)

STAGES: dict[type | str, Sequence[Stage]] = {
    ops.MatmulOp: MATMUL,
    ops.Conv2dOp: CONV2D,
    ops.DepthwiseOp: DEPTHWISE,
    ops.BroadcastOp: BROADCAST_ADD,
    "vector_add": VECTOR_ADD,
    ops.PoolOp: POOL,
    ops.NormalizeOp: BATCH_NORM,
}
"""The stages by operator; those of vectors, which do not broadcast, by the name of their lesson."""
