"""Published convolutions compile by default; default tilings are those that lowering accepts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from helpers.checks import check

import vtaops
from trials.published import NETWORKS, conv, depthwise, published, transposed
from trials.random_cases import FAMILIES, random_conv2d, random_tiling
from trials.tilings import any_tiling_fits, random_case
from vtaops import Conv2d, HardwareConfig, Tiling
from vtaops.base.errors import ScheduleError
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.fsim import Fsim
from vtaops.schedule import default_tiling

CONFIGS = {c.fingerprint: c for c in map(HardwareConfig.load, HardwareConfig.names())}.values()
"""The shipped configurations that differ."""

HARD = {
    "shufflenet": conv(384, 96, 28, 1, g=8),
    "dilation_36": conv(32, 16, 33, d=36),
    "dilation_24": conv(16, 32, 41, d=24),
    "fcn_7x7": conv(16, 16, 22, 7, 1, 0),
    "replknet": depthwise(8, 20, 31),
    "patches": conv(3, 16, 224, 32, 32, 0),
    "speech": conv(1, 8, (61, 20), (41, 11), 2, (20, 5)),
    "wav2vec": conv(96, 96, (1, 49), (1, 128), g=2),
}
"""Layers of networks that were refused, with fewer channels."""


@pytest.mark.parametrize("name", HARD)
def test_hard_layers_run_on_the_smallest_configuration(name):
    op = HARD[name]
    arrays = random_arguments(op, np.random.default_rng(0))
    program = vtaops.compile(op, "tiny")
    with Fsim("tiny") as device:
        assert np.array_equal(program.run(device, *arrays), evaluate(op, arrays))


@pytest.mark.parametrize("network", NETWORKS)
def test_published_layers_have_default_tilings(network):
    """On the smallest configuration all, elsewhere the largest; the campaign compiles all."""
    layers = list(dict.fromkeys(NETWORKS[network]()))
    largest = sorted(layers, key=lambda op: op.window.extent[0] * op.window.kernel[0])[-2:]
    for config in CONFIGS:
        for op in layers if config.name == "tiny" else largest:
            default_tiling(op, config)


def test_transposed_layers_have_default_tilings():
    """All whose kernel the weight memory holds."""
    for config in CONFIGS:
        for op in transposed() if config.name == "tiny" else transposed()[:4]:
            taps = op.rows.taps * op.rows.stride * op.columns.taps * op.columns.stride
            if taps <= config.wgt.depth:
                default_tiling(op, config)
            else:
                assert min(op.window.kernel) >= 9


def test_the_list_is_long_and_varied():
    layers = published()
    assert len(layers) > 700
    assert sum(op.groups > 1 for op in layers) > 150
    assert sum(max(op.window.dilation) > 1 for op in layers) > 80


@pytest.mark.parametrize("taps", ["row", "one"])
@pytest.mark.parametrize("seed", range(4))
def test_kernels_in_parts_give_the_same_results(taps, seed):
    rng = random.Random(seed)
    op = FAMILIES["grouped_conv2d"](rng) if seed % 2 else random_conv2d(rng)
    config = HardwareConfig.load("tiny" if seed < 2 else "pynq")
    tiling = random_tiling(rng, op, config, taps=taps)
    check(op, config, tiling, seed)


@pytest.mark.parametrize("seed", range(6))
def test_a_default_tiling_compiles_and_a_refusal_means_that_none_fits(seed):
    """Also: any tiling that `check_tiling` accepts compiles."""
    rng, op, config = random_case(seed)
    try:
        tiling = default_tiling(op, config)
    except ScheduleError:
        assert not any_tiling_fits(op, config)
        return
    vtaops.compile(op, config, tiling)
    vtaops.compile(op, config, random_tiling(rng, op, config))


def test_taps_are_for_convolutions():
    with pytest.raises(ScheduleError, match="only kernels of convolutions can be cut"):
        vtaops.compile(vtaops.Gemm(m=1, n=16, k=16), "pynq", Tiling(16, 16, taps="row"))
    with pytest.raises(ScheduleError, match="taps is 'two'; it must be 'all' or 'row' or 'one'"):
        Tiling(16, 16, taps="two")
    assert isinstance(HARD["fcn_7x7"], Conv2d)
