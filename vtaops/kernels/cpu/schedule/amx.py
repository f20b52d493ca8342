"""CPU schedule of int8 NCHW[x]c convolutions on AMX, the matrix unit of newer Intel processors.

A tile register has 16 rows of 64 bytes. One instruction (tdpbusd) multiplies a tile of pixels, 64
channels each, by a tile of weights, 64 channels of 16 results, and adds to a tile of int32 sums.
Two tiles of pixels by two of weights keep its operands in registers. TVM cannot express tile
registers, so the loops around them are built directly; the image is gathered by an ordinary stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from vtaops.base.errors import UnsupportedError
from vtaops.kernels.build import create_schedule
from vtaops.kernels.cpu.schedule.convolution import PaddedCopy
from vtaops.kernels.cpu.schedule.rewrites import loop, nest
from vtaops.kernels.cpu.schedule.tiles import PARALLEL_FLOPS, parallel_if
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops.common import Expr, Tensor, Window, ceil_div
from vtaops.kernels.ops.convolution import inside_or
from vtaops.kernels.ops.packed import PackedConv2dOp, without_gaps

_ROWS, _BYTES, _LANES = 16, 64, 16
"""Rows of a tile register, bytes per row, int32 sums per row."""

_PIXELS, _WEIGHTS = 4, 6
"""The first tile registers of pixels and of weights; sums use those before."""


@dataclass(frozen=True)
class _Tiles:
    """The sums of one turn: `down` rows, `across` tiles of `pixels` columns, channel `blocks`."""

    down: int
    across: int
    pixels: int
    blocks: int

    def columns(self, extent: int) -> int:
        """Return the columns of the whole turns that cover `extent` columns."""
        turn = self.across * self.pixels
        return ceil_div(extent, turn) * turn


def _tiles(op: PackedConv2dOp) -> _Tiles:
    """Choose two pixel tiles, in neighbouring rows or one, and two channel tiles if possible."""
    rows, columns = op.out_size
    count = ceil_div(columns, _ROWS)
    down = 2 if rows % 2 == 0 else 1
    across = 2 if down == 1 and count > 1 else 1
    count = ceil_div(count, across) * across
    return _Tiles(down, across, ceil_div(columns, count), 2 if op.out_blocks % 2 == 0 else 1)


def schedule_packed_conv2d(op: PackedConv2dOp, target: CpuTarget) -> Any:
    """Schedule a convolution whose weights gather blocks of the data.

    Raises
    ------
    UnsupportedError
        If the processor has no AMX, or the operator does not fit its tiles.
    """
    fits = op.gathered * op.in_block == _BYTES and op.block == _LANES and op.dtype == "uint8"
    if not (target.amx and fits):
        raise UnsupportedError(
            "gathered blocks need AMX and uint8 data, 64 channels by blocks of 16"
        )
    tiles = _tiles(op)
    rows, columns = op.out_size
    window, strides = without_gaps(op.window)
    padding = PaddedCopy(window, rows, tiles.columns(columns), by_phase=False)
    tensors = op.placeholders()
    image = _gathered(op, tensors["data"], (padding.height, padding.width), strides)
    names = ("image", *(name for name in tensors if name != "data"))

    def body(inputs: Any, outputs: Any) -> Any:
        return _Loops(op, window, tiles, dict(zip(names, inputs, strict=True)), outputs[0]).all()

    inputs = [image, *(tensors[name] for name in names[1:])]
    result = te.extern([op.output.shape], inputs, body, "result", [op.output.dtype])
    s = create_schedule([*tensors.values(), result])
    *outer, block, lane = s.get_loops(s.get_sblock("padded"))
    s.vectorize(lane)
    s.unroll(block)
    parallel_if(s, s.fuse(*outer[:3]), op.flops >= PARALLEL_FLOPS)
    return s


def _gathered(
    op: PackedConv2dOp, data: Tensor, size: tuple[int, int], strides: tuple[int, int]
) -> Tensor:
    """Declare the padded image with gathered channel blocks side by side."""
    (down, across), (top, left, *_) = strides, op.window.padding

    def pixel(n: Expr, c: Expr, i: Expr, j: Expr, g: Expr, b: Expr) -> Expr:
        index = (n, c * op.gathered + g, i * down - top, j * across - left, b)
        return inside_or(data, index, (2, 3), op.around)

    shape = (op.batch, op.in_blocks // op.gathered, *size, op.gathered, op.in_block)
    return te.compute(shape, pixel, name="padded")


@dataclass(frozen=True)
class _Loops:
    """Builds the loops over all results of an operator."""

    op: PackedConv2dOp
    window: Window
    tiles: _Tiles
    tensors: dict[str, Any]
    result: Any

    def all(self) -> Any:
        """Return the whole statement; each iteration of the outer loop configures the tiles."""
        op, tiles = self.op, self.tiles
        rows, columns = op.out_size
        heights, channels = rows // tiles.down, op.out_blocks // tiles.blocks
        step, turn = tirx.Var("step", "int32"), tirx.Var("turn", "int32")
        width = tiles.across * tiles.pixels
        at = (
            tirx.floordiv(step, channels * heights),
            tirx.floormod(tirx.floordiv(step, heights), channels) * tiles.blocks,
            tirx.floormod(step, heights) * tiles.down,
            turn * width,
        )
        settings = tirx.decl_buffer((_BYTES,), "uint8", "settings")
        shape = (tiles.down, tiles.across, tiles.blocks, tiles.pixels, _LANES)
        sums = tirx.decl_buffer(shape, "int32", "sums")
        work = tirx.SeqStmt([*self.products(sums, *at), self.finish(sums, *at)])
        body = [
            tirx.AllocBuffer(settings),
            tirx.AllocBuffer(sums),
            *_configure(settings, tiles.pixels),
            loop(turn, tiles.columns(columns) // width, work),
            _tile("tilerelease"),
        ]
        kind = "PARALLEL" if op.flops >= PARALLEL_FLOPS else "SERIAL"
        return loop(step, op.batch * channels * heights, tirx.SeqStmt(body), kind)

    def products(self, sums: Any, n: Expr, c: Expr, i: Expr, j: Expr) -> list[Any]:
        """Return the statements that compute one turn's sums and store them in `sums`."""
        window, tiles, image = self.window, self.tiles, self.tensors["image"]
        (sh, sw), (dh, dw), pixels = window.strides, window.dilation, tiles.pixels
        taps = [tirx.Var(name, "int32") for name in ("q", "kh", "kw")]
        q, kh, kw = taps
        places = [(r, t) for r in range(tiles.down) for t in range(tiles.across)]
        loads, multiply, clear, store = [], [], [], []
        for number, (r, t) in enumerate(places):
            row, column = (i + r) * sh + kh * dh, (j + t * pixels) * sw + kw * dw
            pixel = tirx.address_of(image[n, q, row, column, 0, 0])
            loads.append(_tile("tileloadd64", _PIXELS + number, pixel, sw * _BYTES))
            for block in range(tiles.blocks):
                total = number * tiles.blocks + block
                multiply.append(_tile("tdpbusd", total, _PIXELS + number, _WEIGHTS + block))
                clear.append(_tile("tilezero", total))
                target = tirx.address_of(sums[r, t, block, 0, 0])
                store.append(_tile("tilestored64", total, target, 4 * _LANES))
        for block in range(tiles.blocks):
            weights = tirx.address_of(self.tensors["kernel"][c + block, q, kh, kw, 0, 0, 0])
            loads.append(_tile("tileloadd64", _WEIGHTS + block, weights, _BYTES))
        extents = (image.shape[1], *window.kernel)
        return [*clear, nest(taps, extents, tirx.SeqStmt([*loads, *multiply])), *store]

    def finish(self, sums: Any, n: Expr, c: Expr, i: Expr, j: Expr) -> Any:
        """Return the loops that write one turn's results, as far as inside the image."""
        columns, epilogue = self.op.out_size[1], self.op.epilogue.bind(self.tensors, "int32")
        loops = [tirx.Var(name, "int32") for name in ("down", "across", "block", "pixel", "lane")]
        down, across, block, pixel, lane = loops
        index = (n, c + block, i + down, j + across * self.tiles.pixels + pixel, lane)
        value = epilogue(sums[tuple(loops)], index[1] * _LANES + lane, *index)
        body = loop(lane, _LANES, tirx.BufferStore(self.result, value, list(index)), "VECTORIZED")
        if self.tiles.columns(columns) > columns:
            body = tirx.IfThenElse(index[3] < columns, body, None)
        return nest(loops[:-1], sums.shape[:-1], body)


def _configure(settings: Any, pixels: int) -> list[Any]:
    """Return the statements that configure the tile sizes (Intel's SDM, LDTILECFG, palette 1)."""
    sizes = [1] + [0] * (_BYTES - 1)
    for tile in range(_WEIGHTS + 2):
        sizes[16 + 2 * tile] = _BYTES
        sizes[48 + tile] = _ROWS if tile >= _WEIGHTS else pixels
    stores = [tirx.BufferStore(settings, tirx.const(v, "uint8"), [i]) for i, v in enumerate(sizes)]
    return [*stores, _tile("ldtilecfg", tirx.address_of(settings[0]))]


def _tile(name: str, *arguments: Any) -> Any:
    """Return a tile instruction with tile numbers; or one with an address and a byte stride."""
    kinds = ("int8", "", "int64") if name.endswith("64") else ("int8",) * 3
    typed = [
        tirx.const(a, kind) if isinstance(a, int) else a
        for a, kind in zip(arguments, kinds, strict=False)
    ]
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *typed))
