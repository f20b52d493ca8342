"""The commands for boards: ``vtaops bitstream``, ``vtaops flash``, ``vtaops board``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer import Argument, Option

from vtaops.base.errors import DeviceError
from vtaops.cli import options
from vtaops.cli.options import (
    BOARD_HELP,
    Board,
    Command,
    Commands,
    Timeout,
    facts_table,
    progress_bar,
    say,
    show,
)
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from vtaops.board.selftest import Check, PlannedCheck
    from vtaops.runtime.remote import RemoteDevice
    from vtaops.runtime.ulx3s import Ulx3s

bitstream_app = Commands(name="bitstream", help="Manage known bitstreams.")
board_app = Commands(name="board", help="Inspect, test and measure a board.")

virtual_app = Commands(name="virtual", help="Simulate a board.")
board_app.add_typer(virtual_app)

ULX3S = "ulx3s:"
"""Prefix of the address of a board at a port of this computer, or of a virtual one."""


# --------------------------------------------------------------------------- bitstreams


@bitstream_app.command()
def info(
    file: Annotated[
        Path, Argument(help="A .bit file, or the id of a bitstream in the cache, to check it too.")
    ],
) -> None:
    """Show the header of a bitstream; check the checksum and the part of one in the cache.

    Example: vtaops bitstream info vta.bit

    Example: vtaops bitstream info pynq-hls-1x16
    """
    import hashlib

    from vtaops.board.bitfile import read_bit_file
    from vtaops.board.catalogue import Catalogue

    known = file.suffix != ".bit"
    path = Catalogue().verify(str(file)) if known else file
    bit_file = read_bit_file(path)
    facts: dict[str, Any] = {"intact": str(path)} if known else {}
    facts |= {
        "design": bit_file.design,
        "part": bit_file.part,
        "die": bit_file.die,
        "built": f"{bit_file.date} {bit_file.time}",
        "data bytes": len(bit_file.data),
        "sha256": hashlib.sha256(bit_file.to_bytes()).hexdigest(),
    }
    show(facts, facts_table(f"Bitstream {file.name}", facts))


# ------------------------------------------------------------------------------- boards


def flash(
    board: Board,
    *,
    bitstream: Annotated[
        str, Option(help="Id from the manifest, or a .bit file.")
    ] = "pynq-hls-1x16",
    permanent: Annotated[
        bool, Option("--permanent", help="ULX3S: write the flash memory from which it starts.")
    ] = False,
    timeout: Timeout = 10.0,
) -> None:
    """Program the logic of a board.

    A file is assumed to be for the configuration and design that the server was started for; an id
    is compared with them.

    Example: vtaops flash 192.168.2.99 --bitstream pynq-hls-1x16
    """
    if board.startswith(ULX3S):
        from vtaops.board.virtual_ulx3s import flash as flash_ulx3s

        flash_ulx3s(Path(bitstream), _ulx3s_address(board), permanent=permanent)
        say(f"programmed: {bitstream}")
        return
    from vtaops.board.bitfile import check_part, read_bit_file
    from vtaops.board.catalogue import Catalogue

    path = Path(bitstream)
    with progress_bar():
        if path.suffix == ".bit":
            bit_file, config, design = read_bit_file(path), None, ""
        else:
            catalogue = Catalogue()
            entry = catalogue.entry(bitstream)
            bit_file = read_bit_file(catalogue.verify(bitstream))
            config, design = entry.hardware(), entry.register_map.value
        from vtaops.runtime.remote import RemoteDevice

        with RemoteDevice(board, config, timeout=timeout) as device:
            facts = device.info()
            check_part(bit_file, str(facts["part"]))
            device.program(bit_file.to_bytes(), design or str(facts["register_map"]))
            programmed = device.info()["bitstream"]
    say(f"programmed: part {programmed['part']}, built {programmed['date']}")


_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Settings of a command that passes its arguments to another program."""


@board_app.command("serve", cls=Command, context_settings=_PASSED_ON)
def board_serve(context: typer.Context) -> None:
    """Serve this board (`python -m vtaops.board serve`)."""
    _serve("serve", context)


@virtual_app.command("pynq", cls=Command, context_settings=_PASSED_ON)
def virtual_pynq(context: typer.Context) -> None:
    """Simulate a Pynq behind the board server (`python -m vtaops.board virtual`)."""
    _serve("virtual", context)


def _serve(command: str, context: typer.Context) -> None:
    from vtaops.board.__main__ import main

    raise typer.Exit(main([command, *context.args]))


@board_app.command("info")
def board_info(
    board: Board,
    *,
    timeout: Timeout = 10.0,
) -> None:
    """Show a board's description of itself.

    Example: vtaops board info 192.168.2.99
    """
    with _open(board, timeout) as device:
        facts = device.info()
    show(facts, facts_table(f"Board {device.address}", facts))


@board_app.command("test")
def board_test(
    board: Annotated[str, Argument(help=f"{BOARD_HELP} Or any device (see: vtaops list devices).")],
    *,
    config: options.Config = "pynq",
    operators: Annotated[int, Option(help="Number of operators with random shapes.")] = 20,
    programs: Annotated[int, Option(help="Number of programs with random instructions.")] = 50,
    seed: options.Seed = 0,
    layers: Annotated[
        bool, Option(help="Also run the layers of ResNet-18, and measure them on a board.")
    ] = True,
    timeout: Timeout = 10.0,
) -> None:
    """Check memory, every operation, layers, random operators and random programs.

    All results are compared with NumPy; the exit code is 1 if anything fails. Checks that the
    bitstream does not support are skipped.

    The configuration is that of the board; for another device it is --config.

    Example: vtaops board test 192.168.2.99 --programs 1000 --seed 7

    Example: vtaops board test fsim --config tiny
    """
    from vtaops.board.selftest import planned_checks
    from vtaops.runtime import open_device

    foreign = _is_no_board(board)
    opened: Any = open_device(board, config) if foreign else _open(board, timeout)
    with closing(opened) as device:
        # A board simulated at its pins takes minutes per layer.
        fast = layers and not getattr(device, "simulated", False)
        planned = planned_checks(
            device, operators=operators, programs=programs, seed=seed, layers=fast
        )
        checks = _made(device, planned, f"checks, seed {seed}")
        outcomes = [check.passed for check in checks]
        timed = fast and not foreign and False not in outcomes
        figures, *tables = _measure(device, board) if timed else ({},)
    counts = (
        f"{outcomes.count(True)} passed, {outcomes.count(False)} failed, "
        f"{outcomes.count(None)} skipped; seed {seed}"
    )
    report = {"seed": seed, "checks": [asdict(check) for check in checks]}
    show(report | figures, counts, *tables)
    raise typer.Exit(False in outcomes)


def _is_no_board(name: str) -> bool:
    """Return whether a name is that of a device without a server."""
    from vtaops.runtime import device_names

    kinds = {each.partition("://")[0] for each in device_names()} - {"pynq", "ulx3s"}
    return name.partition("://")[0] in kinds


def _made(device: Any, planned: list[PlannedCheck], title: str) -> list[Check]:
    """Run checks and report each, until the board no longer answers."""
    from vtaops.board.selftest import Check, make

    words = {True: "ok", False: "FAILED", None: "skipped"}
    checks = []
    with progress_bar() as progress:
        for each in progress.track(planned, description=title):
            check = make(each)
            checks.append(check)
            if not options.as_json():
                detail = f": {check.detail}" if check.detail else ""
                say(f"{words[check.passed]:8}{check.name}{detail}")
            if check.passed is False and not _answers(device):
                detail = f"{len(planned) - len(checks)} checks were not run"
                checks.append(Check("the board still answers", False, detail))
                say(f"the board no longer answers; {detail}", err=True)
                break
    return checks


@board_app.command("bench")
def board_bench(
    board: Board,
    *,
    timeout: Timeout = 10.0,
) -> None:
    """Measure the layers of ResNet-18 and compare them with the figures published for a Pynq-Z1.

    Example: vtaops board bench 192.168.2.99
    """
    with _open(board, timeout) as device:
        figures, table = _measure(device, board)
    show(figures, table)


def _measure(device: RemoteDevice | Ulx3s, board: str) -> tuple[dict[str, Any], Table]:
    """Return the speed of the layers on a board, or on a virtual one, as data and as a table."""
    from vtaops.board.selftest import PUBLISHED_MS, measure_layers

    virtual = "Virtual" in str(device.info()["interface"])
    with progress_bar() as progress:
        tracked = progress.track(
            measure_layers(device), total=len(PUBLISHED_MS), description="layers"
        )
        layers = list(tracked)
    columns = {
        "layer": "",
        "ms": ".3f",
        "GOPS": ".1f",
        "published ms": ".3f",
        "published GOPS": ".1f",
        "cycles": ",",
        "busy": ".1%",
    }
    if not all(layer.cycles for layer in layers):
        del columns["cycles"], columns["busy"]
    rows = [astuple(layer)[: len(columns)] for layer in layers]
    simulated = "Virtual board: ms and GOPS are those of this host, not of hardware"
    table = list_table(simulated if virtual else f"Board {board}", columns, rows)
    return {"virtual": virtual, "layers": [asdict(layer) for layer in layers]}, table


def _open(board: str, timeout: float) -> RemoteDevice | Ulx3s:
    if board.startswith(ULX3S):
        from vtaops.runtime.ulx3s import Ulx3s

        return Ulx3s(None, _ulx3s_address(board), timeout=max(timeout, 10.0))
    from vtaops.runtime.remote import RemoteDevice

    return RemoteDevice(board, timeout=timeout)


def _ulx3s_address(board: str) -> str:
    return board.removeprefix(ULX3S).removeprefix("//")


def _answers(device: Any) -> bool:
    """Whether a board answers; other devices do."""
    try:
        getattr(device, "info", lambda: None)()
    except DeviceError:
        return False
    return True
