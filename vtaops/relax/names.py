"""Assign the names of tensors in an ONNX file to the tensors of a graph.

TVM's front end numbers all values. It visits the nodes in the order of the file, so the quantised
tensors have the same order in module and file. If their numbers differ, no tensor gets a name.
"""

from __future__ import annotations

from vtaops.graph.onnx_files import ModelProto, initializers
from vtaops.relax.values import Body, Value


def tensor_names(model: ModelProto, body: Body) -> dict[Value, str]:
    """Return the names of values of the function imported from an ONNX model.

    The model's quantised tensors must be between quantize and dequantize; outputs get names too.
    """
    constants = initializers(model)
    quantized = [
        node.input[0]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants
    ]
    values = [value for value in body.bindings if value.op == "quantize" and not value.fixed]
    found = dict(zip(values, quantized, strict=True)) if len(values) == len(quantized) else {}
    outputs = [value.name for value in model.graph.output]
    if len(outputs) == len(body.outputs):
        found.update(zip(body.outputs, outputs, strict=True))
    return found
