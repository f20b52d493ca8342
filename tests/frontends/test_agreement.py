"""What the compiler says of a file: right networks agree, and each planted fault is named."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from helpers.qdq_graphs import quantized, random_qdq
from onnx import TensorProto, helper, numpy_helper

import vtaops
from trials.onnx_models import Builder, images, small_network
from trials.random_tflite import random_tflite
from vtaops.base.errors import FileMismatch
from vtaops.frontends import agreement as module
from vtaops.frontends import import_model
from vtaops.frontends.agreement import Compiled, agreement
from vtaops.graph import Graph, operators


def compared(model, graph=None, imported=None, steps=None):
    """Return the comparison of a model with a graph, which replaces the imported one."""
    own = import_model(model) if imported is None else imported
    return agreement(model, Compiled(own, own if graph is None else graph, steps or {}))


@pytest.mark.parametrize("power_of_two", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_random_models_agree(seed, power_of_two):
    model, _ = random_qdq(seed, power_of_two=power_of_two)
    graph = import_model(model)
    found = compared(model, imported=graph)
    assert not found.reason
    assert found.inputs == 2
    roundings = sum(node.op_type == "QuantizeLinear" for node in model.graph.node)
    assert found.tensors > len(graph.outputs)
    assert found.tensors <= roundings + len(graph.outputs)
    assert found.halves + found.scales <= 0.1 * found.values


def network():
    """A network with each operator that a fault below is planted in."""
    b = Builder(3)
    y = b.conv(b.input([2, 8, 6, 6]), 8, 8, relu=True)
    z = b.add("Add", b.conv(y, 8, 8), y)
    z = b.add("Pad", z, b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
    z = b.add("AveragePool", z, kernel_shape=[2, 2], strides=[2, 2])
    z = b.add("LeakyRelu", z, alpha=0.1)
    b.output(b.add("Concat", z, b.add("MaxPool", y, kernel_shape=[3, 3], strides=[1, 1]), axis=1))
    rng = np.random.default_rng(0)
    return quantized(b.model(), images(2, (8, 6, 6)), rng, True)


def other_scale(op):
    return replace(op, requantization=replace(op.requantization, shift=op.requantization.shift + 1))


def other_clip(op):
    return replace(op, requantization=replace(op.requantization, clip=(-128, 127)))


FAULTS = {
    "a lost ReLU": ("convolution", other_clip),
    "a scale of half": ("convolution", other_scale),
    "weights of other channels": ("convolution", lambda op: replace(op, weight=op.weight[::-1])),
    "a factor of a sum": ("add", lambda op: operators.Add((1, op.factors[1]), op.requantization)),
    "a mean of too many": ("average_pool", other_scale),
    "a slope in 64ths": (
        "leakyrelu",
        lambda op: replace(op, table=np.where(np.arange(256) % 9, op.table, op.table ^ 2)),
    ),
    "a border on the other side": ("pad", lambda _: operators.Pad((2, 2, 0, 0))),
}


def planted(graph, kind, change):
    """Return the graph with one operator changed, and the name of its node."""
    node = next(node for node in graph.nodes if node.op.kind == kind)
    return graph.transform(
        lambda to, each: to.clone(each, change(each.op) if each is node else each.op)
    ), node.name


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_import_is_named(fault):
    model = network()
    graph = import_model(model)
    assert not compared(model, imported=graph).reason
    wrong, name = planted(graph, *FAULTS[fault])
    with pytest.raises(FileMismatch, match=f"the file's tensor '{name}_q' is -?[0-9]+ at .*makes"):
        compared(model, imported=wrong)


@pytest.mark.parametrize("steps", [0, 1])
def test_the_graph_of_the_hardware_may_differ_by_what_it_says(steps):
    model = network()
    graph = import_model(model)
    near, name = planted(
        graph, "leakyrelu", lambda op: replace(op, table=np.clip(op.table, -128, 126) + np.int8(1))
    )
    if steps:
        assert compared(model, near, graph, {name: steps}).values
    with pytest.raises(FileMismatch, match=name):
        compared(model, near, graph, {} if steps else {"another": 1})


def test_images_of_a_batch_are_drawn_apart_over_the_range_of_the_input():
    graph = import_model(network())
    drawn, op = [arrays[0] for arrays in module._drawn(graph)], graph.nodes[0].op
    scale, zero = op.scale, op.zero_point
    for first, second in drawn:
        assert np.abs(first - second).mean() > 10 * scale
    low, high = (-128 - zero) * scale, (127 - zero) * scale
    assert drawn[0].min() < low + 3 * scale
    assert drawn[0].max() > high - 3 * scale
    assert all(low <= array.min() and array.max() <= high for array in drawn)


def softmax(opset):
    nodes = [
        helper.make_node(
            "QLinearSoftmax", ["x", "s", "z", "t", "w"], ["y"], domain="com.microsoft",
            opset=opset, axis=2,
        )
    ]  # fmt: skip
    constants = {"s": np.float32(0.1), "z": np.uint8(128), "t": np.float32(1 / 256)}
    graph = helper.make_graph(
        nodes,
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 3, 4, 5])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [2, 3, 4, 5])],
        [
            numpy_helper.from_array(np.asarray(v), k)
            for k, v in (constants | {"w": np.uint8(0)}).items()
        ],
    )
    opsets = [helper.make_opsetid("", max(opset, 11)), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_the_file_runs_in_its_own_opset():
    """A softmax of opset 12 and one of opset 13 are two functions; one graph is not both."""
    old, new = softmax(12), softmax(13)
    graph = import_model(new)
    assert compared(new, imported=graph).values
    with pytest.raises(FileMismatch, match="the file's tensor 'y' is"):
        compared(old, imported=graph)


def test_a_network_of_tflite(tmp_path, monkeypatch):
    pytest.importorskip("ai_edge_litert", reason="the extra litert is not installed")
    path = tmp_path / "random.tflite"
    path.write_bytes(random_tflite(4))
    graph = import_model(path)
    found = compared(path, imported=graph)
    assert found.runtime.startswith("LiteRT")
    assert found.values
    assert not found.halves + found.scales
    wrong, _ = planted(
        graph, next(n.op.kind for n in graph.nodes if "conv" in n.op.kind), other_scale
    )
    with pytest.raises(FileMismatch, match="the file's tensor"):
        compared(path, imported=wrong)
    aborting = tmp_path / "aborting.tflite"
    aborting.write_bytes(random_tflite(64, True))
    assert compared(aborting).reason == "LiteRT cannot run it"
    monkeypatch.setattr(module, "has_litert", lambda: False)
    assert "LiteRT is not installed" in compared(path, imported=graph).reason


def test_what_a_compiled_model_says(tmp_path):
    model = vtaops.quantize(small_network(), {"x": images(4)})
    compiled = vtaops.compile_model(model, prove=False)
    assert compiled.agreement.values > 10_000
    assert "ONNX Runtime" in str(compiled.agreement)
    compiled.save(tmp_path / "network.vtam")
    loaded = vtaops.load_model(tmp_path / "network.vtam")
    assert loaded.agreement == compiled.agreement
    assert loaded.report().file == str(compiled.agreement)
    given = vtaops.compile_model(model, prove=False, check=[{"x": images(1)}])
    assert (given.agreement.inputs, given.agreement.tensors) == (1, compiled.agreement.tensors)
    with pytest.raises(vtaops.errors.ModelError, match="a sample has the inputs"):
        vtaops.compile_model(model, check=[{"y": images(1)}])


def test_what_cannot_be_compared_is_said():
    model = vtaops.quantize(small_network(), {"x": images(4)})
    unchecked = vtaops.compile_model(model, check=False, prove=False)
    assert str(unchecked.agreement) == "not compared with its file: nobody asked for it"
    graph = Graph()
    graph.output(graph.add(operators.MaxPool((2, 2), (2, 2)), graph.input("x", (1, 16, 8, 8))))
    by_hand = vtaops.compile_model(graph, prove=False)
    assert str(by_hand.agreement) == "not compared with its file: it does not come from a file"


def test_inputs_that_cannot_be_drawn_are_said():
    """Axes that are an input: drawn ones make results of other shapes."""
    nodes = [helper.make_node("Unsqueeze", ["x", "axes"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "axes",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("axes", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    assert "drawn ones do not suit it" in compared(model).reason
