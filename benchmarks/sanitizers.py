"""Hostile launches on every kernel of the functional simulator, under sanitizers.

    python -m benchmarks sanitizers --count 100000 --minutes 30    # again until nothing is left

Portions of 2,500 launches, a third of them on each of three configurations' portions; the kernels
(generic, checked, and the vector units that this CPU has) take turns. Exit code: 1 if a sanitizer
found something, 2 if portions are left.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.options import Minutes, State, figure_table
from benchmarks.resumable import resume
from trials.sanitized import CONFIGS, NO_TOOLS, build, launch
from vtaops.runtime.fsim import available_kernels

PORTION = 2500


def main(
    count: Annotated[int, typer.Option(help="Launches of each kernel.")] = 100_000,
    minutes: Minutes = 9.0,
    state_file: State = Path("sanitizers.jsonl"),
) -> int:
    """Build the fuzzer, run what is left, show all; return the exit code."""
    kernels = ("checked", *available_kernels())
    portions = -(-count * len(kernels) // (PORTION * len(CONFIGS)))
    cases = [f"{name}/{number}" for number in range(portions) for name in CONFIGS]
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = build(Path(folder))
        if fuzzer is None:
            print(NO_TOOLS)
            return 2

        def portion(case: str) -> dict[str, object]:
            name, _, number = case.rpartition("/")
            finished, used, found = launch(fuzzer, name, PORTION, PORTION * int(number))
            return {"finished": finished, "kernels": used, "found": found}

        results = resume(state_file, cases, portion, minutes, "portions")
    launches: Counter[str] = Counter()
    finished: Counter[str] = Counter()
    for case, result in results.items():
        launches[case.rpartition("/")[0]] += PORTION
        finished[case.rpartition("/")[0]] += result["finished"]
    table = figure_table(
        f"hostile launches on {', '.join(kernels)}", ["configuration"], ("launches", "finished")
    )
    for name in CONFIGS:
        table.add_row(name, f"{launches[name]:,}", f"{finished[name]:,}")
    Console().print(table, f"{launches.total() // len(kernels):,} launches of each kernel")
    for case, result in results.items():
        if result["found"]:
            print(case, result["found"], sep="\n")
    if any(result["found"] for result in results.values()):
        return 1
    return 0 if len(results) == len(cases) else 2
