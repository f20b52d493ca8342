"""The def-use index of operations against a walk over single elements."""

import random

import numpy as np
import pytest

from vtaops.lowering.operation import Operation, Touch
from vtaops.lowering.passes.uses import LastUses, Live
from vtaops.machine.isa import Load


def drawn_touches(seed):
    rng = random.Random(seed)
    for _ in range(60):
        elements = rng.sample(range(rng.choice([4, 40])), k=rng.randint(1, 4))
        yield Touch(rng.choice(["inp", "wgt"]), np.array(elements), rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(5))
def test_the_last_conflict_is_that_of_single_elements(seed):
    uses, noted = LastUses(), []
    for place, touch in enumerate(drawn_touches(seed)):
        mine = set(touch.elements.tolist())
        rivals = [
            k
            for k, other in enumerate(noted)
            if other.space == touch.space
            and (other.write or touch.write)
            and mine & set(other.elements.tolist())
        ]
        assert uses.conflict(touch) == max(rivals, default=-1)
        uses.note(touch, place)
        noted.append(touch)


@pytest.mark.parametrize("seed", range(5))
def test_live_is_what_is_read_before_it_is_overwritten(seed):
    live, behind = Live("inp"), []
    for touch in drawn_touches(seed):
        expected = [
            next((t.space == "inp" and not t.write for t in behind if element in t.elements), False)
            for element in touch.elements
        ]
        if touch.space == "inp":
            assert live.read(touch).tolist() == expected
            behind.insert(0, touch)
        live.pass_back(Operation(Load(), touches=(touch,)))
