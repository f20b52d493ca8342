"""Extensions in compiled programs: the same results, proven by the verifier, in fewer passes."""

import random
from dataclasses import replace

import numpy as np
import pytest
from helpers.random_cases import FAMILIES, random_conv2d, random_gemm, random_tiling

import vtaops
from vtaops import Conv2d, Gemm, HardwareConfig, ScheduleError, ShapeError, Tiling
from vtaops.config import EXTENSIONS, POST_ROWS, Memory
from vtaops.isa import Alu, Depthwise, Load, Post
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


@pytest.mark.parametrize("names", [*((n,) for n in EXTENSIONS), tuple(EXTENSIONS)], ids="+".join)
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


def random_windows(rng):
    """Return a convolution whose groups fit a window, or nearly."""
    while True:
        groups, width = rng.randint(2, 24), rng.choice([1, 1, 1, 2, 4])
        try:
            return Conv2d(
                batch=rng.choice([1, 1, 3]),
                in_channels=groups * width,
                out_channels=groups * width,
                height=rng.randint(1, 12),
                width=rng.randint(1, 14),
                kernel=(rng.choice([1, 3, 3, 5]), rng.choice([3, 3, 3, 4, 5, 7])),
                strides=(rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 3])),
                padding=tuple(rng.randint(0, 4) for _ in range(4)),
                dilation=(rng.choice([1, 1, 2]), rng.choice([1, 1, 1, 2])),
                groups=groups,
                bias=rng.random() < 0.5,
                shift=rng.randint(0, 9),
                clip=rng.choice([None, (-128, 127), (0, 127)]),
                rounding=rng.choice(["truncate", "half_up"]),
                residual=rng.random() < 0.3,
            )
        except ShapeError:
            continue


@pytest.mark.parametrize("name", ["tiny", "pynq", "4x8_i8w8a32_15_16_16_18"])
def test_random_convolutions_of_narrow_groups(name):
    """With tilings of all kinds, also those that part the kernel."""
    windows = 0
    for seed in range(8):
        rng = random.Random(seed)
        op, wished = random_windows(rng), [n for n in EXTENSIONS if rng.random() < 0.6]
        extensions = tuple({"depthwise", *wished})
        config = replace(HardwareConfig.load(name), extensions=extensions)
        whole = op.windows(config) is not None
        taps = rng.choice(["all", "row"] if whole else ["all", "row", "one"])
        program = compiled(op, config, random_tiling(rng, op, config, taps))
        windows += whole
        assert whole == any(isinstance(i, Depthwise) for i in program)
    assert windows > 3


@pytest.mark.parametrize(
    ("kernel", "strides", "group", "steps"),
    [(3, 1, 1, 3), (3, 2, 1, 3), (3, 1, 4, 3), ((5, 3), 1, 2, 5), (5, 1, 1, 10), (7, 2, 1, 21)],
)
def test_a_row_of_the_kernel_is_a_step(kernel, strides, group, steps):
    """Of three taps; wider rows take windows that overlap by a tap at most."""
    op = Conv2d(
        in_channels=32, out_channels=32, groups=32 // group, kernel=kernel, strides=strides,
        height=15, width=15, padding=0,
    )  # fmt: skip
    tiles = 2 * op.out_size[0] * op.out_size[1]
    assert compiled(op).stats().gemm_counter == steps * tiles


def test_other_groups_are_products_of_tiles():
    shape = {"height": 6, "width": 6, "in_channels": 16, "groups": 16}
    for other in (
        Conv2d(**shape, out_channels=32),
        Conv2d(**shape | {"groups": 2}, out_channels=16),
        Conv2d(**shape, out_channels=16, kernel=(3, 1), padding=0),
        Conv2d(**shape, out_channels=16, dilation=2, padding=2),
    ):
        assert not any(isinstance(i, Depthwise) for i in compiled(other))


def test_a_tiling_cannot_part_a_window():
    op = Conv2d(in_channels=16, out_channels=16, groups=16, height=6, width=6)
    with pytest.raises(ScheduleError, match="taps is 'one'; windows of this kernel's rows"):
        vtaops.compile(op, PYNQ, Tiling(oc=16, ic=16, taps="one"))
