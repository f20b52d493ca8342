"""Networks and parts of them as ONNX models: for the host, and for `vtaops.quantize`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.frontends.inference import node_proto
from vtaops.frontends.values import OnnxNetwork, OnnxNode, Value
from vtaops.graph.onnx_bounds import require_bounded
from vtaops.graph.onnx_files import ModelProto, ValueInfoProto, require
from vtaops.graph.onnx_function import OnnxFunction

IR_VERSION = 10
"""The version of the format that has ONNX's opset 21, the newest that readers write."""


def to_onnx(network: OnnxNetwork) -> ModelProto:
    """Return a network as an ONNX model."""
    return _model(network, network.inputs, network.outputs)


def host_function(
    network: OnnxNetwork, inputs: Sequence[Value], outputs: Sequence[Value]
) -> OnnxFunction:
    """Return a function that computes some values of a network from others.

    Parameters
    ----------
    network
        The network.
    inputs
        Its inputs, in order.
    outputs
        Its results, in order.

    Raises
    ------
    UnsupportedError
        If it may run without end or take too much memory.
    """
    model = _model(network, inputs, outputs)
    require_bounded(model)
    return OnnxFunction(model.SerializeToString())


def _model(
    network: OnnxNetwork,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
) -> ModelProto:
    helper, from_array = require("onnx").helper, require("onnx").numpy_helper.from_array
    inside, constants = _needed(inputs, outputs)
    order = dict.fromkeys(value.node for value in network.values if value.node in inside)
    graph = helper.make_graph(
        [node_proto(node, [r.name for r in node.results]) for node in order if node is not None],
        "part",
        [_described(value) for value in inputs],
        [_described(value) for value in outputs],
        [from_array(np.asarray(each.array, order="C"), each.name) for each in constants],
    )
    imports = [helper.make_opsetid("", network.opset)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    return model


def _needed(
    inputs: Iterable[Value], outputs: Iterable[Value]
) -> tuple[set[OnnxNode], dict[Value, None]]:
    """Return the nodes that compute some values from others, and the constants that they read.

    Weights are no constants, but what dequantises them.
    """
    nodes: set[OnnxNode] = set()
    constants: dict[Value, None] = {}
    known, stack = set(inputs), [value for value in outputs if value not in inputs]
    while stack:
        value = stack.pop()
        if value in known:
            continue
        known.add(value)
        if value.fixed and value.op != "DequantizeLinear" and value.array is not None:
            constants[value] = None
        elif value.node is not None:
            nodes.add(value.node)
            stack += value.node.reads
    return nodes, constants


def _described(value: Value) -> ValueInfoProto:
    helper = require("onnx").helper
    if not value.dtype:
        raise UnsupportedError(f"{value.name!r}, which {value.label} computes, is not a tensor")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    described: ValueInfoProto = helper.make_tensor_value_info(value.name, kind, value.shape)
    return described
