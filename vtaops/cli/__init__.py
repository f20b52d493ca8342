"""The `vtaops` command.

Owns argument parsing and printing only; every command is a few calls into the rooms of the package.
Exit codes: 0 success, 1 a VTAError or a wrong result, 2 wrong usage.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

from vtaops.cli import (
    board,
    devices,
    exploration,
    hardware,
    lessons,
    networks,
    quantize,
    reports,
    rtl,
    run,
)
from vtaops.errors import VTAError


class RunFirst(TyperGroup):
    """The commands in the order of their registration, `run` before all others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: name != "run")


app = typer.Typer(
    name="vtaops",
    cls=RunFirst,
    help="The VTA tensor accelerator on today's Apache TVM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (run, networks, quantize, reports, exploration, lessons, hardware, rtl, devices, board):
    part.register(app)


def main() -> None:
    """Run the command line; a VTAError becomes a message and exit code 1."""
    try:
        app()
    except VTAError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)
