"""CPU schedules of reductions along rows: global pooling and softmax.

A floating-point sum may not be reordered by the compiler, so the declaration itself keeps a vector
of partial results, which are joined at the end of the row together with the tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from vtaops.cpu.schedule.tiles import PARALLEL_FLOPS, parallel_if
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.build import create_schedule
from vtaops.kernels.ops.common import Expr, Tensor
from vtaops.kernels.ops.pooling import GlobalPoolOp
from vtaops.kernels.ops.softmax import SoftmaxOp, exponential

_VECTORS = 4
"""Vectors of partial results: enough to hide the latency of an addition."""


@dataclass(frozen=True)
class RowReduction:
    """A reduction of each row in stages ``<name>_partial``, ``<name>_tail`` and ``<name>``.

    Attributes
    ----------
    name : str
        Of the stages.
    rows, length : int
        Number and elements of the rows.
    combine : str
        "sum" or "max".
    lanes : int
        float32 lanes of a vector register.
    """

    name: str
    rows: int
    length: int
    combine: str
    lanes: int

    @property
    def width(self) -> int:
        """Number of partial results of a row; 0 if the row is too short for one vector."""
        for vectors in (_VECTORS, 1):
            if self.length >= vectors * self.lanes:
                return vectors * self.lanes
        return 0

    def declare(self, read: Callable[[Expr, Expr], Expr]) -> Tensor:
        """Declare the reduction of ``read(row, column)``: a tensor (rows,)."""
        steps = self.length // self.width if self.width else 0
        done = steps * self.width
        parts: list[Tensor] = []
        if self.width:
            step = te.reduce_axis((0, steps), name="step")
            lane = te.reduce_axis((0, self.width), name="lane")
            partial = te.compute(
                (self.rows, self.width),
                lambda r, v: self._reduce(read(r, step * self.width + v), step),
                name=f"{self.name}_partial",
            )
            parts.append(
                te.compute(
                    (self.rows,),
                    lambda r: self._reduce(partial[r, lane], lane),
                    name=f"{self.name}_joined",
                )
            )
        if done < self.length:
            rest = te.reduce_axis((0, self.length - done), name="rest")
            parts.append(
                te.compute(
                    (self.rows,),
                    lambda r: self._reduce(read(r, done + rest), rest),
                    name=f"{self.name}_tail",
                )
            )
        if len(parts) == 1:
            return te.compute((self.rows,), lambda r: parts[0][r], name=self.name)
        join = tirx.max if self.combine == "max" else lambda a, b: a + b
        return te.compute((self.rows,), lambda r: join(parts[0][r], parts[1][r]), name=self.name)

    def _reduce(self, value: Expr, axis: Expr) -> Expr:
        return (te.max if self.combine == "max" else te.sum)(value, axis=axis)

    def schedule(self, s: Any, row: Any) -> None:
        """Move the stages into the loop `row` of their consumer and hold the partial results."""
        suffixes = [""]
        if self.width == 0 or self.length % self.width:
            suffixes.append("_tail")
        if self.width:
            suffixes += ["_joined", "_partial"]
        for suffix in suffixes:
            s.compute_at(s.get_sblock(self.name + suffix), row, preserve_unit_loops=True)
        if self.width:
            partial = s.get_sblock(f"{self.name}_partial")
            lane, step = s.get_loops(partial)[-2:]
            vector, lane = s.split(lane, [None, self.lanes])
            s.reorder(step, vector, lane)
            s.unroll(vector)
            s.vectorize(lane)
            start = s.decompose_reduction(partial, step)
            s.vectorize(s.get_loops(start)[-1])


def schedule_global_pool(op: GlobalPoolOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel of a pooling over whole images."""
    data = op.inputs[0].placeholder()
    combine = "max" if op.kind == "max" else "sum"
    reduction = RowReduction("reduced", op.rows, op.pixels, combine, target.lanes)
    reduced = reduction.declare(lambda r, p: data[r, p])
    factor = tirx.const(1.0 if op.kind == "max" else 1.0 / op.pixels, "float32")
    s = create_schedule(
        [data, te.compute((op.rows,), lambda r: reduced[r] * factor, name="result")]
    )
    (row,) = s.get_loops(s.get_sblock("result"))
    parallel_if(s, row, op.flops >= PARALLEL_FLOPS)
    reduction.schedule(s, row)
    return s


def schedule_softmax(op: SoftmaxOp, target: CpuTarget) -> Any:
    """Return the scheduled kernel of a softmax: maximum, exponential, sum and quotient per row."""
    data = op.inputs[0].placeholder()
    shape = (op.rows, op.columns)
    top = RowReduction("top", op.rows, op.columns, "max", target.lanes)
    total = RowReduction("total", op.rows, op.columns, "sum", target.lanes)
    highest = top.declare(lambda r, c: data[r, c])
    power = te.compute(shape, lambda r, c: exponential(data[r, c] - highest[r]), name="power")
    summed = total.declare(lambda r, c: power[r, c])
    inverse = te.compute(
        (op.rows,), lambda r: tirx.const(1.0, "float32") / summed[r], name="inverse"
    )
    result = te.compute(shape, lambda r, c: power[r, c] * inverse[r], name="result")
    s = create_schedule([data, result])
    row, _ = s.get_loops(s.get_sblock("result"))
    parallel_if(s, row, op.flops >= PARALLEL_FLOPS)
    s.compute_at(s.get_sblock("inverse"), row)
    total.schedule(s, row)
    s.compute_at(s.get_sblock("power"), row)
    top.schedule(s, row)
    return s
