"""Random networks: what a device computes equals the executor, on several configurations."""

import numpy as np
import pytest
from helpers.random_graphs import random_graph, random_inputs

import vtaops
from vtaops.graph import evaluate

CASES = [
    *(("pynq", seed) for seed in (5, 21, 35)),
    *(("tiny", seed) for seed in (1, 2)),
    *(("4x8_i8w8a32_15_16_16_18", seed) for seed in (3, 4, 413)),
]


@pytest.mark.parametrize(("config", "seed"), CASES)
def test_a_random_network_equals_the_executor(config, seed):
    graph = random_graph(seed)
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
