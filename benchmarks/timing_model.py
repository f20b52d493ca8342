"""How far the timing model is from the RTL, and how fast it is.

    python -m benchmarks timing_model --json timing_model.json

For every named layer: cycles by the model, cycles of the RTL as `tsim` runs it (built on first use,
which needs Verilator), and their difference; CPU time of the model. `--model-only` leaves tsim out.
"""

from __future__ import annotations

import statistics
import time
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track

import vtaops
from benchmarks.options import Config, Json, Repeat, figure_table, write_json
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


def main(
    layer: Annotated[list[str] | None, typer.Option(help="A named layer; may be repeated.")] = None,
    config_name: Config = "pynq",
    latency: Annotated[int, typer.Option(help="Latency of the DRAM, cycles.")] = 32,
    bandwidth: Annotated[
        float | None, typer.Option(help="Bytes per cycle, both directions.")
    ] = None,
    port_bytes: Annotated[int | None, typer.Option(help="Width of the DRAM port.")] = None,
    repeat: Repeat = 5,
    model_only: Annotated[bool, typer.Option("--model-only", help="Do not run tsim.")] = False,
    json_file: Json = None,
) -> None:
    """Compare on all named layers, or those that are given."""
    config = HardwareConfig.load(config_name)
    parameters = TimingParameters(
        dram_latency=latency,
        bandwidth=bandwidth,
        port_bytes=port_bytes,
    )
    device = None if model_only else open_tsim(config, parameters)

    results: dict[str, dict[str, float]] = {}
    for name in track(layer or list(WORKLOADS), description="comparing"):
        workload = find(name)
        program = vtaops.compile(
            workload.op, config, workload.tiling or default_tiling(workload.op, config)
        )
        row: dict[str, float] = {
            "instructions": len(program),
            "model": program.cycles(parameters),
            "cpu_ms": cpu_milliseconds(program, parameters, repeat),
        }
        if device is not None:
            row["rtl"] = rtl_cycles(program, device)
            row["error_percent"] = 100 * (row["model"] - row["rtl"]) / row["rtl"]
        results[name] = row

    table = figure_table(
        f"Timing model on {config.name}, DRAM latency {parameters.dram_latency}",
        ["layer"],
        ("instructions", "model", "RTL", "difference", "CPU ms"),
    )
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
    write_json(json_file, results)
