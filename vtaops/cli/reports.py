"""The commands of `vtaops` that draw and compare: trace, compare, roofline.

Owns argument parsing and printing only, as `vtaops.cli`, whose application registers them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.cli.options import CsvOption, JsonOption
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program
from vtaops.program.timing import TimingParameters

FilesArgument = Annotated[
    list[Path] | None, typer.Argument(help="Program files (see: vtaops run ... --save).")
]
LayersOption = Annotated[
    list[str] | None,
    typer.Option("--layer", help="A named layer (see: vtaops layers); may be repeated."),
]
TilingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tiling", help="A tiling, e.g. oc=128,ic=16,h=7,w=14, or 'default'; may be repeated."
    ),
]
ConfigsOption = Annotated[
    list[str] | None,
    typer.Option("--config", help="A configuration (default pynq); may be repeated."),
]
LatencyOption = Annotated[int, typer.Option("--latency", help="Latency of the DRAM in cycles.")]
BandwidthOption = Annotated[
    float,
    typer.Option("--bandwidth", help="Bytes per cycle, both directions; 0: what the port takes."),
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]

DEFAULT_LATENCY = TimingParameters().dram_latency


def register(app: typer.Typer) -> None:
    """Add the commands of this file to an application."""
    for command in (trace, compare, roofline):
        app.command(rich_help_panel="Reports and lessons")(command)


def trace(
    output: OutputOption,
    files: FilesArgument = None,
    layer: LayersOption = None,
    tiling: TilingsOption = None,
    config: ConfigsOption = None,
    window: Annotated[
        str, typer.Option("--window", help="Cycles shown, e.g. 0:20000; by default all.")
    ] = "",
    access: Annotated[
        bool, typer.Option("--access", help="Draw addresses over time instead of units.")
    ] = False,
    latency: LatencyOption = DEFAULT_LATENCY,
    bandwidth: BandwidthOption = 0.0,
) -> None:
    """Draw what every unit does in every cycle; several programs one below the other.

    The suffix of the output decides: .png .svg .pdf a picture, .html an interactive page, .json a
    trace for ui.perfetto.dev.

    Example: vtaops trace --layer tutorial.convolution_opt -o c8.html
    """
    from vtaops.report import access as access_diagram
    from vtaops.report import chrome_trace, interactive, save_figure, spacetime
    from vtaops.report.files import FIGURE_SUFFIXES, write_text

    suffix = output.suffix.lower()
    if suffix not in (*FIGURE_SUFFIXES, ".html", ".json"):
        raise UnsupportedError(
            f"cannot write {str(output)!r}; its name must end in .png, .svg, .pdf, .html or .json"
        )
    parameters = _parameters(latency, bandwidth)
    found = {
        name: program.timeline(parameters)
        for name, program in _programs(files, layer, tiling, config).items()
    }
    names, timelines, span = list(found), list(found.values()), _window(window)
    if (access or suffix == ".json") and len(found) > 1:
        raise ShapeError(f"this diagram shows one program, not {len(found)}: {', '.join(names)}")
    if access and suffix not in FIGURE_SUFFIXES:
        raise UnsupportedError(f"--access draws pictures; {suffix} is not one of {FIGURE_SUFFIXES}")
    if access:
        save_figure(access_diagram(timelines[0], span, names[0]), output)
    elif suffix == ".html":
        write_text(output, interactive(timelines, names, span))
    elif suffix == ".json":
        write_text(output, json.dumps(chrome_trace(timelines[0], names[0])))
    else:
        save_figure(spacetime(timelines, names, span), output)
    for name, timeline in found.items():
        typer.echo(f"{name}: {timeline.cycles:,} cycles, written to {output}")


def compare(
    files: FilesArgument = None,
    layer: LayersOption = None,
    tiling: TilingsOption = None,
    config: ConfigsOption = None,
    latency: LatencyOption = DEFAULT_LATENCY,
    bandwidth: BandwidthOption = 0.0,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Compare schedules or configurations: all statistics side by side, ratios to the first.

    Example: vtaops compare --layer resnet18.C8 --tiling oc=128,ic=16,h=7,w=14 --tiling default
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
    if as_json:
        typer.echo(json.dumps(reports, indent=2))
    elif as_csv:
        typer.echo(report.as_csv(reports), nl=False)
    else:
        Console().print(report.comparison_table(reports, "Comparison, ratios to the first"))


def roofline(
    output: OutputOption,
    layer: LayersOption = None,
    config: Annotated[str, typer.Option("--config", help="Configuration.")] = "pynq",
    latency: LatencyOption = DEFAULT_LATENCY,
    bandwidth: BandwidthOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Draw the roofline of layers (by default ResNet-18) and of their network.

    Example: vtaops roofline -o roofline.svg --json > roofline.json
    """
    from vtaops.compiler.driver import compile
    from vtaops.report import RooflinePoint, save_figure
    from vtaops.report import roofline as draw

    hardware, parameters = HardwareConfig.load(config), _parameters(latency, bandwidth)
    points = []
    for workload in _progress(_workloads(layer), "compiling"):
        program = compile(workload.op, hardware)
        name = workload.name.split(".")[-1]
        point = RooflinePoint.of(name, program.timeline(parameters))
        points.append((point, workload.occurrences))
    together = RooflinePoint.total("together", points) if len(points) > 1 else None
    title = f"{hardware.name} ({hardware.bitstream_id}): share of the array in use"
    bytes_per_cycle = bandwidth or parameters.port_width(hardware)
    figure = draw([p for p, _ in points], hardware.macs_per_cycle, bytes_per_cycle, together, title)
    save_figure(figure, output)
    if not as_json:
        typer.echo(f"{len(points)} layers, written to {output}")
        return
    drawn = {
        "title": title,
        "macs_per_cycle": hardware.macs_per_cycle,
        "bytes_per_cycle": bytes_per_cycle,
        "points": [{**asdict(point), "occurrences": times} for point, times in points],
        "total": asdict(together) if together else None,
    }
    typer.echo(json.dumps(drawn, indent=1))


# ------------------------------------------------------------------------------ details


def _programs(
    files: list[Path] | None,
    layers: list[str] | None,
    tilings: list[str] | None,
    configs: list[str] | None,
) -> dict[str, Program]:
    """Return all files, and all layers x tilings x configurations, by name."""
    found: dict[str, Program] = {}
    for name, program in _named_programs(files, layers, tilings, configs):
        if name in found:
            raise ShapeError(f"{name} is given twice; every program needs to differ")
        found[name] = program
    return found


def _named_programs(
    files: list[Path] | None,
    layers: list[str] | None,
    tilings: list[str] | None,
    configs: list[str] | None,
) -> Iterator[tuple[str, Program]]:
    from vtaops.cli.run import parse_tiling
    from vtaops.compiler.driver import compile
    from vtaops.schedule.workloads import find

    if not files and not layers:
        raise ShapeError("give a program file, or a named layer with --layer")
    stems = [file.stem for file in files or []]
    for file in files or []:
        name = file.stem if stems.count(file.stem) == 1 else str(file)
        yield name, Program.load(file)
    for layer in layers or []:
        workload = find(layer)
        for text in tilings or [""]:
            chosen = workload.tiling if not text else parse_tiling(text.replace("default", ""))
            for config in configs or ["pynq"]:
                shown = [text] if tilings else []
                shown += [config] if configs and len(configs) > 1 else []
                if len(layers or []) > 1 or not shown:
                    shown.insert(0, layer)
                name = " ".join(shown)
                yield name, compile(workload.op, HardwareConfig.load(config), chosen)


def _workloads(names: list[str] | None) -> list[Any]:
    from vtaops.schedule.workloads import WORKLOADS, find

    if names:
        return [find(name) for name in names]
    return [w for name, w in WORKLOADS.items() if name.startswith("resnet18.")]


def _parameters(latency: int, bandwidth: float) -> TimingParameters:
    return TimingParameters(dram_latency=latency, bandwidth=bandwidth or None)


def _window(text: str) -> tuple[int, int] | None:
    """Parse ``0:20000``."""
    if not text:
        return None
    try:
        first, last = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise ShapeError(f"--window is {text!r}; write two cycles: 0:20000") from error
    return first, last


def _progress(items: Any, description: str, total: int | None = None) -> Iterator[Any]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total or len(items), description=description)
