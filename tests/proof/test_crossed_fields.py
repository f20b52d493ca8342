"""A sample of `trials.crossed_fields`: one field of a description changed is refused, or right."""

import pytest

from trials import crossed_fields
from vtaops import Elementwise
from vtaops.errors import ShapeError

EACH = {"node": 41, "operator": 173}
"""Of the cases of a kind, every so many is tried."""


@pytest.mark.parametrize("kind", EACH)
def test_a_description_is_refused_or_its_program_is_right_and_proven(kind):
    verdicts = set()
    for number in range(0, len(crossed_fields.crossed(kind)), EACH[kind]):
        config = crossed_fields.CONFIGS[number % 3]
        found = crossed_fields.trial(f"{kind} {number} {config}")
        assert not found["failed"]
        verdicts |= {*found["counts"][f"{kind}s"]}
    assert verdicts >= {"cases", "right", "refused"}


def test_every_operator_has_a_base_and_every_rounding_values():
    assert {*crossed_fields.nodes()} <= {*crossed_fields.NODES}
    assert crossed_fields.roundings_crossed()


@pytest.mark.parametrize("function", ["identity", "add", "multiply"])
@pytest.mark.parametrize("field", ["nudge", "fine"])
def test_what_only_a_fine_scale_has_needs_a_multiplier(field, function):
    with pytest.raises(ShapeError, match=r"(nudge|fine), without scales, is 1; it must be 0"):
        Elementwise(function=function, shape=(2, 6, 3, 4), **{field: 1})
