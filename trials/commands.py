"""Commands by name: ``python -m PACKAGE NAME [options]``, or list all: ``--list``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import typer


def command_line(function: Callable[..., None], text: str) -> typer.Typer:
    """Return the command line of a function, explained by a module's docstring."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    paragraphs = text.split("\n\n")
    app.command(help="\n\n".join(f"\b\n{paragraph}" for paragraph in paragraphs))(function)
    return app


def run_named(
    package: str,
    kind: str,
    text: str | None,
    titles: Mapping[str, str],
    application: Callable[[str], typer.Typer],
    arguments: list[str],
) -> None:
    """Run what the first argument names, with the other arguments; without one, list all.

    Parameters
    ----------
    package, kind : str
        Of the commands: ``"trials"`` and ``"campaign"``, for example.
    text : str or None
        What stands above the list.
    titles : dict of str to str
        A line for each command, by its name.
    application : callable
        The command line of a name.
    """
    name = arguments[0] if arguments else "--list"
    if name in ("--list", "--help"):
        width = max(map(len, titles)) + 2
        print(text, *(f"{n:{width}}{title}" for n, title in titles.items()), sep="\n")
    elif name not in titles:
        sys.exit(f"there is no {kind} {name!r}; those there are: {', '.join(titles)}")
    else:
        application(name)(arguments[1:], prog_name=f"python -m {package} {name}")
