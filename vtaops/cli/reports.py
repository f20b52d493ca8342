"""The commands of `vtaops` for diagrams and comparisons: trace, compare, roofline, lesson.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.cli.options import DEFAULT_LATENCY, parse_tiling, progress_bar, read_cycles, show
from vtaops.machine.config import HardwareConfig
from vtaops.program import Program
from vtaops.program.timing import TimingParameters

if TYPE_CHECKING:
    from vtaops.kernels.lessons import Lesson, LessonRow


def trace(
    files: list[Path] | None = None,
    *,
    output: Path,
    layer: list[str] | None = None,
    tiling: list[str] | None = None,
    config: list[str] | None = None,
    window: str = "",
    access: bool = False,
    latency: int = DEFAULT_LATENCY,
    bandwidth: float = 0.0,
) -> None:
    """Draw the activity of every unit in every cycle; stack several programs.

    The suffix of the output determines the format: .png .svg .pdf a picture, .html an interactive
    page, .json a trace for ui.perfetto.dev.

    Example: vtaops trace --layer tutorial.convolution_opt -o c8.html

    Parameters
    ----------
    window
        Cycles to show, e.g. 0:20000; all by default.
    access
        Draw addresses over time instead of units.
    config
        A configuration (default pynq); may be repeated.
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
    names, timelines = list(found), list(found.values())
    span = read_cycles("--window", window)
    if (access or suffix == ".json") and len(found) > 1:
        raise ShapeError(f"this diagram shows one program, not {len(found)}: {', '.join(names)}")
    if access and suffix not in FIGURE_SUFFIXES:
        raise UnsupportedError(f"--access draws pictures; {suffix} is not one of {FIGURE_SUFFIXES}")
    if suffix == ".html":
        write_text(output, interactive(timelines, names, span))
    elif suffix == ".json":
        write_text(output, json.dumps(chrome_trace(timelines[0], names[0])))
    elif access:
        save_figure(access_diagram(timelines[0], span, names[0]), output)
    else:
        save_figure(spacetime(timelines, names, span), output)
    for name, timeline in found.items():
        typer.echo(f"{name}: {timeline.cycles:,} cycles, written to {output}")


def compare(
    files: list[Path] | None = None,
    *,
    layer: list[str] | None = None,
    tiling: list[str] | None = None,
    config: list[str] | None = None,
    latency: int = DEFAULT_LATENCY,
    bandwidth: float = 0.0,
    as_json: bool = False,
    as_csv: bool = False,
) -> None:
    """Compare schedules or configurations: all statistics side by side, with ratios to the first.

    Example: vtaops compare --layer resnet18.C8 --tiling oc=128,ic=16,h=7,w=14 --tiling default

    Parameters
    ----------
    config
        A configuration (default pynq); may be repeated.
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
    if as_csv and not as_json:
        typer.echo(report.as_csv(reports), nl=False)
    else:
        table = report.comparison_table(reports, "Comparison, ratios to the first")
        show(reports, as_json, table)


def roofline(
    *,
    output: Path,
    layer: list[str] | None = None,
    config: str = "pynq",
    latency: int = DEFAULT_LATENCY,
    bandwidth: float = 0.0,
    as_json: bool = False,
) -> None:
    """Draw the roofline of layers (by default ResNet-18) and of their network.

    Example: vtaops roofline -o roofline.svg --json > roofline.json

    Parameters
    ----------
    config
        Configuration.
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
    show(drawn, as_json, f"{len(points)} layers, written to {output}")


def lesson(
    name: str,
    *,
    target: str = "cpu",
    size: Annotated[list[int] | None, typer.Option(min=1)] = None,
    stage: list[str] | None = None,
    budget: float = 0.5,
    threads: Annotated[int | None, typer.Option(min=1)] = None,
    card: str = "T4",
    script: bool = False,
    plot: Path | None = None,
    as_json: bool = False,
) -> None:
    """Run the optimisation stages of a kernel and print the gain of each.

    For a GPU that is not present, the emulator counts each stage's accesses to memory and shared
    memory and derives the minimum time on a card. The plot shows the limits of the processor or
    card as lines.

    Example: vtaops lesson matmul --size 64 --size 256 --threads 1 --plot matmul.png

    Parameters
    ----------
    name
        vector_add, broadcast_add, matmul, conv2d, depthwise, max_pool, avg_pool or batch_norm.
    target
        cpu or cuda.
    size
        Problem size; default: that of the lesson; several sizes give curves.
    stage
        Only this stage; may be repeated.
    budget
        Seconds of timing per stage.
    threads
        Number of threads of CPU kernels; default: all.
    card
        Card for the bounds without a GPU: GTX 1080, P100, V100, T4, A100, H100.
    script
        Print the TIR of each stage.
    plot
        Plot the speed of the stages: .png or .svg.
    """
    if threads is not None:
        os.environ["TVM_NUM_THREADS"] = str(threads)  # read when TVM is imported
    from vtaops.kernels.lessons import find_lesson, lesson_table, run_lesson, where

    chosen = find_lesson(name, target)
    sizes = size or [chosen.size]
    found = {n: run_lesson(chosen, n, tuple(stage or ()), budget, card) for n in sizes}
    title, machine = f"{name} on {target}", where(target, card)
    parts: list[Table | str] = []
    for n, rows in found.items():
        if script:
            parts += [f"# ==== {row.stage}: {row.explanation}\n{row.script}\n" for row in rows]
        parts.append(lesson_table(rows, f"{title}, {n} {chosen.meaning}: {machine}"))
    records = [{"size": n, **asdict(row)} for n, rows in found.items() for row in rows]
    show(records, as_json, *parts)
    if plot is not None:
        _draw_lesson(chosen, found, title, machine, card, plot)


# ------------------------------------------------------------------------------ details


def _draw_lesson(
    lesson: Lesson,
    found: dict[int, list[LessonRow]],
    title: str,
    machine: str,
    card: str,
    path: Path,
) -> None:
    """Plot the speed of the stages: bars for one size, curves for several."""
    from vtaops.kernels.lessons import curves_plot, lesson_plot, limits

    bounds = {size: limits(lesson, size, card) for size in found}
    if len(found) > 1:
        curves_plot(found, bounds, f"{title}, size in {lesson.meaning}\n{machine}", path)
        return
    ((size, rows),) = found.items()
    lesson_plot(rows, f"{title}, {size} {lesson.meaning}\n{machine}", path, bounds[size])


def _programs(
    files: list[Path] | None,
    layers: list[str] | None,
    tilings: list[str] | None,
    configs: list[str] | None,
) -> dict[str, Program]:
    """Return the programs of all files and all layers x tilings x configurations, by name."""
    if not files and not layers:
        raise ShapeError("give a program file, or a named layer with --layer")
    found: dict[str, Program] = {}
    compiled = _compiled(layers or [], tilings or [], configs or [])
    for name, program in itertools.chain(_loaded(files or []), compiled):
        if name in found:
            raise ShapeError(f"{name} is given twice; every program needs to differ")
        found[name] = program
    return found


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
