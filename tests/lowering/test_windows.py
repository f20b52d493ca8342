"""Convolutions of narrow groups on hardware that multiplies windows (extension ``depthwise``)."""

import random
from dataclasses import replace

import numpy as np
import pytest

import vtaops
from trials.random_cases import random_extensions, random_tiling
from vtaops import Conv2d, HardwareConfig, Tiling
from vtaops.errors import ScheduleError, ShapeError
from vtaops.machine.isa import Depthwise
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim

PYNQ = HardwareConfig.load("pynq_ext")


def compiled(op, config=PYNQ, tiling=None):
    """Return a program that has shown on the simulator that it computes `op`."""
    program = vtaops.compile(op, config, tiling)
    arrays = random_arguments(op, np.random.default_rng(0))
    with Fsim(config, seed=1) as device:
        assert np.array_equal(program.run(device, *arrays), evaluate(op, arrays))
    return program


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
        op, extensions = random_windows(rng), random_extensions(rng, 0.6, "depthwise")
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
        in_channels=32,
        out_channels=32,
        height=15,
        width=15,
        kernel=kernel,
        strides=strides,
        groups=32 // group,
    )
    tiles = 2 * op.out_size[0] * op.out_size[1]
    assert compiled(op).stats().gemm_counter == steps * tiles


def test_other_groups_are_products_of_tiles():
    shape = {"height": 6, "width": 6, "in_channels": 16, "groups": 16, "kernel": 3}
    for other in (
        Conv2d(**shape, out_channels=32, padding=1),
        Conv2d(**shape | {"groups": 2}, out_channels=16, padding=1),
        Conv2d(**shape | {"kernel": (3, 1)}, out_channels=16),
        Conv2d(**shape, out_channels=16, dilation=2, padding=2),
    ):
        assert not any(isinstance(i, Depthwise) for i in compiled(other))


def test_a_tiling_cannot_part_a_window():
    op = Conv2d(in_channels=16, out_channels=16, height=6, width=6, kernel=3, padding=1, groups=16)
    with pytest.raises(ScheduleError, match="taps is 'one'; this operator takes all, row"):
        vtaops.compile(op, PYNQ, Tiling(oc=16, ic=16, taps="one"))
