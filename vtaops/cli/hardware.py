"""The commands of `vtaops` for hardware and devices.

These are isa, build-tsim, synth-report, rtl, device list and device test; see `vtaops.cli`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from vtaops.base.errors import EncodingError
from vtaops.cli.options import Commands, list_table, progress_bar, show
from vtaops.machine.config import HardwareConfig

if TYPE_CHECKING:
    from vtaops.hardware.synthesis import FpgaResources

device_app = Commands(name="device", help="The devices that programs run on.", no_args_is_help=True)


def isa(*, config: str = "pynq", decode: str = "") -> None:
    """Print the bits of every instruction as Markdown, or the fields of one instruction.

    Example: vtaops isa --config pynq --decode 0x0000900200000862001c00400820022a

    Parameters
    ----------
    decode
        An instruction in hexadecimal to decode instead.
    """
    from vtaops.machine.isa import Encoding, disassemble, layout_table, tokens_text

    hardware = HardwareConfig.load(config)
    if not decode:
        typer.echo(layout_table(hardware).rstrip())
        return
    encoding = Encoding.of(hardware)
    instruction = encoding.decode(_instruction_word(decode))
    rows = [
        (slot.span, slot.name, getattr(instruction, slot.name), slot.doc)
        for slot in encoding.slots[type(instruction)]
    ]
    title = f"{disassemble(instruction)} {tokens_text(instruction)}".rstrip()
    columns = {"bits": ">", "field": "", "value": ">", "meaning": ""}
    show(None, False, list_table(title, columns, rows))


def _instruction_word(text: str) -> int:
    try:
        word = int(text, 16)
    except ValueError:
        word = -1
    if not 0 <= word < 1 << 128:
        raise EncodingError(f"{text!r} is not a 128-bit word; write up to 32 hexadecimal digits")
    return word


def build_tsim(*, config: str = "pynq", port_bytes: int = 0, axi: bool = False) -> None:
    """Build the model of the RTL for a configuration, like the first use of tsim.

    Example: vtaops build-tsim --config tiny --port-bytes 16

    Parameters
    ----------
    port_bytes
        Width of the DRAM port in bytes; 0: that of the board.
    axi
        Include the AXI shell.
    """
    from vtaops.hardware.build import build_model
    from vtaops.hardware.rtl import RtlParameters

    hardware = HardwareConfig.load(config)
    parameters = RtlParameters(port_bytes=port_bytes or hardware.port_width)
    with Console(stderr=True).status("building"):
        typer.echo(build_model(hardware, parameters, axi=axi))


def synth_report(
    *,
    config: str = "pynq",
    dsp_multipliers: int = -1,
    packed_multipliers: bool = True,
    performance_counters: bool = True,
    yosys: str | None = None,
    as_json: bool = False,
) -> None:
    """Estimate the FPGA resources of the RTL with Yosys; takes some minutes.

    Example: vtaops synth-report --config pynq --dsp-multipliers 96

    Parameters
    ----------
    dsp_multipliers
        DSP blocks for the multipliers of the GEMM core; -1: as many as it can use.
    packed_multipliers
        Compute two products per DSP block.
    performance_counters
        Include performance counters.
    yosys
        A native Yosys, faster than PyPI's.
    """
    from vtaops.hardware.rtl import RtlParameters
    from vtaops.hardware.synthesis import CAPACITY, FpgaResources, part_of, synthesize

    hardware = HardwareConfig.load(config)
    parameters = RtlParameters(
        port_bytes=hardware.port_width,
        address_bits=32,
        dsp_multipliers=None if dsp_multipliers < 0 else dsp_multipliers,
        packed_multipliers=packed_multipliers,
        performance_counters=performance_counters,
    )
    part = part_of(hardware)
    family, capacity = CAPACITY[part]
    with Console(stderr=True).status("Running Yosys; this takes some minutes"):
        blocks = synthesize(hardware, parameters, family, yosys=yosys)
    rows = {**blocks, "all": sum(blocks.values(), FpgaResources()), "capacity": capacity}
    data = {"part": part, "resources": {name: asdict(row) for name, row in rows.items()}}
    show(data, as_json, _resources_table(f"{hardware.bitstream_id} on {part}", rows))


def _resources_table(title: str, resources: dict[str, FpgaResources]) -> Table:
    columns = {"block": "", "LUT": ",", "FF": ",", "BRAM36": "g", "DSP": ","}
    rows = [(name, row.lut, row.ff, row.bram, row.dsp) for name, row in resources.items()]
    table = list_table(f"{title} (Yosys, estimates)", columns, rows)
    table.rows[-3].end_section = True  # a line above sum and capacity
    return table


def rtl(
    *,
    config: str = "pynq",
    output: Path = Path("vta"),
    port_bytes: int = 0,
    dsp_multipliers: int = -1,
    performance_counters: bool = True,
    clock_mhz: int = 100,
    jobs: int = 2,
) -> None:
    """Write the RTL, its generated package and a Vivado script that builds a bitstream.

    The script has not been run yet, for lack of Vivado. See docs/tsim.md.

    Example: vtaops rtl --config pynq -o vta && cd vta && vivado -mode batch -source build.tcl

    Parameters
    ----------
    output : --output, -o
        Folder to write.
    port_bytes
        Width of the DRAM port in bytes; 0: that of the board's bus.
    dsp_multipliers
        DSP blocks for the GEMM core; -1: as many as fit.
    performance_counters
        Include performance counters.
    clock_mhz
        Frequency of the logic.
    jobs
        Number of parallel Vivado processes.
    """
    from vtaops.hardware import vivado
    from vtaops.hardware.rtl import RtlParameters

    hardware = HardwareConfig.load(config)
    multipliers = vivado.dsp_multipliers(hardware) if dsp_multipliers < 0 else dsp_multipliers
    parameters = RtlParameters(
        port_bytes=port_bytes or hardware.port_width,
        dsp_multipliers=multipliers,
        performance_counters=performance_counters,
    )
    script = vivado.write_design(hardware, output, parameters, clock_mhz=clock_mhz, jobs=jobs)
    typer.echo(f"{script.parent}: run Vivado there: vivado -mode batch -source {script.name}")


@device_app.command("list")
def list_devices(*, as_json: bool = False) -> None:
    """List the devices by name: those of vtaops and those of other packages.

    Example: vtaops device list
    """
    from importlib.metadata import entry_points

    from vtaops.runtime import DEVICES, ENTRY_POINTS

    found = dict.fromkeys(DEVICES, "vtaops")
    found |= {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    show(found, as_json, list_table("Devices", dict.fromkeys(("name", "from"), ""), found.items()))


@device_app.command("test")
def check_device(
    name: str,
    *,
    config: str = "pynq",
    operators: int = 20,
    programs: int = 50,
    seed: int = 0,
    layers: bool = True,
    as_json: bool = False,
) -> None:
    """Compare memory, every instruction, operators and random programs with NumPy.

    Example: vtaops device test fsim --config tiny

    Parameters
    ----------
    name
        A device (see: vtaops device list).
    operators
        Number of operators with random shapes.
    programs
        Number of random programs.
    seed
        Seed of all random numbers.
    layers
        Also run the layers of ResNet-18.
    """
    from vtaops.runtime import open_device
    from vtaops.session.selftest import make, planned_checks

    with closing(open_device(name, config)) as device, progress_bar() as progress:
        planned = planned_checks(
            device, operators=operators, programs=programs, seed=seed, layers=layers
        )
        checks = [make(check) for check in progress.track(planned, description=name)]
    outcomes = [check.passed for check in checks]
    counts = (
        f"{outcomes.count(True)} passed, {outcomes.count(False)} failed, "
        f"{outcomes.count(None)} not supported"
    )
    failed = [f"FAILED {c.name}: {c.detail}" for c in checks if c.passed is False]
    show([asdict(check) for check in checks], as_json, *failed, f"{name}: {counts}")
    if failed:
        raise typer.Exit(1)
