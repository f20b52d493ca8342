"""The commands ``vtaops hardware``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from dataclasses import asdict, astuple
from pathlib import Path
from typing import Annotated

from typer import Option

from vtaops.base.cache import cache_directory
from vtaops.base.errors import DeviceError
from vtaops.cli.options import Command, Commands, Config, Force, progress_bar, say, show, to_write
from vtaops.machine.config import HardwareConfig
from vtaops.report.style import list_table

hardware_app = Commands(name="hardware", help="The RTL of a configuration, and its bits.")


@hardware_app.command("isa")
def isa(config: Config = "pynq") -> None:
    """Print the bits of every instruction as Markdown.

    Example: vtaops hardware isa --config tiny
    """
    from vtaops.machine.isa import Encoding

    hardware = HardwareConfig.load(config)
    layout = {
        kind.__name__: [{"name": s.name, "bits": s.span, "meaning": s.doc} for s in slots]
        for kind, slots in Encoding.of(hardware).slots.items()
    }
    show(layout, layout_table(hardware).rstrip())


def layout_table(config: HardwareConfig) -> str:
    """Return the bit layout of every instruction and of the micro-op as Markdown tables."""
    from vtaops.machine.isa import OPCODE_BITS, Encoding, Instruction

    lines: list[str] = []
    for cls, slots in Encoding.of(config).slots.items():
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        lines.append(f"### {cls.__name__}\n\n{summary}\n")
        lines += "| bits | field | meaning |", "|---|---|---|"
        if issubclass(cls, Instruction):
            lines.append(f"| 0..{OPCODE_BITS - 1} | opcode | {int(cls.opcode)} |")
        for slot in slots:
            lines.append(f"| {slot.span} | {slot.name} | {slot.doc} |")
        lines.append("")
    return "\n".join(lines)


@hardware_app.command("build", cls=Command)
def build(config: Config = "pynq") -> None:
    """Build the model of the RTL for a configuration, as the first use of tsim does.

    Example: vtaops hardware build --config tiny
    """
    from vtaops.hardware.build import build_model
    from vtaops.hardware.rtl import RtlParameters

    hardware = HardwareConfig.load(config)
    with progress_bar("build the model of the RTL"):
        model = build_model(hardware, RtlParameters(port_bytes=hardware.port_width))
    if not model.is_relative_to(cache_directory("tsim")):
        raise DeviceError(f"the model is built, but cannot be kept in {cache_directory('tsim')}")
    say(model)


@hardware_app.command("synth")
def synth(config: Config = "pynq") -> None:
    """Estimate the FPGA resources of the RTL with Yosys; takes some minutes.

    Example: vtaops hardware synth --config pynq
    """
    from vtaops.hardware.flows import SYNTHESIS
    from vtaops.hardware.rtl import RtlParameters
    from vtaops.hardware.synthesis import CAPACITY, FpgaResources, part_of, synthesize

    hardware = HardwareConfig.load(config)
    SYNTHESIS.check(hardware)
    parameters = RtlParameters(port_bytes=hardware.port_width, address_bits=32)
    part = part_of(hardware)
    family, capacity = CAPACITY[part]
    with progress_bar("Yosys maps the RTL; this takes some minutes"):
        blocks = synthesize(hardware, parameters, family)
    rows = {**blocks, "all": sum(blocks.values(), FpgaResources()), "capacity": capacity}
    data = {"part": part, "resources": {name: asdict(row) for name, row in rows.items()}}
    title = f"{hardware.bitstream_id} on {part} (Yosys, estimates)"
    columns = {"block": "", "LUT": ",", "FF": ",", "BRAM36": "g", "DSP": ",", "URAM": ","}
    cells = ((name, *astuple(row)) for name, row in rows.items())
    show(data, list_table(title, columns, cells))


@hardware_app.command("write", cls=Command)
def write(
    config: Config = "pynq",
    *,
    output: Annotated[Path, to_write("Folder to write.")] = Path("vta"),
    force: Force = False,
    clock_mhz: Annotated[int, Option(help="Frequency of the logic.")] = 100,
) -> None:
    """Write the RTL, its generated package and a Vivado script that builds a bitstream.

    The script has not been run yet, for lack of Vivado. See docs/tsim.md.

    Example: vtaops hardware write -o vta && cd vta && vivado -mode batch -source build.tcl
    """
    from vtaops.board.vivado import write_design

    script = write_design(HardwareConfig.load(config), output, clock_mhz=clock_mhz, force=force)
    say(f"{script.parent}: run Vivado there: vivado -mode batch -source {script.name}")
