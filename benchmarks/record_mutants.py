"""Mutants of files, one field of a record each: what is proven of them is what they compute.

    python -m benchmarks record_mutants --minutes 9            # again until nothing is left
    python -m benchmarks record_mutants --json FILE

Cases are files of random small networks (batch 1 to 4) and of random operators. One field of a
file's headers is changed in each mutant (`trials.record_mutants`), which is then refused when it is
read or verified, or refuted, or not proven; or it is proven, and runs on fsim and its definition
must agree. Exit code: 1 if one is proven and differs, or raises what is no error of vtaops; 2 if
cases are left.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: CPU time of one thread

import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.options import Again, Json, Minutes, State, figure_table, machine, write_json
from benchmarks.resumable import by_code, resume
from trials.record_mutants import CRASHED, MISSED, VERDICTS, mutants

KINDS = ("network", "operator")


def trial(case: str, *, each: int) -> dict[str, Any]:
    """Judge the mutants of one case."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [*mutants(case, each)]
    counted = Counter(verdict for change, verdict, _ in found if change)
    failed = [f"{v}: {change}: {why}" for change, v, why in found if v in (MISSED, CRASHED)]
    seconds = round(time.process_time() - begin, 2)
    return {"verdicts": counted, "failed": failed, "seconds": seconds}


def main(
    cases: Annotated[int, typer.Option(help="Networks, and as many operators.")] = 200,
    each: Annotated[int, typer.Option(help="Mutants of each.")] = 60,
    minutes: Minutes = 9,
    again: Again = False,
    state_file: State = Path("record_mutants.jsonl"),
    json_file: Json = None,
) -> int:
    """Judge mutants of records; return the exit code."""
    names = [f"{kind} {number}" for number in range(cases) for kind in KINDS]
    run = partial(trial, each=each)
    results = resume(state_file, names, run, minutes, "files", again=again)
    table = figure_table("Mutants of records", ["of"], ["files", "mutants", *VERDICTS])
    data: dict[str, Any] = {}
    for kind in KINDS:
        own = {case: r for case, r in results.items() if case.startswith(kind)}
        total: Counter[str] = sum((Counter(r["verdicts"]) for r in own.values()), Counter())
        data[kind] = {
            "files": sum(bool(r["verdicts"]) for r in own.values()),
            "mutants": total.total(),
            "verdicts": {verdict: total[verdict] for verdict in VERDICTS},
            "failed": [f"{case}: {line}" for case, r in own.items() for line in r["failed"]],
            "seconds": round(sum(r["seconds"] for r in own.values())),
        }
        figures = data[kind]["files"], total.total(), *data[kind]["verdicts"].values()
        table.add_row(f"{kind}s", *map(str, figures))
    write_json(json_file, {"machine": machine(), "code": by_code(results), **data})
    failed = [line for kind in KINDS for line in data[kind]["failed"]]
    Console(width=150).print(table, *failed, sep="\n")
    return 1 if failed else 2 if len(results) < len(names) else 0
