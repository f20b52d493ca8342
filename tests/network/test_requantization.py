"""Requantisations at the ends of their fields: every configuration gives what the graph says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vtaops
from vtaops import HardwareConfig
from vtaops.graph import (
    Add,
    AveragePool,
    Convolution,
    Dense,
    Graph,
    Matmul,
    Multiply,
    Quotient,
    Requantization,
    Requantize,
    Reshape,
    TfliteRequantization,
    TransposedConvolution,
    evaluate,
)
from vtaops.machine.config import Extension

CHANNELS = 9
IMAGE = (1, CHANNELS, 5, 4)
SHIPPED = [HardwareConfig.load(name) for name in HardwareConfig.names()]
EXTENDED = [replace(config, extensions=tuple(sorted(Extension))) for config in SHIPPED]
CONFIGS = st.sampled_from(SHIPPED) | st.sampled_from(EXTENDED)

MULTIPLIERS = st.sampled_from([0, 1, 2, 127, 128, 32768, 65535])
SHIFTS = st.sampled_from([0, 1, 7, 15, 16, 31, 32, 46, 47])
INT8 = st.sampled_from([-128, -127, -1, 0, 1, 126, 127])
WEIGHTS = st.sampled_from([-128, -1, 0, 1, 127])


def each_channel(values):
    """One number for all channels, or one for each."""
    return values | st.lists(values, min_size=CHANNELS, max_size=CHANNELS)


CLIPS = st.just((-128, 127)) | INT8.map(lambda v: (v, v)) | st.tuples(INT8, INT8).map(sorted)


def requantizations(multipliers=MULTIPLIERS, shifts=SHIFTS):
    return st.builds(Requantization, multipliers, shifts, INT8, CLIPS.map(tuple))


ONE_SCALE = requantizations()
SCALES = requantizations(each_channel(MULTIPLIERS), each_channel(SHIFTS))


def weights(*shape):
    return st.builds(
        lambda value, noise, seed: np.where(
            np.random.default_rng(seed).random(shape) < noise, 1, value
        ).astype(np.int8),
        WEIGHTS,
        st.sampled_from([0.0, 0.5]),
        st.integers(0, 9),
    )


def biases():
    ends = st.sampled_from([0, 1, -1, 1 << 15, -(1 << 15), 1 << 29, -(1 << 29)])
    return st.none() | ends.map(lambda value: np.full(CHANNELS, value, np.int32))


PADDED = {"padding": st.just((1, 1, 1, 1))}
OPERATORS = {
    "convolution": st.builds(Convolution, weights(CHANNELS, CHANNELS, 3, 3), biases(), SCALES),
    "depthwise": st.builds(
        Convolution,
        weights(CHANNELS, 1, 3, 3),
        biases(),
        SCALES,
        groups=st.just(CHANNELS),
        **PADDED,
    ),
    "residual": st.builds(
        Convolution,
        weights(CHANNELS, CHANNELS, 3, 3),
        biases(),
        SCALES,
        residual_factor=each_channel(st.sampled_from([1, 2, 127, 128, 32639, 32768])),
        **PADDED,
    ),
    "transposed": st.builds(
        TransposedConvolution, weights(CHANNELS, CHANNELS, 2, 2), biases(), SCALES
    ),
    "dense": st.builds(Dense, weights(CHANNELS, CHANNELS), biases(), SCALES),
    "matmul": st.builds(Matmul, ONE_SCALE),
    "average": st.builds(
        AveragePool,
        kernel=st.just((2, 3)),
        padding=st.sampled_from([(0, 0, 0, 0), (1, 0, 0, 1)]),
        factor=st.sampled_from([1, 2, 127]),
        requantization=ONE_SCALE,
    ),
    "add": st.builds(
        Add, st.tuples(*2 * [st.sampled_from([1, -1, 2, 127, -128, 32639])]), ONE_SCALE
    ),
    "multiply": st.builds(Multiply, ONE_SCALE),
    "requantize": st.builds(Requantize, SCALES),
}
SHAPES = {"dense": [(3, CHANNELS)], "matmul": [(1, 2, 3, 5), (1, 2, 5, 4)]}
TWO = {"residual", "add", "multiply"}


def network(kind, op, zero_points):
    """Return the graph of one operator on inputs with zero points."""
    graph = vtaops.Graph(kind)
    shapes = SHAPES.get(kind, [IMAGE] * (1 + (kind in TWO)))
    given = zip(shapes, zero_points, strict=False)
    inputs = [graph.input(f"x{i}", shape, zero_point=z) for i, (shape, z) in enumerate(given)]
    graph.output(graph.add(op, *inputs))
    return graph


def arrays_of(graph):
    """Return the extremes of int8 and what lies between."""
    rng = np.random.default_rng(0)
    values = np.array([-128, -127, -1, 0, 1, 126, 127], np.int8)
    return [rng.choice(values, tensor.shape) for tensor in graph.inputs]


@pytest.mark.parametrize("kind", OPERATORS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_extremes_equal_the_executor(kind, data):
    zero_points = data.draw(st.tuples(*2 * [st.just(0) | INT8]), "zero points")
    config = data.draw(CONFIGS, "configuration")
    try:
        graph = network(kind, data.draw(OPERATORS[kind], "operator"), zero_points)
    except vtaops.errors.ShapeError as error:  # sums that leave int32 are no operator
        if "int32" not in str(error):
            raise
        return
    model = vtaops.compile_model(graph, config)
    arrays = arrays_of(graph)
    assert np.array_equal(model.run(*arrays), model.reference(*arrays))
    assert all(row.where == "vta" or row.reason for row in model.plan)


@pytest.mark.parametrize("value", [-128, 0, 127])
def test_a_clip_to_one_value_runs_on_vta(value):
    weight = np.ones((CHANNELS, CHANNELS, 3, 3), np.int8)
    op = Convolution(weight, None, Requantization(12345, 20, 3, (value, value)))
    graph = network("convolution", op, (5,))
    model = vtaops.compile_model(graph, "pynq_ext")
    assert [row.where for row in model.plan] == ["vta"]
    assert (model.run(*arrays_of(graph)) == value).all()


def test_ranges_of_channels_do_not_pass_through_a_reshape_that_mixes_them():
    """Each of four channels is constant; five rows of four of their values are not."""
    graph = Graph()
    x = graph.input("x", (1, 2, 1, 5))
    bias = np.array([-120, -40, 40, 120], np.int32)
    still = Convolution(np.zeros((4, 2, 1, 1), np.int8), bias, Requantization())
    rows = graph.add(Reshape((5, 4)), graph.add(still, x))
    scale = TfliteRequantization(1518500250, 38, 3)
    weight = np.array([[90, -3, 50, 7], [5, 80, -20, 11]], np.int8)
    graph.output(graph.add(Dense(weight, None, scale), rows))
    model = vtaops.compile_model(graph, "pynq_exact")
    array = np.zeros((1, 2, 1, 5), np.int8)
    assert "equal to TFLite" in model.plan[-1].reason
    assert np.array_equal(model.run(array), evaluate(graph, array)[0])


def test_values_that_are_all_the_same_keep_their_scales_by_channel():
    """A sum that is always the same may have any scale and bias; a value has no bias."""
    graph = Graph()
    x = graph.input("x", (1, 2, 1, 5))
    still = Convolution(np.zeros((2, 2, 1, 1), np.int8), np.array([100, 100], np.int32))
    scales = TfliteRequantization([1518500250, 1318500250], 31)
    graph.output(graph.add(Requantize(scales), graph.add(still, x)))
    model = vtaops.compile_model(graph, "pynq_exact")
    array = np.zeros((1, 2, 1, 5), np.int8)
    assert np.array_equal(model.run(array), evaluate(graph, array)[0])


@pytest.mark.parametrize("config", ["pynq_exact", "pynq_512"])
@pytest.mark.parametrize(
    ("shape", "kernel", "dilation", "zero_point"),
    [((1, 20, 9, 9), (3, 3), (2, 2), 5), ((2, 16, 8, 8), (2, 3), (1, 2), -128)],
)
def test_a_quotient_over_dilated_windows(config, shape, kernel, dilation, zero_point):
    """VTA's pools have no dilation: a depthwise convolution divides the values, not the sums."""
    graph = Graph("dilated")
    x = graph.input("x", shape, zero_point=zero_point)
    pool = AveragePool(kernel, dilation=dilation, requantization=Quotient((-120, 100)))
    graph.output(graph.add(pool, x))
    model = vtaops.compile_model(graph, config)
    assert {row.where for row in model.plan} == {"vta"}
    assert model.prove().complete
    values = np.random.default_rng(0).integers(-128, 128, shape, dtype=np.int8)
    for data in (values, np.full(shape, 127, np.int8), np.full(shape, -128, np.int8)):
        assert np.array_equal(model.run(data), model.reference(data))
