"""Functions of one int8 value: tables behind the operator that makes it, or of their own."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.tsim_support import needs_tools

import vtaops
from trials.random_graphs import random_graph, random_inputs
from vtaops.base.errors import ScheduleError
from vtaops.graph import Graph, Requantization, evaluate
from vtaops.graph import operators as ops
from vtaops.machine.config import Extension, HardwareConfig, Memory
from vtaops.machine.isa import Load, Post
from vtaops.network.functions import functions_as_tables
from vtaops.network.tables import with_table
from vtaops.runtime import Fsim, Tsim

TINY = replace(HardwareConfig.load("tiny"), extensions=tuple(Extension))
OTHERS = replace(TINY, extensions=tuple(name for name in TINY.extensions if name != "table"))
STEPS = np.arange(-128, 128)


def hard_swish():
    table = np.rint(STEPS * np.clip(STEPS + 48, 0, 96) / 96).astype(np.int8)
    return ops.LookupTable(table, 0, "hard_swish")


def sigmoid():
    return ops.LookupTable(np.rint(255 / (1 + np.exp(-STEPS / 32)) - 128).astype(np.int8), -128)


def convolved(graph, x, channels=8):
    """Add a convolution to a graph, with scales that only `post` has."""
    rng = np.random.default_rng(len(graph.nodes))
    weight = rng.integers(-128, 128, (channels, x.shape[1], 1, 1)).astype(np.int8)
    return graph.add(ops.Convolution(weight, None, Requantization(47_123, 25, 3)), x)


def network(name):
    graph = Graph(name)
    x = convolved(graph, graph.input("x", (1, 8, 5, 6), zero_point=-4))
    if name == "fused":
        y = convolved(graph, graph.add(hard_swish(), x))
    elif name == "gated":  # x * sigmoid(x), with zero points that VTA multiplies no tensors with
        y = graph.add(ops.Multiply(Requantization(33_001, 23, 5)), x, graph.add(sigmoid(), x))
        y = graph.add(ops.MaxPool((2, 2), (1, 1)), y)
    elif name == "two readers":
        y = graph.add(ops.Add((3, 5), Requantization(1, 3)), x, graph.add(hard_swish(), x))
        y = graph.add(ops.Concat(), convolved(graph, y), convolved(graph, x))
    elif name == "first and last":
        x = graph.add(hard_swish(), graph.input("y", (1, 8, 5, 6)))
        y = graph.add(sigmoid(), graph.add(ops.MaxPool((2, 2), (1, 1)), x))
    else:
        first = graph.add(hard_swish(), x)
        second = graph.add(hard_swish(), convolved(graph, x, 12))
        y = graph.add(ops.Concat(), first, second)
    graph.output(y)
    return graph


NETWORKS = {  # and the tables that operators apply
    "fused": 1, "gated": 1, "two readers": 1, "first and last": 2, "parts of one image": 2,
}  # fmt: skip


def tables_loaded(model):
    steps = [step for program in model.programs for step in program.decode()]
    used = any(isinstance(step, Post) and step.use_table for step in steps)
    return used * sum(isinstance(s, Load) and s.memory == Memory.TABLE for s in steps)


@pytest.mark.parametrize("name", NETWORKS)
def test_with_tables_and_without_a_network_computes_the_same(name):
    graph = network(name)
    rng = np.random.default_rng(0)
    images = [rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs]
    expected = evaluate(graph, *images)[0]
    for config in (TINY, OTHERS):
        model = vtaops.compile_model(graph, config)
        with vtaops.Session(Fsim(config, seed=1)) as session:
            np.testing.assert_array_equal(model.run(*images, session=session), expected)
        assert tables_loaded(model) == (NETWORKS[name] if config is TINY else 0)
        on_host = [row for row in model.plan if row.where == "host"]
        assert bool(on_host) == (config is OTHERS)


def test_a_function_of_the_sums_costs_no_operator():
    """The convolution in front of it stores what the table has."""
    graph = network("fused")
    program = vtaops.compile_model(graph, TINY).programs[0]
    assert len(program.operators) == 2
    assert len(vtaops.compile_model(graph, OTHERS).programs) == 2


def test_what_a_function_alone_reads_falls_away():
    folded = functions_as_tables(network("gated"))
    assert [node.op.kind for node in folded.nodes] == ["convolution", "multiply", "max_pool"]
    kept = functions_as_tables(network("two readers"))
    assert [node.op.kind for node in kept.nodes][:2] == ["convolution", "add"]


@pytest.mark.parametrize("seed", range(6))
def test_folded_graphs_compute_the_same(seed):
    graph = random_graph(100 + seed, free=True)
    images = random_inputs(graph, seed)
    found = evaluate(functions_as_tables(graph), *images)
    for result, expected in zip(found, evaluate(graph, *images), strict=True):
        np.testing.assert_array_equal(result, expected)


@needs_tools
@pytest.mark.parametrize("name", ["two readers", "parts of one image"])
def test_tables_on_our_rtl(name):
    graph = network(name)
    image = np.random.default_rng(1).integers(-128, 128, (1, 8, 5, 6)).astype(np.int8)
    with Tsim(TINY, jitter_seed=2) as device:
        found = vtaops.compile_model(graph, TINY).run(image, session=vtaops.Session(device))
    np.testing.assert_array_equal(found, evaluate(graph, image)[0])


def test_what_is_not_post_processed_has_no_table():
    pool = vtaops.MaxPool2d(channels=8, height=4, width=4, kernel=2)
    with pytest.raises(ScheduleError, match="maps what is post-processed"):
        with_table(vtaops.compiler.driver.emit_operator(pool, TINY))
