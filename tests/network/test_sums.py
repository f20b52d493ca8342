"""Sums of two tensors with free scales on plain hardware: factors of two digits, and a shift."""

import numpy as np
import pytest

from tests.helpers.networks import compiled, int8, on_host
from vtaops.graph import Add, Graph, LookupTable, Requantization, evaluate_all
from vtaops.graph.operators import RescaledAdd

RATIOS = [
    (0.3319, -1.087),
    (2.777, 1.38),
    (0.0217, 0.7031),
    (-0.41, 0.39),
    (1.0, 0.004),
    (9.1, 0.3),
]


def summed(config, op, zero_points=(5, -7)):
    """Return the results of a sum on VTA, and the operands less their zero points."""
    graph = Graph()
    inputs = [
        graph.input(name, (2, 20, 40, 40), zero_point=zero)
        for name, zero in zip("ab", zero_points, strict=True)
    ]
    graph.output(graph.add(op, *inputs))
    model = compiled(graph, config, near=True)
    assert not on_host(model)
    arrays = [int8(*tensor.shape) for tensor in inputs]
    real = [array.astype(int) - zero for array, zero in zip(arrays, zero_points, strict=True)]
    (row,) = model.plan
    return evaluate_all(model.graph, *arrays)[graph.outputs[0].name], real, row.reason


@pytest.mark.parametrize("config", ["fsim", "pynq", "tiny"])
@pytest.mark.parametrize("ratios", RATIOS)
def test_at_most_one_value_of_a_hundred_is_off_by_a_step(config, ratios):
    found, real, note = summed(config, Add.from_ratios(*ratios, 3))
    exact = sum(ratio * x for ratio, x in zip(ratios, real, strict=True))
    expected = np.clip(np.floor(exact + 0.5) + 3, -128, 127)
    assert np.abs(found - expected).max() <= 1
    assert np.mean(found != expected) < 0.01
    assert note.startswith("equal to the file")


@pytest.mark.parametrize("config", ["fsim", "pynq"])
def test_sums_of_tflite_are_within_a_step_of_its_kernels(config):
    op = RescaledAdd.from_scales((0.02137, 0.04311), 0.05031, -2, (-128, 100), sign=-1)
    found, real, note = summed(config, op)
    expected = op.requantization.apply(op.sums(*real))
    assert np.abs(found.astype(int) - expected).max() <= 1
    assert np.mean(found != expected) < 0.01
    assert note.startswith("equal to TFLite")


def test_a_constant_of_zero_points_beyond_the_immediates_is_refused():
    graph = Graph()
    a, b = (graph.input(name, (1, 16, 4, 4), zero_point=-128) for name in "ab")
    y = graph.add(Add((32001, 31999), Requantization(1, 4)), a, b)
    graph.output(graph.add(LookupTable(int8(256)), y))
    model = compiled(graph, "pynq", launches=0)
    assert "leaves too much of it to add" in model.plan[0].reason
