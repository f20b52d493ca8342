"""The commands for boards: ``vtaops flash``, ``vtaops board``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from vtaops.base.errors import DeviceError
from vtaops.base.progress import tracked
from vtaops.cli.options import (
    BOARD_HELP,
    Board,
    Command,
    Commands,
    Config,
    Force,
    Seed,
    as_json,
    claim,
    progress_bar,
    say,
    show,
    to_write,
)
from vtaops.hardware.ulx3s import DEFAULT_CLOCK_MHZ
from vtaops.machine.config import HardwareConfig
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vtaops.board.selftest import Check, PlannedCheck
    from vtaops.runtime.remote import RemoteDevice
    from vtaops.runtime.ulx3s import Ulx3s

board_app = Commands(name="board", help="Inspect, test and measure a board.")

ULX3S = "ulx3s:"
"""Prefix of the address of a board at a port of this computer, or of a virtual one."""


def flash(
    board: Board,
    *,
    bitstream: Annotated[
        str, Option(help="Id from the manifest, or a .bit file.")
    ] = "pynq-hls-1x16",
    permanent: Annotated[
        bool, Option("--permanent", help="ULX3S: write the flash memory from which it starts.")
    ] = False,
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

        with RemoteDevice(board, config) as device:
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


@board_app.command("virtual", cls=Command, context_settings=_PASSED_ON)
def board_virtual(context: typer.Context) -> None:
    """Simulate a Pynq behind the board server, or a ULX3S (`python -m vtaops.board virtual`)."""
    _serve("virtual", context)


def _serve(command: str, context: typer.Context) -> None:
    from vtaops.board.__main__ import main

    raise typer.Exit(main([command, *context.args]))


@board_app.command("build")
def board_build(
    board: Annotated[Literal["ulx3s", "pynq"], Argument(help="The board.")],
    *,
    config: Annotated[
        str, Option(help="Configuration: a name or a JSON file. Default: that of the board's name.")
    ] = "",
    output: Annotated[
        Path | None, to_write("Folder to write. Default: that of the board's name.")
    ] = None,
    clock_mhz: Annotated[
        float,
        Option(
            help="Clock of VTA, and of the SDRAM of a ULX3S. Default: 65 for a ULX3S, 100 for a "
            "Pynq."
        ),
    ] = 0,
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

    hardware, folder = HardwareConfig.load(config or board), output or Path(board)
    claim(folder, ("vta.bit", "manifest.json", "build"), force)
    tell = partial(say, err=True)
    if board == "pynq":
        clock = clock_mhz or vivado.CLOCK_MHZ
        made = zynq.build_bitstream(
            hardware, folder, clock_mhz=clock, seed=max(seed, 1), progress=tell
        )
    else:
        design = ulx3s.Ulx3sDesign(hardware, clock_mhz or DEFAULT_CLOCK_MHZ)
        made = builds.build_bitstream(design, folder, seed=seed, progress=tell)
    cells = list_table(
        f"{hardware.bitstream_id} on {hardware.board.device}",
        {"cells": "", "used": ",", "of": ","},
        [(name, used, made.available[name]) for name, used in made.used.items()],
    )
    reached = [f"{name}: {mhz} MHz reached" for name, mhz in made.clocks.items()]
    show(asdict(made) | {"path": str(made.path)}, cells, *reached, f"{made.path}")


@board_app.command("test")
def board_test(
    board: Annotated[str, Argument(help=f"{BOARD_HELP} Or any device (see: vtaops list devices).")],
    *,
    config: Config = "pynq",
    operators: Annotated[int, Option(help="Number of operators with random shapes.")] = 20,
    programs: Annotated[int, Option(help="Number of programs with random instructions.")] = 50,
    seed: Seed = 0,
) -> None:
    """Check memory, every operation, layers, random operators and random programs.

    All results are compared with NumPy; the exit code is 1 if anything fails. Checks that the
    bitstream does not support are skipped. Layers of ResNet-18 run on boards alone.

    The configuration is that of the board; for another device it is --config.

    Example: vtaops board test 192.168.2.99 --programs 1000 --seed 7

    Example: vtaops board test fsim --config tiny
    """
    from vtaops.board.selftest import planned_checks
    from vtaops.runtime import device_names, open_device

    kinds = {each.partition("://")[0] for each in device_names()} - {"pynq", "ulx3s"}
    foreign = board.partition("://")[0] in kinds  # a device without a server
    opened: Any = open_device(board, config) if foreign else _open(board)
    with closing(opened) as device:
        # A simulator takes minutes per layer.
        fast = not (foreign or getattr(device, "simulated", False))
        planned = planned_checks(
            device, operators=operators, programs=programs, seed=seed, layers=fast
        )
        with progress_bar():
            checks = [*_made(device, planned, f"checks, seed {seed}")]
            outcomes = [check.passed for check in checks]
            works = False not in outcomes
            described = _described(device, fast) if works and not foreign else ({},)
    counts = (
        f"{outcomes.count(True)} passed, {outcomes.count(False)} failed, "
        f"{outcomes.count(None)} skipped; seed {seed}"
    )
    figures, *tables = described
    report = {"seed": seed, "checks": [asdict(check) for check in checks]}
    show(report | figures, counts, *tables, good=works)


def _made(device: Any, planned: list[PlannedCheck], title: str) -> Iterator[Check]:
    """Run checks, report and yield each, until the board no longer answers."""
    from vtaops.board.selftest import Check, make

    words = {True: "ok", False: "FAILED", None: "skipped"}
    for number, each in enumerate(tracked(title, planned), 1):
        check = make(each)
        yield check
        if not as_json():
            detail = f": {check.detail}" if check.detail else ""
            say(f"{words[check.passed]:8}{check.name}{detail}")
        if check.passed is False and not _answers(device):
            detail = f"{len(planned) - number} checks were not run"
            say(f"the board no longer answers; {detail}", err=True)
            yield Check("the board still answers", False, detail)
            return


def _described(device: RemoteDevice | Ulx3s, timed: bool) -> tuple[Any, ...]:
    """Return what a board says of itself and the speed of layers: as data, then as tables."""
    from vtaops.board.selftest import measure_layers

    facts, name = device.info(), f"Board {device.address}"
    described = list_table(name, {"property": "", "value": ""}, facts.items())
    if not timed:
        return {"board": facts}, described
    layers = [*measure_layers(device)]
    columns = {
        "layer": "",
        "ms": ".3f",
        "GOPS": ".1f",
        "published ms": ".3f",
        "published GOPS": ".1f",
        "cycles": ",",
        "busy": ".1%",
    }
    virtual = "Virtual" in str(facts["interface"])
    simulated = "Virtual board: ms and GOPS are those of this host, not of hardware"
    table = list_table(simulated if virtual else name, columns, map(astuple, layers))
    speed = {"virtual": virtual, "layers": [asdict(layer) for layer in layers]}
    return {"board": facts, **speed}, described, table


@board_app.command("calibrate")
def board_calibrate(
    board: Board,
    *,
    clock_mhz: Annotated[
        float, Option(help="Clock of logic that counts no cycles: there the host measures times.")
    ] = 100.0,
) -> None:
    """Fit the timing model's DRAM to a board with a dozen launches; print the errors.

    Example: vtaops board calibrate 192.168.2.99
    """
    from vtaops.board.calibration import calibrate

    with _open(board) as device, progress_bar("calibrate"):
        start = getattr(getattr(device, "design", None), "timing", None)
        calibration = calibrate(device, clock_mhz=clock_mhz, start=start)
    errors = {name: calibration.error(name) for name in ("before", "after")}
    parameters = calibration.parameters
    fitted = {"dram_latency": parameters.dram_latency, "bandwidth": parameters.bandwidth}
    data = {
        "parameters": fitted,
        "overhead_cycles": calibration.overhead,
        "error": errors,
        "probes": [asdict(probe) for probe in calibration.probes],
    }
    told = "{}: {:.2%} on average, {:.2%} at most".format
    show(
        data,
        *(told(name, *error) for name, error in errors.items()),
        f"a launch takes another {calibration.overhead:,.0f} cycles",
        f"TimingParameters({', '.join(f'{name}={value}' for name, value in fitted.items())})",
    )


def _open(board: str) -> RemoteDevice | Ulx3s:
    if board.startswith(ULX3S):
        from vtaops.runtime.ulx3s import Ulx3s

        return Ulx3s(None, _ulx3s_address(board))
    from vtaops.runtime.remote import RemoteDevice

    return RemoteDevice(board)


def _ulx3s_address(board: str) -> str:
    return board.removeprefix(ULX3S).removeprefix("//")


def _answers(device: Any) -> bool:
    """Whether a board answers; other devices do."""
    try:
        getattr(device, "info", lambda: None)()
    except DeviceError:
        return False
    return True
