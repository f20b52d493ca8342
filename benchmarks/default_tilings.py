"""How far the default tiling is from the best of a search, over many configurations.

    python -m benchmarks default_tilings --random 50 --json default_tilings.json

For every shipped configuration and so many random ones, some layers of ResNet-18 and MobileNet:
cycles of the tiling that `vtaops.compile` takes by itself (the best of a few) over those of the
best of the dozen that the effort ``fast`` times; those of the first of the ranking, too. All are
the timing model's, so a busy machine changes nothing. What was timed is kept in ``--store``; a run
that was stopped goes on.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Json, Seed, write_json
from vtaops import HardwareConfig
from vtaops.base.errors import ConfigError
from vtaops.compiler.driver import timed_tiling
from vtaops.explore import Design, Engine, Network, ResultStore, TilingCandidate, sweep
from vtaops.machine.capabilities import of_target
from vtaops.schedule.workloads import WORKLOADS

LAYERS = [name for name in WORKLOADS if name.startswith(("resnet18.", "mobilenet."))]

RANGES = {
    "LOG_BATCH": (0, 0, 0, 1, 2),
    "LOG_BLOCK": (3, 4, 4, 5),
    "LOG_UOP_BUFF_SIZE": range(13, 16),
    "LOG_INP_BUFF_SIZE": range(12, 18),
    "LOG_WGT_BUFF_SIZE": range(14, 21),
    "LOG_ACC_BUFF_SIZE": range(13, 19),
    "EXTENSIONS": ("", "", "overwrite", "overwrite+post"),
}


def random_design(rng: random.Random) -> Design:
    """Return a design that can be."""
    while True:
        try:
            return Design.of({axis: rng.choice(values) for axis, values in RANGES.items()})
        except ConfigError:
            continue


def main(
    random_count: Annotated[int, typer.Option("--random", help="Random configurations.")] = 50,
    layer_count: Annotated[
        int, typer.Option("--layers", help="Layers for each configuration.")
    ] = 1,
    seed: Seed = 0,
    store_file: Annotated[str, typer.Option("--store")] = ":memory:",
    seconds: Annotated[float, typer.Option(help="Stop after so long.")] = 1e9,
    json_file: Json = None,
) -> None:
    """Search, print the distribution and the worst, write the file."""
    rng, start = random.Random(seed), time.monotonic()
    shipped = [Design(HardwareConfig.load(name)) for name in HardwareConfig.names()]
    designs = shipped + [random_design(rng) for _ in range(random_count)]
    rows = []
    with ResultStore(store_file) as store, Engine(store) as engine:
        for number, design in enumerate(designs):
            layers = random.Random(f"{seed} {number}").sample(LAYERS, layer_count)
            if time.monotonic() - start > seconds:
                break
            for layer in layers:
                network = Network.named([layer])
                op, able = WORKLOADS[layer].op, of_target(design.config)
                (first,) = sweep([design], network, engine, "first")
                (best,) = sweep([design], network, engine, "fast")
                (guess,) = sweep([design], network, engine, "bound")
                if best.complete:
                    default = TilingCandidate(op, timed_tiling(op, design.config, able), design)
                    cycles = engine.evaluations([default])[default.key].cycles
                    cycles *= network.layers[0].occurrences
                    row = {"design": design.name, "layer": layer, "cycles": best.cycles}
                    row |= {"over_best": cycles / best.cycles}
                    row |= {"first": first.cycles / best.cycles}
                    row |= {"estimate": guess.cycles / first.cycles}
                    row |= {"default": default.tiling.text}
                    row |= {"best": best.layer_rows[0]["tiling"]}
                    rows.append(row)
    over = sorted(row["over_best"] for row in rows)
    table = Table(title=f"{len(over)} searches: default over best")
    for column in ("design", "layer", "over best", "first of the ranking", "its estimate"):
        table.add_column(column)
    for row in sorted(rows, key=lambda row: -row["over_best"])[:12]:
        ratios = (f"{row[name]:.4f}" for name in ("over_best", "first", "estimate"))
        table.add_row(row["design"], row["layer"], *ratios)
    Console(width=120).print(table)
    within = sum(ratio <= 1.01 for ratio in over)
    ranked = sum(row["first"] <= 1.01 for row in rows)
    print(
        f"within 1 %: {within} of {len(over)}; median {statistics.median(over):.4f}, "
        f"largest {over[-1]:.4f}; of the first of the ranking {ranked}"
    )
    write_json(json_file, rows)
