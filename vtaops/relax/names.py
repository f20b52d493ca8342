"""The names that tensors have in an ONNX file, for the tensors of the graph.

TVM's front end gives every value a number. It visits the nodes in the order of the file, so the
quantised tensors follow each other in the module as in the file; where they are not as many, none
has a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtaops.quantization.onnx_files import initializers
from vtaops.relax.values import Body, Value

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class TensorNames:
    """Names of a file: of the tensors that it quantises, in its order, and of its outputs."""

    quantized: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def of(self, body: Body) -> dict[Value, str]:
        """Return the names of the values of a function that was made of the file."""
        found: dict[Value, str] = {}
        values = [value for value in body.bindings if value.op == "quantize" and not value.fixed]
        for names, named in ((self.quantized, values), (self.outputs, body.outputs)):
            found.update(_pairs(named, names))
        return found


def _pairs(values: Sequence[Value], names: Sequence[str]) -> dict[Value, str]:
    return dict(zip(values, names, strict=True)) if len(values) == len(names) else {}


NO_NAMES = TensorNames()


def tensor_names(model: ModelProto) -> TensorNames:
    """Return the names of an ONNX model whose quantised tensors lie between pairs."""
    constants = initializers(model)
    quantized = (
        node.input[0]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in constants
    )
    return TensorNames(tuple(quantized), tuple(value.name for value in model.graph.output))
