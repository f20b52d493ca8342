"""What ONNX itself says of one node: the shapes and dtypes of its results, or the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import NodeProto, first_line, require

if TYPE_CHECKING:
    from vtaops.frontends.values import OnnxNode, Value

Type = tuple[tuple[int, ...] | None, str]
"""Shape, None if it is unknown, and dtype, empty if it is unknown."""

UNKNOWN: Type = (None, "")

PAIRED = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators that have a zero point."""

_READ = 1024
"""Largest argument whose elements inference gets; shapes and scales are smaller."""


@cache
def _onnx() -> Any:
    """Return the package, looked up once for all nodes."""
    return require("onnx")


def node_proto(node: OnnxNode, outputs: list[str]) -> NodeProto:
    """Return a node for ONNX, with results of these names."""
    helper = _onnx().helper
    names = ["" if value is None else value.name for value in node.args]
    proto: NodeProto = helper.make_node(node.op, names, outputs)
    schema = _schema(node.op, _onnx().defs.onnx_opset_version())
    for name, value in node.attrs.items():
        known = schema.attributes.get(name) if schema else None
        kind = int(known.type) if known else None
        proto.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    return proto


def inferred(node: OnnxNode, count: int, opset: int) -> list[Type]:
    """Return the types of the results of a node.

    Parameters
    ----------
    node
        The node.
    count
        How many results it has.
    opset
        Its opset.

    Raises
    ------
    ModelError
        If ONNX refuses its arguments or attributes, or does not know the operator.
    """
    schema = _schema(node.op.removesuffix("OrEqual"), opset)  # old ones infer nothing themselves
    if schema is None:
        raise ModelError(f"{node.label} is no operator of ONNX's opset {opset}")
    if any(value.dtype == "" for value in node.reads):
        return [UNKNOWN] * count
    if not schema.has_type_and_shape_inference_function:  # a normalisation
        return [(node.reads[0].shape, node.reads[0].dtype)]
    onnx, names = _onnx(), [f"result{number}" for number in range(count)]
    types = {value.name: _type_proto(value) for value in node.reads}
    data = {value.name: array for value in node.reads if (array := _data(value))}
    imports = [onnx.helper.make_opsetid("", opset)]
    with raising(ModelError, f"{node.label} is malformed", Exception, describe=first_line):
        made = onnx.shape_inference.infer_node_outputs(
            schema, node_proto(node, names), types, data, opset_imports=imports, ir_version=10
        )
    return [_without_late_windows(node, *type_of(made.get(name))) for name in names]


def _without_late_windows(node: OnnxNode, shape: tuple[int, ...] | None, dtype: str) -> Type:
    """Return a type without the windows that begin behind an image.

    ONNX counts such where the size of a pool is rounded up; ONNX Runtime leaves them out.
    """
    if shape is None or not node.attrs.get("ceil_mode"):
        return shape, dtype
    image, sides = node.reads[0].shape or shape, len(shape) - 2
    strides = node.attrs.get("strides") or [1] * sides
    pads = node.attrs.get("pads") or [0] * sides
    late = (
        (count - 1) * stride >= size + pad
        for count, stride, size, pad in zip(shape[2:], strides, image[2:], pads, strict=False)
    )
    counts = (count - each for count, each in zip(shape[2:], late, strict=True))
    return (*shape[:2], *counts), dtype


def computed(value: Value) -> Array | None:
    """Return a result of a node whose arguments are all known; None if nobody can tell."""
    results = evaluated(value.node, [argument.array for argument in value.reads])
    return None if results is None else results[value.index]


def evaluated(node: OnnxNode, arrays: Sequence[Array | None]) -> list[Array] | None:
    """Return the results of a node for some arguments, by ONNX's reference implementation.

    None if an argument is not known, or if it has no such operator, or not for these types.
    """
    from onnx.reference import ReferenceEvaluator

    if node.captured or any(array is None for array in arrays):
        return None
    names = [f"result{number}" for number in range(len(node.results))]
    inputs = dict(zip((value.name for value in node.reads), arrays, strict=True))
    try:
        with np.errstate(all="ignore"):  # the reader of a number checks that it is finite
            results = ReferenceEvaluator(node_proto(node, names)).run(None, inputs)
        return [*map(np.asarray, results)]
    except Exception:
        return None


@cache
def dtype_of(kind: int) -> str:
    """Return the NumPy name of an element type of ONNX; empty if it has none."""
    try:
        return str(_onnx().helper.tensor_dtype_to_np_dtype(kind))
    except KeyError:
        return ""


@cache
def _schema(op: str, opset: int) -> Any:
    defs = _onnx().defs
    try:
        return defs.get_schema(op, opset)
    except defs.SchemaError:
        return None


def _type_proto(value: Value) -> Any:
    helper = _onnx().helper
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_type_proto(kind, value.shape)


def _data(value: Value) -> Any:
    """Return the elements of an argument on which the shape of a result may depend; else None."""
    if not value.fixed or value.shape is None or math.prod(value.shape) > _READ:
        return None
    array = value.array
    return None if array is None else _onnx().numpy_helper.from_array(array, value.name)


def type_of(declared: Any) -> Type:
    """Return a type that a file, or ONNX, states."""
    if declared is None or not declared.HasField("tensor_type"):
        return UNKNOWN
    tensor = declared.tensor_type
    static = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
    shape = tuple(dim.dim_value for dim in tensor.shape.dim) if static else None
    return shape, dtype_of(tensor.elem_type)
