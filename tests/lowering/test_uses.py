"""The def-use index of operations against a walk over single elements."""

import random

import numpy as np
import pytest
import vtaops._uses as _uses

from vtaops.lowering.operation import Operation, Touch
from vtaops.lowering.passes.uses import LastWrites, Live, last_conflicts
from vtaops.machine.isa import Load


def drawn_touches(seed):
    rng = random.Random(seed)
    for _ in range(60):
        elements = rng.sample(range(rng.choice([4, 40])), k=rng.randint(1, 4))
        yield Touch(rng.choice(["inp", "wgt"]), np.array(elements), rng.random() < 0.5)


def depends(touch, earlier):
    common = {*touch.elements.tolist()} & {*earlier.elements.tolist()}
    return touch.space == earlier.space and (touch.write or earlier.write) and common


@pytest.mark.parametrize("seed", range(20))
def test_the_last_conflicts_are_those_of_single_elements(seed):
    rng, touches = random.Random(seed), [*drawn_touches(seed)]
    operations = [[touches.pop() for _ in range(min(len(touches), k))] for k in (0, 1, 2, 3) * 10]
    kinds = [rng.randrange(3) for _ in operations]
    expected = [
        [
            max(
                (
                    k
                    for k in range(place)
                    if kinds[k] == kind
                    and any(depends(t, e) for t in operations[place] for e in operations[k])
                ),
                default=-1,
            )
            for kind in range(3)
        ]
        for place in range(len(operations))
    ]
    assert last_conflicts(operations, kinds, 3).tolist() == expected


def test_what_touches_nothing_depends_on_nothing():
    assert last_conflicts([], [], 2).shape == (0, 2)
    assert last_conflicts([[], []], [0, 1], 2).tolist() == [[-1, -1], [-1, -1]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": [0, 1]}, "negative or too large"),
        ({"counts": [1, 2]}, "negative or too large"),
        ({"counts": [1, -1]}, "negative or too large"),
        ({"counts": [1]}, "columns differ in length"),
        ({"touches": [[0, 0, 1, 3], [0, 1, 2, -1]]}, "too few elements"),
        ({"touches": [[0, 0, 1, 3], [0, 1, -1, 0]]}, "negative or too large"),
        ({"touches": [[0, 0, 1, 3], [1 << 40, 1, 1, 0]]}, "negative or too large"),
        ({"touches": [[0, 0, 1, 1 << 40], [0, 1, 1, 0]]}, "negative or too large"),
        ({"elements": [-1]}, "negative or too large"),
    ],
)
def test_columns_that_do_not_match_are_refused(changed, message):
    columns = {"kind": [0, 0], "counts": [1, 1], "touches": [[0, 0, 1, 3], [0, 1, 1, -1]]}
    columns |= {"elements": [3]} | changed
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    with pytest.raises(ValueError, match=message):
        _uses.last_conflicts(kinds=1, **arrays)


@pytest.mark.parametrize("seed", range(5))
def test_the_last_writes_are_those_of_single_elements(seed):
    last, written = LastWrites(), {}
    for place, touch in enumerate(drawn_touches(seed)):
        expected = [written.get((touch.space, element), -1) for element in touch.elements.tolist()]
        assert last.of(touch.space, touch.elements).tolist() == expected
        assert last.writers(touch.space, touch.elements) == {*expected} - {-1}
        last.note(Operation(Load(), touches=(touch,)), place)
        if touch.write:
            written.update({(touch.space, element): place for element in touch.elements.tolist()})


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
