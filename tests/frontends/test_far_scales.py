"""Files whose scales lie far apart, borders, and opsets; `trials far_scales` runs thousands."""

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from onnx import TensorProto, helper, numpy_helper

import vtaops
from trials.far_scales import KINDS, NAMED, Case, judge
from trials.onnx_models import Builder, images
from vtaops.frontends import import_model
from vtaops.graph.probe import Probe


@pytest.mark.parametrize("kind", KINDS)
def test_operators_of_far_scales_are_those_of_onnxruntime(kind):
    seeds = [seed for seed in range(500) if Case.kind_of(seed) == kind][:3]
    for seed in seeds:
        assert not judge(Case(seed)), seed


@pytest.mark.parametrize("kind", NAMED)
def test_gemms_and_bounds_are_those_of_onnxruntime(kind):
    for seed in range(20):
        assert not judge(Case(seed, kind)), seed


@pytest.mark.parametrize(
    ("seed", "kind"),
    [
        (7, "Relu"),
        (42, "Sub"),
        (81, "Add"),
        (13, "Pad"),
        (597, "Residual"),
        (285, "Constant"),
        (400, "Bias"),
    ],
)
def test_files_that_were_wrong_or_refused(seed, kind):
    case = Case(seed)
    assert case.kind == kind
    assert not judge(case, "pynq_ext")


def padded(amount, *, computed=False):
    """A convolution of an image padded by an amount."""
    b = Builder(0)
    y = b.add("Relu", b.input([2, 8, 6, 5]))
    amount = b.constant(np.float32(amount))
    amount = b.add("ReduceMax", b.add("Mul", y, amount), keepdims=0) if computed else amount
    y = b.add("Pad", y, b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])), amount)
    b.output(b.conv(y, 8, 8))
    return b.model()


@pytest.mark.parametrize(("amount", "scales"), [(1, "pow2"), (-1, "free"), (0, "free")])
def test_a_border_of_any_value(amount, scales):
    data = images(8, (8, 6, 5))
    model = vtaops.quantize(padded(amount), {"x": data}, scales=scales)
    image = data[:2]
    expected = Probe(model).run({"x": image})
    found = vtaops.compile_model(model, "pynq_ext").run(image)
    (real,) = expected.values()
    step = real[real > 0].min()
    assert np.abs(found - real).max() <= 1.01 * step
    assert np.abs(found[..., 0, :] - real[..., 0, :]).max() <= 1.01 * step


def test_a_border_that_is_computed_is_on_the_host():
    model = padded(0.5, computed=True)
    x = images(2, (8, 6, 5))
    (ours,) = vtaops.graph.evaluate(import_model(model), x)
    np.testing.assert_allclose(ours, *Probe(model).run({"x": x}).values(), 1e-4, 1e-5)


def between_pairs(node, opset, shape=(2, 4, 4, 6), *, constants=None, domain=""):
    """A node between quantised tensors of uint8."""
    grid, result = ["s", "z"], ["t", "w"]
    quantised = bool(domain)
    nodes = [helper.make_node("QuantizeLinear", ["x", *grid], ["q"])]
    if not quantised:
        nodes.append(helper.make_node("DequantizeLinear", ["q", *grid], ["r"]))
    nodes.append(node)
    if not quantised:
        nodes.append(helper.make_node("QuantizeLinear", ["a", *result], ["b"]))
    nodes.append(helper.make_node("DequantizeLinear", ["b", *result], ["y"]))
    values = {"s": np.float32(0.05), "z": np.uint8(120), "t": np.float32(1 / 32), "w": np.uint8(96)}
    tensors = [
        numpy_helper.from_array(np.asarray(v), k) for k, v in (values | (constants or {})).items()
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape if domain else None)],
        tensors,
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model if domain else onnx.shape_inference.infer_shapes(model)


def check_one(model, shape=(2, 4, 4, 6)):
    x = 4 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (theirs,) = Probe(model).run({"x": x}).values()
    (ours,) = vtaops.graph.evaluate(import_model(model), x)
    assert np.abs(ours - theirs).max() <= 1.01 / 32
    assert np.mean(ours != theirs) < 0.02


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 17])
@pytest.mark.parametrize("axis", [1, 3])
def test_a_quantised_softmax_means_what_its_opset_says(axis, opset):
    node = helper.make_node(
        "QLinearSoftmax", ["q", "s", "z", "t", "w"], ["b"], domain="com.microsoft",
        opset=opset, axis=axis,
    )  # fmt: skip
    check_one(between_pairs(node, opset, domain="com.microsoft"))


PADS = np.array([0, 0, 1, 0, 0, 0, 0, 2])
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
SCALES = np.array([1, 1, 2, 2], np.float32)


def changed(opset):
    """Operators whose meaning, or whose way to say it, changed between opsets: as in that one."""
    ten, new, late = opset < 11, opset >= 13, opset >= 18
    split = {"inputs": ["r", "parts"], "parts": np.array([1, 3])} if new else {"split": [1, 3]}
    where = {"inputs": ["r", "axes"], "axes": np.array([2])} if new else {"axes": [2]}
    mean = {"inputs": ["r", "axes"], "axes": np.array([3, 1])} if late else {"axes": [3, 1]}
    pads = {"pads": PADS.tolist()} if ten else {"inputs": ["r", "pads"], "pads": PADS}
    of_axes = {"inputs": ["r", "pads", "", "axes"], "pads": PADS[[2, 3, 6, 7]]}
    for kind in ("Softmax", "LogSoftmax", "Flatten", *["Hardmax"] * new):
        yield kind, {"axis": 2}
    yield "Softmax", {}  # the last axis, or from the second on
    for kind in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"):
        yield kind, {**mean, "keepdims": 1}
    if late:
        yield "Pad", {**of_axes, "axes": np.array([2, 3])}
        yield "Split", {"axis": 1, "num_outputs": 2, "outputs": ["a", "other"]}
    else:
        yield "Split", {"axis": 1, "outputs": ["a", "other"]}
    yield "Squeeze", {**where, "shape": (2, 4, 1, 6)}
    yield "AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    yield "Clip", {"min": -1.0, "max": 2.0} if ten else {
        "inputs": ["r", "low", "high"], "low": np.float32(-1), "high": np.float32(2)
    }  # fmt: skip
    yield "Pad", pads
    yield "Split", {**split, "axis": 1, "outputs": ["a", "other"]}
    yield "ReduceSum", {**where, "keepdims": 1}
    yield "Unsqueeze", {**where}
    yield "Resize", {
        "inputs": ["r", "f"] if ten else ["r", "roi", "f"], "f": SCALES,
        **({} if ten else {"roi": np.zeros(0, np.float32)}), "mode": "nearest",
        **({} if ten else ASYMMETRIC),
    }  # fmt: skip
    yield "MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    yield "Dropout", {}


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 18, 21])
def test_operators_that_changed_between_opsets(opset):
    for kind, given in changed(opset):
        given = dict(given)
        shape = given.pop("shape", (2, 4, 4, 6))
        inputs, outputs = given.pop("inputs", ["r"]), given.pop("outputs", ["a"])
        constants = {k: given.pop(k) for k in inputs[1:] if k in given}
        node = helper.make_node(kind, inputs, outputs, **given)
        check_one(between_pairs(node, opset, shape, constants=constants), shape)


def test_opsets_that_nothing_runs_are_refused():
    old = onnx.parser.parse_model("""<ir_version: 4, opset_import: ["" : 6]>
        old (float[1, 4, 4, 4] x, float[4] s) => (float[1, 4, 4, 4] y) { y = PRelu(x, s) }""")
    with pytest.raises(vtaops.errors.UnsupportedError, match=r"opset 6; .* read 7 and newer"):
        import_model(old)
