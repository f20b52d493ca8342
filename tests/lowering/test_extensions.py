"""Extensions in compiled programs: the same results, proven by the verifier, in fewer passes."""

import random
from dataclasses import replace

import numpy as np
import pytest
from helpers.random_cases import FAMILIES, random_conv2d, random_gemm

import vtaops
from vtaops import Conv2d, Gemm, HardwareConfig, Tiling
from vtaops.config import EXTENSIONS, POST_ROWS, Memory
from vtaops.isa import Alu, Load, Post
from vtaops.isa import Gemm as Product
from vtaops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim

PYNQ = HardwareConfig.load("pynq_ext")
TINY = replace(HardwareConfig.load("tiny"), extensions=tuple(EXTENSIONS))
ALL = {"conv2d": random_conv2d, "gemm": random_gemm, **FAMILIES}


def compiled(op, config=PYNQ, tiling=None):
    """Return a program that has shown on the simulator that it computes `op`."""
    program = vtaops.compile(op, config, tiling)
    arrays = random_arguments(op, np.random.default_rng(0))
    with Fsim(config, seed=1) as device:
        assert np.array_equal(program.run(device, *arrays), evaluate(op, arrays))
    return program


def passes(program):
    """Return how many accumulators resets and the ALU work on."""
    return sum(
        i.iterations for i in program if isinstance(i, Alu) or (isinstance(i, Product) and i.reset)
    )


@pytest.mark.parametrize("names", [("overwrite",), ("post",), tuple(EXTENSIONS)], ids="+".join)
def test_random_operators(names):
    for seed, family in enumerate(ALL):
        rng = random.Random(seed)
        compiled(ALL[family](rng), replace(TINY, extensions=names))


IMAGE = {"in_channels": 32, "out_channels": 48, "height": 9, "width": 11}


@pytest.mark.parametrize("padding", ["multiply", "skip"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize(
    ("shift", "rounding"), [(0, "truncate"), (8, "half_up"), (17, "half_up"), (31, "truncate")]
)
def test_a_convolution_needs_no_pass(bias, shift, rounding, padding):
    op = Conv2d(**IMAGE, bias=bias, shift=shift, rounding=rounding)
    program = compiled(op, tiling=Tiling(oc=48, ic=16, h=3, w=11, padding=padding))
    assert passes(program) == 0
    loaded = {i.memory for i in program if isinstance(i, Load)}
    assert Memory.ACC not in loaded
    assert (Memory.POST in loaded) == bias


def test_the_setting_ends_with_the_operator():
    program = compiled(Gemm(m=4, n=32, k=32, bias=True))
    settings = [i for i in program if isinstance(i, Post)]
    assert not settings[-1].enable


def test_what_post_cannot_do_stays_in_the_alu():
    assert passes(compiled(Gemm(m=4, n=32, k=32, clip=None)))  # the low 8 bits, not a clip
    whole = Conv2d(**IMAGE, bias=True, multiplier=True)  # products that wrap at 32 bits
    assert passes(compiled(whole))


def test_more_biases_than_rows_stay_in_the_accumulators():
    wide = Gemm(m=1, n=(POST_ROWS + 2) * 16, k=16, bias=True)
    program = compiled(wide, tiling=Tiling(oc=wide.n, ic=16, h=1, w=1))
    assert Memory.POST not in {i.memory for i in program if isinstance(i, Load)}
