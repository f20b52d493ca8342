"""Prologue: small vectors that a kernel computes once, before its loops (folded factors, sums).

`reverse_compute_at` fuses a write-back with its sum only if the sum is its only producer. So a
kernel is scheduled with such a vector as an argument; then the loops that compute it are prepended
and the argument becomes a local buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir, te, tirx
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm_ffi import structural_mutate

from vtaops.kernels.build import create_schedule
from vtaops.kernels.ops.common import Expr, Tensor
from vtaops.kernels.ops.epilogue import FusedOp

Vectors = dict[str, Any]
"""Buffers by name: the kernel's inputs and the vectors computed so far."""


@dataclass(frozen=True)
class _Stage:
    name: str
    length: int
    dtype: str
    value: Callable[..., Expr]
    over: tuple[int, ...]
    along: bool

    def loops(self, vectors: Vectors) -> Any:
        """Return the statement that fills the vector."""
        target = vectors[self.name]
        index = tirx.Var("i", "int32")
        steps = [tirx.Var(f"r{axis}", "int32") for axis in range(len(self.over))]
        value = self.value(vectors, index, *steps)
        if not self.over:
            return loop(index, self.length, tirx.BufferStore(target, value, [index]))
        body = tirx.BufferStore(target, target[index] + value, [index])
        if self.along:
            body = loop(index, self.length, nest(steps, self.over, body))
        else:
            body = nest(steps, self.over, loop(index, self.length, body))
        first = tirx.Var("i", "int32")
        clear = tirx.BufferStore(target, tirx.const(0, self.dtype), [first])
        return tirx.SeqStmt([loop(first, self.length, clear), body])


class Prologue:
    """Vectors that are computed ahead of the loops of one kernel.

    Parameters
    ----------
    op : FusedOp
        The kernel's operator.

    Attributes
    ----------
    tensors : dict
        te placeholders of its inputs, by name.
    """

    def __init__(self, op: FusedOp) -> None:
        self.op = op
        self.tensors = op.placeholders()
        self._stages: list[_Stage] = []
        self._stand_ins: list[Tensor] = []

    def vector(
        self,
        name: str,
        length: int,
        dtype: str,
        value: Callable[..., Expr],
        over: tuple[int, ...] = (),
        *,
        along: bool = False,
    ) -> Tensor:
        """Declare a precomputed vector; return the te tensor that represents it.

        Parameters
        ----------
        name : str
            Name of the vector.
        length : int
            Its extent.
        dtype : str
            Dtype of its elements.
        value : callable
            ``value(vectors, i, *steps)``: element i, or its summand at `steps`.
        over : tuple of int
            Extents of a reduction; empty: none.
        along : bool
            Whether the reduction loop is innermost, for contiguous summands; otherwise the
            vector's.
        """
        self._stages.append(_Stage(name, length, dtype, value, over, along))
        self._stand_ins.append(te.placeholder((length,), dtype=dtype, name=name))
        return self._stand_ins[-1]

    def factors(self) -> dict[str, Tensor]:
        """Return the inputs, with "scale" and "shift" of a folded batch normalization."""
        tensors, epilogue, dtype = dict(self.tensors), self.op.epilogue, self.op.accumulator
        if epilogue.batch_norm is not None:
            length = int(tensors["gamma"].shape[0])
            small = tirx.const(epilogue.batch_norm, dtype)

            def scale(v: Vectors, i: Expr) -> Expr:
                return v["gamma"][i] / tirx.sqrt(v["variance"][i] + small)

            def shift(v: Vectors, i: Expr) -> Expr:
                return v["beta"][i] - v["mean"][i] * v["scale"][i]

            tensors["scale"] = self.vector("scale", length, dtype, scale)
            tensors["shift"] = self.vector("shift", length, dtype, shift)
        return tensors

    def epilogue(self) -> Any:
        """Return the operator's bound epilogue, with a batch normalization folded."""
        return self.op.epilogue.bind(self.factors(), self.op.accumulator)

    def create_schedule(self, result: Tensor) -> Any:
        """Return the unscheduled kernel that ends in `result`."""
        return create_schedule([*self.tensors.values(), *self._stand_ins, result])

    def attach(self, s: Any) -> Any:
        """Return the finished schedule: vectors prepended, stand-ins removed from the arguments."""
        if not self._stages:
            return s
        main = s.mod["main"]
        inputs, stages = len(self.tensors), len(self._stages)
        local = list(main.params)[inputs : inputs + stages]
        names = [*self.tensors, *(stage.name for stage in self._stages)]
        vectors = dict(zip(names, main.params[: inputs + stages], strict=True))
        steps = [*(stage.loops(vectors) for stage in self._stages), main.body.block.body]
        return rebuilt(main, [*main.params[:inputs], *main.params[inputs + stages :]], steps, local)


def rebuilt(main: Any, arguments: list[Any], steps: list[Any], local: list[Any]) -> Any:
    """Return the schedule of a kernel with other arguments that executes `steps` in order.

    The buffers `local` become local allocations.
    """
    root = SBlock(
        iter_vars=[],
        reads=[],
        writes=[],
        name_hint="root",
        body=tirx.SeqStmt(steps) if len(steps) > 1 else steps[0],
        alloc_buffers=[*main.body.block.alloc_buffers, *local],
    )
    body = SBlockRealize([], tirx.const(True, "bool"), root)
    function = tirx.PrimFunc(arguments, body, main.ret_type, main.attrs)
    return Schedule(tvm.IRModule({"main": function}))


def redirected(
    body: Any,
    buffers: dict[Any, Any],
    *,
    at: Callable[[Sequence[Any]], Sequence[Any]] = lambda index: index,
    read: Callable[[Any], Any] = lambda value: value,
    written: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Return the statement with accesses to some buffers redirected to others.

    Parameters
    ----------
    body : Stmt
        The statement.
    buffers : dict
        Maps buffers to their replacements.
    at : callable
        Maps an index to the new index.
    read, written : callable
        Convert a value after a read, and before a write.
    """

    def load(node: Any, mutator: Any) -> Any:
        if node.source not in buffers:
            return mutator.default_mutate(node)
        index = at([mutator.mutate(index) for index in node.indices])
        return read(tirx.BufferLoad(buffers[node.source], index))

    def store(node: Any, mutator: Any) -> Any:
        if node.buffer not in buffers:
            return mutator.default_mutate(node)
        index = at([mutator.mutate(index) for index in node.indices])
        value = written(mutator.mutate(node.value))
        return tirx.BufferStore(buffers[node.buffer], value, index)

    def region(node: Any, mutator: Any) -> Any:
        if node.source not in buffers:
            return mutator.default_mutate(node)
        index = at([side.min for side in node.region])
        extents = [side.extent for side in node.region]
        extents = [1] * (len(index) - len(extents)) + extents
        sides = map(ir.Range.from_min_extent, index, extents)
        return tirx.BufferRegion(buffers[node.source], [*sides])

    kinds = (TensorLoad, load), (tirx.BufferStore, store), (TensorRegion, region)
    return structural_mutate(body, kinds)


def nest(indices: Sequence[Any], extents: Sequence[Any], body: Any) -> Any:
    """Wrap a statement in loops from 0, the first of them outermost."""
    for index, extent in reversed([*zip(indices, extents, strict=True)]):
        body = loop(index, extent, body)
    return body


def loop(index: Any, extent: Any, body: Any, kind: str = "SERIAL") -> Any:
    """Return a loop from 0 of a TIR loop kind."""
    return tirx.For(index, 0, extent, tirx.ForKind[kind], body)
