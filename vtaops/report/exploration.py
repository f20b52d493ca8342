"""Table and interactive page of an exploration.

Works on rows of plain data, `vtaops.explore.Point.as_dict` with the key ``front`` (whether the
point is non-dominated); independent of how they were found. The page's drawing code is
``exploration.html`` beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from rich.table import Table

from vtaops.program.html import page
from vtaops.report.style import list_table

Row = dict[str, Any]

LIMIT_COLORS = {"compute": "#2e9e5b", "port": "#4c9be8", "latency": "#d9534f", "": "#5f6b7a"}
"""Colour of each bottleneck."""

MOST = 40
"""Points of a table; of more, those of the front come first."""

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


def exploration_table(rows: Sequence[Row], title: str) -> Table:
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
    """
    numbers = ("cycles", "ms", "MB", "µJ", "kLUT", "BRAM", "limit", "")
    table = list_table(title, {"design": ""} | dict.fromkeys(numbers, ">"))
    first = sorted(_ordered(rows), key=lambda row: not row["front"])
    for row in _ordered(first[:MOST]):
        if not row["complete"]:
            table.add_row(_name(row), "does not run all")
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
    complete = [row["complete"] for row in rows]
    shown = [*compress(rows, complete)]
    data = {
        "title": title,
        "rows": shown,
        "names": [_name(row) for row in shown],
        "layers": [*compress(layers, complete)],
        "objectives": [name for name in LABELS if any(name in row for row in shown)],
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
