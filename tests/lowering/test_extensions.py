"""Extensions in compiled programs: the same results, proven by the verifier, in fewer passes."""

import random
from dataclasses import replace

import numpy as np
import pytest

import vtaops
from trials.random_cases import (
    FAMILIES,
    random_conv2d,
    random_fine,
    random_gemm,
    random_scaled,
    random_tiling,
    with_needs,
)
from vtaops import Conv2d, Elementwise, Gemm, HardwareConfig, Tiling
from vtaops.errors import ShapeError, UnsupportedError
from vtaops.machine.config import Extension
from vtaops.machine.isa import Alu, Post
from vtaops.machine.isa import Gemm as Product
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim
from vtaops.session.fallback import run as run_on_host

PYNQ = HardwareConfig.load("pynq_ext")
TINY = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
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


@pytest.mark.parametrize("names", [*map(with_needs, Extension), tuple(Extension)], ids="+".join)
def test_random_operators(names):
    for seed, family in enumerate(ALL):
        rng = random.Random(seed)
        compiled(ALL[family](rng), replace(TINY, extensions=names))


IMAGE = {
    "in_channels": 32,
    "out_channels": 48,
    "height": 9,
    "width": 11,
    "kernel": 3,
    "padding": 1,
}


@pytest.mark.parametrize("padding", ["multiply", "skip"])
@pytest.mark.parametrize(
    ("shift", "rounding"), [(0, "truncate"), (8, "half_up"), (17, "half_up"), (31, "truncate")]
)
def test_a_convolution_needs_no_pass(shift, rounding, padding):
    op = Conv2d(**IMAGE, shift=shift, rounding=rounding)
    program = compiled(op, tiling=Tiling(oc=48, ic=16, h=3, w=11, padding=padding))
    assert passes(program) == 0


def test_the_setting_ends_with_the_operator():
    program = compiled(Gemm(m=4, n=32, k=32, bias=True))
    settings = [i for i in program if isinstance(i, Post)]
    assert not settings[-1].enable


def test_what_post_cannot_do_stays_in_the_alu():
    assert passes(compiled(Gemm(m=4, n=32, k=32, clip=None)))  # the low 8 bits, not a clip


@pytest.mark.parametrize("shift", [4, 13, 15])
def test_half_a_step_wraps_behind_a_product_as_it_is_defined(shift):
    """POST adds it without wrapping, so the ALU does; `vtaops.prove` found the difference."""
    near = 44196 * 48590  # 2**31 - 8, of factors that offsets reach from 127 * 127
    offsets = {"data_offset": 44196 - 127 * 127, "other_offset": 48590 - 127 * 127}
    steps = {"shift": shift, "rounding": "half_up", "scale": 127, "other_scale": 127}
    op = Elementwise(function="multiply", shape=(2, 16), **steps, **offsets)
    program = vtaops.compile(op, PYNQ)
    arrays = [np.full(b.shape, 127, b.dtype) for b in program.inputs]
    with Fsim(PYNQ) as device:
        found = program.run(device, *arrays)
    np.testing.assert_array_equal(found, evaluate(op, arrays))
    assert near + (1 << shift - 1) >= 1 << 31
    assert (found == -128).all()
    assert program.prove().unproven == ()


# ---------------------------------------------------------------------- fixed-point scales


SMALL = [HardwareConfig.load(name) for name in ("tiny", "4x8_i8w8a32_15_16_16_18")]


@pytest.mark.parametrize("seed", range(24))
def test_random_scaled_operators(seed):
    """Equal on the simulator, where the extensions are drawn too, and on the host."""
    rng = random.Random(seed)
    op = random_scaled(rng)
    config = replace(rng.choice(SMALL), extensions=rng.choice([("post",), ("overwrite", "post")]))
    tiling = random_tiling(rng, op, config) if rng.random() < 0.6 else None
    program = vtaops.compile(op, config, tiling)
    arrays = random_arguments(op, np.random.default_rng(seed))
    expected = evaluate(op, arrays)
    with Fsim(config, seed=seed) as device:
        assert np.array_equal(program.run(device, *arrays), expected)
    if seed % 6 == 0:
        assert np.array_equal(run_on_host(op, arrays), expected)


@pytest.mark.parametrize("seed", range(12))
def test_random_fine_scales(seed):
    """Equal on the simulator and on the host, and proven."""
    rng = random.Random(seed)
    op = random_fine(rng)
    config = replace(rng.choice(SMALL), extensions=("exact", "overwrite", "post"))
    program = vtaops.compile(op, config)
    arrays = random_arguments(op, np.random.default_rng(seed))
    expected = evaluate(op, arrays)
    with Fsim(config, seed=seed) as device:
        assert np.array_equal(program.run(device, *arrays), expected)
    if seed % 4 == 0:
        assert np.array_equal(run_on_host(op, arrays), expected)
        assert program.prove().unproven == ()


def test_fine_scales_need_their_extension():
    op = Conv2d(**IMAGE, scales=True, shift=0, fine=2)
    with pytest.raises(vtaops.errors.UnsupportedError, match="no extension 'exact'"):
        vtaops.compile(op, replace(SMALL[0], extensions=("post",)))
    with pytest.raises(vtaops.errors.ConfigError, match="'exact' needs 'post' too"):
        replace(SMALL[0], extensions=("exact",))
    with pytest.raises(vtaops.errors.ShapeError, match="fine, without scales, is 1"):
        Conv2d(**IMAGE, shift=0, fine=1)


def test_scales_cost_no_pass():
    op = Conv2d(**IMAGE, bias=True, scales=True, shift=0, zero_point=-7)
    assert passes(compiled(op)) == 0


def test_a_residual_with_factors_costs_three_cycles():
    op = Conv2d(**IMAGE, scales=True, shift=0)
    program = compiled(replace(op, residual=True))
    tiles = 9 * 11 * 3
    assert passes(program) == tiles  # the shift between its digits
    assert program.stats().gemm_counter == compiled(op).stats().gemm_counter + 2 * tiles


def test_the_limits_of_sums_multipliers_and_shifts():
    """Sums at both ends of int32, by the bias, which wraps beyond them; all kinds of scales."""
    channels = 48
    low, high = -(1 << 31), (1 << 31) - 1
    bias = np.resize([low, high, low + 1, high - 1, -1, 0, 1, 1 << 30], channels)
    multiplier = np.resize([0, 1, 0x7FFF, 0x8000, 0xFFFF], channels)
    shift = np.resize([0, 1, 15, 16, 31, 32, 46, 47], channels)
    scales = (multiplier | shift << 16).astype(np.int32)
    data = np.array([[0] * 16, [1] + [0] * 15, [-1] + [0] * 15], np.int8)
    op, arrays = Gemm.of(
        data,
        np.ones((channels, 16), np.int8),
        bias=bias.astype(np.int32),
        scales=scales,
        shift=0,
        zero_point=3,
        clip=(-128, 127),
    )
    expected = np.empty((3, channels), np.int64)
    for row, added in enumerate((0, 1, -1)):
        for c in range(channels):  # in Python's integers, which have no limits
            total = (int(bias[c]) + added + (1 << 31)) % (1 << 32) - (1 << 31)
            half = (1 << int(shift[c])) >> 1
            value = ((total * int(multiplier[c]) + half) >> int(shift[c])) + 3
            expected[row, c] = min(max(value, -128), 127)
    with Fsim(PYNQ) as device:
        assert np.array_equal(vtaops.compile(op, PYNQ).run(device, *arrays), expected)
    assert np.array_equal(evaluate(op, arrays), expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"shift": 8}, "shift, with scales, is 8"),
        ({"clip": None}, "clip is None; with scales"),
        ({"zero_point": 128}, "zero_point is 128"),
        ({"residual": True, "residual_shift": 2}, "vectors of factors"),
        ({"scales": False, "zero_point": 1}, "part of the bias"),
    ],
)
def test_what_scales_refuse(parameters, message):
    with pytest.raises(ShapeError, match=message):
        Conv2d(**{**IMAGE, "scales": True, "shift": 0, **parameters})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"multiplier": 1 << 16}, "multiplier is 65536; it must lie in 1..65535"),
        ({"multiplier": 5, "shift": 48}, "is 48; it must lie in 0..47"),
        ({"zero_point": 5}, "without scales"),
        ({"constant": 5, "shift": -1}, "shifted to the right"),
        ({"constant": 1 << 30, "shift": 3}, "leaves too much of it to add"),
        ({"constant": (1 << 30) - 1, "shift": 31}, "leave int32"),
        ({"scale": 32640}, "within 32639"),
    ],
)
def test_what_a_scaled_sum_refuses(parameters, message):
    with pytest.raises(ShapeError, match=message):
        Elementwise(function="add", shape=(1, 16, 4, 4), **parameters)


def test_scales_need_the_extension():
    with pytest.raises(UnsupportedError, match="no extension 'post'"):
        vtaops.compile(Gemm(m=1, n=16, k=16, scales=True, shift=0), "pynq")
