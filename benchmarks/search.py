"""Cycles of ResNet-18's layers, beside the published ones for Pynq and those of a search.

    python -m benchmarks search --json search.json

Compiles every layer and prints cycles by the timing model, the bound of the layer, DRAM bytes
against the least of all tilings that fit the scratchpads, the published time, and the cycles of the
best of ``--count`` tilings. The bound is the longer of the compute unit's cycles (tile products,
one reset and the ALU passes, each at one tile a cycle) and the bytes moved at the width of the
port.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from benchmarks.options import Config, Json, write_json
from vtaops import HardwareConfig
from vtaops.compiler import search
from vtaops.schedule import blocked_shape
from vtaops.schedule.candidates import candidates, depths_of, dram_traffic
from vtaops.schedule.workloads import WORKLOADS, Workload

# Milliseconds on Pynq at 100 MHz: TVM's published tuning log for VTA (tophub, vta_v0.10).
PUBLISHED_MS = {
    "C2": 5.699,
    "C3": 2.966,
    "C4": 1.349,
    "C5": 5.183,
    "C6": 2.669,
    "C7": 1.029,
    "C8": 4.934,
    "C9": 3.994,
    "C10": 1.081,
    "C11": 7.348,
}
CYCLES_PER_MS = 100_000


def measure(workload: Workload, config: HardwareConfig, count: int) -> dict[str, Any]:
    """Compile and search one layer and relate the result to its bounds."""
    program = vtaops.compile(workload.op, config)
    start = time.perf_counter()
    best = search(workload.op, config, count=count)[0]
    seconds = time.perf_counter() - start
    shape = blocked_shape(workload.op, config)
    counters = program.stats()
    moved = counters.dram_nbytes
    compute = counters.gemm_counter + counters.alu_counter + shape.outputs
    bound = max(compute, moved / (config.port_width))
    grid, fit = candidates(shape, depths_of(config))
    least = int(sum(dram_traffic(shape, config, grid.at(fit, fit.shape))).min())
    return {
        "cycles": program.cycles(),
        "searched": best.cost,
        "tiling": best.tiling.text,
        "occurrences": workload.occurrences,
        "gemm_cycles": counters.gemm_counter,
        "compute_cycles": compute,
        "naive_gemm_cycles": shape.gemm_cycles,
        "over_bound": program.cycles() / bound,
        "dram_nbytes": moved,
        "over_least_bytes": moved / least,
        "seconds": seconds,
    }


def main(
    config_name: Config = "pynq",
    count: Annotated[int, typer.Option(help="Tilings that the search compiles.")] = 12,
    json_file: Json = None,
) -> None:
    """Compile and search, print the table, write the file."""
    config = HardwareConfig.load(config_name)
    layers = [w for name, w in WORKLOADS.items() if name.startswith("resnet18.")]
    results = {
        w.name: measure(w, config, count)
        for w in track(layers, description="searching", console=Console(stderr=True))
    }

    console = Console(width=150)
    table = Table(title=f"ResNet-18 on {config.name}: cycles")
    for column in (
        "layer",
        "x",
        "cycles",
        "/ bound",
        "/ array",
        "published",
        "ratio",
        "DRAM bytes",
    ):
        table.add_column(column, justify="right")
    for column in ("/ least", "searched", "search s", "its tiling"):
        table.add_column(column, justify="right" if column != "its tiling" else "left")
    total = published_total = array_total = compute_total = 0.0
    for name, row in results.items():
        short = name.split(".")[1]
        published = PUBLISHED_MS.get(short, 0) * CYCLES_PER_MS
        if published:
            total += row["cycles"] * row["occurrences"]
            published_total += published * row["occurrences"]
            array_total += row["naive_gemm_cycles"] * row["occurrences"]
            compute_total += row["compute_cycles"] * row["occurrences"]
        table.add_row(
            short,
            str(row["occurrences"]),
            f"{row['cycles']:,}",
            f"{row['over_bound']:.4f}",
            f"{row['cycles'] / row['gemm_cycles']:.3f}",
            f"{published:,.0f}" if published else "-",
            f"{row['cycles'] / published:.3f}" if published else "-",
            f"{row['dram_nbytes']:,}",
            f"{row['over_least_bytes']:.2f}",
            f"{row['searched']:,}",
            f"{row['seconds']:.1f}",
            row["tiling"],
        )
    console.print(table)
    seconds = sum(row["seconds"] for row in results.values())
    console.print(
        f"C2..C11 by occurrence: {total:,.0f} cycles; published {published_total:,.0f} "
        f"(ratio {total / published_total:.3f}); bound of the compute unit {compute_total:,.0f}; "
        f"tile products, those with padding included, {array_total:,.0f}. "
        f"Search of all layers: {seconds:.0f} s."
    )
    write_json(json_file, results)
