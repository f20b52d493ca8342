"""What a run costs in energy, by memory: counted accesses times published energies. An estimate.

    python -m benchmarks energy --json benchmarks/results/energy.json

Reads and writes of every memory, DRAM bytes, products and ALU passes are exact, counted from the
programs (`vtaops.explore.accesses`, which a test compares with the RTL); the energies are those of
`vtaops.explore.energy`. Networks take minutes; what is in the state file already is not computed
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks.options import Json, State, read_json, write_json
from trials import networks
from vtaops import HardwareConfig, Program, compile_model
from vtaops.explore.accesses import count_accesses
from vtaops.explore.energy import energy_of, memory_energies
from vtaops.machine.config import Extension
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS

LAYERS = [f"C{number}" for number in range(1, 12)]
NETWORKS = ("resnet18", "mobilenet_v1", "mobilenet_v2")
PARTS = ("arithmetic", "wgt", "inp", "acc", "out", "uop", "post", "dram")

Row = dict[str, Any]


def layer_row(name: str, config: HardwareConfig) -> Row:
    """Return the figures of a layer of ResNet-18."""
    workload = WORKLOADS[f"resnet18.{name}"]
    tiling = workload.tiling or default_tiling(workload.op, config)
    program = vtaops.compile(workload.op, config, tiling, verify=False)
    return {**figures([program]), "occurrences": workload.occurrences}


def network_row(name: str, config: HardwareConfig) -> Row:
    """Return the figures of a quantised network; scales are any where the hardware has them."""
    model = compile_model(getattr(networks, name)(config.has(Extension.POST)), config)
    return {**figures(model.programs), "occurrences": 1}


def figures(programs: Iterable[Program]) -> Row:
    """Return cycles, counts and picojoules of a run of some programs."""
    row: Row = {"cycles": 0, "counts": {}, "pj": dict.fromkeys(PARTS, 0.0)}
    for program in programs:
        accesses = count_accesses(program)
        statistics = program.stats()
        energy = energy_of(program.config, statistics, accesses)
        parts = memory_energies(program.config, accesses)
        parts["out"] += parts.pop("copy")
        parts["post"] += parts.pop("table")
        parts |= {"arithmetic": energy.arithmetic, "dram": energy.dram}
        row["cycles"] += program.cycles()
        for part in PARTS:
            row["pj"][part] += parts[part]
        counts = {"products": statistics.gemm_counter, "alu_passes": statistics.alu_counter}
        for key, count in (counts | asdict(accesses)).items():
            row["counts"][key] = row["counts"].get(key, 0) + count
    return row


def weighted(rows: dict[str, Row], config: str, names: Iterable[str]) -> Row:
    """Return the sum of layers or networks, each as often as it occurs."""
    total: Row = {"cycles": 0, "pj": dict.fromkeys(PARTS, 0.0), "wgt_reads": 0}
    for name in names:
        row = rows[f"{config}/{name}"]
        total["cycles"] += row["occurrences"] * row["cycles"]
        total["wgt_reads"] += row["occurrences"] * row["counts"]["wgt_reads"]
        for part in PARTS:
            total["pj"][part] += row["occurrences"] * row["pj"][part]
    return total


def report(rows: dict[str, Row]) -> Table:
    """Return the table of all rows, in microjoules."""
    table = Table(title="Estimated energy of a run, in microjoules (Horowitz 2014, 45 nm)")
    for column in ("", "cycles", "weight reads", "input reads", *PARTS, "all"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in rows.items():
        counts = row["counts"]
        parts = [row["pj"][part] / 1e6 for part in PARTS]
        cells = [f"{row['cycles']:,}", f"{counts['wgt_reads']:,}", f"{counts['inp_reads']:,}"]
        table.add_row(name, *cells, *(f"{part:,.0f}" for part in parts), f"{sum(parts):,.0f}")
    return table


def markdown(sums: dict[str, Row]) -> str:
    """Return the table of the documents, in millijoules: ResNet-18's layers, the networks."""
    lines = ["| | cycles | weight reads | " + " | ".join(PARTS) + " | all |"]
    lines.append("|---|" + "--:|" * (len(PARTS) + 3))
    for label, row in sums.items():
        parts = [row["pj"][part] / 1e9 for part in PARTS]
        cells = [f"{row['cycles']:,}", f"{row['wgt_reads']:,}"]
        cells += [f"{part:.2f}" for part in parts] + [f"{sum(parts):.2f}"]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sums(rows: dict[str, Row]) -> dict[str, Row]:
    """Return the sums of layers, and the networks, by a label."""
    found = {}
    for config in ("pynq", "pynq_ext"):
        if all(f"{config}/{name}" in rows for name in LAYERS):
            found[f"C2 to C11, {config}"] = weighted(rows, config, LAYERS[1:])
        for name in NETWORKS:
            if f"{config}/{name}" in rows:
                found[f"{name}, {config}"] = weighted(rows, config, [name])
    return found


def main(
    configs: Annotated[list[str] | None, typer.Option()] = None,
    layers_only: Annotated[bool, typer.Option("--layers-only", help="No networks.")] = False,
    state_file: State = Path("build/energy.json"),
    json_file: Json = None,
) -> None:
    """Run from the command line."""
    rows: dict[str, Row] = read_json(state_file, {})

    def keep(found: dict[str, Row]) -> None:
        rows.update(found)
        write_json(state_file, rows)

    for name in configs or ["pynq", "pynq_ext"]:
        config = HardwareConfig.load(name)
        for layer in LAYERS:
            if (key := f"{name}/{layer}") not in rows:
                keep({key: layer_row(layer, config)})
        for network in () if layers_only else NETWORKS:
            if (key := f"{name}/{network}") not in rows:
                keep({key: network_row(network, config)})
    Console(width=max(Console().width, 150)).print(report(rows))
    print(markdown(sums(rows)))
    write_json(json_file, sums(rows))
