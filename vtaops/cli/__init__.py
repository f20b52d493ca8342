"""The `vtaops` command.

Owns argument parsing and printing only; every command is a few calls into the rooms of the package.
Exit codes: 0 success, 1 a VTAError or a wrong result, 2 wrong usage.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError as error:  # on a board, which has NumPy alone
    raise SystemExit(
        f"the command vtaops needs {error.name}: pip install typer rich. "
        "What a board runs is python3 -m vtaops.board"
    ) from error

from vtaops import __version__
from vtaops.base.errors import VTAError
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


class RunFirst(TyperGroup):
    """The commands in the order of their registration, `run` before all others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: name != "run")


app = typer.Typer(
    name="vtaops",
    cls=RunFirst,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vtaops {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_tell_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell what is compiled, searched and built.")
    ] = False,
) -> None:
    """Program the VTA tensor accelerator with today's Apache TVM."""
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("vtaops").setLevel(logging.INFO)


for part in (run, networks, quantize, reports, exploration, lessons, hardware, rtl, devices, board):
    part.register(app)


def main() -> None:
    """Run the command line; a VTAError becomes a message and exit code 1."""
    try:
        app()
    except VTAError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)
