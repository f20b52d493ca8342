"""What benchmarks share: options, rows that go on where they stopped, files of results, tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from trials.campaign import code

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
"""What was measured for the documents."""

Row = dict[str, Any]
Rows = dict[str, Row]

Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Kept = Annotated[Path, typer.Option("--json", help="Figures, which a run adds to.")]
Markdown = Annotated[Path | None, typer.Option("--markdown", help="Write a page to this file.")]
Picture = Annotated[Path | None, typer.Option("--picture", help="Draw into this file.")]
Config = Annotated[str, typer.Option("--config", help="Name or file of the hardware.")]
Rtl = Annotated[bool, typer.Option("--rtl", help="Run on the RTL, too.")]
Seed = Annotated[int, typer.Option(help="Of everything random.")]
Repeat = Annotated[int, typer.Option(min=1, help="Runs of each; the median is shown.")]
State = Annotated[Path, typer.Option("--state", help="Cases that are done; a run goes on there.")]
Minutes = Annotated[float, typer.Option(help="Begin no case after these.")]
Again = Annotated[bool, typer.Option("--again", help="Measure again what other code measured.")]
Only = Annotated[list[str], typer.Option(help="Beginnings of names; all by default.")]
Case = Annotated[str | None, typer.Option("--case", hidden=True)]


def choice(names: Iterable[str]) -> dict[str, Any]:
    """Return what makes an option accept some names only: ``typer.Option(**choice(NAMES))``."""
    known = tuple(names)

    def parse(name: str) -> str:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}")
        return name

    return {"parser": parse, "metavar": "|".join(known)}


def chosen(names: Iterable[str], only: Sequence[str]) -> list[str]:
    """Return the names that begin with one of some texts; all without such.

    Raises
    ------
    typer.BadParameter
        If there are none.
    """
    known = [*names]
    found = [name for name in known if not only or name.startswith(tuple(only))]
    if not found:
        raise typer.BadParameter(f"no name begins with {' or '.join(only)}; names: {known}")
    return found


# --------------------------------------------------------------------------------------- rows


def read_json(path: Path | None, default: Any) -> Any:
    """Return the figures of a file, or the default if there is no file."""
    return json.loads(path.read_text()) if path is not None and path.exists() else default


def write_json(path: Path | None, figures: Any) -> None:
    """Write figures to the file of ``--json``, if it is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=1, default=str) + "\n")


def write_rows(path: Path, rows: Rows) -> None:
    """Write rows by their names, a line a row."""
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def measured_apart(
    benchmark: str,
    cases: Sequence[str],
    path: Path,
    minutes: float,
    *,
    again: bool = False,
    stale: Callable[[Row], bool] = lambda row: False,
    options: Sequence[str] = (),
    seconds: float | None = None,
) -> tuple[Rows, Rows]:
    """Measure the cases that a file does not have, each in a process of its own.

    A process runs the benchmark with ``--case``, and prints its row as the last line. What it
    raises is a bug: such a row has an ``error``, and is not kept.

    Parameters
    ----------
    benchmark : str
        Whose `main` measures a case.
    cases : sequence of str
        Names.
    path : Path
        Where rows are kept, with the commit that they were measured on.
    minutes : float
        After which no case begins.
    again : bool
        Measure again what other code measured.
    stale : callable
        Whether a row that is kept must be measured again.
    options : sequence of str
        Of the benchmark, for each case.
    seconds : float, optional
        After which a case is given up.

    Returns
    -------
    rows, errors : dict
        All rows of the file, and those of cases that broke.
    """
    rows: Rows = read_json(path, {})
    errors: Rows = {}
    end = time.monotonic() + 60 * minutes
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for case in cases:
        row = rows.get(case)
        if row and not (again and row["code"] != code()) and not stale(row):
            continue
        if time.monotonic() > end:
            break
        command = [sys.executable, "-m", "benchmarks", benchmark, "--case", case, *options]
        try:
            made = subprocess.run(
                command, capture_output=True, text=True, env=environment, timeout=seconds
            )
            said = made.stderr.strip().splitlines() or [f"exit code {made.returncode}"]
            found = {"error": said[-1]}
            if not made.returncode:
                found = {**json.loads(made.stdout.splitlines()[-1]), "code": code()}
        except subprocess.TimeoutExpired:
            found = {"error": f"takes more than {seconds} s"}
        print(case, found, flush=True)
        if found.get("error"):
            errors[case] = found
        else:
            rows[case] = found
            write_rows(path, rows)
    return rows, errors


# ------------------------------------------------------------------------------------- tables


def shown(value: Any) -> str:
    """Return a cell for people: commas in whole numbers, four digits of others."""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value)


def show(
    title: str, rows: Rows, columns: Mapping[str, str] | Sequence[str] = (), of: str = ""
) -> None:
    """Print rows by their names as a table.

    Parameters
    ----------
    title : str
        Above the table.
    rows : dict of str to dict
        A row has a cell for each key that it has.
    columns : dict of str to str, or sequence of str
        The keys that are shown, with their headings; all keys of the first row without.
    of : str
        The heading of the names.
    """
    columns = columns or [*next(iter(rows.values()), {})]
    headings = columns if isinstance(columns, Mapping) else {key: key for key in columns}
    keys = [key for key in headings if any(key in row for row in rows.values())]
    table = Table(of, title=title)
    for key in keys:
        texts = any(isinstance(row.get(key), str) for row in rows.values())
        table.add_column(headings[key], justify="left" if texts else "right")
    for name, row in rows.items():
        table.add_row(name, *(shown(row.get(key)) for key in keys))
    Console(width=max(Console().width, 50 + 13 * len(keys))).print(table)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a table in Markdown: columns of text, then columns of figures."""
    rule = "|" + "---|" * texts + "--:|" * (len(heads) - texts)
    lines = (f"| {' | '.join(cells)} |" for cells in rows)
    head = f"| {' | '.join(heads)} |".replace("|  |", "| |")
    return "\n".join([head, rule, *lines])


# -------------------------------------------------------------------------------------- times


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
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


def alternating(
    calls: Mapping[str, Callable[[], object]], turns: int, budget: float = 0.0
) -> dict[str, list[float]]:
    """Return the CPU seconds of a call in some turns, in which all calls alternate.

    Parameters
    ----------
    calls : dict of str to callable
        What is compared; each is called twice before.
    turns : int
        How many times each has.
    budget : float
        Seconds of all turns of a call: a short one is called several times in a turn.
    """
    counts = {}
    for name, call in calls.items():
        call()
        start = time.thread_time()
        call()
        counts[name] = max(1, int(budget / turns / max(time.thread_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            start = time.thread_time()
            for _ in range(counts[name]):
                call()
            times[name].append((time.thread_time() - start) / counts[name])
    return times


def machine(threads: int = 1) -> str:
    """Return the date, the processor as LLVM names it, and the threads: for the head of a page."""
    from vtaops.kernels.cpu.target import CpuTarget

    name = f"{platform.machine()}, {CpuTarget.detect().mcpu}"
    return f"{date.today()}: {name}, {threads} thread{'s' if threads > 1 else ''}"
