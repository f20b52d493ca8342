"""Tensor intrinsics: each VTA operation as a small loop nest (its meaning) and a call.

`Schedule.tensorize` replaces a loop nest equal to the meaning by the call
(`vtaops.schedule.calls`). The operands of a call are access pointers to one tile each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (the name TVMScript is written with)

from vtaops.base.errors import ScheduleError
from vtaops.base.names import checked_call
from vtaops.machine.config import HardwareConfig, Scratchpad
from vtaops.machine.isa import AluOp
from vtaops.ops.declarations import lane_meaning
from vtaops.ops.epilogue import IMMEDIATE
from vtaops.schedule.calls import (
    ACC_SCOPE,
    ALU_CALL,
    GEMM_CALL,
    INP_SCOPE,
    RESET_CALL,
    WGT_SCOPE,
)


@checked_call
def gemm(config: HardwareConfig) -> str:
    """Register the tile product ``acc += inp @ wgt.T``; return the intrinsic's name.

    Its meaning is a loop nest over the lanes of a tile: (batch,) block_out, block_in. TVM drops the
    loop over a batch of 1.

    Examples
    --------
    >>> s.decompose_reduction(s.get_sblock("res_conv"), outermost_loop_of_the_sum)
    >>> s.tensorize(s.get_loops(s.get_sblock("res_conv_update"))[-2], vta.gemm(config))
    """

    def meaning(acc: Any, inp: Any, wgt: Any) -> None:
        *rows, channels = _extents(acc)
        depth = _extents(inp)[-1]
        with T.grid(*rows, channels, depth) as loops, T.sblock("update"):
            lanes = zip(_extents(acc), list(loops)[:-1], strict=True)
            *row, channel = (T.axis.spatial(e, v) for e, v in lanes)
            k = T.axis.reduce(depth, loops[-1])
            src, dst = (*row, k), (*row, channel)
            product = T.Cast("int32", inp[src]) * T.Cast("int32", wgt[channel, k])
            T.buffer_store(acc, acc[dst] + product, list(dst))

    name = f"{GEMM_CALL}.{config.batch}x{config.block_in}x{config.block_out}"
    acc, inp = _acc(config, "acc", "rw"), _Operand("inp", config.inp, INP_SCOPE)
    operands = acc, inp, _Operand("wgt", config.wgt, WGT_SCOPE)
    return _register(name, operands, meaning, GEMM_CALL, *operands)


@checked_call
def reset(config: HardwareConfig, value: int = 0) -> str:
    """Register ``acc = value`` for a tile; return the intrinsic's name.

    Examples
    --------
    >>> s.tensorize(s.get_loops(s.get_sblock("res_conv_init"))[-1], vta.reset(config))

    Raises
    ------
    ScheduleError
        If the value does not fit a 16-bit immediate.
    """
    _check_immediate(value)

    def meaning(acc: Any) -> None:
        with _lanes(acc, "reset") as lane:
            T.buffer_store(acc, tirx.const(value, "int32"), lane)

    name = f"{RESET_CALL}.{value}.{config.batch}x{config.block_out}"
    acc = _acc(config, "acc", "w")
    return _register(name, [acc], meaning, RESET_CALL, acc, *([value] if value else []))


@checked_call
def alu(config: HardwareConfig, op: AluOp | str, imm: int | None = None) -> str:
    """Register an ALU operation on a tile, ``dst = op(src, operand)``; return the name.

    Parameters
    ----------
    config : HardwareConfig
        The hardware.
    op : AluOp or str
        ``"add"``, ``"mul"``, ``"max"``, ``"min"``, or ``"shr"``, an arithmetic right shift.
    imm : int, optional
        The second operand, for all lanes; None: a second tile. A shift by a negative immediate
        shifts left.

    Examples
    --------
    >>> s.tensorize(s.get_loops(s.get_sblock("res_shr"))[-1], vta.alu(config, "shr", 8))

    Raises
    ------
    ScheduleError
        If the operation is unknown, or the operand does not fit a 16-bit immediate.
    """
    op = _alu_op(op)
    if imm is not None:
        _check_immediate(imm)

    def meaning(dst: Any, src: Any, operand: Any = None) -> None:
        with _lanes(dst, "alu") as lane:
            second = imm if operand is None else operand[lane]
            T.buffer_store(dst, lane_meaning(op, src[lane], second), lane)

    second = "tile" if imm is None else imm
    name = f"{ALU_CALL}.{op.name.lower()}.{second}.{config.batch}x{config.block_out}"
    operands, immediate = [_acc(config, "dst", "w"), _acc(config, "src")], [imm]
    if imm is None:
        operands, immediate = [*operands, _acc(config, "operand")], []
    return _register(name, operands, meaning, ALU_CALL, int(op), *operands, *immediate)


@checked_call
def alu_reduction(config: HardwareConfig, op: AluOp | str) -> str:
    """Register ``acc = op(acc, operand)``, one step of a reduction; return the name.

    Parameters
    ----------
    config : HardwareConfig
        The hardware.
    op : AluOp or str
        As for `alu`; declare the reduction itself with ``te.comm_reducer``.

    Examples
    --------
    >>> s.decompose_reduction(s.get_sblock("pool"), window)
    >>> vta.tensorize(s, "pool_init", vta.reset(config, -128))
    >>> vta.tensorize(s, "pool_update", vta.alu_reduction(config, "max"))

    Raises
    ------
    ScheduleError
        If the operation is unknown.
    """
    op = _alu_op(op)

    def meaning(acc: Any, operand: Any) -> None:
        with _lanes(acc, "alu") as lane:
            T.buffer_store(acc, lane_meaning(op, acc[lane], operand[lane]), lane)

    name = f"{ALU_CALL}.{op.name.lower()}.reduction.{config.batch}x{config.block_out}"
    acc, operand = _acc(config, "acc", "rw"), _acc(config, "operand")
    read = replace(acc, access="r")
    return _register(name, [acc, operand], meaning, ALU_CALL, int(op), acc, read, operand)


def lanes(intrinsic: str) -> list[int]:
    """Return the extents of the innermost loops that an intrinsic matches."""
    body, extents = TensorIntrin.get(intrinsic).desc.body.block.body, []
    while isinstance(body, tirx.For):
        extents.append(int(body.extent))
        body = body.body
    return extents


# ------------------------------------------------------------------------ construction


def _alu_op(op: AluOp | str) -> AluOp:
    if isinstance(op, AluOp):
        return op
    names = [known.name.lower() for known in AluOp]
    if op not in names:
        raise ScheduleError(f"the ALU has no {op!r}; it has {', '.join(names)}")
    return AluOp[op.upper()]


def _check_immediate(value: int) -> None:
    if value not in IMMEDIATE:
        raise ScheduleError(
            f"the immediate is {value}; the ALU takes {IMMEDIATE[0]}..{IMMEDIATE[-1]}"
        )


@dataclass(frozen=True)
class _Operand:
    """A tile that an intrinsic reads (``"r"``), writes (``"w"``) or updates (``"rw"``)."""

    name: str
    memory: Scratchpad
    scope: str
    access: str = "r"

    @property
    def buffer(self) -> Any:
        """The tile's buffer: TVM drops loops of extent 1, so a single row has no row axis."""
        shape = self.memory.shape
        if shape[0] == 1:
            shape = shape[1:]
        return T.Buffer(shape, self.memory.dtype, offset_factor=1, scope=self.scope)


def _acc(config: HardwareConfig, name: str, access: str = "r") -> _Operand:
    return _Operand(name, config.acc, ACC_SCOPE, access)


def _extents(buffer: Any) -> list[int]:
    return [int(extent) for extent in buffer.shape]


@contextmanager
def _lanes(tile: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """Open a block over the lanes of a tile; yield a lane's indices."""
    extents = _extents(tile)
    with T.grid(*extents) as loops, T.sblock(name):
        each = [loops] if isinstance(loops, tirx.Var) else loops  # a single one is the variable
        yield tuple(T.axis.spatial(e, v) for e, v in zip(extents, each, strict=True))


def _register(
    name: str, operands: Sequence[_Operand], meaning: Callable[..., None], *call: Any
) -> str:
    """Register an intrinsic; `call` are its call's arguments, including operands."""
    if TensorIntrin.get(name, allow_missing=True) is None:

        def called(*tiles: Any) -> None:
            buffers = {operand.name: tile for operand, tile in zip(operands, tiles, strict=True)}
            arguments = [
                buffers[a.name].access_ptr(a.access) if isinstance(a, _Operand) else a for a in call
            ]
            T.evaluate(T.call_extern("int32", *arguments))

        TensorIntrin.register(name, _function(operands, meaning), _function(operands, called))
    return name


def _function(operands: Sequence[_Operand], body: Callable[..., None]) -> Any:
    """Build the PrimFunc of one side of an intrinsic: a root block over whole tiles."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("intrinsic")
        buffers = [T.arg(operand.name, operand.buffer) for operand in operands]
        whole = [buffer[tuple(slice(0, e) for e in _extents(buffer))] for buffer in buffers]
        tiles = [*zip(operands, whole, strict=True)]
        with T.sblock("root"):
            T.reads([tile for operand, tile in tiles if "r" in operand.access])
            T.writes([tile for operand, tile in tiles if "w" in operand.access])
            body(*buffers)
    return builder.get()
