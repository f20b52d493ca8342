"""CUDA schedules of reductions along rows: a warp per row, or a block per long row.

The threads of a row read it in turns, each keeps its elements in registers, and warp shuffles
exchange partial results. A warp with its own row needs no shared memory and no barrier; the threads
of a long row synchronize twice per reduction. Results of a reduction stay in registers too: every
thread of the row has its copy. (In shared memory TVM would let one thread write them, between two
barriers of which the first then orders nothing.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from vtaops.kernels.cuda.schedule.binding import bind, create_schedule
from vtaops.kernels.cuda.target import WARP, CudaTarget
from vtaops.kernels.ops.common import Expr, Tensor, ceil_div
from vtaops.kernels.ops.reduction import GlobalPoolOp, SoftmaxOp

_BLOCK = 256
_KEPT_BY_WARP, _KEPT_BY_BLOCK = 32, 16
"""Elements of a row that a thread keeps in registers."""

_PATIENCE = 16
"""Factor by which rows that a warp only adds up may be longer than those that it keeps."""


@dataclass(frozen=True)
class RowTile:
    """The distribution of rows over threads.

    Attributes
    ----------
    threads : int
        Threads per row; a power of two.
    rows : int
        Rows per block.
    """

    threads: int = WARP
    rows: int = _BLOCK // WARP


def choose_tile(rows: int, columns: int) -> RowTile:
    """Choose a warp per row, or a block for long rows."""
    if columns <= _KEPT_BY_WARP * WARP:
        return RowTile(WARP, min(_BLOCK // WARP, rows))
    threads = _BLOCK
    while columns > _KEPT_BY_BLOCK * threads and threads < 1024:
        threads *= 2
    return RowTile(threads, 1)


def declare_softmax(op: SoftmaxOp, threads: int) -> list[Tensor]:
    """Declare softmax with each row cut into turns of `threads` elements, for the reductions.

    The results are computed from the original row: it is reread, from the cache. TVM would give
    each thread the whole row if the results shared the registers of the reductions.
    """
    data = op.inputs[0].placeholder()
    turns = ceil_div(op.columns, threads)
    shape = (op.rows, turns, threads)

    def inside(turn: Expr, thread: Expr, value: Expr, outside: Expr) -> Expr:
        if op.columns % threads == 0:
            return value
        return tirx.if_then_else(turn * threads + thread < op.columns, value, outside)

    element = te.compute(
        shape,
        lambda r, q, t: inside(q, t, data[r, q * threads + t], tirx.min_value("float32")),
        name="element",
    )

    def axes() -> list[Expr]:
        return [
            te.reduce_axis((0, extent), name=name)
            for extent, name in zip(shape[1:], "qt", strict=True)
        ]

    k, j = axes(), axes()
    top = te.compute((op.rows,), lambda r: te.max(element(r, *k), axis=k), name="top")
    power = te.compute(
        shape,
        lambda r, q, t: inside(q, t, tirx.exp(element[r, q, t] - top[r]), tirx.const(0.0)),
        name="power",
    )
    total = te.compute((op.rows,), lambda r: te.sum(power(r, *j), axis=j), name="total")
    result = te.compute(
        (op.rows, op.columns),
        lambda r, c: tirx.exp(data[r, c] - top[r]) / total[r],
        name="result",
    )
    return [data, result]


def schedule_softmax(op: SoftmaxOp, target: CudaTarget, tile: RowTile | None = None) -> Any:
    """Schedule a softmax: maximum and sum by cross-thread reduction."""
    tile = tile or choose_tile(op.rows, op.columns)
    s = create_schedule(declare_softmax(op, tile.threads))
    s.compute_inline(s.get_sblock("power"))
    stages = ["total", "top", "element"]
    kept = _KEPT_BY_WARP if tile.threads == WARP else _KEPT_BY_BLOCK
    if ceil_div(op.columns, tile.threads) > kept:
        s.compute_inline(s.get_sblock(stages.pop()))
    row, column = s.get_loops(s.get_sblock("result"))
    grid, row = s.split(row, [None, tile.rows])
    _, x = s.split(column, [None, tile.threads])
    bind(s, block_x=grid, thread_y=row, thread_x=x)
    for name in stages:
        block = s.get_sblock(name)
        s.compute_at(block, row, preserve_unit_loops=True)
        s.set_scope(block, 0, "local")
        bind(s, thread_x=s.get_loops(block)[-1])
    return s


def schedule_global_pool(op: GlobalPoolOp, target: CudaTarget, tile: RowTile | None = None) -> Any:
    """Schedule a global pooling: partial results of each thread, then across threads.

    A whole block works on a row only if that is very long: TVM lets one thread write the result
    while all wait for it at a barrier.
    """
    tile = tile or choose_tile(op.rows, op.pixels // _PATIENCE)
    s = create_schedule(op.declare())
    result = s.get_sblock("result")
    if op.kind == "max":
        block, result = result, s.cache_write(result, 0, "local")
    else:
        block = s.get_sblock("total")
        s.set_scope(block, 0, "local")
    (row,) = s.get_loops(result)
    grid, row = s.split(row, [None, tile.rows])
    bind(s, block_x=grid, thread_y=row)
    s.compute_at(block, row, preserve_unit_loops=True)
    _, x = s.split(s.get_loops(block)[-1], [None, tile.threads])
    bind(s, thread_x=x)
    return s
