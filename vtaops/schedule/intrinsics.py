"""Tensor intrinsics: each VTA operation as a tiny loop nest (its meaning) and the call it becomes.

`Schedule.tensorize` replaces a loop nest that equals the meaning by the call. The operands of a
call are access pointers to one tile each; `vtaops.lowering` reads them:

    vta.gemm(acc, inp, wgt)         acc += inp @ wgt.T
    vta.reset(acc)                  acc = 0
    vta.reset(acc, value)           acc = value: a reset, and the ALU adds an immediate
    vta.alu(op, dst, src, operand)  dst = op(src, operand); operand: an immediate or a third tile
    vta.pool(acc, inp)              acc = max(acc, inp) (extension ``pool``)
    vta.requantize(zero_point, low, high, dst, src, bias, scales)
                                    dst = src, scaled for each channel; the bias may be missing

The ALU works in place; lowering gives ``dst`` and ``src`` one SRAM address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812  (the name TVMScript is written with)

from vtaops.base.errors import ScheduleError
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.ops.epilogue import lane_meaning, scale_meaning

INP_SCOPE = "local.inp_buffer"
WGT_SCOPE = "local.wgt_buffer"
ACC_SCOPE = "local.acc_buffer"
BIAS_SCOPE = "local.bias_buffer"
SCALE_SCOPE = "local.scale_buffer"

VTHREAD = "cthread"
"""Thread axis of virtual threads: ``s.bind(loop, VTHREAD)``."""

DMA_COPY = "vta.dma_copy"
"""Mark of a copy: ``s.annotate(loop, DMA_COPY, True)``. One transfer moves what the loop moves."""

GEMM_CALL = "vta.gemm"
RESET_CALL = "vta.reset"
ALU_CALL = "vta.alu"
REQUANTIZE_CALL = "vta.requantize"
POOL_CALL = "vta.pool"


def gemm(config: HardwareConfig) -> str:
    """Register the tile product ``acc += inp @ wgt.T``; return the intrinsic's name.

    Its meaning is a loop nest over the lanes of a tile: (batch,) block_out, block_in. TVM drops the
    loop over a batch of 1.

    Examples
    --------
    >>> s.decompose_reduction(s.get_sblock("res_conv"), outermost_loop_of_the_sum)
    >>> s.tensorize(s.get_loops(s.get_sblock("res_conv_update"))[-2], vta.gemm(config))
    """
    acc, inp, wgt = _acc_tile(config), _tile(config.inp.shape, "int8", INP_SCOPE), _wgt_tile(config)

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

    def call(acc: Any, inp: Any, wgt: Any) -> None:
        pointers = acc.access_ptr("rw"), inp.access_ptr("r"), wgt.access_ptr("r")
        T.evaluate(T.call_extern("int32", GEMM_CALL, *pointers))

    name = f"{GEMM_CALL}.{config.batch}x{config.block_in}x{config.block_out}"
    return _register(name, [("acc", acc), ("inp", inp), ("wgt", wgt)], ["acc"], meaning, call)


def reset(config: HardwareConfig, value: int = 0) -> str:
    """Register ``acc = value`` for a tile; return the intrinsic's name.

    Examples
    --------
    >>> s.tensorize(s.get_loops(s.get_sblock("res_conv_init"))[-1], vta.reset(config))

    Raises
    ------
    ScheduleError
        If the value is no 16-bit immediate.
    """
    _check_immediate(value)

    def meaning(acc: Any) -> None:
        with _lanes(acc, "reset") as lane:
            T.buffer_store(acc, tirx.const(value, "int32"), lane)

    def call(acc: Any) -> None:
        immediate = [value] if value else []
        T.evaluate(T.call_extern("int32", RESET_CALL, acc.access_ptr("w"), *immediate))

    name = f"{RESET_CALL}.{value}.{config.batch}x{config.block_out}"
    return _register(name, [("acc", _acc_tile(config))], ["acc"], meaning, call, reads=[])


def alu(config: HardwareConfig, op: AluOp | str, imm: int | None = None) -> str:
    """Register an ALU operation on a tile, ``dst = op(src, operand)``; return the name.

    Parameters
    ----------
    config : HardwareConfig
        The hardware.
    op : AluOp or str
        ``"add"``, ``"mul"``, ``"max"``, ``"min"``, or ``"shr"``: to the right, with the sign.
    imm : int, optional
        The second operand, for all lanes; None: a second tile. A shift by a negative immediate
        goes to the left.

    Examples
    --------
    >>> s.tensorize(s.get_loops(s.get_sblock("res_shr"))[-1], vta.alu(config, "shr", 8))

    Raises
    ------
    ScheduleError
        If there is no such operation, or the operand is no 16-bit immediate.
    """
    op = _alu_op(op)
    if imm is not None:
        _check_immediate(imm)
    operands = ["dst", "src"] + (["operand"] if imm is None else [])

    def meaning(dst: Any, src: Any, operand: Any = None) -> None:
        with _lanes(dst, "alu") as lane:
            second = imm if operand is None else operand[lane]
            T.buffer_store(dst, lane_meaning(op, src[lane], second), lane)

    def call(dst: Any, src: Any, operand: Any = None) -> None:
        second = imm if operand is None else operand.access_ptr("r")
        pointers = dst.access_ptr("w"), src.access_ptr("r")
        T.evaluate(T.call_extern("int32", ALU_CALL, int(op), *pointers, second))

    second = "tile" if imm is None else imm
    name = f"{ALU_CALL}.{op.name.lower()}.{second}.{config.batch}x{config.block_out}"
    tiles = [(operand, _acc_tile(config)) for operand in operands]
    return _register(name, tiles, ["dst"], meaning, call, reads=operands[1:])


def requantize(
    config: HardwareConfig, zero_point: int, clip: tuple[int, int], *, bias: bool
) -> str:
    """Register the requantisation of a tile by a scale for each channel; return the name.

    See `vtaops.ops.epilogue.ScaleStage`; needs the extension ``post``.

    Raises
    ------
    ScheduleError
        If the hardware has no such extension.
    """
    if "post" not in config.extensions:
        raise ScheduleError(
            f"{config.name} has no extension 'post', which scales for each channel need; shift "
            f"all channels alike"
        )
    vectors = ["bias", "scales"] if bias else ["scales"]

    def meaning(dst: Any, src: Any, *parameters: Any) -> None:
        with _lanes(dst, "requantize") as lane:
            values = [parameter[lane[-1]] for parameter in parameters]
            T.buffer_store(dst, scale_meaning(src[lane], values, zero_point, clip), lane)

    def call(dst: Any, src: Any, *parameters: Any) -> None:
        pointers = [dst.access_ptr("w"), *(p.access_ptr("r") for p in (src, *parameters))]
        T.evaluate(T.call_extern("int32", REQUANTIZE_CALL, zero_point, *clip, *pointers))

    scopes = {"bias": BIAS_SCOPE, "scales": SCALE_SCOPE}
    tiles = [("dst", _acc_tile(config)), ("src", _acc_tile(config))]
    tiles += [(name, _tile(config.post.shape, "int32", scopes[name])) for name in vectors]
    numbers = f"{zero_point}.{clip[0]}.{clip[1]}.{len(vectors)}"
    name = f"{REQUANTIZE_CALL}.{numbers}.{config.batch}x{config.block_out}"
    return _register(name, tiles, ["dst"], meaning, call, reads=["src", *vectors])


def alu_reduction(config: HardwareConfig, op: AluOp | str) -> str:
    """Register ``acc = op(acc, operand)``, one step of a reduction; return the name.

    Parameters
    ----------
    config : HardwareConfig
        The hardware.
    op : AluOp or str
        As of `alu`; the reduction itself is declared with ``te.comm_reducer``.

    Examples
    --------
    >>> s.decompose_reduction(s.get_sblock("pool"), window)
    >>> vta.tensorize(s, "pool_init", vta.reset(config, -128))
    >>> vta.tensorize(s, "pool_update", vta.alu_reduction(config, "max"))

    Raises
    ------
    ScheduleError
        If there is no such operation.
    """
    op = _alu_op(op)

    def meaning(acc: Any, operand: Any) -> None:
        with _lanes(acc, "alu") as lane:
            T.buffer_store(acc, lane_meaning(op, acc[lane], operand[lane]), lane)

    def call(acc: Any, operand: Any) -> None:
        pointers = acc.access_ptr("rw"), acc.access_ptr("r"), operand.access_ptr("r")
        T.evaluate(T.call_extern("int32", ALU_CALL, int(op), *pointers))

    name = f"{ALU_CALL}.{op.name.lower()}.reduction.{config.batch}x{config.block_out}"
    tiles = [("acc", _acc_tile(config)), ("operand", _acc_tile(config))]
    return _register(name, tiles, ["acc"], meaning, call)


def pool(config: HardwareConfig) -> str:
    """Register ``acc = max(acc, inp)``, one step of a maximum over int8 tiles; return the name.

    Needs the extension ``pool``. Steps over neighbouring tiles become one of the hardware.

    Raises
    ------
    ScheduleError
        If the hardware has no such extension.
    """
    if "pool" not in config.extensions:
        raise ScheduleError(
            f"{config.name} has no extension 'pool', which maxima of input tiles need; take them "
            f"of accumulators (vta.alu_reduction)"
        )

    def meaning(acc: Any, inp: Any) -> None:
        with _lanes(acc, "pool") as lane:
            T.buffer_store(acc, tirx.max(acc[lane], T.Cast("int32", inp[lane])), lane)

    def call(acc: Any, inp: Any) -> None:
        pointers = acc.access_ptr("rw"), inp.access_ptr("r")
        T.evaluate(T.call_extern("int32", POOL_CALL, *pointers))

    name = f"{POOL_CALL}.{config.batch}x{config.block_out}"
    inp = _tile(config.inp.shape, "int8", INP_SCOPE)
    return _register(name, [("acc", _acc_tile(config)), ("inp", inp)], ["acc"], meaning, call)


def lanes(intrinsic: str) -> list[int]:
    """Return the extents of the innermost loops that an intrinsic replaces."""
    body, extents = TensorIntrin.get(intrinsic).desc.body.block.body, []
    while isinstance(body, tirx.For):
        extents.append(int(body.extent))
        body = body.body
    return extents


# ------------------------------------------------------------------------ construction

IMMEDIATES = range(-(1 << 15), 1 << 15)
"""What the ALU takes as an immediate operand."""


def _alu_op(op: AluOp | str) -> AluOp:
    if isinstance(op, AluOp):
        return op
    names = [known.name.lower() for known in AluOp]
    if op not in names:
        raise ScheduleError(f"the ALU has no {op!r}; it has {', '.join(names)}")
    return AluOp[op.upper()]


def _check_immediate(value: int) -> None:
    if value not in IMMEDIATES:
        raise ScheduleError(
            f"the immediate is {value}; the ALU takes {IMMEDIATES[0]}..{IMMEDIATES[-1]}"
        )


_Tile = tuple[tuple[int, ...], str, str]


def _tile(shape: Sequence[int], dtype: str, scope: str) -> _Tile:
    # TVM drops loops of extent 1 from a tensorized block, so a tile of one row has no row axis.
    return (tuple(shape) if shape[0] > 1 else tuple(shape[1:])), dtype, scope


def _acc_tile(config: HardwareConfig) -> _Tile:
    return _tile(config.acc.shape, "int32", ACC_SCOPE)


def _wgt_tile(config: HardwareConfig) -> _Tile:
    return config.wgt.shape, "int8", WGT_SCOPE


def _extents(buffer: Any) -> list[int]:
    return [int(extent) for extent in buffer.shape]


@contextmanager
def _lanes(tile: Any, name: str) -> Iterator[tuple[Any, ...]]:
    """Open a block over the lanes of a tile; yield the indices of one."""
    extents = _extents(tile)
    with T.grid(*extents) as loops, T.sblock(name):
        each = [loops] if isinstance(loops, tirx.Var) else loops  # a single one is the variable
        yield tuple(T.axis.spatial(e, v) for e, v in zip(extents, each, strict=True))


def _register(
    name: str,
    operands: list[tuple[str, _Tile]],
    writes: list[str],
    meaning: Callable[..., None],
    call: Callable[..., None],
    reads: list[str] | None = None,
) -> str:
    if TensorIntrin.get(name, allow_missing=True) is None:
        names = [operand for operand, _ in operands]
        touched = (names if reads is None else reads), writes
        TensorIntrin.register(
            name, _function(operands, touched, meaning), _function(operands, touched, call)
        )
    return name


def _function(
    operands: list[tuple[str, _Tile]],
    touched: tuple[list[str], list[str]],
    body: Callable[..., None],
) -> Any:
    """Build the PrimFunc of one side of an intrinsic: a root block over whole tiles."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("intrinsic")
        buffers = {
            name: T.arg(name, T.Buffer(shape, dtype, offset_factor=1, scope=scope))
            for name, (shape, dtype, scope) in operands
        }
        whole = {
            name: buffer[tuple(slice(0, extent) for extent in _extents(buffer))]
            for name, buffer in buffers.items()
        }
        with T.sblock("root"):
            T.reads([whole[name] for name in touched[0]])
            T.writes([whole[name] for name in touched[1]])
            body(*buffers.values())
    return builder.get()
