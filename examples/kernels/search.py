"""Search for tiles: all that a schedule accepts, as in Hu's article; and TVM's MetaSchedule.

python examples/kernels/search.py        # a matrix product on this CPU, the fastest tiles first
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import gcd, prod
from pathlib import Path
from typing import Any

from examples.kernels.fitting import fits
from vtaops.base.errors import UnsupportedError
from vtaops.base.optional import optional
from vtaops.kernels.build import compile_schedule, create_schedule
from vtaops.kernels.cpu import schedule as cpu
from vtaops.kernels.cpu.schedule import convolution, matmul, packed, pointwise, pooling, window
from vtaops.kernels.cpu.schedule.dot import Products
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda import CudaKernel
from vtaops.kernels.cuda import schedule as cuda
from vtaops.kernels.cuda.schedule import matmul as on_gpu
from vtaops.kernels.cuda.schedule import matmul_tensor
from vtaops.kernels.cuda.schedule import window as gpu_window
from vtaops.kernels.cuda.schedule.product import ProductOp
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops import (
    Conv2dOp,
    DepthwiseOp,
    MatmulOp,
    PackedConv2dOp,
    PackedWindowOp,
    PoolOp,
    TensorOp,
)
from vtaops.kernels.ops.common import ceil_div
from vtaops.kernels.timing import median_seconds, random_arrays


@dataclass(frozen=True)
class Trial:
    """One tile, and the seconds of a call with it: on a GPU those of the kernel alone."""

    tile: Any
    seconds: float


def register_tiles(
    first: tuple[int, ...], second: tuple[int, ...], limit: int
) -> Iterator[tuple[int, int]]:
    """Yield the tiles, by their sides, with at most `limit` vectors of sums."""
    return (tile for tile in product(first, second) if prod(tile) <= limit)


def matmul_tiles(op: MatmulOp, target: CpuTarget) -> Iterator[matmul.MatmulTile]:
    """Yield the candidate tiles."""
    most = target.accumulators
    for vectors, rows in register_tiles((1, 2, 4), (2, 4, 6, 8, 12, 14, 16), most):
        for pack_b in {op.transposed_b or op.n < target.lanes, True}:
            yield matmul.MatmulTile(rows, vectors * target.lanes, pack_b)


def conv2d_tiles(op: Conv2dOp, target: CpuTarget) -> Iterator[convolution.ConvTile]:
    """Yield the candidate tiles."""
    products = Products.of(op.dtype, target)
    sides = (2, 4, 6, 8, 12, 16) if products.group == 1 else ()
    for channels, vectors in register_tiles(sides, (1, 2, 4), products.sums):
        if op.group_out % channels == 0:
            yield convolution.ConvTile("columns", channels, vectors * target.lanes)
    for vectors, columns in register_tiles((1, 2), (4, 7, 8, 14, 16), products.sums):
        if op.group_out % (vectors * products.lanes) == 0:
            yield convolution.ConvTile("channels", vectors * products.lanes, columns)


def packed_tiles(op: PackedConv2dOp, target: CpuTarget) -> Iterator[tuple[int, int]]:
    """Yield the candidate tiles, (blocks, columns)."""
    widths = (4, 6, 7, 8, 12, 14, 16, 28)
    for blocks, columns in register_tiles((1, 2, 4), widths, target.accumulators):
        if columns <= op.out_size[1] and op.out_blocks % blocks == 0:
            yield blocks, columns


def window_widths(op: PackedWindowOp, target: CpuTarget) -> Iterator[int]:
    """Yield the candidate columns of a register tile."""
    most = min(target.accumulators // ceil_div(op.block, target.lanes), op.out_size[1])
    yield from (width for width in (1, 2, 4, 7, 8, 14, 16, 28) if width <= most)


def depthwise_tiles(op: DepthwiseOp, target: CpuTarget) -> Iterator[window.WindowTile]:
    """Yield the candidate tiles."""
    for vectors, rows in register_tiles((1, 2, 4), (1, 2, 4, 8), target.accumulators):
        yield window.WindowTile(rows, vectors * target.lanes)


def pool_tiles(op: PoolOp, target: CpuTarget) -> Iterator[pooling.PoolTile]:
    """Yield the candidate tiles."""
    rows, most = op.out_size[0], gcd(op.batch * op.channels, target.lanes)
    parts = (part for part in range(4, rows) if rows % part == 0)
    yield from (pooling.PoolTile(1, part) for part in (*parts, rows))
    yield from (pooling.PoolTile(planes, rows) for planes in (2, 4, 8, 16) if most % planes == 0)


def pointwise_tiles(op: Conv2dOp, target: CpuTarget) -> Iterator[pointwise.PointwiseTile]:
    """Yield the candidate tiles."""
    for vectors, channels in register_tiles((1, 2, 4), (2, 4, 6, 8, 12, 16), target.accumulators):
        if channels <= op.out_channels:
            yield pointwise.PointwiseTile(channels, vectors)


def gpu_matmul_tiles(op: ProductOp, target: CudaTarget) -> Iterator[on_gpu.MatmulTile]:
    """Yield the candidate tiles."""
    shapes = [((32, 32), (2, 4)), ((64, 64), (4, 4)), ((128, 64), (8, 4)), ((128, 128), (8, 8))]
    for (block, thread), part, step, stages, parts in product(
        shapes, ((1, 1), (2, 2)), (8, 16, 32), (1, 2, 3), (1, 8)
    ):
        tile = on_gpu.MatmulTile(block, thread, part, step, stages, parts)
        if fits(on_gpu.check, op, tile, target):
            yield tile


def tensor_tiles(op: ProductOp, target: CudaTarget) -> Iterator[matmul_tensor.TensorTile]:
    """Yield the candidate tiles."""
    shapes = ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2))
    for warps, fragments, step, stages, parts in product(
        (2, 4, 8), shapes, (16, 32, 64), (1, 2, 3), (1, 8)
    ):
        tile = matmul_tensor.TensorTile(warps, fragments, step, stages, parts)
        if fits(matmul_tensor.check, op, tile, target):
            yield tile


def gpu_window_tiles(
    op: DepthwiseOp | PoolOp, target: CudaTarget
) -> Iterator[gpu_window.WindowTile]:
    """Yield the candidate tiles."""
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
        tile = gpu_window.WindowTile(block, (ty, tx), (vy, vx), shared, registers)
        if not registers or gpu_window.fits_registers(op, tile):
            yield tile


TILES: dict[Callable[..., Any], Callable[..., Iterator[Any]]] = {
    matmul.schedule_matmul: matmul_tiles,
    convolution.schedule_conv2d: conv2d_tiles,
    packed.schedule_packed_conv2d: packed_tiles,
    packed.schedule_packed_window: window_widths,
    window.schedule_depthwise: depthwise_tiles,
    pooling.schedule_pool: pool_tiles,
    pointwise.schedule_pointwise: pointwise_tiles,
    on_gpu.schedule_matmul: gpu_matmul_tiles,
    matmul_tensor.schedule_tensor: tensor_tiles,
    gpu_window.schedule_window: gpu_window_tiles,
}
"""The tiles that a schedule accepts: ``tiles(op, target)``."""


Space = tuple[Callable[..., Any], list[Any]]
"""A schedule, and tiles that it accepts."""


def tile_space(op: TensorOp, target: CpuTarget | CudaTarget) -> Space:
    """Return an operator's schedule for a target, and its tiles.

    Raises
    ------
    UnsupportedError
        If the operator's schedule has no tiles.
    """
    schedule = (cpu if isinstance(target, CpuTarget) else cuda).family(op, target)
    if schedule not in TILES:
        raise UnsupportedError(f"{type(op).__name__} has no tiles to choose from")
    return schedule, [*TILES[schedule](op, target)]


def search(
    op: TensorOp,
    target: CpuTarget | CudaTarget | None = None,
    budget: float = 0.05,
    progress: Callable[[int, int, Trial], None] | None = None,
    space: Space | None = None,
) -> list[Trial]:
    """Time all tiles of an operator; return the trials, fastest first.

    Parameters
    ----------
    op : TensorOp
        A matrix product, convolution or pooling; with `space` any other.
    target : CpuTarget or CudaTarget, optional
        By default this CPU.
    budget : float
        Seconds of measurement per tile.
    progress : callable, optional
        Called after each trial with its number, the total, and the trial.
    space : Space, optional
        By default `tile_space`.

    Raises
    ------
    DeviceError
        If there is no GPU.
    UnsupportedError
        If the operator's schedule has no tiles.
    """
    target = target or CpuTarget.detect()
    schedule, tiles = space or tile_space(op, target)
    seconds = _on_cpu if isinstance(target, CpuTarget) else _on_gpu
    trials: list[Trial] = []
    for number, tile in enumerate(tiles, 1):
        tiled = partial(_with_tile, schedule, tile)
        trials.append(Trial(tile, seconds(op, target, tiled, budget)))
        if progress:
            progress(number, len(tiles), trials[-1])
    return sorted(trials, key=lambda trial: trial.seconds)


def _with_tile(schedule: Any, tile: Any, op: TensorOp, target: Any) -> Any:
    return schedule(op, target, tile)


def _on_cpu(op: TensorOp, target: CpuTarget, schedule: Any, budget: float) -> float:
    function, arrays = compile_schedule(schedule(op, target), target.tvm)["main"], random_arrays(op)
    return median_seconds(lambda: function(*arrays), budget, target.cores)


def _on_gpu(op: TensorOp, target: CudaTarget, schedule: Any, budget: float) -> float:
    return CudaKernel(op, target, schedule).time(budget)


def meta_schedule(
    op: TensorOp, directory: Path, trials: int = 64, target: CpuTarget | None = None
) -> Any:
    """Tune an operator's plain declaration with TVM's MetaSchedule; return the schedule.

    The calling script must be guarded by ``if __name__ == "__main__"``: TVM starts worker processes
    that import it.

    Parameters
    ----------
    op : TensorOp
        The operator.
    directory : Path
        Folder for the records.
    trials : int
        Number of schedules to measure.
    target : CpuTarget, optional
        By default this CPU.

    Returns
    -------
    tvm.s_tir.Schedule or None
        The fastest schedule; None if none could be built.

    Raises
    ------
    UnsupportedError
        If cloudpickle or psutil are not installed.
    """
    for package in ("cloudpickle", "psutil"):
        optional(package, package, "MetaSchedule needs", "tune")
    from tvm.s_tir import meta_schedule as ms

    target = target or CpuTarget.detect()
    module = create_schedule(op.declare()).mod
    limit = ms.runner.EvaluatorConfig(number=3, repeat=1, min_repeat_ms=50)
    # TVM's own build function imports its intrinsics, which takes half a minute per worker, more
    # than the builder's timeout, so that no schedule is ever built. Ours does not need them.
    database = ms.tir_integration.tune_tir(
        module,
        target.tvm,
        work_dir=str(directory),
        max_trials_global=trials,
        num_trials_per_iter=32,
        cost_model="random",
        num_tuning_cores=2,
        builder=ms.builder.LocalBuilder(max_workers=2, f_build=_build, timeout_sec=60),
        runner=ms.runner.LocalRunner(timeout_sec=60, evaluator_config=limit),
    )
    return ms.tir_integration.compile_tir(database, module, target.tvm)


def _build(module: Any, target: Any, _parameters: Any = None) -> Any:
    """Build one candidate of MetaSchedule."""
    from tvm.driver import build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target=target)


if __name__ == "__main__":
    for trial in search(MatmulOp(256, 256, 256))[:5]:
        print(f"{trial.seconds * 1e6:8.1f} us  {trial.tile}")
