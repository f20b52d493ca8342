"""Weights of an operator are loaded while the array is busy with the one before it."""

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from trials.random_cases import random_tiling
from vtaops import Conv2d, HardwareConfig
from vtaops.compiler.driver import emit_operator
from vtaops.lowering import PlacedFragment, link
from vtaops.machine.isa import Load, Memory
from vtaops.network.placement import ping_pong
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Role
from vtaops.runtime import Fsim

PYNQ = HardwareConfig.load("pynq")
TINY = HardwareConfig.load("tiny")


def conv(inputs, outputs, size, kernel, shift):
    """Return a convolution that keeps the size of its image."""
    return Conv2d(
        in_channels=inputs,
        out_channels=outputs,
        height=size,
        width=size,
        kernel=kernel,
        padding=kernel // 2,
        shift=shift,
    )


def linked(ops, config, tilings=None, *, shifted):
    """Return the program of operators of which each reads what the one before it stores."""
    fragments = [
        emit_operator(op, config, t)
        for op, t in zip(ops, tilings or [None] * len(ops), strict=True)
    ]
    if shifted:
        fragments = ping_pong(fragments, [])
    buffers, parts = [], []
    for number, fragment in enumerate(fragments):
        places = []
        for buffer in fragment.buffers:
            if number and buffer.name == "data":
                places.append(
                    next(k for k, b in enumerate(buffers) if b.name == f"{number - 1}:res")
                )
                continue
            last = number == len(fragments) - 1
            role = Role.SCRATCH if buffer.name == "res" and not last else buffer.role
            places.append(len(buffers))
            buffers.append(replace(buffer, name=f"{number}:{buffer.name}", role=role))
        parts.append(PlacedFragment(fragment, tuple(places)))
    program = link(parts, buffers)
    program.verify()
    return program


def check(program, ops, config):
    """Compare with the reference."""
    rng = np.random.default_rng(0)
    arrays = [random_arguments(op, rng) for op in ops]
    value = arrays[0][0]
    for op, own in zip(ops, arrays, strict=True):
        value = evaluate(op, [value, *own[1:]])
    with Fsim(config, seed=3) as device:
        found = program.run(device, arrays[0][0], *(a for own in arrays for a in own[1:]))
    assert np.array_equal(found, value)


def loads_within(program, first, second):
    """Return how many loads of weights of one operator lie within another."""
    spans = program.operators[first].spans
    begin, end = spans[0][0], spans[-1][1]
    own = {k for span in program.operators[second].spans for k in range(*span) if begin < k < end}
    return sum(
        isinstance(i, Load) and i.memory == Memory.WGT for k, i in enumerate(program) if k in own
    )


@pytest.mark.parametrize("seed", range(8))
def test_random_chains(seed):
    rng = random.Random(seed)
    sizes = [rng.choice([8, 16, 24, 40]) for _ in range(4)]
    ops = [conv(a, b, 8, rng.choice([1, 3]), 4) for a, b in pairwise(sizes)]
    tilings = [random_tiling(rng, op, TINY, taps="all") for op in ops]
    for shifted in (False, True):
        check(linked(ops, TINY, tilings, shifted=shifted), ops, TINY)


def test_weights_hide_behind_the_operator_before():
    ops = [conv(64, 64, 14, 3, 6), conv(64, 128, 14, 1, 6)]
    stays, shifted = (linked(ops, PYNQ, shifted=s) for s in (False, True))
    check(shifted, ops, PYNQ)
    assert loads_within(shifted, 0, 1) > 0
    assert shifted.cycles() < stays.cycles()
    assert shifted.stats() == replace(
        stays.stats(), uop_load_nbytes=shifted.stats().uop_load_nbytes
    )  # equal work; micro-ops name other places
