"""Channels of a file whose weights are so small that their bias leaves int32."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import vtaops
from vtaops.graph.probe import Probe
from vtaops.network import plan_model


def network(fine, weights):
    """A convolution between pairs, two channels of which have weights with a scale of `fine`."""
    rng, nodes, constants = np.random.default_rng(0), [], []

    def constant(name, value):
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def pair(x, scale, zero):
        grid = [constant(f"{x}_scale", np.float32(scale)), constant(f"{x}_zero", np.int8(zero))]
        nodes.append(helper.make_node("QuantizeLinear", [x, *grid], [f"{x}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{x}_q", *grid], [f"{x}_real"]))
        return f"{x}_real"

    weight = rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8)
    weight[2:4] = weights
    scale = np.full(8, 0.01, np.float32)
    scale[2:4] = fine
    bias = rng.integers(-2000, 2000, 8).astype(np.int32)
    bias[2:4] = 2**31 - 1, -(2**31)
    x = pair("x", 0.02, 0)
    for name, value, steps in (("w", weight, scale), ("b", bias, scale * np.float32(0.02))):
        zeros = np.zeros(8, value.dtype)
        parts = [constant(name, value), constant(f"{name}s", steps), constant(f"{name}z", zeros)]
        nodes.append(helper.make_node("DequantizeLinear", parts, [f"{name}_real"], axis=0))
    nodes.append(helper.make_node("Conv", [x, "w_real", "b_real"], ["y"], pads=[1] * 4))
    result = pair("y", 0.05, 3)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 8, 8])
        for name in ("x", result)
    ]
    graph = helper.make_graph(nodes, "dead", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize(("fine", "weights"), [(1e-10, 0), (1e-10, 90), (2e-8, 0)])
def test_a_channel_that_no_input_changes_is_a_constant(fine, weights):
    """It keeps its value, also one that is several steps (2e-8: the bias is 0.86)."""
    file = network(fine, weights)
    model = vtaops.compile_model(file)
    host = [row.operator for row in model.plan if row.where == "host"]
    assert host == ["quantize", "dequantize"]
    x = np.random.default_rng(1).normal(0, 1, (1, 8, 8, 8)).astype(np.float32)
    (expected,) = Probe(file).run({"x": x}).values()
    found = model.run(x)
    assert np.array_equal(found[:, 2:4], expected[:, 2:4])
    assert np.abs(found - expected).max() < 0.051
    assert (expected[0, 2] == expected[0, 2, 0, 0]).all()
    assert bool(expected[0, 2, 0, 0]) == (fine == 2e-8)


def test_a_channel_that_inputs_change_is_named():
    """Its bias lies at a half of the result's steps, so that its weights decide."""
    fine = 4.5 * 0.05 / (0.02 * (2**31 - 1))
    plan = plan_model(network(fine, 90))
    (row,) = (row for row in plan.rows if "Conv" in row.operator)
    assert row.where == "host"
    assert "in channel 3, beyond int32" in row.reason
