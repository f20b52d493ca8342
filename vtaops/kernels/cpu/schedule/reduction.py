"""CPU schedules of reductions along rows: global pooling and softmax.

The compiler may not reorder a floating-point sum, so the declaration itself keeps vectors of
partial results and combines them at the end of the row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tvm import te, tirx

from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_FLOPS, hold_in_registers, parallel_if
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.activations import exponential
from vtaops.kernels.ops.common import Expr, Tensor, lowest
from vtaops.kernels.ops.reduction import GlobalPoolOp, SoftmaxOp

_VECTORS = 4
"""Vectors of partial results: enough to hide the latency of an addition."""

_SHORT = 16
"""Row length below which LLVM scalarizes a row declared as one vector."""


def _maximum(a: Expr, b: Expr) -> Expr:
    """Return the maximum of two float32; NaN if either is.

    TVM cannot vectorize a test for NaN.
    """
    return tirx.call_llvm_pure_intrin("float32", "llvm.maximum", a, b)


_reduce_maximum = te.comm_reducer(_maximum, lowest, name="maximum")
"""``_reduce_maximum(value, axis)``: the te reduction by `_maximum`."""


@dataclass(frozen=True)
class RowReduction:
    """A reduction of each row, in stages named by the prefix `name`; the last has the bare name.

    Partial results of several vectors ("wide") and their combination to one, those of the remaining
    whole vectors ("loose"), then repeated halving of the vector, with the width in the name, then
    the tail of the row ("tail").

    Attributes
    ----------
    name : str
        Prefix of the stages.
    rows, length : int
        Number and length of the rows.
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

    def declare(self, read: Callable[[Expr, Expr], Expr]) -> Tensor:
        """Declare the reduction of ``read(row, column)``: a tensor (rows,)."""
        lanes, wide = self.lanes, _VECTORS * self.lanes
        vectors, rest = divmod(self.length, lanes)
        if self.length < min(2 * lanes, _SHORT):
            vectors, rest = 0, self.length
        steps, loose = divmod(vectors, _VECTORS)
        if steps < 2:
            steps, loose = 0, vectors
        parts: list[Tensor] = []
        if loose:
            first = steps * wide
            parts.append(
                self._sums("loose", lanes, loose, lambda r, k, v: read(r, first + k * lanes + v))
            )
        if steps:
            sums = self._sums("wide", wide, steps, lambda r, k, v: read(r, k * wide + v))
            joined = self._sums("joined", lanes, _VECTORS, lambda r, k, v: sums[r, k * lanes + v])
            parts.append(joined)
        if parts:
            parts = [self._halved(self._joined(lanes, parts))]
        if rest:
            done = vectors * lanes
            parts.append(self._sums("tail", 1, rest, lambda r, k, _: read(r, done + k)))
        value = self._join(parts)
        return te.compute((self.rows,), lambda r: value(r, 0), name=self.name)

    def _sums(self, name: str, width: int, steps: int, read: Callable[..., Expr]) -> Tensor:
        """Declare the reductions of ``read(row, step, place)`` over the steps."""
        reducer = _reduce_maximum if self.combine == "max" else te.sum
        step = te.reduce_axis((0, steps), name="step")
        return te.compute(
            (self.rows, width),
            lambda r, v: reducer(read(r, step, v), axis=step),
            name=f"{self.name}_{name}",
        )

    def _joined(self, width: int, parts: list[Any]) -> Tensor:
        return te.compute((self.rows, width), self._join(parts), name=f"{self.name}_{width}")

    def _halved(self, whole: Tensor) -> Tensor:
        """Declare the repeated halving of a vector, down to one element."""
        width = int(whole.shape[1]) // 2
        if not width:
            return whole
        return self._halved(self._joined(width, [whole, lambda r, v: whole[r, v + width]]))

    def _join(self, parts: list[Any]) -> Callable[[Expr, Expr], Expr]:
        """Return ``f(row, place)``, the combined elements of several tensors."""
        join = _maximum if self.combine == "max" else operator.add
        return lambda r, v: reduce(join, [part(r, v) for part in parts])

    def schedule(self, s: Any, row: Any) -> None:
        """Move the stages into their consumer's loop `row`; keep partial results in registers."""
        root = s.get_sblock("root")
        for block in reversed(s.get_child_blocks(root)):
            name, _, stage = str(s.get(block).name_hint).partition("_")
            if name != self.name:
                continue
            s.compute_at(block, row, preserve_unit_loops=True)
            if stage.isdigit() and int(stage) > 1:
                s.vectorize(s.get_loops(block)[-1])
            elif stage in ("wide", "joined", "loose"):
                lane, step = s.get_loops(block)[-2:]
                vector, lane = s.split(lane, [None, self.lanes])
                s.reorder(step, vector, lane)
                hold_in_registers(s, block, step, lane, vector)


def schedule_global_pool(op: GlobalPoolOp, target: CpuTarget) -> Any:
    """Schedule a pooling over whole images."""
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
    """Schedule a softmax: maximum, exponential, sum and quotient per row."""
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
