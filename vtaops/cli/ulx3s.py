"""The commands ``vtaops board build`` and ``vtaops board virtual``, for boards with open tools.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vtaops.cli.board import virtual_app
from vtaops.cli.options import list_table, show
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ

Board = Annotated[str, typer.Argument(help="The board: ulx3s.", metavar="ulx3s")]


def build_board(
    board: Board,
    *,
    config: str = "ulx3s",
    output: Path = Path("ulx3s"),
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
    fpga: str = "LFE5U-85F",
    seed: int = 1,
    multipliers: int = -1,
    as_json: bool = False,
) -> None:
    """Make a bitstream with open tools: vta.bit and manifest.json; takes ten minutes or more.

    Fails without a bitstream if any path is slower than its clock.

    Example: vtaops board build ulx3s --config ulx3s -o board

    Parameters
    ----------
    config
        Configuration: a name or a JSON file.
    output : --output, -o
        Folder to write.
    clock_mhz
        Clock of VTA and of the SDRAM.
    fpga : --device
        FPGA of the board: LFE5U-85F or LFE5U-45F.
    seed
        Seed of the placement.
    multipliers
        DSP blocks for the GEMM core; -1: as many as it can use.
    """
    from vtaops.hardware.ulx3s import Ulx3sDesign, build_bitstream
    from vtaops.machine.config import HardwareConfig

    _check_board(board)
    design = Ulx3sDesign(
        HardwareConfig.load(config),
        clock_mhz=clock_mhz,
        device=fpga,
        multipliers=None if multipliers < 0 else multipliers,
    )
    console = Console(stderr=True)
    with console.status("building") as status:

        def tell(step: str) -> None:
            status.update(step)
            console.print(step)

        made = build_bitstream(design, output, seed=seed, progress=tell)
    cells = list_table(
        f"{design.config.bitstream_id} on {fpga}",
        {"cells": "", "used": ",", "of": ","},
        [(name, used, made.available[name]) for name, used in made.used.items()],
    )
    reached = [f"{name}: {mhz} MHz reached" for name, mhz in made.clocks.items()]
    show(asdict(made) | {"path": str(made.path)}, as_json, cells, *reached, f"{made.path}")


@virtual_app.command("ulx3s")
def virtual_ulx3s(
    *,
    config: str = "ulx3s",
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
    port: int = 3101,
    terminal: bool = False,
) -> None:
    """Simulate a board at its pins, for hosts on a TCP port of this computer.

    Example: vtaops board virtual ulx3s --config ulx3s

    Parameters
    ----------
    config
        Configuration: a name or a JSON file.
    clock_mhz
        Clock for which the system is built; the SDRAM's latency in cycles depends on it.
    port
        TCP port; 0 picks a free port.
    terminal
        Serve on a pseudo-terminal instead.
    """
    from vtaops.board.virtual_ulx3s import VirtualUlx3s, listen, open_terminal
    from vtaops.machine.config import HardwareConfig

    hardware = HardwareConfig.load(config)
    with Console(stderr=True).status("building the simulator"):
        made = VirtualUlx3s(hardware, clock_mhz)
    with made, suppress(KeyboardInterrupt):
        if terminal:
            master, address = open_terminal()
            typer.echo(f"ulx3s://{address}")
            made.serve(master)
        else:
            with listen(port) as server:
                typer.echo(f"ulx3s://127.0.0.1:{server.getsockname()[1]}")
                made.serve(server)


def _check_board(board: str) -> None:
    if board != "ulx3s":
        raise typer.BadParameter(f"unknown board {board!r}; it must be ulx3s")
