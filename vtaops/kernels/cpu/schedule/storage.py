"""16-bit arguments for any scheduled float32 kernel.

A value is widened on read and rounded on write. An argument that is read often, or by an intrinsic,
is first widened into a float32 buffer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import wraps
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import MatchBufferRegion, SBlockRealize
from tvm_ffi import StructuralKey, structural_visit, structural_walk

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.cpu.schedule.prologue import loop, rebuilt, redirected
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_ELEMENTS
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.storage import StoredOp, bits_dtype, rounded, widened

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
    def around(op: StoredOp, target: CpuTarget) -> Any:
        if op.dtype not in target.storage:
            raise UnsupportedError(
                f"{target.mcpu} has no instruction that converts {op.dtype} (F16C on x86); it "
                f"takes {', '.join(('float32', *target.storage))}"
            )
        return _around(schedule(op.op, target).mod["main"], op)

    return around


def _around(main: Any, op: StoredOp) -> Any:
    """Wrap the kernel of ``op.op`` in a schedule with the arguments of `op`."""
    found = _Uses(main.body)
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
        few = spec.name == op.packed or found.reads[buffer] <= _FEW_READS * prod(spec.shape)
        output = spec is specs[-1]
        if buffer not in found.opaque and few and not (output and found.reads[buffer]):
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
        found: set[Any] = set()

        def add(var: Any) -> None:
            found.update(self._bound.get(var, {var}))

        structural_walk(value, (tirx.Var, add))
        return found
