"""Rewrites of scheduled kernels, for what TVM's schedules cannot say.

- `Prologue`: small vectors that a kernel computes once, before its loops (folded factors, sums).
  `reverse_compute_at` fuses a write-back with its sum only if the sum is its only producer. So a
  kernel is scheduled with such a vector as an argument; then the loops that compute it are
  prepended and the argument becomes a local buffer.
- `overlapping`: the last tile starts early enough to end with the result. All tiles are whole; the
  overlap is computed twice, with the same result. te cannot declare a result that is written
  twice: a kernel is scheduled for whole tiles, and afterwards its writes are moved.
- `of_stack`: the kernel of one matrix product in a loop over a stack.
- `of_stored`: 16-bit arguments for any float32 kernel. A value is widened on read and rounded on
  write; an argument read often, or by an intrinsic, is first widened into a float32 buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from math import prod
from typing import Any

import tvm
from tvm import ir, te, tirx
from tvm.ir.expr import TensorLoad, TensorRegion
from tvm.s_tir import MatchBufferRegion, SBlock, SBlockRealize, Schedule
from tvm_ffi import StructuralKey, structural_mutate, structural_visit, structural_walk

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_ELEMENTS, PARALLEL_FLOPS
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, Tensor
from vtaops.kernels.ops.epilogue import FusedOp
from vtaops.kernels.ops.matmul import StackedMatmulOp
from vtaops.kernels.ops.storage import StoredOp, bits_dtype, rounded, widened

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


Places = Callable[..., Sequence[Expr]]
"""Maps an element's index in whole tiles to its position."""


def placed(index: Expr, extent: int, unit: int, tile: int = 0) -> Expr:
    """Return an element's position in `extent`, which is at least a `unit` long.

    The last units end with the extent. A tile is one unit, or several.
    """
    if extent % (tile or unit) == 0:
        return index
    return tirx.min(index // unit * unit, extent - unit) + index % unit


def overlapping(s: Any, block: str, places: Places, shape: tuple[int, ...] = ()) -> Any:
    """Return the schedule with a block's writes moved.

    Parameters
    ----------
    s : tvm.s_tir.Schedule
        The finished schedule, for whole tiles.
    block : str
        Name of the block and of the buffer that it writes.
    places : callable
        ``places(*index)``: an element's position.
    shape : tuple of int, optional
        New shape of the buffer if it is the result; otherwise it is internal and keeps its shape.
    """
    main = s.mod["main"]
    *arguments, result = main.params
    moved: dict[Any, Any] = {}
    if shape:
        moved[result] = tirx.decl_buffer(
            shape, result.dtype, result.name, data_alignment=result.data_alignment
        )
        result = moved[result]
    else:
        moved |= {b: b for b in main.body.block.alloc_buffers if b.name == block}

    def move(node: Any, mutator: Any) -> Any:
        if not node.name_hint.startswith(block):
            return mutator.default_mutate(node)
        return redirected(node, moved, at=lambda index: places(*index))

    body = structural_mutate(main.body.block.body, ((SBlock, move),))
    return rebuilt(main, [*arguments, result], [body], [])


def of_stack(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the schedule of a `StackedMatmulOp` from that of its product."""

    @wraps(schedule)
    def schedule_stack(op: StackedMatmulOp, target: CpuTarget) -> Any:
        main = schedule(op.op, target).mod["main"]
        at = tirx.Var("matrix", "int32")
        arguments, stacks = [], {}
        for spec, buffer in zip(op.arguments, main.params, strict=True):
            arguments.append(buffer)
            if len(spec.shape) > len(buffer.shape):
                arguments[-1] = stacks[buffer] = tirx.decl_buffer(
                    spec.shape, buffer.dtype, spec.name, data_alignment=buffer.data_alignment
                )
        worth, alone = op.flops >= PARALLEL_FLOPS, op.op.flops < PARALLEL_FLOPS
        across = worth and (alone or op.count >= target.cores)
        body = redirected(main.body.block.body, stacks, at=lambda index: [at, *index])
        body = _on_one_thread(body) if across else body
        return rebuilt(main, arguments, [_each(at, op.count, body, across)], [])

    return schedule_stack


def _each(at: Any, count: int, body: Any, across: bool) -> Any:
    """Return the loop over the matrices, a block for each: blocks see no loop around them."""
    axis = tirx.IterVar(ir.Range(0, count), at, tirx.IterVar.DataPar)
    block = SBlock([axis], reads=[], writes=[], name_hint="matrix", body=body)
    index = tirx.Var("index", "int32")
    realize = SBlockRealize([index], tirx.const(True, "bool"), block)
    return loop(index, count, realize, "PARALLEL" if across else "SERIAL")


def _on_one_thread(body: Any) -> Any:
    """Replace parallel loops by serial ones."""

    def serial(node: Any, mutator: Any) -> Any:
        node = mutator.default_mutate(node)
        if node.kind != tirx.ForKind.PARALLEL:
            return node
        return tirx.For(node.loop_var, node.min, node.extent, tirx.ForKind.SERIAL, node.body)

    return structural_mutate(body, ((tirx.For, serial),))


_FEW_READS = 4
"""Reads per number up to which it is widened each time; more cost more than a copy."""

_IN_REGISTERS = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)


def of_stored(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the schedule of a `StoredOp` from that of its operator.

    Raises
    ------
    UnsupportedError
        On a call for a CPU that cannot convert the dtype.
    """

    @wraps(schedule)
    def schedule_stored(op: StoredOp, target: CpuTarget) -> Any:
        if op.dtype not in target.storage:
            raise UnsupportedError(
                f"{target.mcpu} has no instruction that converts {op.dtype} (F16C on x86); it "
                f"takes {', '.join(('float32', *target.storage))}"
            )
        return _with_stored(schedule(op.op, target).mod["main"], op)

    return schedule_stored


def _with_stored(main: Any, op: StoredOp) -> Any:
    """Wrap the kernel of ``op.op`` in a schedule with the arguments of `op`."""
    uses = _Uses(main.body)
    outside: list[Any] = []
    local: list[Any] = []
    before: list[Any] = []
    after: list[Any] = []
    direct: dict[Any, Any] = {}
    specs = op.arguments
    for spec, buffer in zip(specs, main.params, strict=True):
        outside.append(buffer)
        if spec.name not in op.names:
            continue
        outside[-1] = stored = tirx.decl_buffer(
            spec.shape, bits_dtype(op.dtype), spec.name, data_alignment=2
        )
        few = spec.name == op.packed or uses.reads[buffer] <= _FEW_READS * prod(spec.shape)
        output = spec is specs[-1]
        if buffer not in uses.opaque and few and not (output and uses.reads[buffer]):
            direct[buffer] = stored
        elif output:
            local.append(buffer)
            after.append(_copy(buffer, stored, rounded, op.dtype))
        else:
            local.append(buffer)
            before.append(_copy(stored, buffer, widened, op.dtype))
    body = redirected(
        main.body.block.body,
        direct,
        read=lambda value: widened(value, op.dtype),
        written=lambda value: rounded(value, op.dtype),
    )
    steps = [*before, body, *after]
    return rebuilt(main, outside, steps, local)


def _copy(source: Any, target: Any, convert: Callable[..., Any], dtype: str) -> Any:
    """Return the loops that convert one buffer to another."""
    extents = [int(extent) for extent in source.shape]
    at = [tirx.Var(f"i{axis}", "int32") for axis in range(len(extents))]
    body = tirx.BufferStore(target, convert(tirx.BufferLoad(source, at), dtype), at)
    shared = next((a for a, n in enumerate(extents[:-1]) if n > 1), None)
    for axis in reversed(range(len(extents))):
        threads = axis == shared and prod(extents) >= PARALLEL_ELEMENTS
        body = loop(at[axis], extents[axis], body, "PARALLEL" if threads else "SERIAL")
    return body


class _Uses:
    """A kernel's uses of its buffers.

    Attributes
    ----------
    reads : Counter
        Numbers read, by buffer. A value kept in a register across an unrolled loop or the lanes of
        a vector counts once.
    opaque : set
        Buffers that are passed to intrinsics or read as vectors.
    """

    def __init__(self, body: Any) -> None:
        self.reads: Counter[Any] = Counter()
        self.opaque: set[Any] = set()
        self._loops: list[Any] = []
        self._read: set[Any] = set()
        self._bound: dict[Any, set[Any]] = {}
        structural_visit(
            body,
            (
                (tirx.For, self._for),
                (SBlockRealize, self._realize),
                (MatchBufferRegion, self._match),
                (TensorLoad, self._load),
                (tirx.BufferStore, self._store),
            ),
        )

    def _for(self, node: Any, visitor: Any) -> Any:
        self._loops.append(node)
        visitor.visit(node.body)
        self._loops.pop()

    def _realize(self, node: Any, visitor: Any) -> Any:
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            self._bound[axis.var] = self._variables(value)
        self._read.clear()
        visitor.visit(node.block)

    def _match(self, node: Any, visitor: Any) -> Any:
        self.opaque.add(node.source.source)

    def _load(self, node: Any, visitor: Any) -> Any:
        self._check_indices(node.source, node.indices)
        used = self._variables(node.indices)
        place = node.source, StructuralKey(node.indices)
        if place not in self._read:
            self._read.add(place)
            self.reads[node.source] += prod(
                int(step.extent)
                for step in self._loops
                if step.kind not in _IN_REGISTERS or step.loop_var in used
            )
        visitor.default_visit(node)

    def _store(self, node: Any, visitor: Any) -> Any:
        self._check_indices(node.buffer, node.indices)
        visitor.default_visit(node)

    def _check_indices(self, buffer: Any, indices: Any) -> None:
        across = any(isinstance(index, tirx.Ramp) for index in indices)
        if self._loops and not across:
            innermost = self._loops[-1].loop_var
            along, *others = (innermost in self._variables(i) for i in reversed(indices))
            across = any(others) and not along
        if across:
            self.opaque.add(buffer)

    def _variables(self, value: Any) -> set[Any]:
        """Return the loop variables that an expression depends on."""
        variables: set[Any] = set()

        def add(var: Any) -> None:
            variables.update(self._bound.get(var, {var}))

        structural_walk(value, (tirx.Var, add))
        return variables
