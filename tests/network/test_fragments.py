"""The operations of steps: shared by those that differ in the numbers of their results alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from trials.random_cases import random_scaled
from vtaops.compiler.driver import emit_operator
from vtaops.machine.config import POST_ROWS
from vtaops.network.compile import target_of
from vtaops.network.fragments import Fragments, chained, finished, planned
from vtaops.network.places import MappedOperator
from vtaops.ops import Conv2d
from vtaops.ops.families import SumOfProducts
from vtaops.schedule import default_tiling


@pytest.mark.parametrize("seed", range(12))
def test_zero_point_and_bounds_are_put_into_shared_operations(seed: int) -> None:
    rng = random.Random(seed)
    op = random_scaled(rng)
    while not isinstance(op, SumOfProducts):
        op = random_scaled(rng)
    fragments = Fragments(target_of("pynq_ext", None))
    config = fragments.target.config
    shared = set()
    for _ in range(3):
        low = rng.randint(-128, 127)
        numbers: dict[str, Any] = {
            "zero_point": rng.randint(-128, 127),
            "clip": (low, rng.randint(low, 127)),
        }
        other = replace(op, **numbers)
        common = fragments.of(MappedOperator("step", other, {}))
        shared.add(id(common))
        found = finished(common, other)
        own = emit_operator(other, config, default_tiling(other, config), rows=POST_ROWS)
        assert chained([found]).instructions.tolist() == chained([own]).instructions.tolist()
        assert found.record == own.record
        assert found.buffers == own.buffers
    assert len(shared) == 1


@pytest.mark.parametrize("kernel", [1, 3])
def test_steps_in_sequence_take_no_longer_than_each_alone(kernel: int) -> None:
    """Chains that are not linked for it (`_keeps_array_busy`) would have been left as they are."""
    fragments = Fragments(target_of("pynq_ext", None))
    sides = {"height": 14, "width": 14, "kernel": kernel, "padding": kernel // 2}
    op = Conv2d(in_channels=64, out_channels=64, **sides)
    steps = [MappedOperator("step", each, {}) for each in (op, op, replace(op, out_channels=32))]
    computed, cycles = zip(*map(fragments.alone, steps), strict=True)
    together = chained([*map(fragments.of, steps)])
    assert together.cycles(planned(together.config)) <= sum(cycles)
    counted = together.stats()
    products = counted.gemm_counter // together.config.products_per_cycle
    assert products + counted.alu_counter == sum(computed)
    assert fragments.alone(steps[0]) is fragments.alone(steps[1])
