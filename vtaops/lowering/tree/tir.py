"""Parse the flat TIR of a schedule to a tree, or say why VTA cannot execute it.

Each statement must be a copy between DRAM and a scratchpad (LOAD, STORE), or an intrinsic (GEMM,
ALU). A refusal names the block (`vtaops.schedule.flatten.named`) and a remedy. Index expressions
become Python, whatever divisions and bounds TVM leaves in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call

from vtaops.base.errors import ScheduleError
from vtaops.lowering.tree.expressions import Expression
from vtaops.lowering.tree.nodes import (
    CallNest,
    CopyNest,
    LeafNest,
    Loop,
    LoopNode,
    Node,
    TileBuffer,
    TileOperand,
    Tree,
    grid_of,
    leaves,
)
from vtaops.lowering.tree.preserve import preserve_operands
from vtaops.machine.config import LEAST, HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.machine.layout import Layout
from vtaops.ops.declarations import lane_meaning
from vtaops.program import Buffer, Role
from vtaops.schedule.calls import (
    ACC_SCOPE,
    ALU_CALL,
    DMA_COPY,
    GEMM_CALL,
    INP_SCOPE,
    RESET_CALL,
    VTHREAD,
    WGT_SCOPE,
)
from vtaops.schedule.flatten import BLOCK

_SCRATCHPADS = {
    INP_SCOPE: "inp",
    WGT_SCOPE: "wgt",
    ACC_SCOPE: "acc",
    "global": "",
    "": "",
}
_KINDS = {1: "parallel", 2: "vectorized"}
_INSTEAD_OF_SUB = (
    "VTA cannot subtract tensors; multiply one with -1 on the way (a weight of -1)",
    "VTA adds: declare x + (-y), which is vta.alu(config, 'add', -y)",
)
"""For tensors, and for an immediate."""


def parse(function: tirx.PrimFunc, config: HardwareConfig) -> Tree:
    """Parse the flat TIR of a schedule.

    Raises
    ------
    ScheduleError
        If VTA cannot execute it; the message names the block, its statement, and a remedy.
    """
    parser = _Parser(config, {str(parameter.name) for parameter in function.params})
    body = tuple(parser.statements(function.body))
    tree = Tree(body, tuple(parser.allocations), parser.threads)
    parser.check_padding(tree)
    return preserve_operands(tree)


def arguments(function: tirx.PrimFunc, written: set[str]) -> tuple[Buffer, ...]:
    """Return the arguments of a function, packed as declared, of which some are written.

    Raises
    ------
    ScheduleError
        If one is no tensor or has an unknown shape.
    """
    found = []
    for parameter in function.params:
        name, kind = str(parameter.name), parameter.ty
        _require(hasattr(kind, "shape"), f"parameter {name} is a {kind}; a program takes tensors")
        shape = tuple(_extent(f"parameter {name}", kind.shape, each) for each in kind.shape)
        role = Role.OUTPUT if name in written else Role.INPUT
        layout = Layout(ascii_uppercase[: len(shape)])
        found.append(Buffer(name, role, shape, str(kind.dtype), layout))
    return tuple(found)


def _extent(what: str, shown: Any, extent: Any) -> int:
    _require(
        isinstance(extent, tirx.IntImm),
        f"{what} has the extent {shown}; shapes must be known when a program is built",
    )
    return int(extent)


def _require(right: object, reason: str) -> None:
    """Reject the schedule for a reason unless a condition holds."""
    if not right:
        raise ScheduleError(reason)


def _block_of(stmt: Any) -> str:
    """Return the name of the first block of a statement."""
    while not (isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == BLOCK):
        if isinstance(stmt, tirx.SeqStmt):
            return next(filter(None, map(_block_of, stmt.seq)), "")
        stmt = getattr(stmt, "then_case", None) or getattr(stmt, "body", None)
        if stmt is None:
            return ""
    return str(stmt.value.value)


class _Parser:
    """A walk over statements, with the block, the loops and the virtual thread around them.

    Attributes
    ----------
    allocations : list of TileBuffer
        The buffers that statements allocate, in order.
    threads : int
        The virtual threads.
    """

    def __init__(self, config: HardwareConfig, parameters: set[str]) -> None:
        self.allocations: list[TileBuffer] = []
        self.threads = 1
        self._config, self._parameters = config, parameters
        self._name = self._thread = ""
        self._loops: list[Loop] = []
        self._lanes: list[str] = []
        """The loops over the lanes of the last copy."""
        self._marked: set[Node] = set()
        """The copies whose loops end at a mark: one transfer per iteration of those outside."""
        self._users: dict[str, tuple[str, str]] = {}
        """The thread and the block that first use each tile."""

    @property
    def _block(self) -> str:
        return f"block {self._name!r}"

    def statements(self, stmt: Any) -> list[Node]:
        """Return the nodes of a statement."""
        if isinstance(stmt, tirx.SeqStmt):
            self._check_is_no_sum(stmt)
            return [node for child in stmt.seq for node in self.statements(child)]
        if isinstance(stmt, tirx.For):
            return [self._loop(stmt)]
        if isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
            guards = tuple(conjuncts(stmt.condition))
            return [_guarded(node, guards) for node in self.statements(stmt.then_case)]
        if isinstance(stmt, tirx.AttrStmt):
            return self._attribute(stmt)
        return self._leaf(stmt)

    def _leaf(self, stmt: Any) -> list[Node]:
        """Parse a copy, a call or a declaration."""
        if isinstance(stmt, tirx.BufferStore | tirx.Evaluate):
            evaluates = isinstance(stmt, tirx.Evaluate)
            leaf = self._call(stmt.value) if evaluates else self._copy(stmt)
            self._check_thread(leaf)
            return [leaf]
        if isinstance(stmt, tirx.AllocBuffer):
            self.allocations.append(_tile_buffer(stmt.buffer, self._lanes_in(stmt.buffer)))
        elif not isinstance(stmt, tirx.DeclBuffer):
            raise ScheduleError(f"VTA has no instruction for this {type(stmt).__name__}:\n{stmt}")
        return []

    def _attribute(self, stmt: Any) -> list[Node]:
        """Parse what belongs to a block, or a loop that is bound to virtual threads."""
        if stmt.attr_key == "thread_extent":
            return [self._threads(stmt)]
        if stmt.attr_key == BLOCK:
            self._name = str(stmt.value.value)
        return self.statements(stmt.body)

    def _inside(self, loop: Loop, stmt: Any) -> tuple[Node, ...]:
        """Return the nodes of a statement inside a loop."""
        self._loops.append(loop)
        nodes = tuple(self.statements(stmt))
        self._loops.pop()
        return nodes

    def _loop(self, stmt: Any) -> Node:
        """Parse a loop of the only leaf in it, or around several statements."""
        name, block = f"loop {stmt.loop_var.name}", _block_of(stmt) or self._name
        _require(
            int(stmt.kind) not in _KINDS,
            f"{name} of block {block!r} is {_KINDS.get(int(stmt.kind))}; VTA runs loops in order "
            f"and lanes by intrinsics: leave it serial, or tensorize it",
        )
        loop = Loop(name_of(stmt.loop_var), _extent(name, stmt.extent, stmt.extent))
        nodes, marks = self._inside(loop, stmt.body), DMA_COPY in stmt.annotations
        (leaf,) = nodes if len(nodes) == 1 and nodes[0] not in self._marked else (None,)
        _require(
            not marks or isinstance(leaf, CopyNest),
            f"{name} is marked as a copy (vta.dma_copy) and holds block {block!r}, which is no "
            f"copy; mark a loop that holds one copy and nothing else",
        )
        if not isinstance(leaf, LeafNest):
            return LoopNode(loop, nodes)
        _require(
            not marks or loop.name not in self._lanes[1:],
            f"block {block!r} is marked as a copy at {name}, inside a tile of lanes; mark a loop "
            f"outside of the lanes",
        )
        if loop.name in self._lanes:
            leaf = replace(leaf, guards=tuple(_without(g, {loop.name}) for g in leaf.guards))
        else:
            leaf = replace(leaf, loops=(loop, *leaf.loops))
        if marks:
            self._marked.add(leaf)
        return leaf

    def _threads(self, stmt: Any) -> LoopNode:
        """Parse a loop that is bound to virtual threads."""
        tag, block = str(stmt.node.thread_tag), _block_of(stmt)
        _require(
            tag == VTHREAD,
            f"a loop around block {block!r} is bound to {tag!r}; VTA has virtual threads alone: "
            f"s.bind(loop, vta.vthread)",
        )
        _require(
            not self._thread,
            f"loops around block {block!r} are both bound to virtual threads; fuse them and bind "
            f"the result: s.bind(s.fuse(a, b), vta.vthread)",
        )
        loop = Loop(name_of(stmt.node.var), int(stmt.value))
        self._thread, self.threads = loop.name, max(self.threads, loop.extent)
        body = self._inside(loop, stmt.body)
        self._thread = ""
        return LoopNode(loop, body, threads=True)

    def _check_thread(self, leaf: LeafNest) -> None:
        """Require that tiles, which belong to a virtual thread, are filled and read in its loop."""
        for buffer in (operand.buffer for operand in leaf.operands if operand.buffer.scratchpad):
            thread, user = self._users.setdefault(buffer.name, (self._thread, self._name))
            outside, inside = (self._name, user) if thread else (user, self._name)
            _require(
                thread == self._thread,
                f"block {outside!r} stands outside of the loop of virtual threads in which "
                f"{inside!r} uses the same tile ({_plain(buffer)}); each thread has its own "
                f"tiles: compute it inside the loop",
            )

    def check_padding(self, tree: Tree) -> None:
        """Check padding: LOAD pads with zeros; other values are valid only before a maximum."""
        nests = [*leaves(tree.body)]
        for load in nests:
            if isinstance(load, CopyNest) and load.padding:
                name = load.dst.buffer.name
                _require(
                    load.padding == LEAST and _feeds_maxima(name, nests),
                    f"block {self._users[name][1]!r} pads with {load.padding}; LOAD pads with "
                    f"zeros (and with {LEAST} where only maxima read the result)",
                )

    # ------------------------------------------------------------------------- leaf nests

    def _copy(self, stmt: Any) -> CopyNest:
        """Parse a copy, with the loops over the lanes of its tiles."""
        target = stmt.buffer
        self._check_target(target)
        value, condition, padding = _selected(stmt.value)
        sides = [(target, stmt.indices[0])]
        if isinstance(value, tirx.IntImm) and isinstance(stmt.value, Call):
            condition, padding = None, int(value.value)  # all of the tile is padding
        elif hasattr(value, "source"):
            self._check_source(value.source, target)
            sides.append((value.source, value.indices[0]))
        else:
            text = f"`{_plain(target)}[...] = {_text(stmt.value)}`"
            raise ScheduleError(
                f"{self._block} is not tensorized: {text}; {_advice(self._name, stmt.value)}"
            )
        lanes = self._lanes_in(target)
        over = self._over(lanes)
        operands = tuple(self._operand(*side, lanes, over) for side in sides)
        inside = None
        if condition is not None:
            inside = _without(expression(condition), over.keys())
        return CopyNest((), (), operands, inside, padding)

    def _lanes_in(self, buffer: Any) -> int:
        """Return the scalars of a tile of a buffer; DRAM takes those of accumulators."""
        lanes: int = getattr(self._config, _memory(buffer) or "acc").lanes
        return lanes

    def _over(self, lanes: int) -> dict[str, int]:
        """Return the innermost loops, over the lanes of a tile, with their last iterations."""
        scalars, cut = 1, len(self._loops)
        while scalars < lanes and cut:
            cut -= 1
            scalars *= self._loops[cut].extent
        _require(
            scalars == lanes,
            f"{self._block} copies {scalars} scalars in its innermost loops; {self._config.name} "
            f"moves whole tiles of {lanes}: do not cut or fuse the loops over lanes, and declare "
            f"tensors for this configuration",
        )
        self._lanes = [loop.name for loop in self._loops[cut:]]
        return {loop.name: loop.extent - 1 for loop in self._loops[cut:]}

    def _operand(
        self, buffer: Any, index: Any, lanes: int, over: Mapping[str, int] = MappingProxyType({})
    ) -> TileOperand:
        """Return an operand of whole tiles, over whose lanes some loops run."""
        offset = expression(index)
        point = grid_of(self._loops)
        first, last = (offset({**point, **lane}) for lane in (dict.fromkeys(over, 0), over))
        _require(
            np.all(last - first == (lanes - 1 if over else 0)) and not np.any(first % lanes),
            f"{self._block} crosses lanes in {_plain(buffer)}: the {lanes} scalars of a tile lie "
            f"side by side, in order, and VTA moves and computes whole tiles",
        )
        source = f"({_without(offset, over.keys()).source}) // {lanes}"
        tile = Expression(source, offset.names - over.keys(), offset.affine)
        return TileOperand(_tile_buffer(buffer, lanes), tile)

    def _check_target(self, target: Any) -> None:
        scope, memory = str(target.scope()), _memory(target)
        _require(
            scope in _SCRATCHPADS,
            f"{self._block} writes {_plain(target)} in scope {scope!r}; VTA has vta.inp_scope, "
            f"vta.wgt_scope and vta.acc_scope",
        )
        wanted = "acc_scope" if str(target.dtype) == "int32" else "inp_scope"
        _require(
            memory or str(target.name) in self._parameters,
            f"{self._block} writes {_plain(target)} in DRAM, which is not an argument; keep it on "
            f"chip: s.set_scope(s.get_sblock({self._name!r}), 0, vta.{wanted})",
        )
        dtype = "int32" if memory == "acc" else "int8"
        _require(
            str(target.dtype) == dtype,
            f"{self._block} writes {target.dtype} to {_where(memory)}, which holds {dtype}; VTA "
            f"multiplies int8, adds int32 and stores int8",
        )

    def _check_source(self, source: Any, target: Any) -> None:
        memory, origin = _memory(target), _memory(source)
        _require(
            not (origin and memory),
            f"{self._block} copies {_plain(source)} from {_where(origin)} to {_where(memory)}; no "
            f"instruction does (within acc: vta.alu(config, 'add', 0))",
        )
        _require(
            origin or memory,
            f"{self._block} copies DRAM to DRAM; stage it on chip: set a scope of the block "
            f"between, for example vta.inp_scope",
        )
        _require(
            memory or origin == "acc",
            f"{self._block} stores from {_where(origin)}; STORE reads the accumulators alone",
        )
        allowed = ("int8",) if memory in ("inp", "wgt") else ("int8", "int32")
        _require(
            str(source.dtype) in allowed,
            f"{self._block} loads {source.dtype} into {_where(memory)}; it takes "
            f"{' or '.join(allowed)}",
        )

    def _check_is_no_sum(self, stmt: Any) -> None:
        """Refuse a sum that resets its accumulators in its first iteration."""
        first, last = stmt.seq[0], stmt.seq[-1]
        reset = getattr(first, "then_case", None)
        _require(
            not isinstance(reset, tirx.BufferStore) or not isinstance(last, tirx.BufferStore),
            f"{self._block} still holds its reset: `{_text(last)}`; split it off with "
            f"s.decompose_reduction(s.get_sblock({self._name!r}), loop), loop being the outermost "
            f"of the sum, and tensorize both parts",
        )

    def _call(self, call: Any) -> CallNest:
        """Parse the call of an intrinsic."""
        name, *arguments = call.args if isinstance(call, Call) and call.args else (call,)
        kind = str(getattr(name, "value", name))
        _require(
            kind in (GEMM_CALL, RESET_CALL, ALU_CALL),
            f"{self._block} calls {kind}; VTA has vta.gemm, vta.reset and vta.alu",
        )
        alu_op = imm = None
        if kind == ALU_CALL:
            alu_op = int(arguments.pop(0))
        if isinstance(arguments[-1], tirx.IntImm):
            imm = int(arguments.pop())
        operands = tuple(map(self._pointed, arguments))
        return CallNest((), (), operands, kind, alu_op, imm)

    def _pointed(self, pointer: Any) -> TileOperand:
        """Return the operand of tvm_access_ptr(type, buffer.data, offset, extent, mask)."""
        _, data, offset, extent, _ = pointer.args
        memory = _memory(data.args[0])
        lanes = getattr(self._config, memory).lanes if memory else 0
        _require(
            int(extent) == lanes,
            f"{self._block} was tensorized for tiles of {extent} scalars in {memory or 'DRAM'}; "
            f"those of {self._config.name} have {lanes}: make the intrinsic for this "
            f"configuration",
        )
        return self._operand(data.args[0], offset, lanes)


def _selected(value: Any) -> tuple[Any, Any, int]:
    """Return what a copy reads, the condition that it does so, if any, and else the padding."""
    inner, condition, padding = _uncast(value), None, 0
    if isinstance(inner, Call) and len(inner.args) == 3:  # if_then_else(inside, load, padding)
        condition, inner, outside = inner.args
        if not isinstance(outside, tirx.IntImm):
            return value, None, 0
        padding = int(outside.value)
    return _uncast(inner), condition, padding


def _uncast(value: Any) -> Any:
    return value.value if isinstance(value, tirx.Cast) else value


def _guarded(node: Node, guards: tuple[Expression, ...]) -> Node:
    if isinstance(node, LoopNode):
        return replace(node, body=tuple(_guarded(inner, guards) for inner in node.body))
    return replace(node, guards=guards + node.guards)


def _without(expression: Expression, names: Set[str]) -> Expression:
    """Return an expression where some variables, over lanes, are 0."""
    if not expression.names & names:
        return expression
    source = re.sub(r"\w+", lambda word: "0" if word[0] in names else word[0], expression.source)
    return Expression(source, expression.names - names, expression.affine)


def _tile_buffer(buffer: Any, lanes: int) -> TileBuffer:
    scalars = prod(_extent(f"buffer {buffer.name}", buffer.shape, n) for n in buffer.shape)
    return TileBuffer(buffer.name, _memory(buffer), scalars // lanes, str(buffer.dtype))


def _memory(buffer: Any) -> str:
    return _SCRATCHPADS.get(str(buffer.scope()), "")


def _where(memory: str) -> str:
    return f"the {memory} scratchpad" if memory else "DRAM"


def _plain(buffer: Any) -> str:
    """Return a buffer's declared name."""
    return str(buffer.name).split("_local.")[0]


def _text(value: Any) -> str:
    """Return an expression in the user's notation, on one line."""
    text = str(value).splitlines()[-1].replace("_local_acc_buffer", "")
    return text if len(text) < 100 else text[:97] + "..."


def _advice(name: str, value: Any) -> str:
    """Suggest the intrinsic that computes a value, or say that none does."""

    def write(intrinsic: str) -> str:
        return f"write vta.tensorize(s, {name!r}, {intrinsic})"

    if isinstance(value, tirx.IntImm):
        at = f", {value.value}" if value.value else ""
        return f"this is a reset: {write(f'vta.reset(config{at})')}"
    if isinstance(value, tirx.Add) and isinstance(value.b, tirx.Mul):
        return write("vta.gemm(config)")
    operand = getattr(value, "b", None)
    if isinstance(value, tirx.LShift) and isinstance(operand, tirx.IntImm):
        return write(f"vta.alu(config, 'shr', {-int(operand.value)})")
    if isinstance(value, tirx.Sub):
        return _INSTEAD_OF_SUB[isinstance(operand, tirx.IntImm)]
    if (op := _alu_op(value)) is None:
        return (
            "the ALU adds, multiplies, shifts to the right, and takes minima and maxima: declare "
            "it as stages of these"
        )
    second = f", {operand.value}" if isinstance(operand, tirx.IntImm) else ""
    return write(f"vta.alu(config, '{op.name.lower()}'{second})")


def _alu_op(value: Any) -> AluOp | None:
    """Return the ALU's operation of an expression's class."""
    x, y = tirx.Var("x", "int32"), tirx.Var("y", "int32")
    return next((op for op in AluOp if type(lane_meaning(op, x, y)) is type(value)), None)


def _feeds_maxima(name: str, nests: list[LeafNest]) -> bool:
    """Whether only tile maxima read the values computed from a buffer."""
    made = {nest.dst.buffer.name for nest in nests if name in nest.read} - {name}
    readers = [nest for nest in nests if made & nest.read and isinstance(nest, CallNest)]
    stages = [nest for nest in readers if nest.call != GEMM_CALL]
    return bool(stages) and all(_takes_maximum(nest, made) for nest in stages)


def _takes_maximum(nest: CallNest, made: set[str]) -> bool:
    """Whether a call is a maximum of two tiles, or one of its first two is all that it reads."""
    second = {operand.buffer.name for operand in nest.operands[2:]}
    maximum = nest.call == ALU_CALL and len(nest.operands) == 3 and nest.alu_op == AluOp.MAX
    return maximum or not made & second


# ------------------------------------------------------------------------- expressions

_BINARY = {
    "Add": "({} + {})",
    "Sub": "({} - {})",
    "Mul": "({} * {})",
    "FloorDiv": "({} // {})",
    "FloorMod": "({} % {})",
    "LT": "({} < {})",
    "LE": "({} <= {})",
    "GT": "({} > {})",
    "GE": "({} >= {})",
    "EQ": "({} == {})",
    "NE": "({} != {})",
    "And": "({} & {})",
    "Or": "({} | {})",
    "Min": "minimum({}, {})",
    "Max": "maximum({}, {})",
}
_ALL_BITS = (1 << 64) - 1  # of a hash: the address of the variable


def expression(expr: Any) -> Expression:
    """Compile a TIR expression."""
    names: set[str] = set()
    source = _source(expr, names)
    return Expression(source, names, not re.search("//|[%<>=&,]", source))


def name_of(variable: tirx.Var) -> str:
    """Return a unique name for a variable; TVM reuses names in nested loops."""
    return f"{variable.name}_{hash(variable) & _ALL_BITS:x}"


def conjuncts(condition: Any) -> list[Expression]:
    """Return the terms of a conjunction."""
    if isinstance(condition, tirx.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [expression(condition)]


def _source(expr: Any, names: set[str]) -> str:
    kind = type(expr).__name__
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, tirx.Var):
        name = name_of(expr)
        names.add(name)
        return name
    if isinstance(expr, tirx.Cast):
        return _source(expr.value, names)
    if kind not in _BINARY:
        raise ScheduleError(f"TIR expression {kind}: {expr}")
    a, b = (_source(operand, names) for operand in (expr.a, expr.b))
    return _BINARY[kind].format(a, b)
