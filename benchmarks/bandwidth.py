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

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import vtaops
from benchmarks.layers import PUBLISHED, simulated
from benchmarks.options import Kept, Picture, Rtl, read_json, show, write_json
from vtaops import Conv2d, HardwareConfig, Program
from vtaops.compiler import search
from vtaops.ops import Operator
from vtaops.program.timing import TimingParameters
from vtaops.runtime import Tsim
from vtaops.schedule import Tiling
from vtaops.schedule.candidates import TilingList
from vtaops.schedule.workloads import WORKLOADS

LAYERS = {name: WORKLOADS[name] for name in PUBLISHED}
RESIDUALS = {"resnet18.C2": 2, "resnet18.C5": 2, "resnet18.C8": 2, "resnet18.C11": 2}
"""How many of a layer's occurrences are followed by a residual addition: two in each stage."""

CHISEL = 7_729_601
"""Cycles of upstream's pipelined Chisel hardware, simulated: github.com/apache/tvm-vta/pull/30."""

BOARD = sum(cycles * LAYERS[name].occurrences for name, cycles in PUBLISHED.items())
"""Cycles at 100 MHz of TVM's published tuning log."""

CONFIG = HardwareConfig.load("pynq")
LATENCY = 100
"""Of the DRAM in the second part, cycles."""

BANDWIDTHS = [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, None]
ON_RTL = [2.0, 4.0, 6.0, 8.0, None]
TRIALS = 8
"""Tilings that are compiled for a layer in which every product is executed."""


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


def with_padding(residuals: bool, padding: str) -> int:
    """Return the cycles of all layers on the DRAM of `tsim`: first part."""
    total = 0
    for layer, workload in LAYERS.items():
        added = RESIDUALS.get(layer, 0) if residuals else 0
        total += program(layer, False, padding).cycles() * (workload.occurrences - added)
        total += program(layer, True, padding).cycles() * added if added else 0
    return total


def modelled(bandwidth: float | None) -> int:
    """Return the cycles of all layers at a bandwidth, by the timing model."""
    dram = TimingParameters(dram_latency=LATENCY, bandwidth=bandwidth)
    return sum(program(n, False).cycles(dram) * w.occurrences for n, w in LAYERS.items())


def on_rtl(bandwidth: float | None) -> int:
    """Return the cycles of all layers at a bandwidth, on the RTL."""
    with Tsim(CONFIG, latency=LATENCY, bandwidth=bandwidth) as device:
        return sum(
            simulated(program(n, False), w.op, device) * w.occurrences for n, w in LAYERS.items()
        )


def cases(rtl: bool) -> dict[tuple[str, str], Callable[[], int]]:
    """Return what is measured, by the part of the results and a name there."""
    found: dict[tuple[str, str], Callable[[], int]] = {}
    for padding in ("skip", "multiply"):
        for residuals in (True, False):
            name = f"{'with' if residuals else 'without'} additions, padding {padding}"
            found["layers", name] = lambda r=residuals, p=padding: with_padding(r, p)
    found |= {("model", str(b)): lambda b=b: modelled(b) for b in BANDWIDTHS}
    return found | {("rtl", str(b)): lambda b=b: on_rtl(b) for b in (ON_RTL if rtl else ())}


def equivalent_bandwidth(curve: dict[str, int]) -> float:
    """Return the bandwidth at which our layers would take as long as the board's: interpolated."""
    points = [(float(b), cycles) for b, cycles in curve.items() if b != "None"]
    bandwidths, cycles = zip(*sorted(points, key=lambda p: p[1]), strict=True)
    return float(np.interp(BOARD, cycles, bandwidths))


def draw(results: dict[str, dict[str, int]], path: Path) -> None:
    """Draw the curve over the bandwidth, with both published figures."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    ways = {"model": ("-", "timing model"), "rtl": ("o", "RTL, results equal to NumPy")}
    for part, (style, label) in ways.items():
        curve = {float(b): c / 1e6 for b, c in results[part].items() if b != "None"}
        axes.plot(list(curve), list(curve.values()), style, color="C0", label=label)
    free = results["model"]["None"] / 1e6
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


def main(
    rtl: Rtl = False,
    json_file: Kept = Path("build/bandwidth.json"),
    picture_file: Picture = None,
) -> None:
    """Measure what is missing; print and write all."""
    results: dict[str, Any] = read_json(json_file, {"layers": {}, "model": {}, "rtl": {}})
    for (part, name), measure in cases(rtl).items():
        if name not in results[part]:
            results[part][name] = measure()
            write_json(json_file, results)
    first = {n: {"cycles": c, "of Chisel's": c / CHISEL} for n, c in results["layers"].items()}
    show("C2 to C11 of ResNet-18, DRAM latency 32, no limit but the port", first)
    second = {
        "port's 8 + 8" if name == "None" else name: {
            "model": cycles,
            "RTL": results["rtl"].get(name),
            "of the board's": cycles / BOARD,
        }
        for name, cycles in results["model"].items()
    }
    show(f"over the bandwidth, DRAM latency {LATENCY}", second, of="bytes a cycle")
    equivalent = equivalent_bandwidth(results["model"])
    print(f"the board's {BOARD:,} cycles are ours at {equivalent:.2f} bytes a cycle")
    if picture_file:
        draw(results, picture_file)
