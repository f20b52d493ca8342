"""The def-use index of operations against a walk over single elements."""

import random

import numpy as np
import pytest
import vtaops._uses as _uses

from vtaops.lowering.linking import ordering
from vtaops.lowering.operation import Operation
from vtaops.lowering.passes.uses import Followed, mask_of
from vtaops.machine.accesses import listed
from vtaops.machine.config import Memory
from vtaops.machine.isa import Load


def drawn_accesses(seed, memories=(Memory.INP, Memory.WGT)):
    rng = random.Random(seed)
    for _ in range(60):
        elements = sorted(rng.sample(range(rng.choice([4, 40])), k=rng.randint(1, 4)))
        memory, writes = rng.choice(memories), rng.random() < 0.5
        reads = not writes or rng.random() < 0.3
        yield listed(memory, np.array(elements), writes=writes, reads=reads)


def accessing(*accesses):
    """An operation that accesses what a test says."""
    return Operation(Load()).having(operands=accesses)


def changed(**changes):
    """An access to two elements apart with other attributes."""
    return listed(Memory.INP, np.array([1, 3]), writes=True)._replace(**changes)


@pytest.mark.parametrize(
    ("access", "kinds", "message"),
    [
        (changed(), [0, 3], "negative or too large"),
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
        _uses.Uses([accessing(), accessing(access)]).tokens(np.array(kinds))


@pytest.mark.parametrize("seed", range(20))
def test_accumulators_are_found_as_among_single_elements(seed):
    accesses, rng = [*drawn_accesses(seed, [Memory.ACC, Memory.WGT])], random.Random(seed)
    uses = _uses.Uses([*map(accessing, accesses)])
    dropped = np.array([rng.random() < 0.2 for _ in accesses])
    for _ in range(20):
        wanted = {*rng.sample(range(40), k=rng.choice([1, 3]))}
        flags = mask_of(np.array([*wanted]), 40)
        begin, end = sorted(rng.choices(range(len(accesses) + 1), k=2))
        own = [{*a.elements.tolist()} & wanted if a.memory == Memory.ACC else () for a in accesses]
        touching = (place for place in range(begin, end) if own[place])
        assert uses.touching(int(Memory.ACC), flags, begin, end) == next(touching, end)
        written = {}
        for place in range(end):
            if accesses[place].writes and not dropped[place]:
                written |= dict.fromkeys(own[place], place)
        last = (
            (min(written.values()), max(written.values())) if written.keys() == wanted else (-1, -1)
        )
        assert uses.writers(int(Memory.ACC), flags, end, dropped) == last


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
    uses = _uses.Uses([*map(accessing, accesses)])
    assert uses.read_later(np.array(followed, np.int64)).tolist() == expected


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
    uses = _uses.Uses([*map(accessing, accesses)])
    assert uses.last_writers(np.array(asked, np.int64)).tolist() == expected


@pytest.mark.parametrize(
    ("words", "order", "message"),
    [
        (np.zeros((2, 2)), [0], "columns differ in length"),
        (np.zeros((1, 3)), [0], "columns differ in length"),
        (np.zeros((1, 2)), [1], "negative or too large"),
    ],
)
def test_operations_for_link_have_one_word_each(words, order, message):
    with pytest.raises(ValueError, match=message):
        _uses.Operations([accessing()], words.astype(np.uint64), np.array(order))


def test_a_machine_for_link_has_all_memories():
    numbers = dict.fromkeys(("granule", "port_width", "wgt_depth", "uop_depth", "forwards"), 1)
    with pytest.raises(ValueError, match="missing"):
        _uses.Machine({}, {**numbers, **dict(ordering.constants())}, [1] * 7)
    with pytest.raises(KeyError):
        _uses.Machine({}, {}, [1] * 8)
