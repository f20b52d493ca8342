"""How far the timing model is from the RTL where the DRAM is slow: random operators and machines.

    python benchmarks/timing_random.py --minutes 3        # again until nothing is left

Each case is a random operator with a random tiling on one of three configurations, and a DRAM with
a latency of 2 to 200 cycles and 1 to 8 bytes a cycle, reads and writes together. Its cycles by the
model and on the RTL are compared. What is done stands in the state file. Exit code: 1 if a case is
off by more than `--limit` per cent, 2 if some are left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.resumable import resume
from helpers.timing_cases import compare


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


def main() -> int:
    """Run what is left, show all; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300, help="cases")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no case after these")
    parser.add_argument("--limit", type=float, default=2.0, help="per cent")
    parser.add_argument("--state", type=Path, default=Path("build/timing_random.jsonl"))
    parser.add_argument("--json", type=Path, help="write all cases to this file")
    options = parser.parse_args()
    cases = [str(seed) for seed in range(options.count)]
    results = resume(options.state, cases, lambda case: compare(int(case)), options.minutes)
    for table in tables(results):
        Console().print(table)
    ms = statistics.median(row["model_ms"] for row in results.values())
    Console().print(f"{len(results)} of {len(cases)} cases; the model takes {ms:.1f} ms (median)")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if any(abs(row["percent"]) > options.limit for row in results.values()):
        return 1
    return 0 if len(results) == len(cases) else 2


if __name__ == "__main__":
    sys.exit(main())
