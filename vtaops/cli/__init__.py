"""The `vtaops` command.

Contains only argument parsing and printing; every command is a few calls into other rooms.
Exit codes: 0 success, 1 a VTAError or a wrong result, 2 wrong usage, 130 interrupted, 141 nobody
reads the output.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

try:
    import typer
except ModuleNotFoundError as error:  # on a board, which only has NumPy
    raise SystemExit(
        f"the command vtaops needs {error.name}: pip install typer rich. "
        "On a board, run python3 -m vtaops.board"
    ) from error

from vtaops import __version__
from vtaops.base.errors import AccuracyWarning, PlacementWarning, VTAError, shortened
from vtaops.base.files import reason_of
from vtaops.base.quoting import terminal_text
from vtaops.cli.board import board_app, flash
from vtaops.cli.chat import chat
from vtaops.cli.course import course_app
from vtaops.cli.demo import demo
from vtaops.cli.evaluate import evaluate
from vtaops.cli.exploration import sweep
from vtaops.cli.hardware import hardware_app
from vtaops.cli.judge import judge
from vtaops.cli.lists import fetch, list_
from vtaops.cli.networks import compile, export, plan, prove, quantize
from vtaops.cli.options import Command, Commands, Report
from vtaops.cli.reports import report_app
from vtaops.cli.run import disasm, run_app, tune, verify
from vtaops.cli.start import start

app = Commands(
    name="vtaops",
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
        bool, typer.Option("--verbose", "-v", help="Log what is compiled, searched and built.")
    ] = False,
) -> None:
    """Program the VTA tensor accelerator with today's Apache TVM."""
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("vtaops").setLevel(logging.INFO)


COMMANDS: dict[str, tuple[Any, ...]] = {
    "Operators and programs": (run_app, disasm, verify, prove, tune),
    "Networks": (demo, start, quantize, evaluate, plan, compile, export, chat),
    "Reports and lessons": (report_app, sweep, judge, course_app),
    "Hardware": (hardware_app, flash, board_app),
    "What there is": (list_, fetch),
}
"""Commands and groups of commands, by heading."""

MAKING = demo, chat, flash, fetch, disasm
"""Commands that report nothing."""

for heading, commands in COMMANDS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, rich_help_panel=heading)
        else:
            name = command.__name__.rstrip("_")
            kind = Command if command in MAKING else Report
            app.command(name, cls=kind, rich_help_panel=heading)(command)


def main() -> None:
    """Run the command line; a VTAError becomes a message and exit code 1.

    So does a refusal by the operating system: a full disk behind standard output, a deleted folder.
    """
    gc.set_threshold(50_000, 20, 20)  # compilers keep what they make: a twentieth of their time
    others = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, AccuracyWarning | PlacementWarning):
            typer.secho(terminal_text(f"warning: {message}"), err=True, fg="yellow")
        else:
            others(message, category, *place, **more)

    warnings.showwarning = tell
    if sys.stdout is None:  # closed by the shell
        _fail("cannot write the output: standard output is closed")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):  # Typer's and rich's way to tell it
            sys.exit(SIGPIPE_CODE)
        raise
    except BrokenPipeError:
        _discard_output()
        sys.exit(SIGPIPE_CODE)
    except VTAError as error:
        _fail(str(error))
    except OSError as error:
        if error.filename is not None:
            _fail(f"{error.filename}: {reason_of(error)}")
        _discard_output()
        _fail(f"cannot write the output: {reason_of(error)}")


SIGPIPE_CODE = 141
"""Exit code of a program whose reader is gone, such as `head`."""


def _fail(message: str) -> NoReturn:
    typer.secho(terminal_text(f"error: {shortened(message)}"), err=True, fg="red")
    sys.exit(1)


def _discard_output() -> None:
    """Send what is buffered nowhere, since writing it would fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
