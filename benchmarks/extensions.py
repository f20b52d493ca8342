"""What each extension costs and saves: look-up tables, and cycles of networks' layers.

    python -m benchmarks extensions --rtl --json benchmarks/results/extensions.json
    python -m benchmarks extensions --together --synthesise \
        --json benchmarks/results/extensions_together.json

Every extension is taken alone, against plain hardware of the same sizes (`table` against `post`,
which it needs), and all that `pynq_ext` has together; with ``--together`` one joins the other.
`forward` and `table` save nothing within a layer: what they save in networks is measured by
`networks.py` beside this file. Cycles are those of the timing model for groups of layers, weighted
by their occurrences. ResNet-18's tilings are those found for the plain hardware, the others' the
best by the bound for each.

Area is that of the model (`vtaops.explore.area`). ``--synthesise`` has Yosys map each variant,
module by module as `area_model.py` beside this file does; ``--rtl`` runs all layers on the RTL,
compares each result with NumPy, and counts its cycles. Both take minutes for each variant; what is
in the JSON file already is not done again.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

import vtaops
from benchmarks.layers import simulated
from benchmarks.options import (
    Config,
    Kept,
    Only,
    Row,
    Rows,
    Rtl,
    chosen,
    markdown_table,
    read_json,
    write_rows,
)
from vtaops import HardwareConfig, MaxPool2d
from vtaops.compiler import search
from vtaops.explore import Design, area
from vtaops.ops import Operator
from vtaops.runtime import Tsim
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS

GROUPS = {
    "ResNet-18, C2 to C11": [f"resnet18.C{number}" for number in range(2, 12)],
    "ResNet-18, pool": ["resnet18.pool"],
    "MobileNet, D1 to D9": [f"mobilenet.D{number}" for number in range(1, 10)],
}
"""Groups of layers, by the names of the columns."""

POOL = MaxPool2d(channels=64, height=112, width=112, kernel=3, strides=2, padding=1)

NEEDS = {"table": ("post",)}
"""Extensions that need another."""

ORDER = ("overwrite", "post", "depthwise", "pool", "forward", "table", "pairs", "exact")
"""In which they join each other: each has those that it needs before it."""

KINDS = {"lut": "LUT", "ff": "FF", "bram": "BRAM36", "dsp": "DSP"}


def alone(config: HardwareConfig) -> dict[str, HardwareConfig]:
    """Return the plain configuration, each extension alone, and all together, by name."""
    sets = {name: (*NEEDS.get(name, ()), name) for name in config.extensions}
    sets = {"plain": (), **sets, "all": config.extensions}
    return {name: replace(config, extensions=names) for name, names in sets.items()}


def together(config: HardwareConfig) -> dict[str, HardwareConfig]:
    """Return the plain configuration, and one with each extension and all before it, by name."""
    names = [name for name in ORDER if name in config.extensions]
    sets = {name: tuple(sorted(names[: i + 1])) for i, name in enumerate(names)}
    return {n: replace(config, extensions=names) for n, names in {"plain": (), **sets}.items()}


def base(name: str) -> str:
    """Return the variant that one is compared with."""
    return NEEDS.get(name, ("plain",))[0]


def layer(name: str, config: HardwareConfig) -> tuple[Operator, int, vtaops.Program]:
    """Return an operator, how often it occurs, and its program."""
    if name == "resnet18.pool":
        return POOL, 1, vtaops.compile(POOL, config)
    workload = WORKLOADS[name]
    if "mobilenet" in name:
        tiling = default_tiling(workload.op, config)
    else:
        tiling = search(workload.op, replace(config, extensions=()))[0].tiling
    return workload.op, workload.occurrences, vtaops.compile(workload.op, config, tiling)


def cycles(group: str, config: HardwareConfig, device: Tsim | None) -> list[int]:
    """Return the cycles of a group of layers: by the timing model, and by the RTL if given."""
    totals = [0] if device is None else [0, 0]
    for name in GROUPS[group]:
        op, occurrences, program = layer(name, config)
        totals[0] += occurrences * program.cycles()
        if device is not None:
            totals[1] += occurrences * simulated(program, op, device)
    return totals


def measure(row: Row, config: HardwareConfig, groups: list[str], *, rtl: bool) -> None:
    """Add what a row does not have."""
    row["modelled"] = asdict(area(Design(config)))
    found = row.setdefault("cycles", {})
    missing = [group for group in groups if len(found.get(group, ())) <= rtl]
    with Tsim(config) if rtl and missing else nullcontext() as device:
        for group in missing:
            found[group] = cycles(group, config, device)


def added(rows: Rows, name: str, resource: str) -> float:
    """Return what a variant takes more than what it is compared with: synthesised if both are."""
    both = rows[name], rows[base(name)]
    source = "synthesised" if all("synthesised" in row for row in both) else "modelled"
    more, less = (row[source][resource] for row in both)
    return float(more - less)


def saved(rows: Rows, name: str, group: str) -> int:
    """Return the cycles that a variant saves in a group of layers."""
    before, after = (rows[n]["cycles"][group][-1] for n in (base(name), name))
    return int(before - after)


def table_alone(rows: Rows) -> str:
    """Return what each extension adds, and the cycles that it saves."""
    lines = [
        [
            name,
            *(f"{added(rows, name, kind):,.0f}" for kind in KINDS),
            *(f"{saved(rows, name, group):,}" for group in rows[name]["cycles"]),
        ]
        for name in rows
        if name != "plain" and base(name) in rows
    ]
    return markdown_table(["", *KINDS.values(), *(f"saved, {group}" for group in GROUPS)], lines)


def table_together(rows: Rows) -> str:
    """Return the table of extensions that join each other: what each adds, and all cycles."""
    lines, before = [], dict.fromkeys(KINDS, 0.0)
    for name, row in rows.items():
        now = row.get("synthesised", row["modelled"])
        cells = [f"{now[kind] - less:,.0f}" for kind, less in before.items()]
        cells += [f"{found[-1]:,}" for found in row["cycles"].values()]
        lines.append([name if name == "plain" else f"`{name}`", *cells])
        before = {kind: now[kind] for kind in before}
    return markdown_table(["", *KINDS.values(), *GROUPS], lines)


def main(
    config_name: Config = "pynq_ext",
    joined: Annotated[
        bool, typer.Option("--together", help="One joins the other, none alone.")
    ] = False,
    only: Only = [],  # noqa: B006
    group: Annotated[list[str], typer.Option(help="Beginnings of groups of layers.")] = [],  # noqa: B006
    synthesise: Annotated[
        bool, typer.Option("--synthesise", help="Area by Yosys, not by the model.")
    ] = False,
    rtl: Rtl = False,
    json_file: Kept = Path("build/extensions.json"),
    modules: Annotated[Path, typer.Option()] = Path("area_modules.json"),
) -> None:
    """Measure what is missing, print the table, write the file."""
    rows: Rows = read_json(json_file, {})
    variants = (together if joined else alone)(HardwareConfig.load(config_name))
    for name in chosen(variants, only):
        row = rows.setdefault(name, {})
        measure(row, variants[name], chosen(GROUPS, group), rtl=rtl)
        if synthesise and "synthesised" not in row:
            from benchmarks.area_model import synthesised

            row["synthesised"] = asdict(synthesised(Design(variants[name]), modules))
        write_rows(json_file, rows)
    print((table_together if joined else table_alone)(rows))
    pairs = [pair for row in rows.values() for pair in row["cycles"].values() if len(pair) > 1]
    if pairs:
        worst = max(abs(model - simulated) / simulated for model, simulated in pairs)
        print(f"timing model: at most {worst:.3%} from the RTL on any group")
