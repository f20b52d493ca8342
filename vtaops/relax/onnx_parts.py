"""Extract parts of an ONNX model for the host as separate models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from vtaops.graph.onnx_files import ModelProto, NodeProto, ValueInfoProto, make_node, require
from vtaops.graph.onnx_function import OnnxFunction
from vtaops.relax.onnx_nodes import OnnxImport, read_by
from vtaops.relax.qoperators import REARRANGED
from vtaops.relax.values import Body, Value


class OnnxParts:
    """Extract parts from a model.

    Parameters
    ----------
    source
        The model in the file.
    model
        The imported model, with float operators between quantize and dequantize.
    found
        Result of the import.
    body
        The values of the result in normal form.
    """

    def __init__(
        self, source: ModelProto, model: ModelProto, found: OnnxImport, body: Body
    ) -> None:
        self._model, self._found = model, found
        own = {n.output[0]: n for n in source.graph.node if n.op_type in REARRANGED}
        self._nodes = [own.get(n.output[0], n) if n.output else n for n in model.graph.node]
        self._writers = {name: node for node in self._nodes for name in node.output}
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self._names = _names(model, found.names, body)
        self._values = {name: value for value, name in self._names.items()}

    def function(
        self, inputs: Sequence[Value], group: Iterable[Value], outputs: Sequence[Value]
    ) -> OnnxFunction | None:
        """Return a function that computes some values of the model.

        Parameters
        ----------
        inputs
            Its inputs; uint8 tensors are int8 less 128, as in the integer graph.
        group
            All values that it computes.
        outputs
            Its results, in order.

        Returns
        -------
        OnnxFunction or None
            None if the file has no tensors for the inputs or outputs of this part.
        """
        ends = [self._names.get(value) for value in (*inputs, *outputs)]
        if None in ends:
            return None
        names = [str(name) for name in ends]
        taken, given = names[: len(inputs)], names[len(inputs) :]
        inside = self._inside(given, set(taken), set(group))
        if inside is None:
            return None
        nodes: list[NodeProto] = []
        ends_before, ends_behind = [], []
        for value, name in zip(inputs, taken, strict=True):
            shifted = _is_shifted(value)
            ends_before.append(_described(value, name, shifted=shifted))
            nodes += _to_uint8(name) if shifted else []
        for value, name in zip(outputs, given, strict=True):
            ends_behind.append(_described(value, name))
        nodes += [node for node in self._nodes if not inside.isdisjoint(node.output)]
        return OnnxFunction(self._assembled(nodes, ends_before, ends_behind, inside))

    def _inside(self, wanted: list[str], given: set[str], group: set[Value]) -> set[str] | None:
        """Return the tensors of a part; None if it would need tensors outside the group."""
        found: set[str] = set()
        left = list(wanted)
        while left:
            name = left.pop()
            if name in found or name in given:
                continue
            found.add(name)
            if name in self._weights or self._found.constant(name) is not None:
                continue
            value = self._values.get(name)
            if name not in self._writers or not (value is None or value.fixed or value in group):
                return None
            left += read_by(self._writers[name])
        return found

    def _assembled(
        self,
        nodes: list[NodeProto],
        inputs: list[ValueInfoProto],
        outputs: list[ValueInfoProto],
        inside: set[str],
    ) -> bytes:
        onnx = require("onnx")
        constants = [self._weights[name] for name in sorted(inside & self._weights.keys())]
        for name in sorted(inside - self._weights.keys()):
            array = self._found.constant(name)
            if array is not None:
                constants.append(onnx.numpy_helper.from_array(array, name))
        made = {tensor.name for tensor in constants}
        kept = [node for node in nodes if not made.issuperset(node.output)]
        graph = onnx.helper.make_graph(kept, "part", inputs, outputs, constants)
        own = [entry for entry in self._model.opset_import if entry.domain in ("", "ai.onnx")]
        model = onnx.helper.make_model(graph, opset_imports=own, ir_version=8)
        data: bytes = model.SerializeToString()
        return data


def _names(model: ModelProto, hints: dict[str, str], body: Body) -> dict[Value, str]:
    """Return the tensor of the file for each value."""
    counts = Counter(value.name for value in body.bindings)
    found = {
        value: hints[value.name]
        for value in body.bindings
        if value.name in hints and counts[value.name] == 1  # TVM's passes may duplicate a name
    }
    inputs = [value.name for value in model.graph.input]
    outputs = [value.name for value in model.graph.output]
    found.update(zip(body.inputs, inputs, strict=True))
    for value, name in zip(body.outputs, outputs, strict=True):
        found.setdefault(value, name)
    return found


def _is_shifted(value: Value) -> bool:
    return value.dtype == "uint8" and value.op != "input"


def _described(value: Value, name: str, *, shifted: bool = False) -> ValueInfoProto:
    helper = require("onnx").helper
    kind = helper.np_dtype_to_tensor_dtype(np.dtype("int8" if shifted else value.dtype))
    name += _SHIFTED * shifted
    described: ValueInfoProto = helper.make_tensor_value_info(name, kind, value.shape)
    return described


_SHIFTED = ":int8"


def _to_uint8(name: str) -> list[NodeProto]:
    types = require("onnx").TensorProto
    raw, wide, sum_, offset = (name + suffix for suffix in (_SHIFTED, ":wide", ":sum", ":offset"))
    return [
        make_node("Cast", [raw], [wide], to=types.INT32),
        make_node("Constant", [], [offset], value_int=128),
        make_node("Cast", [offset], [offset + "32"], to=types.INT32),
        make_node("Add", [wide, offset + "32"], [sum_]),
        make_node("Cast", [sum_], [name], to=types.UINT8),
    ]
