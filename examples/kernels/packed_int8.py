"""Convolution of NCHW[b]c data on a GPU; int8 by the instruction for four products (dp4a).

    python examples/kernels/packed_int8.py    # a convolution in the emulator, equal to NumPy

The channels of a block are contiguous in memory, so neighbouring threads take neighbouring
channels. A thread block computes some channel blocks for a patch of the image; its threads
cooperatively fetch patch and kernel to shared memory, one block of input channels at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
from tvm import te

from examples.kernels.fitting import fits
from vtaops.base.errors import ScheduleError, ShapeError
from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_array
from vtaops.kernels.build import register_intrinsic
from vtaops.kernels.cuda import CudaKernel
from vtaops.kernels.cuda.emulate import Emulated
from vtaops.kernels.cuda.schedule.binding import (
    bind,
    check_block,
    create_schedule,
    fetch,
    inline,
)
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops import Window
from vtaops.kernels.ops.common import Tensor, ceil_div, largest_divisor, round_up
from vtaops.kernels.ops.packed import PackedConv2dOp, pad_blocked

_HEAD = """
# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def dot(A: T.Buffer((4,), "int8", offset_factor=4, align=4, scope="shared"),
        B: T.Buffer((4,), "int8", offset_factor=4, align=4, scope="shared"),
        C: T.Buffer((1,), "int32", offset_factor=1, align=4, scope="local")) -> None:
    with T.sblock("root"):
        T.reads(C[0:1], A[0:4], B[0:4])
        T.writes(C[0:1])
"""

_LOOP = """        for k in T.serial(4):
            with T.sblock("update"):
                vk = T.axis.remap("R", [k])
                C[0] = C[0] + T.cast(A[vk], "int32") * T.cast(B[vk], "int32")
"""

_INSTRUCTION = """        C[0] = T.call_pure_extern(
            "int32", "__dp4a", T.reinterpret(A.vload([0], "int8x4"), dtype="int32"),
            T.reinterpret(B.vload([0], "int8x4"), dtype="int32"), C[0])
"""


@cache
def dot_intrinsic() -> str:
    """Register the sum of four int8 products; return its name."""
    return register_intrinsic("vtaops.dp4a", _HEAD + _LOOP, _HEAD + _INSTRUCTION)


@dataclass(frozen=True)
class PackedTile:
    """The distribution of results over threads; a pixel's threads are its channels in a block.

    Attributes
    ----------
    blocks : int
        Channel blocks per thread; must divide those of the result.
    rows, columns : (int, int)
        Threads and results per thread, along rows and columns.
    """

    blocks: int = 1
    rows: tuple[int, int] = (2, 1)
    columns: tuple[int, int] = (4, 4)

    @property
    def patch(self) -> tuple[int, int]:
        """Rows and columns of a thread block."""
        return prod(self.rows), prod(self.columns)

    def shared_bytes(self, op: PackedConv2dOp) -> int:
        """Return the bytes of shared memory: a patch with its border, and the kernel."""
        pixels = prod(op.window.reach(*self.patch))
        kernel = self.blocks * prod(op.window.kernel) * op.block
        return (4 if op.dtype == "float32" else 1) * op.block * (pixels + kernel)


def choose_tile(op: PackedConv2dOp, target: CudaTarget) -> PackedTile:
    """Choose a tile that fits and wastes little for the size of an image."""
    wide = min(16, 1 << (op.out_size[1] - 1).bit_length())
    each = min(4, wide)
    tall = min(4, 1 << (op.out_size[0] - 1).bit_length())
    blocks = largest_divisor(op.out_blocks, 2)
    tile = PackedTile(blocks, (tall, 1), (wide // each, each))
    return tile if tile.shared_bytes(op) <= target.shared else PackedTile(1, (1, 1), (4, 1))


def tiles(op: PackedConv2dOp, target: CudaTarget) -> Iterator[PackedTile]:
    """Yield the candidate tiles."""
    for blocks, rows, columns, wide in product((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)):
        tile = PackedTile(blocks, (rows, 1), (columns, wide))
        useful = 64 <= op.block * rows * columns <= 512 and blocks * wide <= 16
        if useful and fits(check, op, tile, target):
            yield tile


def check(op: PackedConv2dOp, tile: PackedTile, target: CudaTarget) -> None:
    """Reject a tile that does not suit an operator or a GPU.

    Raises
    ------
    ScheduleError
        If it needs too many threads or too much shared memory, or does not divide the blocks.
    """
    if op.out_blocks % tile.blocks:
        raise ScheduleError(f"{tile} does not divide {op.out_blocks} blocks of channels")
    threads = op.block * tile.rows[0] * tile.columns[0]
    check_block(tile, threads, tile.shared_bytes(op), target)


def declare_padded(op: PackedConv2dOp, tile: PackedTile) -> list[Tensor]:
    """Declare the convolution over whole patches, with the image padded by an inlined stage."""
    tensors = op.placeholders()
    rows, columns = (
        round_up(extent, patch) for extent, patch in zip(op.out_size, tile.patch, strict=True)
    )
    image = pad_blocked(op, tensors["data"], op.window.reach(rows, columns))
    sums = op.sums(op.window, image, tensors["kernel"], op.dtype != "float32")
    total = te.compute((op.batch, op.out_blocks, rows, columns, op.block), sums, name="total")
    return [*tensors.values(), op.result(total, op.epilogue.bind(tensors, op.accumulator))]


def schedule_packed(op: PackedConv2dOp, target: CudaTarget, tile: PackedTile | None = None) -> Any:
    """Schedule a convolution on packed data with its fused epilogue.

    Raises
    ------
    ScheduleError
        See `check`.
    """
    tile = tile or choose_tile(op, target)
    check(op, tile, target)
    s = create_schedule(declare_padded(op, tile))
    total, result = s.get_sblock("total"), s.get_sblock("result")
    n, c, i, j, b, ico, kh, kw, ici, *byte = s.get_loops(total)
    bc, c = s.split(c, [None, tile.blocks])
    bi, ti, i = s.split(i, [None, *tile.rows])
    bj, tj, j = s.split(j, [None, *tile.columns])
    s.reorder(n, bc, bi, bj, ti, tj, b, ico, kh, kw, ici, c, i, j, *byte)
    bind(s, block_x=s.fuse(n, bc), block_y=bi, block_z=bj, thread_z=ti, thread_y=tj, thread_x=b)
    s.set_scope(total, 0, "local")
    s.reverse_compute_at(result, b)
    outside = 7  # loops around a copy: the bound ones, and the blocks of inputs
    for index in (0, 1):
        copy = s.cache_read(total, index, "shared")
        s.compute_at(copy, ico, preserve_unit_loops=True)
        if index == 0:
            inline(s, "padded")
        threads = (tile.rows[0], tile.columns[0], op.block)
        fetch(s, copy, threads, len(s.get_loops(copy)) - outside)
    for loop in (c, i, j):
        s.unroll(loop)
    s.decompose_reduction(total, ico)
    if op.dtype == "int8":
        s.tensorize(*byte, dot_intrinsic())
    return s


def pack_int8_kernel(kernel: Any, block: int = 16) -> Array:
    """Pack an int8 OIHW kernel in channel blocks, padded with zeros.

    Parameters
    ----------
    kernel : array_like
        (O, I, KH, KW).
    block : int
        Channels in one block, a multiple of 4.

    Returns
    -------
    numpy.ndarray
        (O / block, I / block, KH, KW, block / 4, block, 4).

    Raises
    ------
    ShapeError
        If the kernel has another dtype or rank, or `block` does not fit.
    """
    w = as_array(kernel, "kernel", ("int8",), rank=4)
    if block < 4 or block % 4:
        raise ShapeError(f"block is {block}; give a multiple of 4")
    outs, ins, *size = w.shape
    whole = np.pad(w, [(0, -outs % block), (0, -ins % block), (0, 0), (0, 0)])
    blocks = whole.reshape(-1, block, ceil_div(ins, block), block // 4, 4, *size)
    return np.ascontiguousarray(blocks.transpose(0, 2, 5, 6, 3, 1, 4))


def main() -> None:
    """Convolve int8 data in the emulator, by a kernel of ones, and compare with NumPy."""
    op = PackedConv2dOp(1, 2, 8, 8, 2, Window((1, 1)), 16, "int8")
    data, kernel, result = (np.zeros(spec.shape, spec.dtype) for spec in op.arguments)
    data[...] = np.random.default_rng(0).integers(-128, 128, data.shape)
    kernel[...] = pack_int8_kernel(np.ones((32, 32, 1, 1), np.int8))
    gpu = Emulated.of(CudaKernel(op, schedule=schedule_packed))
    gpu({"data": data, "kernel": kernel, "result": result}, results=("result",))
    sums = data.sum(axis=(1, 4), dtype=np.int32)[:, None, :, :, None]
    print("equal to NumPy:", bool((result == sums).all()))


if __name__ == "__main__":
    main()
