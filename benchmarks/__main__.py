"""Run a benchmark: ``python -m benchmarks NAME [options]``, or list all: ``--list``."""

from __future__ import annotations

import importlib
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType

import typer

from trials.commands import command_line, run_named

NOT_RUN = {"__init__", "__main__", "options"}
"""Files beside the benchmarks."""


def files() -> dict[str, Path]:
    """Return the file of each benchmark, here or in a folder, by the benchmark's name."""
    paths = sorted(Path(__file__).parent.rglob("*.py"))
    return {path.stem: path for path in paths if path.stem not in NOT_RUN}


def titles() -> dict[str, str]:
    """Return the first line of each benchmark's docstring, by the benchmark's name."""
    found = {}
    for name, path in files().items():
        with path.open() as file:
            found[name] = file.readline().partition('"""')[2].removesuffix('"""\n').strip()
    return found


def find(name: str) -> ModuleType:
    """Return the module of a benchmark."""
    path = files()[name].relative_to(Path(__file__).parents[1])
    return importlib.import_module(".".join(path.with_suffix("").parts))


def application(name: str) -> typer.Typer:
    """Return the command line of a benchmark."""
    return of_main(find(name))


def of_main(module: ModuleType) -> typer.Typer:
    """Return the command line of a module: its `main`, explained by the module's docstring."""

    @wraps(module.main)
    def command(*args: object, **options: object) -> None:
        raise typer.Exit(module.main(*args, **options) or 0)

    return command_line(command, module.__doc__ or "")


def main(arguments: list[str]) -> None:
    """Run the benchmark that the first argument names, with the other arguments."""
    run_named("benchmarks", "benchmark", __doc__, titles(), application, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
