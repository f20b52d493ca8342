"""How far the default tiling is from the best of a search, over many configurations.

    python benchmarks/default_tilings.py --random 50 --json default_tilings.json

For every shipped configuration and so many random ones, some layers of ResNet-18 and MobileNet:
cycles of the default tiling (the first of the ranking, nothing compiled) over those of the best of
the dozen that the effort ``fast`` times. Both are the timing model's, so a busy machine changes
nothing. What was timed is kept in ``--store``; a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vtaops import HardwareConfig
from vtaops.errors import ConfigError
from vtaops.explore import Design, Engine, Network, ResultStore, sweep
from vtaops.workloads import WORKLOADS

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


def main() -> None:
    """Search, print the distribution and the worst, write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--random", type=int, default=50, help="random configurations")
    parser.add_argument("--layers", type=int, default=1, help="layers for each configuration")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", default=":memory:")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng, start = random.Random(options.seed), time.monotonic()
    shipped = [Design(HardwareConfig.load(name)) for name in HardwareConfig.names()]
    designs = shipped + [random_design(rng) for _ in range(options.random)]
    rows = []
    with ResultStore(options.store) as store, Engine(store) as engine:
        for number, design in enumerate(designs):
            layers = random.Random(f"{options.seed} {number}").sample(LAYERS, options.layers)
            if time.monotonic() - start > options.seconds:
                break
            for layer in layers:
                network = Network.named([layer])
                (default,) = sweep([design], network, engine, "default")
                (best,) = sweep([design], network, engine, "fast")
                (guess,) = sweep([design], network, engine, "bound")
                if best.complete:
                    over = default.cycles / best.cycles
                    row = {"design": design.name, "layer": layer, "over_best": over}
                    row |= {"estimate": guess.cycles / default.cycles, "cycles": best.cycles}
                    row |= {"default": default.layer_rows[0]["tiling"]}
                    row |= {"best": best.layer_rows[0]["tiling"]}
                    rows.append(row)
    ratios = sorted(row["over_best"] for row in rows)
    table = Table(title=f"{len(ratios)} searches: default over best")
    for column in ("design", "layer", "over best", "estimate over cycles"):
        table.add_column(column)
    for row in sorted(rows, key=lambda row: -row["over_best"])[:12]:
        table.add_row(
            row["design"], row["layer"], f"{row['over_best']:.4f}", f"{row['estimate']:.3f}"
        )
    Console(width=120).print(table)
    within = sum(ratio <= 1.01 for ratio in ratios)
    print(
        f"within 1 %: {within} of {len(ratios)}; median {statistics.median(ratios):.4f}, "
        f"largest {ratios[-1]:.4f}"
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
