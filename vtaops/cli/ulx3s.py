"""The commands ``vtaops board build`` and ``vtaops board virtual``, for boards with open tools.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from vtaops.cli.board import virtual_app
from vtaops.cli.options import (
    Command,
    Config,
    Force,
    claim,
    progress_bar,
    say,
    show,
    to_write,
)
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ
from vtaops.report.style import list_table

Board = Annotated[Literal["ulx3s", "pynq"], Argument(help="The board.")]


def build_board(
    board: Board,
    *,
    config: Annotated[
        str, Option(help="Configuration: a name or a JSON file. Default: that of the board's name.")
    ] = "",
    output: Annotated[
        Path | None,
        to_write("Folder to write. Default: that of the board's name."),
    ] = None,
    clock_mhz: Annotated[
        float,
        Option(
            help="Clock of VTA, and of the SDRAM of a ULX3S. Default: 65 for a ULX3S, 100 for a "
            "Pynq."
        ),
    ] = 0,
    fpga: Annotated[
        str, Option("--device", help="FPGA of a ULX3S: LFE5U-85F or LFE5U-45F.")
    ] = "LFE5U-85F",
    seed: Annotated[
        int,
        Option(
            help="Seed of the placement; 0: 1 for a Pynq; for a ULX3S some in turn, until one "
            "suffices."
        ),
    ] = 0,
    force: Force = False,
) -> None:
    """Make a bitstream with open tools: vta.bit and manifest.json; takes ten minutes or more.

    Fails without a bitstream if any path is slower than its clock. The tools for a ULX3S are
    packages of PyPI; those for a Pynq, Yosys, nextpnr-xilinx and Project X-Ray, must be installed,
    and are named if they are not. Vivado builds for a Pynq as well (vtaops hardware write).

    Example: vtaops board build ulx3s --config ulx3s -o board
    """
    from vtaops.board import ulx3s as builds
    from vtaops.board import vivado, zynq
    from vtaops.hardware import ulx3s
    from vtaops.machine.config import HardwareConfig

    hardware, folder = HardwareConfig.load(config or board), output or Path(board)
    claim(folder, ("vta.bit", "manifest.json", "build"), force)
    tell = partial(say, err=True)
    if board == "pynq":
        clock = clock_mhz or vivado.CLOCK_MHZ
        made = zynq.build_bitstream(
            hardware, folder, clock_mhz=clock, seed=max(seed, 1), progress=tell
        )
    else:
        design = ulx3s.Ulx3sDesign(hardware, clock_mhz or DEFAULT_CLOCK_MHZ, fpga)
        made = builds.build_bitstream(design, folder, seed=seed, progress=tell)
    cells = list_table(
        f"{hardware.bitstream_id} on {fpga if board == 'ulx3s' else hardware.board.device}",
        {"cells": "", "used": ",", "of": ","},
        [(name, used, made.available[name]) for name, used in made.used.items()],
    )
    reached = [f"{name}: {mhz} MHz reached" for name, mhz in made.clocks.items()]
    show(asdict(made) | {"path": str(made.path)}, cells, *reached, f"{made.path}")


@virtual_app.command("ulx3s", cls=Command)
def virtual_ulx3s(
    *,
    config: Config = "ulx3s",
    clock_mhz: Annotated[
        float,
        Option(
            help="Clock for which the system is built; the SDRAM's latency in cycles depends on it."
        ),
    ] = DEFAULT_CLOCK_MHZ,
    port: Annotated[int, Option(help="TCP port; 0 picks a free port.")] = 3101,
    terminal: Annotated[
        bool, Option("--terminal", help="Serve on a pseudo-terminal instead.")
    ] = False,
) -> None:
    """Simulate a board at its pins, for hosts on a TCP port of this computer.

    Example: vtaops board virtual ulx3s --config ulx3s
    """
    from vtaops.board.virtual_ulx3s import VirtualUlx3s, listen, open_terminal
    from vtaops.machine.config import HardwareConfig

    hardware = HardwareConfig.load(config)
    with progress_bar("build the simulator of the board"):
        made = VirtualUlx3s(hardware, clock_mhz)
    with made, suppress(KeyboardInterrupt):
        if terminal:
            master, address = open_terminal()
            say(f"ulx3s://{address}")
            made.serve(master)
        else:
            with listen(port) as server:
                say(f"ulx3s://127.0.0.1:{server.getsockname()[1]}")
                made.serve(server)
