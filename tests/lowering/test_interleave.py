"""Two operators whose tiles take turns: the same results, proven, in fewer cycles."""

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
from vtaops.lowering.interleave import beside, halves
from vtaops.program import Role
from vtaops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim

PYNQ = HardwareConfig.load("pynq_ext")
TINY = replace(HardwareConfig.load("tiny"), extensions=tuple(EXTENSIONS))


def pair(channels, size, stride=1, inputs=16):
    """Return a pointwise convolution, and the depthwise one that reads its result."""
    scaled = {"bias": True, "scales": True, "shift": 0}
    first = Conv2d(
        in_channels=inputs,
        out_channels=channels,
        height=size,
        width=size,
        kernel=1,
        zero_point=3,
        **scaled,
    )
    second = Conv2d(
        in_channels=channels,
        out_channels=channels,
        height=size,
        width=size,
        kernel=3,
        strides=stride,
        padding=1,
        groups=channels,
        **scaled,
    )
    return first, replace(second, zero_point=-5, clip=(-100, 90))


def linked(ops, tilings, config, *, together):
    """Return the program of two operators, the second in scratchpads beside the first."""
    first, second = (
        emit(op, config, tiling, rows=POST_ROWS // 2)
        for op, tiling in zip(ops, tilings, strict=True)
    )
    second = beside(first, second)
    assert second is not None
    buffers, parts = [], []
    for number, fragment in enumerate((first, second)):
        places = []
        for buffer in fragment.buffers:
            if number and buffer.name == "data":
                places.append(len(first.buffers) - 1)
                continue
            role = Role.SCRATCH if not number and buffer.name == "res" else buffer.role
            places.append(len(buffers))
            buffers.append(replace(buffer, name=f"{number}:{buffer.name}", role=role))
        parts.append(Part(fragment, tuple(places)))
    program = link(parts, buffers, together=[0] if together else [])
    program.verify()
    return program


def check(program, ops, config):
    """Compare with the reference."""
    rng = np.random.default_rng(0)
    arrays = [random_arguments(op, rng) for op in ops]
    expected = evaluate(ops[1], [evaluate(ops[0], arrays[0]), *arrays[1][1:]])
    with Fsim(config, seed=2) as device:
        found = program.run(device, *arrays[0], *arrays[1][1:])
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("seed", range(6))
def test_random_tilings(seed):
    rng = random.Random(seed)
    ops = pair(rng.choice([16, 24, 40]), rng.randint(6, 14), rng.choice([1, 2]))
    tilings = [random_tiling(rng, op, halves(TINY), taps="all") for op in ops]
    check(linked(ops, tilings, TINY, together=True), ops, TINY)


def test_turns_take_fewer_cycles():
    ops = pair(64, 56, stride=2, inputs=64)
    tilings = (
        Tiling(oc=64, ic=64, h=4, w=14, inp_tiles=2, wgt_tiles=1, acc_tiles=2),
        Tiling(oc=64, ic=16, h=4, w=7, inp_tiles=2, wgt_tiles=1, acc_tiles=2, keep="inp"),
    )
    apart, turns = (linked(ops, tilings, PYNQ, together=t) for t in (False, True))
    check(turns, ops, PYNQ)
    assert turns.cycles() < 0.95 * apart.cycles()
    assert turns.stats() == apart.stats()
    assert sorted(i.sram_base for i in turns if isinstance(i, Store)) == sorted(
        i.sram_base for i in apart if isinstance(i, Store)
    )
    settings = [i for i in turns if isinstance(i, Post)]
    assert len(settings) > len([i for i in apart if isinstance(i, Post)])  # set anew at each turn
    assert not settings[-1].enable


def test_without_room_there_is_no_pair():
    ops = pair(64, 56, inputs=64)
    whole = [emit(op, PYNQ, Tiling(oc=64, ic=16, h=14, w=28, acc_tiles=1)) for op in ops]
    assert beside(*whole) is None
