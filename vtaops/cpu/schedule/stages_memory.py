"""The optimisation steps of operators that memory bounds: addition, pooling, normalisation.

As `vtaops.cpu.schedule.stages`, for operators whose arithmetic is little: what counts is in which
order memory is read, and how often.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from vtaops.cpu.schedule.elementwise import schedule_elementwise, schedule_normalize
from vtaops.cpu.schedule.pooling import schedule_pool
from vtaops.cpu.schedule.tiles import split_vector
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.build import create_schedule
from vtaops.kernels.ops import BroadcastOp, NormalizeOp, PoolOp
from vtaops.kernels.ops.common import Expr
from vtaops.kernels.stages import Stage, schedule_default

# --- addition ---------------------------------------------------------------------------------


def _add_parallel(op: BroadcastOp, target: CpuTarget, vectors: bool = False) -> Any:
    s = create_schedule(op.declare())
    loops = list(s.get_loops(s.get_sblock("C")))
    if vectors:
        loops[-1:] = split_vector(s, loops[-1], target.lanes)
    s.parallel(loops[0])
    return s


def _add_columns_outside(op: BroadcastOp, target: CpuTarget) -> Any:
    s = create_schedule(op.declare())
    row, column = s.get_loops(s.get_sblock("C"))
    s.reorder(column, row)
    split_vector(s, row, target.lanes)
    s.parallel(column)
    return s


VECTOR_ADD = (
    Stage("default", "One loop as declared; LLVM vectorises it by itself.", schedule_default),
    Stage("parallel", "The elements are shared among the threads.", _add_parallel),
    Stage(
        "vectorized",
        "In vectors; the threads share the vectors.",
        lambda op, target: _add_parallel(op, target, vectors=True),
    ),
    Stage(
        "tuned",
        "A few long chunks per thread, and no threads at all for short vectors.",
        schedule_elementwise,
    ),
)

BROADCAST_ADD = (
    Stage("default", "Two loops as declared, the rows outside.", schedule_default),
    Stage(
        "bad",
        "Columns outside, so that A needs no broadcast in a vector; but B is read with a stride.",
        _add_columns_outside,
    ),
    Stage(
        "good",
        "Rows outside, shared among the threads; columns in vectors.",
        lambda op, target: _add_parallel(op, target, vectors=True),
    ),
    Stage("tuned", "The same, without threads where there is little to do.", schedule_elementwise),
)

# --- pooling ----------------------------------------------------------------------------------


def _pool_rows(op: PoolOp, target: CpuTarget) -> Any:
    s = create_schedule(op.declare())
    name = "result" if op.kind == "max" else "total"
    n, c, i, j, kh, kw = s.get_loops(s.get_sblock(name))
    s.reorder(n, c, i, kh, kw, j)
    split_vector(s, j, target.lanes)
    row = s.fuse(n, c, i)
    s.parallel(row)
    if name == "total":
        s.reverse_compute_at(s.get_sblock("result"), row)
    return s


def _pool_inlined(op: PoolOp, target: CpuTarget) -> Any:
    s = _pool_rows(op, target)
    if any(op.window.padding):
        s.compute_inline(s.get_sblock("padded"))
    return s


def _pool_staged(op: PoolOp, target: CpuTarget) -> Any:
    s = _pool_rows(op, target)
    if any(op.window.padding):
        block = s.get_sblock("result" if op.kind == "max" else "total")
        s.compute_at(s.get_sblock("padded"), s.get_loops(block)[0])
    return s


POOL = (
    Stage("default", "Six loops as declared, the padded image beforehand.", schedule_default),
    Stage(
        "inlined",
        "Rows are shared among the threads, columns in vectors; padding has become a condition.",
        _pool_inlined,
    ),
    Stage(
        "staged",
        "The same, but the rows that a row of results needs are padded into a small copy.",
        _pool_staged,
    ),
    Stage(
        "tuned",
        "Down the columns of a window first, then along; small images several at once.",
        schedule_pool,
    ),
)

# --- batch normalisation ----------------------------------------------------------------------


def _norm_passes(op: NormalizeOp, target: CpuTarget, fused: bool = False) -> Any:
    """Schedule the formula as it is written, one tensor per operation."""
    tensors = op.placeholders()
    shape = op.output.shape
    small = tirx.const(op.epilogue.batch_norm or 0.0, "float32")
    data, gamma, beta = tensors["data"], tensors["gamma"], tensors["beta"]
    mean, variance = tensors["mean"], tensors["variance"]

    def stage(name: str, value: Any) -> Any:
        return te.compute(shape, value, name=name)

    def divide(n: Expr, c: Expr, p: Expr) -> Expr:
        return centred[n, c, p] / tirx.sqrt(variance[c] + small)

    centred = stage("centred", lambda n, c, p: data[n, c, p] - mean[c])
    unit = stage("unit", divide)
    scaled = stage("scaled", lambda n, c, p: unit[n, c, p] * gamma[c])
    result = stage("result", lambda n, c, p: scaled[n, c, p] + beta[c])
    s = create_schedule([*tensors.values(), result])
    if fused:
        for name in ("centred", "unit", "scaled"):
            s.compute_inline(s.get_sblock(name))
        n, c, p = s.get_loops(s.get_sblock("result"))
        split_vector(s, p, target.lanes)
        s.parallel(s.fuse(n, c))
    return s


BATCH_NORM = (
    Stage("default", "Four passes over the data, one per operation of the formula.", _norm_passes),
    Stage(
        "fused",
        "One pass: all is computed per element. Channels are shared among the threads, pixels in "
        "vectors.",
        lambda op, target: _norm_passes(op, target, fused=True),
    ),
    Stage(
        "tuned",
        "Root and quotient once per channel, folded to scale and shift: a multiply-add remains.",
        schedule_normalize,
    ),
)
