"""How far the timing model is from the RTL, and how fast it is.

    python benchmarks/timing_model.py --json timing_model.json

For every named layer: cycles by the model, cycles of the RTL as `tsim` runs it (built on first use,
which needs Verilator), and their difference; CPU time of the model. `--model-only` leaves tsim out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from vtaops import HardwareConfig, Program
from vtaops.program.timing import TimingParameters, simulate
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS, find


def open_tsim(config: HardwareConfig, parameters: TimingParameters) -> Any:
    """Return the RTL on the DRAM that the model assumes."""
    try:
        from vtaops.runtime.tsim import Tsim
    except ImportError as error:
        message = f"tsim is not part of this installation ({error}); use --model-only"
        raise SystemExit(message) from error
    return Tsim(
        config,
        port_bytes=parameters.port_width(config),
        latency=parameters.dram_latency,
        bandwidth=parameters.bandwidth,
    )


def rtl_cycles(program: Program, device: Any) -> int:
    """Return the cycles of one run; they do not depend on the data."""
    device.reset_stats()
    program.run(device, *(np.zeros(buffer.shape, buffer.dtype) for buffer in program.inputs))
    return int(device.performance().cycles)


def cpu_milliseconds(program: Program, parameters: TimingParameters, repeat: int) -> float:
    """Return the median CPU time of a simulation that keeps no events."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        simulate(program, parameters, events=False)
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times)


def main() -> None:
    """Compare on all named layers, or those that are given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layer", action="append", help="a named layer; may be repeated")
    parser.add_argument("--config", default="pynq", help="hardware configuration")
    parser.add_argument("--latency", type=int, default=32, help="latency of the DRAM, cycles")
    parser.add_argument("--bandwidth", type=float, help="bytes per cycle, both directions")
    parser.add_argument("--port-bytes", type=int, help="width of the DRAM port")
    parser.add_argument("--repeat", type=int, default=5, help="simulations for the CPU time")
    parser.add_argument("--model-only", action="store_true", help="do not run tsim")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    config = HardwareConfig.load(arguments.config)
    parameters = TimingParameters(
        dram_latency=arguments.latency,
        bandwidth=arguments.bandwidth,
        port_bytes=arguments.port_bytes,
    )
    device = None if arguments.model_only else open_tsim(config, parameters)

    results: dict[str, dict[str, float]] = {}
    for name in track(arguments.layer or list(WORKLOADS), description="comparing"):
        workload = find(name)
        program = vtaops.compile(
            workload.op, config, workload.tiling or default_tiling(workload.op, config)
        )
        row: dict[str, float] = {
            "instructions": len(program),
            "model": program.cycles(parameters),
            "cpu_ms": cpu_milliseconds(program, parameters, arguments.repeat),
        }
        if device is not None:
            row["rtl"] = rtl_cycles(program, device)
            row["error_percent"] = 100 * (row["model"] - row["rtl"]) / row["rtl"]
        results[name] = row

    table = Table(title=f"Timing model on {config.name}, DRAM latency {parameters.dram_latency}")
    table.add_column("layer")
    for column in ("instructions", "model", "RTL", "difference", "CPU ms"):
        table.add_column(column, justify="right")
    for name, row in results.items():
        compared = "rtl" in row
        table.add_row(
            name,
            f"{row['instructions']:,}",
            f"{row['model']:,}",
            f"{row['rtl']:,}" if compared else "",
            f"{row['error_percent']:+.3f} %" if compared else "",
            f"{row['cpu_ms']:.2f}",
        )
    console = Console()
    console.print(table)
    mean = statistics.mean(row["cpu_ms"] for row in results.values())
    console.print(f"{60_000 / mean:,.0f} programs a minute on one core (mean {mean:.2f} ms)")
    if device is not None:
        worst = max(abs(row["error_percent"]) for row in results.values())
        console.print(f"largest difference {worst:.3f} %")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
