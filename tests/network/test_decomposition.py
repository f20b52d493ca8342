"""Operators that VTA lacks are computed by others that it has, with the same integers."""

import numpy as np
import pytest

from tests.helpers.networks import RNG, compiled, int8, on_host, scaling
from vtaops.graph import (
    Add,
    AveragePool,
    Concat,
    Constant,
    Convolution,
    Expand,
    FromUint8,
    Graph,
    Matmul,
    MaxPool,
    Multiply,
    Pad,
    Requantization,
    Reshape,
    ToUint8,
    Transpose,
    TransposedConvolution,
    Upsample,
)
from vtaops.graph.executor import evaluate_all

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
    whole = graph.nodes[0].op.reference([x], array)
    for group in range(3):
        alone = Graph()
        one = alone.input("x", (1, 2, 4, 5))
        part = slice(2 * group, 2 * group + 2)
        op = TransposedConvolution(weight[part], None, scale, strides=strides)
        assert np.array_equal(op.reference([one], array[:, part]), whole[:, part])


def image(graph, config, channels=6, zero_point=-4, size=(5, 6), batch=2):
    """Return an image that VTA made."""
    x = graph.input(f"x{len(graph.inputs)}", (batch, channels, *size), zero_point=zero_point)
    op = Convolution(int8(channels, channels, 1, 1), bias(channels), scaling(config, channels, 5))
    return graph.add(op, x)


@pytest.mark.parametrize("config", CONFIGS)
def test_sums_and_products_repeat_channels_and_pixels(config):
    graph = Graph()
    x = image(graph, config)
    mean = graph.add(AveragePool.from_ratio(1.0, 30, shifts_only="pynq_e" not in config), x)
    context = graph.add(Convolution(int8(6, 6, 1, 1), bias(6), scaling(config, 6, 2)), mean)
    y = graph.add(Add((1, 1), Requantization(1, 1, 5)), x, context)
    pixels = graph.add(
        Convolution(int8(1, 6, 3, 3), bias(1), scaling(config, 1, 2), padding=(1,) * 4), y
    )
    y = graph.add(Add((1, 1), Requantization(1, 1, 5)), y, graph.add(Expand(y.shape), pixels))
    column = graph.add(MaxPool((1, 6), (1, 1)), pixels)
    y = graph.add(Add((2, 1), Requantization(1, 1, 5)), y, graph.add(Expand(y.shape), column))
    graph.output(y)
    assert not on_host(compiled(graph, config))


@pytest.mark.parametrize("config", ["fsim", "pynq_ext"])
def test_an_image_is_multiplied_by_one_value_for_each_pixel(config):
    graph = Graph()
    x = image(graph, config)
    gate = graph.add(Convolution(int8(1, 6, 1, 1), None, scaling(config)), x)
    gated = graph.add(Multiply(Requantization(1, 7)), x, graph.add(Expand(x.shape), gate))
    graph.output(gated)
    assert not on_host(compiled(graph, config))


def test_what_comes_from_the_host_is_repeated_there():
    graph = Graph()
    x, y = graph.input("x", (1, 1, 4, 4)), graph.input("y", (1, 6, 4, 4))
    graph.output(graph.add(Add((1, 1), Requantization(1, 1)), y, graph.add(Expand(y.shape), x)))
    assert on_host(compiled(graph)) == ["expand"]


@pytest.mark.parametrize("config", CONFIGS)
def test_constants_are_tensors_that_the_host_passes(config):
    graph = Graph()
    x = image(graph, config)
    each = graph.add(Constant(int8(2, 6, 5, 6), 3))
    one = graph.add(Expand((2, 6, 5, 6)), graph.add(Constant(int8(1, 1, 5, 6), -3)))
    y = graph.add(
        Add((1, 1), Requantization(1, 1)),
        graph.add(Add((1, 2), Requantization(1, 1)), x, each),
        one,
    )
    joined = graph.add(Concat(1), y, graph.add(Constant(int8(2, 3, 5, 6), 0)))
    graph.output(joined)
    assert on_host(compiled(graph, config)) == ["constant", "constant", "expand", "constant"]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("mode", ["edge", "reflect"])
@pytest.mark.parametrize("padding", [(1, 2, 3, 0), (2, 2, 2, 2)])
def test_borders_repeat_the_image(config, mode, padding):
    graph = Graph()
    padded = graph.add(Pad(padding, mode), image(graph, config, 20))
    weight = int8(20, 1, 3, 3)
    y = graph.add(Convolution(weight, None, scaling(config, 20, 0), groups=20), padded)
    again = graph.add(Pad((1, 1, 1, 1), mode), y)
    graph.output(graph.add(Convolution(int8(4, 20, 3, 3), None, scaling(config, 4)), again), padded)
    assert not on_host(compiled(graph, config))


@pytest.mark.parametrize("config", ["pynq", "pynq_exact", "tiny"])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_bilinear_resizing_by_whole_factors(config, factor):
    """Nearest pixels, the border repeated, and the mean of a window: as ONNX's half_pixel."""
    graph = Graph()
    x = image(graph, config, 5)
    even = 1 - factor % 2
    box = np.ones(factor, np.int64)
    taps = np.convolve(box, [1, 1]) if even else box
    side = len(taps) // 2
    near = graph.add(Upsample((factor, factor)), x)
    near = graph.add(Pad((side,) * 4, "edge"), near)
    weight = np.broadcast_to(np.multiply.outer(taps, taps), (5, 1, len(taps), len(taps)))
    scale = Requantization.from_ratio(1 / taps.sum() ** 2, 5)
    if "exact" not in config and scale.right_shift is None:
        scale = Requantization(1, 3, 5)
    graph.output(graph.add(Convolution(weight.astype(np.int8), None, scale, groups=5), near))
    assert not on_host(compiled(graph, config))
    arrays = int8(*graph.inputs[0].shape)
    values = evaluate_all(graph, arrays)
    expected = _bilinear(values[x.name].astype(np.float64) - 5, factor)
    made = graph.nodes[-1].op.sums(values[graph.nodes[-2].name].astype(np.int64) - 5)
    assert np.allclose(made / taps.sum() ** 2, expected)


def _bilinear(x, factor):
    """Interpolate along both axes, between the centres of pixels."""
    for axis in (2, 3):
        size = x.shape[axis]
        at = np.clip((np.arange(size * factor) + 0.5) / factor - 0.5, 0, size - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, size - 1)
        shape = [1, 1, 1, 1]
        shape[axis] = -1
        part = (at - low).reshape(shape)
        x = x.take(low, axis) * (1 - part) + x.take(high, axis) * part
    return x


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    "window",
    [
        {
            "kernel": (3, 3),
            "strides": (2, 2),
            "padding": (0, 0, 0, 1),
            "exclude_padding": True,
        },
        {
            "kernel": (2, 3),
            "strides": (3, 2),
            "padding": (0, 1, 1, 0),
            "exclude_padding": True,
        },
        {"kernel": (2, 2), "strides": (1, 1), "dilation": (2, 3), "padding": (1, 1, 0, 2)},
        {"kernel": (5, 1)},
        {"kernel": (1, 6)},
    ],
)
def test_average_pools_skip_pixels_and_padding(config, window):
    graph = Graph()
    kernel = window["kernel"]
    pool = AveragePool.from_ratio(
        1.0, kernel[0] * kernel[1], shifts_only="pynq_e" not in config, zero_point=1, **window
    )
    x = image(graph, config)
    y = graph.add(pool, x)
    graph.output(y)
    assert not on_host(compiled(graph, config))
    array = int8(*x.shape)
    found = pool.reference([x], array).astype(int) - 1
    expected = _means(array.astype(np.float64) - x.zero_point, pool, y.shape)
    assert np.abs(found - expected).max() < (0.501 if "pynq_e" in config else 2)


@pytest.mark.parametrize("ratio", [0.71, 1.0, 2.9])
def test_means_of_any_scale_whose_windows_differ_take_factors_of_seven_bits(ratio):
    graph = Graph()
    pool = AveragePool.from_ratio(
        ratio,
        9,
        shifts_only=False,
        zero_point=-3,
        kernel=(3, 3),
        strides=(2, 2),
        padding=(1, 0, 0, 1),
        exclude_padding=True,
    )
    graph.output(graph.add(pool, graph.input("x", (2, 6, 7, 8), zero_point=5)))
    model = compiled(graph, "fsim", near=True)
    assert not on_host(model)
    array = int8(2, 6, 7, 8)
    exact = pool.reference(graph.inputs, array).astype(int)
    assert 0 < np.abs(model.run(array) - exact).max() <= 1
    assert "equal to the file but for at most 2 steps" in model.plan[0].reason


def _means(x, pool, shape):
    """PyTorch's definition."""
    top, left, bottom, right = pool.padding
    (kh, kw), (sh, sw), (dh, dw) = pool.kernel, pool.strides, pool.dilation
    height, width = x.shape[2:]
    found = np.zeros(shape)
    for i, j in np.ndindex(*shape[2:]):
        rows = [i * sh - top + k * dh for k in range(kh)]
        columns = [j * sw - left + k * dw for k in range(kw)]
        pixels = [(r, c) for r in rows for c in columns]
        inside = [(r, c) for r, c in pixels if 0 <= r < height and 0 <= c < width]
        counted = inside
        if not pool.exclude_padding:
            counted = [(r, c) for r, c in pixels if r < height + bottom and c < width + right]
        total = sum(x[:, :, r, c] for r, c in inside)
        found[:, :, i, j] = total / len(counted)
    return found


@pytest.mark.parametrize("config", CONFIGS)
def test_maxima_with_more_padding_below(config):
    graph = Graph()
    y = graph.add(MaxPool((3, 3), (2, 2), (1, 1, 2, 1)), image(graph, config, size=(6, 7)))
    assert y.shape[2:] == (4, 4)
    graph.output(y)
    assert not on_host(compiled(graph, config))


def test_dilated_maxima_are_right_on_the_host():
    graph = Graph()
    x = image(graph, "pynq")
    graph.output(graph.add(MaxPool((2, 2), (1, 1), (1, 0, 0, 1), dilation=(2, 3)), x))
    model = compiled(graph)
    (row,) = [row for row in model.plan if row.where == "host"]
    assert "dilation (2, 3)" in row.reason
    array = int8(*x.shape)
    padded = np.pad(array, ((0, 0), (0, 0), (1, 0), (0, 1)), constant_values=-128)
    parts = [padded[:, :, i : i + 4, j : j + 4] for i in (0, 2) for j in (0, 3)]
    assert np.array_equal(graph.nodes[-1].op.reference([x], array), np.max(parts, axis=0))


@pytest.mark.parametrize("config", ["pynq", "pynq_ext", "tiny"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((2, 3, 5, 8), (8, 7)),
        ((2, 3, 5, 8), (1, 1, 8, 7)),
        ((4, 5, 8), (1, 8, 7)),
        ((5, 8), (3, 8, 7)),
        ((2, 1, 5, 8), (2, 3, 8, 7)),
        ((2, 3, 5, 8), (3, 8, 7)),
    ],
)
def test_products_of_matrices_repeat_operands(config, first, second):
    graph, zeros = Graph(), (3, -2, 4) if config == "pynq_ext" else (0, 0, 0)
    operands = zip("ab", (first, second), zeros, strict=False)
    a, b = (graph.input(name, shape, zero_point=zero) for name, shape, zero in operands)
    graph.output(graph.add(Matmul(Requantization(1, 9, zeros[2])), a, b))
    model = compiled(graph, config)
    assert on_host(model) in ([], ["expand"])


@pytest.mark.parametrize("config", ["pynq", "pynq_ext"])
def test_uint8_is_int8_and_128(config):
    graph = Graph()
    x = graph.input("x", (1, 6, 5, 6), "uint8")
    y = graph.add(FromUint8(zero_point=-3), x)
    y = graph.add(Convolution(int8(6, 6, 3, 3), bias(6), scaling(config, 6)), y)
    graph.output(graph.add(ToUint8(), y))
    assert on_host(compiled(graph, config)) == ["from_uint8", "to_uint8"]
    values = np.arange(256).astype(np.uint8).reshape(1, -1)
    found = FromUint8().reference([], values)
    assert found.dtype == np.int8
    assert found.tolist() == [[*range(-128, 128)]]
    assert np.array_equal(ToUint8().reference([], found), values)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("as_line", ["transpose", "reshape"])
def test_a_convolution_across_channels_is_a_product(config, as_line):
    """The gate of ECA: the mean of each channel, a Conv1d over the channels, one launch."""
    graph = Graph()
    x = image(graph, config, 20)
    mean = graph.add(AveragePool.from_ratio(1.0, 30, shifts_only="pynq_e" not in config), x)
    line = graph.add(Reshape((2, 20, 1)), mean)
    line = graph.add(Transpose((0, 2, 1)) if as_line == "transpose" else Reshape((2, 1, 20)), line)
    line = graph.add(Reshape((2, 1, 1, 20)), line)
    op = Convolution(int8(1, 1, 1, 5), bias(1), scaling(config), padding=(0, 2, 0, 2))
    gate = graph.add(Reshape((2, 20, 1, 1)), graph.add(op, line))
    graph.output(graph.add(Add((1, 1), Requantization(1, 1)), x, gate))
    assert not on_host(compiled(graph, config))
