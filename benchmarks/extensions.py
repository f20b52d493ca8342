"""What each extension costs and saves: look-up tables, and cycles of networks' layers.

    python -m benchmarks extensions --json benchmarks/results/extensions.json
    python -m benchmarks extensions --together --synthesise \
        --json benchmarks/results/extensions_together.json

Every extension is taken alone, against plain hardware of the same sizes (`table` against `post`,
which it needs), and all that `pynq_ext` has together; with ``--together`` one joins the other.
`forward` and `table` save nothing within a layer: what they save in networks is measured by
`networks.py` beside this file. Cycles are those of the timing model for the layers
C2 to C11 of ResNet-18, its maximum pool, and the depthwise layers of MobileNet 1.0, weighted by
their occurrences. ResNet-18's tilings are those found for the plain hardware, the others' the best
by the bound for each.

Area is that of the model (`vtaops.explore.area`). ``--synthesise`` has Yosys map each variant,
module by module as `area_model.py` beside this file does; ``--rtl`` runs all layers on the RTL,
compares each result with NumPy, and counts its cycles. Both take minutes for each variant, so what
is in the JSON file already is not done again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import vtaops
from benchmarks.options import Config, Json, Rtl, read_json, write_json
from vtaops import HardwareConfig, MaxPool2d
from vtaops.compiler import search
from vtaops.explore import Design
from vtaops.explore import area as modelled
from vtaops.hardware.synthesis import FpgaResources
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Tsim
from vtaops.schedule import default_tiling
from vtaops.schedule.workloads import WORKLOADS

NETWORKS = {
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

Row = dict[str, Any]


def variants(config: HardwareConfig) -> dict[str, HardwareConfig]:
    """Return the plain configuration, each extension alone, and all together, by name."""
    alone = {name: (*NEEDS.get(name, ()), name) for name in config.extensions}
    sets = {"plain": (), **alone, "all": config.extensions}
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
    plain = replace(config, extensions=())
    if "mobilenet" in name:
        tiling = default_tiling(workload.op, config)
    else:
        tiling = search(workload.op, plain)[0].tiling
    return workload.op, workload.occurrences, vtaops.compile(workload.op, config, tiling)


def cycles(name: str, config: HardwareConfig, device: Tsim | None) -> list[int]:
    """Return the cycles of a layer, weighted: by the timing model, and by the RTL if it is given.

    Raises
    ------
    SystemExit
        If the RTL computes something else than NumPy.
    """
    op, occurrences, program = layer(name, config)
    found = [occurrences * program.cycles()]
    if device is not None:
        arrays = random_arguments(op, np.random.default_rng(0))
        device.reset_stats()
        if not np.array_equal(program.run(device, *arrays), evaluate(op, arrays)):
            raise SystemExit(f"{name} on {config.bitstream_id} differs from NumPy")
        found.append(occurrences * device.performance().cycles)
    return found


def synthesised(config: HardwareConfig, modules: Path) -> FpgaResources:
    """Return the resources that Yosys counts; `modules` keeps what each module takes."""
    from benchmarks.area_model import Modules, synthesise

    (run,) = synthesise([Design(config)], Modules(modules), float("inf")).values()
    return sum(run.values(), FpgaResources())


def measure(
    rows: dict[str, Row],
    chosen: dict[str, HardwareConfig],
    save: Callable[[], None],
    *,
    rtl: bool,
    modules: Path | None,
) -> None:
    """Add what is missing, and `save` after each step; synthesise with a file of modules."""
    column = 1 if rtl else 0
    for name, variant in chosen.items():
        row = rows.setdefault(name, {"cycles": {}})
        row["modelled"] = asdict(modelled(Design(variant)))
        save()
        names = [n for group in NETWORKS.values() for n in group]
        missing = [n for n in names if len(row["cycles"].get(n, [])) <= column]
        with Tsim(variant) if rtl else nullcontext() as device:
            for each in track(missing, name, transient=True):
                row["cycles"][each] = cycles(each, variant, device)
                save()
        if modules is not None and "synthesised" not in row:
            row["synthesised"] = asdict(synthesised(variant, modules))
            save()


def added(rows: dict[str, Row], name: str, resource: str) -> float:
    """Return what a variant takes more than what it is compared with: synthesised if both are."""
    both = rows[name], rows[base(name)]
    source = "synthesised" if all("synthesised" in row for row in both) else "modelled"
    more, less = (row[source][resource] for row in both)
    return float(more - less)


def saved(rows: dict[str, Row], name: str, group: str) -> int:
    """Return the cycles that a variant saves in a group of layers."""
    before, after = (rows[n]["cycles"] for n in (base(name), name))
    return sum(int(before[each][-1]) - int(after[each][-1]) for each in NETWORKS[group])


def report(rows: dict[str, Row]) -> Table:
    """Return the table for people."""
    kinds = ("lut", "ff", "bram", "dsp")
    table = Table(title="extensions, each alone: what they add, and the cycles they save")
    for column in ("", "LUT", "FF", "BRAM36", "DSP", *(f"saved, {group}" for group in NETWORKS)):
        table.add_column(column, justify="right" if column else "left")
    for name in rows:
        if name != "plain":
            resources = (f"{added(rows, name, kind):,.0f}" for kind in kinds)
            cycles = (f"{saved(rows, name, group):,}" for group in NETWORKS)
            table.add_row(name, *resources, *cycles)
    return table


def markdown(rows: dict[str, Row]) -> str:
    """Return the table of extensions that join each other: what each adds, and all cycles."""
    lines = [
        "| | LUT | FF | BRAM36 | DSP | " + " | ".join(NETWORKS) + " |",
        "|---|" + "--:|" * (4 + len(NETWORKS)),
    ]
    before = dict.fromkeys(("lut", "ff", "bram", "dsp"), 0.0)
    for name, row in rows.items():
        now = row.get("synthesised", row["modelled"])
        cells = [f"{now[kind] - less:,.0f}" for kind, less in before.items()]
        cells += [f"{sum(row['cycles'][n][-1] for n in group):,}" for group in NETWORKS.values()]
        lines.append(f"| {name if name == 'plain' else f'`{name}`'} | " + " | ".join(cells) + " |")
        before = {kind: now[kind] for kind in before}
    return "\n".join(lines)


def main(
    config_name: Config = "pynq_ext",
    joined: Annotated[
        bool, typer.Option("--together", help="One joins the other, none alone.")
    ] = False,
    synthesise: Annotated[
        bool, typer.Option("--synthesise", help="Area by Yosys, not by the model.")
    ] = False,
    rtl: Rtl = False,
    json_file: Json = None,
    modules: Annotated[Path, typer.Option()] = Path("area_modules.json"),
) -> None:
    """Run the command line."""
    rows: dict[str, Row] = read_json(json_file, {})

    def save() -> None:
        write_json(json_file, rows)

    chosen = (together if joined else variants)(HardwareConfig.load(config_name))
    measure(rows, chosen, save, rtl=rtl, modules=modules if synthesise else None)
    console = Console()
    if joined:
        print(markdown(rows))
    else:
        console.print(report(rows))
    pairs = [pair for row in rows.values() for pair in row["cycles"].values() if len(pair) > 1]
    if pairs:
        worst = max(abs(model - simulated) / simulated for model, simulated in pairs)
        console.print(f"timing model: at most {worst:.3%} from the RTL on any layer")
