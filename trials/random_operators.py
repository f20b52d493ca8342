"""Random operators on random configurations: none is refused that any tiling fits.

Ten operators on each configuration. The default tiling is compiled, verified and run on fsim, and
its result compared with NumPy, also where its images are parts of larger ones; every fourth time a
random tiling too. The first of the ten runs as a kernel of the host as well. Where there is no
tiling, every tile is given to the lowering if there are few, else the smallest. Exit code: 1 if a
case failed, 2 if some are left.
"""

from __future__ import annotations

import random

import numpy as np

import vtaops
from trials.campaign import Campaign, Result, result
from trials.placed import is_right
from trials.random_cases import random_arguments, random_tiling
from trials.tilings import any_tiling_fits, lowered, random_config, random_operator
from vtaops import HardwareConfig
from vtaops.base.errors import ScheduleError
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.runtime import Fsim
from vtaops.schedule import Tiling, default_tiling
from vtaops.session import fallback as host

OPERATORS = 10
"""On each configuration."""


def trial(case: str) -> Result:
    """Try one operator: ``CONFIGURATION/NUMBER``."""
    config_number, operator_number = map(int, case.split("/"))
    config = random_config(random.Random(config_number))
    rng = random.Random(OPERATORS * config_number + operator_number)
    op = random_operator(rng)
    try:
        outcome = outcome_of(rng, op, config)
        if operator_number == 0:
            arrays = random_arguments(op, np.random.default_rng(config_number))
            assert np.array_equal(host.run(op, arrays), evaluate(op, arrays)), "on the host"
        return result(outcome, operators=1)
    except Exception as error:
        error.add_note(f"{op} on {config}")
        raise


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


CAMPAIGN = Campaign(
    lambda count: [f"{c}/{o}" for c in range(count) for o in range(OPERATORS)], trial, count=300
)
