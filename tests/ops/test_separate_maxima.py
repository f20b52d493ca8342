"""Maximum pools on plain hardware: along the columns, then along the rows, where that is faster."""

import random

import numpy as np
import pytest
from helpers.checks import check

import vtaops
from trials.random_cases import random_tiling
from vtaops import HardwareConfig, MaxPool2d
from vtaops.errors import ShapeError
from vtaops.machine.isa import Alu, AluOp
from vtaops.ops.maxima import AxisTaps
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim
from vtaops.schedule import blocked_shape, default_tiling

PYNQ = HardwareConfig.load("pynq")


def random_pool(rng):
    """Return a pool whose maxima can be taken apart: some tap of each window is in the image."""
    while True:
        kernel = rng.randint(1, 5), rng.randint(1, 5)
        try:
            return MaxPool2d(
                batch=rng.randint(1, 2),
                channels=rng.randint(1, 40),
                height=rng.randint(1, 14),
                width=rng.randint(1, 14),
                kernel=kernel,
                strides=(rng.randint(1, 3), rng.randint(1, 3)),
                padding=tuple(rng.randint(0, (kernel[i % 2] - 1) // 2) for i in range(4)),
            )
        except ShapeError:
            continue


@pytest.mark.parametrize("config", ["pynq", "tiny", "4x8_i8w8a32_15_16_16_18"])
@pytest.mark.parametrize("seed", range(4))
def test_random_pools(config, seed):
    rng = random.Random(f"{config} {seed}")
    hardware = HardwareConfig.load(config)
    op = random_pool(rng)
    check(op, hardware, default_tiling(op, hardware), seed, "portable")
    check(op, hardware, random_tiling(rng, op, hardware), seed, "portable")


def test_extreme_pixels_at_the_border():
    """Padding loses against -128, also where the first row of a window is padding."""
    op = MaxPool2d(channels=16, height=9, width=9, kernel=3, strides=2, padding=1)
    program = vtaops.compile(op, PYNQ)
    for value in (-128, 127):
        data = np.full((1, 16, 9, 9), value, np.int8)
        data[0, :, 4, 4] = -value - 1
        with Fsim(PYNQ) as device:
            assert np.array_equal(program.run(device, data), evaluate(op, [data]))


SHAPES = [
    {"height": 16, "width": 14, "kernel": 3, "strides": 2, "padding": 1},
    {"height": 9, "width": 8, "kernel": 3, "strides": 1, "padding": 1},
    {"height": 4, "width": 4, "kernel": 4},
    {"height": 3, "width": 3, "kernel": 3, "strides": 2, "padding": 1},
    {"height": 5, "width": 17, "kernel": (1, 2), "strides": 1},
]


@pytest.mark.parametrize("config", ["pynq", "tiny"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hardly_slower(shape, config, monkeypatch):
    hardware = HardwareConfig.load(config)
    op = MaxPool2d(channels=32, **shape)
    cycles = vtaops.compile(op, hardware).cycles()
    monkeypatch.setattr(MaxPool2d, "separate", lambda op, config: None)
    known = blocked_shape.__wrapped__.cache_clear
    known()
    whole = vtaops.compile(op, hardware).cycles()
    known()
    assert cycles <= whole + 16  # of instructions, which the rule does not count


def test_the_pool_of_resnet18():
    """Twelve cycles of maxima a tile instead of eighteen, and no fresh start: 370,681 before."""
    op = MaxPool2d(channels=64, height=112, width=112, kernel=3, strides=2, padding=1)
    program = vtaops.compile(op, PYNQ)
    assert program.cycles() <= 262_000
    taken = sum(i.iterations for i in program if isinstance(i, Alu))
    assert taken <= 6.1 * 4 * 56 * 56
    assert {i.alu_op for i in program if isinstance(i, Alu)} == {AluOp.MAX}
    arrays = random_arguments(op, np.random.default_rng(0))
    with Fsim(PYNQ, seed=1) as device:
        assert np.array_equal(program.run(device, *arrays), evaluate(op, arrays))


def test_windows_beyond_the_image():
    padded = {"channels": 16, "height": 2, "width": 6, "kernel": 2, "padding": (2, 0, 0, 0)}
    assert MaxPool2d(**padded, strides=1).separate(PYNQ) is None


@pytest.mark.parametrize("seed", range(40))
def test_side_pixels_cover_the_taps(seed):
    """What the results and the pixels at their sides are, against the windows themselves."""
    rng = random.Random(seed)
    op = random_pool(rng)
    size = op.height, op.width
    for axis, extent in enumerate(op.padded_size):
        taps, stride = AxisTaps.of(op.window, size, axis), op.window.strides[axis]
        assert sorted([taps.anchor, *taps.other_taps]) == [*range(op.window.kernel[axis])]
        results = op.out_size[axis]
        sides = [taps.start + i * taps.step for i in range(taps.pixels(results))]
        assert all(0 <= pixel < extent for pixel in sides)
        for result in range(results):
            for tap in taps.other_taps:
                assert sides[taps.side(tap, result)] == result * stride + tap
            first = op.pads[axis]
            assert first <= result * stride + taps.anchor < first + size[axis]
