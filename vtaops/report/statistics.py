"""The statistics report: the work of a program and its cycles; one program or several.

`statistics_data` returns everything as plain data; tables, JSON and CSV are views of it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from vtaops.base.shapes import Flags, ceil_div
from vtaops.hardware.performance import TsimPerformance
from vtaops.machine.isa import Store, Unit
from vtaops.program import MICRO_OPS, NO_BUFFER, Program, Statistics
from vtaops.program.statistics import MEANING
from vtaops.program.timing import WAITS, Timeline
from vtaops.program.traffic import transfers
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
    minimum = compulsory_nbytes(program)
    data: dict[str, Any] = {
        "metadata": dict(program.metadata),
        "operators": [operator.as_dict() for operator in program.operators],
        "config": {"name": config.name, "bitstream_id": config.bitstream_id},
        "counters": statistics.as_dict(),
        "dram_nbytes": statistics.dram_nbytes,
        "dram_nbytes_minimum": minimum,
        "dram_nbytes_over_minimum": statistics.dram_nbytes / max(1, minimum),
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


def compulsory_nbytes(program: Program) -> int:
    """Return the bytes that no schedule with the same accesses can avoid.

    Every DRAM byte that the program reads, and every byte that it writes, counted once: the port
    traffic with unlimited scratchpads. Includes micro-ops.
    """
    sizes = {MICRO_OPS: program.micro_ops.nbytes}
    sizes |= {index: buffer.nbytes for index, buffer in enumerate(program.buffers)}
    total = 0
    touched: dict[tuple[int, bool], Flags] = {}
    for transfer in transfers(program):
        if transfer.buffer == NO_BUFFER:  # an absolute address: not comparable
            total += transfer.nbytes
            continue
        key = transfer.buffer, isinstance(transfer.instruction, Store)
        if key not in touched:
            touched[key] = np.zeros(ceil_div(sizes[transfer.buffer], _WORD_BYTES), bool)
        row = np.arange(transfer.row_nbytes // _WORD_BYTES)
        touched[key][(transfer.row_start // _WORD_BYTES)[:, None] + row] = True
    return total + _WORD_BYTES * sum(int(words.sum()) for words in touched.values())


_WORD_BYTES = 4  # divides the size of every DRAM element


def statistics_table(
    program: Program,
    statistics: Statistics,
    title: str,
    timeline: Timeline | None = None,
    *,
    units: bool = True,
) -> Table:
    """Return the report as a table for the terminal.

    Parameters
    ----------
    program, statistics, timeline
        As for `statistics_data`.
    title : str
        Heading of the table.
    units : bool
        Whether to list the cycles of each unit; total cycles are shown whenever a timeline is
        given.
    """
    data = statistics_data(program, statistics)
    table = list_table(title, {"statistic": "", "value": ">", "meaning": ""})
    if timeline is not None:
        _add_cycles(table, timeline, program.config.board.clock_mhz)
    for name, value in data["counters"].items():
        table.add_row(name, f"{value:,}", MEANING[name])
    table.add_section()
    table.add_row("DRAM traffic", f"{data['dram_nbytes']:,}", "bytes in all")
    over = f"{data['dram_nbytes_over_minimum']:.2f} times that is moved"
    minimum = f"{data['dram_nbytes_minimum']:,}"
    table.add_row("minimum", minimum, f"every byte in use, moved once; {over}")
    macs = sum(operator.macs for operator in program.operators)
    # Above one if channels do not fill tiles, below if products with padding are skipped.
    asked = f"; the operator has {macs:,}" if macs else ""
    table.add_row("multiply-adds", f"{data['macs_performed']:,}", f"in tile products{asked}")
    intensity = f"{data['macs_per_dram_byte']:.1f}"
    table.add_row("intensity", intensity, "multiply-adds for each byte of DRAM traffic")
    counts = data["instructions"]
    split = ", ".join(f"{name} {count}" for name, count in counts.items())
    table.add_row("instructions", f"{sum(counts.values()):,}", split)
    table.add_row("micro-ops", f"{data['micro_ops']:,}", "in the program")
    if timeline is not None and units:
        _add_units(table, timeline)
    return table


def _add_cycles(table: Table, timeline: Timeline, clock_mhz: int) -> None:
    """Add the key figures: cycles, time, and array utilization."""
    milliseconds = timeline.cycles / clock_mhz / 1e3
    rate = f"at {clock_mhz} MHz; {1e3 / milliseconds:,.1f} a second"
    used = f"{100 * timeline.gemm_utilization:.1f} %"
    table.add_row("cycles", f"{timeline.cycles:,}", "by the timing model")
    table.add_row("time", f"{milliseconds:,.3f} ms", rate)
    table.add_row("GEMM array", used, "of the cycles form a tile product")
    table.add_section()


def _add_units(table: Table, timeline: Timeline) -> None:
    """Add the cycles of each unit and of the port by activity."""
    cycles = timeline.cycles
    for name, unit in timeline.units.items():
        table.add_section()
        share = _percent(unit.work, cycles)
        table.add_row(Text(name, "bold"), f"{unit.work:,}", f"{share} of the cycles at work")
        for kind, spent in unit.busy.items():
            table.add_row(f"  {kind}", f"{spent:,}", _percent(spent, cycles))
        for cause, spent in unit.waiting.items():
            meaning = f"{_percent(spent, cycles)}  {WAITS[cause]}"
            table.add_row(f"  waiting: {cause}", f"{spent:,}", meaning)
        table.add_row("  idle", f"{unit.idle:,}", _percent(unit.idle, cycles))
    table.add_section()
    port = timeline.port
    used = {"read": port.main_read_beats, "write": port.write_beats}
    if timeline.program.config.weight_port:
        used["weight"] = port.beats["weights"]
    for label, beats in used.items():
        meaning = f"{_percent(beats, cycles)} of the cycles; a beat is {port.width} bytes"
        table.add_row(f"port {label} beats", f"{beats:,}", meaning)
    waited = ", ".join(f"{name} {spent:,}" for name, spent in port.contention.items() if spent)
    table.add_row("port contention", f"{sum(port.contention.values()):,}", waited or "none")


def performance_table(performance: TsimPerformance, title: str) -> Table:
    """Return what each RTL unit did in the cycles of one or more runs, as it counted them."""
    counted = performance.as_dict().items()
    rows = ((name.replace("_", " "), n, _percent(n, performance.cycles)) for name, n in counted)
    return list_table(title, {"counter": "", "cycles": ",", "share": ">"}, rows)


# --------------------------------------------------------------------------- side by side


def comparison_table(reports: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """Return reports side by side, with the ratio of each to the first.

    Parameters
    ----------
    reports : mapping
        Name of each variant -> its `statistics_data`.
    title : str
        Heading of the table.
    """
    table = list_table(title, {"statistic": ""} | dict.fromkeys(reports, ">"))
    columns = [numbers(data) for data in reports.values()]
    section = ""
    keys = dict.fromkeys(key for column in columns for key in column)
    # cycles and the use of the array first
    for key in sorted(keys, key=lambda key: not key.startswith("timing.") or key.count(".") > 1):
        values = [column.get(key, 0) for column in columns]
        if not any(values):
            continue
        group, label = _label(key)
        if group != section:
            table.add_section()
        section = group
        table.add_row(label, _number(values[0]), *(_with_ratio(v, values[0]) for v in values[1:]))
    return table


def _label(key: str) -> tuple[str, str]:
    """Return the section and the display text of a flattened name."""
    parts = key.removeprefix("timing.").split(".")
    if parts[0] == "units":
        _, unit, state, *kind = parts
        text = {"busy": f"{unit}: {''.join(kind)}", "waiting": f"{unit} waits: {''.join(kind)}"}
        return unit, text.get(state, f"{unit}: {state}")
    if parts[0] in ("port", "instructions"):
        return parts[0], " ".join(parts).replace("_", " ")
    return ("totals" if len(parts) == 1 else parts[0]), parts[-1]


def numbers(data: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the figures of a report: ``"timing.units.load.idle"`` -> value."""
    figures: dict[str, float] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            figures[prefix] = value

    walk("", {key: value for key, value in data.items() if key not in ("operator", "config")})
    return figures


def as_csv(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return reports as CSV: one row per figure, one column per variant."""
    columns = {name: numbers(data) for name, data in reports.items()}
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["statistic", *columns])
    writer.writerows([key, *(column.get(key, 0) for column in columns.values())] for key in keys)
    return text.getvalue()


# -------------------------------------------------------------------------------- details


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _with_ratio(value: float, first: float) -> Text:
    ratio = f"{value / first:.2f}x" if first else "new"
    return Text.assemble(f"{_number(value)}  ", (f"{ratio:>6}", "dim"))
