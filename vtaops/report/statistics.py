"""The statistics report: what a program did on a device, as a table and as plain data."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from vtaops.isa import Unit
from vtaops.program import Program, Statistics

_MEANING = {
    "inp_load_nbytes": "input tiles read from DRAM",
    "wgt_load_nbytes": "weight tiles read from DRAM",
    "acc_load_nbytes": "accumulator tiles read from DRAM",
    "uop_load_nbytes": "micro-ops read from DRAM",
    "out_store_nbytes": "output tiles written to DRAM",
    "gemm_counter": "tile products",
    "alu_counter": "tiles passed through the vector ALU",
}


def statistics_data(program: Program, statistics: Statistics) -> dict[str, Any]:
    """Return the report as plain data, ready for JSON.

    Parameters
    ----------
    program : Program
        What ran.
    statistics : Statistics
        What the device counted.
    """
    config = program.config
    units = [instruction.unit for instruction in program]
    performed = statistics.gemm_counter * config.macs_per_cycle
    return {
        "operator": dict(program.metadata),
        "config": {"name": config.name, "bitstream_id": config.bitstream_id},
        "counters": statistics.as_dict(),
        "dram_nbytes": statistics.dram_nbytes,
        "macs_performed": performed,
        "macs_per_dram_byte": performed / max(1, statistics.dram_nbytes),
        "instructions": {unit.name.lower(): units.count(unit) for unit in Unit},
        "micro_ops": len(program.micro_ops),
    }


def statistics_table(program: Program, statistics: Statistics, title: str) -> Table:
    """Return the report as a table for the terminal; parameters as `statistics_data`."""
    data = statistics_data(program, statistics)
    table = Table(title=title, title_justify="left", show_header=True, header_style="bold")
    table.add_column("statistic")
    table.add_column("value", justify="right")
    table.add_column("meaning", style="dim")
    for name, value in data["counters"].items():
        table.add_row(name, f"{value:,}", _MEANING[name])
    table.add_section()
    table.add_row("DRAM traffic", f"{data['dram_nbytes']:,}", "bytes in all")
    macs = program.metadata.get("macs")
    useful = f"{100 * macs / data['macs_performed']:.1f} % asked for" if macs else ""
    table.add_row("multiply-adds", f"{data['macs_performed']:,}", f"in tile products; {useful}")
    intensity = f"{data['macs_per_dram_byte']:.1f}"
    table.add_row("intensity", intensity, "multiply-adds for each byte of DRAM traffic")
    counts = data["instructions"]
    split = ", ".join(f"{name} {count}" for name, count in counts.items())
    table.add_row("instructions", f"{sum(counts.values()):,}", split)
    table.add_row("micro-ops", f"{data['micro_ops']:,}", "in the program")
    return table
