"""The command ``vtaops rtl``: the files of our hardware for one configuration.

Owns argument parsing and printing only; see `vtaops.cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtaops.cli.hardware import PANEL
from vtaops.machine.config import HardwareConfig


def register(app: typer.Typer) -> None:
    """Add this command to an application."""
    app.command(rich_help_panel=PANEL)(rtl)


def rtl(
    config: Annotated[str, typer.Argument(help="Configuration: a name or a JSON file.")] = "pynq",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")] = Path("vta"),
    port_bytes: Annotated[
        int, typer.Option(help="Width of the DRAM port in bytes; 0: that of the board's bus.")
    ] = 0,
    dsp_multipliers: Annotated[
        int, typer.Option(help="DSP blocks for the GEMM core; -1: what fits.")
    ] = -1,
    performance_counters: Annotated[bool, typer.Option(help="With performance counters.")] = True,
    clock_mhz: Annotated[int, typer.Option(help="Frequency of the logic.")] = 100,
    jobs: Annotated[int, typer.Option(help="Processes of Vivado at a time.")] = 2,
) -> None:
    """Write RTL, generated package and Vivado script, from which a bitstream is built.

    The script has not been run yet: there was no Vivado. See docs/tsim.md.

    Example: vtaops rtl pynq --output vta && cd vta && vivado -mode batch -source build.tcl
    """
    from vtaops.hardware import vivado
    from vtaops.runtime.tsim import RtlParameters

    hardware = HardwareConfig.load(config)
    multipliers = vivado.dsp_multipliers(hardware) if dsp_multipliers < 0 else dsp_multipliers
    parameters = RtlParameters(
        port_bytes=port_bytes or hardware.board.bus_bits // 8,
        dsp_multipliers=multipliers,
        performance_counters=performance_counters,
    )
    script = vivado.write_design(hardware, output, parameters, clock_mhz=clock_mhz, jobs=jobs)
    typer.echo(f"{script.parent}: run Vivado there: vivado -mode batch -source {script.name}")
