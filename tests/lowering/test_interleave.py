"""Operators whose tiles take turns: the same results, proven, in fewer cycles."""

import random
from dataclasses import replace

import pytest

from trials.chains import PYNQ, SMALL, TINY, chain, check, classifier, linked
from trials.random_cases import random_tiling
from vtaops import MaxPool2d, Tiling
from vtaops.compiler.driver import emit_operator
from vtaops.machine.isa import Post, Store
from vtaops.network.placement import pack_side_by_side
from vtaops.schedule import blocked_shape
from vtaops.schedule.grouping import classifier_tilings, interleaved_tilings

OVER_DRAM = replace(PYNQ, extensions=tuple(e for e in PYNQ.extensions if e != "forward"))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_random_tilings(seed, count):
    rng = random.Random(seed)
    ops = chain(rng.choice([16, 24, 40]), rng.randint(6, 14), rng.choice([1, 2]))[:count]
    tilings = [random_tiling(rng, op, SMALL, taps="all") for op in ops]
    check(linked(ops, tilings, TINY, together=True), ops, TINY)


@pytest.mark.parametrize(("channels", "size", "share"), [(96, 56, 0.8), (480, 7, 0.97)])
def test_turns_take_fewer_cycles(channels, size, share):
    ops = chain(channels, size, stride=2, inputs=64)
    tilings = interleaved_tilings(ops, OVER_DRAM).tilings
    apart, turns = (linked(ops, tilings, OVER_DRAM, together=t) for t in (False, True))
    check(turns, ops, OVER_DRAM)
    assert turns.cycles() < share * apart.cycles()
    assert turns.stats() == apart.stats()
    assert sorted(i.sram_base for i in turns if isinstance(i, Store)) == sorted(
        i.sram_base for i in apart if isinstance(i, Store)
    )
    settings = [i for i in turns if isinstance(i, Post)]
    assert len(settings) > len([i for i in apart if isinstance(i, Post)])  # set anew at each turn
    assert not settings[-1].enable


def test_tilings_fit_side_by_side():
    for channels, size, stride in ((16, 30, 1), (96, 56, 2), (960, 7, 1)):
        for ops in (found := chain(channels, size, stride, outputs=160)), found[:2], found[1:]:
            tilings = interleaved_tilings(ops, PYNQ).tilings
            uses = [
                blocked_shape(op, PYNQ).footprint(tiling, PYNQ)
                for op, tiling in zip(ops, tilings, strict=True)
            ]
            for memory in ("inp", "wgt", "acc"):
                assert sum(use[memory] for use in uses) <= getattr(PYNQ, memory).depth
            assert len({tiling.keep for tiling in tilings}) == 1  # all go one way


@pytest.mark.parametrize(
    ("inputs", "channels", "size", "classes"),
    [(64, 320, 7, 500), (40, 72, 5, 1000), (16, 33, 3, 10)],
)
def test_weights_of_a_classifier_stream_under_its_convolution(inputs, channels, size, classes):
    """Beside a sequence over DRAM: what stays in the output memory is as near without turns."""
    ops = classifier(inputs, channels, size, classes)
    tilings = classifier_tilings(ops, PYNQ).tilings
    apart = linked(ops, tilings, OVER_DRAM, together=False)
    turns = linked(ops, tilings, PYNQ, together=True)
    check(turns, ops, PYNQ)
    assert turns.cycles() < apart.cycles()
    assert turns.stats().dram_nbytes <= apart.stats().dram_nbytes


def test_classifiers_without_room_do_not_take_turns():
    assert classifier_tilings(classifier(16, 64, 30, 10), TINY) is None
    assert classifier_tilings(classifier(2048, 64, 7, 1000), PYNQ) is None


@pytest.mark.parametrize("seed", range(4))
def test_a_pool_behind_convolutions(seed):
    rng = random.Random(seed)
    size = rng.randint(6, 14)
    first, second, _ = chain(rng.choice([16, 24]), size)
    pool = MaxPool2d(
        channels=second.out_channels, height=size, width=size, kernel=3, strides=2, padding=1
    )
    ops = [first, second, pool][rng.randrange(2) :]
    tilings = [random_tiling(rng, op, SMALL, taps="all") for op in ops]
    check(linked(ops, tilings, TINY, together=True), ops, TINY)


def test_a_pool_fits_beside_weights_that_take_the_whole_memory():
    first = replace(chain(256, 9, inputs=256)[0], kernel=(2, 2))
    pool = MaxPool2d(channels=256, height=8, width=8, kernel=2)
    tilings = [Tiling(oc=256, ic=256, h=1, w=2), Tiling(oc=16, ic=16, h=1, w=2)]
    assert blocked_shape(first, PYNQ).footprint(tilings[0], PYNQ)["wgt"] == PYNQ.wgt.depth
    check(linked([first, pool], tilings, PYNQ, together=True), [first, pool], PYNQ)


def test_without_room_there_is_no_group():
    ops = chain(64, 56, inputs=64)[:2]
    whole = [emit_operator(op, PYNQ, Tiling(oc=64, ic=16, h=14, w=28, acc_tiles=1)) for op in ops]
    assert pack_side_by_side(whole) is None
