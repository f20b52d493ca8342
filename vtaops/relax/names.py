"""The names that tensors have in an ONNX file, for the tensors of the graph.

TVM's front end gives every value a number. It visits the nodes in the order of the file, so the
quantised tensors follow each other in the module as in the file; where they are not as many, none
has a name.
"""

from __future__ import annotations

from vtaops.quantization.onnx_files import ModelProto, initializers
from vtaops.relax.values import Body, Value


def tensor_names(model: ModelProto, body: Body) -> dict[Value, str]:
    """Return the names of values of the function that was made of an ONNX model.

    The model's quantised tensors lie between pairs; its outputs have names too.
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
