"""Cycles of ResNet-18's layers with searched tilings, beside the published ones for Pynq.

    python -m benchmarks search --json search.json
    python -m benchmarks search --capabilities fsim --write-shipped    # also full, and hls-2020

Searches every layer from nothing (no cache, no shipped table) and prints cycles by the timing
model, the bound of the layer, DRAM bytes against the least of all tilings that fit the
scratchpads, and the published time. The bound is the longer of the compute unit's cycles (tile
products, one reset and the ALU passes, each at one tile a cycle) and the bytes moved at the width
of the port.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import vtaops
from benchmarks.options import Config, Json, choice, write_json
from vtaops import HardwareConfig
from vtaops.compiler.tuner import COMPILED, SHIPPED, search, tuning_key
from vtaops.machine.capabilities import Capabilities, find, of_target
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


def measure(
    workload: Workload, config: HardwareConfig, able: Capabilities, effort: Any, advance: Any
) -> dict[str, Any]:
    """Search one layer and relate the result to its bounds."""
    start = time.perf_counter()
    found = search(workload.op, config, effort, able)
    *_, best = (advance() or result for result in found)
    seconds = time.perf_counter() - start
    shape = blocked_shape(workload.op, config)
    program = vtaops.compile(workload.op, config, best.tiling, capabilities=able)
    counters = program.stats()
    moved = counters.dram_nbytes
    compute = counters.gemm_counter + counters.alu_counter + shape.outputs
    bound = max(compute, moved / (config.port_width))
    grid, fit = candidates(shape, depths_of(config))
    least = int(sum(dram_traffic(shape, config, grid.at(fit, fit.shape))).min())
    return {
        "tiling": asdict(best.tiling),
        "text": best.tiling.text,
        "cycles": best.cycles,
        "compiled": best.compiled,
        "occurrences": workload.occurrences,
        "gemm_cycles": counters.gemm_counter,
        "compute_cycles": compute,
        "naive_gemm_cycles": shape.gemm_cycles,
        "over_bound": best.cycles / bound,
        "dram_nbytes": moved,
        "over_least_bytes": moved / least,
        "seconds": seconds,
    }


def main(
    config_name: Config = "pynq",
    effort: Annotated[str, typer.Option(**choice(COMPILED))] = "thorough",
    capabilities: Annotated[str, typer.Option(help="Of the device; by default the target's.")] = "",
    json_file: Json = None,
    write_shipped: Annotated[
        bool, typer.Option("--write-shipped", help="Put the results into the package's table.")
    ] = False,
) -> None:
    """Search, print the table, write the files."""
    config = HardwareConfig.load(config_name)
    able = find(capabilities) if capabilities else of_target(config)
    layers = [w for name, w in WORKLOADS.items() if name.startswith("resnet18.")]

    results: dict[str, dict[str, Any]] = {}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("searching", total=len(layers) * COMPILED[effort])
        for done, workload in enumerate(layers):
            results[workload.name] = measure(
                workload, config, able, effort, lambda: progress.advance(task)
            )
            progress.update(task, completed=(done + 1) * COMPILED[effort])

    console = Console(width=150)
    table = Table(title=f"ResNet-18 on {config.name}: cycles with searched tilings")
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
    for column in ("/ least", "search s", "tiling"):
        table.add_column(column, justify="right" if column != "tiling" else "left")
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
            f"{row['seconds']:.1f}",
            row["text"],
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
    if write_shipped:
        shipped = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {}
        for name, row in results.items():
            record = {key: row[key] for key in ("tiling", "cycles", "compiled")}
            shipped[tuning_key(WORKLOADS[name].op, config, able)] = record
        SHIPPED.write_text(json.dumps(dict(sorted(shipped.items())), indent=1) + "\n")
