"""Colours, order and style shared by all reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from vtaops.base.errors import ShapeError
from vtaops.program.timing import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LANES = ("fetch", "load", "compute", "store")
"""Units, from top to bottom."""

PORT_LANES = ("port read", "port write", "port weights")
"""Use of the DRAM ports, below the units; `port_lanes` selects those of a timeline."""


def port_lanes(*timelines: Timeline) -> tuple[str, ...]:
    """Return the lanes of the ports that any of the timelines has."""
    return PORT_LANES[: 2 + max(timeline.program.config.weight_port for timeline in timelines)]


KIND_COLORS = {
    "fetch": "#7f7f7f",
    "load inp": "#4c9be8",
    "load wgt": "#7b61c9",
    "load uop": "#5f6b7a",
    "load acc": "#17a2b8",
    "gemm": "#2e9e5b",
    "reset": "#a9d8a0",
    "alu": "#f39c34",
    "store": "#d9534f",
    "control": "#222222",
}
"""Colour of each kind of work."""

WAIT_COLORS = {
    "instruction": "#c8c8c8",
    "load token": "#4c9be8",
    "compute token": "#2e9e5b",
    "store token": "#d9534f",
    "dram": "#8d6e63",
    "pipeline": "#9e9e9e",
    "queue full": "#9e9e9e",
}
"""Hatching colour of each cause of waiting: that of the awaited unit."""

TOKEN_COLORS = {
    "load>compute": "#1f6fb8",
    "compute>load": "#1d7a43",
    "compute>store": "#c77514",
    "store>compute": "#b02a2a",
}
"""Colour of the tokens of each queue."""

PALETTE = ("#4c9be8", "#2e9e5b", "#f39c34", "#d9534f", "#7b61c9", "#17a2b8", "#5f6b7a")
"""Colours without a fixed meaning."""


def headline(timeline: Timeline, title: str = "") -> str:
    """Return the heading of a timeline: title, cycles, GEMM array utilization."""
    text = f"{timeline.cycles:,} cycles, GEMM array {100 * timeline.gemm_utilization:.0f} % used"
    return f"{title}: {text}" if title else text


def new_table(title: str, left: Sequence[str], right: Sequence[str], dim: Sequence[str]) -> Table:
    """Return an empty table for the terminal with columns of names, numbers and remarks."""
    table = Table(title=title, title_justify="left", show_header=True, header_style="bold")
    for column in left:
        table.add_column(column, overflow="fold")
    for column in right:
        table.add_column(column, justify="right", overflow="fold")
    for column in dim:
        table.add_column(column, style="dim", overflow="fold")
    return table


def checked_window(window: tuple[int, int] | None, cycles: int) -> tuple[int, int]:
    """Return the first and last cycle to show; by default everything.

    Raises
    ------
    ShapeError
        If the window is empty.
    """
    first, last = window or (0, cycles)
    if not 0 <= first < last:
        raise ShapeError(f"the window is {first}..{last}; give two cycles, the first one smaller")
    return first, last


def show_cycles(axes: Axes, window: tuple[int, int]) -> None:
    """Label the horizontal axis with the cycles of a window."""
    axes.set_xlim(*window)
    axes.set_xlabel("cycles")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def rule(axes: Axes) -> None:
    """Draw a grid behind the data, with minor lines for logarithmic axes."""
    axes.grid(True, which="both", color="#e3e6e8", linewidth=0.6)
    axes.set_axisbelow(True)


def add_legend(figure: Figure, handles: Sequence[Any], most: int) -> None:
    """Add a legend below all diagrams of a figure, with at most `most` columns."""
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), most),
        fontsize=8,
        frameon=False,
    )
