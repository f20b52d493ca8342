"""The commands for any device: ``vtaops device list`` and ``vtaops device test``.

Owns argument parsing and printing only; see `vtaops.cli`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from vtaops.cli.options import ConfigOption, JsonOption, list_table

PANEL = "Hardware"

device_app = typer.Typer(help="The devices that programs run on.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add these commands to the `vtaops` command."""
    app.add_typer(device_app, name="device", rich_help_panel=PANEL)


@device_app.command("list")
def list_devices(as_json: JsonOption = False) -> None:
    """List the devices by name: those of vtaops, and those of other packages.

    Example: vtaops device list
    """
    from vtaops.runtime import DEVICES, ENTRY_POINTS

    found = dict.fromkeys(DEVICES, "vtaops")
    found |= {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    table = list_table("Devices")
    table.add_column("name")
    table.add_column("from", overflow="fold")
    for row in found.items():
        table.add_row(*row)
    Console().print(table)


@device_app.command("test")
def check_device(
    name: Annotated[str, typer.Argument(help="A device (see: vtaops device list).")],
    config: ConfigOption = "pynq",
    operators: Annotated[int, typer.Option(help="Operators of random shape.")] = 20,
    programs: Annotated[int, typer.Option(help="Random programs.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    layers: Annotated[bool, typer.Option(help="Run the layers of ResNet-18 too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Compare memory, every instruction, operators and random programs with NumPy.

    Example: vtaops device test fsim --config tiny
    """
    from vtaops.runtime import open_device
    from vtaops.session.selftest import make, planned_checks

    device = open_device(name, config)
    try:
        planned = planned_checks(
            device, operators=operators, programs=programs, seed=seed, layers=layers
        )
        with Progress(console=Console(stderr=True), transient=True) as progress:
            checks = [make(check) for check in progress.track(planned, description=name)]
    finally:
        device.close()
    failed = [check for check in checks if check.passed is False]
    skipped = [check for check in checks if check.passed is None]
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in failed:
            typer.echo(f"FAILED {check.name}: {check.detail}")
        passed = len(checks) - len(failed) - len(skipped)
        typer.echo(f"{name}: {passed} passed, {len(failed)} failed, {len(skipped)} not supported")
    if failed:
        raise typer.Exit(1)
