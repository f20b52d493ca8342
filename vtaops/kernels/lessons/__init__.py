"""Lessons: run the optimization stages of an operator one after another.

`run_lesson` returns one row per stage: explanation, TIR, time and gain. `lesson_table` and
`lesson_plot` show the rows. CUDA stages are timed on a GPU if present; otherwise the emulator
counts their resource use and derives the minimum time on a named card.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtaops.base.errors import UnsupportedError, VTAError, raising
from vtaops.base.files import reason_of, write_file
from vtaops.kernels import cuda, ops
from vtaops.kernels.build import compile_schedule
from vtaops.kernels.cpu.peaks import measured_peaks
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.cuda import emulate
from vtaops.kernels.lessons.on_cpu import STAGES as CPU_STAGES
from vtaops.kernels.lessons.on_cuda import STAGES as CUDA_STAGES
from vtaops.kernels.lessons.stages import Stage, find_stage
from vtaops.kernels.timing import medians_in_turn, random_arrays

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class LessonRow:
    """One stage of a lesson.

    Attributes
    ----------
    stage, explanation : str
        Name of the step, and an explanation of what it does.
    script : str
        The scheduled kernel as TVMScript.
    source : str
        The generated CUDA; empty on the CPU.
    seconds : float or None
        Time of one call; None if there is no device.
    gflops : float or None
        GFLOPS: the arithmetic of the definition per time.
    speedup : float or None
        Time of the first stage divided by the time of this one.
    counts : dict
        Resource use of a kernel on a GPU, see `Profile.summary` of `vtaops.kernels.cuda.emulate`;
        empty if the stage was timed, or if the emulator has no C++ compiler.
    remark : str
        Remark if the times contradict the stage's explanation.
    """

    stage: str
    explanation: str
    script: str
    source: str = ""
    seconds: float | None = None
    gflops: float | None = None
    speedup: float | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    remark: str = ""

    @property
    def speed(self) -> float | None:
        """Measured GFLOPS, or the upper bound from the counts."""
        return self.counts.get("most GFLOPS") if self.gflops is None else self.gflops


@dataclass(frozen=True)
class Lesson:
    """The stages of one operator on one kind of target, with the default problem size.

    Attributes
    ----------
    name : str
        Name of the operator.
    target : str
        "cpu" or "cuda".
    op : callable
        ``op(size)`` returns the operator.
    size : int
        Default size.
    meaning : str
        What the size means.
    stages : sequence of Stage
        In order.
    """

    name: str
    target: str
    op: Callable[[int], ops.TensorOp]
    size: int
    meaning: str
    stages: Sequence[Stage]


def lessons(target: str = "cpu") -> dict[str, Lesson]:
    """Return the lessons for a target, "cpu" or "cuda", by name.

    Raises
    ------
    UnsupportedError
        If the target is unknown.
    """
    if target not in _STAGES:
        raise UnsupportedError(f"no lessons for target {target!r}; targets: cpu, cuda")
    stages, table = _STAGES[target], {}
    for name, (op, size, meaning) in _OPERATORS.items():
        kind = name if name in stages else type(op(size))
        if kind in stages:
            table[name] = Lesson(name, target, op, size, meaning, stages[kind])
    return table


_STAGES = {"cpu": CPU_STAGES, "cuda": CUDA_STAGES}

_WINDOW = ops.Window((3, 3), padding=(1, 1, 1, 1))
_NORMAL = ops.Epilogue(batch_norm=1e-5)

_OPERATORS: dict[str, tuple[Callable[[int], ops.TensorOp], int, str]] = {
    "vector_add": (lambda n: ops.BroadcastOp("add", (n,), (n,)), 1 << 17, "elements"),
    "broadcast_add": (lambda n: ops.BroadcastOp("add", (n, 1), (n, n)), 512, "rows"),
    "matmul": (lambda n: ops.MatmulOp(n, n, n), 512, "rows and columns"),
    "conv2d": (lambda c: ops.Conv2dOp(1, c, 64, 64, c, _WINDOW), 64, "channels"),
    "depthwise": (lambda c: ops.DepthwiseOp(1, c, 64, 64, _WINDOW), 64, "channels"),
    "max_pool": (lambda c: ops.PoolOp("max", 1, c, 64, 64, _WINDOW), 64, "channels"),
    "avg_pool": (lambda c: ops.PoolOp("avg", 1, c, 64, 64, _WINDOW), 64, "channels"),
    "batch_norm": (lambda c: ops.NormalizeOp(1, c, 784, _NORMAL), 64, "channels"),
}
"""Function from size to operator, default size and its meaning, by lesson name."""


def find_lesson(name: str, target: str = "cpu") -> Lesson:
    """Return a lesson by its name.

    Raises
    ------
    UnsupportedError
        If the lesson or the target is unknown.
    """
    offered = lessons(target)
    if name not in offered:
        raise UnsupportedError(f"unknown lesson {name!r}; the lessons are {', '.join(offered)}")
    return offered[name]


def run_lesson(
    lesson: Lesson,
    size: int | None = None,
    stages: tuple[str, ...] = (),
    budget: float = 0.5,
    card: str = "T4",
) -> list[LessonRow]:
    """Schedule, compile and time the stages of a lesson; without a GPU, count CUDA's resource use.

    Parameters
    ----------
    lesson : Lesson
        One of `lessons`, or your own.
    size : int, optional
        Problem size, see `Lesson.meaning`; `Lesson.size` by default.
    stages : tuple of str
        Names of the stages to run; all by default.
    budget : float
        Seconds of measurement per stage.
    card : str
        GPU for the counts: one of `vtaops.kernels.cuda.emulate.CARDS`.

    Raises
    ------
    UnsupportedError
        If the card is unknown.
    ScheduleError
        If a stage is unknown.
    """
    chosen = [find_stage(lesson.stages, stage) for stage in stages] or lesson.stages
    op = lesson.op(size or lesson.size)
    if lesson.target == "cpu":
        runs = _on_cpu(op, chosen, budget)
    else:
        runs = [_on_cuda(op, stage, budget, card) for stage in chosen]
    rows: list[LessonRow] = []
    for row in runs:
        if row.seconds:
            speedup = (runs[0].seconds or 0.0) / row.seconds
            row = replace(row, gflops=op.flops / row.seconds / 1e9, speedup=speedup)
        rows.append(replace(row, remark=_remark(rows, row)))
    return rows


def limits(lesson: Lesson, size: int | None = None, card: str = "T4") -> dict[str, float]:
    """Return the upper limits in GFLOPS for a lesson's operator, by resource.

    "peak" is arithmetic; "memory" reads or writes each byte of the arguments once. For the CPU,
    both are measured: arithmetic with as many threads as kernels use, memory with one thread. For a
    card, they come from its data sheet.
    """
    op = lesson.op(size or lesson.size)
    if lesson.target == "cpu":
        peaks = measured_peaks()
        peak, bandwidth = peaks.gflops, peaks.gigabytes_per_second
    else:
        chosen = emulate.card(card)
        peak, bandwidth = 2 * chosen.lanes * chosen.cycles / 1e9, chosen.gigabytes_per_second
    return {"peak": peak, "memory": bandwidth * op.flops / op.nbytes}


def _remark(before: list[LessonRow], row: LessonRow) -> str:
    """Return a remark on a stage if the figures add to its explanation or contradict it."""
    speeds = [stage.speed or 0.0 for stage in (*before[:1], *before[-1:], row)]
    if len(speeds) < 3 or not all(speeds):
        return ""
    total, ratio = (speed / speeds[2] for speed in speeds[:2])
    if ratio > _NOTABLE:
        return f"Here it is {ratio:.1f} times slower than the previous stage."
    still = f"It is still {total:.1f} times slower than the first." if total > _NOTABLE else ""
    if ratio < 1 / _NOTABLE:
        return still
    if change := _change(before[-1].counts, row.counts):
        return f"Here {change}, but {row.counts['limit']} still sets the bound."
    return f"This gains nothing over the previous stage. {still}".strip()


def _change(before: dict[str, Any], counts: dict[str, Any]) -> str:
    """Describe the first count that decreased; empty if there is none."""
    for key, heading, text in COUNTS:
        old, new = before.get(key), counts.get(key)
        if key in _FEWER and old and new and old > _NOTABLE * new:
            return f"{heading} falls from {text.format(old)} to {text.format(new)}"
    return ""


_FEWER = ("overfetch", "bank conflict", "shared loads per multiply-add")
"""Counts that should decrease."""

_NOTABLE = 1.05
"""Time ratio to the previous stage above which a stage is called slower; the inverse for faster."""


def _on_cpu(op: ops.TensorOp, stages: Sequence[Stage], budget: float) -> list[LessonRow]:
    target, arrays = CpuTarget.detect(), random_arrays(op)
    scheduled = [stage.schedule(op, target) for stage in stages]
    functions = [compile_schedule(s, target.tvm)["main"] for s in scheduled]
    calls = [partial(function, *arrays) for function in functions]
    times = medians_in_turn(calls, budget, target.cores)
    return [
        LessonRow(stage.name, stage.explanation, str(s.mod.script()), seconds=seconds)
        for stage, s, seconds in zip(stages, scheduled, times, strict=True)
    ]


def _on_cuda(op: ops.TensorOp, stage: Stage, budget: float, card: str) -> LessonRow:
    here = cuda.device_present()
    target = None if here else emulate.card(card).target
    kernel = cuda.CudaKernel(op, target, stage.schedule)
    row = LessonRow(stage.name, stage.explanation, kernel.script(), kernel.source())
    if here:
        return replace(row, seconds=kernel.time(budget))
    if not emulate.compiler():
        return row
    return replace(row, counts=emulate.profile(kernel).summary(emulate.card(card)))


COUNTS = (
    ("blocks", "blocks", "{:.0f}"),
    ("overfetch", "sectors / minimum", "{:.2f}"),
    ("bank conflict", "wavefronts / minimum", "{:.2f}"),
    ("shared loads per multiply-add", "shared loads / FMA", "{:.3f}"),
    ("occupancy", "occupancy", "{:.0%}"),
)
"""Columns of a lesson's counts: key, heading, format."""


def count_cells(row: LessonRow) -> list[str]:
    """Return a stage's counts as table cells, ending with the minimum time on the card."""
    counts = row.counts
    if not counts:
        return [""] * (len(COUNTS) + 1)
    cells = ["-" if counts[key] is None else text.format(counts[key]) for key, _, text in COUNTS]
    limit = counts["limit"]
    return [*cells, f"{counts[f'least us, {limit}']:.1f} us, {limit}"]


def lesson_table(rows: list[LessonRow], title: str) -> Table:
    """Return the rows as a ``rich`` table, followed by the explanations."""
    from rich.table import Table
    from rich.text import Text

    caption = Text("\n").join(
        Text.assemble((row.stage, "bold"), f"  {row.explanation} {row.remark}".rstrip())
        for row in rows
    )
    table = Table(
        title=title, caption=caption, caption_justify="left", caption_style="", min_width=76
    )
    table.add_column("stage", no_wrap=True)
    counts = next((row.counts for row in rows if row.counts), None)
    headings, cells = ["time", "GFLOPS", "speed-up"], _time_cells
    if counts:
        headings = [*(heading for _, heading, _ in COUNTS), f"bound on {counts['card']}"]
        cells = count_cells
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(row.stage, *cells(row))
    return table


def _time_cells(row: LessonRow) -> list[str]:
    """Return a stage's times as table cells."""
    microseconds = None if row.seconds is None else row.seconds * 1e6
    values = (("{:.1f} us", microseconds), ("{:.1f}", row.gflops), ("{:.3g}", row.speedup))
    return ["" if value is None else text.format(value) for text, value in values]


def where(target: str, card: str = "T4") -> str:
    """Return the source of the figures for titles: processor and threads, or the card."""
    if target == "cpu":
        cpu = CpuTarget.detect()
        return f"measured on {cpu.mcpu}, {cpu.cores} thread{'s' if cpu.cores > 1 else ''}"
    return "measured on this GPU" if cuda.device_present() else f"counted, for a {card}"


_LINES = {"peak": "-", "memory": "--"}
"""Drawing style of the limits."""

_NAMES = {"peak": "peak", "memory": "memory\nbeyond caches"}
"""Labels in the plots."""

_MARKS = "os^vDPX*<>"


@contextmanager
def _plot(path: Path, title: str) -> Iterator[Any]:
    """Yield axes to draw on, then write the plot with a legend that covers no data."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    yield axes
    axes.set_title(title, fontsize="medium")
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(ticker.NullLocator())
        axes.set_ylabel(f"{axes.get_ylabel()}, log scale")
    axes.grid(axis="y", linewidth=0.3)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside right upper", fontsize="small")
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower())
    pyplot.close(figure)
    with raising(VTAError, f"cannot write {str(path)!r}", OSError, describe=reason_of):
        write_file(path, content.getvalue())


def lesson_plot(
    lesson: Lesson, found: dict[int, list[LessonRow]], path: Path, card: str = "T4"
) -> None:
    """Plot the speed of the stages: curves over several sizes; for one size, by stage.

    If stages were counted instead of timed, one size has the minimum times on the card by resource.

    Parameters
    ----------
    lesson : Lesson
        The lesson.
    found : dict
        Rows of `run_lesson`, by size.
    path : Path
        Output file; the suffix determines the format.
    card : str
        The GPU of the counts.

    Raises
    ------
    UnsupportedError
        If no row has times or counts.
    """
    rows = [row for row in next(iter(found.values()), []) if row.speed is not None]
    if not rows:
        raise UnsupportedError("there is nothing to plot: no stage was timed or counted")
    most = {size: limits(lesson, size, card) for size in found}
    size = ", ".join(map(str, found)) if len(found) == 1 else "size in"
    title = f"{lesson.name} on {lesson.target}, {size} {lesson.meaning}"
    with _plot(path, f"{title}\n{where(lesson.target, card)}") as axes:
        if len(found) > 1:
            _draw_curves(axes, found, rows, most)
        elif rows[0].counts:
            _draw_counts(axes, rows)
        else:
            _draw_speeds(axes, rows, *most.values())
        if len(rows) > 7 and len(found) == 1:
            axes.tick_params(axis="x", rotation=20)


def _draw_curves(
    axes: Any,
    found: dict[int, list[LessonRow]],
    stages: list[LessonRow],
    most: dict[int, dict[str, float]],
) -> None:
    """Draw speed over size: one curve per stage, and the limits."""
    sizes = list(found)
    for number, (stage, mark) in enumerate(zip(stages, cycle(_MARKS), strict=False)):
        speeds = [
            next(row.speed or 0.0 for row in rows if row.stage == stage.stage)
            for rows in found.values()
        ]
        width = 4 - 3 * number / len(stages)  # makes equal curves visible
        axes.plot(sizes, speeds, f"{mark}-", linewidth=width, markersize=6, label=stage.stage)
    for name, style in _LINES.items():
        line = [most[size][name] for size in sizes]
        axes.plot(sizes, line, style, color="black", linewidth=1, label=_NAMES[name])
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, list(map(str, sizes)))
    counts = stages[0].counts
    ylabel = f"at most GFLOPS on {counts['card']}" if counts else "GFLOPS"
    axes.set(yscale="log", xlabel="size, log scale", ylabel=ylabel)


def _draw_speeds(axes: Any, rows: list[LessonRow], most: dict[str, float]) -> None:
    stages, speeds = [row.stage for row in rows], [row.speed or 0.0 for row in rows]
    for name, limit in most.items():
        label = f"{_NAMES[name]}: {limit:.{0 if limit > 100 else 1}f} GFLOPS"
        axes.axhline(limit, linestyle=_LINES[name], color="black", linewidth=1, label=label)
    if max(*speeds, *most.values()) > 10 * min(speeds):
        axes.plot(stages, speeds, "o")
        axes.set(yscale="log", ylabel="GFLOPS")
        axes.margins(x=0.1, y=0.1)
    else:  # bars start at zero
        axes.bar(stages, speeds)
        axes.set(ylabel="GFLOPS")
    _label(axes, speeds)


def _draw_counts(axes: Any, rows: list[LessonRow]) -> None:
    """Plot the minimum times of the stages, with one mark per resource."""
    prefix, stages = "least us, ", [row.stage for row in rows]
    resources = [key for key in rows[0].counts if key.startswith(prefix)]
    for resource, mark in zip(resources, _MARKS, strict=False):
        times = [row.counts[resource] or None for row in rows]  # None: no such access
        axes.plot(stages, times, mark, fillstyle="none", label=resource.removeprefix(prefix))
    axes.set(ylabel=f"least us on {rows[0].counts['card']}", yscale="log")
    axes.margins(x=0.1, y=0.1)
    _label(axes, [max(row.counts[resource] for resource in resources) for row in rows])


def _label(axes: Any, values: list[float]) -> None:
    """Write the values above the marks of the stages."""
    for at, value in enumerate(values):
        text = f"{value:.{0 if value > 100 else 1}f}"
        note = axes.annotate(text, (at, value), (0, 5), textcoords="offset points", ha="center")
        # a limit ends beside it
        note.set(va="bottom", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
