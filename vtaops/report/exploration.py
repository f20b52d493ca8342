"""Table, Pareto plot and interactive page of an exploration.

Works on rows of plain data, `vtaops.explore.Point.as_dict` with the key ``front`` (whether the
point is non-dominated); independent of how they were found. The page's drawing code is
``exploration.html`` beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from vtaops.base.errors import ShapeError
from vtaops.base.quoting import figure_text
from vtaops.program.html import page
from vtaops.report.files import new_figure
from vtaops.report.style import rule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

_LOGARITHMIC = 12  # ratio of largest to smallest value above which an axis is logarithmic
_LABEL_PIXELS = 40  # points of a diagram that are closer share one label
_NUMBERED = 24  # points of the front that are explained beside the diagram
LIMIT_COLORS = {"compute": "#2e9e5b", "port": "#4c9be8", "latency": "#d9534f", "": "#5f6b7a"}
"""Colour of each bottleneck."""

LABELS = {
    "cycles": "cycles",
    "ms": "time, ms",
    "dram_nbytes": "DRAM traffic, bytes",
    "energy_uj": "energy, µJ (estimate)",
    "sram_nbytes": "on-chip memory, bytes",
    "multipliers": "multipliers",
    "lut": "LUTs (estimate)",
    "dsp": "DSP blocks (estimate)",
    "bram": "block RAMs (estimate)",
}
"""Objective columns, with their names in diagrams."""

COLUMNS = {
    "cycles": "cycles", "ms": "ms", "dram": "dram_nbytes", "energy": "energy_uj",
    "sram": "sram_nbytes", "multipliers": "multipliers", "lut": "lut", "dsp": "dsp", "bram": "bram",
}  # fmt: skip
"""Name of an objective (`vtaops.explore.OBJECTIVES`) -> the column of a row."""


def exploration_table(rows: Sequence[Row], title: str, most: int = 40) -> Table:
    """Return the points as a table, fastest first; a star marks the front.

    Columns: the design (block sizes, logarithms of the scratchpads' bytes for micro-ops, inputs,
    weights and accumulators, the port, its latency, the clock, extensions), cycles, milliseconds,
    DRAM traffic, estimated energy, LUTs and block RAMs, and what limits it.

    Parameters
    ----------
    rows : sequence of dict
        The points.
    title : str
        Title of the table.
    most : int
        Maximum number of points; if exceeded, those of the front come first.
    """
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("design")  # folds on narrow terminals
    for column in ("cycles", "ms", "MB", "µJ", "kLUT", "BRAM", "limit", ""):
        table.add_column(column, justify="right", no_wrap=True)
    ordered = _ordered(rows)
    if len(ordered) > most:
        ordered = _ordered(sorted(ordered, key=lambda row: not row["front"])[:most])
    for row in ordered:
        if not row["complete"]:
            table.add_row(_name(row), Text("does not run all", "red"))
            continue
        table.add_row(
            _name(row),
            f"{row['cycles']:,}",
            f"{row['ms']:.2f}",
            f"{row['dram_nbytes'] / 1e6:.1f}" if "dram_nbytes" in row else "",
            f"{row['energy_uj']:,.0f}" if "energy_uj" in row else "",
            f"{row['lut'] / 1e3:.0f}",
            f"{row['bram']:g}",
            row.get("limit", ""),
            "*" if row["front"] else "",
        )
    return table


def front_plot(rows: Sequence[Row], title: str, x: str = "sram", y: str = "cycles") -> Figure:
    """Plot one objective against another, coloured by the bottleneck of each point.

    Filled points are non-dominated; their numbers are explained beside the diagram.

    Parameters
    ----------
    rows : sequence of dict
        The points.
    title : str
        Title of the diagram.
    x, y : str
        Names of objectives (`COLUMNS`).

    Raises
    ------
    ShapeError
        If no design runs all layers.
    UnsupportedError
        If matplotlib is not installed.
    """
    across, up = COLUMNS[x], COLUMNS[y]
    shown = [row for row in _ordered(rows) if row["complete"] and {across, up} <= row.keys()]
    if not shown:
        raise ShapeError("no design runs all layers and has both objectives: nothing to draw")
    figure = new_figure(11, 6)
    axes = figure.add_subplot()
    _scatter(axes, shown, across, up)
    best = sorted((row for row in shown if row["front"]), key=lambda row: (row[across], row[up]))
    _line(axes, best, across, up)
    _scale(axes, "x", shown, across)
    _scale(axes, "y", shown, up)
    axes.margins(x=0.12, y=0.1)
    axes.set_title(figure_text(title), loc="left")
    rule(axes)
    axes.legend(frameon=False, fontsize=9)
    _number(axes, [(row[across], row[up]) for row in best[:_NUMBERED]])
    lines = [f"{number:>3}  {_name(row)}" for number, row in enumerate(best[:_NUMBERED], 1)]
    figure.text(0.69, 0.94, "\n".join(lines), ha="left", va="top", fontsize=7, family="monospace")
    figure.get_layout_engine().set(rect=(0, 0, 0.68, 1))  # type: ignore[call-arg, union-attr]
    return figure


def _line(axes: Axes, best: Sequence[Row], across: str, up: str) -> None:
    """Join the points of the front that no other one beats in both objectives."""
    edge = [row for i, row in enumerate(best) if all(row[up] < r[up] for r in best[:i])]
    axes.plot([r[across] for r in edge], [r[up] for r in edge], color="#9aa5ad", linewidth=1)


def _scatter(axes: Axes, rows: Sequence[Row], across: str, up: str) -> None:
    """Draw the points and label their colours."""
    for limit, color in LIMIT_COLORS.items():
        mine = [row for row in rows if row.get("limit", "") == limit]
        if not mine:
            continue
        label = f"limited by {limit}" if limit else "estimated"
        axes.scatter([], [], s=42, color=color, label=label)
        for best, face, size in ((False, "none", 26), (True, color, 42)):
            some = [row for row in mine if row["front"] == best]
            x, y = ([row[column] for row in some] for column in (across, up))
            axes.scatter(
                x, y, s=size, facecolor=face, edgecolor=color, linewidth=0.9, zorder=2 + best
            )
    if not all(row["front"] for row in rows):
        beaten = "another is at least as good in every objective"
        axes.scatter([], [], s=26, facecolor="none", edgecolor=LIMIT_COLORS[""], label=beaten)


def _scale(axes: Axes, name: str, rows: Sequence[Row], column: str) -> None:
    """Label an axis; make it logarithmic if its values vary widely."""
    axis = getattr(axes, f"{name}axis")
    values = [row[column] for row in rows]
    label = LABELS[column]
    if max(values) > _LOGARITHMIC * min(values) > 0:
        axes.set(**{f"{name}scale": "log"})
        label += " (logarithmic)"
    axis.set_label_text(label)
    axis.set_major_formatter(_short)
    axis.set_minor_formatter(lambda v, _: _short(v, _) if f"{v:.0e}"[0] in "25" else "")
    axis.set_tick_params(which="both", labelsize=9)


def _number(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Write a number on each non-dominated point; close points share a label."""
    axes.autoscale_view()
    groups: list[tuple[Any, list[int]]] = []
    for number, point in enumerate(points, 1):
        place = axes.transData.transform(point)
        near = [own for first, own in groups if max(abs(place - first)) < _LABEL_PIXELS]
        if near:
            near[0].append(number)
        else:
            groups.append((place, [number]))
    for _, numbers in groups:
        axes.annotate(
            ", ".join(map(str, numbers)), points[numbers[0] - 1], fontsize=9, xytext=(-5, -4),
            textcoords="offset points", ha="right", va="top",
        )  # fmt: skip


def exploration_page(
    rows: Sequence[Row], title: str, layers: Sequence[Sequence[dict[str, Any]]] = ()
) -> str:
    """Return a page that plots the points in any two objectives, and compares two layer by layer.

    One self-contained file. Hovering explains a point; clicking two compares them. Below are
    parallel coordinates: drag along an axis to filter the points.

    Parameters
    ----------
    rows : sequence of dict
        The points.
    title : str
        Title of the page.
    layers : sequence of sequence of dict
        Layers of each point: name, occurrences, cycles, tiling.
    """
    kept = [index for index, row in enumerate(rows) if row["complete"]]
    shown = [rows[index] for index in kept]
    first = shown[0] if shown else {}
    data = {
        "title": title,
        "rows": shown,
        "names": [_name(row) for row in shown],
        "layers": [layers[index] for index in kept] if layers else [],
        "objectives": [name for name in LABELS if name in first],
        "labels": LABELS,
        "axes": varying(shown),
        "colors": LIMIT_COLORS,
    }
    return page(Path(__file__).with_name("exploration.html"), title, data)


def varying(rows: Sequence[Row]) -> list[str]:
    """Return the axes of the space that vary, then the objectives that do."""
    axes = [name for row in rows[:1] for name in row if name.isupper()]
    objectives = [name for name in LABELS if all(name in row for row in rows)]
    return [name for name in axes + objectives if len({row[name] for row in rows}) > 1]


def _ordered(rows: Sequence[Row]) -> list[Row]:
    return sorted(
        rows, key=lambda r: (not r["complete"], r.get("cycles", 0), r["sram_nbytes"], r["lut"])
    )


def _name(row: Row) -> str:
    """Return a short name: block sizes, scratchpads, extensions, machine."""
    sizes = "_".join(str(row[f"LOG_{memory}_BUFF_SIZE"]) for memory in ("UOP", "INP", "WGT", "ACC"))
    name = f"{1 << row['LOG_BATCH']}x{1 << row['LOG_BLOCK']} {sizes} {row['PORT_BYTES']}B"
    name += f" {row['DRAM_LATENCY']}c" + (f" {row['BANDWIDTH']:g}B/c" if row["BANDWIDTH"] else "")
    return f"{name} {row['CLOCK_MHZ']}MHz {row['EXTENSIONS']}".strip()


def _short(value: float, _: Any) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
