"""Table and Pareto plot of a design-space sweep (`vtaops.sweep`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from vtaops.errors import ShapeError
from vtaops.report.files import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vtaops.config import HardwareConfig
    from vtaops.sweep import SweepPoint

_PALETTE = ("#4c9be8", "#2e9e5b", "#f39c34", "#d9534f", "#7b61c9", "#17a2b8", "#5f6b7a")


def sweep_data(points: Sequence[SweepPoint], front: Sequence[SweepPoint]) -> list[dict[str, Any]]:
    """Return a sweep as plain data, one entry per configuration.

    Parameters
    ----------
    points : sequence of SweepPoint
        Result of `vtaops.sweep.sweep`.
    front : sequence of SweepPoint
        Those that nothing beats (`vtaops.sweep.pareto`).
    """
    return [
        {
            "config": point.config.name,
            "bitstream_id": point.config.bitstream_id,
            "multipliers": point.multipliers,
            "sram_nbytes": point.sram_nbytes,
            "cycles": point.total_cycles if point.complete else None,
            "dram_nbytes": point.dram_nbytes if point.complete else None,
            "utilization": point.utilization if point.complete else None,
            "pareto": point in front,
            "workloads": point.cycles,
            "failures": point.failures,
        }
        for point in points
    ]


def sweep_table(points: Sequence[SweepPoint], front: Sequence[SweepPoint], title: str) -> Table:
    """Return a sweep as a table, fastest first; parameters as `sweep_data`.

    Columns: multipliers of the array, KiB of on-chip memory, cycles, share of them in which the
    array is used, DRAM traffic, and whether no other configuration is better in all of the first
    three.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("configuration", no_wrap=True)
    for column in ("mult.", "KiB", "cycles", "array", "DRAM MB", "best"):
        table.add_column(column, justify="right", no_wrap=True)
    for number, point in enumerate(_ordered(points), 1):
        fixed = (
            str(number),
            _short_name(point),
            str(point.multipliers),
            f"{point.sram_nbytes / 1024:,.0f}",
        )
        if not point.complete:
            lacking = f"[red]not {', '.join(n.split('.')[-1] for n in point.failures)}[/red]"
            table.add_row(*fixed, lacking, "", "", "")
            continue
        table.add_row(
            *fixed,
            f"{point.total_cycles:,}",
            f"{100 * point.utilization:.0f} %",
            f"{point.dram_nbytes / 1e6:.1f}",
            "*" if point in front else "",
        )
    return table


def _short_name(point: SweepPoint) -> str:
    """Return the id, which tells all parameters, after a name that is not made of them."""
    config = point.config
    return config.bitstream_id if "=" in config.name else f"{config.name} {config.bitstream_id}"


def _ordered(points: Sequence[SweepPoint]) -> list[SweepPoint]:
    return sorted(points, key=lambda p: (not p.complete, p.total_cycles, p.sram_nbytes))


def pareto_plot(points: Sequence[SweepPoint], front: Sequence[SweepPoint], title: str) -> Figure:
    """Draw cycles against on-chip memory, a colour for each number of multipliers.

    Filled points are those that nothing beats; a line joins those with as many multipliers. Their
    numbers are those of `sweep_table`.

    Raises
    ------
    ShapeError
        If no configuration runs all workloads.
    UnsupportedError
        If matplotlib is not installed.
    """
    complete = [point for point in points if point.complete]
    if not complete:
        raise ShapeError("no configuration runs all workloads; there is nothing to draw")
    figure = new_figure(11, 6)
    axes = figure.add_subplot()
    ordered = _ordered(points)
    numbers: dict[HardwareConfig, int] = {}
    for position, multipliers in enumerate(sorted({p.multipliers for p in complete})):
        color = _PALETTE[position % len(_PALETTE)]
        mine = [p for p in complete if p.multipliers == multipliers]
        best = sorted((p for p in mine if p in front), key=lambda p: p.sram_nbytes)
        others = [p for p in mine if p not in front]
        axes.scatter(
            [p.sram_nbytes / 1024 for p in others], [p.total_cycles for p in others], s=42,
            facecolor="none", edgecolor=color,
        )  # fmt: skip
        axes.plot(
            [p.sram_nbytes / 1024 for p in best], [p.total_cycles for p in best], "o-",
            color=color, markersize=7, linewidth=1.4, label=f"{multipliers} multipliers",
        )  # fmt: skip
        for point in best:
            number = numbers[point.config] = ordered.index(point) + 1
            axes.annotate(
                str(number), (point.sram_nbytes / 1024, point.total_cycles), fontsize=9,
                xytext=(4, 5), textcoords="offset points",
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="on-chip memory, KiB", ylabel="cycles")
    axes.margins(x=0.18, y=0.12)
    axes.set_title(title, loc="left")
    axes.grid(True, which="both", color="#e3e6e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axes.xaxis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "25" else "")
    axes.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    axes.yaxis.set_minor_formatter(lambda v, _: f"{v:,.0f}" if f"{v:.0e}"[0] in "25" else "")
    axes.legend(frameon=False, fontsize=9)
    listed = sorted((number, config.bitstream_id) for config, number in numbers.items())
    lines = "\n".join(f"{number:>3}  {name}" for number, name in listed)
    figure.text(0.76, 0.94, lines, ha="left", va="top", fontsize=8, family="monospace")
    figure.get_layout_engine().set(rect=(0, 0, 0.74, 1))  # type: ignore[call-arg, union-attr]
    return figure
