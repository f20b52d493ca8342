"""The cycles report: the activity of each RTL unit during a run."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from rich.table import Table

from vtaops.hardware.performance import TsimPerformance
from vtaops.report.style import new_table

_ROWS = (
    ("load", "busy", "load_busy", "writes a scratchpad"),
    ("load", "waits", "load_stall_token", "for a token of the compute unit"),
    ("load", "waits", "load_stall_dram", "for DRAM"),
    ("load", "idle", "load_idle", "has no instruction"),
    ("compute", "busy", "compute_gemm", "GEMM, resets included"),
    ("compute", "busy", "compute_alu", "vector ALU"),
    ("compute", "busy", "compute_load", "writes micro-ops or accumulators"),
    ("compute", "waits", "compute_stall_load_token", "for a token of the load unit"),
    ("compute", "waits", "compute_stall_store_token", "for a token of the store unit"),
    ("compute", "waits", "compute_stall_dram", "for DRAM"),
    ("compute", "waits", "compute_drain", "for its pipeline"),
    ("compute", "idle", "compute_idle", "has no instruction"),
    ("store", "busy", "store_busy", "sends to DRAM"),
    ("store", "waits", "store_stall_token", "for a token of the compute unit"),
    ("store", "waits", "store_stall_dram", "for DRAM"),
    ("store", "idle", "store_idle", "has no instruction"),
    ("port", "busy", "port_read_beats", "words read"),
    ("port", "busy", "port_write_beats", "words written"),
)


def performance_table(performance: TsimPerformance, title: str) -> Table:
    """Return the cycles of each unit as a table for the terminal.

    Parameters
    ----------
    performance : TsimPerformance
        The counters of one or more runs.
    title : str
        Title of the table.
    """
    values = performance.as_dict()
    table = new_table(title, ["unit", "state"], ["cycles", "share"], ["what"])
    for unit, rows in groupby(_ROWS, itemgetter(0)):
        for number, (_, state, counter, meaning) in enumerate(rows):
            share = values[counter] / max(1, performance.cycles)
            name = "" if number else unit
            table.add_row(name, state, f"{values[counter]:,}", f"{share:.1%}", meaning)
        table.add_section()
    table.add_row("all", "", f"{performance.cycles:,}", "", "cycles from launch to FINISH")
    return table
