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
from vtaops.network.fragments import Fragments, chained, finished
from vtaops.network.places import MappedOperator
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
