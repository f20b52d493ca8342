"""The arena: no two images meet, and it is as small as can be on small cases."""

import random
from itertools import permutations

import pytest

from vtaops.model.memory import Lifetime, place


def peak(lifetimes, offsets):
    """Return the size of the arena."""
    return max((offsets[n] + lifetimes[n].nbytes for n in offsets), default=0)


def lower_bound(lifetimes):
    """Return the most bytes that are needed at one time: no arena is smaller."""
    steps = {life.first for life in lifetimes.values()}
    return max(
        (
            sum(life.nbytes for life in lifetimes.values() if life.first <= step <= life.last)
            for step in steps
        ),
        default=0,
    )


def random_lifetimes(seed, count):
    rng = random.Random(seed)
    found = {}
    for number in range(count):
        first = rng.randint(0, 12)
        found[f"t{number}"] = Lifetime(first, first + rng.randint(0, 5), 64 * rng.randint(1, 12))
    return found


def smallest(lifetimes):
    """The exact optimum: some order in which each image is put as low as possible reaches it."""
    best = None
    for order in permutations(lifetimes):
        offsets = {}
        for name in order:
            own = lifetimes[name]
            start = 0
            for other in sorted(offsets, key=offsets.get):
                meets = lifetimes[other].meets(own)
                if meets and start < offsets[other] + lifetimes[other].nbytes:
                    if start + own.nbytes <= offsets[other]:
                        break
                    start = offsets[other] + lifetimes[other].nbytes
            offsets[name] = start
        size = peak(lifetimes, offsets)
        best = size if best is None else min(best, size)
    return best


@pytest.mark.parametrize("seed", range(200))
def test_images_that_are_needed_together_do_not_overlap(seed):
    lifetimes = random_lifetimes(seed, 30)
    offsets = place(lifetimes, 64)
    for a in lifetimes:
        assert offsets[a] % 64 == 0
        for b in lifetimes:
            if a < b and lifetimes[a].meets(lifetimes[b]):
                apart = offsets[a] + lifetimes[a].nbytes <= offsets[b]
                assert apart or offsets[b] + lifetimes[b].nbytes <= offsets[a]
    assert peak(lifetimes, offsets) >= lower_bound(lifetimes)


def test_the_arena_is_close_to_the_optimum():
    ratios = []
    for seed in range(25):
        lifetimes = random_lifetimes(seed, 6)
        best = smallest(lifetimes)
        assert best >= lower_bound(lifetimes)
        ratios.append(peak(lifetimes, place(lifetimes, 64)) / best)
    assert max(ratios) <= 1.25
    assert sum(ratios) / len(ratios) <= 1.02
    assert sorted(ratios)[len(ratios) // 2] == 1.0


def test_a_chain_needs_its_two_largest_neighbours():
    sizes = [640, 128, 512, 64, 256]
    lifetimes = {f"t{i}": Lifetime(i, i + 1, size) for i, size in enumerate(sizes)}
    assert peak(lifetimes, place(lifetimes, 64)) == lower_bound(lifetimes) == 768
