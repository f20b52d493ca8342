"""Random operators on random configurations and tilings: bit-exact to NumPy, whatever the order of
execution; static statistics equal the simulator's counters."""

import random

import numpy as np
import pytest
from helpers.checks import check

from trials.random_cases import CONFIGS, random_conv2d, random_gemm, random_tiling
from vtaops import Conv2d, Gemm, HardwareConfig
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.schedule import default_tiling


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(12))
def test_random_conv2d(config, seed):
    rng = random.Random(f"conv2d {config} {seed}")
    hardware = HardwareConfig.load(config)
    op = random_conv2d(rng)
    check(op, hardware, default_tiling(op, hardware), seed)
    check(op, hardware, random_tiling(rng, op, hardware), seed)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(8))
def test_random_gemm(config, seed):
    rng = random.Random(f"gemm {config} {seed}")
    hardware = HardwareConfig.load(config)
    op = random_gemm(rng)
    check(op, hardware, default_tiling(op, hardware), seed)
    check(op, hardware, random_tiling(rng, op, hardware), seed)


@pytest.mark.parametrize(
    "op",
    [
        Conv2d(in_channels=1, out_channels=1, height=1, width=1, kernel=1, shift=0),
        # Tiles that lie in the padding as a whole, on every side.
        Conv2d(in_channels=8, out_channels=8, height=2, width=3, kernel=1, padding=(5, 4, 3, 6)),
        # The only column that the stride reads is padding.
        Conv2d(
            in_channels=20,
            out_channels=65,
            height=8,
            width=2,
            kernel=(2, 1),
            strides=(1, 3),
            padding=(0, 1, 1, 0),
        ),
        # Padding wider than the 4 bits of an instruction.
        Conv2d(in_channels=3, out_channels=5, height=4, width=4, kernel=(2, 3), padding=20),
        # A stride that skips rows, with padding and with a kernel of two dilated rows.
        Conv2d(in_channels=9, out_channels=9, height=17, width=9, kernel=2, strides=5, padding=1),
        Conv2d(in_channels=4, out_channels=4, height=9, width=9, kernel=1, strides=2),
        Conv2d(
            in_channels=4,
            out_channels=4,
            height=20,
            width=7,
            kernel=2,
            strides=4,
            padding=1,
            dilation=2,
        ),
        Conv2d(
            in_channels=4,
            out_channels=4,
            height=14,
            width=14,
            kernel=3,
            padding=1,
            shift=31,
            clip=(-128, 127),
        ),
        Conv2d(
            in_channels=4,
            out_channels=4,
            height=14,
            width=14,
            kernel=3,
            padding=1,
            bias=True,
            shift=0,
            clip=None,
        ),
        Gemm(m=1, n=1, k=1, shift=0, clip=None),
        Gemm(m=5, n=1000, k=512, bias=True, shift=12),
    ],
    ids=lambda op: op.summary,
)
@pytest.mark.parametrize("config", ["pynq", "tiny"])
def test_corner_cases(op, config):
    hardware = HardwareConfig.load(config)
    check(op, hardware, default_tiling(op, hardware), 5)


def test_reference_equals_naive_loops():
    op = Conv2d(
        batch=2,
        in_channels=3,
        out_channels=4,
        height=5,
        width=6,
        kernel=(2, 3),
        strides=(2, 1),
        padding=(1, 0, 2, 1),
        dilation=(1, 2),
        bias=True,
        shift=5,
        clip=(-100, 90),
    )
    data, kernel, bias = random_arguments(op, np.random.default_rng(6))
    padded = np.pad(data, ((0, 0), (0, 0), (1, 2), (0, 1))).astype(int)
    rows, columns = op.out_size
    for n, o, y, x in np.ndindex(2, 4, rows, columns):
        total = int(bias[o])
        for c, dy, dx in np.ndindex(3, 2, 3):
            total += padded[n, c, y * 2 + dy, x + dx * 2] * int(kernel[o, c, dy, dx])
        expected = min(max(total >> 5, -100), 90)
        assert evaluate(op, [data, kernel, bias])[n, o, y, x] == expected
