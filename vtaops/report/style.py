"""Style shared by all reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from vtaops.base.errors import ShapeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
