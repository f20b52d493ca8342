"""Quantisation: what the QDQ file says, how close it is to float, every mistake of a user."""

import json
import time
import warnings

import numpy as np
import onnx
import pytest
from helpers.qdq_graphs import SHAPE, float_graph
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

import vtaops
from trials.onnx_models import Builder, images, small_network
from trials.random_tflite import reference as tflite_reference
from trials.tflite_models import float_tflite, small_tflite
from vtaops.base.errors import PlacementWarning
from vtaops.cli import app
from vtaops.errors import ModelError
from vtaops.frontends import import_model
from vtaops.graph import LookupTable, evaluate, onnx_files
from vtaops.graph.grid import Grid
from vtaops.graph.probe import Probe, runtime_session
from vtaops.quantization import run_quantization
from vtaops.quantization.activations import functions
from vtaops.quantization.equalize import equalize
from vtaops.quantization.prepare import prepare
from vtaops.quantization.quality import sqnrs
from vtaops.quantization.scales import power_of_two_weight_scale


def scales_of(model):
    constants = onnx_files.initializers(model)
    pairs = ("QuantizeLinear", "DequantizeLinear")
    return [constants[n.input[1]] for n in model.graph.node if n.op_type in pairs]


def run(model, x):
    return Probe(model).run({"x": x})


def difference(model, other, x):
    ours, theirs = run(model, x), run(other, x)
    return max(np.abs(ours[name] - theirs[name]).max() for name in ours)


@pytest.mark.parametrize("zero_points", [False, True])
def test_all_scales_are_powers_of_two(zero_points):
    model = vtaops.quantize(
        small_network(), {"x": images()}, scales="pow2", zero_points=zero_points
    )
    mantissas = np.concatenate([np.frexp(scale)[0].reshape(-1) for scale in scales_of(model)])
    assert len(mantissas) > 20
    assert (mantissas == 0.5).all()
    zeros = [t for n, t in onnx_files.initializers(model).items() if n.endswith("zero_point")]
    assert any(t.any() for t in zeros) == zero_points


def test_free_scales_are_per_channel():
    scales = scales_of(vtaops.quantize(small_network(), {"x": images()}, scales="free"))
    assert {scale.size for scale in scales} > {1, 16}


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({}, 20),
        ({"zero_points": True}, 20),
        ({"equalization": True}, 20),
        ({"bias_correction": True}, 20),
        ({"scales": "free"}, 28),
        ({"scales": "free", "zero_points": False}, 25),
    ],
)
def test_quality_against_float(options, least):
    done = run_quantization(small_network(), {"x": images(8)}, **options)
    quality = done.quality()
    assert quality.outputs[0].sqnr_db > least
    assert quality.outputs[0].top1 == 1
    noise = [layer.sqnr_db for layer in quality.layers]
    assert noise == sorted(noise)
    assert {"Relu", "Concat", "MaxPool"} <= {layer.operator for layer in quality.layers}


SCHEMES = [
    {"scales": scales, "zero_points": zero_points}
    for scales in ("pow2", "free")
    for zero_points in (False, True)
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("seed", range(20, 26))
def test_every_layer_of_a_random_network_is_close_to_float(seed, scheme):
    rng = np.random.default_rng(seed)
    model = float_graph(rng)
    x = rng.standard_normal((4, *SHAPE[1:])).astype(np.float32)
    quality = run_quantization(model, {"x": x}, **scheme).quality()
    assert quality.layers[0].sqnr_db > 20


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("activation", ["Relu", "Clip"])
def test_an_activation_acts_on_a_grid_wider_than_its_range(activation, scheme):
    """What is joined with negative values shares their grid."""
    b = Builder(3)
    x = b.conv(b.input([1, 3, 12, 12]), 3, 8)
    bounds = [b.constant(np.float32(v)) for v in (0, 0.5)] if activation == "Clip" else []
    x = b.add(activation, x, *bounds)
    pooled = b.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    joined = b.add("Concat", pooled, b.conv(x, 8, 8, strides=[2, 2]), axis=1)
    b.output(b.conv(joined, 16, 8))
    quality = run_quantization(b.model(), {"x": images()}, **scheme).quality()
    assert quality.layers[0].sqnr_db > 25


@pytest.mark.parametrize("activation", ["Relu", "Clip"])
def test_an_activation_moves_into_the_parts_of_a_concatenation(activation):
    """There it costs nothing, and each part has a grid of its own (units of ShuffleNet)."""
    b = Builder(4)
    x = b.input([1, 3, 12, 12])
    bounds = [b.constant(np.float32(v)) for v in (-0.25, 0.5)] if activation == "Clip" else []
    joined = b.add("Concat", b.conv(x, 3, 8), b.conv(x, 3, 16), axis=1)
    b.output(b.conv(b.add(activation, joined, *bounds), 24, 8))
    model = b.model()
    prepared = prepare(onnx_files.checked(onnx_files.opened(model)))
    assert difference(model, prepared, images(1)) < 1e-5
    graph = import_model(vtaops.quantize(model, images()))
    kinds = [node.op.kind for node in graph.nodes]
    assert kinds == [
        "quantize",
        "convolution",
        "convolution",
        "concat",
        "convolution",
        "dequantize",
    ]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_what_an_activation_bounds_is_rounded_once(scheme):
    model = vtaops.quantize(small_network(), images(), **scheme)
    writers, readers = onnx_files.producers(model), onnx_files.consumers(model)
    bounded = [node for node in model.graph.node if node.op_type == "Relu"]
    assert [writers[node.input[0]].op_type for node in bounded].count("DequantizeLinear") == 0
    behind = {reader.op_type for node in bounded for reader in readers[node.output[0]]}
    assert (len(bounded), behind) == (5, {"QuantizeLinear"})


def test_tensors_that_only_move_share_their_grid():
    model = vtaops.quantize(small_network(), {"x": images()})
    constants, writers = onnx_files.initializers(model), onnx_files.producers(model)
    concat = next(n for n in model.graph.node if n.op_type == "Concat")
    (after,) = onnx_files.consumers(model)[concat.output[0]]
    parts = [constants[writers[name].input[1]] for name in concat.input]
    assert all(scale == constants[after.input[1]] for scale in parts)


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_residual_joins_the_sum_before_it_is_rounded(scales):
    model = vtaops.quantize(small_network(), images(), scales=scales)
    writers = onnx_files.producers(model)
    add = next(n for n in model.graph.node if n.op_type == "Add")
    assert sorted(writers[name].op_type for name in add.input) == ["Conv", "DequantizeLinear"]


def test_equalisation_keeps_the_function_and_brings_channels_together():
    model = prepare(onnx_files.checked(onnx_files.opened(small_network())))
    _, inner, *_ = (n for n in model.graph.node if n.op_type == "Conv")
    weight = inner.input[1]
    uneven = onnx_files.initializers(model)[weight].copy()
    uneven[::2] *= 100
    onnx_files.replace_initializer(model, weight, uneven)
    block = onnx_files.checked(onnx_files.opened(model))
    samples = [{"x": image[None]} for image in images(4)]
    assert equalize(block, samples) == 15  # all but input and scores: residual, concatenation too
    x = images(1)
    assert difference(model, block, x) <= 1e-3 * np.abs(next(iter(run(model, x).values()))).max()
    name = next(n.output[0] for n in block.graph.node if inner.output[0] in n.input)
    probes = [Probe(each, [name]).run({"x": x})[name] for each in (model, block)]
    before, after = (np.ptp(np.log2(each.max(axis=(0, 2, 3)))) for each in probes)
    assert after < 3 < 6 < before


def test_equalisation_of_a_chain_with_a_depthwise_convolution():
    b = Builder()
    y = b.conv(b.input([1, 3, 8, 8]), 3, 8, relu=True)
    y = b.conv(y, 8, 8, group=8, relu=True)
    b.output(b.conv(y, 8, 4, kernel=1))
    model = b.model()
    name = model.graph.node[2].input[1]
    uneven = onnx_files.initializers(model)[name] * 2.0 ** np.arange(-4, 4).reshape(-1, 1, 1, 1)
    onnx_files.replace_initializer(model, name, uneven.astype(np.float32))
    done = [
        run_quantization(model, {"x": images(4, (3, 8, 8))}, scales="pow2", equalization=wanted)
        for wanted in (False, True)
    ]
    assert done[1].equalized == 4  # two convolutions and what leaves their activations
    noise = [each.quality().outputs[0].sqnr_db for each in done]
    assert noise[1] > noise[0] + 3
    assert difference(done[0].prepared, done[1].prepared, images(1, (3, 8, 8))) < 1e-4


def test_equalised_channels_leave_a_square_one_product():
    """VTA multiplies a tensor with itself; a table for each channel it would not have."""
    b = Builder(5)
    y = b.conv(b.input([1, 3, 8, 8]), 3, 8)
    y = b.conv(b.add("Mul", y, y), 8, 8, kernel=1)
    b.output(b.conv(y, 8, 4, kernel=1))
    given = {"config": "tiny", "equalization": True, "zero_points": False}
    done = run_quantization(b.model(), {"x": images(4, (3, 8, 8))}, **given)
    places = {row.operator: row.where for row in vtaops.compile_model(done.model, "tiny").plan}
    assert places["multiply"] == "vta"


def test_bias_correction_takes_the_mean_error_away():
    model, data = small_network(3), {"x": images(16)}
    plain = run_quantization(model, data, bias_correction=False)
    tensor = next(n for n in plain.prepared.graph.node if n.op_type == "Add").input[0]

    def values(model, name):
        probe = Probe(model, [name])
        return np.stack([probe.run(sample)[name] for sample in plain.samples])

    def mean_error(quantized):
        exact = values(plain.prepared, tensor)
        rounded = values(quantized, tensor)
        return np.abs((exact - rounded).mean(axis=(0, 1, 3, 4))).mean()

    corrected = vtaops.quantize(model, data, bias_correction=True)
    assert mean_error(corrected) < 0.7 * mean_error(plain.model)


def test_rewrites_keep_the_function():
    b = Builder()
    x = b.input([1, 4, 6, 6])
    left, right = b.conv(x, 4, 4), b.conv(x, 4, 4)
    total = b.add("Sum", left, right, x)
    values = [b.rng.uniform(0.5, 1.5, 4).astype(np.float32) for _ in range(4)]
    normed = b.add("BatchNormalization", total, *(b.constant(v) for v in values))
    b.output(b.add("ReduceMean", normed, axes=[2, 3], keepdims=0))
    model = onnx_files.checked(onnx_files.opened(b.model()))
    prepared = prepare(model)
    kinds = {node.op_type for node in prepared.graph.node}
    assert kinds == {"Conv", "Add", "GlobalAveragePool", "Flatten"}
    assert difference(model, prepared, images(1, (4, 6, 6))) < 1e-5


@pytest.mark.parametrize("hidden", [False, True])
def test_what_changes_nothing_is_dropped(hidden):
    """Products with ones, sums with zeros, and a mask that hides nothing, or all."""
    b = Builder()
    x = b.add("Mul", b.input([1, 6, 16]), b.constant(np.ones((1, 6, 1), np.float32)))
    x = b.add("Relu", b.add("Add", b.constant(np.zeros(16, np.float32)), x))
    other = b.constant(np.full((1, 6, 16), 3, np.float32))
    either = (other, x) if not hidden else (x, other)
    b.output(b.add("Relu", b.add("Where", b.constant(np.full((6, 16), hidden)), *either)))
    assert [node.op_type for node in prepare(b.model()).graph.node] == ["Relu", "Relu"]


def test_attention_is_scaled_on_integers():
    """A division of the scores by a constant is a factor of their product, in one launch."""
    b = Builder()
    x = b.input([1, 6, 16])
    query, key, value = (
        b.add("MatMul", x, b.constant(b.rng.normal(size=(16, 16)).astype("f4"))) for _ in range(3)
    )
    scores = b.add("MatMul", query, b.add("Transpose", key, perm=[0, 2, 1]))
    shares = b.add("Softmax", b.add("Div", scores, b.constant(np.float32(32))))
    b.output(b.add("MatMul", shares, value))
    model = vtaops.compile_model(vtaops.quantize(b.model(), images(4, (6, 16))))
    assert [row.operator for row in model.plan if row.where == "host"] == ["quantize", "dequantize"]
    assert len(model.programs) == 1


def test_two_norms_have_a_pair_between_them():
    b = Builder()
    x = b.add("MatMul", b.input([1, 6, 16]), b.constant(b.rng.normal(size=(16, 16)).astype("f4")))
    for _ in range(2):
        x = b.add("LayerNormalization", x, b.constant(np.ones(16, np.float32)))
    b.output(b.add("MatMul", x, b.constant(b.rng.normal(size=(16, 4)).astype("f4"))))
    quantized = vtaops.quantize(b.model(), images(4, (6, 16)), config="pynq_ext")
    where = [row.where for row in vtaops.network.plan_model(quantized, "pynq_ext").rows]
    assert where == ["host", "vta", "vta", "vta", "vta", "host"]


@pytest.mark.parametrize("kept", [0, 1])
def test_a_mean_over_tokens_is_a_global_average(kept):
    b = Builder()
    x = b.input([1, 6, 4])
    b.output(b.add("ReduceMean", x, axes=[-2], keepdims=kept))
    model = onnx_files.checked(onnx_files.opened(b.model()))
    prepared = prepare(model)
    kinds = [node.op_type for node in prepared.graph.node]
    assert kinds == ["Transpose", "GlobalAveragePool", "Transpose" if kept else "Flatten"]
    assert difference(model, prepared, images(1, (6, 4))) < 1e-5


@pytest.mark.parametrize(
    ("mask", "kinds"),
    [
        (np.zeros((5, 5)), ["Softmax"]),
        (np.where(np.tri(5), 0, -3e38), ["Add", "Softmax"]),
        (np.full((5, 5), -np.inf), ["Add", "Softmax", "IsNaN", "Where"]),
    ],
)
def test_a_softmax_needs_no_guard_if_its_mask_leaves_something(mask, kinds):
    b = Builder()
    logits = b.add("Add", b.input([2, 5, 5]), b.constant(mask.astype(np.float32)))
    softmax = b.add("Softmax", logits)
    guarded = b.add("Where", b.add("IsNaN", softmax), b.constant(np.float32(0)), softmax)
    b.output(b.add("Relu", guarded))
    model = onnx_files.checked(onnx_files.opened(b.model()))
    prepared = prepare(model)
    assert [node.op_type for node in prepared.graph.node] == [*kinds, "Relu"]
    assert difference(model, prepared, images(1, (2, 5, 5))[0]) < 1e-6


@pytest.mark.parametrize("zero_point", [-128, -7, 0, 31])
def test_grids_are_recomputed_from_their_range(zero_point):
    from onnxruntime.quantization.quant_utils import compute_scale_zp

    for exponent in (-20, -3, 0, 5):
        grid = Grid(2.0**exponent, zero_point, symmetric=False)
        low, high = (np.float32(v) for v in grid.range)
        zero, scale = compute_scale_zp(low, high, np.int8(-128), np.int8(127))
        assert (scale, zero) == (grid.scale, zero_point)


def test_a_bias_that_the_file_computes_is_not_corrected():
    b = Builder()
    x, bias = b.input([1, 3, 8, 8]), b.input([4], "bias")
    weight = b.constant(b.rng.standard_normal((4, 3, 1, 1)).astype(np.float32))
    b.output(b.add("Conv", x, weight, b.add("Neg", bias)))
    data = {"x": images(4, (3, 8, 8)), "bias": np.zeros((4, 4), np.float32)}
    done = run_quantization(b.model(), data, bias_correction=True)
    assert done.departures == ()


def test_a_large_bias_makes_the_weights_coarser():
    weight = np.full((1, 1), 2.0**-20, np.float32)
    assert power_of_two_weight_scale(weight) == 2.0**-26
    assert power_of_two_weight_scale(weight, least=0.3 * 2.0**-22) == 2.0**-23


@pytest.mark.parametrize("form", ["npz", "folder of npy", "folder of npz", "array", "samples"])
def test_forms_of_calibration_data_give_the_same_model(form, tmp_path):
    data, model = images(4), small_network()
    if form == "npz":
        source = tmp_path / "data.npz"
        np.savez(source, x=data)
    elif form.startswith("folder"):
        source = tmp_path
        for i, image in enumerate(data):
            if form.endswith("npz"):
                np.savez(tmp_path / f"{i}.npz", x=image[None])
            else:
                np.save(tmp_path / f"{i}.npy", image[None])
    else:
        source = data if form == "array" else ({"x": image[None]} for image in data)
    expected = vtaops.quantize(model, {"x": data})
    assert vtaops.quantize(model, source).SerializeToString() == expected.SerializeToString()


def test_a_dimension_of_minus_one_is_dynamic():
    """As Paddle's exporter writes it."""
    model = small_network()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    given = vtaops.quantize(model, images(), shapes={"x": (1, 3, 12, 12)})
    assert given == vtaops.quantize(small_network(), images())
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = -1
    assert given == vtaops.quantize(model, images())


def test_dynamic_dimensions_come_from_the_data():
    b = Builder()
    b.output(b.conv(b.input(["N", 3, "H", "W"]), 3, 4))
    model = vtaops.quantize(b.model(), {"x": images(2, (3, 9, 7))})
    assert onnx_files.input_shapes(model) == {"x": (1, 3, 9, 7)}


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"y": images()}, {}, "names y; the model's inputs are x"),
        ({"x": images(1, (3, 8, 8))}, {}, r"shape \(1, 3, 8, 8\), the model takes \(1, 3, 12, 12"),
        ({"x": images(0)}, {}, "at least one sample"),
        ({"x": images() * np.inf}, {}, "not finite"),
        ("nowhere.npz", {}, "nowhere.npz do not exist"),
        ({"x": images()}, {"scales": "binary"}, "'pow2' or 'free', not 'binary'"),
        ({"x": images()}, {"shapes": {"y": (1,)}}, "unknown input 'y'; the model's inputs: x"),
        ({"x": images()}, {"shapes": {"x": (1, 3, 9, 9)}}, "12 is fixed in the model, not 9"),
    ],
)
def test_calibration_that_does_not_fit(data, options, message):
    with pytest.raises(ModelError, match=message):
        vtaops.quantize(small_network(), data, **options)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint8", "int64"])
def test_calibration_of_any_numbers_is_converted(dtype):
    exact = np.round(images() * 4).astype("int8")  # what all of these types hold
    exact = np.abs(exact) if dtype == "uint8" else exact
    model = vtaops.quantize(small_network(), exact.astype(dtype))
    assert model == vtaops.quantize(small_network(), exact.astype(np.float32))


@pytest.mark.parametrize("dtype", ["object", "complex64", "U3", "datetime64[s]"])
def test_calibration_of_no_numbers_is_refused(dtype):
    with pytest.raises(ModelError, match="not real numbers"):
        vtaops.quantize(small_network(), np.zeros(images().shape, "int64").astype(dtype))


@pytest.mark.parametrize("name", ["data.npy", "data.npz"])
def test_damaged_calibration_files_are_refused(name, tmp_path):
    path = tmp_path / name
    save = np.save if name.endswith("y") else np.savez_compressed
    for arrays in (images(), np.array([{}])):  # the second as a pickle
        save(path, arrays)
        data = path.read_bytes()
        for size in (0, 5, 60, len(data) // 2, len(data) - 1, len(data)):
            path.write_bytes(data[:size])
            if size == len(data) and arrays.dtype != object and name.endswith("y"):
                continue
            with pytest.raises(ModelError):
                vtaops.quantize(small_network(), path)


def test_float_tflite(tmp_path):
    """What is quantised computes what LiteRT does, images NHWC, and runs on plain VTA."""
    path = tmp_path / "model.tflite"
    path.write_bytes(float_tflite())
    data = np.random.default_rng(0).normal(0, 1, (8, 12, 10, 3)).astype(np.float32)
    done = run_quantization(path, data, scales="pow2", zero_points=True)
    session = runtime_session(done.prepared, "ORT_ENABLE_ALL")
    (name,) = (tensor.name for tensor in session.get_inputs())
    (computed,) = session.run(None, {name: data[:1]})
    (expected,) = tflite_reference(path.read_bytes())(data[:1])
    assert np.allclose(computed, expected, rtol=0, atol=1e-6)
    model = vtaops.compile_model(done.model, "pynq")
    assert np.array_equal(model.run(data[:1]), model.reference(data[:1]))
    assert np.abs(model.run(data[:1]) - expected).max() < 0.02
    assert len(model.programs) == 1
    assert {r.operator for r in model.plan if r.where == "host"} <= {
        "transpose", "quantize", "dequantize", "softmax"
    }  # fmt: skip


def test_an_int8_tflite_file_is_quantised_already(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(small_tflite())
    data = np.zeros((8, 12, 10, 3), np.float32)
    with pytest.raises(ModelError, match=r"quantised already.*(Dequantize|Quantize)Linear"):
        run_quantization(path, data)


def test_models_that_cannot_be_quantised(tmp_path):
    data = {"x": images()}
    with pytest.raises(ModelError, match="does not exist"):
        vtaops.quantize(tmp_path / "missing.onnx", data)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(small_network().SerializeToString()[:500])
    with pytest.raises(ModelError, match="is not an ONNX model"):
        vtaops.quantize(broken, data)
    with pytest.raises(ModelError, match="is quantised already: its node 'x::quantized"):
        vtaops.quantize(vtaops.quantize(small_network(), data), data)
    b = Builder()
    b.output(b.conv(b.input(["N", 3, "H", "W"]), 3, 4))
    dynamic = b.model()
    with pytest.raises(ModelError, match=r"dynamic shape \(N, 3, H, W\); VTA"):
        onnx_files.checked(onnx_files.opened(dynamic))


def test_old_models_list_weights_among_their_inputs():
    weight = numpy_helper.from_array(np.ones((2, 3, 1, 1), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1])
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["N", 3, 4, 4]), ("w", [2, 3, 1, 1]), ("y", ["N", 2, 4, 4]))
    ]
    graph = helper.make_graph([node], "old", values[:2], values[2:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)])
    model.ir_version = 3
    loaded = onnx_files.checked(onnx_files.opened(model))
    assert onnx_files.input_shapes(loaded) == {"x": (1, 3, 4, 4)}
    assert loaded.opset_import[0].version == onnx_files.OPSET


def test_command(tmp_path):
    model, data, out = (str(tmp_path / name) for name in ("m.onnx", "data.npz", "m.q.onnx"))
    onnx.save(small_network(), model)
    np.savez(data, x=images())
    arguments = ["quantize", model, "--calibration", data, "-o", out]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert " dB" in shown.output
    as_json = CliRunner().invoke(app, [*arguments, "--scales", "free", "--json"])
    report = json.loads(as_json.stdout)
    assert report["outputs"][0]["top1"] == 1
    assert scales_of(onnx_files.checked(onnx_files.opened(out)))
    failed = CliRunner().invoke(app, ["quantize", model, "--calibration", model, "-o", out])
    assert failed.exit_code == 1
    assert isinstance(failed.exception, ModelError)


def hard_swish(b, y, spelled):
    """Hard-swish and a factor and a term behind it, as one node or as files spell it out."""
    three, six = b.constant(np.float32(3)), b.constant(np.array([6], np.float32))
    top = b.constant(np.float32(6))
    if not spelled:
        y = b.add("HardSwish", y)
    else:
        gate = b.add("Clip", b.add("Add", y, three), b.constant(np.float32(0)), top)
        y = b.add("Div", b.add("Mul", y, gate), six)
    return b.add("Add", b.add("Mul", b.constant(np.array([0.7], np.float32)), y), three)


def mobile(spelled):
    """Convolutions with factors and terms behind them, hard-swish and uneven channels."""
    b = Builder()
    x = b.input([1, 3, 8, 8])
    y = b.conv(x, 3, 8)
    y = b.add("Mul", y, b.constant(2.0 ** np.arange(-4, 4).astype(np.float32).reshape(8, 1, 1)))
    y = b.add("Sub", y, b.constant(np.full((8, 1, 1), 0.25, np.float32)))
    y = b.conv(hard_swish(b, y, spelled), 8, 8, group=8)
    b.output(b.conv(hard_swish(b, y, spelled), 8, 4, kernel=1))
    return b.model()


@pytest.mark.parametrize("spelled", [False, True])
def test_a_function_in_several_nodes_is_rounded_once(spelled):
    data = {"x": images(8, (3, 8, 8))}
    plain, even = (
        run_quantization(
            mobile(spelled), data, scales="pow2", equalization=wanted, zero_points=True
        )
        for wanted in (False, True)
    )
    assert len(functions(even.prepared)) == 2
    kinds = [node.op_type for node in even.prepared.graph.node]
    assert "Sub" not in kinds  # factors and terms behind a convolution are in its weights
    for done in (plain, even):
        network = import_model(done.model)
        tables = [n.op.table for n in network.nodes if isinstance(n.op, LookupTable)]
        assert [table.ndim for table in tables] == [1, 1]
        assert all("convolution" in n.op.kind for n in network.nodes[1:-1:2])
        assert difference(mobile(spelled), done.prepared, images(1, (3, 8, 8))) < 1e-4
        x = images(1, (3, 8, 8), 5)
        (ours,), theirs = evaluate(network, x), next(iter(run(done.model, x).values()))
        scale = network.nodes[-1].inputs[0].scale
        assert np.abs(ours - theirs).max() <= 3 * scale


def test_what_others_read_is_no_inner_tensor_of_a_function():
    b = Builder()
    y = b.conv(b.input([1, 3, 8, 8]), 3, 8)
    squashed = b.add("Sigmoid", y)
    gated = b.add("Mul", y, squashed)
    b.output(b.conv(gated, 8, 4))
    b.output(b.conv(squashed, 8, 4))
    model = prepare(onnx_files.checked(onnx_files.opened(b.model())))
    (function,) = functions(model)  # the product of two tensors stays one
    assert (function.root, function.end, len(function.nodes)) == (y, squashed, 1)


def test_an_input_without_axes():
    b = Builder()
    x, factor = b.input([1, 3, 8, 8]), b.input([], "factor")
    b.output(b.conv(b.add("Mul", b.conv(x, 3, 16), factor), 16, 8))
    data = {"x": images(4, (3, 8, 8)), "factor": np.linspace(1, 2, 4, dtype=np.float32)}
    model = vtaops.compile_model(vtaops.quantize(b.model(), data))
    first = [data["x"][:1], data["factor"][0]]
    np.testing.assert_array_equal(model.run(*first), model.reference(*first))


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_what_is_always_zero_takes_an_ordinary_scale(scales):
    """A residual branch whose last normalisation starts at zero, as networks are initialised."""
    b = Builder(3)
    stem = b.conv(b.input([1, 16, 8, 8]), 16, 16, relu=True)
    zeros = [b.constant(np.zeros(shape, np.float32)) for shape in ((16, 16, 3, 3), (16,))]
    branch = b.add("Conv", b.conv(stem, 16, 16), *zeros, kernel_shape=[3, 3], pads=[1] * 4)
    b.output(b.add("Add", branch, stem))
    data = images(shape=(16, 8, 8))
    file = vtaops.quantize(b.model(), {"x": data}, scales=scales)
    model = vtaops.compile_model(file, "pynq_ext")
    boundary = ["quantize", "dequantize"]
    assert [row.operator for row in model.plan if row.where == "host"] == boundary


@pytest.mark.parametrize("shape", [(8, 16), (4, 16, 6), (1, 16, 4, 4)])
def test_a_batch_norm_of_any_rank_keeps_its_meaning(shape):
    b = Builder(5)
    channels = shape[1]
    parameters = [b.rng.uniform(0.5, 2, channels).astype(np.float32) for _ in range(4)]
    first = b.add("Relu", b.input(list(shape)))
    b.output(b.add("BatchNormalization", first, *map(b.constant, parameters)))
    x = b.rng.standard_normal(shape).astype(np.float32)
    assert difference(b.model(), prepare(b.model()), x) < 1e-5


def test_functions_of_a_long_chain_are_found_in_time():
    """Each walk from an end goes on where the last one stopped: it took minutes for 1,000 nodes."""
    b = Builder(0)
    x = b.conv(b.input([1, 4, 8, 8]), 4, 4)
    for index in range(1500):
        x = b.add("Relu" if index % 500 else "Sigmoid", x)
    b.output(x)
    start = time.process_time()
    found = functions(prepare(b.model()))
    assert time.process_time() - start < 20
    assert [len(function.nodes) for function in found] == [1500]


def test_a_maximum_with_a_number_is_a_clip():
    b = Builder(1)
    x = b.conv(b.input([1, 4, 8, 8]), 4, 8)
    x = b.add("Max", b.constant(np.float32(-0.4)), b.add("LeakyRelu", x, alpha=0.2))
    x = b.add("Min", b.conv(x, 8, 8), b.constant(np.full((1, 1), 0.7, np.float32)))
    b.output(b.conv(x, 8, 4))
    model, data = b.model(), images(4, (4, 8, 8))
    quantized = vtaops.quantize(model, {"x": data})
    assert difference(model, prepare(model), data[:1]) < 1e-5
    assert {"Max", "Min"}.isdisjoint(node.op_type for node in quantized.graph.node)
    assert len(vtaops.compile_model(quantized).programs) == 1


@pytest.mark.parametrize(("scales", "config"), [("free", "pynq_ext"), ("pow2", "pynq")])
@pytest.mark.parametrize("kind", ["Add", "Sub", "Max", "Min"])
def test_what_two_tensors_make_is_computed_on_integers(kind, scales, config):
    b, rng = Builder(3), np.random.default_rng(3)
    shapes = {"a": (1, 8, 5, 5), "b": (1, 8, 5, 5), "c": (1, 8, 1, 1)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = [b.input([*shape], name) for name, shape in shapes.items()]
    b.output(b.add(kind, b.add(kind, *inputs[:2]), inputs[2]))
    quantized = vtaops.quantize(b.model(), arrays, scales=scales)
    model = vtaops.compile_model(quantized, config)
    operator = {"Add": "add", "Sub": "add", "Max": "maximum", "Min": "minimum"}[kind]
    assert [row.operator for row in model.plan if row.where == "vta"].count(operator) == 2
    (exact,), (found,) = (Probe(each).run(arrays).values() for each in (b.model(), quantized))
    assert np.abs(found - exact).max() < np.abs(exact).max() / 25
    np.testing.assert_array_equal(model.run(**arrays), model.reference(**arrays))


def test_subgraphs_read_what_is_quantised():
    b = Builder(2)
    x = b.conv(b.input([1, 4, 8, 8]), 4, 4, relu=True)
    total = b.add("ReduceSum", x, keepdims=0)
    large = b.add("GreaterOrEqual", total, b.constant(np.float32(0)))
    weight = b.constant(np.ones((1, 4, 1, 1), np.float32) / 2)
    make = helper.make_node
    graphs = [
        helper.make_graph(
            [make("Mul" if branch else "Add", [x, weight], [f"inner{branch}"])],
            f"branch{branch}",
            [],
            [helper.make_tensor_value_info(f"inner{branch}", TensorProto.FLOAT, [1, 4, 8, 8])],
        )
        for branch in (0, 1)
    ]
    b.output(b.add("If", large, then_branch=graphs[0], else_branch=graphs[1]))
    model, data = b.model(), images(4, (4, 8, 8))
    quantized = vtaops.quantize(model, {"x": data})
    exact = run(model, data[:1])
    (name,) = exact
    found = vtaops.compile_model(quantized).run(data[:1])
    assert np.abs(found - exact[name]).max() < 0.05 * np.abs(exact[name]).max()


def test_a_node_may_have_the_name_of_an_output():
    b = Builder(3)
    hidden = b.conv(b.input([1, 4, 8, 8]), 4, 4)
    result = b.conv(hidden, 4, 4)
    b.output(result)
    model = b.model()
    model.graph.node[0].name = result
    quantized = vtaops.quantize(model, {"x": images(4, (4, 8, 8))})
    names = [node.name for node in quantized.graph.node]
    assert len(names) == len({*names})
    assert vtaops.compile_model(quantized).run(images(4, (4, 8, 8))[:1]).shape == (1, 4, 8, 8)


def bands_of_sound():
    """Logarithms of mel-like bands of a sound whose low frequencies are far louder."""
    b, rng = Builder(0), np.random.default_rng(1)
    x = b.input([1, 1, 256])
    angles = 2 * np.pi * np.outer(np.arange(16), np.arange(32)) / 32
    waves = [np.float32(wave(angles)[:, None]) for wave in (np.cos, np.sin)]
    parts = [b.add("Conv", x, b.constant(wave), strides=[16]) for wave in waves]
    power = b.add("Add", *(b.add("Mul", part, part) for part in parts))
    bands = np.float32(np.kron(np.eye(8), np.ones((2, 1))))
    y = b.add("MatMul", b.add("Transpose", power, perm=[0, 2, 1]), b.constant(bands))
    y = b.add("Log", b.add("Add", y, b.constant(np.float32(1e-6))))
    b.output(b.conv(b.add("Unsqueeze", y, b.constant(np.array([1]))), 1, 4))
    data = np.cumsum(rng.standard_normal((12, 1, 256)), axis=2).astype(np.float32)
    return b.model(), data - data.mean(axis=2, keepdims=True)


def test_products_that_cost_an_output_stay_float():
    model, data = bands_of_sound()
    with pytest.warns(PlacementWarning, match="stays? float, on the host: an output keeps"):
        quantized = vtaops.quantize(model, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rounded = vtaops.quantize(model, data, float_nodes=())
    sample = {"x": data[:1]}
    exact = Probe(model).run(sample)
    kept, lost = (min(sqnrs([exact], [Probe(m).run(sample)])) for m in (quantized, rounded))
    assert lost < 15 < kept
    assert vtaops.compile_model(quantized).programs
