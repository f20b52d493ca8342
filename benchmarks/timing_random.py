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
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import vtaops
from vtaops import HardwareConfig, Program
from vtaops.errors import VTAError
from vtaops.program.timing import TimingParameters
from vtaops.runtime.tsim import Tsim
from vtaops.schedule import default_tiling

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.random_cases import random_tiling
from helpers.resumable import resume
from helpers.tilings import random_operator

CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18")


def draw(seed: int) -> tuple[str, Program, TimingParameters]:
    """Return what a case runs: operator and tiling as a program, and the DRAM."""
    rng = random.Random(seed)
    config = HardwareConfig.load(rng.choice(CONFIGS))
    while True:
        op = random_operator(rng)
        try:
            tiling = default_tiling(op, config)
            if rng.random() < 0.7:
                tiling = random_tiling(rng, op, config)
            program = vtaops.compile(op, config, tiling)
        except VTAError:
            continue  # too large, or beyond what the target executes
        latency = rng.choice([2, 32, 100, 200, rng.randint(2, 200)])
        bandwidth = rng.choice([*range(1, 9), round(rng.uniform(1, 8), 2)])
        parameters = TimingParameters(dram_latency=latency, bandwidth=float(bandwidth))
        return type(op).__name__, program, parameters


def compare(seed: int) -> dict[str, Any]:
    """Return the cycles of a case by the model and on the RTL."""
    operator, program, p = draw(seed)
    start = time.thread_time()
    model = program.cycles(p)
    seconds = time.thread_time() - start
    config = program.config
    port = p.port_width(config)
    with Tsim(config, port_bytes=port, latency=p.dram_latency, bandwidth=p.bandwidth) as device:
        program.run(device, *(np.zeros(b.shape, b.dtype) for b in program.inputs))
        rtl = device.performance().cycles
    return {
        "operator": operator,
        "config": config.name,
        "latency": p.dram_latency,
        "bandwidth": p.bandwidth,
        "instructions": len(program),
        "model": model,
        "rtl": rtl,
        "percent": round(100 * (model - rtl) / rtl, 3),
        "model_ms": round(1e3 * seconds, 2),
    }


def tables(results: dict[str, dict[str, Any]]) -> list[Table]:
    """Return the differences by configuration, bandwidth and latency, and the worst cases."""
    groups = {
        "configuration": lambda row: row["config"],
        "bytes a cycle": lambda row: f"{int(row['bandwidth'])} to {int(row['bandwidth']) + 1}"
        if row["bandwidth"] % 1
        else f"{row['bandwidth']:.0f}",
        "latency": lambda row: next(t for n, t in LATENCIES if row["latency"] <= n),
        "all": lambda row: "",
    }
    found = []
    for title, key in groups.items():
        table = Table(title, *(), title="")
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
