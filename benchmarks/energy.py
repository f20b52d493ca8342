"""What a run costs in energy, by memory: counted accesses times published energies. An estimate.

    python -m benchmarks energy --json benchmarks/results/energy.json \
        --picture docs/images/energy.png

Reads and writes of every memory, DRAM bytes, products and ALU passes are exact, counted from the
programs (`vtaops.program.accesses`, which a test compares with the RTL); the energies are those of
`vtaops.program.energy`. Networks take minutes; what is in the JSON file already is not computed
again. Nothing computes two kinds of rows in that file any more: "before", of an RTL that read every
operand in each step, and "weights kept", with products of equal weights one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks import networks
from benchmarks.options import Json, Picture, write_json
from vtaops import HardwareConfig, Program, compile_model
from vtaops.machine.config import Extension
from vtaops.program.accesses import count_accesses
from vtaops.program.energy import energy_of, memory_energies
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS

LAYERS = [f"C{number}" for number in range(1, 12)]
NETWORKS = ("resnet18", "mobilenet_v1", "mobilenet_v2")
PARTS = ("arithmetic", "wgt", "inp", "acc", "out", "uop", "post", "dram")
VARIANTS = {
    "before": "every operand is read in each step",
    "today": "what is there is not read again",
    "weights kept": "and products with equal weights follow each other",
}

Row = dict[str, Any]


def layer_row(name: str, config: HardwareConfig) -> Row:
    """Return the figures of a layer of ResNet-18."""
    workload = WORKLOADS[f"resnet18.{name}"]
    tiling = workload.tiling or default_tiling(workload.op, config)
    program = vtaops.compile(workload.op, config, tiling, verify=False)
    row = figures([program])
    return {**row, "occurrences": workload.occurrences}


def network_rows(name: str, config: HardwareConfig) -> dict[str, Row]:
    """Return the figures of a quantised network; scales are any where the hardware has them."""
    model = compile_model(getattr(networks, name)(config.has(Extension.POST)), config)
    return {"today": {**figures(model.programs), "occurrences": 1}}


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


def weighted(rows: dict[str, Row], prefix: str, names: Iterable[str], variant: str) -> Row:
    """Return the sum of layers, each as often as it occurs."""
    total: Row = {"cycles": 0, "pj": dict.fromkeys(PARTS, 0.0), "wgt_reads": 0}
    for name in names:
        row = rows[f"{prefix}/{name}/{variant}"]
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


def markdown(rows: dict[str, Row]) -> str:
    """Return the table of the documents, in millijoules: ResNet-18's layers, the networks."""
    lines = ["| | cycles | weight reads | " + " | ".join(PARTS) + " | all |"]
    lines.append("|---|" + "--:|" * (len(PARTS) + 3))
    for label, _, row in groups(rows):
        parts = [row["pj"][part] / 1e9 for part in PARTS]
        cells = [f"{row['cycles']:,}", f"{row['wgt_reads']:,}"]
        cells += [f"{part:.2f}" for part in parts] + [f"{sum(parts):.2f}"]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def groups(rows: dict[str, Row]) -> list[tuple[str, str, Row]]:
    """Return what is drawn: label, name of the group, sums."""
    found = []
    for config in ("pynq", "pynq_ext"):
        for variant in VARIANTS:
            if all(f"{config}/{name}/{variant}" in rows for name in LAYERS):
                row = weighted(rows, config, LAYERS[1:], variant)
                found.append((f"C2 to C11, {config}, {variant}", f"C2 to C11\n{config}", row))
        for name in NETWORKS:
            for variant in VARIANTS:
                if f"{config}/{name}/{variant}" in rows:
                    row = weighted(rows, config, [name], variant)
                    found.append((f"{name}, {config}, {variant}", f"{name}\n{config}", row))
    return found


def picture(rows: dict[str, Row], path: Path) -> None:
    """Draw a stacked bar for each variant of each group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.5), layout="constrained")
    axes = figure.add_subplot()
    colours = (
        "#7f7f7f",
        "#d62728",
        "#1f77b4",
        "#2ca02c",
        "#98df8a",
        "#9467bd",
        "#c5b0d5",
        "#ff7f0e",
    )
    place, last, ticks = 0.0, "", []
    for label, group, row in groups(rows):
        place += 0.9 if group == last else 1.6
        bottom = 0.0
        for part, colour in zip(PARTS, colours, strict=True):
            value = row["pj"][part] / 1e9
            axes.bar(place, value, 0.8, bottom=bottom, color=colour,
                     label=part if not ticks else None)  # fmt: skip
            bottom += value
        axes.text(place, bottom, f"{bottom:.1f}", ha="center", va="bottom", fontsize=8)
        ticks.append((place, f"{group}\n{label.rsplit(', ', 1)[1]}"))
        last = group
    axes.set_xticks([x for x, _ in ticks], [text for _, text in ticks], fontsize=7, rotation=90)
    axes.set_ylabel("millijoules a run (estimate)")
    axes.set_title("Energy by memory: exact counts, energies of a 45 nm process (Horowitz 2014)")
    axes.legend(fontsize=8, ncols=4)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main(
    configs: Annotated[list[str] | None, typer.Option()] = None,
    layers_only: Annotated[bool, typer.Option("--layers-only", help="No networks.")] = False,
    markdown_file: Annotated[
        bool, typer.Option("--markdown", help="Print the table of the documents.")
    ] = False,
    json_file: Json = None,
    picture_file: Picture = None,
) -> None:
    """Run from the command line."""
    kept = json_file and json_file.exists()
    rows: dict[str, Row] = json.loads(json_file.read_text()) if kept else {}

    def keep(found: dict[str, Row]) -> None:
        rows.update(found)
        write_json(json_file, rows)

    for name in configs or ["pynq", "pynq_ext"]:
        config = HardwareConfig.load(name)
        for layer in LAYERS:
            if (key := f"{name}/{layer}/today") not in rows:
                keep({key: layer_row(layer, config)})
        for network in () if layers_only else NETWORKS:
            if f"{name}/{network}/today" not in rows:
                found = network_rows(network, config)
                keep({f"{name}/{network}/{variant}": row for variant, row in found.items()})
    Console(width=max(Console().width, 150)).print(report(rows))
    if markdown_file:
        print(markdown(rows))
    if picture_file:
        picture(rows, picture_file)
