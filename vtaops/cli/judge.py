"""The command ``vtaops judge``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from vtaops.base.progress import tracked
from vtaops.cli.options import progress_bar, show, write_arrays, written
from vtaops.report.files import write_text
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from vtaops.explore.judge import KernelTask


def judge(
    task: Annotated[
        str, Argument(help="A task, such as tiny/first; or how names of tasks begin, to list them.")
    ] = "",
    answer: Annotated[
        Path | None,
        Argument(help="A stream as text, a tiling (.json), or a schedule (.py); none: the task."),
    ] = None,
    *,
    start: Annotated[
        Path | None,
        Option(help="Write the compiler's stream here, as a start.", callback=written(".txt")),
    ] = None,
    rtl: Annotated[bool, Option("--rtl", help="Run what is accepted on the RTL, too.")] = False,
    save: Annotated[
        Path | None,
        Option(
            help="Where to write inputs that show why an answer is wrong: .npz.",
            callback=written(".npz"),
        ),
    ] = None,
) -> None:
    """Judge an answer to a task: proven equal for every input, and how many cycles it takes.

    A schedule is executed in a process of its own. Exit code 1 if it is not accepted.

    Example: vtaops judge tiny/first --start first.txt && vtaops judge tiny/first first.txt
    """
    from vtaops.explore.judge import Judge, find_task, read_answer, task_names

    named = [name for name in task_names() if name.startswith(task)]
    if named and task not in named and not (answer or start):
        _show_tasks(named)
        return
    kernel = find_task(task)
    if start is not None:
        write_text(start, kernel.compiled.disassemble())
    if answer is None:
        _show_task(kernel)
        return
    with progress_bar(f"judge {answer.name}"):
        verdict = Judge(kernel)(read_answer(answer), rtl=rtl)
    if save is not None:
        write_arrays(save, np.savez_compressed, **verdict.counterexample)
    show(verdict.as_dict(), str(verdict), good=verdict.accepted)


def _show_tasks(names: list[str]) -> None:
    from vtaops.explore.judge import find_task

    rows = [_row(find_task(name)) for name in tracked("compile", names)]
    columns = {"task": "", "computes": "", "compiler": ",", "bound": ",", "ratio": ".2f"}
    show(rows, list_table("tasks", columns, (row.values() for row in rows)))


def _show_task(task: KernelTask) -> None:
    facts = _row(task) | {"definition": repr(task.definition)}
    text = task.compiled.disassemble()
    buffers = text[text.index("buffers\n") : text.index("\ninstructions\n")]
    show(facts, *(f"{key}: {value}" for key, value in facts.items()), buffers)


def _row(task: KernelTask) -> dict[str, Any]:
    return {
        "task": task.name,
        "computes": task.about,
        "compiler": task.cycles,
        "bound": task.bound,
        "ratio": round(task.cycles / task.bound, 3),
    }
