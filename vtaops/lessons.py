"""Lessons: the optimisation stages of an operator, run one after the other.

`run_lesson` gives one row per stage: what it does, its TIR, its time and what it gained.
`lesson_table` and `lesson_plot` show the rows. CUDA stages are timed only where a GPU is; else
their rows have the generated source and no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from vtaops.errors import UnsupportedError
from vtaops.kernels.stages import Stage, find_stage

if TYPE_CHECKING:
    from rich.table import Table

    from vtaops.kernels.ops import TensorOp


@dataclass(frozen=True)
class LessonRow:
    """One stage of a lesson.

    Attributes
    ----------
    stage, explanation : str
        The name of the step, and what it does.
    script : str
        The scheduled kernel as TVMScript.
    source : str
        The generated CUDA; empty on the CPU.
    seconds : float or None
        Time of one call; None without a device.
    gflops : float or None
        Arithmetic by the definition, per time.
    speedup : float or None
        Time of the first stage / time of this one.
    """

    stage: str
    explanation: str
    script: str
    source: str
    seconds: float | None
    gflops: float | None
    speedup: float | None


@dataclass(frozen=True)
class Lesson:
    """The stages of one operator on one kind of target, and the size at which they are shown.

    Attributes
    ----------
    name : str
        Of the operator.
    target : str
        "cpu" or "cuda".
    op : callable
        ``op(size)`` returns the operator.
    size : int
        Usual size.
    meaning : str
        What the size counts.
    stages : tuple of Stage
        In order.
    """

    name: str
    target: str
    op: Callable[[int], TensorOp]
    size: int
    meaning: str
    stages: tuple[Stage, ...]


def lessons(target: str = "cpu") -> dict[str, Lesson]:
    """Return the lessons for a target, "cpu" or "cuda", by name.

    Raises
    ------
    UnsupportedError
        If the target is another.
    """
    from vtaops.kernels.ops import (
        BroadcastOp,
        Conv1dOp,
        Conv2dOp,
        DepthwiseOp,
        Epilogue,
        MatmulOp,
        NormalizeOp,
        PoolOp,
        SeparableOp,
        SlidingWindow,
    )

    if target not in ("cpu", "cuda"):
        raise UnsupportedError(f"there are no lessons for {target!r}; targets are cpu and cuda")
    stages: dict[type | str, tuple[Stage, ...]]
    stages = import_module(f"vtaops.{target}.schedule.stages").STAGES
    window = SlidingWindow((3, 3), padding=(1, 1, 1, 1))
    normal = Epilogue(batch_norm=1e-5)

    def pool(kind: str) -> Callable[[int], TensorOp]:
        return lambda c: PoolOp(kind, 1, c, 64, 64, window)

    found: list[tuple[str, type | str, Callable[[int], TensorOp], int, str]] = [
        ("vector_add", "vector_add", lambda n: BroadcastOp("add", (n,), (n,)), 1 << 17, "elements"),
        ("broadcast_add", BroadcastOp, lambda n: BroadcastOp("add", (n, 1), (n, n)), 512, "rows"),
        ("matmul", MatmulOp, lambda n: MatmulOp(n, n, n), 512, "rows and columns"),
        ("conv2d", Conv2dOp, lambda c: Conv2dOp(1, c, 64, 64, c, window), 64, "channels"),
        ("depthwise", DepthwiseOp, lambda c: DepthwiseOp(1, c, 64, 64, window), 64, "channels"),
        ("conv1d", Conv1dOp, lambda n: Conv1dOp(n, 13, (6, 6)), 1 << 16, "samples"),
        ("separable", SeparableOp, lambda c: SeparableOp(1, c, 64, 64, window, c), 64, "channels"),
        ("max_pool", PoolOp, pool("max"), 64, "channels"),
        ("avg_pool", PoolOp, pool("avg"), 64, "channels"),
        ("batch_norm", NormalizeOp, lambda c: NormalizeOp(1, c, 784, normal), 64, "channels"),
    ]
    return {
        name: Lesson(name, target, op, size, meaning, stages[kind])
        for name, kind, op, size, meaning in found
        if kind in stages
    }


def run_lesson(
    name: str,
    target: str = "cpu",
    size: int | None = None,
    stages: tuple[str, ...] = (),
    budget: float = 0.5,
) -> list[LessonRow]:
    """Schedule, compile and time the stages of a lesson.

    Parameters
    ----------
    name : str
        One of `lessons`: "matmul", "conv2d", "depthwise", "conv1d", ...
    target : str
        "cpu" or "cuda".
    size : int, optional
        See `Lesson.meaning`; by default `Lesson.size`.
    stages : tuple of str
        The names of some stages; none: all.
    budget : float
        Seconds of measurement per stage.

    Raises
    ------
    UnsupportedError
        If there is no such lesson.
    ScheduleError
        If there is no such stage.
    """
    offered = lessons(target)
    if name not in offered:
        raise UnsupportedError(f"there is no lesson {name!r}; lessons are {', '.join(offered)}")
    lesson = offered[name]
    chosen = tuple(find_stage(lesson.stages, stage) for stage in stages) or lesson.stages
    op = lesson.op(size or lesson.size)
    run = _run_on_cpu if target == "cpu" else _run_on_cuda
    measured = [(stage, *run(op, stage, budget)) for stage in chosen]
    first = measured[0][3]
    return [
        LessonRow(
            stage.name,
            stage.explanation,
            script,
            source,
            seconds,
            op.flops / seconds / 1e9 if seconds else None,
            first / seconds if seconds and first else None,
        )
        for stage, script, source, seconds in measured
    ]


def _run_on_cpu(op: TensorOp, stage: Stage, budget: float) -> tuple[str, str, float | None]:
    from vtaops.cpu.target import CpuTarget
    from vtaops.kernels.build import compile_schedule
    from vtaops.kernels.timing import median_seconds, random_arrays

    target = CpuTarget.detect()
    scheduled = stage.schedule(op, target)
    function = compile_schedule(scheduled, target.tvm)["main"]
    arrays = random_arrays(op)
    seconds = median_seconds(lambda: function(*arrays), budget, target.cores)
    return str(scheduled.mod.script()), "", seconds


def _run_on_cuda(op: TensorOp, stage: Stage, budget: float) -> tuple[str, str, float | None]:
    from vtaops import cuda

    kernel = cuda.CudaKernel(op, schedule=stage.schedule)
    seconds = kernel.time(budget) if cuda.device_present() else None
    return kernel.script(), kernel.source(), seconds


def lesson_table(rows: list[LessonRow], title: str) -> Table:
    """Return the rows as a table of the ``rich`` library."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title)
    table.add_column("stage")
    for column in ("time", "GFLOPS", "speed-up"):
        table.add_column(column, justify="right")
    table.add_column("what it does")
    for row in rows:
        table.add_row(
            row.stage,
            "" if row.seconds is None else f"{row.seconds * 1e6:.1f} us",
            "" if row.gflops is None else f"{row.gflops:.1f}",
            "" if row.speedup is None else f"{row.speedup:.3g}",
            escape(row.explanation),
        )
    return table


def lesson_plot(rows: list[LessonRow], title: str, path: Path) -> None:
    """Write the speed of the stages as a bar chart; the suffix of `path` gives the format.

    Raises
    ------
    UnsupportedError
        If no row has a time.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    timed = {row.stage: row.gflops for row in rows if row.gflops is not None}
    if not timed:
        raise UnsupportedError("there is nothing to plot: no stage was timed")
    slowest, fastest = min(timed.values()), max(timed.values())
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    bars = axes.bar(list(timed), list(timed.values()))
    axes.bar_label(bars, fmt="%.3g")
    axes.margins(y=0.1)
    if fastest > 10 * slowest:  # else bars from zero say more
        axes.set(yscale="log", ylim=(slowest / 2, fastest * 2))
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set(ylabel="GFLOPS", title=title)
    figure.savefig(path)
    pyplot.close(figure)
