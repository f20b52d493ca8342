"""Brute-force search for the tile of an operator on this machine's GPU, as Hu's article does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

from vtaops.cuda.kernel import CudaKernel
from vtaops.cuda.schedule import (
    conv1d,
    convolution,
    matmul,
    matmul_tensor,
    packed,
    separable,
    window,
)
from vtaops.cuda.target import CudaTarget
from vtaops.errors import ScheduleError, UnsupportedError
from vtaops.kernels.ops import (
    Conv1dOp,
    Conv2dOp,
    DepthwiseOp,
    MatmulOp,
    PackedConv2dOp,
    PoolOp,
    SeparableOp,
    TensorOp,
)
from vtaops.kernels.trials import Progress, Trial, try_all


def search(
    op: TensorOp,
    target: CudaTarget | None = None,
    budget: float = 0.05,
    progress: Progress | None = None,
) -> list[Trial]:
    """Time all tiles of an operator on the GPU and return the trials, the fastest first.

    Parameters
    ----------
    op : TensorOp
        A matrix product, convolution (1-D, 2-D, depthwise) or pooling.
    target : CudaTarget, optional
        By default `CudaTarget()`.
    budget : float
        Seconds of measurement per tile.
    progress : callable, optional
        See `Progress`.

    Raises
    ------
    DeviceError
        If there is no GPU.
    UnsupportedError
        If the operator has no tiles to choose from.
    """
    schedule, tiles = tile_space(op, target or CudaTarget())

    def seconds(tile: Any) -> float:
        return CudaKernel(op, target, partial(schedule, tile=tile)).time(budget)

    return try_all(tiles, seconds, progress)


def tile_space(op: TensorOp, target: CudaTarget) -> tuple[Callable[..., Any], list[Any]]:
    """Return the schedule of an operator and the tiles that it can take on a GPU.

    Raises
    ------
    UnsupportedError
        If the operator has no tiles to choose from.
    """
    match op:
        case MatmulOp() if matmul_tensor.suits(op):
            return matmul_tensor.schedule_tensor, list(_tensor_tiles(op, target))
        case MatmulOp():
            return matmul.schedule_matmul, list(_matmul_tiles(target))
        case Conv2dOp():
            return convolution.schedule_conv2d, list(_conv_tiles(op, target))
        case SeparableOp():
            return separable.schedule_separable, list(_separable_tiles(target))
        case PackedConv2dOp():
            return packed.schedule_packed, list(_packed_tiles(op, target))
        case DepthwiseOp() | PoolOp():
            return window.schedule_window, list(_window_tiles(op, target))
        case Conv1dOp():
            tiles = [
                conv1d.Conv1dTile(threads, virtual, shared)
                for threads, virtual, shared in product((64, 128, 256), (1, 2, 4, 8), (False, True))
            ]
            return conv1d.schedule_conv1d, tiles
    raise UnsupportedError(f"{type(op).__name__} has no tiles to choose from")


def _matmul_tiles(target: CudaTarget) -> Iterator[matmul.MatmulTile]:
    shapes = [((32, 32), (2, 4)), ((64, 64), (4, 4)), ((128, 64), (8, 4)), ((128, 128), (8, 8))]
    for (block, thread), part, step, stages in product(
        shapes, ((1, 1), (2, 2)), (8, 16, 32), (1, 2, 3)
    ):
        tile = matmul.MatmulTile(block, thread, part, step, stages)
        try:
            matmul.check(tile, target)
        except ScheduleError:
            continue
        yield tile


def _tensor_tiles(op: MatmulOp, target: CudaTarget) -> Iterator[matmul_tensor.TensorTile]:
    for warps, fragments, step, stages in product(
        (2, 4, 8), ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2)), (16, 32, 64), (1, 2, 3)
    ):
        tile = matmul_tensor.TensorTile(warps, fragments, step, stages)
        try:
            matmul_tensor.check(op, tile, target)
        except ScheduleError:
            continue
        yield tile


def _conv_tiles(op: Conv2dOp, target: CudaTarget) -> Iterator[convolution.ConvTile]:
    for virtual, threads, each, rows, columns, wide, inputs in product(
        (1, 2, 4), (2, 4, 8, 16), (1, 2, 4), (2, 4, 8), (4, 8, 16), (1, 2, 4), (4, 8)
    ):
        channels = (virtual, threads, each)
        tile = convolution.ConvTile(channels, (rows, 1), (columns, wide), inputs)
        useful = 64 <= threads * rows * columns <= 512 and virtual * each * wide <= 32
        if not useful or tile.block[0] >= 2 * op.group_out:
            continue
        try:
            convolution.check(op, tile, target)
        except ScheduleError:
            continue
        yield tile


def _separable_tiles(target: CudaTarget) -> Iterator[convolution.ConvTile]:
    for virtual, threads, each, rows, columns, wide, inputs in product(
        (1, 2, 4), (4, 8, 16), (2, 4), (2, 4, 8), (4, 8, 16), (1, 2, 4), (8, 16, 32)
    ):
        tile = convolution.ConvTile((virtual, threads, each), (rows, 1), (columns, wide), inputs)
        if not 64 <= threads * rows * columns <= 512 or virtual * each * wide > 32:
            continue
        try:
            separable.check(tile, target)
        except ScheduleError:
            continue
        yield tile


def _packed_tiles(op: PackedConv2dOp, target: CudaTarget) -> Iterator[packed.PackedTile]:
    for blocks, rows, columns, wide in product((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)):
        tile = packed.PackedTile(blocks, (rows, 1), (columns, wide))
        if not 64 <= op.block * rows * columns <= 512 or blocks * wide > 16:
            continue
        try:
            packed.check(op, tile, target)
        except ScheduleError:
            continue
        yield tile


def _window_tiles(op: DepthwiseOp | PoolOp, target: CudaTarget) -> Iterator[window.WindowTile]:
    for block, ty, tx, vy, vx, (shared, registers) in product(
        ((16, 32), (32, 32)),
        (1, 2, 4, 8, 16),
        (8, 16, 32),
        (1, 2),
        (1, 2, 4),
        ((False, False), (True, False), (False, True)),
    ):
        whole = block[0] % (ty * vy) == 0 == block[1] % (tx * vx)
        if not whole or not 32 <= ty * tx <= target.threads:
            continue
        tile = window.WindowTile(block, (ty, tx), (vy, vx), shared, registers)
        if not registers or window.fits_registers(op, tile):
            yield tile
