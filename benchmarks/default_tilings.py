"""How far the default tiling is from the best of a search, over many configurations.

    python -m benchmarks default_tilings --random 50 --json default_tilings.json

For every shipped configuration and so many random ones, some layers of ResNet-18 and MobileNet:
cycles of the default tiling over those of the best of the dozen that `vtaops.compiler.search`
times, and the estimate over the cycles. All are the timing model's, so a busy machine changes
nothing.
"""

from __future__ import annotations

import random
import statistics
import time
from contextlib import suppress
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.options import Json, Seed, write_json
from vtaops import HardwareConfig
from vtaops.base.errors import ConfigError, VTAError
from vtaops.compiler import search
from vtaops.explore import Design
from vtaops.schedule.candidates import TilingList
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


def compared(config: HardwareConfig, layer: str) -> dict[str, Any]:
    """Return the cycles of a layer with its default tiling over the best of a search.

    Raises
    ------
    VTAError
        If no tile fits.
    """
    op = WORKLOADS[layer].op
    found = search(op, config)
    default, guess = next(TilingList(op, config).estimated(config))
    cycles = next(one.cost for one in found if one.tiling == default)
    return {
        "design": config.bitstream_id,
        "layer": layer,
        "cycles": cycles,
        "over_best": cycles / found[0].cost,
        "estimate": guess / cycles,
        "default": default.text,
        "best": found[0].tiling.text,
    }


def main(
    random_count: Annotated[int, typer.Option("--random", help="Random configurations.")] = 50,
    layer_count: Annotated[
        int, typer.Option("--layers", help="Layers for each configuration.")
    ] = 1,
    seed: Seed = 0,
    seconds: Annotated[float, typer.Option(help="Stop after so long.")] = 1e9,
    json_file: Json = None,
) -> None:
    """Search, print the distribution and the worst, write the file."""
    rng, start = random.Random(seed), time.monotonic()
    shipped = [HardwareConfig.load(name) for name in HardwareConfig.names()]
    configs = shipped + [random_design(rng).config for _ in range(random_count)]
    rows = []
    for number, config in enumerate(configs):
        if time.monotonic() - start > seconds:
            break
        for layer in random.Random(f"{seed} {number}").sample(LAYERS, layer_count):
            with suppress(VTAError):
                rows.append(compared(config, layer))
    over = sorted(row["over_best"] for row in rows)
    table = Table(title=f"{len(over)} searches: default over best")
    for column in ("design", "layer", "over best", "its estimate"):
        table.add_column(column)
    for row in sorted(rows, key=lambda row: -row["over_best"])[:12]:
        ratios = (f"{row[name]:.4f}" for name in ("over_best", "estimate"))
        table.add_row(row["design"], row["layer"], *ratios)
    Console(width=120).print(table)
    within = sum(ratio <= 1.01 for ratio in over)
    print(
        f"within 1 %: {within} of {len(over)}; median {statistics.median(over):.4f}, "
        f"largest {over[-1]:.4f}"
    )
    write_json(json_file, rows)
