"""What a run costs in energy, by memory: counted accesses times published energies. An estimate.

    python -m benchmarks energy --json benchmarks/results/energy.json

Reads and writes of every memory, DRAM bytes, products and ALU passes are exact, counted from the
programs (`trials.accesses`, which a test compares with the RTL); the energies are those of
`vtaops.explore.energy`. Networks take minutes; what is in the file already is not computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import vtaops
from benchmarks.options import (
    Kept,
    Only,
    Row,
    Rows,
    chosen,
    markdown_table,
    read_json,
    write_rows,
)
from trials import networks
from trials.accesses import Accesses, count_accesses
from vtaops import HardwareConfig, Program, compile_model
from vtaops.explore.energy import ADD_32_PJ, DRAM_64_BITS_PJ, MULTIPLY_8_PJ, sram_pj_per_byte
from vtaops.machine.config import TABLES, Extension, Scratchpad
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS

LAYERS = "C2 to C11"
CASES = {
    f"{name}, {config}": (name, config)
    for config in ("pynq", "pynq_ext")
    for name in (LAYERS, "resnet18", "mobilenet_v1", "mobilenet_v2")
}
PARTS = ("arithmetic", "wgt", "inp", "acc", "out", "uop", "post", "dram")


def measure(name: str, config: HardwareConfig) -> Row:
    """Return the figures of ResNet-18's layers, or of a quantised network."""
    if name == LAYERS:
        layers = [WORKLOADS[f"resnet18.C{number}"] for number in range(2, 12)]
        tilings = [layer.tiling or default_tiling(layer.op, config) for layer in layers]
        pairs = zip(layers, tilings, strict=True)
        programs = [vtaops.compile(layer.op, config, t, verify=False) for layer, t in pairs]
        return figures(programs, [layer.occurrences for layer in layers])
    model = compile_model(getattr(networks, name)(config.has(Extension.POST)), config)
    return figures(model.programs)


def figures(programs: Iterable[Program], times: Iterable[int] = ()) -> Row:
    """Return cycles, counts and picojoules of some programs, each run so many times or once."""
    programs = [*programs]
    row: Row = {"cycles": 0, "wgt_reads": 0, "pj": dict.fromkeys(PARTS, 0.0)}
    for program, count in zip(programs, [*times] or [1] * len(programs), strict=True):
        accesses = count_accesses(program)
        parts = energies(program, accesses)
        row["cycles"] += count * program.cycles()
        row["wgt_reads"] += count * asdict(accesses)["wgt_reads"]
        for part in PARTS:
            row["pj"][part] += count * parts[part]
    return row


def energies(program: Program, accesses: Accesses) -> dict[str, float]:
    """Return the picojoules of one run by part."""
    config, stats, counts = program.config, program.stats(), accesses.as_dict()
    found = {}
    for name in ("uop", "inp", "wgt", "acc", "out", "copy", "post"):
        memory: Scratchpad = getattr(config, "out" if name == "copy" else name)
        moved = (counts[f"{name}_reads"] + counts[f"{name}_writes"]) * memory.element_bytes
        found[name] = moved * sram_pj_per_byte(memory.element_bytes * memory.depth)
    # A lookup reads one of 256 values in each lane; a load writes all of them, in each lane.
    entries = accesses.table_reads + accesses.table_writes * config.table.element_bytes
    lanes, nbytes = config.batch * config.block_out, TABLES * config.table.element_bytes
    found["out"] += found.pop("copy")
    found["post"] += entries * lanes * sram_pj_per_byte(nbytes)
    products = stats.gemm_counter * config.macs_per_micro_op
    found["arithmetic"] = products * (MULTIPLY_8_PJ + ADD_32_PJ)
    found["arithmetic"] += stats.alu_counter * lanes * ADD_32_PJ
    transferred = accesses.dram_read_bytes + accesses.dram_written_bytes
    found["dram"] = transferred * DRAM_64_BITS_PJ / 8
    return found


def markdown(rows: Rows) -> str:
    """Return the table, in millijoules."""
    lines = []
    for label, row in rows.items():
        parts = [row["pj"][part] / 1e9 for part in PARTS]
        cells = [f"{row['cycles']:,}", f"{row['wgt_reads']:,}"]
        lines.append([label, *cells, *(f"{part:.2f}" for part in (*parts, sum(parts)))])
    return markdown_table(["", "cycles", "weight reads", *PARTS, "all"], lines)


def main(only: Only = [], json_file: Kept = Path("build/energy.json")) -> None:  # noqa: B006
    """Count what is missing, print the table, write the file."""
    rows: Rows = read_json(json_file, {})
    for case in chosen(CASES, only):
        if case not in rows:
            name, config = CASES[case]
            rows[case] = measure(name, HardwareConfig.load(config))
            write_rows(json_file, rows)
    print(markdown(rows))
