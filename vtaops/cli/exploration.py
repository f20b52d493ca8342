"""The commands of `vtaops` for exploration: sweep, report results.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from vtaops.base.cache import cache_directory
from vtaops.base.errors import ConfigError, StoreError, UnsupportedError, raising
from vtaops.base.files import is_file
from vtaops.cli import options
from vtaops.cli.options import progress_bar, say, show
from vtaops.cli.reports import report_app
from vtaops.machine.config import NETWORK_CONFIG, HardwareConfig
from vtaops.report.files import (
    TABLE_SUFFIXES,
    table_bytes,
    write_bytes,
    write_text,
)
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from vtaops.explore import Design, Network, Point, Space


def default_store() -> Path:
    """Return the default file for the results of sweeps."""
    return cache_directory("explore") / "results.db"


def sweep(
    *,
    layer: Annotated[
        list[str] | None,
        Option(
            help="A named layer, or all layers of a network: resnet18 (default), mobilenet; "
            "repeatable."
        ),
    ] = None,
    model: Annotated[str, Option(help="A model file instead, as for vtaops run.")] = "",
    config: options.Configs = None,
    vary: Annotated[
        list[str] | None,
        Option(
            help="An axis and its values: LOG_BLOCK=3,4,5, EXTENSIONS=,overwrite+post, "
            "PORT_BYTES=8,16, DRAM_LATENCY, BANDWIDTH, CLOCK_MHZ; repeatable."
        ),
    ] = None,
    estimate: Annotated[
        bool, Option("--estimate", help="Compile nothing: cycles are an estimate.")
    ] = False,
    objective: Annotated[
        list[str] | None,
        Option(
            help="Objectives to minimise: cycles, ms, dram, energy, sram, multipliers, lut, dsp, "
            "bram; repeatable, by default cycles, sram and multipliers."
        ),
    ] = None,
    part: Annotated[
        str, Option("--fits", help="Omit designs that do not fit this FPGA: xc7z020 …")
    ] = "",
    trials: Annotated[
        int,
        Option(
            "--search", help="Let NSGA-II propose this many designs instead of trying all.", min=0
        ),
    ] = 0,
    store: Annotated[
        Path | None, Option(help="Where results are stored; the cache by default.")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue: the store must exist. Known results are reused.")
    ] = False,
    jobs: Annotated[
        int,
        Option("--jobs", "-j", help="Number of processes; 0: one per core.", min=0, max=1024),
    ] = 0,
    dask: Annotated[str, Option(help="Address of a Dask scheduler that computes instead.")] = "",
    output: Annotated[
        list[Path] | None,
        options.to_write(
            "Interactive page (.html), or table (.csv, .json, .parquet); repeatable.",
            ".html",
            *TABLE_SUFFIXES,
        ),
    ] = None,
) -> None:
    """Find the performance of many designs on a network, and the Pareto-optimal ones.

    Each layer has its best tiling by an estimate, and no design is worse than one with smaller
    scratchpads.
    Results are stored: an interrupted sweep continues where it stopped.

    Example: vtaops sweep --vary LOG_ACC_BUFF_SIZE=15,16,17 --vary EXTENSIONS=,post -o front.html
    """
    from vtaops.explore import Engine, ResultStore, Space, front, search
    from vtaops.explore import sweep as evaluated
    from vtaops.explore.front import check_objectives
    from vtaops.report import exploration_table

    objectives, outputs = objective or ["cycles", "sram", "multipliers"], output or []
    check_objectives(objectives)
    _check_outputs(outputs)
    network = _network(model, layer)
    usual = [NETWORK_CONFIG if model else "pynq"]
    spaces = _spaces(config or usual, vary or [])
    chosen = _space(spaces, part) if trials else _designs(spaces, part)
    with (
        ResultStore(_store_path(store, resume)) as kept,
        progress_bar("sweep") as bar,
        Engine(kept, _executor(jobs, dask), bar.tell) as engine,
    ):
        if isinstance(chosen, Space):
            options = {"trials": trials, "objectives": tuple(objectives)}
            points = search(chosen, network, engine, timed=not estimate, **options)
        else:
            points = evaluated(chosen, network, engine, timed=not estimate)
    _tell_failures(points)
    best = front(points, objectives)
    rows = [{**point.as_dict(), "front": point in best} for point in points]
    title = f"{network.name}: {len(points)} designs{', estimated' * estimate}"
    show(rows, exploration_table(rows, title))
    for path in outputs:
        _write(path, rows, points, title)


@report_app.command("results")
def results(
    path: Annotated[
        Path | None, Argument(help="A store of results; the one that sweeps use by default.")
    ] = None,
    *,
    output: Annotated[
        Path | None,
        options.to_write(
            "A table of all operators, tilings and machines (.csv, .json, .parquet).",
            *TABLE_SUFFIXES,
        ),
    ] = None,
) -> None:
    """Show what sweeps have stored: the kinds of records, and their numbers.

    Example: vtaops report results -o results.csv
    """
    from vtaops.explore import ResultStore

    file = _existing(path)
    with ResultStore(file) as store:
        count = store.count()
        if output:
            rows = [*store.table("evaluation")]
            write_bytes(output, table_bytes(rows, output.suffix.lower()))
    table = list_table(str(file), {"kind": "", "records": ","}, count.items())
    show({"path": str(file), "kinds": count}, table)


# ------------------------------------------------------------------------------ details


def _existing(path: Path | None) -> Path:
    file = path or default_store()
    if not is_file(file):
        raise StoreError(f"store {str(file)!r} does not exist; vtaops sweep creates one")
    return file


def _store_path(path: Path | None, resume: bool) -> Path:
    if resume:
        return _existing(path)
    file = path or default_store()
    with raising(StoreError, f"cannot make the folder of the store {str(file)!r}", OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _spaces(configs: Sequence[str], vary: Sequence[str]) -> dict[str, Space]:
    """Return the requested spaces by the name of the configuration that they start from."""
    from vtaops.explore import Design, Space

    axes = dict(map(_axis, vary))
    return {name: Space(Design(HardwareConfig.load(name)), axes) for name in configs}


def _designs(spaces: dict[str, Space], part: str) -> list[Design]:
    """Return all valid designs, those that fit the part if one is given."""
    chosen: dict[Design, None] = {}
    for name, space in spaces.items():
        designs, refused = space.designs()
        chosen |= dict.fromkeys(designs)
        for values, reason in refused.items():
            say(f"omitted: {name} {values}: {reason}", err=True)
    if not chosen:
        raise ConfigError("none of these designs is valid")
    return _fitting(list(chosen), part) if part else list(chosen)


def _network(model: str, layers: list[str] | None) -> Network:
    from vtaops.explore import Network

    return Network.model(model) if model else Network.named(layers or ["resnet18"])


def _space(spaces: dict[str, Space], part: str) -> Space:
    """Return the space that is searched."""
    if len(spaces) > 1:
        raise ConfigError(f"--search starts from one configuration, not {len(spaces)}")
    if part:
        raise UnsupportedError(
            "--search proposes designs by itself; --fits filters those of a sweep"
        )
    (space,) = spaces.values()
    return space


_AXIS_TYPES: dict[str, Callable[[str], int | float | str]] = {
    "EXTENSIONS": str,
    "TARGET": str,
    "HW_VER": str,
    "BANDWIDTH": float,
}
"""Types of the values of axes that are not integers."""


def _axis(text: str) -> tuple[str, list[int | float | str]]:
    """Parse ``LOG_BLOCK=3,4,5``."""
    key, equals, values = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return key, [_AXIS_TYPES.get(key, int)(value) for value in values.split(",")]
    except ValueError as error:
        raise ConfigError(f"--vary is {text!r}; write LOG_BLOCK=3,4,5") from error


def _fitting(designs: Sequence[Design], part: str) -> list[Design]:
    from vtaops.explore.area import area, shares
    from vtaops.hardware.synthesis import CAPACITY

    if part not in CAPACITY:
        raise ConfigError(f"unknown part {part!r}; known parts: {', '.join(CAPACITY)}")
    fitting = []
    for design in designs:
        title, most = max(shares(area(design), part).items(), key=itemgetter(1))
        if most <= 1:
            fitting.append(design)
        else:
            text = f"omitted: {design.name} needs {most:.0%} of the {title} of the {part}"
            say(text, err=True)
    say(f"{len(fitting)} of {len(designs)} designs fit the {part} by the model", err=True)
    if not fitting:
        raise ConfigError(f"none of these designs fits the {part}")
    return fitting


def _tell_failures(points: Sequence[Point]) -> None:
    for point in points:
        for name, reason in point.failures.items():
            say(f"{point.design.name} cannot run {name}: {reason}", err=True)


def _check_outputs(paths: Sequence[Path]) -> None:
    """Require the packages that write these files, before hours of work."""
    for path in paths:
        if path.suffix.lower() in TABLE_SUFFIXES:
            table_bytes([], path.suffix.lower())


def _write(path: Path, rows: list[dict[str, Any]], points: Sequence[Point], title: str) -> None:
    from vtaops.report import exploration_page

    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        write_bytes(path, table_bytes(rows, suffix))
    else:
        write_text(path, exploration_page(rows, title, [point.layer_rows for point in points]))
    say(f"written to {path}", err=True)


def _executor(jobs: int, dask: str) -> Executor | None:
    """Return the worker processes; None to compute in this one."""
    from vtaops.explore import dask_executor, process_pool

    if dask:
        return dask_executor(dask)
    return process_pool(jobs or None) if jobs != 1 else None
