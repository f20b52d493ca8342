"""The def-use index of operations against a walk over single elements."""

import random

import numpy as np
import pytest
import vtaops._uses as _uses

from vtaops.lowering.operation import Operation
from vtaops.lowering.passes.uses import (
    Followed,
    LastWrites,
    last_conflicts,
    last_writers,
    read_later,
)
from vtaops.machine.accesses import DRAM, Access, listed, run
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load


def drawn_accesses(seed):
    rng = random.Random(seed)
    for _ in range(60):
        elements = sorted(rng.sample(range(rng.choice([4, 40])), k=rng.randint(1, 4)))
        memory, writes = rng.choice([Memory.INP, Memory.WGT]), rng.random() < 0.5
        reads = not writes or rng.random() < 0.3
        yield listed(memory, np.array(elements), writes=writes, reads=reads)


def depends(access, earlier):
    common = {*access.elements.tolist()} & {*earlier.elements.tolist()}
    return access.memory == earlier.memory and (access.writes or earlier.writes) and common


def accessing(*accesses, dram=()):
    """An operation that accesses what a test says."""
    return Operation(Load()).elsewhere(scratchpads=accesses, dram=tuple(dram))


def operations_of(accesses):
    """Operations of no, one, two and three accesses in turn."""
    return [
        accessing(*(accesses.pop() for _ in range(min(len(accesses), k))))
        for k in (0, 1, 2, 3) * 10
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_last_conflicts_are_those_of_single_elements(seed):
    rng, operations = random.Random(seed), operations_of([*drawn_accesses(seed)])
    kinds = [rng.randrange(3) for _ in operations]
    expected = [
        [
            max(
                (
                    k
                    for k in range(place)
                    if kinds[k] == kind
                    and any(
                        depends(a, e)
                        for a in operations[place].accesses
                        for e in operations[k].accesses
                    )
                ),
                default=-1,
            )
            for kind in range(3)
        ]
        for place in range(len(operations))
    ]
    assert last_conflicts(operations, kinds, 3).tolist() == expected


def test_what_accesses_nothing_depends_on_nothing():
    assert last_conflicts([], [], 2).shape == (0, 2)
    assert last_conflicts([Operation(Load())] * 2, [0, 1], 2).tolist() == [[-1, -1], [-1, -1]]


def changed(**changes):
    """An access to two elements apart with other attributes."""
    return Access(Memory.INP, 1, np.array([0, 2]), writes=True)._replace(**changes)


@pytest.mark.parametrize(
    ("access", "kinds", "message"),
    [
        (changed(), [0, 1], "negative or too large"),
        (changed(), [-1, 0], "negative or too large"),
        (changed(), [0], "columns differ in length"),
        (changed(memory=-1), [0, 0], "negative or too large"),
        (changed(memory=1 << 40), [0, 0], "negative or too large"),
        (changed(first=-1), [0, 0], "negative or too large"),
        (changed(first=1 << 40), [0, 0], "negative or too large"),
        (changed(offsets=np.array([-1, 3])), [0, 0], "negative or too large"),
        (changed(offsets=np.array([1, 1 << 40])), [0, 0], "negative or too large"),
    ],
)
def test_what_does_not_match_is_refused(access, kinds, message):
    with pytest.raises(ValueError, match=message):
        last_conflicts([accessing(), accessing(access)], kinds, 1)


def test_only_accesses_to_dram_can_be_asked_for():
    operations, one = [accessing(changed())], np.ones(1, np.int64)
    with pytest.raises(ValueError, match="does not access DRAM"):
        _uses.needed(operations, one)
    with pytest.raises(ValueError, match="does not access DRAM"):
        _uses.sources(operations, -one, one, Memory.ACC)


@pytest.mark.parametrize("seed", range(20))
def test_what_later_operations_need_is_what_they_read_first(seed):
    drawn = operations_of([*drawn_accesses(seed)])
    operations = [accessing(*o.scratchpads[1:], dram=o.scratchpads[:1]) for o in drawn]
    asked = np.array([bool(o.dram) for o in operations], np.int64)
    found, later = _uses.needed(operations, asked), []
    for place, operation in reversed([*enumerate(operations)]):
        if asked[place]:
            (access,) = operation.dram
            same = [other for other in later if other.memory == access.memory]
            expected = [
                next((not other.writes for other in same if e in other.elements), False)
                for e in access.elements
            ]
            assert found.get(place, np.ones(access.size, bool)).tolist() == expected
        later = sorted(operation.accesses, key=lambda access: access.writes) + later


@pytest.mark.parametrize("seed", range(20))
def test_the_sources_are_stored_tiles_that_are_still_there(seed):
    """Stores and loads of four bytes of DRAM, and writes to the output memory, in turn."""
    rng = random.Random(seed)
    dram, out, operations, stored, expected = {}, {}, [], [], {}
    for place in range(60):
        kind, base, size = rng.randrange(3), rng.randrange(8), rng.randint(1, 4)
        granules = np.array(sorted(rng.sample(range(8), size)))
        memory = run(Memory.ACC if kind else Memory.INP, base, size, writes=kind == 1)
        moved = [] if kind == 1 else [listed(DRAM, granules, writes=kind == 2)]
        operations.append(accessing(memory, dram=moved))
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
    asked = [bool(o.dram) and not o.dram[0].writes for o in operations]
    found = _uses.sources(operations, np.array(stored), np.array(asked, np.int64), Memory.ACC)
    assert {place: own.tolist() for place, own in found.items()} == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_last_writes_are_those_of_single_elements(seed):
    last, written = LastWrites(), {}
    for place, access in enumerate(drawn_accesses(seed)):
        elements = access.elements.tolist()
        expected = [written.get((access.memory, element), -1) for element in elements]
        assert last.of(access.memory, access.elements).tolist() == expected
        last.note(accessing(access), place)
        if access.writes:
            written.update({(access.memory, element): place for element in elements})


@pytest.mark.parametrize("seed", range(20))
def test_results_are_read_before_they_are_overwritten(seed):
    """Operations that are followed, some of them if what they write is read."""
    accesses, rng = [*drawn_accesses(seed)], random.Random(seed)
    followed = [rng.choice([*Followed]) for _ in accesses]
    live, expected = set(), []
    for access, way in zip(reversed(accesses), reversed(followed), strict=True):
        own = {(access.memory, element) for element in access.elements.tolist()}
        expected.insert(0, bool(access.writes and own & live))
        if way is Followed.ALWAYS or (way is Followed.IF_READ and expected[0]):
            live -= own if access.writes else set()
            live |= own if access.reads else set()
    assert read_later([*map(accessing, accesses)], followed).tolist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_last_writers_are_those_of_single_elements(seed):
    accesses, rng, written = [*drawn_accesses(seed)], random.Random(seed), {}
    asked = [rng.random() < 0.3 for _ in accesses]
    expected = [False] * len(accesses)
    for place, (access, is_asked) in enumerate(zip(accesses, asked, strict=True)):
        own = [(access.memory, element) for element in access.elements.tolist()]
        for writer in {written[element] for element in own if element in written}:
            expected[writer] |= is_asked and access.reads
        written |= dict.fromkeys(own, place) if access.writes else {}
    assert last_writers([*map(accessing, accesses)], asked).tolist() == expected
