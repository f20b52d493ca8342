"""Read ONNX models: float ones, those with pairs, and those with operators on integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.frontends import qoperators
from vtaops.frontends.inference import dtype_of, type_of
from vtaops.frontends.pairs import add_pair, clipped_integers
from vtaops.frontends.values import OPSET, PAIR, NetworkBuilder, OnnxNetwork, Value
from vtaops.graph import onnx_files
from vtaops.graph.onnx_files import ModelProto, NodeProto

MICROSOFT = "com.microsoft"


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
    return _Reader(onnx_files.load(source, shapes)).network()


class _Reader:
    """The values of a model by the names of its tensors."""

    def __init__(self, model: ModelProto) -> None:
        own = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
        self.builder = NetworkBuilder(own[0] if own else OPSET)
        self._graph = model.graph
        self._values: dict[str, Value] = {}
        self._outputs = {value.name for value in self._graph.output}
        self._read_names = self._outputs.union(*(node.input for node in self._graph.node))
        self._declared = {
            value.name: type_of(value.type)
            for value in (*self._graph.value_info, *self._graph.output)
        }
        for value in self._graph.input:
            shape, dtype = type_of(value.type)
            self._values[value.name] = self.builder.input(value.name, shape or (), dtype)
        for name, array in onnx_files.initializers(model).items():
            self._values.setdefault(name, self.builder.constant(array, name))

    def network(self) -> OnnxNetwork:
        """Return the network."""
        for node in self._graph.node:
            self.read(node)
        return self.builder.network([self._values[value.name] for value in self._graph.output])

    def read(self, node: NodeProto) -> None:
        """Read a node by its rule, or as it is."""
        label = f"{node.op_type} {node.name or next(iter(node.output), '')!r}"
        with raising(ModelError, f"{label} is malformed", IndexError, TypeError, KeyError):
            self._read(node, label)

    def _read(self, node: NodeProto, label: str) -> None:
        attrs = _attributes(node)
        args = [self._values[name] if name else None for name in node.input]
        if node.domain in ("", "ai.onnx") or node.op_type in PAIR:
            rule = RULES.get(node.op_type, _as_it_is)
        else:
            rule = None
        if node.op_type in qoperators.RULES:
            rule = _on_integers
        if rule is None or node.domain not in ("", "ai.onnx", MICROSOFT):
            raise UnsupportedError(
                f"{label} is {node.domain}.{node.op_type}, an operator outside ONNX that vtaops "
                "does not know"
            )
        results = rule(self, node, args, attrs, label)
        for name, value in zip(node.output, results, strict=False):
            self._values[name] = value

    def branch(self, graph: Any) -> list[Value]:
        """Read the nodes of a subgraph that is always run, and return its outputs."""
        for tensor in graph.initializer:
            array = onnx_files.require("onnx").numpy_helper.to_array(tensor)
            self._values[tensor.name] = self.builder.constant(array, tensor.name)
        self._declared |= {value.name: type_of(value.type) for value in graph.value_info}
        self._read_names |= {value.name for value in graph.output}
        self._read_names = self._read_names.union(*(node.input for node in graph.node))
        for node in graph.node:
            self.read(node)
        return [self._values[value.name] for value in graph.output]

    def is_output(self, name: str) -> bool:
        """Return whether a tensor is an output of the model."""
        return name in self._outputs

    def is_read(self, name: str) -> bool:
        """Return whether a tensor is an output of the model, or an argument of a node."""
        return name in self._read_names

    def add(
        self, node: NodeProto, args: Sequence[Value | None], attrs: Mapping[str, Any], label: str
    ) -> list[Value]:
        """Add a node as it is."""
        captured = [self._values[name] for name in _read_outside(node) if name in self._values]
        return self.builder.add_many(
            node.op_type,
            args,
            list(node.output),
            label=label,
            attrs=attrs,
            captured=captured,
            declared=[self._declared.get(name, (None, "")) for name in node.output],
        )


Rule = Callable[[_Reader, NodeProto, list[Value | None], dict[str, Any], str], Sequence[Value]]
"""Returns the results of a node, from its arguments, attributes and label."""


def _as_it_is(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    return reader.add(node, args, attrs, label)


def _on_integers(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    rule = qoperators.RULES[node.op_type]
    return [
        rule(
            reader.builder,
            qoperators.IntegerOperator(node.op_type, args, attrs, label, node.output[0]),
        )
    ]


def _pair(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    return [add_pair(reader.builder, node.op_type, args, attrs, label, node.output[0])]


def _alias(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    """Pass the input on, unless the result is an output of the model."""
    (data, *_) = args
    if data is None or reader.is_output(node.output[0]):
        return [reader.builder.add("Identity", data, name=node.output[0], label=label)]
    return [data]


def _dropout(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    training = args[2] if len(args) > 2 else None
    if training is not None and (training.array is None or training.array.any()):
        raise UnsupportedError(
            f"{label} trains; vtaops runs networks that are trained: export it in evaluation mode"
        )
    if any(map(reader.is_read, node.output[1:])):
        return reader.add(node, args, attrs, label)
    return _alias(reader, node, args, attrs, label)


def _batch_norm(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    if attrs.get("training_mode"):
        raise UnsupportedError(
            f"{label} trains; vtaops runs networks that are trained: export it in evaluation mode"
        )
    return reader.add(node, args, attrs, label)


def _constant(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    ((name, content),) = attrs.items()
    numpy_helper = onnx_files.require("onnx").numpy_helper
    if name == "value":
        array = numpy_helper.to_array(content)
    elif name in _CONSTANTS:
        array = np.array(content, _CONSTANTS[name])
    else:
        raise UnsupportedError(f"{label} is given by {name}; vtaops reads dense numbers")
    return [reader.builder.constant(array, node.output[0])]


_CONSTANTS = {
    "value_float": "float32",
    "value_floats": "float32",
    "value_int": "int64",
    "value_ints": "int64",
}


def _folded(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    """Read an operator of any number of tensors as operators of two."""
    kind = {"Sum": "Add"}.get(node.op_type, node.op_type)
    if len(args) == 1:
        return _alias(reader, node, args, attrs, label)
    left, *rest = args
    for number, right in enumerate(rest):
        name = f"{node.output[0]}:{number}" if right is not rest[-1] else node.output[0]
        left = reader.builder.add(kind, left, right, name=name, label=label)
    return [value for value in [left] if value is not None]


def _if(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    """Read the branch that is always taken; both if data decide."""
    condition = args[0].array if args[0] is not None else None
    if condition is None:
        return reader.add(node, args, attrs, label)
    return reader.branch(attrs["then_branch" if condition.item() else "else_branch"])


def _cast(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    (data,) = args
    if data is not None and data.dtype == dtype_of(attrs["to"]):
        return _alias(reader, node, args, attrs, label)
    return reader.add(node, args, attrs, label)


def _clip(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    """Read a Clip of integers, as Brevitas writes it."""
    found = clipped_integers(reader.builder, args, node.output[0], label)
    return [found] if found is not None else reader.add(node, args, attrs, label)


def _are_pixels(node: NodeProto, axes: Iterable[int] | None, rank: int) -> bool:
    """Return whether a maximum goes over all axes of an image but batch and channels."""
    if node.op_type == "GlobalMaxPool":
        return True
    return axes is not None and sorted(int(axis) % rank for axis in axes) == [*range(2, rank)]


def _maximum(
    reader: _Reader, node: NodeProto, args: list[Value | None], attrs: dict[str, Any], label: str
) -> Sequence[Value]:
    """Read a maximum over all pixels as a MaxPool of the image's size."""
    data, *stated = args
    shape = data.shape if data is not None and data.dtype == "float32" else None
    axes = stated[0].array if stated and stated[0] is not None else attrs.get("axes")
    if shape is None or len(shape) not in (3, 4) or not _are_pixels(node, axes, len(shape)):
        return reader.add(node, args, attrs, label)
    name, builder = node.output[0], reader.builder
    if attrs.get("keepdims", 1):
        return [builder.add("MaxPool", data, name=name, label=label, kernel_shape=shape[2:])]
    pooled = builder.add(
        "MaxPool", data, name=f"{name}:pooled", label=label, kernel_shape=shape[2:]
    )
    kept = builder.constant(np.array(shape[:2], np.int64), f"{name}:shape")
    return [builder.add("Reshape", pooled, kept, name=name, label=label)]


RULES: dict[str, Rule] = {
    "QuantizeLinear": _pair,
    "GlobalMaxPool": _maximum,
    "ReduceMax": _maximum,
    "Clip": _clip,
    "DequantizeLinear": _pair,
    "Identity": _alias,
    "Dropout": _dropout,
    "BatchNormalization": _batch_norm,
    "Constant": _constant,
    "Sum": _folded,
    "Max": _folded,
    "Min": _folded,
    "Cast": _cast,
    "If": _if,
}
"""How operators are read that are not taken as they are."""


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {name: _text(value) for name, value in onnx_files.attributes(node).items()}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_text(one) for one in value] if isinstance(value, list) else value


def _read_outside(node: NodeProto) -> Iterator[str]:
    """Yield the tensors that the subgraphs of a node read from outside."""
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            inside = {tensor.name for tensor in (*graph.input, *graph.initializer)}
            yield from _not_inside(graph.node, inside)
            yield from ({value.name for value in graph.output} - inside)


def _not_inside(nodes: Iterable[NodeProto], inside: set[str]) -> Iterator[str]:
    for node in nodes:
        yield from (name for name in (*node.input, *_read_outside(node)) if name not in inside)
        inside |= set(node.output)
