"""Write the files from which Vivado builds a bitstream of our RTL.

Determines what the script ``bitstreams/vivado/build.tcl`` needs of a configuration and its board.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vtaops.base.data import data_directory
from vtaops.base.errors import DeviceError, raising
from vtaops.base.files import reason_of, write_folder
from vtaops.base.quoting import tcl_word
from vtaops.hardware.flows import VIVADO, dsp_for_products
from vtaops.hardware.registers import REGISTER_PAGE
from vtaops.hardware.rtl import RtlParameters, rtl_design
from vtaops.hardware.synthesis import CAPACITY, ULTRA_RAM, in_ultra_ram, part_of
from vtaops.machine.config import PORT_MHZ, Extension, HardwareConfig

PARTS = {
    "pynq": ("zynq7000", "xc7z020clg400-1"),  # Pynq-Z1 and Z2; upstream builds for clg484, same die
    "ultra96": ("zynqmp", "xczu3eg-sbva484-1-e"),
    "zcu104": ("zynqmp", "xczu7ev-ffvc1156-2-e"),
    "kv260": ("zynqmp", "xck26-sfvc784-2LV-c"),
    "aup_zu3": ("zynqmp", "xczu3eg-sfvc784-2-e"),
}
"""Target -> the script's procedure for its processing system, and the part."""

ADDRESS_BITS = 32
"""Address width of the AXI master: the driver and these boards use DRAM below 4 GiB."""

CLOCK_MHZ = 100
"""Frequency that the driver sets by default."""

DSP_RESERVE = 4


def zynq_parameters(config: HardwareConfig) -> RtlParameters:
    """Return the parameters of the RTL on a Zynq: the board's bus, and as many DSPs as fit.

    The vector ALU and post-processing also use DSP blocks, and the tool gets a few.
    """
    _, capacity = CAPACITY[part_of(config)]
    free = dsp_for_products(config, capacity, DSP_RESERVE)
    return RtlParameters(
        port_bytes=config.port_width,
        address_bits=ADDRESS_BITS,
        dsp_multipliers=min(free, config.macs_per_micro_op),
    )


def write_design(
    config: HardwareConfig,
    folder: Path,
    parameters: RtlParameters | None = None,
    *,
    clock_mhz: int = CLOCK_MHZ,
    jobs: int = 2,
    force: bool = False,
) -> Path:
    """Write all files that Vivado needs to a folder.

    Parameters
    ----------
    config : HardwareConfig
        The configuration; its target must be a board.
    folder : Path
        Output folder, created if necessary. The files of an earlier call are replaced.
    parameters : RtlParameters, optional
        Parameters of the RTL. By default the port has the width of the board's bus, and as many
        multipliers use DSP blocks as fit. The address width is always `ADDRESS_BITS`.
    clock_mhz : int
        Frequency of the logic.
    jobs : int
        Number of parallel Vivado processes.
    force : bool
        Also replace files of the same names that something else wrote.

    Returns
    -------
    Path
        The script to run, in the folder.

    Raises
    ------
    ConfigError
        If the target is a simulator, the parameters are not supported, or the clock is too fast.
    DeviceError
        If a file cannot be written, or would replace one that something else wrote.
    """
    VIVADO.check(config)
    parameters = replace(parameters or zynq_parameters(config), address_bits=ADDRESS_BITS)
    VIVADO.check_clock(clock_mhz, config, parameters.port_bytes)
    design = rtl_design(config, parameters, axi=True)
    family, part = PARTS[config.target]
    values: dict[str, object] = {
        "name": config.bitstream_id,
        "family": family,
        "part": part,
        "clock_mhz": clock_mhz,
        "pairs": int(config.has(Extension.PAIRS)),
        "second_port": "n_axi" if config.split_port else "w_axi" if config.weight_port else "",
        "port_mhz": PORT_MHZ[config.target] if config.split_port else 0,
        "ultra_ram": " ".join(ULTRA_RAM) if in_ultra_ram(config) else "",
        **{name.lower(): value for name, value in design.values.items()},
        "register_base": f"{config.board.register_base:#x}",
        "register_bytes": REGISTER_PAGE,
        "jobs": jobs,
    }
    lines = [f"set {name} {tcl_word(value)}" for name, value in values.items()]
    header = "# Parameters of build.tcl, written by vtaops.board.vivado."
    files = {f"rtl/{name}": content for name, content in design.files.items()}
    files["design.tcl"] = "\n".join([header, *lines, ""]).encode()
    files["build.tcl"] = (data_directory("bitstreams") / "vivado" / "build.tcl").read_bytes()
    with raising(DeviceError, f"cannot write the design to {folder}", OSError, describe=reason_of):
        write_folder(folder, files, force=force)
    return folder / "build.tcl"
