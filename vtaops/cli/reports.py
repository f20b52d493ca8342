"""The commands ``vtaops report``: diagrams and comparisons.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.cli import options
from vtaops.cli.options import Commands, parse_tiling, progress_bar, read_window, say, show
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program
from vtaops.program.timing import Timeline, TimingParameters
from vtaops.report.files import FIGURE_SUFFIXES, write_text

report_app = Commands(name="report", help="Diagrams and comparisons.")


@report_app.command("trace", cls=options.Command)
def trace(
    files: options.ProgramFiles = None,
    *,
    output: Annotated[
        Path,
        options.to_write(
            "A picture (.png .svg .pdf), an interactive page (.html), or a trace for "
            "ui.perfetto.dev (.json).",
            *FIGURE_SUFFIXES,
            ".html",
            ".json",
        ),
    ],
    layer: options.Layers = None,
    tiling: options.Tilings = None,
    config: options.Configs = None,
    window: Annotated[str, Option(help="Cycles to show, e.g. 0:20000; all by default.")] = "",
    latency: options.Latency = options.DEFAULT_LATENCY,
    bandwidth: options.Bandwidth = 0.0,
) -> None:
    """Draw the activity of every unit in every cycle; stack several programs.

    Example: vtaops report trace --layer tutorial.convolution_opt -o c8.html
    """
    span = read_window(window)
    parameters = _parameters(latency, bandwidth)
    timelines = {
        name: program.timeline(parameters)
        for name, program in _programs(files, layer, tiling, config).items()
    }
    _write(timelines, span, output)
    for name, timeline in timelines.items():
        say(f"{name}: {timeline.cycles:,} cycles, written to {output}")


def _write(found: dict[str, Timeline], span: tuple[int, int] | None, output: Path) -> None:
    """Write timelines in the form that the ending of a file asks for."""
    from vtaops.report import chrome_trace, interactive, save_figure, spacetime

    timelines, names = [*found.values()], [*found]
    if output.suffix.lower() == ".html":
        write_text(output, interactive(timelines, names, span))
    elif output.suffix.lower() != ".json":
        save_figure(spacetime(timelines, names, span), output)
    elif len(found) > 1:
        raise ShapeError(f"a trace shows one program, not {len(found)}: {', '.join(found)}")
    elif span:
        raise UnsupportedError("a trace for ui.perfetto.dev has all cycles; leave out --window")
    else:
        write_text(output, json.dumps(chrome_trace(timelines[0], names[0])))


@report_app.command("compare")
def compare(
    files: options.ProgramFiles = None,
    *,
    layer: options.Layers = None,
    tiling: options.Tilings = None,
    config: options.Configs = None,
    latency: options.Latency = options.DEFAULT_LATENCY,
    bandwidth: options.Bandwidth = 0.0,
    as_csv: options.AsCsv = False,
) -> None:
    """Compare schedules or configurations: all statistics side by side, with ratios to the first.

    Example: vtaops report compare --layer resnet18.C8 --config pynq --config pynq_ext
    """
    from vtaops import report

    parameters = _parameters(latency, bandwidth)
    reports = {
        name: report.statistics_data(program, program.stats(), program.timeline(parameters))
        for name, program in _programs(files, layer, tiling, config).items()
    }
    if len(reports) < 2:
        raise ShapeError(
            f"a comparison needs at least two programs, and there is only {', '.join(reports)}; "
            f"repeat --layer, --tiling or --config, or give several files"
        )
    if as_csv and not options.as_json():
        typer.echo(report.as_csv(reports), nl=False)
    else:
        table = report.statistics_table(reports, "Comparison, ratios to the first")
        show(reports, table)


@report_app.command("roofline")
def roofline(
    *,
    output: Annotated[
        Path,
        options.to_write("A picture.", *FIGURE_SUFFIXES),
    ],
    layer: options.Layers = None,
    config: options.Config = "pynq",
    latency: options.Latency = options.DEFAULT_LATENCY,
    bandwidth: options.Bandwidth = 0.0,
) -> None:
    """Draw the roofline of layers (by default ResNet-18) and of their network.

    Example: vtaops report roofline -o roofline.svg --json > roofline.json
    """
    from vtaops.compiler.driver import compile
    from vtaops.report import RooflinePoint, save_figure
    from vtaops.report import roofline as draw

    hardware, parameters = HardwareConfig.load(config), _parameters(latency, bandwidth)
    points = []
    with progress_bar() as progress:
        for workload in progress.track(_workloads(layer), description="compiling"):
            timeline = compile(workload.op, hardware).timeline(parameters)
            point = RooflinePoint.of(workload.name.split(".")[-1], timeline)
            points.append((point, workload.occurrences))
    together = RooflinePoint.total("together", points) if len(points) > 1 else None
    title = f"{hardware.name} ({hardware.bitstream_id}): share of the array in use"
    bytes_per_cycle = bandwidth or parameters.port_width(hardware)
    figure = draw([p for p, _ in points], hardware.macs_per_cycle, bytes_per_cycle, together, title)
    save_figure(figure, output)
    drawn = {
        "title": title,
        "macs_per_cycle": hardware.macs_per_cycle,
        "bytes_per_cycle": bytes_per_cycle,
        "points": [{**asdict(point), "occurrences": times} for point, times in points],
        "total": asdict(together) if together else None,
    }
    show(drawn, f"{len(points)} layers, written to {output}")


# ------------------------------------------------------------------------------ details


def _programs(
    files: list[Path] | None,
    layers: list[str] | None,
    tilings: list[str] | None,
    configs: list[str] | None,
) -> dict[str, Program]:
    """Return the programs of all files and all layers x tilings x configurations, by name."""
    if not files and not layers:
        raise ShapeError("give a program file, or a named layer with --layer")
    programs: dict[str, Program] = {}
    compiled = _compiled(layers or [], tilings or [], configs or [])
    with progress_bar("compile"):
        for name, program in itertools.chain(_loaded(files or []), compiled):
            if name in programs:
                raise ShapeError(f"{name} is given twice; every program needs to differ")
            programs[name] = program
    return programs


def _loaded(files: list[Path]) -> Iterator[tuple[str, Program]]:
    """Yield the programs of files, named by their file stems where these differ."""
    stems = [file.stem for file in files]
    for file in files:
        yield file.stem if stems.count(file.stem) == 1 else str(file), Program.load(file)


def _compiled(
    layers: list[str], tilings: list[str], configs: list[str]
) -> Iterator[tuple[str, Program]]:
    """Yield the programs of layers x tilings x configurations, named by their differences."""
    from vtaops.compiler.driver import compile
    from vtaops.schedule.workloads import find

    chosen = itertools.product(layers, tilings or [""], configs or ["pynq"])
    for layer, tiling, config in chosen:
        workload = find(layer)
        parts = [tiling] if tiling else []
        parts += [config] if len(configs) > 1 else []
        if len(layers) > 1 or not parts:
            parts.insert(0, layer)
        explicit = parse_tiling(tiling.replace("default", "")) if tiling else workload.tiling
        yield " ".join(parts), compile(workload.op, HardwareConfig.load(config), explicit)


def _workloads(names: list[str] | None) -> list[Any]:
    from vtaops.schedule.workloads import WORKLOADS, find

    if names:
        return [find(name) for name in names]
    return [w for name, w in WORKLOADS.items() if name.startswith("resnet18.")]


def _parameters(latency: int, bandwidth: float) -> TimingParameters:
    return TimingParameters(dram_latency=latency, bandwidth=bandwidth or None)
