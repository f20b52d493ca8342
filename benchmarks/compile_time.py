"""How long compiling a layer takes, and where the time goes.

    python benchmarks/compile_time.py --json compile_time.json

Warm (imports and the registration of intrinsics excluded), CPU time of one thread, medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from vtaops import HardwareConfig
from vtaops.lowering import LoweringOptions, emit, link, whole
from vtaops.ops import Operator
from vtaops.schedule import Tiling, default_tiling, flatten
from vtaops.schedule.workloads import WORKLOADS

STAGES = ("tiling", "declare", "schedule", "flatten", "emit", "link", "verify")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and the milliseconds of CPU time that it took."""
    start = time.process_time()
    result = call()
    return result, 1e3 * (time.process_time() - start)


def measure(op: Operator, config: HardwareConfig, explicit: Tiling | None) -> dict[str, float]:
    """Return the milliseconds of each stage; `schedule` contains `declare`."""
    default_tiling.cache_clear()
    tiling, t_tiling = timed(lambda: explicit or default_tiling(op, config))
    _, t_declare = timed(lambda: op.declare(config))
    schedule, t_schedule = timed(lambda: op.schedule(config, tiling))
    module, t_flatten = timed(lambda: flatten(schedule))
    buffers = op.buffers(config)
    options = LoweringOptions.of(tiling, alu_passes=bool(op.stages), micro_op_depth=None)
    fragment, t_emit = timed(lambda: emit(module, buffers, config, options))
    program, t_link = timed(lambda: link([whole(fragment)], buffers))
    _, t_verify = timed(program.verify)
    times = (t_tiling, t_declare, t_schedule, t_flatten, t_emit, t_link, t_verify)
    total = t_tiling + t_schedule + t_flatten + t_emit + t_link + t_verify
    sizes = {"instructions": len(program)}
    return {**dict(zip(STAGES, times, strict=True)), "total": total, **sizes}


def main() -> None:
    """Measure every layer of ResNet-18 and the tutorial's convolution."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=7, help="runs of each layer (default 7)")
    parser.add_argument("--config", default="pynq", help="hardware configuration")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    config = HardwareConfig.load(arguments.config)

    results: dict[str, dict[str, float]] = {}
    for name in track(list(WORKLOADS), description="compiling"):
        workload = WORKLOADS[name]
        runs = [measure(workload.op, config, workload.tiling) for _ in range(arguments.repeat + 1)]
        results[name] = {key: statistics.median(run[key] for run in runs[1:]) for key in runs[0]}

    columns = (*STAGES, "total", "instructions")
    table = Table(title=f"Compile time, ms of CPU, median of {arguments.repeat}")
    table.add_column("layer")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in results.items():
        cells = [f"{row[c]:.0f}" if c == "instructions" else f"{row[c]:.1f}" for c in columns]
        table.add_row(name, *cells)
    Console(width=max(Console().width, 120)).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
