"""An estimate of the clock on a Zynq 7020, grade -1: static timing of Yosys' netlist.

    python -m benchmarks clock_xc7 --config pynq_ext --json build/clock_xc7.json

The RTL in its AXI shell, all of whose ports stand behind registers, is mapped by Yosys for a 7
series; nothing is placed or routed. Cells have the delays of the data sheets and of Project X-Ray's
timings of grade -1; a net of n loads takes 0.45 + 0.12 log2(n) ns. The table shows the longest
paths, one for each pair of registers; those of the array's own clock, of twice the frequency
(``pynq_512``), have a table of their own: from or to its registers, for half of the period.
``--calibrate`` shows what the same rule says of the critical
paths of designs that Vivado routed for this grade, and whose reports are published.

``--route`` also places and routes the design with an installed ``nextpnr-xilinx`` and its data base
of the chip; it says what is missing. `vtaops board build pynq` makes a bitstream.

The netlist is kept under ``--work``: a changed RTL needs another folder. Yosys takes minutes.
``--ultrascale-plus`` judges the same netlist by the delays of an UltraScale+ of grade -2, whose
look-up tables have as many inputs; a netlist of its own would have carries of eight bits.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.clock import HARNESS, harness
from benchmarks.options import Config, Json, Row, Rows, show, write_json
from trials.static_timing import (
    FASTER,
    PUBLISHED,
    SEVEN_SERIES,
    ULTRASCALE_PLUS,
    Delays,
    Timing,
    clock_net,
    route,
)
from vtaops import HardwareConfig
from vtaops.board.vivado import zynq_parameters
from vtaops.board.zynq import CHIP, NEXTPNR, locate, map_design

WHOLE = re.compile(r"_mem\.g_hold\.held\.D$")
"""Registers that paths from the slower clock reach in its whole period;
``bitstreams/vivado/build.tcl`` says why."""


def calibration() -> Rows:
    """Return the published paths beside their estimates."""
    return {
        f"{number} {path.design}": {
            "cells": path.cells,
            "routed ns": path.routed,
            "estimate ns": path.estimate,
            "error %": 100 * (path.estimate / path.routed - 1),
        }
        for number, path in enumerate((*PUBLISHED, *FASTER))
    }


# -------------------------------------------------------------------------------- the command


def synthesise(config: HardwareConfig, folder: Path) -> None:
    """Write the netlist of the whole design to ``netlist.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{HARNESS}.v").write_text(harness(zynq_parameters(config)))
    map_design(config, HARNESS, [f"{HARNESS}.v"], folder)


def half_period_paths(
    module: dict[str, Any], clk: int, array_clk: int, least: float, delays: Delays = SEVEN_SERIES
) -> list[Row]:
    """Return the longest paths from or to registers of the array's clock, but for `WHOLE`."""
    ways = ((array_clk, array_clk), (clk, array_clk), (array_clk, clk))
    rows = [
        row
        for launch, capture in ways
        for row in Timing(module, launch, capture, delays).longest(least)
        if launch != clk or not WHOLE.search(row["to"])
    ]
    return sorted(rows, key=lambda row: row["ns"], reverse=True)


def tabulate(title: str, paths: list[Row], count: int) -> None:
    """Print some paths."""
    rows = {
        str(n): {**row, "loads": " ".join(map(str, row["loads"]))} for n, row in enumerate(paths)
    }
    show(title, dict([*rows.items()][:count]), ("ns", "levels", "ends", "loads", "from", "to"))


def main(
    config_name: Config = "pynq_ext",
    work: Annotated[Path, typer.Option(help="For the netlist.")] = Path("build/clock_xc7"),
    least: Annotated[float, typer.Option(help="Ns of paths that are counted.")] = 8.33,
    count: Annotated[int, typer.Option(help="Paths that are shown.")] = 20,
    to_route: Annotated[
        bool, typer.Option("--route", help="Also place and route with an installed nextpnr.")
    ] = False,
    faster: Annotated[
        bool, typer.Option("--ultrascale-plus", help="Delays of an UltraScale+ -2.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Only the published paths.")
    ] = False,
    json_file: Json = None,
) -> None:
    """Make the netlist if there is none; print, write."""
    show("Published paths", calibration(), of="design")
    if calibrate:
        return
    if to_route:
        locate(NEXTPNR, CHIP)  # before minutes of Yosys
    if not (work / "netlist.json").exists():
        with Console().status("Yosys maps the design"):
            synthesise(HardwareConfig.load(config_name), work)
    module = json.loads((work / "netlist.json").read_text())["modules"][HARNESS]
    clk, array_clk = (clock_net(module, name) for name in ("clk", "array_clk"))
    delays = ULTRASCALE_PLUS if faster else SEVEN_SERIES
    rows = Timing(module, clk, clk, delays).longest(least)
    tabulate("Longest paths", rows, count)
    mhz = round(1000 / rows[0]["ns"], 1)
    print(
        f"{config_name}: {rows[0]['ns']} ns, {mhz} MHz by this estimate; "
        f"{sum(row['ns'] >= least for row in rows)} pairs of registers need {least} ns or more"
    )
    half = half_period_paths(module, clk, array_clk, least / 2, delays)
    if half:
        tabulate("Longest paths of the clock of twice the frequency", half, count)
        slow = sum(row["ns"] >= least / 2 for row in half)
        print(f"{slow} pairs need {least / 2} ns or more")
    if to_route:
        routed = route(work, 1000 / least)
        print(f"routed by nextpnr-xilinx: {routed} MHz (its delays know no speed grade)")
    errors = [path.estimate / path.routed - 1 for path in PUBLISHED]
    summary = {"config": config_name, "ns": rows[0]["ns"], "mhz": mhz, "paths": rows}
    write_json(json_file, {**summary, "half_period_paths": half, "calibration": errors})
