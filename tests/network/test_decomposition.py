"""Operators that VTA lacks are computed by others that it has, with the same integers."""

import numpy as np
import pytest

from tests.helpers.networks import RNG, compiled, int8, on_host, scaling
from vtaops.graph import Convolution, Graph, Requantization, TransposedConvolution

CONFIGS = ["pynq", "pynq_ext", "fsim", "tiny"]


def bias(channels):
    return RNG.integers(-900, 900, channels).astype(np.int32)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("zero_point", [0, -9])
@pytest.mark.parametrize(
    ("groups", "outputs", "window"),
    [
        (6, 1, {"strides": (2, 2), "padding": (1, 1, 1, 1), "output_padding": (1, 0)}),
        (2, 5, {"strides": (2, 1), "dilation": (1, 2)}),
        (3, 2, {"strides": (1, 1), "dilation": (2, 3), "padding": (0, 2, 1, 0)}),
        (1, 4, {"strides": (2, 2), "dilation": (2, 2), "output_padding": (1, 1)}),
    ],
)
def test_transposed_convolutions_with_groups_and_dilation(
    config, zero_point, groups, outputs, window
):
    graph = Graph()
    x = graph.input("x", (2, 6, 4, 5), zero_point=zero_point)
    y = graph.add(Convolution(int8(6, 6, 1, 1), bias(6), scaling(config, 6, zero_point)), x)
    channels = outputs * groups
    op = TransposedConvolution(
        int8(6, outputs, 3, 3), bias(channels), scaling(config, channels), groups=groups, **window
    )
    graph.output(graph.add(op, y))
    assert not on_host(compiled(graph, config))


def test_a_grouped_transposed_convolution_is_its_groups():
    """Each group of channels alone, by the operator without groups."""
    graph = Graph()
    x, weight = graph.input("x", (1, 6, 4, 5)), int8(6, 2, 3, 2)
    scale, strides = Requantization(1, 9), (2, 3)
    graph.output(
        graph.add(TransposedConvolution(weight, None, scale, strides=strides, groups=3), x)
    )
    array = int8(1, 6, 4, 5)
    whole = graph.nodes[0].op.meaning([x], [array])
    for group in range(3):
        alone = Graph()
        one = alone.input("x", (1, 2, 4, 5))
        part = slice(2 * group, 2 * group + 2)
        op = TransposedConvolution(weight[part], None, scale, strides=strides)
        assert np.array_equal(op.meaning([one], [array[:, part]]), whole[:, part])
