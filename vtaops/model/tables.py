"""Network reports: terminal tables, summaries."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from vtaops.model.report import Layer, ModelReport
    from vtaops.program.region import NodePlacement

_MEMORIES = ("inp", "wgt", "acc", "uop", "out")
_DRAM = "DRAM kB"
_WIDE = 120
"""Terminal width from which all columns are shown, with names of `_NAME` characters."""
_NAME = 24


def network_table(report: ModelReport, width: int = _WIDE) -> Table:
    """Return a network's report as a table: one row per operator, then the totals.

    The host's reasons are numbered and listed below. Below 120 columns (more for long names) the
    operator column is omitted, and the bytes of all memories are summed.
    """
    layers = report.layers
    stem = _stem([layer.name for layer in layers])
    longest = max((len(_cut(layer.name, stem)) for layer in layers), default=0)
    wide = width >= _WIDE + max(0, longest - _NAME)
    reasons = list(dict.fromkeys(layer.reason for layer in layers if layer.where != "vta"))
    texts = ["layer", "operator", "where"] if wide else ["layer", "where"]
    numbers = _numbers(report, wide)
    table = _table(f"{report.name} on {report.config}", *texts, numbers=numbers)
    rows = [*(_row(layer, stem, reasons) for layer in layers), _total(report, wide)]
    for number, row in enumerate(rows, 1):
        cells = [row.get(column, "") for column in (*texts, *numbers)]
        table.add_row(*cells, end_section=number == len(layers))
    return _explain(table, stem, [f"host {n}: {text}" for n, text in enumerate(reasons, 1)])


def _numbers(report: ModelReport, wide: bool) -> list[str]:
    """Return the headings of the columns of numbers."""
    moved = [f"{memory} kB" for memory in _MEMORIES] if wide else [_DRAM]
    measured = any(layer.sqnr is not None for layer in report.layers)
    return ["cycles", "share", "array", *moved, *["SQNR dB"] * measured]


def _row(layer: Layer, stem: str, reasons: Sequence[str]) -> dict[str, str]:
    """Return the table cells of a layer, by column."""
    row = {"layer": _cut(layer.name, stem), "operator": layer.operator, "where": "vta"}
    if layer.where != "vta":
        row["where"] = f"host {reasons.index(layer.reason) + 1}"
    if layer.sqnr is not None:
        row["SQNR dB"] = f"{layer.sqnr:.1f}"
    if layer.cycles:
        row["cycles"] = f"{layer.cycles:,}"
        row["share"] = f"{100 * layer.share:.1f} %"
        row["array"] = f"{100 * layer.utilization:.0f} %"
        row |= _kilobytes(layer.counters.as_dict())
    return row


def _total(report: ModelReport, wide: bool) -> dict[str, str]:
    """Return the last row of a network's table."""
    cycles = max(1, report.cycles)
    share = sum(layer.utilization * layer.cycles for layer in report.layers) / cycles
    return {
        "layer": "all",
        "operator": f"{report.macs / 1e6:,.0f} M multiply-adds",
        "where": f"{report.launches} launch" + ("es" if report.launches != 1 else ""),
        "cycles": f"{report.cycles:,}",
        "share": "100.0 %",
        "array": f"{report.macs / cycles:.0f} a cycle" if wide else f"{100 * share:.0f} %",
        **_kilobytes(report.counters.as_dict()),
    }


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
    stem = _stem([row.name for row in rows])
    for row in rows:
        table.add_row(_cut(row.name, stem), row.operator, row.where, row.reason)
    return _explain(table, stem)


def text(report: ModelReport, width: int = 160) -> str:
    """Return table and summary as text."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, markup=False)
    console.print(network_table(report, width))
    return stream.getvalue() + summary(report)


def _kilobytes(counters: dict[str, int]) -> dict[str, str]:
    """Return the kilobytes of each memory, and of all."""
    loads = [counters["out_store_nbytes" if m == "out" else f"{m}_load_nbytes"] for m in _MEMORIES]
    names = *(f"{memory} kB" for memory in _MEMORIES), _DRAM
    return {n: f"{k / 1e3:,.0f}" for n, k in zip(names, (*loads, sum(loads)), strict=True)}


def _table(title: str, *texts: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in texts:
        table.add_column(column, overflow="fold", no_wrap=column == "where")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _stem(names: Sequence[str]) -> str:
    """Return the path prefix that all names with slashes share, as is common in ONNX files."""
    paths = [name for name in names if "/" in name]
    shared = os.path.commonprefix(paths) if len(paths) > 1 else ""  # noqa: RUF071 - cut below
    return shared[: shared.rfind("/") + 1]


def _cut(name: str, stem: str) -> str:
    return f"…{name.removeprefix(stem)}" if len(stem) > 1 and name.startswith(stem) else name


def _explain(table: Table, stem: str, lines: Sequence[str] = ()) -> Table:
    """Add a caption with the given lines and the folder that the names omit."""
    said = [f"… stands for {stem}"] if len(stem) > 1 else []
    table.caption = "\n".join([*lines, *said]) or None
    table.caption_justify = "left"
    return table
