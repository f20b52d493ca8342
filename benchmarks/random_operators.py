"""Random operators on random configurations: none is refused that any tiling fits.

    python -m benchmarks random_operators --minutes 9      # again until nothing is left

Ten operators on each configuration. The default tiling is compiled, verified and run on fsim, and
its result compared with NumPy, also where its images are parts of larger ones; every fourth time a
random tiling too. Where there is none, every tile is given to the lowering if there are few, else
the smallest. Exit code: 1 if a case failed, 2 if some are left.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks.options import Minutes, State
from benchmarks.resumable import resume
from trials.placed import is_right
from trials.random_cases import random_arguments, random_tiling
from trials.tilings import any_tiling_fits, lowered, random_config, random_operator
from vtaops import HardwareConfig
from vtaops.base.errors import ScheduleError
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.runtime import Fsim
from vtaops.schedule import Tiling, default_tiling

OPERATORS = 10
"""On each configuration."""


def main(
    configs: Annotated[int, typer.Option()] = 300,
    minutes: Minutes = 9.0,
    state_file: State = Path("random_operators.jsonl"),
) -> int:
    """Read the options, run what is left, show all; return the exit code."""
    cases = [f"{c}/{o}" for c in range(configs) for o in range(OPERATORS)]
    results = resume(state_file, cases, trial, minutes, "operators")
    table = Table("outcome", "operators", "processor s")
    outcomes = Counter(result["outcome"] for result in results.values())
    for outcome, count in outcomes.most_common():
        spent = sum(r["seconds"] for r in results.values() if r["outcome"] == outcome)
        table.add_row(outcome, str(count), f"{spent:.0f}")
    Console().print(table)
    failed = {case: r for case, r in results.items() if r["outcome"] == "failed"}
    for case, result in failed.items():
        print(case, result["error"], sep="\n")
    return 1 if failed else 0 if len(results) == len(cases) else 2


def trial(case: str) -> dict[str, object]:
    """Try one operator."""
    config_number, operator_number = map(int, case.split("/"))
    config = random_config(random.Random(config_number))
    rng = random.Random(OPERATORS * config_number + operator_number)
    op = random_operator(rng)
    start, error = time.process_time(), ""
    try:
        outcome = outcome_of(rng, op, config)
    except Exception:
        outcome, error = "failed", f"{op} on {config}\n{traceback.format_exc()[-2000:]}"
    return {"outcome": outcome, "error": error, "seconds": round(time.process_time() - start, 2)}


def outcome_of(rng: random.Random, op: Operator, config: HardwareConfig) -> str:
    """Return what became of an operator; what is wrong raises."""
    try:
        tiling = default_tiling(op, config)
    except ScheduleError:
        assert not any_tiling_fits(op, config), "a tile fits"
        compiles, tried = lowered(op, config)
        assert not compiles, "lowering places a tile"
        return f"nothing fits ({tried} lowered)"
    compare(op, config, tiling, rng.randrange(1 << 30))
    if rng.random() < 0.25:
        compare(op, config, random_tiling(rng, op, config), rng.randrange(1 << 30))
    return "compiled, equal to NumPy" + ("" if tiling.taps == "all" else ", in parts")


def compare(op: Operator, config: HardwareConfig, tiling: Tiling, seed: int) -> None:
    """Compile, verify and run, alone and in parts of larger images; compare the results."""
    arrays = random_arguments(op, np.random.default_rng(seed))
    program = vtaops.compile(op, config, tiling)
    with Fsim(config, seed=seed) as device:
        assert np.array_equal(program.run(device, *arrays), evaluate(op, arrays)), tiling
        assert is_right(op, config, tiling, arrays, device, seed), f"in larger images, {tiling}"
