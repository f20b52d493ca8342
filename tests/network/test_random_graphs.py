"""Random networks: what a device computes equals the executor, on several configurations."""

from dataclasses import replace

import numpy as np
import pytest

from trials.random_graphs import check, random_graph, with_state
from vtaops import HardwareConfig
from vtaops.graph import Convolution
from vtaops.machine.config import Extension
from vtaops.network import plan_model

CASES = [
    *(("pynq", seed) for seed in (5, 21, 35)),
    *(("tiny", seed) for seed in (1, 2)),
    *(("4x8_i8w8a32_15_16_16_18", seed) for seed in (3, 4, 413)),
]
FREE = [("pynq_ext", 0), ("tiny", 1), ("tiny", 7), ("4x8_i8w8a32_15_16_16_18", 8)]


@pytest.mark.parametrize(("config", "seed"), CASES)
def test_a_random_network_equals_the_executor(config, seed):
    check(random_graph(seed), seed, config)


@pytest.mark.parametrize(("config", "seed"), [("pynq", 3), ("tiny", 10), ("pynq", 6)])
def test_state_of_a_random_network_equals_the_executors(config, seed):
    check(with_state(random_graph(seed), seed), seed, config)


@pytest.mark.parametrize(("config", "seed"), FREE)
def test_free_scales_equal_the_executor(config, seed):
    """On hardware that has them; as much of the network runs there as on plain hardware."""
    hardware = replace(HardwareConfig.load(config), extensions=())
    extended = replace(hardware, extensions=tuple(Extension))
    graph = random_graph(seed, free=True)
    model = check(graph, seed, extended)
    on_vta = [row for row in model.plan if row.where == "vta"]
    plain = [row for row in plan_model(graph, hardware).rows if row.where == "vta"]
    assert len(on_vta) >= len(plain)
    report = model.report()
    assert sum(layer.cycles for layer in report.layers) == report.cycles
    assert max(layer.utilization for layer in report.layers) <= 1


def test_column_sums_of_each_tile_fit_the_accumulators():
    check(
        random_graph(34, free=True),
        34,
        replace(HardwareConfig.load("tiny"), extensions=tuple(Extension)),
    )


@pytest.mark.parametrize(("config", "seed"), [("pynq", 3), ("pynq", 45), ("ulx3s", 5)])
def test_weights_hold_free_scales_on_plain_hardware(config, seed):
    model = check(random_graph(seed, free=True), seed, config)
    kept = [row for row in model.plan if row.code == "scale" and "convolution" in row.operator]
    assert not kept
    weights = [node.op.weight for node in model.graph.nodes if isinstance(node.op, Convolution)]
    assert any(weight.dtype == np.int16 for weight in weights)


@pytest.mark.parametrize(("config", "free"), [("pynq", False), ("pynq_ext", True), ("tiny", False)])
def test_wide_networks_equal_their_graphs(config, free):
    """Gates, PReLUs, large means, pixels that move between channels and the image."""
    for seed in range(4):
        check(random_graph(seed, free=free, wide=True), seed, config)


@pytest.mark.parametrize(("config", "free"), [("pynq", False), ("pynq_ext", True), ("fsim", True)])
def test_networks_of_views_equal_their_graphs(config, free):
    """Lines as images, channels last, products on every rank."""
    for seed in range(6):
        check(random_graph(seed, free=free, views=True), seed, config)
