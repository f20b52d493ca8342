"""Every convolution of published networks, compiled by default on every shipped configuration.

    python -m benchmarks published_layers --minutes 9      # again until nothing is left
    python -m benchmarks published_layers --configs tiny --every 10
    python -m benchmarks published_layers --tilings --state tilings.jsonl     # none is compiled

Prints, for each configuration, how many layers compile, how many of them in parts of their kernel,
and the processor time of a layer (search for the tiling and compilation with verification; median,
mean and greatest). Shipped configurations of equal geometry are one. Exit code: 1 if a layer is
refused, 2 if some are left.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks.options import Minutes, State
from trials.campaign import resume
from trials.published import published, transposed
from vtaops import HardwareConfig, VTAError
from vtaops.ops import Operator
from vtaops.schedule import default_tiling


def main(
    names: Annotated[list[str] | None, typer.Option("--configs")] = None,
    every: Annotated[int, typer.Option(help="Only each n-th layer.")] = 1,
    tilings: Annotated[
        bool, typer.Option("--tilings", help="Only decide whether a tiling fits, and which.")
    ] = False,
    minutes: Minutes = 9.0,
    state_file: State = Path("published_layers.jsonl"),
) -> int:
    """Read the options, compile what is left, show all; return the exit code."""
    layers: dict[str, Operator] = {repr(op): op for op in [*published(), *transposed()][::every]}
    configs = {c.fingerprint: c for c in map(HardwareConfig.load, names or HardwareConfig.names())}
    named = {config.name: config for config in configs.values()}
    cases = [f"{name}/{layer}" for name in named for layer in layers]

    def trial(case: str) -> dict[str, object]:
        name, _, layer = case.partition("/")
        return compiled(layers[layer], named[name], tilings=tilings)

    results = resume(state_file, cases, trial, minutes, "layers")
    table = Table(
        "configuration", "layers", "of", "refused", "in parts", "median s", "mean", "most"
    )
    for name in named:
        mine = [r for case, r in results.items() if case.partition("/")[0] == name]
        seconds = [r["seconds"] for r in mine] or [0.0]
        figures = statistics.median(seconds), statistics.mean(seconds), max(seconds)
        counts = len(mine), len(layers), sum(bool(r["refused"]) for r in mine)
        parts = sum(r["taps"] not in ("all", "") for r in mine)
        table.add_row(name, *map(str, counts), str(parts), *(f"{figure:.2f}" for figure in figures))
    Console().print(table)
    refused = {case: r["refused"] for case, r in results.items() if r["refused"]}
    for case, why in refused.items():
        print(case, why, sep="\n")
    return 1 if refused else 0 if len(results) == len(cases) else 2


def compiled(op: Operator, config: HardwareConfig, *, tilings: bool) -> dict[str, object]:
    """Compile one layer; return how long it took, how it was cut, and why it was refused."""
    start, taps, refused = time.process_time(), "", ""
    try:
        tiling = default_tiling(op, config)
        taps = tiling.taps
        if not tilings:
            vtaops.compile(op, config, tiling)
    except VTAError as error:
        refused = str(error)
    seconds = round(time.process_time() - start, 3)
    return {"seconds": seconds, "taps": taps, "refused": refused}
