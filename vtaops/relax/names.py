"""Assign the names of tensors in an ONNX file to the tensors of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from vtaops.graph.onnx_files import ModelProto, producers
from vtaops.relax.values import Body, Value


def tensor_names(model: ModelProto, hints: Mapping[str, str], body: Body) -> dict[Value, str]:
    """Return the names of values of the function imported from an ONNX model.

    A quantised tensor has the name of the float tensor that it rounds; outputs get names too.
    `hints` are the tensors of the file by the names of Relax's variables.
    """
    writers = producers(model)
    counts = Counter(value.name for value in body.bindings)
    found = {}
    for value in body.bindings:
        node = writers.get(hints.get(value.name, ""))
        if value.op == "quantize" and not value.fixed and counts[value.name] == 1 and node:
            found[value] = node.input[0]
    outputs = [value.name for value in model.graph.output]
    if len(outputs) == len(body.outputs):
        found.update(zip(body.outputs, outputs, strict=True))
    return found
