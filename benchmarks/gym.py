"""The reference searches for tilings on the same budget of evaluations.

    python -m benchmarks gym --budget 24 --json gym.json

Fewest cycles by the timing model that each search finds for some layers on a configuration; for
searches with random choices the median of the seeds. Evaluations that two searches share are
computed once. TVM's MetaSchedule (its evolutionary strategy on the splits,
`search_metaschedule.py`) has the same budget and one seed; it needs the extra ``tune``, and
convolutions of stride 1.
"""

from __future__ import annotations

import statistics
from typing import Annotated

import typer

from benchmarks.options import Config, Json, write_json
from examples.tiling_gym import SEARCHES, Problem
from vtaops import Conv2d, HardwareConfig, VTAError
from vtaops.explore import Design, Engine, ResultStore
from vtaops.ops import Operator
from vtaops.schedule.workloads import find

LAYERS = ("resnet18.C2", "resnet18.C8", "resnet18.C10", "mobilenet.D9")
RANDOM = ("evolutionary", "random")


def metaschedule(op: Operator, design: Design, budget: int) -> int | None:
    """Return what MetaSchedule finds, or None where its schedule does not apply."""
    if not isinstance(op, Conv2d) or op.strides not in (1, (1, 1)):
        return None
    from benchmarks.search_metaschedule import evolve

    try:
        return int(evolve(op, design.config, budget)["cycles"])
    except VTAError:
        return None  # nothing legal


def main(
    config_name: Config = "pynq",
    chosen: Annotated[list[str] | None, typer.Option("--layer")] = None,
    budget: Annotated[int, typer.Option()] = 24,
    seeds: Annotated[int, typer.Option()] = 3,
    store_file: Annotated[str, typer.Option("--store")] = ":memory:",
    json_file: Json = None,
) -> None:
    """Run all searches, print a table in Markdown, write the file."""
    design = Design(HardwareConfig.load(config_name))
    rows = []
    print("| layer | " + " | ".join([*SEARCHES, "MetaSchedule"]) + " |")
    print("|---|" + "--:|" * (len(SEARCHES) + 1))
    with ResultStore(store_file) as store, Engine(store) as engine:
        for layer in chosen or LAYERS:
            cells = []
            for name, run in SEARCHES.items():
                reached = []
                for seed in range(seeds if name in RANDOM else 1):
                    problem = Problem(find(layer).op, design, engine)
                    run(problem, budget, seed)
                    if problem.best:
                        reached.append(problem.best[0])
                cycles = int(statistics.median(reached)) if reached else None
                rows.append({"layer": layer, "search": name, "cycles": cycles})
                cells.append(f"{cycles:,}" if cycles else "nothing legal")
            cycles = metaschedule(find(layer).op, design, budget)
            rows.append({"layer": layer, "search": "MetaSchedule", "cycles": cycles})
            cells.append(f"{cycles:,}" if cycles else "—")
            print(f"| {layer} | " + " | ".join(cells) + " |", flush=True)
    write_json(json_file, rows)
