"""Networks and parts of them as ONNX models: for the host, and for `vtaops.quantize`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.frontends.inference import node_proto
from vtaops.frontends.values import OnnxNetwork, Value, reached
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
    needed = _needed(inputs, outputs)
    constants = filter(_is_constant, needed)
    nodes = dict.fromkeys(v.node for v in network.values if v in needed and not _is_constant(v))
    graph = helper.make_graph(
        [node_proto(node, [r.name for r in node.results]) for node in nodes],
        "part",
        [_described(value) for value in inputs],
        [_described(value) for value in outputs],
        [from_array(np.asarray(each.array, order="C"), each.name) for each in constants],
    )
    imports = [helper.make_opsetid("", network.opset)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    return model


def _needed(inputs: Sequence[Value], outputs: Sequence[Value]) -> dict[Value, None]:
    """Return the values between, with the outputs and constants."""
    given = {*inputs}
    found = reached(outputs, lambda v: [] if v in given or _is_constant(v) else v.reads)
    return dict.fromkeys(value for value in found if value not in given)


def _is_constant(value: Value) -> bool:
    """Return whether a value is written as a constant; of weights, so are their integers."""
    return value.fixed and value.op != "DequantizeLinear" and value.array is not None


def _described(value: Value) -> ValueInfoProto:
    helper = require("onnx").helper
    if not value.dtype:
        raise UnsupportedError(f"{value.name!r}, which {value.label} computes, is not a tensor")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    described: ValueInfoProto = helper.make_tensor_value_info(value.name, kind, value.shape)
    return described
