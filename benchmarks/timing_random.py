"""How far the timing model is from the RTL where the DRAM is slow: random operators and machines.

    python -m benchmarks timing_random --minutes 3        # again until nothing is left

Each case is a random operator with a random tiling on one of three configurations, and a DRAM with
a latency of 2 to 200 cycles and 1 to 16 bytes a cycle, reads and writes together. Its cycles by the
model and on the RTL are compared. What is done stands in the state file. Exit code: 1 if a case is
off by more than `--limit` per cent, 2 if some are left.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Json, Minutes, State, write_json
from benchmarks.resumable import resume
from trials.timing_cases import compare


def tables(results: dict[str, dict[str, Any]]) -> list[Table]:
    """Return the differences by configuration, bandwidth and latency, and the worst cases."""
    groups = {
        "configuration": lambda row: row["config"],
        "bytes a cycle": lambda row: (
            f"{int(row['bandwidth'])} to {int(row['bandwidth']) + 1}"
            if row["bandwidth"] % 1
            else f"{row['bandwidth']:.0f}"
        ),
        "latency": lambda row: next(t for n, t in LATENCIES if row["latency"] <= n),
        "all": lambda row: "",
    }
    found = []
    for title, key in groups.items():
        table = Table(title)
        for column in ("cases", "mean |%|", "lowest %", "highest %", "sum %"):
            table.add_column(column, justify="right")
        for label in sorted({key(row) for row in results.values()}):
            rows = [row for row in results.values() if key(row) == label]
            errors = [row["percent"] for row in rows]
            model, rtl = (sum(row[name] for row in rows) for name in ("model", "rtl"))
            table.add_row(
                label,
                str(len(rows)),
                f"{statistics.mean(map(abs, errors)):.3f}",
                f"{min(errors):+.2f}",
                f"{max(errors):+.2f}",
                f"{100 * (model - rtl) / rtl:+.3f}",
            )
        found.append(table)
    worst = Table("case", *COLUMNS, title="largest differences")
    order = sorted(results, key=lambda case: -abs(results[case]["percent"]))
    for case in order[:10]:
        worst.add_row(case, *(str(results[case][name]) for name in COLUMNS))
    return [*found, worst]


LATENCIES = ((31, "  2 to 31"), (99, " 32 to 99"), (200, "100 to 200"))
COLUMNS = ("operator", "config", "latency", "bandwidth", "instructions", "model", "rtl", "percent")


def main(
    count: Annotated[int, typer.Option(help="Cases.")] = 1000,
    minutes: Minutes = 9.0,
    limit: Annotated[float, typer.Option(help="Per cent.")] = 1.0,
    state_file: State = Path("build/timing_random.jsonl"),
    json_file: Json = None,
) -> int:
    """Run what is left, show all; return the exit code."""
    cases = [str(seed) for seed in range(count)]
    results = resume(state_file, cases, lambda case: compare(int(case)), minutes)
    for table in tables(results):
        Console().print(table)
    ms = statistics.median(row["model_ms"] for row in results.values())
    Console().print(f"{len(results)} of {len(cases)} cases; the model takes {ms:.1f} ms (median)")
    write_json(json_file, results)
    if any(abs(row["percent"]) > limit for row in results.values()):
        return 1
    return 0 if len(results) == len(cases) else 2
