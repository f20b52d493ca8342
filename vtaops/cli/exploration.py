"""The commands of `vtaops` that explore: sweep, store.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vtaops.base.cache import cache_directory
from vtaops.base.errors import ConfigError, StoreError, UnsupportedError, VTAError
from vtaops.base.files import exists, is_file
from vtaops.cli.options import JsonOption, list_table
from vtaops.machine.config import HardwareConfig
from vtaops.program.timing import TimingParameters

if TYPE_CHECKING:
    from vtaops.explore import Design, Point, Space

PANEL = "Reports and lessons"


class EffortChoice(str, Enum):
    """How tilings are found."""

    bound = "bound"
    first = "first"
    default = "default"
    fast = "fast"
    thorough = "thorough"


StoreArgument = Annotated[
    Path | None, typer.Argument(help="The store; by default the one that sweeps use.")
]

store_app = typer.Typer(help="What sweeps have computed: list it, write it to a file.")


def register(app: typer.Typer) -> None:
    """Add the commands of this file to an application."""
    app.command(rich_help_panel=PANEL)(sweep)
    app.add_typer(store_app, name="store", rich_help_panel=PANEL, no_args_is_help=True)


def default_store() -> Path:
    """Return the file that keeps what sweeps compute."""
    return cache_directory("explore") / "results.db"


def sweep(
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            help="A named layer, or all of a network: resnet18 (default), mobilenet; repeatable.",
        ),
    ] = None,
    model: Annotated[
        str, typer.Option("--model", help="A model file instead, as vtaops run takes it.")
    ] = "",
    config: Annotated[
        list[str] | None,
        typer.Option("--config", help="A configuration to start from (default pynq); repeatable."),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            help="An axis and its values: LOG_BLOCK=3,4,5, EXTENSIONS=,overwrite+post, "
            "PORT_BYTES=8,16, DRAM_LATENCY, BANDWIDTH, CLOCK_MHZ; repeatable.",
        ),
    ] = None,
    effort: Annotated[
        EffortChoice,
        typer.Option(
            "--effort",
            help="Tilings of each layer: estimated (bound), or 1 (first), 5 (default), 12 (fast), "
            "48 (thorough) compiled and timed.",
        ),
    ] = EffortChoice.fast,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            "--objective",
            help="What is to be small: cycles, ms, dram, energy, sram, multipliers, lut, dsp, "
            "bram; repeatable, by default cycles, sram and multipliers.",
        ),
    ] = None,
    part: Annotated[
        str, typer.Option("--fits", help="Leave out what this FPGA does not hold: xc7z020 …")
    ] = "",
    trials: Annotated[
        int,
        typer.Option(
            "--search", min=0, help="Let NSGA-II propose so many designs instead of taking all."
        ),
    ] = 0,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="File in which that search keeps its trials.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option("--store", help="Where results are kept; by default the cache.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on: the store must exist. Known results count.")
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Processes; 0: as many as there are cores.")
    ] = 0,
    dask: Annotated[
        str, typer.Option("--dask", help="Address of a Dask scheduler that computes instead.")
    ] = "",
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Pareto plot (.png, .svg, .pdf), interactive page (.html), or table (.csv, "
            ".json, .parquet); repeatable.",
        ),
    ] = None,
    parallel: Annotated[
        Path | None, typer.Option("--parallel", help="Picture of parallel coordinates.")
    ] = None,
    latency: Annotated[
        int, typer.Option("--latency", help="Latency of the DRAM in cycles.")
    ] = TimingParameters().dram_latency,
    bandwidth: Annotated[
        float, typer.Option("--bandwidth", help="Bytes per cycle, both directions; 0: the port.")
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Find what many designs reach on a network, and which ones nothing beats.

    Tilings are searched for each design, and none is worse than one with smaller scratchpads. What
    was computed is kept: a sweep that was stopped goes on where it was.

    Example: vtaops sweep --vary LOG_ACC_BUFF_SIZE=15,16,17 --vary EXTENSIONS=,post -o front.html
    """
    from vtaops.explore import Engine, Network, ResultStore, front, process_pool, search
    from vtaops.explore import sweep as explore
    from vtaops.explore.front import check_objectives

    objectives = objective or ["cycles", "sram", "multipliers"]
    check_objectives(objectives)
    _check_outputs([*(output or []), *([parallel] if parallel else [])])
    network = Network.model(model) if model else Network.named(layer or ["resnet18"])
    designs = [] if trials else _designs(config or ["pynq"], vary or [], latency, bandwidth)
    if trials and part:
        raise UnsupportedError(
            "--search proposes designs by itself; --fits sorts out those of a sweep"
        )
    if part:
        designs = _fitting(designs, part)
    with ResultStore(_store_path(store, resume)) as kept, _Bar() as bar:
        executor = _dask(dask) if dask else lambda: process_pool(jobs or None)
        with Engine(kept, None if jobs == 1 and not dask else executor, bar.tell) as engine:
            if trials:
                space = _space(config or ["pynq"], vary or [], latency, bandwidth)
                found = search(
                    space, network, engine, trials=trials, objectives=tuple(objectives),
                    effort=effort.value, journal=journal,
                )  # fmt: skip
                points = list(found.points)
                typer.echo(f"{found.pruned} of {found.trials} trials pruned by bound", err=True)
            else:
                points = explore(designs, network, engine, effort.value)
    best = front(points, objectives)
    for point in points:
        for name, reason in point.failures.items():
            typer.echo(f"{point.design.name} cannot run {name}: {reason}", err=True)
    rows = [{**point.as_dict(), "front": point in best} for point in points]
    title = f"{network.name}: {len(points)} designs, effort {effort.value}"
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        from vtaops.report import exploration_table

        Console().print(exploration_table(rows, title))
    for path in output or []:
        _write(path, rows, points, title, objectives)
    if parallel:
        from vtaops.report import parallel_plot, save_figure

        save_figure(parallel_plot(rows, title), parallel)


@store_app.command("ls")
def store_ls(path: StoreArgument = None, as_json: JsonOption = False) -> None:
    """List what a store holds: kinds of records, how many, how often each was computed.

    Example: vtaops store ls
    """
    from vtaops.explore import ResultStore, model_version

    file = _existing(path)
    with ResultStore(file) as store:
        count, versions = store.count(), store.versions()
    if as_json:
        typer.echo(json.dumps({"path": str(file), "kinds": count, "versions": versions}))
        return
    table = list_table(str(file))
    for column in ("kind", "records", "computed"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind, numbers in count.items():
        table.add_row(kind, f"{numbers['records']:,}", f"{numbers['computed']:,}")
    Console().print(table)
    current = versions.get(model_version(), 0)
    typer.echo(f"{current:,} of {sum(versions.values()):,} records are of this version")


@store_app.command("export")
def store_export(
    output: Annotated[Path, typer.Option("--output", "-o", help=".csv, .json or .parquet.")],
    path: StoreArgument = None,
) -> None:
    """Write all verdicts of a store to a table: a row for each operator, tiling and machine.

    Example: vtaops store export -o results.csv
    """
    from vtaops.explore import ResultStore
    from vtaops.explore.tables import table_bytes, verdict_rows
    from vtaops.report.files import write_bytes

    with ResultStore(_existing(path)) as store:
        rows = list(verdict_rows(store))
    write_bytes(output, table_bytes(rows, output.suffix.lower()))
    typer.echo(f"{len(rows):,} verdicts, written to {output}")


# ------------------------------------------------------------------------------ details


def _existing(path: Path | None) -> Path:
    file = path or default_store()
    if not is_file(file):
        raise StoreError(f"there is no store {str(file)!r}; vtaops sweep makes one")
    return file


def _store_path(path: Path | None, resume: bool) -> Path:
    if resume:
        return _existing(path)
    file = path or default_store()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder of the store {str(file)!r}: {error}") from error
    return file


def _designs(
    configs: Sequence[str], vary: Sequence[str], latency: int, bandwidth: float
) -> list[Design]:
    from vtaops.explore import Design, Space

    axes = dict(map(_axis, vary))
    found: dict[Design, None] = {}
    for name in configs:
        base = Design(HardwareConfig.load(name), dram_latency=latency, bandwidth=bandwidth)
        designs, refused = Space(base, axes).designs()
        found |= dict.fromkeys(designs)
        for values, reason in refused.items():
            typer.echo(f"left out: {name} {values}: {reason}", err=True)
    if not found:
        raise ConfigError("none of these designs can exist")
    return list(found)


def _space(configs: Sequence[str], vary: Sequence[str], latency: int, bandwidth: float) -> Space:
    from vtaops.explore import Design, Space

    if len(configs) > 1:
        raise ConfigError(f"--search starts from one configuration, not {len(configs)}")
    base = HardwareConfig.load(configs[0])
    return Space(Design(base, dram_latency=latency, bandwidth=bandwidth), dict(map(_axis, vary)))


def _axis(text: str) -> tuple[str, list[int | float | str]]:
    """Parse ``LOG_BLOCK=3,4,5``."""
    key, equals, values = text.partition("=")
    try:
        if not equals:
            raise ValueError
        if key in ("EXTENSIONS", "TARGET", "HW_VER"):
            return key, list(values.split(","))
        if key == "BANDWIDTH":
            return key, [float(value) for value in values.split(",")]
        return key, [int(value) for value in values.split(",")]
    except ValueError as error:
        raise ConfigError(f"--vary is {text!r}; write LOG_BLOCK=3,4,5") from error


def _fitting(designs: Sequence[Design], part: str) -> list[Design]:
    from vtaops.explore import area, share
    from vtaops.hardware.synthesis import CAPACITY

    if part not in CAPACITY:
        raise ConfigError(f"no part {part!r}; known are {', '.join(CAPACITY)}")
    found = [design for design in designs if share(area(design), part) <= 1]
    typer.echo(f"{len(found)} of {len(designs)} designs fit the {part} by the model", err=True)
    if not found:
        raise ConfigError(f"none of these designs fits the {part}")
    return found


def _check_outputs(paths: Sequence[Path]) -> None:
    """Refuse what could not be written, before hours of work."""
    from vtaops.explore.tables import SUFFIXES, check_suffix
    from vtaops.report.files import FIGURE_SUFFIXES, new_figure

    for path in paths:
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            check_suffix(path)
        elif suffix in FIGURE_SUFFIXES:
            new_figure(1, 1)
        elif suffix != ".html":
            known = ", ".join((*FIGURE_SUFFIXES, ".html", *SUFFIXES))
            raise UnsupportedError(f"cannot write {str(path)!r}; its name must end in {known}")
        if not exists(path.absolute().parent):
            raise VTAError(f"cannot write {str(path)!r}: there is no such folder")


def _write(
    path: Path,
    rows: list[dict[str, Any]],
    points: Sequence[Point],
    title: str,
    objectives: Sequence[str],
) -> None:
    from vtaops.explore.tables import SUFFIXES, table_bytes
    from vtaops.report import exploration_page, front_plot, save_figure, write_text
    from vtaops.report.files import write_bytes

    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        write_bytes(path, table_bytes(rows, suffix))
    elif suffix == ".html":
        write_text(path, exploration_page(rows, title, [point.layer_rows for point in points]))
    else:
        first = objectives[0]
        second = objectives[1] if len(objectives) > 1 else "sram" if first != "sram" else "cycles"
        save_figure(front_plot(rows, title, x=second, y=first), path)
    typer.echo(f"written to {path}", err=True)


def _dask(address: str) -> Callable[[], Executor]:
    """Return what connects to a Dask cluster.

    Raises
    ------
    UnsupportedError
        If Dask is not installed.
    """
    from vtaops.explore import dask_executor

    return lambda: dask_executor(address)


class _Bar:
    """Progress on the terminal, with the time that is left."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}

    def tell(self, kind: str, done: int, total: int) -> None:
        """Show how far it is; what was known before counts as done, not as speed."""
        if kind not in self._tasks:
            self._tasks[kind] = self._progress.add_task(f"{kind}s", total=total)
        self._progress.update(self._tasks[kind], completed=done, total=total)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
