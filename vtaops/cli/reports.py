"""The commands ``vtaops report``: diagrams and comparisons.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from vtaops.base.errors import ShapeError
from vtaops.base.progress import tracked
from vtaops.cli.options import (
    Commands,
    Config,
    Configs,
    Layers,
    parse_tiling,
    progress_bar,
    say,
    show,
    to_write,
)
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program
from vtaops.report.files import FIGURE_SUFFIXES, write_text

report_app = Commands(name="report", help="Diagrams and comparisons.")


@report_app.command("program")
def program(
    files: Annotated[
        list[Path] | None, Argument(help="Program files (see: vtaops run op ... --save).")
    ] = None,
    *,
    output: Annotated[
        Path | None,
        to_write(
            "A picture (.png .svg .pdf), an interactive page (.html), or a trace for Perfetto "
            "(.json, of one program) of the activity of every unit in every cycle.",
            *FIGURE_SUFFIXES,
            ".html",
            ".json",
        ),
    ] = None,
    layer: Layers = None,
    tiling: Annotated[
        list[str] | None,
        Option("--tiling", help="A tiling: oc=128,ic=16,h=7,w=14, or 'default'; may be repeated."),
    ] = None,
    config: Configs = None,
    window: Annotated[
        str, Option(help="Cycles of the picture, e.g. 0:20000; all by default.")
    ] = "",
) -> None:
    """Show all statistics of programs side by side, with ratios to the first; draw their cycles.

    Example: vtaops report program --layer resnet18.C8 --config pynq --config pynq_ext

    Example: vtaops report program --layer tutorial.convolution_opt -o c8.html
    """
    from vtaops.report import (
        chrome_trace,
        interactive,
        save_figure,
        spacetime,
        statistics_data,
        statistics_table,
    )

    span = _window(window)
    programs = _programs(files, layer, tiling, config)
    timelines = [program.timeline() for program in programs.values()]
    data = (statistics_data(each.program, each.program.stats(), each) for each in timelines)
    reports = dict(zip(programs, data, strict=True))
    show(reports, statistics_table(reports, "Ratios to the first" if len(reports) > 1 else ""))
    if output is None:
        return
    if output.suffix.lower() == ".html":
        write_text(output, interactive(timelines, [*programs], span))
    elif output.suffix.lower() == ".json":
        write_text(output, json.dumps(chrome_trace(timelines[0], next(iter(programs)))))
    else:
        save_figure(spacetime(timelines, [*programs], span), output)
    say(f"written to {output}", err=True)


@report_app.command("roofline")
def roofline(
    *,
    output: Annotated[Path, to_write("A picture.", *FIGURE_SUFFIXES)],
    layer: Layers = None,
    config: Config = "pynq",
) -> None:
    """Draw the roofline of layers (by default ResNet-18) and of their network.

    Example: vtaops report roofline -o roofline.svg --json > roofline.json
    """
    from vtaops.compiler.driver import compile
    from vtaops.report import RooflinePoint, save_figure
    from vtaops.report import roofline as draw
    from vtaops.schedule.workloads import WORKLOADS, find

    hardware = HardwareConfig.load(config)
    names = layer or [name for name in WORKLOADS if name.startswith("resnet18.")]
    points = []
    with progress_bar():
        for workload in tracked("compiling", [*map(find, names)]):
            timeline = compile(workload.op, hardware).timeline()
            point = RooflinePoint.of(workload.name.split(".")[-1], timeline)
            points.append((point, workload.occurrences))
    together = RooflinePoint.total("together", points) if len(points) > 1 else None
    title = f"{hardware.name} ({hardware.bitstream_id}): share of the array in use"
    peak, port = hardware.macs_per_cycle, hardware.port_width
    figure = draw([p for p, _ in points], peak, port, together, title)
    save_figure(figure, output)
    drawn = {
        "title": title,
        "macs_per_cycle": peak,
        "bytes_per_cycle": port,
        "points": [{**asdict(point), "occurrences": times} for point, times in points],
        "total": asdict(together) if together else None,
    }
    show(drawn, f"{len(points)} layers, written to {output}")


# ------------------------------------------------------------------------------ details


def _window(text: str) -> tuple[int, int] | None:
    """Parse ``1000:2000``, the first cycle and the end of a window; None for an empty text."""
    if not text:
        return None
    first, _, end = text.partition(":")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise ShapeError(f"--window is {text!r}; write two cycles, the smaller one first: 0:20000")
    return int(first), int(end)


def _programs(
    files: list[Path] | None,
    layers: list[str] | None,
    tilings: list[str] | None,
    configs: list[str] | None,
) -> dict[str, Program]:
    """Return the programs of all files and all layers x tilings x configurations, by name."""
    if not files and not layers:
        raise ShapeError("give a program file, or a named layer with --layer")
    with progress_bar("compile"):
        found = [(str(file), Program.load(file)) for file in files or []]
        found += _compiled(layers or [], tilings or [""], configs or ["pynq"])
    programs = dict(found)
    if len(programs) < len(found):
        raise ShapeError(f"a program is given twice: {', '.join(name for name, _ in found)}")
    return programs


def _compiled(
    layers: Sequence[str], tilings: Sequence[str], configs: Sequence[str]
) -> Iterator[tuple[str, Program]]:
    """Yield the programs of layers x tilings x configurations, named by their differences."""
    from vtaops.compiler.driver import compile
    from vtaops.schedule.workloads import find

    for layer, tiling, config in product(layers, tilings, configs):
        workload = find(layer)
        parts = [tiling] if tiling else []
        parts += [config] if len(configs) > 1 else []
        if len(layers) > 1 or not parts:
            parts.insert(0, layer)
        explicit = parse_tiling(tiling.replace("default", "")) if tiling else workload.tiling
        yield " ".join(parts), compile(workload.op, HardwareConfig.load(config), explicit)
