"""What the extension `forward` is worth where DRAM is slow: whole networks over its bandwidth.

    python -m benchmarks forward --json benchmarks/results/forward.json \
        --picture docs/images/forward.png

The networks of ``benchmarks/networks.py`` with free scales, compiled for `pynq_ext` and for the
same hardware without its way from the output memory to the input memory. One program of each is
timed by the timing model for DRAMs of several bandwidths (bytes a cycle, reads and writes
together, latency 100); what runs together was chosen for a DRAM without limit. What is in the JSON
file already is not compiled again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import networks
from benchmarks.options import Json, Picture, choice, read_json, write_json
from vtaops import HardwareConfig
from vtaops.network import compile_model
from vtaops.program.timing import TimingParameters

NETWORKS = ("resnet18", "resnet20", "mobilenet_v1", "mobilenet_v2")
WITH = HardwareConfig.load("pynq_ext")
WITHOUT = replace(WITH, extensions=tuple(name for name in WITH.extensions if name != "forward"))
BANDWIDTHS: tuple[float | None, ...] = (2.0, 4.0, 8.0, None)
LATENCY = 100


def measure(name: str, config: HardwareConfig) -> dict[str, Any]:
    """Compile a network; return its DRAM bytes, and its cycles for each bandwidth."""
    model = compile_model(getattr(networks, name)(free=True), config)
    machines = [TimingParameters(dram_latency=LATENCY, bandwidth=b) for b in BANDWIDTHS]
    return {
        "dram_nbytes": model.report().counters.dram_nbytes,
        "cycles": [sum(program.cycles(m) for program in model.programs) for m in machines],
    }


def table(rows: dict[str, dict[str, Any]]) -> Table:
    """Return cycles without and with the extension."""
    shown = Table(title="cycles without and with `forward`, by the timing model")
    shown.add_column("network")
    for bandwidth in BANDWIDTHS:
        shown.add_column(f"{bandwidth:.0f} B" if bandwidth else "no limit", justify="right")
    shown.add_column("DRAM kB", justify="right")
    for name, row in rows.items():
        for kind in ("without", "with"):
            found = row[kind]
            cells = [f"{cycles:,}" for cycles in found["cycles"]]
            shown.add_row(f"{name}, {kind}", *cells, f"{found['dram_nbytes'] / 1e3:,.0f}")
        pairs = zip(row["with"]["cycles"], row["without"]["cycles"], strict=True)
        ratio = row["with"]["dram_nbytes"] / row["without"]["dram_nbytes"]
        shown.add_row("  ratio", *(f"{a / b:.3f}" for a, b in pairs), f"{ratio:.3f}")
    return shown


def picture(rows: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the part of the cycles that is left, for each bandwidth."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    width = 0.8 / len(BANDWIDTHS)
    for k, bandwidth in enumerate(BANDWIDTHS):
        parts = [row["with"]["cycles"][k] / row["without"]["cycles"][k] for row in rows.values()]
        label = f"{bandwidth:.0f} bytes a cycle" if bandwidth else "the port's limit alone"
        bars = axes.bar([n + (k - 1.5) * width for n in range(len(rows))], parts, width)
        bars.set_label(label)
        axes.bar_label(bars, fmt="%.2f", fontsize=7)
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_ylabel("cycles with forward / without")
    axes.set_ylim(0, 1.25)
    axes.legend(fontsize=8, ncols=2, loc="upper center")
    axes.set_title("pynq_ext, free scales, DRAM latency 100, timing model", fontsize=10)
    figure.savefig(path, dpi=110)


def main(
    only: Annotated[list[str] | None, typer.Option(**choice(NETWORKS))] = None,
    json_file: Json = None,
    picture_file: Picture = None,
) -> None:
    """Run from the command line."""
    rows: dict[str, dict[str, Any]] = read_json(json_file, {})
    for name in track(only or NETWORKS, "networks", console=Console(stderr=True)):
        row = rows.setdefault(name, {})
        for kind, config in (("without", WITHOUT), ("with", WITH)):
            if kind not in row:
                row[kind] = measure(name, config)
                write_json(json_file, rows)
    Console(width=100).print(table(rows))
    if picture_file:
        picture(rows, picture_file)
