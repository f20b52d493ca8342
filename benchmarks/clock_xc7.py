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
of the chip; it says what is missing. There is no bitstream: the processing system and its AXI
interconnect are Vivado's.

The netlist is kept under ``--work``: a changed RTL needs another folder. Yosys takes minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.clock import HARNESS, harness
from benchmarks.options import Config, Json, write_json
from trials.static_timing import PUBLISHED, Timing
from vtaops import DeviceError, HardwareConfig
from vtaops.hardware.synthesis import run_yosys
from vtaops.hardware.tools import execute_tool
from vtaops.hardware.vivado import ADDRESS_BITS, dsp_multipliers
from vtaops.runtime.tsim import RtlParameters

NET_PS = 700
"""A net's delay as Yosys sees it when it chooses look-up tables, instead of its own 300 ps."""


BUFFERS = ("IBUF", "BUFG")


def calibration() -> Table:
    """Return the published paths beside their estimates."""
    table = Table("design", "cells", "routed ns", "estimate ns", "error", title="Published paths")
    for path in PUBLISHED:
        error = f"{100 * (path.estimate / path.routed - 1):+.1f} %"
        row = (f"{path.cells}", f"{path.routed:.3f}", f"{path.estimate:.3f}", error)
        table.add_row(path.design, *row)
    return table


# -------------------------------------------------------------------------------- the command


def synthesise(config: HardwareConfig, folder: Path, yosys: str | None) -> None:
    """Write the netlist of the whole design to ``netlist.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    parameters = RtlParameters(
        port_bytes=config.port_width,
        address_bits=ADDRESS_BITS,
        dsp_multipliers=dsp_multipliers(config),
    )
    (folder / f"{HARNESS}.v").write_text(harness(parameters))
    # As synth_xilinx maps with abc9, but for the delay of nets.
    commands = (
        f"read_verilog {HARNESS}.v; hierarchy -check -top {HARNESS}; "
        f"synth_xilinx -family xc7 -flatten -abc9 -top {HARNESS} -run begin:map_luts; "
        "opt_expr -mux_undef -noclkinv; read_verilog -icells -lib -specify +/xilinx/abc9_model.v; "
        f"abc9 -W {NET_PS}; clean; xilinx_srl -fixed -minlen 3; "
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6; "
        "opt_lut_ins -tech xilinx; clean; tee -o statistics.json stat -json; "
        "blackbox =A:whitebox; write_json netlist.json"  # models of cells have processes
    )
    run_yosys(config, parameters, commands, folder, axi=True, yosys=yosys)


# ---------------------------------------------------------------------- place and route

NEXTPNR = "nextpnr-xilinx"
CHIP = "xc7z020.bin"
SEARCHED = ("NEXTPNR_XILINX_CHIPDB", "/opt/nextpnr-xilinx/chipdb", "/snap/openxc7/current/opt/"
            "nextpnr-xilinx/chipdb")  # fmt: skip
"""Where the data base of the chip is: a folder in this environment variable, or one of these."""

PINS = {"clk": "H16", "array_clk": "U18", "reset_n": "D19", "in": "D20", "out": "R14"}
"""Pins of the harness on the package clg400; the clocks' are pins of clocks."""


def routing_tools() -> tuple[str, Path]:
    """Return nextpnr-xilinx and its data base of the chip.

    Raises
    ------
    DeviceError
        If one of them is not there; says which, and where it comes from.
    """
    folders = [Path(os.environ.get(SEARCHED[0], "")), *map(Path, SEARCHED[1:])]
    program = shutil.which(NEXTPNR)
    data_base = next((path / CHIP for path in folders if (path / CHIP).is_file()), None)
    missing = [f"the program {NEXTPNR}"] * (program is None)
    missing += [f"{CHIP} in the folder {SEARCHED[0]} or in one of {', '.join(SEARCHED[1:])}"] * (
        data_base is None
    )
    if program is None or data_base is None:
        raise DeviceError(
            f"routing needs {' and '.join(missing)}; both come from the openXC7 project "
            "(github.com/openXC7: its packages, or nextpnr-xilinx with prjxray-db)"
        )
    return program, data_base


def route(folder: Path, target_mhz: float) -> float:
    """Place and route ``netlist.json`` and return the clock that nextpnr reports, MHz."""
    program, data_base = routing_tools()
    lines = "".join(
        f"set_property LOC {pin} [get_ports {name}]\n"
        f"set_property IOSTANDARD LVCMOS33 [get_ports {name}]\n"
        for name, pin in PINS.items()
    )
    (folder / "pins.xdc").write_text(lines)
    options = f"--xdc pins.xdc --json netlist.json --fasm routed.fasm --freq {target_mhz}"
    log = f"--log {NEXTPNR}.log --timing-allow-fail"
    execute_tool([program, "--chipdb", data_base, *options.split(), *log.split()], folder)
    said = (folder / f"{NEXTPNR}.log").read_text()
    found = re.findall(r"Max frequency for clock.*?: ([\d.]+) MHz", said)
    if not found:
        raise DeviceError(f"{NEXTPNR} reported no clock; see {folder / NEXTPNR}.log")
    return float(found[-1])  # the first one is that of the placement


def clock_net(module: dict[str, Any], port: str) -> int:
    """Return the net of a clock behind the buffers of its pin."""
    net: int = module["ports"][port]["bits"][0]
    ends = [cell["connections"] for cell in module["cells"].values() if cell["type"] in BUFFERS]
    buffers = {pins["I"][0]: pins["O"][0] for pins in ends}
    while net in buffers:
        net = buffers[net]
    return net


def show(rows: list[dict[str, Any]], count: int, title: str) -> Table:
    """Return the table for people."""
    table = Table("ns", "levels", "ends", "loads", "from", "to", title=title)
    for row in rows[:count]:
        loads = " ".join(map(str, row["loads"]))
        numbers = [str(row[name]) for name in ("ns", "levels", "ends")]
        table.add_row(*numbers, loads, row["from"], row["to"])
    return table


def main(
    config_name: Config = "pynq_ext",
    work: Annotated[Path, typer.Option(help="For the netlist.")] = Path("build/clock_xc7"),
    yosys: Annotated[
        str | None, typer.Option(help="A native Yosys that maps (default: that of PyPI)")
    ] = None,
    least: Annotated[float, typer.Option(help="Ns of paths that are counted.")] = 8.33,
    count: Annotated[int, typer.Option(help="Paths that are shown.")] = 20,
    to_route: Annotated[
        bool, typer.Option("--route", help="Also place and route with an installed nextpnr.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Only the published paths.")
    ] = False,
    json_file: Json = None,
) -> None:
    """Make the netlist if there is none; print, write."""
    console = Console(width=None)
    console.print(calibration())
    if calibrate:
        return
    if to_route:
        routing_tools()  # before minutes of Yosys
    if not (work / "netlist.json").exists():
        with console.status("Yosys maps the design"):
            synthesise(HardwareConfig.load(config_name), work, yosys)
    module = json.loads((work / "netlist.json").read_text())["modules"][HARNESS]
    clk, array_clk = (clock_net(module, name) for name in ("clk", "array_clk"))
    rows = Timing(module, clk, clk).longest(least)
    console.print(show(rows, count, "Longest paths"))
    mhz = round(1000 / rows[0]["ns"], 1)
    console.print(
        f"{config_name}: {rows[0]['ns']} ns, {mhz} MHz by this estimate; {len(rows)} pairs of "
        f"registers need {least} ns or more",
        highlight=False,
    )
    half = Timing(module, capture=array_clk).longest(least / 2)
    half += Timing(module, array_clk, clk).longest(least / 2)
    half.sort(key=lambda row: row["ns"], reverse=True)
    if half:
        console.print(show(half, count, "Longest paths of the clock of twice the frequency"))
        console.print(f"{len(half)} pairs need {least / 2} ns or more", highlight=False)
    if to_route:
        routed = route(work, 1000 / least)
        console.print(f"routed by {NEXTPNR}: {routed} MHz (its delays know no speed grade)")
    errors = [path.estimate / path.routed - 1 for path in PUBLISHED]
    summary = {"config": config_name, "ns": rows[0]["ns"], "mhz": mhz, "paths": rows}
    write_json(json_file, {**summary, "half_period_paths": half, "calibration": errors})
