"""Random programs and operators with all extensions: equal on every side, counted by extension.

    python -m benchmarks all_sides --minutes 5      # again until nothing is left

Each case is a random program that verifies, a random stream of instructions, or a random operator
with a random tiling (any, with fixed-point scales, behind a table, or a chain in turns); in every
seventh a tile has two rows. The sides are the interpreter, the functional simulator, the RTL behind
its bare port and the RTL behind AXI with irregular memory; of operators NumPy is the judge.
Besides: the timing model against the cycles of the RTL, by extension, by how long a program takes,
and on layers of networks. Cases of other code than today's run again with `--again`. Exit code: 1
if a case differs, 2 if some are left.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Again, Json, Minutes, State, write_json
from benchmarks.resumable import by_code, resume
from trials.all_sides import LAYERS, run_case
from vtaops.machine.config import Extension

KINDS = ("program", "stream", "operator")


def using(results: dict[str, dict[str, Any]], extension: str) -> dict[str, dict[str, Any]]:
    """Return the cases in which some instruction uses an extension; all if it is ''."""
    return {
        case: row
        for case, row in results.items()
        if not extension or extension in row["extensions"]
    }


def timing(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return how far the timing model is from the RTL, in per cent: of the sum, and at most."""
    pairs = [(row["cycles"]["timing model"], row["cycles"]["RTL"]) for row in rows]
    errors = [100 * (model - rtl) / rtl for model, rtl in pairs]
    model, rtl = (sum(values) for values in zip(*pairs, strict=True))
    return {
        "mean": sum(map(abs, errors)) / len(errors),
        "most": max(errors, key=abs),
        "sum": 100 * (model - rtl) / rtl,
    }


def summary(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return for each extension, and for all cases, how many there are and how many differ."""
    found = {}
    for extension in (*Extension, ""):
        chosen = using(results, extension)
        counts: dict[str, float] = {
            f"{kind}s": sum(case.startswith(kind) for case in chosen) for kind in KINDS
        }
        counts["instructions"] = sum(
            sum(n for name, n in row["extensions"].items() if extension in ("", name))
            for row in chosen.values()
        )
        counts["differ"] = sum(bool(row["differs"]) for row in chosen.values())
        timed = [row for row in chosen.values() if "timing model" in row["cycles"]]
        if timed:
            counts |= {f"{name} %": value for name, value in timing(timed).items()}
        found[extension or "all"] = counts
    return found


def by_length(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how far the timing model is from the RTL, by the cycles of a program."""
    timed = [row for row in results.values() if "timing model" in row["cycles"]]
    found = {}
    for low, high in pairwise((0, 2_000, 5_000, 20_000, 1 << 40)):
        rows = [row for row in timed if low <= row["cycles"]["RTL"] < high]
        if rows:
            found[f"{low:,}"] = {"cases": len(rows), **timing(rows)}
    return found


def show(title: str, rows: dict[str, dict[str, float]]) -> Table:
    """Return rows of numbers as a table."""
    columns = [*dict.fromkeys(column for row in rows.values() for column in row)]
    table = Table(title)
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        values = (round(row.get(column, 0), 3) for column in columns)
        table.add_row(name, *(f"{value:,}" for value in values))
    return table


def main(
    programs: Annotated[int, typer.Option()] = 1000,
    streams: Annotated[int, typer.Option()] = 400,
    operators: Annotated[int, typer.Option()] = 400,
    minutes: Minutes = 9.0,
    again: Again = False,
    state_file: State = Path("build/all_sides.jsonl"),
    json_file: Json = None,
) -> int:
    """Run what is left, show all; return the exit code."""
    counts = dict(zip(KINDS, (programs, streams, operators), strict=True))
    cases = [f"{kind}/{number}" for kind in KINDS for number in range(counts[kind])]
    cases.sort(key=lambda case: int(case.split("/")[1]) / counts[case.split("/")[0]])
    cases += [f"layer/{name}" for name in LAYERS]
    results = resume(state_file, cases, run_case, minutes, again=again)
    console = Console()
    layers = {case: row["cycles"] for case, row in results.items() if case.startswith("layer")}
    random = {case: row for case, row in results.items() if case not in layers}
    rows, lengths = summary(random), by_length(random)
    for cycles in layers.values():
        cycles["%"] = 100 * (cycles["timing model"] - cycles["RTL"]) / cycles["RTL"]
    for title, found in (("cases that use", rows), ("from cycles", lengths), ("layer", layers)):
        console.print(show(title, found))
    failed = {case: row["differs"] for case, row in results.items() if row["differs"]}
    for case, sides in failed.items():
        console.print(f"{case} differs: {', '.join(sides)}")
    console.print(f"{len(results)} of {len(cases)} cases; {by_code(results)}", highlight=False)
    record = {"cases": len(results), "code": by_code(results), "extensions": rows}
    record |= {"timing by cycles": lengths, "layers": layers}
    write_json(json_file, record)
    return 1 if failed else 0 if len(results) == len(cases) else 2
