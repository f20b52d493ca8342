"""The commands ``vtaops hardware``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Option

from vtaops.base.cache import cache_directory
from vtaops.base.errors import DeviceError, EncodingError
from vtaops.cli import options
from vtaops.cli.options import AsJson, Commands, list_table, minutes, say, show
from vtaops.machine.config import HardwareConfig

if TYPE_CHECKING:
    from vtaops.hardware.synthesis import FpgaResources
    from vtaops.machine.isa import Slot

hardware_app = Commands(name="hardware", help="The RTL of a configuration, and its bits.")


@hardware_app.command("isa")
def isa(
    config: options.ConfigName = "pynq",
    *,
    decode: Annotated[str, Option(help="An instruction in hexadecimal to decode instead.")] = "",
    as_json: AsJson = False,
) -> None:
    """Print the bits of every instruction as Markdown, or the fields of one instruction.

    Example: vtaops hardware isa pynq --decode 0x0000900200000862001c00400820022a
    """
    from vtaops.machine.isa import Encoding
    from vtaops.machine.text import disassemble, tokens_text

    hardware = HardwareConfig.load(config)
    encoding = Encoding.of(hardware)
    if not decode:
        layout = {
            kind.__name__: [_slot(slot) for slot in slots] for kind, slots in encoding.slots.items()
        }
        show(layout, as_json, layout_table(hardware).rstrip())
        return
    instruction = encoding.decode(_instruction_word(decode))
    rows = [
        (slot.span, slot.name, getattr(instruction, slot.name), slot.doc)
        for slot in encoding.slots[type(instruction)]
    ]
    title = f"{disassemble(instruction)} {tokens_text(instruction)}".rstrip()
    columns = {"bits": ">", "field": "", "value": ">", "meaning": ""}
    fields: dict[str, Any] = {name: value for _, name, value, _ in rows}
    data = {"instruction": title, "fields": fields}
    show(data, as_json, list_table(title, columns, rows))


def layout_table(config: HardwareConfig) -> str:
    """Return the bit layout of every instruction and of the micro-op as Markdown tables."""
    from vtaops.machine.isa import OPCODE_BITS, Encoding, Instruction

    lines: list[str] = []
    for cls, slots in Encoding.of(config).slots.items():
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        lines += [
            f"### {cls.__name__}",
            "",
            summary,
            "",
            "| bits | field | meaning |",
            "|---|---|---|",
        ]
        if issubclass(cls, Instruction):
            lines.append(f"| 0..{OPCODE_BITS - 1} | opcode | {int(cls.opcode)} |")
        for slot in slots:
            lines.append(f"| {slot.span} | {slot.name} | {slot.doc} |")
        lines.append("")
    return "\n".join(lines)


def _slot(slot: Slot) -> dict[str, Any]:
    return {"name": slot.name, "bits": slot.span, "meaning": slot.doc}


def _instruction_word(text: str) -> int:
    try:
        word = int(text, 16)
    except ValueError:
        word = -1
    if not 0 <= word < 1 << 128:
        raise EncodingError(f"{text!r} is not a 128-bit word; write up to 32 hexadecimal digits")
    return word


@hardware_app.command("build")
def build(
    config: options.ConfigName = "pynq",
    *,
    port_bytes: Annotated[
        int, Option(help="Width of the DRAM port in bytes; 0: that of the board.")
    ] = 0,
) -> None:
    """Build the model of the RTL for a configuration, as the first use of tsim does.

    Example: vtaops hardware build tiny --port-bytes 16
    """
    from vtaops.hardware.build import build_model
    from vtaops.hardware.rtl import RtlParameters

    hardware = HardwareConfig.load(config)
    parameters = RtlParameters(port_bytes=port_bytes or hardware.port_width)
    with minutes("build the model of the RTL"):
        model = build_model(hardware, parameters)
    if not model.is_relative_to(cache_directory("tsim")):
        raise DeviceError(f"the model is built, but cannot be kept in {cache_directory('tsim')}")
    say(model)


@hardware_app.command("synth")
def synth(
    config: options.ConfigName = "pynq",
    *,
    dsp_multipliers: Annotated[
        int,
        Option(help="DSP blocks for the multipliers of the GEMM core; -1: as many as it can use."),
    ] = -1,
    packed_multipliers: Annotated[bool, Option(help="Compute two products per DSP block.")] = True,
    yosys: Annotated[str | None, Option(help="A native Yosys, faster than PyPI's.")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the FPGA resources of the RTL with Yosys; takes some minutes.

    Example: vtaops hardware synth pynq --dsp-multipliers 96
    """
    from vtaops.hardware.flows import SYNTHESIS
    from vtaops.hardware.rtl import RtlParameters
    from vtaops.hardware.synthesis import CAPACITY, FpgaResources, part_of, synthesize

    hardware = HardwareConfig.load(config)
    SYNTHESIS.check(hardware)
    parameters = RtlParameters(
        port_bytes=hardware.port_width,
        address_bits=32,
        dsp_multipliers=None if dsp_multipliers < 0 else dsp_multipliers,
        packed_multipliers=packed_multipliers,
    )
    part = part_of(hardware)
    family, capacity = CAPACITY[part]
    with minutes("Yosys maps the RTL; this takes some minutes"):
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


@hardware_app.command("write")
def write(
    config: options.ConfigName = "pynq",
    *,
    output: Annotated[Path, options.to_write("Folder to write.")] = Path("vta"),
    force: options.Force = False,
    port_bytes: Annotated[
        int, Option(help="Width of the DRAM port in bytes; 0: that of the board's bus.")
    ] = 0,
    dsp_multipliers: Annotated[
        int, Option(help="DSP blocks for the GEMM core; -1: as many as fit.")
    ] = -1,
    clock_mhz: Annotated[int, Option(help="Frequency of the logic.")] = 100,
    jobs: Annotated[int, Option(help="Number of parallel Vivado processes.", min=1, max=1024)] = 2,
) -> None:
    """Write the RTL, its generated package and a Vivado script that builds a bitstream.

    The script has not been run yet, for lack of Vivado. See docs/tsim.md.

    Example: vtaops hardware write pynq -o vta && cd vta && vivado -mode batch -source build.tcl
    """
    from vtaops.board import vivado

    hardware = HardwareConfig.load(config)
    usual = vivado.zynq_parameters(hardware)
    parameters = replace(
        usual,
        port_bytes=port_bytes or usual.port_bytes,
        dsp_multipliers=usual.dsp_multipliers if dsp_multipliers < 0 else dsp_multipliers,
    )
    script = vivado.write_design(
        hardware, output, parameters, clock_mhz=clock_mhz, jobs=jobs, force=force
    )
    say(f"{script.parent}: run Vivado there: vivado -mode batch -source {script.name}")
