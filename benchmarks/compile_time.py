"""How long compiling a layer takes, and where the time goes.

    python -m benchmarks compile_time --json compile_time.json

Warm (imports excluded), CPU time of one thread, medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.options import Config, Json, Repeat, figure_table, medians, write_json
from vtaops import HardwareConfig
from vtaops.compiler.driver import settled
from vtaops.lowering import LoweringOptions, build_tree, emit, link, whole
from vtaops.ops import Operator
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList
from vtaops.schedule.workloads import WORKLOADS

STAGES = ("tiling", "tree", "emit", "link", "verify")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and the milliseconds of CPU time that it took."""
    start = time.process_time()
    result = call()
    return result, 1e3 * (time.process_time() - start)


def measure(op: Operator, config: HardwareConfig, explicit: Tiling | None) -> dict[str, float]:
    """Return the milliseconds of each stage."""
    op = settled(op, config)
    tiling, t_tiling = timed(lambda: explicit or next(TilingList(op, config).estimated(config))[0])
    tree, t_tree = timed(lambda: build_tree(op, config, tiling))
    buffers = op.buffers(config)
    options = LoweringOptions.of(tiling, alu_passes=bool(op.stages), micro_op_depth=None)
    fragment, t_emit = timed(lambda: emit(tree, buffers, config, options))
    program, t_link = timed(lambda: link([whole(fragment)], buffers))
    _, t_verify = timed(program.verify)
    times = (t_tiling, t_tree, t_emit, t_link, t_verify)
    sizes = {"instructions": len(program)}
    return {**dict(zip(STAGES, times, strict=True)), "total": sum(times), **sizes}


def main(
    repeat: Repeat = 7,
    config_name: Config = "pynq",
    json_file: Json = None,
) -> None:
    """Measure every layer of ResNet-18 and the tutorial's convolution."""
    config = HardwareConfig.load(config_name)

    results: dict[str, dict[str, float]] = {}
    for name in track(list(WORKLOADS), description="compiling"):
        workload = WORKLOADS[name]
        runs = [measure(workload.op, config, workload.tiling) for _ in range(repeat + 1)]
        results[name] = medians(runs[1:])  # the first warms up

    columns = (*STAGES, "total", "instructions")
    table = figure_table(f"Compile time, ms of CPU, median of {repeat}", ["layer"], columns)
    for name, row in results.items():
        cells = [f"{row[c]:.0f}" if c == "instructions" else f"{row[c]:.1f}" for c in columns]
        table.add_row(name, *cells)
    Console(width=max(Console().width, 120)).print(table)
    write_json(json_file, results)
