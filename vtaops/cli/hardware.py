"""The commands of `vtaops` that concern the hardware: isa, build-tsim, synth-report.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from vtaops.base.errors import EncodingError
from vtaops.cli.options import ConfigArgument, JsonOption
from vtaops.machine.config import HardwareConfig

PANEL = "Hardware"


def register(app: typer.Typer) -> None:
    """Add the commands of this file to an application."""
    for command in (isa, build_tsim, synth_report):
        name = command.__name__.replace("_", "-")
        app.command(name, rich_help_panel=PANEL)(command)


def isa(
    config: ConfigArgument = "pynq",
    decode: Annotated[
        str, typer.Option(help="An instruction in hexadecimal, to be decoded instead.")
    ] = "",
) -> None:
    """Print the bits of every instruction as Markdown, or the fields of one instruction.

    Example: vtaops isa pynq --decode 0x0000900200000862001c00400820022a
    """
    from vtaops.machine.isa import Encoding, disassemble, layout_table, tokens_text

    hardware = HardwareConfig.load(config)
    if not decode:
        typer.echo(layout_table(hardware).rstrip())
        return
    encoding = Encoding.of(hardware)
    instruction = encoding.decode(_instruction_word(decode))
    table = Table(
        title=" ".join((disassemble(instruction), tokens_text(instruction))).rstrip(),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("bits", "field", "value", "meaning"):
        table.add_column(column, justify="right" if column in ("bits", "value") else "left")
    for slot in encoding.slots[type(instruction)]:
        table.add_row(slot.span, slot.name, str(getattr(instruction, slot.name)), slot.doc)
    Console().print(table)


def _instruction_word(text: str) -> int:
    try:
        word = int(text, 16)
    except ValueError:
        word = -1
    if not 0 <= word < 1 << 128:
        raise EncodingError(f"{text!r} is no 128-bit word; write up to 32 hexadecimal digits")
    return word


def build_tsim(
    config: ConfigArgument = "pynq",
    port_bytes: Annotated[
        int, typer.Option(help="Width of the DRAM port in bytes; 0: that of the board.")
    ] = 0,
    axi: Annotated[bool, typer.Option("--axi", help="With its AXI shell.")] = False,
) -> None:
    """Build the model of the RTL for a configuration, as the first use of tsim would.

    Example: vtaops build-tsim tiny --port-bytes 16
    """
    from vtaops.hardware.build import build_model
    from vtaops.runtime.tsim import RtlParameters

    hardware = HardwareConfig.load(config)
    parameters = RtlParameters(port_bytes=port_bytes or hardware.board.bus_bits // 8)
    with Console(stderr=True).status("building"):
        typer.echo(build_model(hardware, parameters, axi=axi))


def synth_report(
    config: ConfigArgument = "pynq",
    dsp_multipliers: Annotated[
        int,
        typer.Option(help="DSP blocks for the multipliers of the GEMM core; -1: all it can use."),
    ] = -1,
    packed_multipliers: Annotated[
        bool, typer.Option(help="Form two products in a DSP block.")
    ] = True,
    performance_counters: Annotated[bool, typer.Option(help="With performance counters.")] = True,
    yosys: Annotated[
        str | None, typer.Option(help="A native Yosys, faster than the one of PyPI.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate with Yosys what the RTL takes of the board's FPGA; takes some minutes.

    Example: vtaops synth-report pynq --dsp-multipliers 96
    """
    from vtaops.hardware.synthesis import CAPACITY, FpgaResources, part_of, synthesize
    from vtaops.runtime.tsim import RtlParameters

    hardware = HardwareConfig.load(config)
    parameters = RtlParameters(
        port_bytes=hardware.board.bus_bits // 8,
        address_bits=32,
        dsp_multipliers=None if dsp_multipliers < 0 else dsp_multipliers,
        packed_multipliers=packed_multipliers,
        performance_counters=performance_counters,
    )
    part = part_of(hardware)
    family, capacity = CAPACITY[part]
    with Console(stderr=True).status("Yosys is at work; this takes some minutes"):
        blocks = synthesize(hardware, parameters, family, yosys=yosys)
    rows = {**blocks, "all": sum(blocks.values(), FpgaResources()), "capacity": capacity}
    if as_json:
        data = {name: asdict(row) for name, row in rows.items()}
        typer.echo(json.dumps({"part": part, "resources": data}, indent=2))
    else:
        Console().print(_resources_table(f"{hardware.bitstream_id} on {part}", rows))


def _resources_table(title: str, rows: dict[str, Any]) -> Table:
    table = Table(title=f"{title} (Yosys, estimates)", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("block", "LUT", "FF", "BRAM36", "DSP"):
        table.add_column(column, justify="left" if column == "block" else "right")
    for name, row in rows.items():
        if name == "all":
            table.add_section()
        table.add_row(name, f"{row.lut:,}", f"{row.ff:,}", f"{row.bram:g}", f"{row.dsp:,}")
    return table
