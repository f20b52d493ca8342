"""The optimisation steps of the operators on the CPU, by kind.

Each function returns a complete schedule of the plain declaration; the last stage of each operator
is the schedule that `vtaops.cpu` runs. The arithmetic of the first operators is much; memory bounds
the others, for which it counts in which order memory is read, and how often.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from vtaops.cpu.schedule.conv1d import schedule_conv1d
from vtaops.cpu.schedule.convolution import ConvTile, schedule_conv2d
from vtaops.cpu.schedule.elementwise import schedule_elementwise, schedule_normalize
from vtaops.cpu.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.cpu.schedule.pooling import schedule_pool
from vtaops.cpu.schedule.tiles import hold_in_registers, split_vector
from vtaops.cpu.schedule.window import schedule_depthwise
from vtaops.cpu.target import CpuTarget
from vtaops.kernels import ops
from vtaops.kernels.build import create_schedule
from vtaops.kernels.ops.common import Expr, largest_divisor, pad_image, zero
from vtaops.kernels.stages import Stages

_BLOCK = 32


def _declared(op: ops.TensorOp, name: str) -> tuple[Any, Any, list[Any]]:
    """Return the schedule of the plain declaration, a block of it by name, and its loops."""
    s = create_schedule(op.declare())
    block = s.get_sblock(name)
    return s, block, list(s.get_loops(block))


# --- matmul -----------------------------------------------------------------------------------

MATMUL = Stages("Three loops i, j, k as declared.")


def _matmul_rows(op: ops.MatmulOp, target: CpuTarget, threads: bool = False) -> Any:
    s, _, (i, j, k) = _declared(op, "C")
    s.reorder(i, k, j)
    split_vector(s, j, target.lanes)
    if threads:
        s.parallel(i)
    return s


@MATMUL.stage("reorder")
def _(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """k before j: neighbouring steps read neighbouring elements of B, and j is vectorised."""
    return _matmul_rows(op, target)


@MATMUL.stage("parallel")
def _(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """The rows of C are shared among the threads."""
    return _matmul_rows(op, target, threads=True)


def _matmul_blocks(op: ops.MatmulOp, target: CpuTarget, cached: bool = False) -> Any:
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


@MATMUL.stage("blocked")
def _(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """Blocks of 32 x 32 elements of C, sums in steps of 4: operands are reused from the
    cache.
    """
    return _matmul_blocks(op, target)


@MATMUL.stage("cached")
def _(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """A block of C is summed in a small local array and stored once (write cache)."""
    return _matmul_blocks(op, target, cached=True)


@MATMUL.stage("registers")
def _matmul_registers(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """The block shrinks to what the vector registers hold; its loops are unrolled."""
    rows, columns = _register_rows(op, target), largest_divisor(op.n, 2 * target.lanes)
    if columns % target.lanes:
        return schedule_matmul(op, target)
    return schedule_matmul(op, target, MatmulTile(rows, columns, pack_b=False))


def _register_rows(op: ops.MatmulOp, target: CpuTarget) -> int:
    """Return the rows of two vectors that registers hold."""
    return largest_divisor(op.m, min(8, target.accumulators // 2))


@MATMUL.stage("packed")
def _matmul_packed(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """B is copied into panels as wide as a block: no far jumps between its rows."""
    rows, columns = _register_rows(op, target), 2 * target.lanes
    return schedule_matmul(op, target, MatmulTile(rows, columns, pack_b=True))


@MATMUL.stage("tuned")
def _(op: ops.MatmulOp, target: CpuTarget) -> Any:
    """The tile is chosen by a cost model, packing by the size of B."""
    return schedule_matmul(op, target)


# --- conv2d -----------------------------------------------------------------------------------

CONV2D = Stages("Seven loops as declared, the padded image beforehand.")


@CONV2D.stage("parallel")
def _conv2d_parallel(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """Columns innermost and vectorised; images and channels are shared among the threads."""
    s, _, (n, c, i, j, ic, kh, kw) = _declared(op, "result")
    s.reorder(n, c, i, ic, kh, kw, j)
    s.parallel(s.fuse(n, c))
    split_vector(s, j, target.lanes)
    return s


def _conv2d_blocks(op: ops.Conv2dOp, target: CpuTarget, cached: bool = False) -> Any:
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


@CONV2D.stage("blocked")
def _(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """Blocks of 8 channels, 8 rows and up to 32 columns reuse image and kernel."""
    return _conv2d_blocks(op, target)


@CONV2D.stage("cached")
def _(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """A block is summed in a small local array and stored once (write cache)."""
    return _conv2d_blocks(op, target, cached=True)


@CONV2D.stage("registers")
def _(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """The block shrinks to 4 channels by one vector of columns, which stay in registers; the
    kernel is packed, so that its values lie together.
    """
    return schedule_conv2d(op, target, ConvTile("columns", 4, target.lanes))


@CONV2D.stage("packed")
def _conv2d_packed(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """Data and result as well in blocks of channels (NCHW[x]c), packed and unpacked around the
    sum: a vector holds neighbouring channels, some pixels of them stay in registers.
    """
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


@CONV2D.stage("tuned")
def _(op: ops.Conv2dOp, target: CpuTarget) -> Any:
    """NCHW again: the tile fills the registers; narrow images use channel lanes."""
    return schedule_conv2d(op, target)


# --- depthwise convolution --------------------------------------------------------------------

DEPTHWISE = Stages("Six loops as declared, the padded image beforehand.")


@DEPTHWISE.stage("parallel")
def _depthwise_parallel(op: ops.DepthwiseOp, target: CpuTarget) -> Any:
    """Channels are shared among the threads."""
    s, _, (n, c, *_) = _declared(op, "result")
    s.parallel(s.fuse(n, c))
    return s


def _depthwise_channels(op: ops.DepthwiseOp, target: CpuTarget, vectors: bool = False) -> Any:
    s, _, (n, c, i, j, kh, kw) = _declared(op, "result")
    channel = s.fuse(n, c)
    s.parallel(channel)
    if vectors:
        s.reorder(channel, i, kh, kw, j)
        split_vector(s, j, target.lanes)
    if any(op.window.padding) and op.multiplier == 1:
        s.compute_at(s.get_sblock("padded"), channel)
    return s


@DEPTHWISE.stage("cached")
def _(op: ops.DepthwiseOp, target: CpuTarget) -> Any:
    """Each channel is padded just before it is used: the copy stays in the first-level cache."""
    return _depthwise_channels(op, target)


@DEPTHWISE.stage("vectorized")
def _(op: ops.DepthwiseOp, target: CpuTarget) -> Any:
    """Columns innermost, in vectors; one tap of the kernel at a time."""
    return _depthwise_channels(op, target, vectors=True)


@DEPTHWISE.stage("tuned")
def _(op: ops.DepthwiseOp, target: CpuTarget) -> Any:
    """Tiles of some rows by one vector of columns stay in registers; the taps are unrolled."""
    return schedule_depthwise(op, target)


# --- conv1d -----------------------------------------------------------------------------------

CONV1D = Stages(
    "Two loops as declared, the padded signal beforehand. LLVM keeps a vector of results in a "
    "register by itself."
)


def _conv1d_steps(op: ops.Conv1dOp, target: CpuTarget, steps: int) -> Any:
    """Schedule the first `steps` steps: split, reorder, unroll, vectorise, cache."""
    s, block, (i, k) = _declared(op, "result")
    i, inner = s.split(i, [None, largest_divisor(op.out_length, 4 * target.lanes)])
    if steps >= 2:
        s.reorder(i, k, inner)
    if steps >= 4:
        split_vector(s, inner, target.lanes)
    if steps >= 3 and op.kernel <= 32:
        s.unroll(k)
    if steps >= 5:
        for operand in (0, 1):
            s.compute_at(s.cache_read(block, operand, "local"), i)
    return s


@CONV1D.stage("split")
def _(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """Results in blocks of some vectors."""
    return _conv1d_steps(op, target, 1)


@CONV1D.stage("reorder")
def _(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """Taps outside, results inside: neighbours are read together, but each partial sum now goes
    through memory.
    """
    return _conv1d_steps(op, target, 2)


@CONV1D.stage("unroll")
def _(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """The taps are unrolled."""
    return _conv1d_steps(op, target, 3)


@CONV1D.stage("vectorize")
def _(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """Results in vectors."""
    return _conv1d_steps(op, target, 4)


@CONV1D.stage("caching")
def _(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """Samples and taps of a block are copied to a small array first. A processor has a cache
    already: the copies are work.
    """
    return _conv1d_steps(op, target, 5)


@CONV1D.stage("fused")
def _conv1d_fused(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """Instead, the loops over blocks and taps become one: no loop is left to unroll or to give
    to threads, and each sum asks whether it is the first.
    """
    s = _conv1d_steps(op, target, 2)
    i, k, inner = s.get_loops(s.get_sblock("result"))
    s.fuse(i, k)
    split_vector(s, inner, target.lanes)
    return s


@CONV1D.stage("tuned")
def _(op: ops.Conv1dOp, target: CpuTarget) -> Any:
    """The block stays in registers, the padded samples in the first-level cache; threads."""
    return schedule_conv1d(op, target)


# --- addition ---------------------------------------------------------------------------------

VECTOR_ADD = Stages("One loop as declared; LLVM vectorises it by itself.")
BROADCAST_ADD = Stages("Two loops as declared, the rows outside.")


def _add_rows(op: ops.BroadcastOp, target: CpuTarget, vectors: bool = False) -> Any:
    s, _, loops = _declared(op, "C")
    if vectors:
        loops[-1:] = split_vector(s, loops[-1], target.lanes)
    s.parallel(loops[0])
    return s


@VECTOR_ADD.stage("parallel")
def _(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """The elements are shared among the threads."""
    return _add_rows(op, target)


@VECTOR_ADD.stage("vectorized")
def _(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """In vectors; the threads share the vectors."""
    return _add_rows(op, target, vectors=True)


@VECTOR_ADD.stage("tuned")
def _(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """A few long chunks per thread, and no threads at all for short vectors."""
    return schedule_elementwise(op, target)


@BROADCAST_ADD.stage("bad")
def _add_columns_outside(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """Columns outside, so that A needs no broadcast in a vector; but B is read with a stride."""
    s, _, (row, column) = _declared(op, "C")
    s.reorder(column, row)
    split_vector(s, row, target.lanes)
    s.parallel(column)
    return s


@BROADCAST_ADD.stage("good")
def _(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """Rows outside, shared among the threads; columns in vectors."""
    return _add_rows(op, target, vectors=True)


@BROADCAST_ADD.stage("tuned")
def _(op: ops.BroadcastOp, target: CpuTarget) -> Any:
    """The same, without threads where there is little to do."""
    return schedule_elementwise(op, target)


# --- pooling ----------------------------------------------------------------------------------

POOL = Stages("Six loops as declared, the padded image beforehand.")


def _pool_rows(op: ops.PoolOp, target: CpuTarget, staged: bool = False) -> Any:
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


@POOL.stage("inlined")
def _(op: ops.PoolOp, target: CpuTarget) -> Any:
    """Rows are shared among the threads, columns in vectors; padding has become a condition."""
    return _pool_rows(op, target)


@POOL.stage("staged")
def _(op: ops.PoolOp, target: CpuTarget) -> Any:
    """The same, but the rows that a row of results needs are padded into a small copy."""
    return _pool_rows(op, target, staged=True)


@POOL.stage("tuned")
def _(op: ops.PoolOp, target: CpuTarget) -> Any:
    """Down the columns of a window first, then along; small images several at once."""
    return schedule_pool(op, target)


# --- batch normalisation ----------------------------------------------------------------------

BATCH_NORM = Stages()


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


@BATCH_NORM.stage("default")
def _(op: ops.NormalizeOp, target: CpuTarget) -> Any:
    """Four passes over the data, one per operation of the formula."""
    return _norm_passes(op, target)


@BATCH_NORM.stage("fused")
def _(op: ops.NormalizeOp, target: CpuTarget) -> Any:
    """One pass: all is computed per element. Channels are shared among the threads, pixels in
    vectors.
    """
    return _norm_passes(op, target, fused=True)


@BATCH_NORM.stage("tuned")
def _(op: ops.NormalizeOp, target: CpuTarget) -> Any:
    """Root and quotient once per channel, folded to scale and shift: a multiply-add remains."""
    return schedule_normalize(op, target)


STAGES: dict[type | str, Stages] = {
    ops.MatmulOp: MATMUL,
    ops.Conv2dOp: CONV2D,
    ops.DepthwiseOp: DEPTHWISE,
    ops.Conv1dOp: CONV1D,
    ops.BroadcastOp: BROADCAST_ADD,
    "vector_add": VECTOR_ADD,
    ops.PoolOp: POOL,
    ops.NormalizeOp: BATCH_NORM,
}
"""The stages by operator; those of vectors, which do not broadcast, by the name of their lesson."""
