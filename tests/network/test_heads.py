"""Heads of attention that share keys and values: their results as one row again."""

import numpy as np
import pytest

import vtaops
from vtaops.graph import Dense, Graph, Matmul, Requantization, Requantize, Reshape, Transpose


@pytest.mark.parametrize(
    ("shared", "group", "width"), [(2, 2, 8), (4, 2, 16), (2, 4, 32), (4, 1, 16)]
)
def test_a_product_reads_the_heads_of_one_token_in_order(shared, group, width):
    rng, graph, tokens = np.random.default_rng(0), Graph("heads"), 32
    parts = graph.add(Requantize(), graph.input("parts", (shared, group, tokens)))
    values = graph.add(Requantize(), graph.input("values", (1, tokens, shared * width)))
    heads = graph.add(Transpose((1, 0, 2)), graph.add(Reshape((tokens, shared, width)), values))
    mixed = graph.add(Matmul(Requantization.from_ratio(1 / 300)), parts, heads)
    row = graph.add(Reshape((1, 1, shared * group * width)), mixed)
    weight = rng.integers(-60, 60, (16, row.elements)).astype(np.int8)
    graph.output(graph.add(Dense(weight, None, Requantization.from_ratio(1 / 900)), row))
    model = vtaops.compile_model(graph)
    assert len(model.regions) == 1
    given = [rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs]
    assert np.array_equal(model.run(*given), model.reference(*given))
