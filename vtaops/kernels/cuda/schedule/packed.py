"""CUDA schedule of convolution on NCHW[b]c data; int8 by the instruction for four products (dp4a).

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

from tvm import te

from vtaops.base.errors import ScheduleError
from vtaops.kernels.build import register_intrinsic
from vtaops.kernels.cuda.schedule.binding import (
    bind,
    check_block,
    create_schedule,
    fetch,
    fits,
    inline,
)
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops.common import Tensor, largest_divisor, round_up
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
