"""Run a network, as readers of files hand it over, in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from vtaops.frontends.inference import node_proto
from vtaops.frontends.values import OnnxNetwork, OnnxNode, Value


def to_onnx(network: OnnxNetwork) -> onnx.ModelProto:
    """Return a network as an ONNX model; names are those of its values."""
    nodes: dict[OnnxNode, None] = {}
    for value in network.values:
        assert value.node is not None
        nodes.setdefault(value.node)
    read = [value for node in nodes for value in node.reads] + [*network.outputs]
    constants = {value.name: value for value in read if value.constant is not None}
    graph = helper.make_graph(
        [node_proto(node, [value.name for value in node.results]) for node in nodes],
        "network",
        [_info(value) for value in network.inputs],
        [_info(value) for value in network.outputs],
        [numpy_helper.from_array(value.constant, name) for name, value in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", network.opset)], ir_version=10
    )
    onnx.checker.check_model(model)
    return model


def _info(value: Value) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)) if value.dtype else None
    return helper.make_tensor_value_info(value.name, kind or TensorProto.UNDEFINED, value.shape)


def runner(network: OnnxNetwork) -> Callable[..., list[np.ndarray]]:
    """Return what runs a network in ONNX Runtime, without any optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(to_onnx(network).SerializeToString(), options)

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        names = [value.name for value in network.inputs]
        return session.run(None, dict(zip(names, arrays, strict=True)))

    return run
