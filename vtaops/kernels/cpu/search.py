"""Tuning: search for the best tile of an operator on this CPU.

Two methods: `search`, a brute-force search over the tiles of the hand-written schedules, and
`meta_schedule`, TVM's evolutionary search over its own schedules (needs the packages cloudpickle
and psutil).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vtaops.base.optional import optional
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops import TensorOp
from vtaops.kernels.trials import Family, Progress, Trial, tile_space, try_all


def search(
    op: TensorOp,
    target: CpuTarget | None = None,
    budget: float = 0.05,
    progress: Progress | None = None,
    family: Family | None = None,
) -> list[Trial]:
    """Time all tiles of an operator; return the trials, fastest first.

    Parameters
    ----------
    op : TensorOp
        A float32 matrix product, convolution or pooling; with `family` any other.
    target : CpuTarget, optional
        By default this CPU.
    budget : float
        Seconds of measurement per tile.
    progress : callable, optional
        See `Progress`.
    family : callable, optional
        ``family(op, target)`` returns a schedule and its tiles; by default those of `vtaops.cpu`.

    Raises
    ------
    UnsupportedError
        If the operator's schedule has no tiles.
    """
    from vtaops.kernels.build import compile_schedule
    from vtaops.kernels.cpu.schedule import family as known
    from vtaops.kernels.timing import median_seconds, random_arrays

    target = target or CpuTarget.detect()
    schedule, tiles = tile_space(op, target, family or known)
    arrays = random_arrays(op)

    def seconds(tile: Any) -> float:
        function = compile_schedule(schedule(op, target, tile), target.tvm)["main"]
        return median_seconds(lambda: function(*arrays), budget, target.cores)

    return try_all(tiles, seconds, progress)


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
        optional(package, package, "MetaSchedule needs", "cloudpickle psutil (or 'vtaops[tune]')")
    from tvm.s_tir import meta_schedule as ms

    from vtaops.kernels.build import create_schedule

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
