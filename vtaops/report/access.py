"""The access diagram: DRAM and scratchpad addresses over time.

One panel for each DRAM buffer (bytes) and each scratchpad (elements), over cycles. Transfers are
drawn as one line per row; every micro-op of a GEMM or ALU instruction is one dot in each scratchpad
that it addresses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.quoting import figure_text
from vtaops.base.shapes import Ints
from vtaops.machine.accesses import steps, tiles_of
from vtaops.machine.config import Memory
from vtaops.machine.isa import Depthwise, Gemm, LoopInstruction, Pool
from vtaops.program import MICRO_OPS, NO_BUFFER
from vtaops.program.timing import Event, Timeline
from vtaops.program.timing.lanes import KIND_COLORS
from vtaops.program.traffic import Transfer, transfers, walk
from vtaops.report.files import new_figure
from vtaops.report.style import add_legend, checked_window, show_cycles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]

_SCRATCHPADS = {"inp": "input scratchpad", "wgt": "weight scratchpad", "acc": "accumulators"}


@dataclass
class _Panel:
    """The contents of one address space's panel: lines and dots by kind of work."""

    title: str
    unit: str
    # Arrays of points (cycle, address): (n, 2, 2) and (n, 2).
    lines: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))
    dots: dict[str, list[Floats]] = field(default_factory=lambda: defaultdict(list))


def access(timeline: Timeline, window: tuple[int, int] | None = None, title: str = "") -> Figure:
    """Draw the accesses of a program over time.

    Parameters
    ----------
    timeline : Timeline
        Result of `Program.timeline`.
    window : (int, int), optional
        First and last cycle to show; by default everything.
    title : str
        Heading.

    Raises
    ------
    ShapeError
        If the window is empty or nothing is accessed in it.
    UnsupportedError
        If matplotlib is not installed.
    """
    window = checked_window(window, timeline.cycles)
    panels = [p for p in _panels(timeline, window).values() if p.lines or p.dots]
    if not panels:
        raise ShapeError(f"the program accesses nothing in the cycles {window[0]}..{window[1]}")
    figure = new_figure(14, 0.9 + 1.7 * len(panels))
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    kinds: set[str] = set()
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel)
        kinds |= set(panel.lines) | set(panel.dots)
    show_cycles(grid[-1], window)
    if title:
        figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    _legend(figure, kinds)
    return figure


def _panels(timeline: Timeline, window: tuple[int, int]) -> dict[object, _Panel]:
    program = timeline.program
    panels: dict[object, _Panel] = {}
    for index, buffer in enumerate(program.buffers):
        panels[index] = _Panel(f"DRAM: {buffer.name} ({buffer.role.value})", "bytes")
    panels[NO_BUFFER] = _Panel("DRAM: absolute", "bytes")
    for name, title in _SCRATCHPADS.items():
        panels[name] = _Panel(title, "elements")

    for transfer in transfers(program):
        event = timeline.events[transfer.index]
        if transfer.buffer == MICRO_OPS or not _overlaps(event, window):
            continue
        span = (event.start, event.end)
        panels[transfer.buffer].lines[event.kind].append(_rows(transfer, span))
        i = transfer.instruction
        line = np.array([[[span[0], i.sram_base], [span[1], i.sram_base + i.sram_size]]], float)
        scratchpad = {Memory.INP: "inp", Memory.WGT: "wgt"}.get(Memory(i.memory), "acc")
        panels[scratchpad].lines[event.kind].append(line)
    for kind, cycles, addresses in _micro_op_accesses(timeline, window):
        for name, values in addresses.items():
            for column in values.reshape(len(cycles), -1).astype(float).T:
                panels[name].dots[kind].append(np.stack([cycles, column], axis=1))
    return panels


def _rows(transfer: Transfer, span: tuple[int, int]) -> Floats:
    """Return one line per row, starting when the previous row has been moved."""
    count = len(transfer.row_start)
    times = np.linspace(span[0], span[1], count + 1)
    low = transfer.row_start
    lines = np.empty((count, 2, 2))
    lines[:, 0, 0], lines[:, 0, 1] = times[:-1], low
    lines[:, 1, 0], lines[:, 1, 1] = times[1:], low + transfer.row_nbytes
    return lines


def _micro_op_accesses(
    timeline: Timeline, window: tuple[int, int]
) -> Iterator[tuple[str, Floats, dict[str, Ints]]]:
    """Yield each GEMM and ALU instruction's cycle and elements of every micro-op.

    A window of input tiles has one column per tile.
    """
    for index, instruction, micro_ops in walk(timeline.program):
        event = timeline.events[index]
        if not isinstance(instruction, LoopInstruction) or not _overlaps(event, window):
            continue
        cycles = np.linspace(event.start, event.end, instruction.iterations, endpoint=False)
        inside = (cycles >= window[0]) & (cycles < window[1])
        if inside.any():
            found = _addresses(instruction, micro_ops).items()
            yield event.kind, cycles[inside], {name: values[inside] for name, values in found}


def _addresses(instruction: LoopInstruction, micro_ops: Ints) -> dict[str, Ints]:
    """Return the elements of each scratchpad that an instruction's steps address."""
    found = {"acc": steps(instruction, "dst", micro_ops).ravel()}
    if isinstance(instruction, Gemm | Pool) and not instruction.reset:
        found["inp"] = steps(instruction, "src", micro_ops).ravel()
        if isinstance(instruction, Gemm):
            found["wgt"] = steps(instruction, "wgt", micro_ops).ravel()
        if isinstance(instruction, Depthwise | Pool):
            found["inp"] = np.add.outer(found["inp"], np.arange(tiles_of(instruction)))
    return found


def _overlaps(event: Event, window: tuple[int, int]) -> bool:
    return event.end > window[0] and event.start < window[1]


def _draw(axes: Axes, panel: _Panel) -> None:
    from matplotlib.collections import LineCollection

    addresses = []
    for kind, parts in panel.dots.items():
        dots = np.concatenate(parts)
        addresses.append(dots[:, 1])
        size = 4.0 if len(dots) < 3000 else 0.6
        axes.scatter(
            dots[:, 0], dots[:, 1], s=size, color=KIND_COLORS[kind], linewidths=0,
            rasterized=True, alpha=0.8,
        )  # fmt: skip
    for kind, lines in panel.lines.items():
        segments = np.concatenate(lines)
        axes.add_collection(
            LineCollection(
                list(segments),
                colors=KIND_COLORS[kind],
                linewidths=1.6,
                zorder=3,
                capstyle="projecting",
            )
        )
        addresses.append(segments[..., 1].ravel())
    every = np.concatenate(addresses)
    lowest, highest = every.min(), every.max()
    margin = max(1.0, 0.04 * (highest - lowest))
    axes.set_ylim(lowest - margin, highest + margin)
    axes.set_title(figure_text(f"{panel.title}, {panel.unit}"), loc="left", fontsize=9)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, kinds: set[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=color, linewidth=3, label=kind)
        for kind, color in KIND_COLORS.items()
        if kind in kinds
    ]
    add_legend(figure, handles, len(handles))
