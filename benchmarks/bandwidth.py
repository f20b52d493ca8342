"""ResNet-18's offloaded layers beside published figures, and over the bandwidth of the DRAM.

    python -m benchmarks bandwidth --rtl --json benchmarks/results/bandwidth.json \
        --picture bandwidth.png

Cycles of C2 to C11, weighted by their occurrences, by the timing model:

1. with the residual additions, fused into the eight convolutions that they follow, and without,
   each also with every product executed (padding "multiply", as upstream does): beside upstream's
   pipelined Chisel hardware in its own simulation;
2. without the additions, over the effective bandwidth of the DRAM (reads and writes together):
   beside the published tuning log of a board. Tilings are those searched for a DRAM without limit.

``--rtl`` runs the layers of the second part on the RTL at five bandwidths, compares each result
with NumPy and counts its cycles. What is in the JSON file already is not done again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from benchmarks.options import Json, Picture, Rtl
from vtaops import Conv2d, HardwareConfig, Program
from vtaops.compiler import search
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Tsim
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList
from vtaops.schedule.workloads import WORKLOADS

LAYERS = {f"C{n}": WORKLOADS[f"resnet18.C{n}"] for n in range(2, 12)}
RESIDUALS = {"C2": 2, "C5": 2, "C8": 2, "C11": 2}
"""How many of a layer's occurrences are followed by a residual addition: two in each stage."""

CHISEL = 7_729_601
"""Cycles of upstream's pipelined Chisel hardware, simulated: github.com/apache/tvm-vta/pull/30."""

BOARD = 8_827_900
"""Cycles at 100 MHz of TVM's published tuning log for VTA on Pynq (tophub, vta_v0.10)."""

CONFIG = HardwareConfig.load("pynq")
LATENCY = 100
"""Of the DRAM in the second part, cycles."""

BANDWIDTHS = [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, None]
ON_RTL = [2.0, 4.0, 6.0, 8.0, None]
TRIALS = 8
"""Tilings that are compiled for a layer in which every product is executed."""


def machine(bandwidth: float | None, latency: int = LATENCY) -> TimingParameters:
    """Return the DRAM of a measurement."""
    return TimingParameters(dram_latency=latency, bandwidth=bandwidth)


@cache
def tiling(op: Operator, padding: str) -> Tiling:
    """Return the best tiling of a layer, products with padding left out or executed."""
    if padding == "skip":
        return search(op, CONFIG)[0].tiling
    listed = TilingList(op, CONFIG).estimated(CONFIG)
    found = (replace(t, padding="multiply") for t, _ in listed)
    return min(
        dict.fromkeys(islice(found, TRIALS)),
        key=lambda t: vtaops.compile(op, CONFIG, t, verify=False).cycles(),
    )


@cache
def program(layer: str, residual: bool, padding: str = "skip") -> Program:
    """Return a layer, compiled."""
    op = LAYERS[layer].op
    assert isinstance(op, Conv2d)
    op = replace(op, residual=True) if residual else op
    return vtaops.compile(op, CONFIG, tiling(op, padding))


def layer_cycles(layer: str, residuals: bool, padding: str) -> int:
    """Return the cycles of a layer's occurrences on the DRAM of `tsim`: first part."""
    added = RESIDUALS.get(layer, 0) if residuals else 0
    total = program(layer, False, padding).cycles() * (LAYERS[layer].occurrences - added)
    return total + (program(layer, True, padding).cycles() * added if added else 0)


def modelled(bandwidth: float | None) -> int:
    """Return the cycles of all layers at a bandwidth, by the timing model."""
    return sum(
        program(layer, False).cycles(machine(bandwidth)) * workload.occurrences
        for layer, workload in LAYERS.items()
    )


def simulated(layer: str, device: Tsim) -> int:
    """Return the cycles of a layer on the RTL.

    Raises
    ------
    SystemExit
        If its result differs from NumPy.
    """
    arrays = random_arguments(LAYERS[layer].op, np.random.default_rng(0))
    device.reset_stats()
    result = program(layer, False).run(device, *arrays)
    if not np.array_equal(result, evaluate(LAYERS[layer].op, arrays)):
        raise SystemExit(f"{layer} differs from NumPy")
    return device.performance().cycles


def measure(results: dict[str, Any], rtl: bool, save: Any) -> None:
    """Fill in what `results` does not have."""
    for padding in ("skip", "multiply"):
        for residuals in (True, False):
            name = f"{'with' if residuals else 'without'} additions, padding {padding}"
            cycles = results["layers"].setdefault(name, {})
            for layer in track(LAYERS, name, console=ERRORS):
                if layer not in cycles:
                    cycles[layer] = layer_cycles(layer, residuals, padding)
                    save()
    for bandwidth in BANDWIDTHS:
        cycles = results["model"].setdefault(str(bandwidth), {})
        for layer in LAYERS:
            if layer not in cycles:
                cycles[layer] = program(layer, False).cycles(machine(bandwidth))
    save()
    for bandwidth in ON_RTL if rtl else ():
        cycles = results["rtl"].setdefault(str(bandwidth), {})
        with Tsim(CONFIG, latency=LATENCY, bandwidth=bandwidth) as device:
            for layer in track(LAYERS, f"RTL, {bandwidth}", console=ERRORS):
                if layer not in cycles:
                    cycles[layer] = simulated(layer, device)
                    save()


def weighted(cycles: dict[str, int]) -> int:
    """Return the sum over all occurrences of the layers."""
    return sum(cycles[layer] * workload.occurrences for layer, workload in LAYERS.items())


def equivalent_bandwidth(curve: dict[str, dict[str, int]]) -> float:
    """Return the bandwidth at which our layers would take as long as the board's: interpolated."""
    points = [(float(b), weighted(cycles)) for b, cycles in curve.items() if b != "None"]
    bandwidths, cycles = zip(*sorted(points, key=lambda p: p[1]), strict=True)
    return float(np.interp(BOARD, cycles, bandwidths))


def tables(results: dict[str, Any]) -> list[Table]:
    """Return both parts for people."""
    first = Table("C2 to C11 of ResNet-18", title="DRAM latency 32, no limit but the port")
    for column in ("cycles", "of Chisel's"):
        first.add_column(column, justify="right")
    first.add_row("upstream, pipelined Chisel, simulated", f"{CHISEL:,}", "1.000")
    for name, layers in results["layers"].items():
        first.add_row(name, f"{sum(layers.values()):,}", f"{sum(layers.values()) / CHISEL:.3f}")
    second = Table("bytes a cycle", title=f"over the bandwidth, DRAM latency {LATENCY}")
    for column in ("model", "RTL", "worst layer", "ms at 100 MHz", "of the board's"):
        second.add_column(column, justify="right")
    for bandwidth, layers in results["model"].items():
        cycles, rtl = weighted(layers), results["rtl"].get(bandwidth, {})
        worst = max((100 * (layers[n] - c) / c for n, c in rtl.items()), key=abs, default=0.0)
        complete = len(rtl) == len(LAYERS)
        second.add_row(
            "port's 8 + 8" if bandwidth == "None" else bandwidth,
            f"{cycles:,}",
            f"{weighted(rtl):,}" if complete else "",
            f"{worst:+.2f} %" if complete else "",
            f"{cycles / 1e5:.1f}",
            f"{cycles / BOARD:.3f}",
        )
    return [first, second]


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the curve over the bandwidth, with both published figures."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    curve = {float(b): weighted(c) / 1e6 for b, c in results["model"].items() if b != "None"}
    axes.plot(list(curve), list(curve.values()), color="C0", label="timing model")
    rtl = {
        float(bandwidth): weighted(cycles) / 1e6
        for bandwidth, cycles in results["rtl"].items()
        if bandwidth != "None" and len(cycles) == len(LAYERS)
    }
    axes.plot(list(rtl), list(rtl.values()), "o", color="C0", label="RTL, results equal to NumPy")
    free = weighted(results["model"]["None"]) / 1e6
    axes.axhline(free, color="C0", linestyle=":", label="no limit but the port")
    axes.axhline(BOARD / 1e6, color="C1", label="published, Pynq board at 100 MHz")
    axes.set(
        xlabel="bandwidth of the DRAM, bytes a cycle (reads and writes together)",
        ylabel="million cycles",
        title=f"ResNet-18, C2 to C11, pynq, DRAM latency {LATENCY} cycles",
        ylim=(0, None),
    )
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


ERRORS = Console(stderr=True)


def main(
    rtl: Rtl = False,
    json_file: Json = Path("build/bandwidth.json"),
    picture_file: Picture = None,
) -> None:
    """Measure what is missing; print and write all."""
    path = json_file
    empty: dict[str, Any] = {"layers": {}, "model": {}, "rtl": {}}
    results = json.loads(path.read_text()) if path.exists() else empty

    def save() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")

    measure(results, rtl, save)
    for table in tables(results):
        Console().print(table)
    Console().print(
        f"the board's {BOARD:,} cycles are ours at {equivalent_bandwidth(results['model']):.2f} "
        "bytes a cycle"
    )
    if picture_file:
        draw(results, picture_file)
