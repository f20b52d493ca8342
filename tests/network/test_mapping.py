"""What the compiler of networks makes of a graph: what is free, what is folded, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtaops
from trials.onnx_models import Builder, images
from trials.random_graphs import shuffled
from vtaops.base.window import Window
from vtaops.errors import ScheduleError, ShapeError
from vtaops.graph import (
    AveragePool,
    Concat,
    Convolution,
    Dense,
    Extremum,
    Graph,
    MaxPool,
    Multiply,
    Requantization,
    Reshape,
    Slice,
    Upsample,
    evaluate,
)
from vtaops.machine.config import POST_ROWS
from vtaops.machine.views import Patches, constant_digits, constant_values
from vtaops.network import fragments, plan_model
from vtaops.ops import Elementwise
from vtaops.program import Role

RNG = np.random.default_rng(7)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def convolution(inputs, outputs, kernel=1, padding=0, **options):
    weight = int8(outputs, inputs, kernel, kernel)
    bias = RNG.integers(-9000, 9000, outputs).astype(np.int32)
    return Convolution(weight, bias, Requantization(1, 9), padding=(padding,) * 4, **options)


def compiled(graph, config="pynq"):
    """Compile; make sure that it computes what it means."""
    model = vtaops.compile_model(graph, config)
    arrays = [int8(*tensor.shape) for tensor in graph.inputs]
    found, expected = model.run(*arrays), model.reference(*arrays)
    pairs = (
        [(found, expected)]
        if isinstance(expected, np.ndarray)
        else zip(found, expected, strict=True)
    )
    assert all(np.array_equal(a, b) for a, b in pairs)
    return model


@given(st.lists(st.integers(-240000, 240000), min_size=1, max_size=9))
def test_constants_are_sums_of_products(values):
    digits = constant_digits(np.array(values), 16)
    assert digits.dtype == np.int8
    assert (digits.astype(int) @ constant_values(16)).tolist() == values


def test_constants_that_do_not_fit_are_refused():
    assert constant_digits(np.array([1 << 18]), 16) is None
    assert constant_digits(np.array([-(1 << 18)]), 16) is None
    assert constant_digits(np.array([127 * 128 * 15]), 16) is not None


def test_patches_are_the_windows():
    x = int8(2, 3, 7, 6)
    view = Patches(Window((3, 2), (2, 1), (1, 0, 2, 1), (1, 2)), constants=4)
    found = view.apply(x)
    assert found.shape == view.shape(x.shape)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2), (0, 1)))
    for n, i, j in np.ndindex(2, *found.shape[2:]):
        window = padded[n, :, 2 * i : 2 * i + 3, [j, j + 2]]
        assert found[n, :18, i, j].tolist() == window.transpose(2, 0, 1).ravel().tolist()
        assert found[n, 18:, i, j].tolist() == [-128, -128, -128, 1]


@pytest.mark.parametrize("zero_point", [0, -14])
def test_a_first_layer_fills_its_tiles(zero_point):
    graph = Graph()
    x = graph.input("x", (1, 3, 20, 20), zero_point=zero_point)
    graph.output(graph.add(convolution(3, 64, 7, 3, strides=(2, 2)), x))
    (program,) = compiled(graph).programs
    # 147 pixels of a window are 10 blocks, and the bias lies in the last of them.
    assert program.stats().gemm_counter == 10 * 4 * 100
    assert program.stats().alu_counter == 3 * 4 * 100  # the shift and the two bounds


def test_concatenations_slices_and_shuffles_are_free():
    graph = Graph()
    x = graph.input("x", (1, 16, 6, 6))
    parts = [graph.add(convolution(16, channels), x) for channels in (24, 10, 20)]
    joined = shuffled(graph, graph.add(Concat(1), *parts), 2)
    half = graph.add(Slice(1, 5, 32), joined)
    graph.output(graph.add(convolution(27, 16), half))
    (program,) = compiled(graph).programs
    assert [record.kind for record in program.operators] == ["Conv2d"] * 4
    scratch = [buffer for buffer in program.buffers if buffer.role is Role.SCRATCH]
    assert len(scratch) == 1  # the three parts lie in one image


@pytest.mark.parametrize("batch", [2, 3])
@pytest.mark.parametrize("config", ["tiny", "pynq_ext", "ulx3s_batch", "4x8_i8w8a32_15_16_16_18"])
def test_slices_and_concatenations_of_a_batch_step_by_what_they_view(config, batch):
    """Lanes within a tile and across tiles; also as a border, a residual, a pool, an output."""
    graph = Graph("batch")
    y = graph.add(convolution(5, 44, 3, 1), graph.input("x", (batch, 5, 6, 7)))
    cuts = (0, 3), (3, 24), (16, 32), (24, 44)
    parts = [graph.add(Slice(1, start, stop), y) for start, stop in cuts]
    ends = [
        graph.add(convolution(stop - start, 12, 3, 1), x)
        for x, (start, stop) in zip(parts, cuts, strict=True)
    ]
    joined = graph.add(Concat(1), *ends, parts[1])
    shuffled = graph.add(Slice(1, 1, 69, 3), joined)
    graph.output(parts[3], graph.add(MaxPool((2, 2), (2, 2)), parts[2]), shuffled)
    mean = graph.add(AveragePool(requantization=Requantization(1, 5)), joined)
    rows = graph.add(Reshape((batch, 69)), mean)
    first = graph.add(Dense(int8(40, 69), None, Requantization(1, 9)), rows)
    second = graph.add(Slice(1, 9, 40), first)
    graph.output(graph.add(Dense(int8(6, 31), None, Requantization(1, 9)), second))
    model = compiled(graph, config)
    assert len(model.programs) == 1


def test_slots_are_used_again():
    graph = Graph()
    x = graph.input("x", (1, 16, 16, 16))
    for _ in range(6):
        x = graph.add(convolution(16, 16, 3, 1), x)
    graph.output(x)
    (program,) = compiled(graph).programs
    assert program.arena_nbytes == 2 * 16 * 16 * 16


def test_equal_layers_share_their_micro_ops():
    """Those whose weights lie in one place: neighbours' lie apart, here in five places in turn."""
    counts = []
    for layers in (5, 8):
        graph = Graph()
        x = graph.input("x", (1, 512, 4, 4))
        for _ in range(layers):
            x = graph.add(convolution(512, 512, 1, 0), x)
        graph.output(x)
        counts.append(len(compiled(graph).programs[0].micro_ops))
    assert counts[1] == counts[0]


def test_what_vta_cannot_is_named_and_runs_on_the_host():
    graph = Graph()
    x = graph.input("x", (1, 16, 6, 6))
    scales = Requantization([40000] * 15 + [50000], 7)
    y = graph.add(Convolution(int8(16, 16, 1, 1), None, scales), x, name="scaled")
    window = {"kernel": (3, 3), "strides": (1, 1), "padding": (3, 1, 0, 1)}
    y = graph.add(AveragePool(**window, exclude_padding=True), y, name="mean")
    y = graph.add(Slice(2, 1, 7), y, name="rows")
    graph.output(graph.add(Multiply(Requantization(1, 7)), y, x, name="product"))
    rows = {row.name: row for row in plan_model(graph, "pynq").rows}
    assert (rows["scaled"].where, rows["scaled"].code, rows["scaled"].reason) == (
        "host",
        "scale",
        "the convolution's scales, up to 390.6, and its weights exceed two digits together",
    )
    assert rows["mean"].code == "window"
    assert "lie entirely in the padding" in rows["mean"].reason
    assert rows["product"].code == "extension"
    assert "cannot multiply two tensors" in rows["product"].reason
    assert plan_model(graph, "pynq", capabilities="full").rows[3].where == "vta"
    assert compiled(graph).programs == ()


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("zero", [0, -77])
def test_means_without_their_padding_run_in_parts(zero, free):
    """Nine pools, each with one size of windows; one launch, nothing on the host."""
    graph = Graph()
    x = graph.input("x", (1, 24, 7, 9), zero_point=zero)
    window = {"kernel": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1), "exclude_padding": True}
    ratio = 0.7 if free else 1.0
    pool = AveragePool.from_ratio(ratio, 9, shifts_only=not free, zero_point=5, **window)
    y = graph.add(pool, x)
    graph.output(graph.add(convolution(24, 16, 3, 1), y))
    model = compiled(graph, "pynq_ext" if free else "pynq")
    assert {row.where for row in model.plan} == {"vta"}
    assert len(model.regions) == len(model.stages) == 1
    data = int8(1, 24, 7, 9)
    assert np.array_equal(model.run(data), model.reference(data))


def test_over_a_serial_line_the_host_sends_the_image_instead_of_its_windows():
    graph = Graph()
    x = graph.input("x", (1, 3, 32, 32))
    graph.output(graph.add(convolution(3, 16, 7, padding=3, strides=(2, 2)), x))
    ulx3s = vtaops.HardwareConfig.load("ulx3s")
    sizes = []
    for config in (ulx3s, replace(ulx3s, target="pynq")):
        model = compiled(graph, config)
        data = int8(1, 3, 32, 32)
        assert np.array_equal(model.run(data), model.reference(data))
        (buffer,) = (b for b in model.programs[0].inputs if b.name == "x")
        sizes.append(buffer.nbytes)
    assert sizes == [8 * 32 * 32, 16 * 16 * 8 * -(-3 * 7 * 7 // 8)]


def test_over_a_serial_line_lanes_that_are_not_sent_cost_nothing():
    graph = Graph()
    x = graph.input("x", (1, 1, 32, 32))
    graph.output(graph.add(convolution(1, 16, 4, strides=(2, 2)), x))
    model = compiled(graph, "ulx3s")
    data = int8(1, 1, 32, 32)
    assert np.array_equal(model.run(data), model.reference(data))
    (buffer,) = (b for b in model.programs[0].inputs if b.name == "x")
    assert buffer.nbytes == 8 * 32 * 32  # an eighth is sent; of four columns, half


def test_what_fits_no_scratchpad_runs_on_the_host():
    graph = Graph()
    x = graph.input("x", (1, 16, 16, 16))
    graph.output(graph.add(MaxPool((16, 16), (1, 1)), x))
    (row,) = compiled(graph, "tiny").plan
    assert row.where == "host"
    assert "fits the scratchpads" in row.reason


def test_what_no_image_lists_runs_on_the_host():
    graph = Graph()
    x = graph.input("x", (1, 16, 1 << 20, 3))
    graph.output(graph.add(MaxPool((2, 2), (2, 2)), x))
    (row,) = plan_model(graph, "tiny").rows
    assert row.where == "host"
    assert row.reason == "x has an axis of 1,048,576; an image's are at most 262,144"


def test_what_needs_too_many_zero_weights_runs_on_the_host():
    graph = Graph()
    x = graph.input("x", (1, 1 << 16, 2, 2))
    graph.output(graph.add(Upsample((2, 2)), x, name="large"))
    (row,) = plan_model(graph, "tiny").rows
    assert (row.where, row.code) == ("host", "scratchpad")
    assert row.reason.startswith("the upsample takes 65,536 x 65,536 weights of 2 x 2 on VTA")


@pytest.mark.parametrize(("zero", "result"), [(0, 0), (-128, -128), (-37, 90)])
@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_a_mean_needs_one_tile_of_weights(zero, result, ratio):
    """Zero points and scales of the mean change nothing about that."""
    graph = Graph("mean")
    x = graph.input("x", (1, 40, 13, 12), zero_point=zero)
    pool = AveragePool.from_ratio(ratio, 156, shifts_only=True, zero_point=result)
    graph.output(graph.add(pool, x))
    model = compiled(graph)
    assert [row.where for row in model.plan] == ["vta"]
    assert model.report().weights_nbytes <= vtaops.HardwareConfig.load("pynq").wgt.element_bytes


def test_a_depthwise_block_runs_together_where_that_pays():
    """The images that its steps hand on are alive at one time; before and behind, others follow."""
    graph = Graph("blocks")
    x = graph.add(
        convolution(3, 16, 3, padding=1, strides=(2, 2)), graph.input("x", (1, 3, 56, 56))
    )
    y = graph.add(convolution(16, 96), x)
    y = graph.add(convolution(1, 96, 3, padding=1, groups=96), y)
    graph.output(graph.add(convolution(96, 16), y))
    program = compiled(graph, "pynq_ext").programs[0]
    assert max(len(record.spans) for record in program.operators) > 10


GATED = [
    ((1, 40, 14, 14), (0, 0), (1, 40, 1, 1)),
    ((1, 20, 7, 9), (3, -128), (1, 20, 1, 1)),
    ((2, 16, 5, 5), (-5, 9), (2, 16, 1, 1)),
    ((1, 20, 7, 9), (-5, 9), (1, 20, 7, 9)),
]


@pytest.mark.parametrize(("image", "zeros", "gate"), GATED)
@pytest.mark.parametrize("config", ["pynq_ext", "pynq"])
def test_products_with_gates_run_on_vta(config, image, zeros, gate):
    """One value for each channel times images, whatever the zero points of both are."""
    graph = Graph()
    x = graph.input("x", image, zero_point=zeros[0])
    y = graph.input("y", gate, zero_point=zeros[1])
    scaling = Requantization(1, 7) if config == "pynq" else Requantization(40000, 22, 5)
    graph.output(graph.add(Multiply(scaling), x, y))
    model = vtaops.compile_model(graph, config, capabilities="full")
    assert [row.where for row in model.plan] == ["vta"]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs]
    np.testing.assert_array_equal(model.run(*arrays), model.reference(*arrays))
    assert not model.prove().unproven


@pytest.mark.parametrize("other", [(2, 20, 7, 9), (2, 20, 1, 1)])
@pytest.mark.parametrize("function", ["maximum", "minimum"])
@pytest.mark.parametrize("config", ["pynq_ext", "pynq"])
def test_extrema_of_two_tensors_run_on_vta(config, function, other):
    """They need no extension, whatever the zero point of both is."""
    graph = Graph()
    x = graph.input("x", (2, 20, 7, 9), zero_point=-77)
    y = graph.input("y", other, zero_point=-77)
    graph.output(graph.add(Extremum(function), x, y))
    model = vtaops.compile_model(graph, config)
    assert [row.where for row in model.plan] == ["vta"]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs]
    np.testing.assert_array_equal(model.run(*arrays), getattr(np, function)(*arrays))
    assert not model.prove().unproven


@pytest.mark.parametrize("config", ["pynq", "pynq_ext"])
def test_means_of_large_images_are_summed_by_rows(config):
    graph = Graph()
    x = graph.input("x", (1, 20, 56, 96), zero_point=3)
    pool = AveragePool.from_ratio(1.0, 56 * 96, shifts_only=config == "pynq")
    graph.output(graph.add(pool, x))
    model = vtaops.compile_model(graph, config)
    assert [row.where for row in model.plan] == ["vta"]
    data = np.random.default_rng(0).integers(-128, 128, x.shape).astype(np.int8)
    np.testing.assert_array_equal(model.run(data), model.reference(data))
    assert not model.prove().unproven


def test_elementwise_refuses_constants_and_channels_that_have_no_place():
    with pytest.raises(ShapeError, match="data_offset of add is 3; it must be 0"):
        Elementwise(function="add", shape=(4, 4), data_offset=3)
    with pytest.raises(ShapeError, match=r"other_offset of multiply is 40000; it must lie in"):
        Elementwise(function="multiply", shape=(4, 4), other_offset=40000)
    for function, shape in (("multiply", (4, 4)), ("add", (1, 4, 4, 4)), ("sub", (1, 4, 4, 4))):
        with pytest.raises(ShapeError, match="needs images and one of multiply"):
            Elementwise(function=function, shape=shape, by_channel=True)


def test_a_chain_without_enough_rows_of_parameters_runs_in_sequence(monkeypatch):
    """Estimates of chains do not count the rows of POST that their tiles need."""
    emit, refused = fragments.emit_operator, []

    def full(op, *given, rows, **named):
        if rows < POST_ROWS:
            refused.append(op)
            raise ScheduleError("too many rows")
        return emit(op, *given, rows=rows, **named)

    monkeypatch.setattr(fragments, "emit_operator", full)
    b, data = Builder(), images(shape=(32, 28, 28))
    wide = b.conv(b.input([1, 32, 28, 28]), 32, 192, 1, relu=True)
    b.output(b.conv(b.conv(wide, 192, 192, group=192, relu=True), 192, 32, 1))
    file = vtaops.quantize(b.model(), {"x": data}, scales="free")
    model = vtaops.compile_model(file, "pynq_ext")
    assert refused
    assert np.array_equal(model.run(data[:1]), evaluate(model.graph, data[:1])[0])


@pytest.mark.parametrize("shape", [(1, 3, 6, 8), (2, 1, 1, 8), (2, 4, 8)])
def test_dense_layers_multiply_the_last_axis_of_any_rank(shape):
    graph = Graph("rank")
    weight = np.random.default_rng(0).integers(-128, 128, (5, 8)).astype(np.int8)
    layer = Dense(weight, requantization=Requantization(1, 8))
    graph.output(graph.add(layer, graph.input("x", shape)))
    data = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
    model = vtaops.compile_model(graph, "tiny")
    np.testing.assert_array_equal(model.run(data), model.reference(data))
