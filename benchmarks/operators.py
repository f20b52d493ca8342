"""What every named layer costs on VTA: tile products, ALU passes, bytes, cycles.

    python -m benchmarks operators --config pynq --json operators.json
    python -m benchmarks operators --layers dcgan

Compiles every layer with its default tiling and counts on the finished program; cycles are those of
the timing model. "useful" is the share of the array's multiply-adds that the layer asks for:
transposed convolutions skip inserted zeros and padding, first layers fold kernel columns into
channels, depthwise layers use one diagonal in sixteen. "over least" relates the DRAM bytes to every
byte in use moved once. Nothing runs but a check against NumPy with --check.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from benchmarks.options import Config, Json, write_json
from vtaops import HardwareConfig
from vtaops.errors import UnsupportedError
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.fsim import Fsim
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS, Workload


def least_bytes(workload: Workload, config: HardwareConfig) -> int:
    """Bytes of all packed arguments: what any schedule has to move."""
    return sum(buffer.nbytes for buffer in workload.op.buffers(config))


def measure(workload: Workload, config: HardwareConfig, check: bool) -> dict[str, Any]:
    """Compile one layer and count."""
    tiling = default_tiling(workload.op, config)
    program = vtaops.compile(workload.op, config, tiling, capabilities="portable")
    stats = program.stats()
    row = {
        "operator": workload.op.summary,
        "occurrences": workload.occurrences,
        **stats.as_dict(),
        "dram_nbytes": stats.dram_nbytes,
        "over_least_bytes": stats.dram_nbytes / least_bytes(workload, config),
        "macs": workload.op.macs,
        "useful": workload.op.macs / max(1, stats.gemm_counter * config.macs_per_cycle),
        "instructions": len(program),
        "micro_ops": len(program.micro_ops),
        "cycles": program.cycles(),
    }
    if check:
        arrays = random_arguments(workload.op, np.random.default_rng(0))
        result = program.run(Fsim(config, capabilities="portable"), *arrays)
        row["equals_numpy"] = bool(np.array_equal(result, evaluate(workload.op, arrays)))
    return row


def main(
    config_name: Config = "pynq",
    layers: Annotated[str, typer.Option(help="Only layers whose name begins so.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Run on fsim and compare with NumPy.")
    ] = False,
    json_file: Json = None,
) -> None:
    """Measure, print the table, write the file."""
    config = HardwareConfig.load(config_name)
    chosen = [w for w in WORKLOADS.values() if w.name.startswith(layers)]

    rows: dict[str, dict[str, Any]] = {}
    for workload in track(chosen, "compiling", console=Console(stderr=True), transient=True):
        try:
            rows[workload.name] = measure(workload, config, check)
        except UnsupportedError as error:
            rows[workload.name] = {"unsupported": str(error)}

    table = Table(title=f"Layers on {config.name} ({config.bitstream_id}), portable programs")
    table.add_column("layer")
    table.add_column("operator")
    columns = ("x", "GEMM", "ALU", "useful", "DRAM bytes", "over least", "cycles", "instructions")
    for column in columns:
        table.add_column(column, justify="right")
    if check:
        table.add_column("= NumPy")
    for name, row in rows.items():
        if "unsupported" in row:
            table.add_row(name, row["unsupported"])
            continue
        checked = [str(row["equals_numpy"])] if check else []
        table.add_row(
            name,
            row["operator"],
            str(row["occurrences"]),
            f"{row['gemm_counter']:,}",
            f"{row['alu_counter']:,}",
            f"{row['useful']:.3f}" if row["macs"] else "-",
            f"{row['dram_nbytes']:,}",
            f"{row['over_least_bytes']:.2f}",
            f"{row['cycles']:,}",
            f"{row['instructions']:,}",
            *checked,
        )
    Console(width=170).print(table)
    write_json(json_file, rows)
