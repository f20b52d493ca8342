"""Run a benchmark: ``python -m benchmarks NAME [options]``, or list all: ``--list``."""

from __future__ import annotations

import importlib
import sys
from functools import wraps
from pathlib import Path
from types import ModuleType

import typer

NOT_RUN = {"__init__", "__main__", "options", "cuda_run"}
"""Files beside the benchmarks; `cuda_run` runs by itself, on machines that have no vtaops."""


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
    return command_line(find(name))


def command_line(benchmark: ModuleType) -> typer.Typer:
    """Return the command line of a module: its `main`, explained by the module's docstring."""

    @wraps(benchmark.main)
    def command(*args: object, **options: object) -> None:
        raise typer.Exit(benchmark.main(*args, **options) or 0)

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    paragraphs = (benchmark.__doc__ or "").split("\n\n")
    app.command(help="\n\n".join(f"\b\n{paragraph}" for paragraph in paragraphs))(command)
    return app


def main(arguments: list[str]) -> None:
    """Run the benchmark that the first argument names, with the other arguments."""
    known = titles()
    name = arguments[0] if arguments else "--list"
    if name in ("--list", "--help"):
        print(__doc__, *(f"{n:24}{title}" for n, title in known.items()), sep="\n")
    elif name not in known:
        sys.exit(f"there is no benchmark {name!r}; those there are: {', '.join(known)}")
    else:
        application(name)(arguments[1:], prog_name=f"python -m benchmarks {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
