"""Random networks, whole, on several configurations: what fsim computes equals the executor.

    python -m benchmarks random_graphs --minutes 9      # again until nothing is left
    python -m benchmarks random_graphs --again          # those of other code than today's
    python -m benchmarks random_graphs --free --state random_free_graphs.jsonl
    python -m benchmarks random_graphs --wide --state random_wide_graphs.jsonl

Graphs with branches, residuals, concatenations, shared tensors, several inputs and outputs
(`trials/random_graphs.py`), each compiled, verified and run on each configuration. With
`--free`, scales are multipliers for each channel and the configurations have all extensions that
their geometry allows. Exit code: 1 if a case failed, 2 if some are left.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Again, Minutes, State
from benchmarks.resumable import by_code, resume
from trials.random_graphs import check, random_graph
from vtaops import HardwareConfig
from vtaops.machine.config import Extension

CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18")


def main(
    graphs: Annotated[int, typer.Option(help="Seeds 0, 1, ...")] = 200,
    free: Annotated[bool, typer.Option("--free", help="Free scales, extended hardware.")] = False,
    wide: Annotated[bool, typer.Option("--wide", help="Gates, PReLUs, moved pixels too.")] = False,
    minutes: Minutes = 9.0,
    again: Again = False,
    state_file: State = Path("random_graphs.jsonl"),
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    cases = [f"{config}/{seed}" for seed in range(graphs) for config in CONFIGS]
    run = partial(trial, free=free, wide=wide)
    results = resume(state_file, cases, run, minutes, "networks", again=again)
    table = Table("configuration", "networks", "equal", "operators", "on VTA", "processor s")
    for config in CONFIGS:
        rows = [r for case, r in results.items() if case.startswith(f"{config}/")]
        sums = {key: sum(r[key] for r in rows) for key in ("operators", "on_vta", "seconds")}
        equal = sum(not r["error"] for r in rows)
        table.add_row(config, *map(str, (len(rows), equal, *map(round, sums.values()))))
    Console().print(table)
    print(by_code(results))
    failed = {case: r for case, r in results.items() if r["error"]}
    for case, result in failed.items():
        print(case, result["error"], sep="\n")
    return 1 if failed else 0 if len(results) == len(cases) else 2


def trial(case: str, *, free: bool, wide: bool = False) -> dict[str, Any]:
    """Compile, verify, run and compare one network on one configuration."""
    name, number = case.split("/")
    config = HardwareConfig.load(name)
    if free:
        config = replace(config, extensions=tuple(Extension))
    graph = random_graph(int(number), free=free, wide=wide)
    start, error, on_vta = time.process_time(), "", 0
    try:
        model = check(graph, int(number), config)
        on_vta = sum(row.where == "vta" for row in model.plan)
    except Exception:
        error = traceback.format_exc()[-2000:]
    return {
        "error": error,
        "operators": len(graph.nodes),
        "on_vta": on_vta,
        "seconds": round(time.process_time() - start, 2),
    }
