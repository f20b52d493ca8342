"""Every difference from ONNX Runtime has a cause: with powers of two, exact halves."""

import numpy as np
import onnx
import pytest
from helpers.qdq_graphs import quantized, random_qdq
from onnx import TensorProto, helper, numpy_helper

import vtaops
from trials.onnx_models import Builder, images, small_network
from vtaops.frontends import differences, import_model
from vtaops.graph import Host, evaluate
from vtaops.graph.probe import Probe


@pytest.mark.parametrize("power_of_two", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_random_models_differ_for_known_causes_only(seed, power_of_two):
    model, sample = random_qdq(seed, power_of_two=power_of_two)
    layers = differences(model, sample).values()
    values = sum(layer.values for layer in layers)
    assert values > 500
    assert sum(layer.differences for layer in layers) <= 0.1 * values


@pytest.mark.parametrize("seed", [2, 5])
def test_random_models_run_on_vta(seed):
    model, sample = random_qdq(seed, power_of_two=True)
    compiled = vtaops.compile_model(model)
    expected = evaluate(compiled.graph, *sample.values())
    found = compiled.run(*sample.values())
    for one, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert any(row.where == "vta" for row in compiled.plan)


def model_on_uint8(*nodes, shape=(1, 4, 5, 5)):
    """Nodes between a dequantised input x and a rounded output y, of uint8 as they stand."""
    grid = ["scale", "zero"]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", *grid], ["x"]),
        *nodes,
        helper.make_node("QuantizeLinear", ["y", *grid], ["r"]),
    ]
    constants = {"scale": np.float32(1 / 16), "zero": np.uint8(130), "ends": np.array(PADS)}
    graph = helper.make_graph(
        nodes,
        "uint8",
        [helper.make_tensor_value_info("q", TensorProto.UINT8, shape)],
        [onnx.ValueInfoProto(name="r")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


PADS = [0, 0, 1, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("kind", ["Sigmoid", "Pad", "Relu"])
def test_a_model_that_takes_uint8(kind):
    """The host takes it over: a table, for one, has 256 entries for -128..127."""
    model = model_on_uint8(helper.make_node(kind, ["x", "ends"][: 1 + (kind == "Pad")], ["y"]))
    x = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)
    (ours,), (theirs,) = evaluate(import_model(model), x), Probe(model).run({"q": x}).values()
    np.testing.assert_array_equal(ours, theirs)


def test_a_pad_is_an_operator():
    b = Builder()
    y = b.conv(b.input([1, 8, 6, 6]), 8, 8)
    b.output(b.conv(b.add("Pad", y, b.constant(np.array(PADS))), 8, 8))
    data, rng = images(1, (8, 6, 6)), np.random.default_rng(0)
    network = import_model(quantized(b.model(), data, rng, True))
    assert "pad" in [node.op.kind for node in network.nodes]
    assert not any(isinstance(node.op, Host) and "astype" not in node.op.operators
                   for node in network.nodes)  # fmt: skip


@pytest.mark.parametrize("scales", ["pow2", "free"])
def test_a_network_of_our_quantiser(scales):
    model = vtaops.quantize(small_network(), {"x": images(8)}, scales=scales)
    layers = differences(model, {"x": images(1, seed=5)})
    assert {"relu1_0", "relu3_0", "maxpool7_0", "concat12_0", "gemm15_0"} <= set(layers)
    assert (sum(layer.halves for layer in layers.values()) > 0) == (scales == "pow2")


@pytest.mark.parametrize("opset", [10, 11, 12, 13])
def test_files_of_old_opsets(opset):
    """ONNX's converter writes constants as nodes; a zero point may be missing."""
    b = Builder()
    y = b.add("Pad" if opset < 11 else "Relu", b.input([1, 4, 5, 5]), **old_pads(opset))
    for function in ("LeakyRelu", "Dropout"):
        grid = b.constant(np.float32(1 / 16)), b.constant(np.int8(-3))
        y = b.add("DequantizeLinear", b.add("QuantizeLinear", y, *grid), *grid)
        y = b.add(function, y, **({"alpha": 0.2} if function == "LeakyRelu" else {}))
    b.output(b.add("QuantizeLinear", y, b.constant(np.float32(1 / 16))))
    layers = differences(b.model(opset), {"x": images(1, (4, 5, 5))})
    assert len(layers) >= 2
    assert not any(layer.differences for layer in layers.values())


def old_pads(opset):
    return {"pads": PADS} if opset < 11 else {}
