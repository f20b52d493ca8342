"""Writes the files from which Vivado builds a bitstream of our RTL.

Owns what the script ``bitstreams/vivado/build.tcl`` has to know of a configuration and its board.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from vtaops.base.data import data_directory
from vtaops.base.errors import ConfigError
from vtaops.hardware.registers import REGISTER_PAGE
from vtaops.hardware.rtl import RtlParameters, rtl_design
from vtaops.hardware.synthesis import CAPACITY, part_of
from vtaops.machine.config import HardwareConfig

PARTS = {
    "pynq": ("zynq7000", "xc7z020clg400-1"),  # Pynq-Z1 and Z2; upstream builds for clg484, same die
    "ultra96": ("zynqmp", "xczu3eg-sbva484-1-e"),
    "zcu104": ("zynqmp", "xczu7ev-ffvc1156-2-e"),
}
"""Target -> procedure of the script for its processing system, and part."""

ADDRESS_BITS = 32
"""Of the AXI master: the driver and the instructions of these boards use DRAM below 4 GiB."""

CLOCK_MHZ = 100
"""The driver sets this frequency, if it is told no other."""

DSP_PER_ALU_LANE = 3
DSP_RESERVE = 4


def dsp_multipliers(config: HardwareConfig) -> int:
    """Return how many DSP blocks of the board's part the GEMM core's multipliers may take.

    The vector ALU has its multipliers there too; a few blocks are left to the tool.
    """
    _, capacity = CAPACITY[part_of(config)]
    free = capacity.dsp - DSP_PER_ALU_LANE * config.acc.lanes - DSP_RESERVE
    return min(max(free, 0), config.macs_per_micro_op)


def write_design(
    config: HardwareConfig,
    folder: Path,
    parameters: RtlParameters | None = None,
    *,
    clock_mhz: int = CLOCK_MHZ,
    jobs: int = 2,
) -> Path:
    """Write everything that Vivado needs into a folder.

    Parameters
    ----------
    config : HardwareConfig
        The configuration; its target is a board.
    folder : Path
        Where to; made if it does not exist. Files of the same names are replaced.
    parameters : RtlParameters, optional
        Of the RTL; by default the port width of the board's bus, and as many multipliers in DSP
        blocks as fit. The address width is that of the boards, `ADDRESS_BITS`.
    clock_mhz : int
        Frequency of the logic.
    jobs : int
        Processes of Vivado at a time.

    Returns
    -------
    Path
        The script to run, in the folder.

    Raises
    ------
    ConfigError
        If the target is a simulator, or the RTL cannot be built with these parameters.
    """
    if config.target not in PARTS:
        raise ConfigError(
            f"configuration {config.name!r} has target {config.target!r}; a bitstream needs one of "
            f"{', '.join(PARTS)}"
        )
    if not 1 <= clock_mhz <= 1000:
        raise ConfigError(f"the clock is {clock_mhz} MHz; give 1..1000")
    if parameters is None:
        parameters = RtlParameters(
            port_bytes=config.port_width, dsp_multipliers=dsp_multipliers(config)
        )
    parameters = replace(parameters, address_bits=ADDRESS_BITS)
    design = rtl_design(config, parameters, axi=True)
    rtl = folder / "rtl"
    rtl.mkdir(parents=True, exist_ok=True)
    for name, content in design.files.items():
        (rtl / name).write_bytes(content)
    family, part = PARTS[config.target]
    values: dict[str, object] = {
        "name": config.bitstream_id,
        "family": family,
        "part": part,
        "clock_mhz": clock_mhz,
        "pairs": int("pairs" in config.extensions),
        "weight_port": config.weight_port,
        **{name.lower(): value for name, value in design.values.items()},
        "register_base": f"{config.board.register_base:#x}",
        "register_bytes": REGISTER_PAGE,
        "jobs": jobs,
        "bitstream_id": f"{config.target}-rtl-{config.batch}x{config.block_in}",
        "board": config.target,
        "config": config.name,
    }
    lines = [f"set {name} {{{value}}}" for name, value in values.items()]
    header = "# Parameters of build.tcl, written by vtaops.hardware.vivado."
    (folder / "design.tcl").write_text("\n".join([header, *lines, ""]))
    script = folder / "build.tcl"
    shutil.copyfile(data_directory("bitstreams") / "vivado" / "build.tcl", script)
    return script
