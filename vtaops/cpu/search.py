"""Tuning: the best tile of an operator on this CPU, found by trying.

Two ways: `search`, our own brute force over the tiles of the hand-written schedules, and
`meta_schedule`, TVM's evolutionary search over schedules of its own (which needs the packages
cloudpickle and psutil).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vtaops.cpu.target import CpuTarget
from vtaops.errors import UnsupportedError
from vtaops.kernels.ops import (
    Conv1dOp,
    Conv2dOp,
    DepthwiseOp,
    MatmulOp,
    PackedConv2dOp,
    PoolOp,
    TensorOp,
)
from vtaops.kernels.trials import Progress, Trial, try_all


def search(
    op: TensorOp,
    target: CpuTarget | None = None,
    budget: float = 0.05,
    progress: Progress | None = None,
) -> list[Trial]:
    """Time all tiles of an operator and return the trials, the fastest first.

    Parameters
    ----------
    op : TensorOp
        A float32 matrix product, convolution (1-D, 2-D, depthwise) or pooling.
    target : CpuTarget, optional
        By default this CPU.
    budget : float
        Seconds of measurement per tile.
    progress : callable, optional
        See `Progress`.

    Raises
    ------
    UnsupportedError
        If the operator has no tiles to choose from.
    """
    from vtaops.kernels.build import compile_schedule

    target = target or CpuTarget.detect()
    schedule, tiles = _space(op, target)

    def seconds(tile: Any) -> float:
        function = compile_schedule(schedule(op, target, tile), target.tvm)["main"]
        return time_function(function, op, budget, target.cores)

    return try_all(tiles, seconds, progress)


def _space(op: TensorOp, target: CpuTarget) -> tuple[Callable[..., Any], list[Any]]:
    """Return the schedule of an operator and the tiles that it can take."""
    from vtaops.cpu.schedule import conv1d, convolution, matmul, pointwise, window

    match op:
        case MatmulOp(dtype_a="float32"):
            return matmul.schedule_matmul, list(_matmul_tiles(op, target))
        case Conv2dOp(dtype="float32") if pointwise.suits(op, target):
            return pointwise.schedule_pointwise, list(_strips(op, target))
        case Conv2dOp(dtype="float32"):
            return convolution.schedule_conv2d, list(_conv_tiles(op, target))
        case PackedConv2dOp(dtype="float32"):
            tiles = [
                (blocks, columns)
                for blocks in (1, 2, 4)
                if op.out_blocks % blocks == 0
                for columns in (4, 6, 7, 8, 12, 14, 16, 28)
                if columns <= op.out_size[1] and blocks * columns <= target.accumulators
            ]
            return convolution.schedule_packed_conv2d, tiles
        case Conv1dOp():
            return conv1d.schedule_conv1d, [1, 2, 4, 8]
        case DepthwiseOp(dtype="float32"):
            return window.schedule_depthwise, list(_window_tiles(target))
        case PoolOp():
            return window.schedule_pool, list(_window_tiles(target))
    raise UnsupportedError(f"{type(op).__name__} has no tiles to choose from")


def _matmul_tiles(op: MatmulOp, target: CpuTarget) -> Iterator[Any]:
    from vtaops.cpu.schedule.matmul import MatmulTile

    for vectors in (1, 2, 4):
        for rows in (2, 4, 6, 8, 12, 14, 16):
            columns = vectors * target.lanes
            if rows * vectors <= target.accumulators:
                for packed in {op.transposed_b or op.n % columns != 0, True}:
                    yield MatmulTile(rows, columns, op.m % rows != 0, packed)


def _conv_tiles(op: Conv2dOp, target: CpuTarget) -> Iterator[Any]:
    from vtaops.cpu.schedule.convolution import ConvTile

    for channels in (2, 4, 8, 12, 16):
        for vectors in (1, 2, 4):
            if channels * vectors <= target.accumulators and op.group_out % channels == 0:
                yield ConvTile("columns", channels, vectors * target.lanes)
    for vectors in (1, 2):
        for columns in (4, 7, 8, 14, 16):
            block = vectors * target.lanes
            if vectors * columns <= target.accumulators and op.group_out % block == 0:
                yield ConvTile("channels", block, columns)


def _strips(op: Conv2dOp, target: CpuTarget) -> Iterator[Any]:
    from vtaops.cpu.schedule.pointwise import Strip

    for vectors in (1, 2, 4):
        for channels in (2, 4, 8, 12, 16):
            if channels * vectors <= target.accumulators and channels <= op.out_channels:
                tile = vectors * target.lanes
                for pixels in sorted({min(count * tile, op.width) for count in (2, 7, 14)}):
                    yield Strip(pixels, channels, vectors, target.lanes)


def _window_tiles(target: CpuTarget) -> Iterator[Any]:
    from vtaops.cpu.schedule.window import WindowTile

    for vectors in (1, 2, 4):
        for rows in (1, 2, 4, 8):
            if rows * vectors <= target.accumulators:
                yield WindowTile(rows, vectors * target.lanes)


def time_function(function: Any, op: TensorOp, budget: float, cores: int) -> float:
    """Return the median seconds of a compiled function on random arrays."""
    from vtaops.lessons import random_arrays

    arrays = random_arrays(op)
    clock = time.thread_time if cores == 1 else time.perf_counter
    samples: list[float] = []
    function(*arrays)
    end = time.perf_counter() + budget
    while len(samples) < 3 or time.perf_counter() < end:
        start = clock()
        function(*arrays)
        samples.append(clock() - start)
    return sorted(samples)[len(samples) // 2]


def meta_schedule(
    op: TensorOp, directory: Path, trials: int = 64, target: CpuTarget | None = None
) -> Any:
    """Tune the plain declaration of an operator with TVM's MetaSchedule; return the schedule.

    The script that calls this must be guarded by ``if __name__ == "__main__"``: TVM starts worker
    processes that import it.

    Parameters
    ----------
    op : TensorOp
        What is tuned.
    directory : Path
        For the records.
    trials : int
        Number of schedules that are measured.
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
    try:
        import cloudpickle  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
        import psutil  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"MetaSchedule needs {error.name}: pip install cloudpickle psutil (or 'vtaops[tune]')"
        ) from error
    from tvm.s_tir import meta_schedule as ms

    from vtaops.cpu.schedule.stages import schedule_default

    target = target or CpuTarget.detect()
    module = schedule_default(op, target).mod
    limit = ms.runner.EvaluatorConfig(number=3, repeat=1, min_repeat_ms=50)
    # TVM's own build function imports its intrinsics, half a minute in each worker: longer than
    # the builder waits, so that no schedule is ever built. Ours does without them.
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
