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


def titles() -> dict[str, str]:
    """Return the first line of each benchmark's docstring, by the benchmark's name."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in NOT_RUN:
            with path.open() as file:
                found[path.stem] = file.readline().partition('"""')[2].removesuffix('"""\n').strip()
    return found


def application(benchmark: ModuleType) -> typer.Typer:
    """Return the command line of a benchmark: its `main`, explained by its module's docstring."""

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
        benchmark = importlib.import_module(f"benchmarks.{name}")
        application(benchmark)(arguments[1:], prog_name=f"python -m benchmarks {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
