"""Pixels that move on VTA: patches and windows, sequences beside each other, strided slices."""

import math

import numpy as np
import pytest

from tests.helpers.networks import RNG, compiled, int8, on_host
from vtaops.graph import (
    Convolution,
    Dense,
    Graph,
    Matmul,
    Requantization,
    Requantize,
    Reshape,
    RowNorm,
    Slice,
    Transpose,
)
from vtaops.graph import operators as ops

WINDOWS, PHASES = (0, 1, 2, 4, 3, 5), (0, 1, 3, 5, 2, 4)
"""How (N, C, rows, height, columns, width) is transposed."""


def image(shape, zero_point=3):
    """Return a graph of an image that VTA made."""
    graph = Graph("patches")
    x = graph.input("x", shape)
    weight = np.eye(shape[1], dtype=np.int8)[:, :, None, None]
    return graph, graph.add(Convolution(weight, None, Requantization(1, 0, zero_point)), x)


def window(graph, x):
    """Add a convolution whose padding has a zero point."""
    weight = int8(16, x.shape[1], 3, 3)
    return graph.add(Convolution(weight, None, Requantization(1, 8), padding=(1, 1, 1, 1)), x)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("factors", "order"),
    [((4, 2, 3, 2), PHASES), ((2, 4, 3, 2), WINDOWS), ((2, 3, 1, 5), WINDOWS)],
)
def test_groups_of_pixels_there_and_back(factors, order, last):
    a, b, c, d = factors
    graph, x = image((1, 16, a * b, c * d))
    order = (0, *order[2:], 1) if last else order
    y = graph.add(Transpose(order), graph.add(Reshape((1, 16, a, b, c, d)), x))
    count = math.prod(y.shape) // 16
    shape = (1, count, 16) if last else (1, 16, 1, count)
    rows = graph.add(Reshape(shape), y)
    if last:
        rows = graph.add(RowNorm(np.full(16, 20000, np.int32), np.zeros(16, np.int32)), rows)
    else:
        rows = graph.add(Convolution(int8(16, 16, 1, 1), None, Requantization(1, 8, 7)), rows)
    back = graph.add(Transpose(tuple(np.argsort(order))), graph.add(Reshape(y.shape), rows))
    graph.output(window(graph, graph.add(Reshape(x.shape), back)))
    model = compiled(graph, "pynq_ext")
    assert not on_host(model)
    assert len(model.regions) == 1


@pytest.mark.parametrize(("count", "tokens", "each"), [(4, 5, 16), (2, 16, 12), (2, 2, 8)])
def test_sequences_attend_by_themselves(count, tokens, each):
    graph = Graph("sequences")
    x = graph.input("x", (count, tokens, 2 * each), zero_point=4)
    whole = graph.add(Dense(int8(6 * each, 2 * each), None, Requantization(1, 9)), x)
    heads = graph.add(Reshape((count, tokens, 3, 2, each)), whole)
    heads = graph.add(Transpose((2, 0, 3, 1, 4)), heads)
    parts = [graph.add(Slice(0, at, at + 1), heads) for at in range(3)]
    q, k, v = (graph.add(Reshape((count, 2, tokens, each)), part) for part in parts)
    keys = graph.add(Transpose((0, 1, 3, 2)), k)
    scores = graph.add(Matmul(Requantization(1, 8)), q, keys, scale=0.05)
    real = graph.add(ops.Softmax(), graph.add(ops.Dequantize(), scores))
    shares = graph.add(ops.Quantize(1 / 256, -128), real)
    mixed = graph.add(Matmul(Requantization(1, 8)), shares, v)
    joined = graph.add(
        Reshape((count, tokens, 2 * each)), graph.add(Transpose((0, 2, 1, 3)), mixed)
    )
    graph.output(graph.add(Dense(int8(8, 2 * each), None, Requantization(1, 9)), joined))
    model = compiled(graph, "pynq_ext", near=True)
    assert not on_host(model)
    assert len(model.regions) == 1


@pytest.mark.parametrize("config", ["pynq", "pynq_ext"])
@pytest.mark.parametrize(("axis", "start", "step"), [(2, 0, 2), (3, 1, 3), (2, 4, 5)])
def test_every_so_manieth_row_or_column(config, axis, start, step):
    graph, x = image((1, 16, 9, 7))
    part = graph.add(Slice(axis, start, x.shape[axis], step), x)
    graph.output(window(graph, part))
    assert not on_host(compiled(graph, config))


@pytest.mark.parametrize("tokens", [16, 13])
def test_heads_that_talk(tokens):
    graph = Graph("talking heads")
    q, k = (graph.input(name, (1, 4, tokens, 16), zero_point=2) for name in "qk")
    scores = graph.add(Matmul(Requantization(1, 8, 5)), q, graph.add(Transpose((0, 1, 3, 2)), k))
    scaling = Requantization(RNG.integers(1 << 15, 1 << 16, 3), 24, -7)
    bias = RNG.integers(-900, 900, 3).astype(np.int32)
    mixed = graph.add(Convolution(int8(3, 4, 1, 1), bias, scaling), scores)
    graph.output(graph.add(Matmul(Requantization(1, 8)), mixed, graph.add(Slice(1, 0, 3), k)))
    model = compiled(graph, "pynq_ext")
    assert {row.where for row in model.plan if row.operator == "convolution"} == {"vta"}


@pytest.mark.parametrize("groups", [1, 2, 32])
def test_groups_of_channels_are_rows(groups):
    graph, x = image((1, 32, 6, 4))
    row = 32 * 24 // groups
    weight = RNG.integers(-20000, 20000, row).astype(np.int32)
    rows = graph.add(Reshape((1, groups, row)), x)
    rows = graph.add(RowNorm(weight, np.ones(row, np.int32), 1, 14, -9), rows)
    graph.output(window(graph, graph.add(Reshape(x.shape), rows)))
    model = compiled(graph, "pynq_ext")
    assert not on_host(model)


@pytest.mark.parametrize("alike", [False, True])
def test_rows_that_do_not_fit_the_accumulators(alike):
    graph = Graph("long rows")
    x = graph.input("x", (2, 4100 if alike else 2704))
    weight = np.full(x.shape[1], 20000, np.int32)
    bias = np.zeros(x.shape[1], np.int32) if alike else np.arange(x.shape[1], dtype=np.int32)
    graph.output(graph.add(RowNorm(weight, bias, 1, 14), x))
    assert not on_host(compiled(graph, "pynq_ext"))


def test_channels_become_pixels():
    """A reshape that reads an image's channels as rows turns the matrix."""
    graph, x = image((1, 24, 5, 4))
    rows = graph.add(Reshape((24, 20)), x)
    rows = graph.add(RowNorm(np.full(20, 20000, np.int32), np.zeros(20, np.int32)), rows)
    mixed = graph.add(Dense(int8(20, 20), None, Requantization(1, 9)), rows)
    back = graph.add(Requantize(Requantization(1, 1, 5)), graph.add(Reshape(x.shape), mixed))
    graph.output(window(graph, back))
    model = compiled(graph, "pynq_ext")
    assert not on_host(model)
