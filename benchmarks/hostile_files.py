"""Thousands of files of each format with wrong content: documented errors only, in bounds.

Requests to a board and its answers are formats too. No file may take more than 20 s of processor
time or more memory than twice its size and 500 MB, or lead to another file.

    python -m benchmarks hostile_files --count 10000 --minutes 9     # again until nothing is left

Uses the fuzzers of the tests (`trials/hostile_files.py`) in portions of 250 files, each with
its seed; what is done stands in the state file. Exit code: 1 if a portion failed, 2 if some are
left.
"""

from __future__ import annotations

import time
import traceback
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Minutes, State, choice
from benchmarks.resumable import resume
from trials.hostile_boards import fuzz_answers
from trials.hostile_clients import fuzz_requests
from trials.hostile_files import FORMATS, fuzz

PORTION = 250

FUZZERS = {
    "request": fuzz_requests,
    "answer": fuzz_answers,
    **{name: partial(fuzz, name) for name in FORMATS},
}
"""By format: uses that many files, of a seed."""


def main(
    count: Annotated[int, typer.Option(help="Files of each format.")] = 10_000,
    formats: Annotated[list[str] | None, typer.Option(**choice(FUZZERS))] = None,
    minutes: Minutes = 9.0,
    state_file: State = Path("hostile_files.jsonl"),
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    portions = range(-(-count // PORTION))
    cases = [f"{name}/{number}" for number in portions for name in (formats or list(FUZZERS))]
    results = resume(state_file, cases, portion, minutes, "portions")
    table = Table("format", "files", "of", "failed portions", "processor s")
    for name in formats or list(FUZZERS):
        mine = {case: r for case, r in results.items() if case.rpartition("/")[0] == name}
        failed = [case for case, r in mine.items() if r["error"]]
        seconds = sum(r["seconds"] for r in mine.values())
        done = str(PORTION * len(mine))
        table.add_row(name, done, str(count), ", ".join(failed), f"{seconds:.0f}")
    Console().print(table)
    for case, result in results.items():
        if result["error"]:
            print(case, result["error"], sep="\n")
    if any(result["error"] for result in results.values()):
        return 1
    return 0 if len(results) == len(cases) else 2


def portion(case: str) -> dict[str, object]:
    """Use the files of one portion."""
    name, _, number = case.rpartition("/")
    start, error = time.process_time(), ""
    try:
        FUZZERS[name](PORTION, int(number))
    except BaseException as problem:
        if isinstance(problem, KeyboardInterrupt | SystemExit):
            raise
        lines = "".join(traceback.format_exception(problem)).splitlines()
        error = "\n".join(line[:200] for line in lines[-40:])  # some show the whole file
    return {"error": error, "seconds": round(time.process_time() - start, 2)}
