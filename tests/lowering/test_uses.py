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


def operations_of(touches):
    """Operations of no, one, two and three touches in turn."""
    return [
        Operation(Load(), touches=tuple(touches.pop() for _ in range(min(len(touches), k))))
        for k in (0, 1, 2, 3) * 10
    ]


@pytest.mark.parametrize("ignored", ["", "inp"])
@pytest.mark.parametrize("seed", range(20))
def test_the_last_conflicts_are_those_of_single_elements(seed, ignored):
    rng, operations = random.Random(seed), operations_of([*drawn_touches(seed)])
    kinds = [rng.randrange(3) for _ in operations]
    expected = [
        [
            max(
                (
                    k
                    for k in range(place)
                    if kinds[k] == kind
                    and any(
                        depends(t, e) and t.space != ignored
                        for t in operations[place].touches
                        for e in operations[k].touches
                    )
                ),
                default=-1,
            )
            for kind in range(3)
        ]
        for place in range(len(operations))
    ]
    assert last_conflicts(operations, kinds, 3, ignored).tolist() == expected


def test_what_touches_nothing_depends_on_nothing():
    assert last_conflicts([], [], 2).shape == (0, 2)
    assert last_conflicts([Operation(Load())] * 2, [0, 1], 2).tolist() == [[-1, -1], [-1, -1]]


def changed_touch(**changes):
    """A touch of two elements apart with other attributes."""
    touch = Touch("inp", np.array([1, 3]), write=True)
    for name, value in changes.items():
        setattr(touch, name, value)
    return touch


@pytest.mark.parametrize(
    ("touch", "kinds", "message"),
    [
        (changed_touch(), [0, 1], "negative or too large"),
        (changed_touch(), [-1, 0], "negative or too large"),
        (changed_touch(), [0], "columns differ in length"),
        (changed_touch(size=1), [0, 0], "another number of elements"),
        (changed_touch(size=-1), [0, 0], "negative or too large"),
        (changed_touch(begin=1 << 40), [0, 0], "negative or too large"),
        (changed_touch(elements=np.array([-1, 3])), [0, 0], "negative or too large"),
        (changed_touch(elements=np.array([1, 1 << 40])), [0, 0], "negative or too large"),
    ],
)
def test_what_does_not_match_is_refused(touch, kinds, message):
    operations = [Operation(Load()), Operation(Load(), touches=(touch,))]
    with pytest.raises(ValueError, match=message):
        last_conflicts(operations, kinds, 1)


def test_only_second_touches_can_be_asked_for():
    operations, one = [Operation(Load(), touches=(changed_touch(),))], np.ones(1, np.int64)
    with pytest.raises(ValueError, match="no second touch"):
        _uses.needed(operations, one)
    with pytest.raises(ValueError, match="no second touch"):
        _uses.sources(operations, -one, one)


@pytest.mark.parametrize("seed", range(20))
def test_what_later_operations_need_is_what_they_read_first(seed):
    operations = operations_of([*drawn_touches(seed)])
    asked = np.array([len(o.touches) > 1 for o in operations], np.int64)
    found, later = _uses.needed(operations, asked), []
    for place, operation in reversed([*enumerate(operations)]):
        if asked[place]:
            touch = operation.touches[1]
            same = [t for t in later if t.space == touch.space]
            expected = [
                next((not t.write for t in same if e in t.elements), False)
                for e in (touch.elements if touch.begin < 0 else np.sort(touch.elements))
            ]
            assert found.get(place, np.ones(touch.size, bool)).tolist() == expected
        later = sorted(operation.touches, key=lambda touch: touch.write) + later


@pytest.mark.parametrize("seed", range(20))
def test_the_sources_are_stored_tiles_that_are_still_there(seed):
    """Stores and loads of four bytes of DRAM, and writes to the output memory, in turn."""
    rng = random.Random(seed)
    dram, out, operations, stored, expected = {}, {}, [], [], {}
    for place in range(60):
        kind, base, size = rng.randrange(3), rng.randrange(8), rng.randint(1, 4)
        granules = np.array(sorted(rng.sample(range(8), size)))
        memory = Touch.of_run("acc" if kind else "inp", base, size, write=kind == 1)
        touches = memory, *([] if kind == 1 else [Touch("dram:0", granules, write=kind == 2)])
        operations.append(Operation(Load(), touches=touches))
        stored.append(base if kind == 2 else -1)
        if kind == 0:
            # What a granule came from, if the output memory has the same value at that place.
            own = [dram.get(g, (-1, None)) for g in granules.tolist()]
            own = [e if e >= 0 and out.get(e) == value else -1 for e, value in own]
            expected |= {place: own} if max(own) >= 0 else {}
        for k, granule in enumerate(granules.tolist()):
            if kind == 2:
                dram[granule] = base + k, out.get(base + k)
            elif kind == 1:
                out[base + k] = place, k
    asked = [len(o.touches) == 2 and not o.touches[1].write for o in operations]
    found = _uses.sources(operations, np.array(stored), np.array(asked, np.int64))
    assert {place: own.tolist() for place, own in found.items()} == expected


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
