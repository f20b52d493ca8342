"""Read ONNX models: float ones, those with pairs, and those with operators on integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.frontends import composites, qoperators
from vtaops.frontends.constants import number
from vtaops.frontends.floats import MASKING
from vtaops.frontends.inference import PAIRED, UNKNOWN, dtype_of, type_of
from vtaops.frontends.values import OPSET, NetworkBuilder, OnnxNetwork, OnnxNode, Parts, Value
from vtaops.graph import onnx_files
from vtaops.graph.onnx_files import ModelProto, NodeProto


def read_onnx(
    source: str | Path | ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> OnnxNetwork:
    """Read an ONNX model.

    Parameters
    ----------
    source
        Path of a file, or the model.
    shapes
        Shapes of inputs with symbolic dimensions; a batch is 1 if it is not given.

    Raises
    ------
    ModelError
        If the file is missing or malformed, or a shape is not static.
    UnsupportedError
        If an operator belongs to none of ONNX's domains, or trains.
    """
    model = onnx_files.opened(source, shapes)
    composites.place_in_domains(model)
    return _Reader(onnx_files.checked(model)).network()


_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError)


class _Reader:
    """The values of a model by the names of its tensors.

    Attributes
    ----------
    kept_names
        Tensors that need their names: outputs of the model, and what subgraphs read.
    read_names
        Outputs of the model, and arguments of nodes.
    """

    def __init__(self, model: ModelProto) -> None:
        own = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
        self.builder = NetworkBuilder(own[0] if own else OPSET)
        self._graph = model.graph
        self._values: dict[str, Value] = {}
        outputs = {value.name for value in self._graph.output}
        self.kept_names = outputs.union(*map(onnx_files.read_outside, self._graph.node))
        self.read_names = outputs.union(*(node.input for node in self._graph.node))
        known = (*self._graph.value_info, *self._graph.output)
        self._declared = {value.name: type_of(value.type) for value in known}
        for value in self._graph.input:
            shape, dtype = type_of(value.type)
            self._values[value.name] = self.builder.input(value.name, shape or (), dtype)
        for name, array in onnx_files.initializers(model).items():
            self._values.setdefault(name, self.builder.constant(array, name))

    def network(self) -> OnnxNetwork:
        return self.builder.network(self._outputs(self._graph))

    def _outputs(self, graph: Any) -> list[Value]:
        for node in graph.node:
            self._read(node)
        return [self._values[value.name] for value in graph.output]

    def _read(self, node: NodeProto) -> None:
        """Read a node by its rule, or as it is."""
        label = f"{node.op_type} {node.name or next(iter(node.output), '')!r}"
        with raising(ModelError, f"{label} is malformed", *_MALFORMED):
            args = [self._values[name] if name else None for name in node.input]
            attrs = {name: _text(value) for name, value in onnx_files.attributes(node).items()}
            operator = OnnxNode(node.op_type, args, attrs, [*node.output], label)
            self._values |= zip(node.output, self._results(node, operator), strict=False)

    def _results(self, node: NodeProto, operator: OnnxNode) -> Sequence[Value]:
        parts = Parts(self.builder, operator)
        if operator.op in qoperators.RULES:
            return [qoperators.RULES[operator.op](parts)]
        if composites.is_composite(node):
            return composites.add_composite(parts)
        if node.domain not in ("", "ai.onnx") and operator.op not in PAIRED:
            raise UnsupportedError(
                f"{operator.label} is {node.domain}.{operator.op}, an operator outside ONNX that "
                "vtaops does not know"
            )
        outside = onnx_files.read_outside(node)
        captured = [self._values[name] for name in outside if name in self._values]
        return RULES.get(operator.op, _Reader.add)(self, replace(operator, captured=captured))

    def branch(self, graph: Any) -> list[Value]:
        """Read the nodes of a subgraph that is always run, and return its outputs."""
        for tensor in graph.initializer:
            array = onnx_files.require("onnx").numpy_helper.to_array(tensor)
            self._values[tensor.name] = self.builder.constant(array, tensor.name)
        self.read_names.update(v.name for v in graph.output)
        self.read_names.update(*(node.input for node in graph.node))
        return self._outputs(graph)

    def add(self, operator: OnnxNode) -> list[Value]:
        """Add an operator; what ONNX cannot infer is what the file states."""
        results = self.builder.add_node(operator)
        for value in results:
            shape, dtype = self._declared.get(value.name, UNKNOWN)
            value.shape = shape if value.shape is None else value.shape
            value.dtype = value.dtype or dtype
        return results


Rule = Callable[[_Reader, OnnxNode], Sequence[Value]]
"""Returns the results of an operator."""


def _alias(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    """Pass the input on, unless the result needs its name."""
    data = operator.reads[0]
    if operator.name in reader.kept_names:
        same = replace(operator, op="Identity", args=[data], attrs={}, names=operator.names[:1])
        return reader.add(same)
    return [data]


def _dropout(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    training = operator.argument(2)
    if training is not None and (training.array is None or training.array.any()):
        raise _training(operator)
    if not reader.read_names.isdisjoint(operator.names[1:]):
        return reader.add(operator)
    return _alias(reader, operator)


def _batch_norm(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    if operator.attrs.get("training_mode"):
        raise _training(operator)
    return reader.add(operator)


def _training(operator: OnnxNode) -> UnsupportedError:
    return UnsupportedError(
        f"{operator.label} trains; vtaops runs networks that are trained: export it in evaluation "
        "mode"
    )


def _shape(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    """Read the shape of a tensor as a constant, if it is static."""
    data = operator.reads[0]
    if data.shape is None:
        return reader.add(operator)
    part = slice(operator.attrs.get("start"), operator.attrs.get("end"))
    return [reader.builder.constant(np.array(data.shape, np.int64)[part], operator.name)]


def _folded(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    """Read an operator of any number of tensors as operators of two."""
    kind, parts = {"Sum": "Add"}.get(operator.op, operator.op), Parts(reader.builder, operator)
    total, *rest = operator.reads
    if not rest:
        return _alias(reader, operator)
    names = [f":{number}" for number in range(len(rest) - 1)]
    for right, name in zip(rest, [*names, ""], strict=True):
        total = parts.add(kind, total, right, part=name)
    return [total]


def _if(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    """Read the branch that is always taken; both if data decide."""
    condition = operator.reads[0].array
    if condition is None:
        return reader.add(operator)
    return reader.branch(operator.attrs["then_branch" if condition.item() else "else_branch"])


def _cast_like(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    """Cast to a type that is known, so that a constant stays one."""
    data, like = operator.reads
    if not like.dtype:
        return reader.add(operator)
    kind = onnx_files.require("onnx").helper.np_dtype_to_tensor_dtype(np.dtype(like.dtype))
    return _cast(reader, replace(operator, op="Cast", args=[data], attrs={"to": kind}))


def _cast(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    if operator.reads[0].dtype == dtype_of(operator.attrs["to"]):
        return _alias(reader, operator)
    return reader.add(operator)


def _softmax(reader: _Reader, operator: OnnxNode) -> Sequence[Value]:
    """Read a softmax of logits of which some are replaced by a number far below as one of a sum."""
    logits, builder = operator.reads[0], reader.builder
    kept = _kept(logits)
    if kept is None:
        return reader.add(operator)
    counted, *choice = logits.reads
    parts = (0.0 if each is kept else np.finfo(np.float32).min for each in choice)
    numbers = [builder.constant(np.array([part], logits.dtype), "mask") for part in parts]
    mask = builder.add("Where", counted, *numbers, name="mask", label=logits.label)
    total = builder.add("Add", kept, mask, name=logits.name, label=logits.label)
    return reader.add(replace(operator, args=[total]))


def _kept(logits: Value) -> Value | None:
    """Return what a number far below replaces in parts; None if it is not so."""
    if logits.op != "Where" or logits.fixed:
        return None
    kept = [each for each in logits.reads[1:] if (number(each) or 0.0) > MASKING]
    return kept[0] if len(kept) == 1 and kept[0].shape == logits.shape else None


RULES: dict[str, Rule] = {
    "Identity": _alias,
    "Dropout": _dropout,
    "BatchNormalization": _batch_norm,
    "Shape": _shape,
    "Sum": _folded,
    "Max": _folded,
    "Min": _folded,
    "Cast": _cast,
    "CastLike": _cast_like,
    "If": _if,
    "Softmax": _softmax,
}
"""How operators are read that are not taken as they are."""


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_text(one) for one in value] if isinstance(value, list) else value
