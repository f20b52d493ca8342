"""The reference searches for tilings on the same budget of verdicts.

    python benchmarks/gym.py --budget 24 --json gym.json

Fewest cycles by the timing model that each search finds for some layers on a configuration; for
searches with random choices the median of the seeds. Verdicts that two searches share are computed
once. TVM's MetaSchedule (its evolutionary strategy on the splits, `search_metaschedule.py`) has the
same budget and one seed; it needs the extra ``tune``, and convolutions of stride 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from vtaops import Conv2d, HardwareConfig, VTAError
from vtaops.explore import SEARCHES, Design, Engine, Problem, ResultStore
from vtaops.ops import Operator
from vtaops.schedule.workloads import find

LAYERS = ("resnet18.C2", "resnet18.C8", "resnet18.C10", "mobilenet.D9")
RANDOM = ("evolutionary", "random")


def metaschedule(op: Operator, design: Design, budget: int) -> int | None:
    """Return what MetaSchedule finds, or None where its schedule does not apply."""
    if not isinstance(op, Conv2d) or op.strides not in (1, (1, 1)):
        return None
    from search_metaschedule import evolve

    try:
        return int(evolve(op, design.config, budget)["cycles"])
    except VTAError:
        return None  # nothing legal


def main() -> None:
    """Run all searches, print a table in Markdown, write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", default="pynq")
    parser.add_argument("--layer", action="append")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--store", default=":memory:")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    design = Design(HardwareConfig.load(options.config))
    rows = []
    print("| layer | " + " | ".join([*SEARCHES, "MetaSchedule"]) + " |")
    print("|---|" + "--:|" * (len(SEARCHES) + 1))
    with ResultStore(options.store) as store, Engine(store) as engine:
        for layer in options.layer or LAYERS:
            cells = []
            for name, run in SEARCHES.items():
                reached = []
                for seed in range(options.seeds if name in RANDOM else 1):
                    problem = Problem(find(layer).op, design, engine)
                    run(problem, options.budget, seed)
                    if problem.best:
                        reached.append(problem.best[0])
                cycles = int(statistics.median(reached)) if reached else None
                rows.append({"layer": layer, "search": name, "cycles": cycles})
                cells.append(f"{cycles:,}" if cycles else "nothing legal")
            cycles = metaschedule(find(layer).op, design, options.budget)
            rows.append({"layer": layer, "search": "MetaSchedule", "cycles": cycles})
            cells.append(f"{cycles:,}" if cycles else "—")
            print(f"| {layer} | " + " | ".join(cells) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
