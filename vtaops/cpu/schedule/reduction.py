"""CPU schedules of reductions along rows: global pooling and softmax.

A floating-point sum may not be reordered by the compiler, so the declaration itself keeps vectors
of partial results and says how they are joined at the end of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import te, tirx

from vtaops.cpu.schedule.tiles import PARALLEL_FLOPS, hold_in_registers, parallel_if
from vtaops.cpu.target import CpuTarget
from vtaops.kernels.build import create_schedule
from vtaops.kernels.ops.activations import exponential
from vtaops.kernels.ops.common import Expr, Tensor, largest, reduce_largest
from vtaops.kernels.ops.pooling import GlobalPoolOp
from vtaops.kernels.ops.softmax import SoftmaxOp

_VECTORS = 4
"""Vectors of partial results: enough to hide the latency of an addition."""


@dataclass(frozen=True)
class RowReduction:
    """A reduction of each row, in stages whose names begin with `name`, which the last one has.

    Partial results of some vectors, then of one, then halves of it added to each other, then what
    is left of the row behind the last whole vector.

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
    def _steps(self) -> int:
        """Steps of `_VECTORS` vectors."""
        return self.length // (_VECTORS * self.lanes)

    @property
    def _loose(self) -> int:
        """Whole vectors behind them."""
        return self.length // self.lanes - self._steps * _VECTORS

    @property
    def _halves(self) -> list[int]:
        """Widths of the stages from one vector to one element."""
        if self.length < self.lanes:
            return []
        return [self.lanes >> k for k in range(self.lanes.bit_length())]

    def declare(self, read: Callable[[Expr, Expr], Expr]) -> Tensor:
        """Declare the reduction of ``read(row, column)``: a tensor (rows,)."""
        parts: list[Callable[[Expr], Expr]] = []
        if halves := self._halves:
            narrow = self._one_vector(read)
            for width in halves[1:]:
                narrow = self._half(narrow, width)
            parts.append(lambda r: narrow[r, 0])
        done = self.length // self.lanes * self.lanes
        if done < self.length:
            rest = te.reduce_axis((0, self.length - done), name="rest")
            tail = te.compute(
                (self.rows,),
                lambda r: self._reduce(read(r, done + rest), rest),
                name=f"{self.name}_tail",
            )
            parts.append(lambda r: tail[r])
        return te.compute(
            (self.rows,), lambda r: reduce(self._join, [p(r) for p in parts]), name=self.name
        )

    def _one_vector(self, read: Callable[[Expr, Expr], Expr]) -> Tensor:
        """Declare the results of the lanes of all whole vectors."""
        width, shape = _VECTORS * self.lanes, (self.rows, self.lanes)
        first = self._steps * width
        parts: list[Tensor] = []
        if self._steps:
            step = te.reduce_axis((0, self._steps), name="step")
            vector = te.reduce_axis((0, _VECTORS), name="vector")
            wide = te.compute(
                (self.rows, width),
                lambda r, v: self._reduce(read(r, step * width + v), step),
                name=f"{self.name}_wide",
            )

            def joined(r: Expr, v: Expr) -> Expr:
                return self._reduce(wide[r, vector * self.lanes + v], vector)

            parts.append(te.compute(shape, joined, name=f"{self.name}_joined"))
        if self._loose:
            loose = te.reduce_axis((0, self._loose), name="loose")

            def last(r: Expr, v: Expr) -> Expr:
                return self._reduce(read(r, first + loose * self.lanes + v), loose)

            parts.append(te.compute(shape, last, name=f"{self.name}_loose"))
        return te.compute(
            shape,
            lambda r, v: reduce(self._join, [part[r, v] for part in parts]),
            name=f"{self.name}_{self.lanes}",
        )

    def _half(self, whole: Tensor, width: int) -> Tensor:
        return te.compute(
            (self.rows, width),
            lambda r, v: self._join(whole[r, v], whole[r, v + width]),
            name=f"{self.name}_{width}",
        )

    def _join(self, a: Expr, b: Expr) -> Expr:
        return largest(a, b) if self.combine == "max" else a + b

    def _reduce(self, value: Expr, axis: Expr) -> Expr:
        return (reduce_largest if self.combine == "max" else te.sum)(value, axis=axis)

    def schedule(self, s: Any, row: Any) -> None:
        """Move the stages into the loop `row` of their consumer and hold the partial results."""
        names = [self.name]
        if self.length % self.lanes:
            names.append(f"{self.name}_tail")
        names += [f"{self.name}_{width}" for width in reversed(self._halves)]
        sums = ["_joined"] * (self._steps > 0) + ["_loose"] * (self._loose > 0)
        names += [self.name + part for part in sums]
        if self._steps:
            names.append(f"{self.name}_wide")
        for name in names:
            s.compute_at(s.get_sblock(name), row, preserve_unit_loops=True)
        for width in self._halves[:-1]:
            s.vectorize(s.get_loops(s.get_sblock(f"{self.name}_{width}"))[-1])
        for part in sums:
            block = s.get_sblock(self.name + part)
            lane, vector = s.get_loops(block)[-2:]
            s.reorder(vector, lane)
            hold_in_registers(s, block, vector, lane)
        if self._steps:
            wide = s.get_sblock(f"{self.name}_wide")
            lane, step = s.get_loops(wide)[-2:]
            vector, lane = s.split(lane, [None, self.lanes])
            s.reorder(step, vector, lane)
            hold_in_registers(s, wide, step, lane, vector)


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
