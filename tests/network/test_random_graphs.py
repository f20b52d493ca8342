"""Random networks: what a device computes equals the executor, on several configurations."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.random_graphs import random_graph, random_inputs

import vtaops
from vtaops import HardwareConfig
from vtaops.config import EXTENSIONS
from vtaops.graph import evaluate
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


@pytest.mark.parametrize(("config", "seed"), FREE)
def test_free_scales_equal_the_executor(config, seed):
    """On hardware that has them; more of the network runs there than on plain hardware."""
    hardware = replace(HardwareConfig.load(config), extensions=())
    extended = replace(hardware, extensions=tuple(EXTENSIONS))
    graph = random_graph(seed, free=True)
    model = check(graph, seed, extended)
    on_vta = [row for row in model.plan if row.where == "vta"]
    plain = [row for row in plan_model(graph, hardware).rows if row.where == "vta"]
    assert len(on_vta) > len(plain)


def check(graph, seed, config):
    """Compile a network, compare what it computes, and return it."""
    arrays = random_inputs(graph, seed)
    model = vtaops.compile_model(graph, config)
    found = model.run(*arrays)
    expected = evaluate(graph, *arrays)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(expected)
    for tensor, a, b in zip(graph.outputs, found, expected, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b), tensor.name
    assert [row.name for row in model.plan] == [node.name for node in graph.nodes]
    on_host = {
        name for stage in model.stages if not hasattr(stage, "program") for name in stage.nodes
    }
    assert on_host == {row.name for row in model.plan if row.where == "host"}
    assert all(row.reason for row in model.plan if row.where == "host")
    return model
