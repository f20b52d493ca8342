"""The command ``vtaops judge``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from typer import Argument, Option

from vtaops.base.errors import ArgumentError, VTAError
from vtaops.base.progress import tracked
from vtaops.cli.options import progress_bar, show, write_arrays, written
from vtaops.report.files import write_text
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from vtaops.explore.judge import KernelTask


def judge(
    task: Annotated[str, Argument(help="A task of the list, such as tiny/first.")] = "",
    answer: Annotated[
        Path | None,
        Argument(help="A stream as text, a tiling (.json), or a schedule (.py); none: the task."),
    ] = None,
    *,
    list_: Annotated[
        bool, Option("--list", help="List all tasks, or those whose names begin with TASK.")
    ] = False,
    start: Annotated[
        Path | None,
        Option(help="Write the compiler's stream here, as a start.", callback=written(".txt")),
    ] = None,
    records: Annotated[
        bool, Option("--records", help="Prove every record again, or those of the task.")
    ] = False,
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
    from vtaops.explore.judge import Judge, find_task, read_answer

    if not (list_ or records or task):
        raise ArgumentError("give a task, --list or --records")
    if list_ or records:
        (_show_tasks if list_ else _prove_records)(task)
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
    show(verdict.as_dict(), str(verdict))
    raise typer.Exit(not verdict.accepted)


def _show_tasks(start: str) -> None:
    from vtaops.explore.judge import find_task, task_names

    names = [name for name in task_names() if name.startswith(start)]
    rows = [_row(find_task(name)) for name in tracked("compile", names)]
    columns = {"task": "", "computes": "", "compiler": ",", "bound": ",", "ratio": ".2f"}
    show(rows, list_table("tasks", columns, (row.values() for row in rows)))


def _prove_records(start: str) -> None:
    from vtaops.explore.judge.records import read_records, rechecked

    rows, failed = [record for record in read_records() if record.task.startswith(start)], []
    for record in tracked("prove record", rows):
        try:
            rechecked(record)
        except VTAError as error:
            failed.append(str(error))
    text = [f"{len(rows) - len(failed)} of {len(rows)} records hold", *failed]
    show({"records": len(rows), "failed": failed}, *text)
    raise typer.Exit(bool(failed))


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
