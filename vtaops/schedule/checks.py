"""Diagnose errors in user-written schedules before lowering.

A scheduled function consists of blocks. Each must map to a VTA instruction: a copy between DRAM and
a scratchpad (LOAD, STORE), or an intrinsic (GEMM, ALU). `check` reports the first block that is
neither, with a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.s_tir import SBlock, SBlockRealize

from vtaops.base.errors import ScheduleError
from vtaops.machine.config import HardwareConfig
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
from vtaops.schedule.steps import loads

_MEMORY = {INP_SCOPE: "inp", WGT_SCOPE: "wgt", ACC_SCOPE: "acc", "global": "DRAM", "": "DRAM"}
_DTYPES = {"inp": "int8", "wgt": "int8", "acc": "int32"}
_KINDS = {1: "parallel", 2: "vectorized"}
_INSTEAD_OF_SUB = (
    "VTA cannot subtract tensors; multiply one with -1 on the way (a weight of -1)",
    "VTA adds: declare x + (-y), which is vta.alu(config, 'add', -y)",
)
"""For tensors, and for an immediate."""

_FOR_MAXIMA = -128
"""Padding that changes no maximum of int8 values."""


@dataclass(frozen=True)
class _Loop:
    """A loop around a block; the loops of a block are listed from outermost to innermost."""

    name: str
    extent: int
    thread: str
    kind: int
    marked: bool
    blocks: int

    @property
    def is_thread(self) -> bool:
        return self.thread == VTHREAD


@dataclass(frozen=True)
class _Site:
    """A block, its innermost statement and the loops around it."""

    name: str
    loops: tuple[_Loop, ...]
    statement: Any
    has_init: bool
    reduction: int
    aliases: dict[str, Any]

    @property
    def call(self) -> list[Any]:
        """Arguments of its intrinsic, name first; empty if none."""
        if not isinstance(self.statement, tirx.Evaluate):
            return []
        return list(self.statement.value.args)

    @property
    def target(self) -> Any:
        """The buffer that it stores to."""
        return self.statement.buffer

    @property
    def own(self) -> list[_Loop]:
        """The loops that contain no other block."""
        return [loop for loop in self.loops if loop.blocks == 1]


def check(function: tirx.PrimFunc, config: HardwareConfig) -> tuple[Buffer, ...]:
    """Reject a schedule that VTA cannot execute; return its arguments, packed as declared.

    Raises
    ------
    ScheduleError
        If so; the message names the block, its statement, and a remedy.
    """
    arguments = {str(parameter.name) for parameter in function.params}
    sites = list(_sites(function.body, ()))
    for site in sites:
        _check_loops(site)
        if site.call:
            _check_intrinsic(site, config)
        elif isinstance(site.statement, tirx.BufferStore):
            _check_store(site, arguments, config)
        else:
            raise ScheduleError(f"block {site.name!r} holds {site.statement}; VTA has no such step")
    written = {site.target.name for site in sites if not site.call} & arguments
    _require(
        written,
        f"no argument is written ({', '.join(sorted(arguments))}): a program stores its result in "
        f"DRAM, where te's last stage lies unless its scope was set",
    )
    _check_threads(sites)
    _check_padding(sites)
    return tuple(_argument(parameter, written) for parameter in function.params)


def _argument(parameter: Any, written: set[str]) -> Buffer:
    name, kind = str(parameter.name), parameter.ty
    _require(hasattr(kind, "shape"), f"parameter {name} is a {kind}; a program takes tensors")
    _require(
        all(isinstance(extent, tirx.IntImm) for extent in kind.shape),
        f"parameter {name} has the shape {list(kind.shape)}; shapes must be known when a program "
        f"is built",
    )
    shape = tuple(int(extent) for extent in kind.shape)
    role = Role.OUTPUT if name in written else Role.INPUT
    return Buffer(name, role, shape, str(kind.dtype), Layout(ascii_uppercase[: len(shape)]))


def _require(right: object, reason: str) -> None:
    """Reject the schedule for a reason unless a condition holds."""
    if not right:
        raise ScheduleError(reason)


def _sites(stmt: Any, loops: tuple[_Loop, ...]) -> Iterator[_Site]:
    """Yield the blocks of a statement."""
    if isinstance(stmt, SBlockRealize):
        yield from _sites_of_block(stmt.block, loops)
    elif isinstance(stmt, tirx.SeqStmt):
        for child in stmt.seq:
            yield from _sites(child, loops)
    elif isinstance(stmt, tirx.For):
        binding = stmt.thread_binding
        loop = _Loop(
            name=str(stmt.loop_var.name),
            extent=_extent(stmt),
            thread=str(binding.thread_tag) if binding is not None else "",
            kind=int(stmt.kind),
            marked=DMA_COPY in stmt.annotations,
            blocks=sum(1 for _ in blocks(stmt.body)),
        )
        yield from _sites(stmt.body, (*loops, loop))
    elif isinstance(stmt, tirx.IfThenElse):
        yield from _sites(stmt.then_case, loops)


def _sites_of_block(block: SBlock, loops: tuple[_Loop, ...]) -> Iterator[_Site]:
    if block.name_hint == "root":
        yield from _sites(block.body, loops)
        return
    statement = block.body
    while isinstance(statement, tirx.For | tirx.IfThenElse):
        statement = statement.body if isinstance(statement, tirx.For) else statement.then_case
    if isinstance(statement, SBlockRealize | tirx.SeqStmt):  # blockized by hand
        yield from _sites(block.body, loops)
        return
    sums = [int(axis.dom.extent) for axis in block.iter_vars if int(axis.iter_type) == 2]
    aliases = {str(m.buffer.name): m.source.source for m in block.match_buffers}
    yield _Site(
        name=str(block.name_hint),
        loops=loops,
        statement=statement,
        has_init=block.init is not None,
        reduction=math.prod(sums) if sums else 0,
        aliases=aliases,
    )


def blocks(stmt: Any) -> Iterator[SBlock]:
    """Yield the innermost blocks of a statement."""
    if isinstance(stmt, SBlockRealize):
        inner = list(blocks(stmt.block.body))
        yield from inner or [stmt.block]
    elif isinstance(stmt, tirx.SeqStmt):
        for child in stmt.seq:
            yield from blocks(child)
    elif isinstance(stmt, tirx.For):
        yield from blocks(stmt.body)
    elif isinstance(stmt, tirx.IfThenElse):
        yield from blocks(stmt.then_case)


def _extent(loop: tirx.For) -> int:
    if not isinstance(loop.extent, tirx.IntImm):
        raise ScheduleError(
            f"loop {loop.loop_var.name} has the extent {loop.extent}; shapes must be known when a "
            f"program is built"
        )
    return int(loop.extent)


# --------------------------------------------------------------------------------- loops


def _check_loops(site: _Site) -> None:
    for loop in site.loops:
        here = f"loop {loop.name} of block {site.name!r}"
        _require(
            loop.thread in ("", VTHREAD),
            f"{here} is bound to {loop.thread!r}; VTA has virtual threads alone: s.bind(loop, "
            f"vta.vthread)",
        )
        _require(
            loop.kind not in _KINDS,
            f"{here} is {_KINDS.get(loop.kind)}; VTA runs loops in order and lanes by intrinsics: "
            f"leave it serial, or tensorize it",
        )
        copies = loop.blocks == 1 and isinstance(site.statement, tirx.BufferStore)
        _require(
            copies or not loop.marked,
            f"loop {loop.name} is marked as a copy (vta.dma_copy) and holds block {site.name!r}, "
            f"which is none; mark a loop that contains nothing but one copy",
        )
    threads = [loop.name for loop in site.loops if loop.is_thread]
    _require(
        len(threads) < 2,
        f"loops {' and '.join(threads)} of block {site.name!r} are both bound to virtual threads; "
        f"fuse them and bind the result: s.bind(s.fuse(a, b), vta.vthread)",
    )


def _check_threads(sites: list[_Site]) -> None:
    """Require that tiles, which belong to one virtual thread, are filled and read in its loop."""
    seen: dict[str, tuple[str, str]] = {}
    for site in sites:
        thread = next((loop.name for loop in site.loops if loop.is_thread), "")
        for buffer in _touched(site):
            if _memory(buffer) == "DRAM":
                continue
            first, block = seen.setdefault(buffer.name, (thread, site.name))
            if first != thread:
                outside, inside = (block, site.name) if not first else (site.name, block)
                raise ScheduleError(
                    f"block {outside!r} stands outside of the loop of virtual threads in which "
                    f"{inside!r} uses the same tile ({_plain(buffer)}); each thread has its own "
                    f"tiles: compute it inside the loop"
                )


def _touched(site: _Site) -> list[Any]:
    if site.call:
        names = (pointer.args[1].args[0] for pointer in _pointers(site))
        return [site.aliases.get(str(buffer.name), buffer) for buffer in names]
    return [site.target, *_loads(site.statement.value)]


# ---------------------------------------------------------------------------- intrinsics


def _pointers(site: _Site) -> list[Any]:
    return [a for a in site.call if isinstance(a, Call) and len(a.args) == 5]


def _check_intrinsic(site: _Site, config: HardwareConfig) -> None:
    _require(
        _called(site) in (GEMM_CALL, RESET_CALL, ALU_CALL),
        f"block {site.name!r} calls {_called(site)}; VTA has vta.gemm, vta.reset and vta.alu",
    )
    for pointer in _pointers(site):
        buffer, scalars = pointer.args[1].args[0], int(pointer.args[3])
        memory = _memory(buffer)
        lanes = getattr(config, memory).lanes if memory != "DRAM" else 0
        _require(
            scalars == lanes,
            f"block {site.name!r} was tensorized for tiles of {scalars} scalars in {memory}; those "
            f"of {config.name} have {lanes}: make the intrinsic for this configuration",
        )


# -------------------------------------------------------------------------------- stores


def _check_store(site: _Site, arguments: set[str], config: HardwareConfig) -> None:
    target, memory = site.target, _memory(site.target)
    writes = f"block {site.name!r} writes"
    _require(
        memory in (*_DTYPES, "DRAM"),
        f"{writes} {_plain(target)} in scope {target.scope()!r}; VTA has vta.inp_scope, "
        f"vta.wgt_scope and vta.acc_scope",
    )
    _require(
        memory != "DRAM" or target.name in arguments,
        f"{writes} {_plain(target)} in DRAM, which is not an argument; keep it on chip: "
        f"s.set_scope(s.get_sblock({site.name!r}), 0, vta.{_scope_for(site)})",
    )
    dtype = _DTYPES.get(memory, "int8")
    _require(
        str(target.dtype) == dtype,
        f"{writes} {target.dtype} to {_where(memory)}, which holds {dtype}; VTA multiplies int8, "
        f"adds int32 and stores int8",
    )
    source = _copied(site.statement.value)
    if source is None or site.has_init:
        _check_computation(site, config)
    else:
        _check_copy(site, source, memory, config)


def _check_computation(site: _Site, config: HardwareConfig) -> None:
    value = site.statement.value
    if site.has_init and _is_product(site, config):
        return  # lowering handles it unchanged
    text = f"`{_plain(site.target)}[...] = {_text(value)}`"
    if site.has_init:
        raise ScheduleError(
            f"block {site.name!r} still holds its reset: {text}; split it off with "
            f"s.decompose_reduction(s.get_sblock({site.name!r}), loop), loop being the outermost "
            f"of the sum, and tensorize both parts"
        )
    raise ScheduleError(
        f"block {site.name!r} is not tensorized: {text}; {_advice(site.name, value)}"
    )


def _is_product(site: _Site, config: HardwareConfig) -> bool:
    """Whether a block is a one-step tile product, such as a diagonal product."""
    value = site.statement.value
    lanes = [config.block_out, config.block_in]
    return (
        isinstance(value, tirx.Add)
        and isinstance(value.b, tirx.Mul)
        and site.reduction == config.block_in
        and [_memory(buffer) for buffer in _loads(value.b)] == ["inp", "wgt"]
        and [loop.extent for loop in site.loops[-2:]] == lanes
    )


def _operations() -> dict[type, AluOp]:
    """Return the ALU's operations by the class of their expressions."""
    x, y = tirx.Var("x", "int32"), tirx.Var("y", "int32")
    return {type(lane_meaning(op, x, y)): op for op in AluOp}


def _advice(name: str, value: Any) -> str:
    """Suggest the intrinsic that computes a value, or say that none does."""

    def write(intrinsic: str) -> str:
        return f"write vta.tensorize(s, {name!r}, {intrinsic})"

    if isinstance(value, tirx.IntImm):
        at = f", {value.value}" if value.value else ""
        return f"this is a reset: {write(f'vta.reset(config{at})')}"
    if isinstance(value, tirx.Add) and isinstance(value.b, tirx.Mul):
        return write("vta.gemm(config)")
    op, operand = _operations().get(type(value)), getattr(value, "b", None)
    if isinstance(value, tirx.LShift) and isinstance(operand, tirx.IntImm):
        return write(f"vta.alu(config, 'shr', {-int(operand.value)})")
    if isinstance(value, tirx.Sub):
        return _INSTEAD_OF_SUB[isinstance(operand, tirx.IntImm)]
    if op is None:
        return (
            "the ALU adds, multiplies, shifts to the right, and takes minima and maxima: declare "
            "it as stages of these"
        )
    second = f", {operand.value}" if isinstance(operand, tirx.IntImm) else ""
    return write(f"vta.alu(config, '{op.name.lower()}'{second})")


def _check_copy(site: _Site, source: Any, memory: str, config: HardwareConfig) -> None:
    block, origin = f"block {site.name!r}", _memory(source)
    _require(
        "DRAM" in (origin, memory),
        f"{block} copies {_plain(source)} from {_where(origin)} to {_where(memory)}; no "
        f"instruction does (within acc: vta.alu(config, 'add', 0))",
    )
    _require(
        origin != memory,
        f"{block} copies DRAM to DRAM; stage it on chip: set a scope of the block between, for "
        f"example vta.inp_scope",
    )
    _require(
        memory != "DRAM" or origin == "acc",
        f"{block} stores from {_where(origin)}; STORE reads the accumulators alone",
    )
    allowed = ("int8", "int32") if memory in ("acc", "DRAM") else ("int8",)
    _require(
        str(source.dtype) in allowed,
        f"{block} loads {source.dtype} into {_where(memory)}; it takes {' or '.join(allowed)}",
    )
    lanes: int = getattr(config, memory if memory != "DRAM" else "acc").lanes
    scalars = math.prod(loop.extent for loop in site.own)
    _require(
        scalars >= lanes,
        f"{block} copies {scalars} scalars at a time; DMA moves whole tiles of {lanes}: do not cut "
        f"or fuse the loops over lanes",
    )
    marks = [place for place, loop in enumerate(site.own) if loop.marked]
    if marks:
        _check_marks(site, marks, memory, lanes)


def _check_marks(site: _Site, marks: list[int], memory: str, lanes: int) -> None:
    first, last = site.own[marks[0]], site.own[marks[-1]]
    _require(
        math.prod(loop.extent for loop in site.own[marks[-1] :]) >= lanes,
        f"block {site.name!r} is marked as a copy at loop {last.name}, inside a tile of {lanes} "
        f"lanes; mark a loop outside of the lanes",
    )
    outermost = next(loop for loop in site.own if loop.extent > 1 or loop is first)
    _require(
        memory == "DRAM" or outermost is first,
        f"block {site.name!r} is marked as a copy at loop {first.name}; one load fills the whole "
        f"tile: mark its outermost loop {outermost.name}",
    )


# ------------------------------------------------------------------------------- padding


def _check_padding(sites: list[_Site]) -> None:
    """Check padding: LOAD pads with zeros; other values are valid only before a maximum."""
    for site in sites:
        value = None if site.call else site.statement.value
        if not isinstance(value, Call) or len(value.args) != 3 or site.has_init:
            continue
        padding = int(getattr(value.args[2], "value", 0))
        for_maxima = padding == _FOR_MAXIMA and _feeds_maxima(site.target.name, sites)
        _require(
            padding == 0 or for_maxima,
            f"block {site.name!r} pads with {padding}; LOAD pads with zeros (and with "
            f"{_FOR_MAXIMA} where only maxima read the result)",
        )


def _feeds_maxima(name: str, sites: list[_Site]) -> bool:
    """Whether only tile maxima read the values computed from a buffer."""
    direct = _readers({name}, sites)
    made = {_touched(site)[0].name for site in direct} - {name}
    stages = [site for site in sites if not site.has_init and _called(site) != GEMM_CALL]
    readers = _readers(made, stages)
    found = {_is_maximum(site) or not made & _read(site, 2) for site in readers}
    return found == {True}


def _readers(names: set[str], sites: list[_Site]) -> list[_Site]:
    return [site for site in sites if names & _read(site)]


def _read(site: _Site, first: int = 1) -> set[str]:
    """Return the names of the buffers that a block reads, from operand `first` on."""
    return {buffer.name for buffer in _touched(site)[first:]}


def _is_maximum(site: _Site) -> bool:
    """Whether a block computes the maximum of two tiles."""
    two = _called(site) == ALU_CALL and len(_pointers(site)) == 3
    return two and int(site.call[1]) == AluOp.MAX


def _called(site: _Site) -> str:
    """Return the name of a block's intrinsic, or an empty string."""
    return str(getattr(site.call[0], "value", site.call[0])) if site.call else ""


# ----------------------------------------------------------------------------------- TIR


def _memory(buffer: Any) -> str:
    return _MEMORY.get(str(buffer.scope()), str(buffer.scope()))


def _where(memory: str) -> str:
    return "DRAM" if memory == "DRAM" else f"the {memory} scratchpad"


def _plain(buffer: Any) -> str:
    """Return a buffer's declared name."""
    return str(buffer.name).split("_local.")[0]


def _scope_for(site: _Site) -> str:
    return "acc_scope" if str(site.target.dtype) == "int32" else "inp_scope"


def _copied(value: Any) -> Any:
    """Return the buffer that a value copies an element of, possibly padded; else None."""
    if isinstance(value, tirx.Cast):
        value = value.value
    if isinstance(value, Call) and len(value.args) == 3:
        if not isinstance(value.args[2], tirx.IntImm):
            return None
        value = value.args[1]
    if isinstance(value, tirx.Cast):
        value = value.value
    return getattr(value, "source", None)


def _loads(value: Any) -> list[Any]:
    """Return the buffers that an expression reads, from left to right."""
    return [load.source for load in loads(value)]


def _text(value: Any) -> str:
    """Return an expression in the user's notation, on one line."""
    text = str(value).splitlines()[-1].replace("_local_acc_buffer", "")
    return text if len(text) < 100 else text[:97] + "..."
