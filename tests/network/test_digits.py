"""Scales in weights of two digits, on hardware that only shifts: at most a step from the file's."""

from importlib import import_module

import numpy as np
import pytest

import vtaops
from vtaops.base.errors import ScheduleError, ShapeError
from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.graph import (
    AveragePool,
    Convolution,
    Dense,
    Graph,
    Requantization,
    Requantize,
    TfliteRequantization,
    evaluate,
)

RNG = np.random.default_rng(7)
CLIP = (0, 127)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def layer(*, channels=24, taps=3, groups=1, kind=Requantization, residual=None):
    """Return a convolution whose channels have scales of their own."""
    weight = int8(channels, channels // groups, taps, taps)
    bias = RNG.integers(-3000, 3000, channels).astype(np.int32)
    scale = RNG.uniform(0.2, 1.0, channels) / (60 * np.sqrt(weight[0].size))
    padding = (taps // 2,) * 4
    scaling = kind.from_ratio(scale, -11, CLIP)
    return Convolution(
        weight, bias, scaling, padding=padding, groups=groups, residual_factor=residual
    )


LAYERS = {
    "dense": layer(),
    "depthwise": layer(groups=24),
    "grouped": layer(groups=3),
    "tflite": layer(kind=TfliteRequantization, taps=1),
    "residual": layer(residual=np.arange(24) * 300 + 1),
    "depthwise and residual": layer(groups=24, residual=17000),
}


def compiled(op, shape=(2, 24, 7, 6), config="pynq"):
    """Return the graph of one operator on an image that VTA made, and its model."""
    graph = Graph("one")
    x = graph.input("x", shape, zero_point=3)
    made = graph.add(Requantize(Requantization(1, 0, 5)), x)
    image = graph.add(op, made, *[made] * (getattr(op, "residual_factor", None) is not None))
    graph.output(image)
    return graph, vtaops.compile_model(graph, config, prove=True)


def steps_off(graph, model, count=3):
    """Return how far results are from those of the file's operators, which none exceeds by much."""
    found = []
    for _ in range(count):
        x = int8(*graph.inputs[0].shape)
        result = model.run(x)
        np.testing.assert_array_equal(result, model.reference(x))
        found.append(np.abs(result.astype(int) - evaluate(graph, x)[0].astype(int)))
    return np.array(found)


@pytest.mark.parametrize("kind", LAYERS)
def test_results_are_at_most_a_step_off(kind):
    graph, model = compiled(LAYERS[kind])
    assert {row.where for row in model.plan} == {"vta"}
    off = steps_off(graph, model)
    assert off.max() <= 1
    assert off.mean() < 0.01
    (note,) = [row.reason for row in model.plan if " but for " in row.reason]
    assert note == f"equal to {'TFLite' if kind == 'tflite' else 'the file'} but for a step"


def test_a_matrix_product_and_values_with_free_scales():
    graph = Graph("rows")
    x = graph.input("x", (3, 40), zero_point=-128)
    y = graph.add(Dense(int8(20, 40), None, Requantization.from_ratio(0.0007, 4)), x)
    graph.output(graph.add(Requantize(Requantization.from_ratio(0.77, -9)), y))
    model = vtaops.compile_model(graph, "pynq", prove=True)
    assert {row.where for row in model.plan} == {"vta"}
    assert steps_off(graph, model).max() <= 1


def test_a_mean_has_a_factor_of_two_digits():
    scaling = Requantization.from_ratio(0.93 / 42, -7)
    graph, model = compiled(AveragePool((7, 6), requantization=scaling))
    assert {row.where for row in model.plan} == {"vta"}
    assert model.graph.nodes[-1].op.factor > 127
    assert steps_off(graph, model).mean() < 0.01


def test_what_fits_no_scratchpad_stays_as_the_file_has_it(monkeypatch):
    plan = import_module("vtaops.network.plan")
    sized = plan.default_tiling

    def tiling(op, config):
        if getattr(op, "wide", False):
            raise ScheduleError("no tile fits")
        return sized(op, config)

    monkeypatch.setattr(plan, "default_tiling", tiling)
    graph, model = compiled(LAYERS["dense"])
    assert (model.plan[-1].where, model.plan[-1].code) == ("host", "scratchpad")
    assert model.graph.nodes[-1].op.weight.dtype == np.int8
    assert not steps_off(graph, model).any()


def test_weights_of_16_bits_that_a_user_gives():
    scaling = Requantization(1, 16, 2)
    weight = RNG.integers(-TWO_DIGITS, TWO_DIGITS, (24, 24, 1, 1), np.int16, endpoint=True)
    for config, where in (("pynq", "vta"), ("pynq_ext", "host")):
        graph, model = compiled(Convolution(weight, None, scaling), config=config)
        assert model.plan[-1].where == where
        assert not steps_off(graph, model, 1).any()
    with pytest.raises(ShapeError, match="weights of int16 lie within 32639"):
        Convolution(weight * 0 + np.int16(32640))
