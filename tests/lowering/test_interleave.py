"""Operators whose tiles take turns: the same results, proven, in fewer cycles."""

import random
from dataclasses import replace

import numpy as np
import pytest
from helpers.random_cases import random_tiling

from vtaops import Conv2d, HardwareConfig, Tiling
from vtaops.compiler import emit
from vtaops.config import EXTENSIONS, POST_ROWS
from vtaops.isa import Post, Store
from vtaops.lowering import Part, link
from vtaops.lowering.interleave import beside
from vtaops.program import Role
from vtaops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim
from vtaops.schedule import blocked_shape
from vtaops.schedule.turns import tilings_in_turns

PYNQ = HardwareConfig.load("pynq_ext")
TINY = replace(HardwareConfig.load("tiny"), extensions=tuple(EXTENSIONS))
SMALL = replace(  # what a tiling for it leaves of TINY is room for two more
    TINY,
    log_inp_buff_size=TINY.log_inp_buff_size - 2,
    log_wgt_buff_size=TINY.log_wgt_buff_size - 2,
    log_acc_buff_size=TINY.log_acc_buff_size - 2,
)


def chain(channels, size, stride=1, inputs=16, outputs=16):
    """Return convolutions of which each reads what the one before it gives."""
    scaled = {"bias": True, "scales": True, "shift": 0}
    image = {"height": size, "width": size}
    first = Conv2d(
        in_channels=inputs, out_channels=channels, **image, kernel=1, zero_point=3, **scaled
    )
    wide = {"in_channels": channels, "out_channels": channels, "groups": channels}
    second = Conv2d(**wide, **image, kernel=3, strides=stride, padding=1, **scaled)
    size = (size - 1) // stride + 1
    third = Conv2d(
        in_channels=channels, out_channels=outputs, height=size, width=size, kernel=1, **scaled
    )
    return first, replace(second, zero_point=-5, clip=(-100, 90)), third


def linked(ops, tilings, config, *, together):
    """Return the program of operators in scratchpads side by side."""
    rows = POST_ROWS // len(ops)
    pairs = zip(ops, tilings, strict=True)
    fragments = beside([emit(op, config, tiling, rows=rows) for op, tiling in pairs])
    assert fragments is not None
    buffers, parts = [], []
    result = -1
    for number, fragment in enumerate(fragments):
        places, given = [], result
        for buffer in fragment.buffers:
            if number and buffer.name == "data":
                places.append(given)
                continue
            last = number == len(fragments) - 1
            role = Role.SCRATCH if buffer.name == "res" and not last else buffer.role
            result = len(buffers) if buffer.name == "res" else result
            places.append(len(buffers))
            buffers.append(replace(buffer, name=f"{number}:{buffer.name}", role=role))
        parts.append(Part(fragment, tuple(places)))
    program = link(parts, buffers, together=[range(len(parts))] if together else [])
    program.verify()
    return program


def check(program, ops, config):
    """Compare with the reference."""
    rng = np.random.default_rng(0)
    arrays = [random_arguments(op, rng) for op in ops]
    value = arrays[0][0]
    for op, own in zip(ops, arrays, strict=True):
        value = evaluate(op, [value, *own[1:]])
    with Fsim(config, seed=2) as device:
        found = program.run(device, arrays[0][0], *(a for own in arrays for a in own[1:]))
    assert np.array_equal(found, value)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_random_tilings(seed, count):
    rng = random.Random(seed)
    ops = chain(rng.choice([16, 24, 40]), rng.randint(6, 14), rng.choice([1, 2]))[:count]
    tilings = [random_tiling(rng, op, SMALL, taps="all") for op in ops]
    check(linked(ops, tilings, TINY, together=True), ops, TINY)


@pytest.mark.parametrize(("channels", "size", "share"), [(96, 56, 0.8), (480, 7, 0.96)])
def test_turns_take_fewer_cycles(channels, size, share):
    ops = chain(channels, size, stride=2, inputs=64)
    tilings = tilings_in_turns(ops, PYNQ)
    apart, turns = (linked(ops, tilings, PYNQ, together=t) for t in (False, True))
    check(turns, ops, PYNQ)
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
            tilings = tilings_in_turns(ops, PYNQ)
            uses = [
                blocked_shape(op, PYNQ).footprint(tiling, PYNQ)
                for op, tiling in zip(ops, tilings, strict=True)
            ]
            for memory in ("inp", "wgt", "acc"):
                assert sum(use[memory] for use in uses) <= getattr(PYNQ, memory).depth
            assert len({tiling.keep for tiling in tilings}) == 1  # all go one way


def test_without_room_there_is_no_group():
    ops = chain(64, 56, inputs=64)[:2]
    whole = [emit(op, PYNQ, Tiling(oc=64, ic=16, h=14, w=28, acc_tiles=1)) for op in ops]
    assert beside(whole) is None
