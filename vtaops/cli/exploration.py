"""The command ``vtaops sweep``.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from vtaops.base.cache import cache_directory
from vtaops.base.errors import ConfigError, StoreError, raising
from vtaops.base.progress import report_progress
from vtaops.cli.options import Configs, progress_bar, say, show, to_write
from vtaops.machine.config import NETWORK_CONFIG, HardwareConfig
from vtaops.report.files import csv_text, write_text

if TYPE_CHECKING:
    from vtaops.explore import Design, Network, Point


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
    config: Configs = None,
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
    store: Annotated[
        Path | None, Option(help="Where results are stored; the cache by default.")
    ] = None,
    jobs: Annotated[
        int, Option("--jobs", "-j", help="Number of processes; 0: one per core.", min=0, max=1024)
    ] = 0,
    dask: Annotated[str, Option(help="Address of a Dask scheduler that computes instead.")] = "",
    output: Annotated[
        list[Path] | None,
        to_write("Interactive page (.html), or table (.csv); repeatable.", ".html", ".csv"),
    ] = None,
) -> None:
    """Find the performance of many designs on a network, and the Pareto-optimal ones.

    Each layer has its best tiling by an estimate, and no design is worse than one with smaller
    scratchpads.
    Results are stored: an interrupted sweep continues where it stopped.

    Example: vtaops sweep --vary LOG_ACC_BUFF_SIZE=15,16,17 --vary EXTENSIONS=,post -o front.html
    """
    from vtaops.explore import Engine, ResultStore, front
    from vtaops.explore import sweep as evaluated
    from vtaops.explore.sweep import check_objectives
    from vtaops.report import exploration_page, exploration_table

    objectives = objective or ["cycles", "sram", "multipliers"]
    check_objectives(objectives)
    network = _network(model, layer)
    usual = NETWORK_CONFIG if model else "pynq"
    designs = _designs(config or [usual], vary)
    if part:
        designs = _fitting(designs, part)
    with (
        ResultStore(_store_path(store)) as kept,
        progress_bar("sweep"),
        Engine(kept, _executor(jobs, dask), report_progress) as engine,
    ):
        points = evaluated(designs, network, engine, timed=not estimate)
    _tell_failures(points)
    best = front(points, objectives)
    rows = [{**point.as_dict(), "front": point in best} for point in points]
    title = f"{network.name}: {len(points)} designs{', estimated' * estimate}"
    show(rows, exploration_table(rows, title))
    layers = [point.layer_rows for point in points]
    for path in output or []:
        as_page = path.suffix.lower() == ".html"
        write_text(path, exploration_page(rows, title, layers) if as_page else csv_text(rows))
        say(f"written to {path}", err=True)


# ------------------------------------------------------------------------------ details


def _store_path(path: Path | None) -> Path:
    file = path or cache_directory("explore") / "results.db"
    with raising(StoreError, f"cannot make the folder of the store {str(file)!r}", OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _network(model: str, layers: list[str] | None) -> Network:
    from vtaops.explore import Network

    return Network.model(model) if model else Network.named(layers or ["resnet18"])


def _executor(jobs: int, dask: str) -> Executor | None:
    """Return the worker processes; None to compute in this one."""
    from vtaops.explore import dask_executor, process_pool

    if dask:
        return dask_executor(dask)
    return process_pool(jobs or None) if jobs != 1 else None


def _tell_failures(points: Sequence[Point]) -> None:
    for point in points:
        for name, reason in point.failures.items():
            say(f"{point.design.name} cannot run {name}: {reason}", err=True)


def _designs(configs: Sequence[str], vary: Sequence[str] | None) -> list[Design]:
    """Return all valid designs."""
    from vtaops.explore import Design, Space

    axes, chosen = dict(map(_axis, vary or ())), dict[Design, None]()
    for name in configs:
        designs, refused = Space(Design(HardwareConfig.load(name)), axes).designs()
        chosen |= dict.fromkeys(designs)
        for values, reason in refused.items():
            say(f"omitted: {name} {values}: {reason}", err=True)
    if not chosen:
        raise ConfigError("none of these designs is valid")
    return list(chosen)


_AXIS_TYPES: dict[str, Callable[[str], int | float | str]] = {
    "EXTENSIONS": str,
    "TARGET": str,
    "HW_VER": str,
    "BANDWIDTH": float,
}
"""Types of the values of axes that are not integers."""


def _axis(text: str) -> tuple[str, list[int | float | str]]:
    """Parse ``LOG_BLOCK=3,4,5``."""
    try:
        key, values = text.split("=")
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
            say(f"omitted: {design.name} needs {most:.0%} of the {title} of the {part}", err=True)
    say(f"{len(fitting)} of {len(designs)} designs fit the {part} by the model", err=True)
    if not fitting:
        raise ConfigError(f"none of these designs fits the {part}")
    return fitting
