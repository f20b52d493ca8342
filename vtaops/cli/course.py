"""The commands ``vtaops course``: check an exercise, run a lesson.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from typer import Argument, Option

from vtaops.base.data import data_directory
from vtaops.base.errors import ArgumentError
from vtaops.base.files import write_file
from vtaops.cli.check import Finding, judged
from vtaops.cli.options import Commands, progress_bar, show, written
from vtaops.report.files import FIGURE_SUFFIXES, writing

if TYPE_CHECKING:
    from vtaops.kernels.lessons import LessonRow

PRINTED = 2000
"""Characters shown of what an exercise printed."""

course_app = Commands(name="course", help="Exercises and lessons.")


@course_app.command("check")
def check(
    exercise: Annotated[
        Path | None, Argument(help="A Python file or a notebook, with TASK, LIMITS and program().")
    ] = None,
    *,
    new: Annotated[
        Path | None,
        Option(help="Write all exercises to this folder instead; existing files are kept."),
    ] = None,
    against: Annotated[
        Path | None,
        Option(help="The file whose TASK, LIMITS and CONFIG count; default: the exercise itself."),
    ] = None,
    timeout: Annotated[float, Option(help="Time limit of the exercise in seconds.", min=1)] = 60,
) -> None:
    """Judge an exercise: safe, correct for every input, and within its limits.

    Explains what is wrong. The file is executed in a process that can write nothing but a program,
    which is judged here.

    Example: vtaops course check course/1_tokens.py
    """
    from vtaops.explore.judge.confined import is_confined

    if (exercise is None) == (new is None):
        raise ArgumentError("give either an exercise or --new FOLDER")
    if exercise is None:
        paths = [str(path) for path in _written(Path(str(new)))]
        show({"written": paths}, *paths)
        return
    with progress_bar(f"check {exercise.name}"):
        findings, output = judged(exercise, against, timeout)
    solved = bool(findings) and not any(f.advice for f in findings)
    data = {
        "solved": solved,
        "confined": is_confined(),
        "findings": [*map(Finding._asdict, findings)],
        "output": output[-PRINTED:],
    }
    printed = [f"  | {line}" for line in output[-PRINTED:].splitlines()]
    marked = (
        f"{'NO ' if f.advice else 'yes'}  {f.question}: {f.answer}\n     {f.advice}".rstrip()
        for f in findings
    )
    show(data, *printed, *marked, "solved" if solved else "not solved yet", good=solved)


def _written(folder: Path) -> Iterator[Path]:
    """Write the exercises that do not exist yet; yield the paths of all."""
    with writing(f"exercises to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(data_directory("examples/course").glob("*.py")):
            path = folder / source.name
            if not path.exists():
                write_file(path, source.read_bytes())
            yield path


@course_app.command("lesson")
def lesson(
    name: Annotated[
        str,
        Argument(
            help="vector_add, broadcast_add, matmul, conv2d, depthwise, max_pool, avg_pool or "
            "batch_norm."
        ),
    ],
    *,
    target: Annotated[str, Option(help="cpu or cuda.")] = "cpu",
    size: Annotated[
        list[int] | None,
        Option(help="Problem size; default: that of the lesson; several sizes give curves.", min=1),
    ] = None,
    stage: Annotated[list[str] | None, Option(help="Only this stage; may be repeated.")] = None,
    budget: Annotated[float, Option(help="Seconds of timing per stage.")] = 0.5,
    threads: Annotated[
        int | None, Option(help="Number of threads of CPU kernels; default: all.", min=1)
    ] = None,
    script: Annotated[bool, Option("--script", help="Print the TIR of each stage.")] = False,
    plot: Annotated[
        Path | None,
        Option(
            help="Plot the speed of the stages: .png, .svg or .pdf.",
            callback=written(*FIGURE_SUFFIXES),
        ),
    ] = None,
) -> None:
    """Run the optimisation stages of a kernel and print the gain of each.

    For a GPU that is not present, the emulator counts each stage's accesses to memory and shared
    memory and derives the minimum time on a T4. The plot shows the limits of the processor or
    card as lines.

    Example: vtaops course lesson matmul --size 64 --size 256 --threads 1 --plot matmul.png
    """
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM is imported
    from vtaops.kernels.lessons import find_lesson, lesson_plot, lesson_table, run_lesson, where

    chosen = find_lesson(name, target)
    sizes, stages = size or [chosen.size], tuple(stage or ())
    with progress_bar(f"lesson {name}"):
        results = {n: run_lesson(chosen, n, stages, budget) for n in sizes}
    parts: list[Table | str] = []
    for n, rows in results.items():
        parts += map(_script, rows) if script else []
        title = f"{name} on {target}, {n} {chosen.meaning}: {where(target)}"
        parts.append(lesson_table(rows, title))
    records = [{"size": n, **asdict(row)} for n, rows in results.items() for row in rows]
    show(records, *parts)
    if plot is not None:
        lesson_plot(chosen, results, plot)


def _script(row: LessonRow) -> str:
    return f"# ==== {row.stage}: {row.explanation}\n{row.script}\n"
