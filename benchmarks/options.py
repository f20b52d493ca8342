"""What benchmarks share: options, files of results, tables, medians, the name of the processor."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
"""What was measured for the documents."""

Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write a page to this file.")]
Picture = Annotated[Path | None, typer.Option("--picture", help="Draw into this file.")]
Config = Annotated[str, typer.Option("--config", help="Name or file of the hardware.")]
Rtl = Annotated[bool, typer.Option("--rtl", help="Run on the RTL, too.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
Repeat = Annotated[int, typer.Option(min=1, help="Runs of each; the median is shown.")]
State = Annotated[Path, typer.Option("--state", help="Cases that are done; a run goes on there.")]
Minutes = Annotated[float, typer.Option(help="Begin no case after these.")]
Again = Annotated[bool, typer.Option("--again", help="Measure again what other code measured.")]


def choice(names: Iterable[str]) -> dict[str, Any]:
    """Return what makes an option accept some names only: ``typer.Option(**choice(NAMES))``."""
    known = tuple(names)

    def parse(name: str) -> str:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
        return name

    return {"parser": parse, "metavar": "|".join(known)}


def read_json(path: Path | None, default: Any) -> Any:
    """Return the figures of a file, or the default if there is no file."""
    return json.loads(path.read_text()) if path is not None and path.exists() else default


def write_json(path: Path | None, figures: Any) -> None:
    """Write figures to the file of ``--json``, if it is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1, default=str) + "\n")


def write_between(page: Path, name: str, text: str) -> None:
    """Put a text into a page, between the comments that mark its place."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def figure_table(title: str, names: Iterable[str], figures: Iterable[str]) -> Table:
    """Return an empty table: columns of text, then columns of figures, which stand at the right."""
    table = Table(title=title)
    for name in names:
        table.add_column(name)
    for figure in figures:
        table.add_column(figure, justify="right")
    return table


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure that some runs of the same have."""
    return {key: median(run[key] for run in runs) for key in runs[0]}


def median_seconds(
    call: Callable[[], object], repeat: int, clock: Callable[[], float] = time.thread_time
) -> float:
    """Return the median seconds of a call, after one that warms up; by default of CPU time."""
    call()
    seconds = []
    for _ in range(repeat):
        start = clock()
        call()
        seconds.append(clock() - start)
    return median(seconds)


def machine(threads: int = 1) -> str:
    """Return the date, the processor as LLVM names it, and the threads: for the head of a page."""
    from vtaops.kernels.cpu.target import CpuTarget

    name = f"{platform.machine()}, {CpuTarget.detect().mcpu}"
    return f"{date.today()}: {name}, {threads} thread{'s' if threads > 1 else ''}"
