"""Network reports: terminal tables, summaries."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from vtaops.model.report import Layer, ModelReport
    from vtaops.program import Statistics
    from vtaops.program.region import NodePlacement


def network_table(report: ModelReport) -> Table:
    """Return a network's report as a table: one row per operator, then the totals.

    The host's reasons are numbered and listed below.
    """
    layers = report.layers
    reasons = list(dict.fromkeys(layer.reason for layer in layers if layer.where != "vta"))
    numbers = ["cycles", "share", "array", "DRAM kB"]
    numbers += ["SQNR dB"] * any(layer.sqnr is not None for layer in layers)
    table = _table(f"{report.name} on {report.config}", "layer", "where", numbers=numbers)
    for layer in layers:
        table.add_row(*_cells(layer, reasons)[: len(table.columns)])
    table.add_section()
    used = sum(layer.utilization * layer.cycles for layer in layers) / max(1, report.cycles)
    launches = f"{report.launches} launch" + ("es" if report.launches != 1 else "")
    table.add_row("all", launches, *_figures(report.cycles, 1.0, used, report.counters))
    table.caption = "\n".join(f"host {n}: {text}" for n, text in enumerate(reasons, 1)) or None
    table.caption_justify = "left"
    return table


def _cells(layer: Layer, reasons: Sequence[str]) -> list[str]:
    """Return the cells of a layer."""
    where = "vta" if layer.where == "vta" else f"host {reasons.index(layer.reason) + 1}"
    figures = _figures(layer.cycles, layer.share, layer.utilization, layer.counters)
    noise = "" if layer.sqnr is None else f"{layer.sqnr:.1f}"
    return [layer.name, where, *(figures if layer.cycles else [""] * 4), noise]


def _figures(cycles: int, share: float, used: float, counters: Statistics) -> list[str]:
    moved = f"{counters.dram_nbytes / 1e3:,.0f}"
    return [f"{cycles:,}", f"{100 * share:.1f} %", f"{100 * used:.0f} %", moved]


def summary(report: ModelReport) -> str:
    """Return the key figures, in three lines."""
    if not report.cycles:
        return f"nothing runs on VTA: {len(report.layers)} operators on the host\n{report.file}"
    on_vta = sum(layer.where == "vta" for layer in report.layers)
    batch = f", in batches of {report.batch}" if report.batch > 1 else ""
    steady = f"\n{report.steady_cycles:,} cycles once its weights are on the chip"
    return (
        f"{report.cycles:,} cycles: {report.milliseconds:,.2f} ms, "
        f"{report.frames_per_second:,.1f} frames/s at {report.clock_mhz} MHz without the host"
        f"{steady if report.steady_cycles != report.cycles else ''}\n"
        f"{on_vta} of {len(report.layers)} operators on VTA{batch}\n"
        f"DRAM: {report.arena_nbytes / 1e3:,.0f} kB of activations, "
        f"{report.weights_nbytes / 1e3:,.0f} kB of weights, "
        f"{report.instructions_nbytes / 1e3:,.0f} kB of instructions and micro-ops"
        f"\n{evidence(report)}\n{report.file}"
    )


def evidence(report: ModelReport) -> str:
    """Return what is known of the launches: proven, tried, or nothing."""
    if report.proven == report.launches:
        return "proven equal to its graph for every input (certified)"
    proven = f"{report.proven} of {report.launches} launches are proven equal to their graph"
    return "\n".join([proven, *(f"not proven, but tried: {reason}" for reason in report.tried)])


def plan_table(rows: Sequence[NodePlacement], title: str) -> Table:
    """Return the placement of each operator, with reasons, as a table."""
    table = _table(title, "layer", "operator", "where", "reason")
    for row in rows:
        table.add_row(row.name, row.operator, row.where, row.reason)
    return table


def text(report: ModelReport, width: int = 160) -> str:
    """Return table and summary as text."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, markup=False)
    console.print(network_table(report))
    return stream.getvalue() + summary(report)


def _table(title: str, *texts: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in texts:
        table.add_column(column, overflow="fold", no_wrap=column == "where")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table
