"""Parse flat TIR to a small tree of loops, virtual threads and leaf nests.

A leaf nest is a perfect nest around one statement: a copy between DRAM and a scratchpad, or an
intrinsic call. Only this module reads TIR; later steps see no TVM object, and passes over a tree
return a new one: nodes are frozen, so that a tree can be emitted more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call

from vtaops.base.errors import ScheduleError
from vtaops.lowering.parsing.expressions import NOTHING_FIXED, Expression, conjuncts, name_of
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp, Unit
from vtaops.schedule import intrinsics

PRODUCT_CALL = "vta.product"
"""``acc = inp @ wgt.T``: a one-step tile product with its reset."""

SCRATCHPAD_OF_SCOPE = {
    intrinsics.INP_SCOPE: "inp",
    intrinsics.WGT_SCOPE: "wgt",
    intrinsics.ACC_SCOPE: "acc",
    intrinsics.BIAS_SCOPE: "bias",
    intrinsics.SCALE_SCOPE: "scale",
}


@dataclass(frozen=True)
class TileBuffer:
    """A buffer that a leaf touches: in DRAM, or compacted in a scratchpad.

    Attributes
    ----------
    name : str
        Unique name.
    scratchpad : str
        ``"inp"``, ``"wgt"``, ``"acc"``, ``"bias"`` and ``"scale"`` (the halves of the parameters of
        POST), or ``""`` for DRAM.
    scalars : int
        Size in scalars.
    dtype : str
        Dtype of the scalars.
    """

    name: str
    scratchpad: str
    scalars: int
    dtype: str

    @property
    def memory(self) -> str:
        """The memory of the scratchpad, which may be half of it."""
        return "post" if self.scratchpad in ("bias", "scale") else self.scratchpad


@dataclass(frozen=True)
class Loop:
    """A loop variable with its extent; it counts from 0."""

    name: str
    extent: int


@dataclass(frozen=True)
class TileOperand:
    """An operand of an intrinsic: the tile that starts at scalar `offset` of `buffer`."""

    buffer: TileBuffer
    offset: Expression


@dataclass(frozen=True, eq=False)
class _Nest:
    """A perfect loop nest around one statement, executed if all `guards` hold."""

    loops: tuple[Loop, ...]
    guards: tuple[Expression, ...]
    operands: tuple[TileOperand, ...]
    """The destination, then the sources."""

    @property
    def dst(self) -> TileOperand:
        """The destination."""
        return self.operands[0]

    @property
    def read(self) -> set[str]:
        """Names of the buffers that it reads, except its destination."""
        return {operand.buffer.name for operand in self.operands} - {self.dst.buffer.name}


@dataclass(frozen=True, eq=False)
class CopyNest(_Nest):
    """``dst = src if inside else padding``, one scalar per iteration.

    Without a source it writes only padding: the tile lies entirely in the padding.
    """

    inside: Expression | None = None
    padding: int = 0

    @cached_property
    def loads(self) -> bool:
        """Whether the destination is a scratchpad."""
        return bool(self.dst.buffer.scratchpad)

    @cached_property
    def on_chip(self) -> TileOperand:
        """The operand in a scratchpad."""
        return self.operands[0 if self.loads else 1]

    @cached_property
    def dram(self) -> TileOperand | None:
        """The operand in DRAM, if any."""
        return next((side for side in self.operands if not side.buffer.scratchpad), None)

    @property
    def unit(self) -> Unit:
        """The unit that executes it."""
        if not self.loads:
            return Unit.STORE
        return Unit.COMPUTE if self.dst.buffer.scratchpad == "acc" else Unit.LOAD


@dataclass(frozen=True, eq=False)
class CallNest(_Nest):
    """One intrinsic call; see `vtaops.schedule.intrinsics` for names and operands."""

    call: str
    alu_op: int | None = None
    imm: int | None = None
    scaling: tuple[int, ...] = ()
    """For a requantization: zero point and bounds."""

    @property
    def unit(self) -> Unit:
        return Unit.COMPUTE


@dataclass(frozen=True, eq=False)
class LoopNode:
    """A loop around several statements."""

    loop: Loop
    body: tuple[Node, ...]
    threads: bool = False
    """Whether its iterations are virtual threads: each statement is executed for all of them."""


LeafNest = CopyNest | CallNest
Node = LoopNode | LeafNest
Rewrite = Callable[[tuple[Node, ...]], Iterable[Node]]


@dataclass(frozen=True)
class Tree:
    """A parsed function.

    Attributes
    ----------
    body : tuple of Node
        Its statements.
    allocations : tuple of TileBuffer
        Its scratchpad buffers in order of allocation.
    """

    body: tuple[Node, ...]
    allocations: tuple[TileBuffer, ...]

    def rewritten(self, rewrite: Rewrite) -> Tree:
        """Apply `rewrite` to each list of statements, innermost first; return the new function."""
        return replace(self, body=_rewritten(self.body, rewrite))


def _rewritten(nodes: tuple[Node, ...], rewrite: Rewrite) -> tuple[Node, ...]:
    inner = (
        replace(node, body=_rewritten(node.body, rewrite)) if isinstance(node, LoopNode) else node
        for node in nodes
    )
    return tuple(rewrite(tuple(inner)))


def placed_leaves(
    nodes: Iterable[Node], outer: tuple[Loop, ...] = ()
) -> Iterator[tuple[tuple[Loop, ...], LeafNest]]:
    """Iterate over all leaf nests in program order, each with the loops around it."""
    for node in nodes:
        if isinstance(node, LoopNode):
            yield from placed_leaves(node.body, (*outer, node.loop))
        else:
            yield outer, node


def leaves(nodes: Iterable[Node]) -> Iterator[LeafNest]:
    """Iterate over all leaf nests of a tree, in program order."""
    return (leaf for _, leaf in placed_leaves(nodes))


def parse(function: tirx.PrimFunc, config: HardwareConfig) -> Tree:
    """Parse the flat TIR of a scheduled operator."""
    allocations: list[TileBuffer] = []
    body = tuple(_statements(function.body, allocations, config))
    return Tree(body, tuple(allocations))


def _statements(stmt: Any, allocations: list[TileBuffer], config: HardwareConfig) -> Iterator[Node]:
    """Yield the nodes of a statement; append the buffers that it allocates."""
    if isinstance(stmt, tirx.SeqStmt):
        for child in stmt.seq:
            yield from _statements(child, allocations, config)
    elif isinstance(stmt, tirx.AllocBuffer):
        allocations.append(_tile_buffer(stmt.buffer))
    elif _is_thread(stmt):
        loop = Loop(name_of(stmt.node.var), int(stmt.value))
        yield LoopNode(loop, tuple(_statements(stmt.body, allocations, config)), threads=True)
    elif (leaf := _leaf(stmt, config)) is not None:
        yield leaf
    elif isinstance(stmt, tirx.For):
        loop = Loop(name_of(stmt.loop_var), int(stmt.extent))
        yield LoopNode(loop, tuple(_statements(stmt.body, allocations, config)))
    elif isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        guards = tuple(conjuncts(stmt.condition))
        for node in _statements(stmt.then_case, allocations, config):
            yield _guarded(node, guards)
    elif not isinstance(stmt, tirx.DeclBuffer):
        raise ScheduleError(f"VTA has no instruction for this {type(stmt).__name__}:\n{stmt}")


def _is_thread(stmt: Any) -> bool:
    """Whether a statement binds a loop to a virtual thread."""
    return isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == "thread_extent"


def _guarded(node: Node, guards: tuple[Expression, ...]) -> Node:
    if isinstance(node, LoopNode):
        return replace(node, body=tuple(_guarded(inner, guards) for inner in node.body))
    return replace(node, guards=guards + node.guards)


def _leaf(stmt: Any, config: HardwareConfig) -> LeafNest | None:
    """Return `stmt` as a leaf nest, or None if it contains several statements."""
    loops: list[Loop] = []
    guards: list[Expression] = []
    while isinstance(stmt, tirx.For | tirx.IfThenElse):
        if isinstance(stmt, tirx.For):
            if loops and intrinsics.DMA_COPY in stmt.annotations:
                return None  # one transfer per iteration of the loops outside the mark
            loops.append(Loop(name_of(stmt.loop_var), int(stmt.extent)))
            stmt = stmt.body
        else:
            guards += conjuncts(stmt.condition)
            stmt = stmt.then_case
    if isinstance(stmt, tirx.SeqStmt):
        return _product(stmt, loops, guards, config)
    if isinstance(stmt, tirx.BufferStore) and isinstance(stmt.value, tirx.Max):
        return _maximum(stmt, loops, guards, config)
    if isinstance(stmt, tirx.BufferStore):
        return _copy(stmt, loops, guards)
    if isinstance(stmt, tirx.Evaluate):
        return _call(stmt.value, loops, guards)
    return None


def _copy(stmt: Any, loops: list[Loop], guards: list[Expression]) -> CopyNest:
    value, inside, padding = stmt.value, None, 0
    operands = [_operand(stmt.buffer, stmt.indices[0])]
    if isinstance(value, tirx.Cast):
        value = value.value
    if isinstance(value, Call):  # if_then_else(inside, load, padding)
        condition, value, outside = value.args
        inside, padding = Expression(condition), int(outside.value)
    if isinstance(value, tirx.IntImm):
        inside, padding = None, int(value.value)
    elif hasattr(value, "source"):
        operands.append(_operand(value.source, value.indices[0]))
    else:
        raise ScheduleError(f"neither a copy nor tensorized:\n{stmt}")
    return CopyNest(tuple(loops), tuple(guards), tuple(operands), inside, padding)


def _product(
    stmt: Any, loops: list[Loop], guards: list[Expression], config: HardwareConfig
) -> CallNest | None:
    """Parse a one-step product that TVM could not tensorize.

    ``if k == 0: acc[i, c] = 0`` followed by ``acc[i, c] += inp[i, k] * wgt[c, k]``; the innermost
    loops run over the lanes of a tile and are dropped.
    """
    if len(stmt.seq) != 2 or not isinstance(stmt.seq[1], tirx.BufferStore):
        return None
    store, value = stmt.seq[1], stmt.seq[1].value
    if not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return None
    accesses = [(store.buffer, store.indices[0])]
    for factor in (value.b.a, value.b.b):
        load = factor.value  # inside a cast to int32
        accesses.append((load.source, load.indices[0]))
    nest = _of_tiles(PRODUCT_CALL, accesses, loops, guards, 2 + (config.batch > 1))
    assert [o.buffer.scratchpad for o in nest.operands] == ["acc", "inp", "wgt"]
    return nest


def _maximum(
    stmt: Any, loops: list[Loop], guards: list[Expression], config: HardwareConfig
) -> CallNest:
    """Parse a maximum of two tiles that TVM could not tensorize because tiles overlap."""
    accesses = [(stmt.buffer, stmt.indices[0])]
    accesses += [(load.source, load.indices[0]) for load in (stmt.value.a, stmt.value.b)]
    nest = _of_tiles(intrinsics.ALU_CALL, accesses, loops, guards, 1 + (config.batch > 1))
    return replace(nest, alu_op=int(AluOp.MAX))


def _of_tiles(
    call: str, accesses: list[Any], loops: list[Loop], guards: list[Expression], lanes: int
) -> CallNest:
    """Replace the `lanes` innermost loops, over lanes, by a call on whole tiles.

    TVM drops the loop over the rows of a one-row tile.
    """
    at_first_lane = dict.fromkeys((loop.name for loop in loops[-lanes:]), 0)
    operands = tuple(_operand(buffer, index, at_first_lane) for buffer, index in accesses)
    return CallNest(tuple(loops[:-lanes]), tuple(guards), operands, call)


def _call(call: Any, loops: list[Loop], guards: list[Expression]) -> CallNest:
    name, *arguments = call.args
    alu_op = imm = None
    scaling: tuple[int, ...] = ()
    if name.value == intrinsics.ALU_CALL:
        alu_op = int(arguments.pop(0))
    if name.value == intrinsics.REQUANTIZE_CALL:
        scaling = tuple(int(number) for number in arguments[:4])
        del arguments[:4]
    if isinstance(arguments[-1], tirx.IntImm):
        imm = int(arguments.pop())
    operands = tuple(map(_pointed, arguments))
    if name.value == intrinsics.GEMM_CALL:
        assert [o.buffer.scratchpad for o in operands] == ["acc", "inp", "wgt"]
    return CallNest(tuple(loops), tuple(guards), operands, str(name.value), alu_op, imm, scaling)


def _pointed(pointer: Any) -> TileOperand:
    """Return the operand of tvm_access_ptr(type, buffer.data, offset, extent, mask)."""
    _, data, offset, *_ = pointer.args
    return _operand(data.args[0], offset)


def _operand(buffer: Any, index: Any, fixed: Mapping[str, int] = NOTHING_FIXED) -> TileOperand:
    return TileOperand(_tile_buffer(buffer), Expression(index, fixed))


def _tile_buffer(buffer: Any) -> TileBuffer:
    scratchpad = SCRATCHPAD_OF_SCOPE.get(buffer.scope(), "")
    return TileBuffer(buffer.name, scratchpad, prod(map(int, buffer.shape)), str(buffer.dtype))
