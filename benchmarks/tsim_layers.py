"""Cycles of each layer on the RTL, beside the bound of its compute unit, and what was lost to what.

    python -m benchmarks tsim_layers --json tsim_layers.json

The bound is the number of cycles in which the compute unit issues micro-ops (GEMM, resets, ALU):
no schedule with these micro-ops can be faster. "lost" are its other cycles, by cause.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from benchmarks.options import Config, Json, Seed, write_json
from vtaops import HardwareConfig
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Tsim
from vtaops.schedule.workloads import WORKLOADS, Workload

LOST = {
    "load": "compute_stall_load_token",
    "store": "compute_stall_store_token",
    "dram": "compute_stall_dram",
    "loading": "compute_load",
    "drain": "compute_drain",
    "idle": "compute_idle",
}
"""Column -> counter of the cycles in which the compute unit issues nothing."""


def measure(device: Tsim, workload: Workload, seed: int) -> dict[str, Any]:
    """Run a layer on random data, check it against NumPy, return its cycles."""
    program = vtaops.compile(workload.op, device.config, workload.tiling)
    arrays = random_arguments(workload.op, np.random.default_rng(seed))
    device.reset_stats()
    result = program.run(device, *arrays)
    performance = device.performance()
    return {
        "equals_numpy": bool(np.array_equal(result, evaluate(workload.op, arrays))),
        "counters_as_predicted": device.stats() == program.stats(),
        "occurrences": workload.occurrences,
        "bound": performance.compute_bound,
        "utilization": performance.compute_utilization,
        **performance.as_dict(),
    }


def report(results: dict[str, dict[str, Any]], device: Tsim, latency: int) -> Table:
    """Return the table for people."""
    table = Table(
        title=f"{device.config.bitstream_id}, {device.parameters.port_bytes}-byte port, "
        f"DRAM latency {latency} cycles"
    )
    table.add_column("layer")
    for column in ("cycles", "bound", "bound/cycles", *(f"lost: {cause}" for cause in LOST)):
        table.add_column(column, justify="right")
    table.add_column("port read")
    table.add_column("correct")
    for name, row in results.items():
        correct = row["equals_numpy"] and row["counters_as_predicted"]
        table.add_row(
            name,
            f"{row['cycles']:,}",
            f"{row['bound']:,}",
            f"{row['utilization']:.1%}",
            *(f"{row[counter]:,}" for counter in LOST.values()),
            f"{row['port_read_beats'] / row['cycles']:.0%}",
            "yes" if correct else "NO",
        )
    return table


def main(
    config_name: Config = "pynq",
    port_bytes: Annotated[
        int | None, typer.Option(help="Width of the DRAM port (default: board's)")
    ] = None,
    latency: Annotated[int, typer.Option(help="Of the DRAM, cycles (default 32)")] = 32,
    layers: Annotated[str, typer.Option(help="Only layers whose name contains this.")] = "",
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Run the layers of ResNet-18 and the tutorials."""
    config = HardwareConfig.load(config_name)
    chosen = [name for name in WORKLOADS if layers in name]

    with Tsim(config, port_bytes=port_bytes, latency=latency) as device:
        results = {
            name: measure(device, WORKLOADS[name], seed)
            for name in track(chosen, description="simulating")
        }
        console = Console()
        console.print(report(results, device, latency))
    network = sum(r["cycles"] * r["occurrences"] for n, r in results.items() if "resnet" in n)
    console.print(
        f"ResNet-18, all convolutions given: {network:,} cycles, "
        f"{network / config.board.clock_mhz / 1e3:.2f} ms at {config.board.clock_mhz} MHz"
    )
    write_json(json_file, results)
