"""Pictures of whole networks: timelines of launches, roofline of layers, memory map.

matplotlib is imported only by the functions that draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.quoting import figure_text
from vtaops.model.report import layer_cycles, part
from vtaops.program import Buffer, Program
from vtaops.program.timing import TimingParameters
from vtaops.program.timing.interactive import interactive
from vtaops.report.files import new_figure
from vtaops.report.roofline import RooflinePoint, roofline

_POINTS = (680, 350)
"""Width and height of the memory map in points."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vtaops.model import Model


def network_page(*models: Model) -> str:
    """Return the timelines of all launches as one self-contained page.

    Several models, such as one network with and without an extension, are shown one below the
    other.
    """
    timelines, titles = [], []
    for model in models:
        name = f"{model.name} on {model.config.name}" if len(models) > 1 else model.name
        for number, program in enumerate(model.programs, 1):
            timelines.append(program.timeline())
            titles.append(f"{name}, launch {number}" if len(model.programs) > 1 else name)
    return interactive(timelines, titles)


def network_roofline(model: Model) -> Figure:
    """Draw the roofline of each layer, against the array and the DRAM port.

    Cycles are those of the layer in the network; its own ceiling is set by its tile products,
    resets and vector ALU passes. Labels number the VTA operators in order of execution; a layer
    whose loads overlapped with the previous layer can lie above the slope.

    Raises
    ------
    ShapeError
        If nothing of the network runs on VTA.
    """
    points: list[RooflinePoint] = []
    for region in model.regions:
        for record, cycles in layer_cycles(region.program.timeline()):
            own = part(region.program, record)
            stats = own.stats()
            reads = stats.dram_nbytes - stats.out_store_nbytes + own.instructions.nbytes
            points.append(
                RooflinePoint(
                    f"#{len(points)}",
                    stats.gemm_counter * model.config.macs_per_micro_op,
                    max(reads, stats.out_store_nbytes),
                    stats.gemm_counter // model.config.products_per_cycle + stats.alu_counter,
                    max(1, cycles),
                )
            )
    width = TimingParameters().port_width(model.config)
    title = f"{model.name} on {model.config.name}: share of the array in use"
    total = RooflinePoint.total("together", [(point, 1) for point in points])
    return roofline(points, model.config.macs_per_cycle, width, total, title)


def memory_map(model: Model) -> Figure:
    """Draw the arena of the largest region: addresses and lifetimes of its images.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.
    """
    program = max(model.programs, key=lambda p: p.arena_nbytes)
    figure = new_figure(11, 6)
    axes = figure.add_subplot()
    colors = cycle(("#4c9be8", "#2e9e5b", "#f39c34", "#7b61c9", "#17a2b8", "#d9534f"))
    for buffer, first, last in _used(program):
        assert buffer.offset is not None
        axes.barh(
            buffer.offset / 1e3,
            last - first + 1,
            height=buffer.nbytes / 1e3,
            left=first,
            align="edge",
            color=next(colors),
            alpha=0.75,
            edgecolor="white",
        )
        across = _POINTS[0] * (last - first + 1) / len(program.operators)
        upwards = _POINTS[1] * buffer.nbytes / program.arena_nbytes
        if 4.2 * len(buffer.name) < max(across, upwards) and min(across, upwards) > 9:
            middle = (buffer.offset + buffer.nbytes / 2) / 1e3
            axes.text(
                (first + last + 1) / 2, middle, figure_text(buffer.name), ha="center", va="center",
                fontsize=7, rotation=0 if 4.2 * len(buffer.name) < across else 90,
            )  # fmt: skip
    axes.set_xlim(0, len(program.operators))
    axes.set_ylim(0, max(1, program.arena_nbytes) / 1e3)
    axes.set_xlabel("operators of VTA, in the order of execution")
    axes.set_ylabel("arena, kB")
    axes.set_title(
        f"{figure_text(model.name)}: images in DRAM over time, "
        f"at most {program.arena_nbytes / 1e3:,.0f} kB",
        loc="left",
        fontsize=11,
    )
    return figure


def _used(program: Program) -> Iterator[tuple[Buffer, int, int]]:
    """Yield the buffers of the arena, each with its first and last operator."""
    steps: dict[int, list[int]] = defaultdict(list)
    for step, record in enumerate(program.operators):
        for first, end in record.spans:
            for buffer in np.unique(program.relocations[first:end]).tolist():
                steps[buffer].append(step)
    for index, buffer in enumerate(program.buffers):
        if buffer.offset is not None and index in steps:
            yield buffer, min(steps[index]), max(steps[index])
