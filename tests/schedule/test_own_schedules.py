"""Schedules that users write: random ones are exact; wrong ones are refused with what to write."""

import random

import numpy as np
import pytest
from helpers.own_schedules import random_convolution, random_plan

import vtaops
from vtaops import HardwareConfig
from vtaops.lowering import Capacity
from vtaops.runtime import Fsim

TINY = HardwareConfig.load("tiny")


def case(seed, config):
    """Return a random operator that fits, its program and its arrays."""
    rng = random.Random(f"own {seed}")
    while True:
        op = random_convolution(rng, config)
        if min(op.out_size) < 1:
            continue
        plan, capacity = random_plan(rng, op), Capacity(*rng.choices([1, 2], k=3))
        try:
            program = vtaops.build(
                plan.schedule(op), config, capacity=capacity, capabilities="fsim"
            )
        except vtaops.ScheduleError as error:
            assert "too many" in str(error), (op, plan)
            continue
        return op, program, op.arrays(np.random.default_rng(seed))


@pytest.mark.parametrize("config", ["tiny", "pynq"])
@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_equal_numpy(seed, config):
    op, program, arrays = case(seed, HardwareConfig.load(config))
    for order in (None, seed):
        with Fsim(config, seed=order) as device:
            np.testing.assert_array_equal(program.run(device, *arrays), op.expected(*arrays))
            assert device.stats() == program.stats()
