"""Read ONNX models from files, check them and make their shapes static.

Provides what every reader of a model needs first, and common queries of a graph.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.files import NETWORK, exists, open_file, read_file, reason_of
from vtaops.base.optional import optional
from vtaops.base.shapes import Array, ceil_div
from vtaops.graph.requantization import along

if TYPE_CHECKING:
    import onnx as onnx
    from onnx import ModelProto as ModelProto
    from onnx import NodeProto as NodeProto
    from onnx import ValueInfoProto as ValueInfoProto
else:

    class _Onnx:
        """The package `onnx`, which boards lack: imported when something of it is used."""

        def __getattr__(self, name: str) -> Any:
            return getattr(require("onnx"), name)

    onnx = _Onnx()
    ModelProto = NodeProto = ValueInfoProto = Any

OLDEST = 7
"""Oldest opset that is read, as by ONNX Runtime: before, PReLU and others broadcast otherwise."""
OPSET = 13
"""Oldest opset with per-channel scales; older models are converted to it."""

_TYPES = (
    *("FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL"),
    *("FLOAT16", "DOUBLE", "UINT32", "UINT64", "BFLOAT16"),
)
"""Data types that the readers accept; some are rejected later with a specific reason."""

_NIBBLES = {"INT4": "INT8", "UINT4": "UINT8"}
"""What holds the same numbers, of those that weights may have before a DequantizeLinear."""

Arrays = dict[str, Array]


def opened(
    source: str | Path | ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> ModelProto:
    """Read a model and give every input a static shape; it stays in its own opset, unchecked.

    Parameters
    ----------
    source
        Path of an ONNX file, or the model itself (which is copied and not changed).
    shapes
        Shapes of inputs with symbolic dimensions. A symbolic first dimension that is not given here
        is the batch and becomes 1.

    Raises
    ------
    ModelError
        If the file does not exist or is not an ONNX model, external weights cannot be read, a shape
        stays symbolic, or a name in `shapes` is not an input.
    UnsupportedError
        If the model has unsupported types.
    """
    path = None if isinstance(source, onnx.ModelProto) else Path(source)
    model: ModelProto = deepcopy(source) if path is None else read(path)
    _read_external_data(model, path)
    _widen_weights(model)
    make_static(model, shapes or {})
    _list_inputs_only(model)
    return model


def read(path: Path) -> ModelProto:
    """Return the unmodified model in a file, without external weights.

    Raises
    ------
    ModelError
        If the file does not exist or is not an ONNX model.
    """
    model = onnx.ModelProto()
    if not exists(path):
        raise ModelError(f"model file {path} does not exist")
    with raising(ModelError, f"{path} is not an ONNX model", Exception, describe=reason_of):
        model.ParseFromString(read_file(path, NETWORK))
    if not model.graph.node:
        raise ModelError(f"{path} is not an ONNX model: its graph has no nodes")
    return model


def checked(model: ModelProto) -> ModelProto:
    """Return a valid model with inferred shapes, in an opset that vtaops reads.

    Raises
    ------
    ModelError
        If the model is invalid.
    UnsupportedError
        If its opset is older than `OLDEST`.
    """
    own = (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    version = min(own, default=OPSET)
    with raising(ModelError, "not a valid ONNX model", Exception, describe=first_line):
        onnx.checker.check_model(model)
        if version < OLDEST:
            raise UnsupportedError(
                f"the model is of ONNX's opset {version}; vtaops and ONNX Runtime read {OLDEST} "
                "and newer ones: export it again"
            )
        if version < OPSET and any(node.op_type == "Hardmax" for node in model.graph.node):
            raise UnsupportedError(
                f"Hardmax of opset {version} takes several axes as one, which ONNX's converter "
                f"does not know: export the model with opset {OPSET} or a newer one"
            )
        if version < OPSET:
            _drop_unread_pads(model)
            model = onnx.version_converter.convert_version(model, OPSET)
        _store_constants(model)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _drop_unread_pads(model: ModelProto) -> None:
    """Remove the number of pads that repeat the border, which ONNX's converter leaves behind."""
    for node in model.graph.node:
        if node.op_type == "Pad" and attributes(node).get("mode", b"constant") != b"constant":
            refill(node.attribute, (each for each in node.attribute if each.name != "value"))


def require(package: str) -> Any:
    """Import `onnx`, `onnxruntime` or `tflite`, which boards lack, or say how to install it."""
    name = package.split(".")[0]
    return optional(package, name, "model files need", name)


def make_static(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Replace symbolic dimensions of the inputs in place (see `opened`)."""
    for value in model.graph.input:
        if not value.type.tensor_type.elem_type:
            raise UnsupportedError(f"input {value.name!r} is not a tensor")
    inputs = {value.name: value for value in graph_inputs(model)}
    if unknown := sorted(set(shapes) - set(inputs)):
        raise ModelError(f"unknown input {unknown[0]!r}; the model's inputs: {', '.join(inputs)}")
    for name, value in inputs.items():
        dims = value.type.tensor_type.shape.dim
        if (shape := shapes.get(name)) is not None:
            _set_dims(name, dims, shape)
        _fix_dims(name, value)
    # Inner shapes written by the exporter may still be symbolic; inference replaces them.
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_value < 0:
                dim.Clear()


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that are not weights (old models list weights among their inputs)."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def input_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the static shapes of the inputs by name."""
    return tensor_shapes(graph_inputs(model))


def tensor_shapes(values: Iterable[ValueInfoProto]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors by name; 0 for an unknown extent, which some files call -1."""
    return {
        value.name: tuple(max(dim.dim_value, 0) for dim in value.type.tensor_type.shape.dim)
        for value in values
    }


def input_dtypes(model: ModelProto) -> dict[str, np.dtype[Any]]:
    """Return the dtypes of the inputs by name."""
    return {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in graph_inputs(model)
    }


def initializers(model: ModelProto) -> Arrays:
    """Return the constant tensors of the graph by name.

    Raises
    ------
    ModelError
        If the data of a tensor do not match its shape.
    """
    return {tensor.name: _array_of(tensor) for tensor in model.graph.initializer}


def _array_of(tensor: Any) -> Array:
    text = f"the tensor {tensor.name!r} is malformed"
    with raising(ModelError, text, TypeError, ValueError, NotImplementedError):
        array: Array = onnx.numpy_helper.to_array(tensor)
    return array


def replace_initializer(model: ModelProto, name: str, value: Array) -> None:
    """Set the value of a constant tensor, adding it to the graph if necessary."""
    tensor = onnx.numpy_helper.from_array(np.asarray(value, order="C"), name)
    for old in model.graph.initializer:
        if old.name == name:
            old.CopyFrom(tensor)
            return
    model.graph.initializer.append(tensor)


def consumers(model: ModelProto) -> dict[str, list[NodeProto]]:
    """Return the nodes that read each tensor, also within their subgraphs."""
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in read_by(node):
            readers.setdefault(name, []).append(node)
    return readers


def producers(model: ModelProto) -> dict[str, NodeProto]:
    """Return the node that writes each tensor."""
    return {name: node for node in model.graph.node for name in node.output}


def inferred_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a model, as ONNX infers them."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    return tensor_shapes((*graph.input, *graph.value_info, *graph.output))


def needed(nodes: Sequence[NodeProto], names: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that compute some tensors, in order."""
    read, kept = {*names}, list[NodeProto]()
    for node in reversed(nodes):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update(read_by(node))
    return kept[::-1]


class Connections:
    """The connections between the nodes of a graph.

    Attributes
    ----------
    constants : dict of str to ndarray
        The constant tensors.
    readers : dict of str to list of NodeProto
        The nodes that read each tensor.
    writers : dict of str to NodeProto
        The node that writes each tensor.
    outputs : set of str
        The outputs of the model.
    """

    def __init__(self, model: ModelProto) -> None:
        self.constants = initializers(model)
        self.readers = consumers(model)
        self.writers = producers(model)
        self.outputs = {value.name for value in model.graph.output}

    def only_reader(self, name: str) -> NodeProto | None:
        """Return the only node that reads a tensor; None if there are more or it is an output."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def chain(self, name: str, *kinds: str) -> list[NodeProto] | None:
        """Return the node that writes a tensor, the node that writes its input, and so on.

        None if they are not of these kinds, or one of their results has another reader.
        """
        nodes: list[NodeProto] = []
        for kind in kinds:
            node = self.writers.get(name)
            if node is None or node.op_type != kind or self.only_reader(name) is None:
                return None
            nodes.append(node)
            name = node.input[0]
        return nodes


def attributes(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node as Python values."""
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def along_axis(node: NodeProto, values: Array, rank: int) -> Array:
    """Return parameters of a quantisation in a shape that broadcasts to a tensor of that rank."""
    return along(attributes(node).get("axis", 1), rank, values.squeeze())


def dequantized(node: NodeProto, constants: Mapping[str, Array]) -> Array:
    """Return the real numbers of the constant that a DequantizeLinear reads, as float64."""
    data, scale, *zeros = (constants[name].astype(np.float64) for name in node.input if name)
    real = data - along_axis(node, zeros[0], data.ndim) if zeros else data
    return real * along_axis(node, scale, data.ndim)


def make_node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> NodeProto:
    """Return a node; attributes that are None are omitted."""
    return onnx.helper.make_node(kind, [*inputs], [*outputs], **attrs)


def refill(field: Any, entries: Iterable[Any]) -> None:
    """Replace the entries of a repeated field of a protocol buffer."""
    kept = list(entries)
    del field[:]
    field.extend(kept)


def additions(node: NodeProto) -> list[NodeProto]:
    """Return a Sum of several tensors as additions of two."""
    first, *terms = node.input
    parts = (f"{node.output[0]}_part{number}" for number in range(len(terms) - 1))
    totals = [first, *parts, node.output[0]]
    pairs = zip(totals, terms, strict=False)
    return [make_node("Add", pair, [total]) for pair, total in zip(pairs, totals[1:], strict=False)]


def float_tensors(model: ModelProto) -> list[str]:
    """Return the float32 tensors that nodes of the graph write, in order."""
    floats = {
        value.name
        for value in (*model.graph.value_info, *model.graph.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    return [name for node in model.graph.node for name in node.output if name in floats]


def _read_external_data(model: ModelProto, path: Path | None) -> None:
    """Read weights from files beside the model into it; raises ModelError if it is in none.

    Only regular files in the model's folder are read, and only as many bytes as the shapes require,
    so that a model of a hundred bytes cannot load a neighbouring file of a gigabyte.
    """
    budget = NETWORK
    for tensor in filter(onnx.external_data_helper.uses_external_data, tensors(model)):
        if path is None:
            raise ModelError(
                f"the tensor {tensor.name!r} lies in another file: give the path of the model, or "
                "read its weights with onnx.load_external_data_for_model first"
            )
        what = f"{path}: cannot read the tensor {tensor.name!r} from its file"
        with raising(ModelError, what, OSError, ValueError, KeyError, describe=reason_of):
            nbytes = _nbytes(tensor)
            budget -= nbytes
            if budget < 0:
                raise ValueError(f"the weights have more than {NETWORK} bytes")
            tensor.raw_data = _external_bytes(tensor, path.parent.resolve(), nbytes)
        del tensor.external_data[:]
        tensor.ClearField("data_location")


def _external_bytes(tensor: Any, folder: Path, nbytes: int) -> bytes:
    """Return the bytes of a tensor that are in a file of the model's folder."""
    where = {entry.key: entry.value for entry in tensor.external_data}
    location, offset = where.get("location", ""), int(where.get("offset", 0))
    length = int(where.get("length", nbytes))
    file = folder / location
    if Path(os.path.realpath(file)) != file or folder not in file.parents:
        raise ValueError(f"{location!r} must name a file in the model's folder, without links")
    if length != nbytes:
        raise ValueError(f"it has {length} bytes there; its type and shape say {nbytes}")
    with open_file(file) as opened:
        size = os.fstat(opened.fileno()).st_size
        if not 0 <= offset <= size - nbytes:
            raise ValueError(f"{location!r} has {size} bytes, not {nbytes} from {offset} on")
        opened.seek(offset)
        return opened.read(nbytes)


def _nbytes(tensor: Any) -> int:
    """Return the size of a tensor in bytes according to its type and shape."""
    if tensor.data_type == tensor.STRING or any(size < 0 for size in tensor.dims):
        raise ValueError(f"its type is {tensor.data_type}, its shape {tuple(tensor.dims)}")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = math.prod(map(int, tensor.dims))
    narrow = tensor.DataType.Name(tensor.data_type) in _NIBBLES
    return ceil_div(count, 2) if narrow else count * int(dtype.itemsize)


def _widen_weights(model: ModelProto) -> None:
    """Store weights of four bits, and their zero points, in a byte each; refuse other such tensors.

    A zero point of four bits would say where else values are clipped, too. Refuse tensors of types
    that are not read.
    """
    read = consumers(model)
    types, weights = onnx.TensorProto.DataType, {tensor.name for tensor in model.graph.initializer}
    for tensor in tensors(model):
        code = tensor.data_type
        kind = types.Name(code) if code in types.values() else "unknown"
        if kind in _TYPES:
            continue
        if kind not in _NIBBLES:
            raise UnsupportedError(
                f"tensor {tensor.name!r} has the data type {code} ({kind}); "
                f"vtaops reads {', '.join(_TYPES)}"
            )
        kinds = {node.op_type for node in read.get(tensor.name, [])}
        if tensor.name not in weights or kinds != {"DequantizeLinear"}:
            raise UnsupportedError(
                f"tensor {tensor.name!r} has four bits; vtaops reads such where DequantizeLinear "
                f"alone reads them, not in {', '.join(sorted(kinds)) or 'an attribute'}"
            )
        values = _array_of(tensor).astype(_NIBBLES[kind].lower())
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def tensors(message: Any) -> Iterator[Any]:
    """Yield all tensors of a message, at any depth."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from tensors(part)


def _list_inputs_only(model: ModelProto) -> None:
    """Remove weights from the inputs, where old models list them so that they are not constants."""
    refill(model.graph.input, graph_inputs(model))
    model.ir_version = max(model.ir_version, 8)


def rename_inner(node: NodeProto, renamed: Mapping[str, str]) -> None:
    """Rename tensors in the subgraphs of a node."""
    for graph in subgraphs(node):
        for inner in graph.node:
            for names in (inner.input, inner.output):
                names[:] = [renamed.get(name, name) for name in names]
            rename_inner(inner, renamed)
        for value in graph.output:
            value.name = renamed.get(value.name, value.name)


def subgraphs(node: NodeProto) -> list[Any]:
    """Return the graphs that a node holds, as branches or the body of a loop."""
    return [graph for a in node.attribute for graph in ([a.g] if a.HasField("g") else a.graphs)]


def read_by(node: NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, its subgraphs included."""
    yield from filter(None, node.input)
    yield from read_outside(node)


def read_outside(node: NodeProto) -> Iterator[str]:
    """Yield the tensors that the subgraphs of a node read from outside."""
    for graph in subgraphs(node):
        inside = {tensor.name for tensor in (*graph.input, *graph.initializer)}
        for inner in graph.node:
            yield from (name for name in read_by(inner) if name not in inside)
            inside |= set(inner.output)
        yield from ({value.name for value in graph.output} - inside)


def _store_constants(model: ModelProto) -> None:
    """Make initializers of Constant nodes, which exporters and ONNX's converter write as well."""
    outputs = {value.name for value in model.graph.output}
    kept = []
    for node in model.graph.node:
        value = attributes(node).get("value") if node.op_type == "Constant" else None
        if isinstance(value, onnx.TensorProto) and outputs.isdisjoint(node.output):
            value.name = node.output[0]
            model.graph.initializer.append(value)
        else:
            kept.append(node)
    refill(model.graph.node, kept)


def _fix_dims(name: str, value: ValueInfoProto) -> None:
    """Set a dynamic batch to 1; reject other dynamic dimensions."""
    dims = value.type.tensor_type.shape.dim
    written = f"({', '.join(str(d.dim_value or d.dim_param or '?') for d in dims)})"
    for axis, dim in enumerate(dims):
        if not dim.HasField("dim_value") or dim.dim_value < 0:
            if axis:
                raise ModelError(
                    f"input {name!r} has the dynamic shape {written}; VTA's programs "
                    f"are compiled for one shape: pass shapes={{{name!r}: (...)}}, on the command "
                    f"line --shapes {name}=...; `vtaops quantize` takes those of its data"
                )
            dim.dim_value = 1


def _set_dims(name: str, dims: Any, given: Sequence[int]) -> None:
    if len(given) != len(dims):
        raise ModelError(f"input {name!r} has {len(dims)} dimensions, not {tuple(given)}")
    for dim, size in zip(dims, given, strict=True):
        if 0 < dim.dim_value != size:  # some exporters write dynamic dimensions as -1
            raise ModelError(f"input {name!r}: {dim.dim_value} is fixed in the model, not {size}")
        if size != int(size) or not 0 <= size < 1 << 31:
            raise ModelError(f"input {name!r}: {size} is no size; sizes are 0 to 2**31 - 1")
        dim.dim_value = int(size)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
