"""Import ONNX models through TVM's front end, node by node.

A node that the front end does not support, or whose result it gives no static shape, becomes a call
of a packed function `onnx.KIND`. TVM never runs such a call: it represents the node until the host
part that contains it is extracted from the file (`vtaops.relax.onnx_parts`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Set
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from vtaops.base.errors import UnsupportedError, raising
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import ModelProto, NodeProto, require
from vtaops.relax.messages import last_line
from vtaops.relax.values import FOREIGN

_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Nodes with subgraphs; the host executes them as a whole."""


@dataclass(frozen=True)
class OnnxImport:
    """A Relax module and its relation to the file.

    Attributes
    ----------
    module
        The module as produced by the front end.
    names
        Tensors of the file, by the name of the variable that holds them.
    expressions
        Expressions that represent tensors of the file.
    """

    module: Any
    names: dict[str, str]
    expressions: dict[str, Any]

    def constant(self, name: str) -> Array | None:
        """Return a tensor of the file if it is known without running anything, else None."""
        node = self.expressions.get(name)
        content: Any = getattr(node, "value", None)
        if hasattr(content, "numpy"):
            array: Array = content.numpy()
            return array
        if isinstance(node, relax.ShapeExpr) and all(hasattr(v, "value") for v in node.values):
            return np.array([int(v) for v in node.values], np.int64)
        return None


def import_nodes(model: ModelProto, *, foreign: bool) -> OnnxImport:
    """Convert a model with inferred shapes.

    Parameters
    ----------
    model
        A model with only ONNX's own operators.
    foreign
        Convert nodes that the front end does not support to calls of `onnx.KIND`.

    Raises
    ------
    UnsupportedError
        If the front end cannot read a node, and `foreign` is False.
    """
    logging.getLogger("onnx_frontend").setLevel(logging.ERROR)
    importer = _Importer(model, foreign)
    (opset,) = (e.version for e in model.opset_import if e.domain in ("", "ai.onnx"))
    text = "TVM's front end cannot read this ONNX model"
    with raising(UnsupportedError, text, Exception, told=last_line):
        try:
            module = importer.from_onnx(model.graph, opset)
        except Exception:
            with suppress(Exception):  # TVM leaves a block open and complains at its end
                importer.bb._end_block()
            raise
    return OnnxImport(module, importer.names, importer.expressions)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    """TVM's importer, converting one node at a time."""

    def __init__(self, model: ModelProto, foreign: bool) -> None:
        super().__init__({}, "float32")
        self._foreign = foreign
        self._types = {v.name: v.type for v in (*model.graph.value_info, *model.graph.output)}
        self.names: dict[str, str] = {}

    @property
    def expressions(self) -> dict[str, Any]:
        """Expressions that represent tensors of the file."""
        found: dict[str, Any] = self._nodes
        return found

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Check nothing here, because each node is checked when it is converted."""

    def _construct_nodes(self, graph: Any) -> None:
        for name, node in self._nodes.items():
            if isinstance(node, relax.Var):
                self.names[node.name] = name
        read = {value.name for value in graph.output}.union(*map(read_by, graph.node))
        for node in graph.node:
            if _is_idle(node, read):
                self._nodes[node.output[0]] = self._nodes[node.input[0]]
                continue
            if not self._foreign:
                self._convert(node)
            elif node.op_type in _CONTROL or not self._is_known(node):
                self._call(node)
            else:
                try:
                    self._convert(node)
                except UnsupportedError:
                    self._call(node)
                else:
                    if not all(map(self._is_static, filter(None, node.output))):
                        self._call(node)
            for name in filter(None, node.output):
                self._bind(name)

    def _convert(self, node: NodeProto) -> None:
        amount = node.input[2] if node.op_type == "Pad" and len(node.input) > 2 else ""
        if amount and not hasattr(self._nodes.get(amount), "value"):  # the front end pads with 0
            raise UnsupportedError(f"{node.output[0]!r} is padded by an amount that is computed")
        printed = StringIO()
        try:
            with redirect_stdout(printed):  # contains the operator at which it stops
                super()._construct_nodes(SimpleNamespace(node=[node]))
        except Exception as error:
            raise UnsupportedError(
                f"TVM's front end cannot read this ONNX model at its operator {node.op_type}, "
                f"the node {node.name or node.output[0]!r}: {last_line(error)}"
            ) from error

    def _is_known(self, node: NodeProto) -> bool:
        """Return whether TVM knows the shapes of everything that a node reads."""
        types = (self._nodes[name].ty for name in read_by(node) if name in self._nodes)
        return not any(isinstance(ty, relax.AnyType) for ty in types)

    def _is_static(self, name: str) -> bool:
        """Return whether a result has the shape that ONNX infers, if it infers one."""
        found, wanted = self._nodes[name].ty, self._type(name)
        if not isinstance(found, relax.TensorType):
            return True
        shape = _extents(found)
        return shape is not None and _extents(wanted) in (None, shape)

    def _type(self, name: str) -> Any:
        """Return the type of a tensor inferred by ONNX; a generic one if its shape is unknown."""
        known = self._types.get(name)
        if known is None or not known.tensor_type.HasField("shape"):
            return relax.AnyType()
        dims = known.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims) or not known.tensor_type.elem_type:
            return relax.AnyType()
        kind = require("onnx").helper.tensor_dtype_to_np_dtype(known.tensor_type.elem_type)
        if kind.kind not in "biuf":
            return relax.AnyType()
        return relax.TensorType([int(dim.dim_value) for dim in dims], str(kind))

    def _call(self, node: NodeProto) -> None:
        """Represent a node by a call."""
        read = [self._nodes[name] for name in read_by(node) if name in self._nodes]
        args = [e for e in read if isinstance(e.ty, relax.TensorType | relax.AnyType)]
        types = [self._type(name) for name in node.output]
        whole = types[0] if len(types) == 1 else relax.TupleType(types)
        call = relax.op.call_pure_packed(FOREIGN + node.op_type, *args, ty_args=whole)
        result = self.bb.emit(call)
        for number, name in enumerate(node.output):
            alone = len(types) == 1
            self._nodes[name] = result if alone else relax.TupleGetItem(result, number)

    def _bind(self, name: str) -> None:
        """Bind a result to a variable of its name."""
        node = self._nodes[name]
        if isinstance(node, relax.Call | relax.TupleGetItem):
            node = self.bb.normalize(node)
            if isinstance(node.ty, relax.TensorType | relax.AnyType):
                node = self._nodes[name] = self.bb.emit(node, name_hint=name)
        if isinstance(node, relax.Var):
            self.names.setdefault(node.name, name)


def _is_idle(node: NodeProto, read: Set[str]) -> bool:
    """Return whether a node only passes on its input: a Dropout that does not train."""
    return node.op_type == "Dropout" and len(node.input) < 3 and read.isdisjoint(node.output[1:])


def read_by(node: NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, including those read by its subgraphs."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            yield from _read_outside(
                graph.node, {t.name for t in (*graph.input, *graph.initializer)}
            )


def _read_outside(nodes: Iterable[NodeProto], inside: set[str]) -> Iterator[str]:
    for node in nodes:
        yield from (name for name in read_by(node) if name not in inside)
        inside |= set(node.output)


def _extents(type_: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor type; None if it is not static, or not a tensor type."""
    shape = getattr(type_, "shape", None)
    if shape is None or not all(hasattr(extent, "value") for extent in shape):
        return None
    return tuple(int(extent) for extent in shape)
