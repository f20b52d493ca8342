"""Maximum pools on hardware that takes the greatest of neighbouring inputs (extension ``pool``)."""

import random
from dataclasses import replace

import numpy as np
import pytest

import vtaops
from trials.random_cases import random_extensions, random_pool2d, random_tiling
from vtaops import HardwareConfig, MaxPool2d
from vtaops.machine.isa import Alu, Gemm, Pool
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import Fsim
from vtaops.schedule import blocked_shape

PYNQ = HardwareConfig.load("pynq_ext")


def compiled(op, config=PYNQ, tiling=None):
    """Return a program that has shown on the simulator that it computes `op`."""
    program = vtaops.compile(op, config, tiling)
    arrays = random_arguments(op, np.random.default_rng(0))
    with Fsim(config, seed=1) as device:
        assert np.array_equal(program.run(device, *arrays), evaluate(op, arrays))
    return program


@pytest.mark.parametrize("name", ["tiny", "pynq", "4x8_i8w8a32_15_16_16_18"])
def test_random_pools(name):
    """With tilings of all kinds and with other extensions."""
    pools = 0
    for seed in range(8):
        rng = random.Random(seed)
        extensions = random_extensions(rng, 0.5, "pool")
        config = replace(HardwareConfig.load(name), extensions=extensions)
        op = random_pool2d(rng, MaxPool2d)
        program = compiled(op, config, random_tiling(rng, op, config))
        pools += any(isinstance(i, Pool) for i in program)  # the others lie in the padding
        assert "data_scale" not in [buffer.name for buffer in program.buffers]
    assert pools > 4


def test_a_row_of_the_window_is_one_step():
    """ResNet's pool: three steps a tile, the first of which overwrites; no reset, no product."""
    program = compiled(MaxPool2d(channels=32, height=20, width=20, kernel=3, strides=2, padding=1))
    assert not [i for i in program if isinstance(i, Alu | Gemm)]
    pools = [i for i in program if isinstance(i, Pool)]
    assert {i.tiles for i in pools} == {2, 3}  # two in the first column
    # All rows have three steps a tile, but the first of each image.
    assert sum(i.iterations for i in pools) == 2 * 10 * (3 * 10 - 1)
    assert sum(i.iterations for i in pools if i.overwrite) == 2 * 10 * 10


def test_wide_windows_take_several_steps_a_row():
    program = compiled(MaxPool2d(channels=16, height=9, width=16, kernel=(2, 8), strides=(1, 8)))
    pools = [i for i in program if isinstance(i, Pool)]
    assert sorted({i.tiles for i in pools}) == [2, 3]
    assert sum(i.iterations for i in pools) == 8 * 2 * 2 * 3
    shape = blocked_shape(
        MaxPool2d(channels=16, height=9, width=16, kernel=(2, 8), strides=(1, 8)), PYNQ
    )
    assert shape.gemm_cycles == 8 * 2 * 2 * 3


def test_windows_of_padding_keep_the_least_value():
    compiled(MaxPool2d(channels=16, height=3, width=3, kernel=2, strides=1, padding=(3, 3, 2, 2)))
