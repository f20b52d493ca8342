"""Which image holds each tensor: products on any rank, lines as images, channels last."""

import numpy as np
import pytest

from tests.helpers.networks import RNG, compiled, int8, on_host, scaling
from vtaops.graph import (
    Add,
    Concat,
    Convolution,
    Dense,
    Graph,
    LookupTable,
    MaxPool,
    Multiply,
    Requantization,
    Requantize,
    Reshape,
    Slice,
    Transpose,
    TransposedConvolution,
)
from vtaops.network.readers import storages

CONFIGS = ["pynq", "pynq_ext", "fsim", "tiny"]


def dense(inputs, outputs, config="pynq", bias=True):
    added = RNG.integers(-900, 900, outputs).astype(np.int32) if bias else None
    return Dense(int8(outputs, inputs), added, scaling(config, outputs))


def convolution(inputs, outputs, kernel=(1, 3), config="pynq", **options):
    weight = int8(outputs, inputs, *kernel)
    bias = RNG.integers(-900, 900, outputs).astype(np.int32)
    return Convolution(weight, bias, scaling(config, outputs), **options)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shape", [(2, 5, 6, 8), (1, 3, 2, 5, 17), (3, 4, 8), (1, 1, 1, 4)])
def test_a_product_reads_the_last_axis_of_any_rank(config, shape):
    graph = Graph()
    x = graph.input("x", shape, zero_point=-7)
    y = graph.add(dense(shape[-1], 20, config), x)
    y = graph.add(
        LookupTable(int8(256)) if "ext" in config else Requantize(Requantization(1, 1)), y
    )
    y = graph.add(dense(20, 9, config, bias=False), y)
    graph.output(graph.add(Add((1, 1), Requantization(1, 1)), y, y))
    assert not on_host(compiled(graph, config))


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("upright", [False, True])
def test_lines_between_convolutions_are_images_of_one_row(config, batch, upright):
    """A stack of Conv1d with a pool and a transposed one, each between two reshapes."""

    def turned(*sides):
        return sides[::-1] if upright else sides

    graph = Graph()
    x = graph.input("x", (batch, 6, 24), zero_point=-5)
    for number in range(4):
        n, channels, length = x.shape
        image = graph.add(Reshape((n, channels, *turned(1, length))), x)
        sides = (1, 0, 1, 0) if upright else (0, 1, 0, 1)
        op = convolution(channels, 10 + number, turned(1, 3), config, padding=sides)
        x = graph.add(Reshape((n, 10 + number, length)), graph.add(op, image))
        x = graph.add(Requantize(Requantization(1, 0, 3, (3, 127))), x)
    image = graph.add(Reshape((batch, 13, *turned(1, 24))), x)
    image = graph.add(MaxPool(turned(1, 2), turned(1, 2)), image)
    weight = int8(13, 5, *turned(1, 2))
    op = TransposedConvolution(weight, None, scaling(config, 5), turned(1, 2))
    graph.output(graph.add(Reshape((batch, 5, 24)), graph.add(op, image)))
    model = compiled(graph, config)
    assert on_host(model) == ["reshape"] * 2  # of the input and the output, which cost nothing


def test_lines_are_joined_cut_and_scaled_by_channel():
    graph = Graph()
    x = graph.input("x", (2, 6, 1, 20))
    lines = [
        graph.add(Reshape((2, 9, 20)), graph.add(convolution(6, 9, padding=(0, 1, 0, 1)), x))
        for _ in range(2)
    ]
    joined = graph.add(Concat(1), *lines)
    scale = Requantization(RNG.integers(1 << 15, 1 << 16, 18), 16, 3)
    scaled = graph.add(Requantize(scale), joined)
    part = graph.add(Slice(-2, 2, 15), scaled)
    image = graph.add(Reshape((2, 13, 1, 20)), part)
    graph.output(graph.add(convolution(13, 4), image))
    assert not on_host(compiled(graph, "pynq_ext"))


@pytest.mark.parametrize("config", CONFIGS)
def test_products_between_convolutions_read_their_images(config):
    """As ConvNeXt, MetaFormer and Swin write them: channels last, by axes or as rows."""
    graph = Graph()
    x = graph.input("x", (2, 7, 5, 6))
    image = graph.add(convolution(7, 20, (3, 3), config, padding=(1, 1, 1, 1)), x)
    last = graph.add(Transpose((0, 2, 3, 1)), image)
    last = graph.add(dense(20, 33, config), last)
    last = graph.add(Requantize(Requantization(1, 0, 3, (3, 90))), last)
    last = graph.add(dense(33, 20, config), last)
    image = graph.add(
        Add((1, 1), Requantization(1, 1)), image, graph.add(Transpose((0, 3, 1, 2)), last)
    )
    rows = graph.add(Transpose((0, 2, 1)), graph.add(Reshape((2, 20, 30)), image))
    rows = graph.add(dense(20, 12, config), rows)
    again = graph.add(Reshape((2, 12, 5, 6)), graph.add(Transpose((0, 2, 1)), rows))
    graph.output(graph.add(convolution(12, 5, (3, 3), config), again), last)
    assert not on_host(compiled(graph, config))


def test_channels_last_come_from_the_host_and_go_there():
    """A border with a zero point around an image that the host gives with channels last."""
    graph = Graph()
    x = graph.input("x", (1, 4, 5, 6), zero_point=9)
    y = graph.input("y", (1, 6, 4, 5), zero_point=9)
    narrow = graph.add(Requantize(Requantization(1, 1, 9)), x)
    image = graph.add(Transpose((0, 3, 1, 2)), narrow)
    image = graph.add(Add((1, 1), Requantization(1, 0, 9)), image, y)
    padded = graph.add(convolution(6, 4, (3, 3), padding=(1, 1, 1, 1)), image)
    graph.output(padded, narrow)
    assert not on_host(compiled(graph))


def test_two_readers_of_one_tensor_agree_or_one_is_on_the_host():
    graph = Graph()
    x = graph.input("x", (1, 3, 4, 8))
    y = graph.add(Requantize(Requantization(1, 1)), x)
    graph.output(graph.add(dense(8, 4), y), graph.add(convolution(3, 4), y))
    model = compiled(graph)
    (row,) = [row for row in model.plan if row.where == "host"]
    assert row.code == "layout"
    assert "stored as 12 x 8 x 1 x 1" in row.reason


def test_gates_flattenings_and_rows_are_stored_as_ever():
    graph = Graph()
    x = graph.input("x", (1, 16, 6, 6))
    image = graph.add(convolution(16, 16, (3, 3), padding=(1, 1, 1, 1)), x)
    gate = graph.add(MaxPool((6, 6), (1, 1)), image)
    rows = graph.add(dense(16, 16), graph.add(Reshape((1, 16)), gate))
    gated = graph.add(
        Multiply(Requantization(1, 7)), image, graph.add(Reshape((1, 16, 1, 1)), rows)
    )
    flat = graph.add(Reshape((1, 576)), gated)
    graph.output(graph.add(dense(576, 10), flat))
    assert storages(graph)[flat.name].image == (1, 16, 6, 6)
    assert storages(graph)[rows.name].image == (1, 16, 1, 1)
    assert not on_host(compiled(graph, "fsim"))


def test_a_long_chain_is_decided_in_little_time():
    graph = Graph()
    x = graph.input("x", (2, 3, 8))
    for _ in range(1500):
        x = graph.add(Add((1, 1), Requantization(1, 1)), x, graph.add(Reshape((2, 3, 8)), x))
    graph.output(x)
    assert storages(graph)[x.name].image == (6, 8, 1, 1)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("config", ["pynq", "pynq_ext", "tiny"])
def test_groups_of_channels_are_swapped_cut_and_joined_for_nothing(config, batch):
    """A shuffle as PyTorch writes it, branches that are stacked, parts of a query."""
    graph = Graph()
    x = graph.input("x", (batch, 6, 5, 4), zero_point=-5)
    image = graph.add(convolution(6, 36, (1, 1), config), x)
    groups = graph.add(Reshape((batch, 3, 12, 5, 4)), image)
    swapped = graph.add(Transpose((0, 2, 1, 3, 4)), groups)
    shuffled = graph.add(Reshape((batch, 36, 5, 4)), swapped)
    first = graph.add(convolution(36, 12, (3, 3), config), shuffled)
    query = graph.add(Reshape((batch, 2, 6, 3, 2)), first)
    parts = [graph.add(Slice(1, k, k + 1), query) for k in range(2)]
    total = graph.add(Add((1, 1), Requantization(1, 1, 3)), *parts)
    again = graph.add(Concat(1), total, query, total)
    joined = graph.add(Concat(-3), again, again)
    graph.output(
        graph.add(convolution(48, 5, (1, 1), config), graph.add(Reshape((batch, 48, 3, 2)), joined))
    )
    model = compiled(graph, config)
    assert not on_host(model)
    kinds = [record.kind for record in model.programs[0].operators]
    assert kinds.count("Conv2d") >= 3


@pytest.mark.parametrize("config", CONFIGS)
def test_pixels_are_cut_and_joined_by_copies(config):
    """A causal Conv1d that cuts its end, an image that is rolled, parts of channels last."""
    graph = Graph()
    line = graph.add(Reshape((2, 6, 1, 20)), graph.input("x", (2, 6, 20), zero_point=-5))
    made = graph.add(convolution(6, 9, (1, 3), config, padding=(0, 2, 0, 2)), line)
    chomped = graph.add(Slice(2, 0, 20), graph.add(Reshape((2, 9, 22)), made))
    image = graph.add(Reshape((2, 9, 1, 20)), chomped)
    image = graph.add(convolution(9, 33, (1, 1), config), image)
    parts = [graph.add(Slice(3, *cut), image) for cut in ((7, 20), (0, 7))]
    rolled = graph.add(Concat(-1), *parts)
    last = graph.add(dense(33, 17, config), graph.add(Transpose((0, 2, 3, 1)), rolled))
    again = graph.add(Concat(2), last, graph.add(Slice(2, 5, 9), last))
    graph.output(
        graph.add(convolution(17, 4, (1, 1), config), graph.add(Transpose((0, 3, 1, 2)), again))
    )
    assert on_host(compiled(graph, config)) == ["reshape"]
