"""The statistics report: the work of a program and its cycles; one program or several.

`statistics_data` returns everything as plain data; table, JSON and CSV are views of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, groupby
from typing import Any

from rich.table import Table

from vtaops.hardware.performance import TsimPerformance
from vtaops.machine.isa import Unit
from vtaops.program import Program, Role, Statistics
from vtaops.program.statistics import MEANING
from vtaops.program.timing import WAITS, Timeline
from vtaops.report.style import list_table


def statistics_data(
    program: Program, statistics: Statistics, timeline: Timeline | None = None
) -> dict[str, Any]:
    """Return the report as plain data, ready for JSON.

    Parameters
    ----------
    program : Program
        The program.
    statistics : Statistics
        The device's counters (or `Program.stats`).
    timeline : Timeline, optional
        The timing model's result (`Program.timeline`); adds ``"timing"``.
    """
    config = program.config
    units = [instruction.unit for instruction in program]
    performed = statistics.gemm_counter * config.macs_per_micro_op
    own = (b.nbytes for b in program.buffers if b.role is not Role.SCRATCH)
    minimum = program.micro_ops.nbytes + sum(own)  # micro-ops, arguments and constants, once
    data: dict[str, Any] = {
        "metadata": dict(program.metadata),
        "operators": [vars(operator) for operator in program.operators],
        "config": {"name": config.name, "bitstream_id": config.bitstream_id},
        "counters": statistics.as_dict(),
        "dram_nbytes": statistics.dram_nbytes,
        "dram_nbytes_minimum": minimum,
        "dram_nbytes_over_minimum": statistics.dram_nbytes / max(1, minimum),
        "macs": sum(operator.macs for operator in program.operators),
        "macs_performed": performed,
        "macs_per_dram_byte": performed / max(1, statistics.dram_nbytes),
        "instructions": {unit.name.lower(): units.count(unit) for unit in Unit},
        "instruction_nbytes": program.instructions.nbytes,
        "micro_ops": len(program.micro_ops),
    }
    if timeline is not None:
        clock = config.board.clock_mhz
        time = {"milliseconds": timeline.cycles / clock / 1e3, "clock_mhz": clock}
        data["timing"] = {"cycles": timeline.cycles, **time, **timeline.as_dict()}
    return data


def performance_table(performance: TsimPerformance, title: str) -> Table:
    """Return what each RTL unit did in the cycles of one or more runs, as it counted them."""
    counted = performance.as_dict().items()
    rows = ((name.replace("_", " "), n, _percent(n, performance.cycles)) for name, n in counted)
    return list_table(title, {"counter": "", "cycles": ",", "share": ">"}, rows)


_MEANINGS = {
    **MEANING,
    **WAITS,
    "cycles": "by the timing model",
    "milliseconds": "without the host",
    "gemm_utilization": "part of the cycles that form a tile product",
    "dram_nbytes": "bytes to and from DRAM in all",
    "dram_nbytes_minimum": "arguments, constants and micro-ops, moved once",
    "macs": "multiply-adds of the operator",
    "macs_performed": "multiply-adds in tile products",
    "macs_per_dram_byte": "multiply-adds for each byte of DRAM traffic",
}
"""What figures mean, by the last part of their names."""


def statistics_table(reports: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """Return a report with what its figures mean, or several with ratios to the first.

    Parameters
    ----------
    reports : mapping
        Name of each variant -> its `statistics_data`.
    title : str
        Heading of the table.
    """
    columns = [numbers(data) for data in reports.values()]
    first, *others = columns
    headings = {"statistic": ""} | dict.fromkeys(reports, ">")
    table = list_table(title, headings if others else {**headings, "meaning": ""})
    keys = [*dict.fromkeys(chain(*columns))]
    keys.sort(key=lambda key: not key.startswith("timing.") or key.count(".") > 1)
    for _, section in groupby(keys, key=lambda key: _label(key)[0]):
        table.add_section()
        for key in section:
            value = first.get(key, 0)
            last = [_with_ratio(other.get(key, 0), value) for other in others]
            table.add_row(_label(key)[1], _number(value), *last or [_meaning(key, first)])
    return table


def _meaning(key: str, figures: Mapping[str, float]) -> str:
    """Return what a figure means; of a unit, also its share of the cycles."""
    text = _MEANINGS.get(key.rpartition(".")[2], "")
    if key.startswith("timing.units."):
        text = f"{_percent(figures[key], figures['timing.cycles'])}  {text}"
    return text


def _label(key: str) -> tuple[str, str]:
    """Return the section and the display text of a flattened name."""
    group, *rest = key.removeprefix("timing.").split(".")
    if not rest:
        return "totals", group
    if group == "units":
        unit, state, *kind = rest
        words = {"busy": f"{unit}:", "waiting": f"{unit} waits:"}
        return unit, " ".join([words[state], *kind] if kind else [f"{unit}:", state])
    return group, " ".join([group, *rest]) if group in ("port", "instructions") else rest[-1]


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the figures of a report but zeros: ``"timing.units.load.idle"`` -> value."""
    figures: dict[str, float] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            figures |= {f"{key}.{name}": figure for name, figure in numbers(value).items()}
        elif isinstance(value, int | float) and value and value is not True:
            figures[key] = value
    return figures


# -------------------------------------------------------------------------------- details


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _with_ratio(value: float, first: float) -> str:
    ratio = f"{value / first:.2f}x" if first else "new"
    return f"{_number(value)}  {ratio:>6}"
