"""What each extension costs and saves: area by Yosys, cycles of networks' layers on the RTL.

    python benchmarks/extensions.py --json extensions.json --picture extensions.svg

Every extension is taken alone, and all that `pynq_ext` has together, against the plain hardware of
the same sizes. Area is an estimate (`vtaops.runtime.tsim.synthesis`). Cycles are those of the RTL
for the layers C2 to C11 of ResNet-18 and the depthwise layers of MobileNet 1.0, weighted by their
occurrences, on random data; every result is compared with NumPy, every count with the timing model.
ResNet-18's tilings are those tuned for the plain hardware, MobileNet's the best by the bound for
each, since a window takes other tiles than single taps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from vtaops import HardwareConfig
from vtaops.reference import evaluate, random_arguments
from vtaops.runtime import Tsim
from vtaops.runtime.tsim import RtlParameters
from vtaops.runtime.tsim.synthesis import CAPACITY, FpgaResources, part_of, synthesize
from vtaops.tuner import tune
from vtaops.workloads import WORKLOADS

LAYERS = (
    *(f"resnet18.C{number}" for number in range(2, 12)),
    *(f"mobilenet.D{number}" for number in range(1, 10)),
)


def variants(config: HardwareConfig) -> dict[str, HardwareConfig]:
    """Return the plain configuration, each extension alone, and all together, by name."""
    sets = {"plain": (), **{name: (name,) for name in config.extensions}, "all": config.extensions}
    return {name: replace(config, extensions=names) for name, names in sets.items()}


def cycles(config: HardwareConfig, layers: tuple[str, ...], title: str) -> dict[str, Any]:
    """Run the layers on the RTL; return their cycles, and the worst error of the timing model."""
    plain = replace(config, extensions=())
    row: dict[str, Any] = {"layers": {}, "weighted": 0, "timing_error": 0.0}
    with Tsim(config) as device:
        for name in track(layers, title, transient=True):
            workload = WORKLOADS[name]
            tiling = None if "mobilenet" in name else tune(workload.op, plain).tiling
            program = vtaops.compile(workload.op, config, tiling)
            arrays = random_arguments(workload.op, np.random.default_rng(0))
            device.reset_stats()
            if not np.array_equal(program.run(device, *arrays), evaluate(workload.op, arrays)):
                raise SystemExit(f"{name} on {config.bitstream_id} differs from NumPy")
            taken = device.performance().cycles
            error = abs(program.timeline().cycles - taken) / taken
            row["layers"][name] = taken
            row["weighted"] += taken * workload.occurrences
            row["timing_error"] = max(row["timing_error"], error)
    return row


def area(config: HardwareConfig) -> FpgaResources:
    """Return the resources of the whole RTL on the board's part."""
    family, _ = CAPACITY[part_of(config)]
    parameters = RtlParameters(port_bytes=8)
    total = FpgaResources()
    for resources in synthesize(config, parameters, family).values():
        total += resources
    return total


def report(rows: dict[str, dict[str, Any]]) -> Table:
    """Return the table for people."""
    table = Table(title="extensions: area (Yosys, Zynq 7020) and cycles (RTL, weighted)")
    for column in ("", "LUT", "FF", "BRAM36", "DSP", "cycles", "saved", "saved per 1000 LUT"):
        table.add_column(column, justify="left" if not column else "right")
    plain = rows["plain"]
    for name, row in rows.items():
        saved = plain["cycles"]["weighted"] - row["cycles"]["weighted"]
        more = row["area"]["lut"] - plain["area"]["lut"]
        table.add_row(
            name,
            *(f"{row['area'][key]:,}" for key in ("lut", "ff", "bram", "dsp")),
            f"{row['cycles']['weighted']:,}",
            f"{saved:,}" if name != "plain" else "",
            f"{1000 * saved / more:,.0f}" if more > 0 else "",
        )
    return table


def picture(rows: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw cycles saved over LUTs added."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    plain = rows["plain"]
    for name, row in rows.items():
        if name == "plain":
            continue
        x = row["area"]["lut"] - plain["area"]["lut"]
        y = (plain["cycles"]["weighted"] - row["cycles"]["weighted"]) / 1000
        axes.plot(x, y, "o")
        axes.annotate(name, (x, y), xytext=(6, 6), textcoords="offset points")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.margins(0.15)
    axes.set_xlabel("look-up tables added (Yosys)")
    axes.set_ylabel("thousand cycles saved, ResNet-18 C2 to C11 and MobileNet D1 to D9")
    axes.grid(alpha=0.3)
    figure.savefig(path)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python benchmarks/extensions.py --layers resnet18.C10 --json out.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", default="pynq_ext", help="the configuration with all of them")
    parser.add_argument("--layers", nargs="+", default=LAYERS, help="names of layers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw them, as .svg or .png")
    options = parser.parse_args()
    rows = {
        name: {
            "extensions": list(config.extensions),
            "area": asdict(area(config)),
            "cycles": cycles(config, tuple(options.layers), name),
        }
        for name, config in variants(HardwareConfig.load(options.config)).items()
    }
    console = Console()
    console.print(report(rows))
    worst = max(row["cycles"]["timing_error"] for row in rows.values())
    console.print(f"timing model: at most {worst:.3%} from the RTL on any layer")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    if options.picture:
        picture(rows, options.picture)


if __name__ == "__main__":
    main()
