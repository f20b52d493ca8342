"""Own schedules with every freedom: random ones of all operators are built right, or refused.

    python -m benchmarks own_schedules --cases 100 [--minutes 9] [--json FILE]

`trials.free_schedules` draws declarations of one's own and operators of the library in batches of 1
to 4, on tiles of 1 to 4 rows, and a schedule of each: any cut and order of loops, stages at any
loop, sums reset at any loop. What is built is verified and run on fsim, and compared with NumPy;
where that costs no more than compiling, it is proven too. Exit code: 1 if a case is a fault, 2 if
some are left.
"""

from __future__ import annotations

import re
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Json, Minutes, State, write_json
from benchmarks.resumable import resume
from trials.free_schedules import KINDS, tried


def main(
    cases: Annotated[int, typer.Option(help="Of each kind.")] = 50,
    minutes: Minutes = 9.0,
    state_file: State = Path("own_schedules.jsonl"),
    json_file: Json = None,
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    names = [f"{kind}/{number}" for number in range(cases) for kind in KINDS]
    results = resume(state_file, names, trial, minutes, "schedules")
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    reasons: Counter[str] = Counter()
    for name, result in results.items():
        outcomes[name.partition("/")[0]][result["outcome"]] += 1
        if result["outcome"] == "refused":
            reasons[re.sub(r"'[^']*'|\d+", "…", result["text"].split(": ")[0])[:90]] += 1
    columns = ("right", "too large", "refused", "fault")
    table = Table("subject", *columns, title="Own schedules")
    for kind, counted in outcomes.items():
        table.add_row(kind, *(str(counted[column]) for column in columns))
    Console().print(table, dict(reasons))
    faults = {name: r["text"] for name, r in results.items() if r["outcome"] == "fault"}
    for name, text in faults.items():
        print(name, text, sep="\n")
    figures = {"subjects": outcomes, "reasons": reasons, "faults": faults}
    write_json(json_file, {**figures, "seconds": sum(r["seconds"] for r in results.values())})
    return 1 if faults else 0 if len(results) == len(names) else 2


def trial(case: str) -> dict[str, object]:
    """Try one schedule."""
    kind, _, number = case.partition("/")
    begin, outcome, text = time.process_time(), "right", ""
    try:
        found = tried(number, kind)
    except Exception:
        outcome, text = "fault", traceback.format_exc()[-2000:]
    else:
        text = found.fault or found.refused
        if found.fault:
            outcome = "fault"
        elif found.refused:
            outcome = "too large" if "too many" in text else "refused"
    seconds = round(time.process_time() - begin, 2)
    return {"outcome": outcome, "text": text, "seconds": seconds}
