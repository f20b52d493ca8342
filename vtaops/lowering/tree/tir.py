"""Parse the flat TIR of a schedule to a tree.

Index expressions become Python, whatever divisions and bounds TVM leaves in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any

from tvm import tirx
from tvm.ir import Call

from vtaops.base.errors import ScheduleError
from vtaops.lowering.tree.expressions import Expression
from vtaops.lowering.tree.nodes import (
    PRODUCT_CALL,
    CallNest,
    CopyNest,
    LeafNest,
    Loop,
    LoopNode,
    Node,
    TileBuffer,
    TileOperand,
    Tree,
)
from vtaops.machine.config import HardwareConfig
from vtaops.schedule.calls import (
    ACC_SCOPE,
    ALU_CALL,
    BIAS_SCOPE,
    DMA_COPY,
    GEMM_CALL,
    INP_SCOPE,
    REQUANTIZE_CALL,
    SCALE_SCOPE,
    WGT_SCOPE,
)

NOTHING_FIXED: Mapping[str, int] = MappingProxyType({})

SCRATCHPAD_OF_SCOPE = {
    INP_SCOPE: "inp",
    WGT_SCOPE: "wgt",
    ACC_SCOPE: "acc",
    BIAS_SCOPE: "bias",
    SCALE_SCOPE: "scale",
}


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
            if loops and DMA_COPY in stmt.annotations:
                return None  # one transfer per iteration of the loops outside the mark
            loops.append(Loop(name_of(stmt.loop_var), int(stmt.extent)))
            stmt = stmt.body
        else:
            guards += conjuncts(stmt.condition)
            stmt = stmt.then_case
    if isinstance(stmt, tirx.SeqStmt):
        return _product(stmt, loops, guards, config)
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
        inside, padding = expression(condition), int(outside.value)
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
    # TVM drops the loop over the rows of a one-row tile.
    lanes = 2 + (config.batch > 1)
    at_first_lane = dict.fromkeys((loop.name for loop in loops[-lanes:]), 0)
    operands = tuple(_operand(buffer, index, at_first_lane) for buffer, index in accesses)
    assert [o.buffer.scratchpad for o in operands] == ["acc", "inp", "wgt"]
    return CallNest(tuple(loops[:-lanes]), tuple(guards), operands, PRODUCT_CALL)


def _call(call: Any, loops: list[Loop], guards: list[Expression]) -> CallNest:
    name, *arguments = call.args
    alu_op = imm = None
    scaling: tuple[int, ...] = ()
    if name.value == ALU_CALL:
        alu_op = int(arguments.pop(0))
    if name.value == REQUANTIZE_CALL:
        scaling = tuple(int(number) for number in arguments[:4])
        del arguments[:4]
    if isinstance(arguments[-1], tirx.IntImm):
        imm = int(arguments.pop())
    operands = tuple(map(_pointed, arguments))
    if name.value == GEMM_CALL:
        assert [o.buffer.scratchpad for o in operands] == ["acc", "inp", "wgt"]
    return CallNest(tuple(loops), tuple(guards), operands, str(name.value), alu_op, imm, scaling)


def _pointed(pointer: Any) -> TileOperand:
    """Return the operand of tvm_access_ptr(type, buffer.data, offset, extent, mask)."""
    _, data, offset, *_ = pointer.args
    return _operand(data.args[0], offset)


def _operand(buffer: Any, index: Any, fixed: Mapping[str, int] = NOTHING_FIXED) -> TileOperand:
    return TileOperand(_tile_buffer(buffer), expression(index, fixed))


def _tile_buffer(buffer: Any) -> TileBuffer:
    scratchpad = SCRATCHPAD_OF_SCOPE.get(buffer.scope(), "")
    return TileBuffer(buffer.name, scratchpad, prod(map(int, buffer.shape)), str(buffer.dtype))


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


def expression(expr: Any, fixed: Mapping[str, int] = NOTHING_FIXED) -> Expression:
    """Compile a TIR expression; variables in `fixed` are constants."""
    names: set[str] = set()
    source = _source(expr, names, fixed)
    return Expression(source, names, _is_affine(expr))


def name_of(variable: tirx.Var) -> str:
    """Return a unique name for a variable; TVM reuses names in nested loops."""
    return f"{variable.name}_{hash(variable) & _ALL_BITS:x}"


def conjuncts(condition: Any) -> list[Expression]:
    """Return the terms of a conjunction."""
    if isinstance(condition, tirx.And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    return [expression(condition)]


def _is_affine(expr: Any) -> bool:
    if isinstance(expr, tirx.IntImm | tirx.Var):
        return True
    if isinstance(expr, tirx.Cast):
        return _is_affine(expr.value)
    if isinstance(expr, tirx.Mul):
        return any(isinstance(factor, tirx.IntImm) for factor in (expr.a, expr.b)) and (
            _is_affine(expr.a) and _is_affine(expr.b)
        )
    return isinstance(expr, tirx.Add | tirx.Sub) and _is_affine(expr.a) and _is_affine(expr.b)


def _source(expr: Any, names: set[str], fixed: Mapping[str, int]) -> str:
    kind = type(expr).__name__
    if isinstance(expr, tirx.IntImm):
        return str(int(expr.value))
    if isinstance(expr, tirx.Var):
        name = name_of(expr)
        if name in fixed:
            return str(fixed[name])
        names.add(name)
        return name
    if isinstance(expr, tirx.Cast):
        return _source(expr.value, names, fixed)
    if kind not in _BINARY:
        raise ScheduleError(f"TIR expression {kind}: {expr}")
    a, b = (_source(operand, names, fixed) for operand in (expr.a, expr.b))
    return _BINARY[kind].format(a, b)
