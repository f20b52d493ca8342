"""TFLite files that are nearly right: valid small ones with a few fields or bytes replaced.

`SCHEMA` is the part of TFLite's schema that matters here. By it a file is read into a document of
dictionaries and lists, the strategy replaces parts, and it becomes a file again. Some files then
get other words (offsets, lengths of vectors), which no writer of FlatBuffers would write.
"""

from __future__ import annotations

import copy
import struct
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite
from flatbuffers import number_types
from flatbuffers.table import Table
from hypothesis import strategies as st

from trials.hostile_onnx import FLOATS, LONGS, use_graph
from trials.tflite_models import Writer, float_tflite, small_tflite
from trials.tflite_operators import cases
from vtaops.errors import ModelError, ShapeError, UnsupportedError
from vtaops.frontends import import_model

SCHEMA: dict[str, dict[str, Any]] = {
    "Model": {
        "version": "Uint32",
        "operator_codes": ["OperatorCode"],
        "subgraphs": ["SubGraph"],
        "description": "string",
        "buffers": ["Buffer"],
    },
    "OperatorCode": {
        "deprecated_builtin_code": "Int8",
        "custom_code": "string",
        "version": "Int32",
        "builtin_code": "Int32",
    },
    "SubGraph": {
        "tensors": ["Tensor"],
        "inputs": ["Int32"],
        "outputs": ["Int32"],
        "operators": ["Operator"],
        "name": "string",
    },
    "Tensor": {
        "shape": ["Int32"],
        "type": "Int8",
        "buffer": "Uint32",
        "name": "string",
        "quantization": "QuantizationParameters",
        "is_variable": "Bool",
        "sparsity": "SparsityParameters",
        "shape_signature": ["Int32"],
        "has_rank": "Bool",
    },
    "QuantizationParameters": {
        "min": ["Float32"],
        "max": ["Float32"],
        "scale": ["Float32"],
        "zero_point": ["Int64"],
        "details_type": "Uint8",
        "details": "Nothing",
        "quantized_dimension": "Int32",
    },
    "SparsityParameters": {"traversal_order": ["Int32"], "block_map": ["Int32"]},
    "Nothing": {},
    "Operator": {
        "opcode_index": "Uint32",
        "inputs": ["Int32"],
        "outputs": ["Int32"],
        "builtin_options_type": "Uint8",
        "builtin_options": "union",
        "custom_options": "bytes",
    },
    "Buffer": {"data": "bytes", "offset": "Uint64", "size": "Uint64"},
    "Conv2DOptions": {
        "padding": "Int8",
        "stride_w": "Int32",
        "stride_h": "Int32",
        "activation": "Int8",
        "dilation_w": "Int32",
        "dilation_h": "Int32",
    },
    "DepthwiseConv2DOptions": {
        "padding": "Int8",
        "stride_w": "Int32",
        "stride_h": "Int32",
        "depth_multiplier": "Int32",
        "activation": "Int8",
        "dilation_w": "Int32",
        "dilation_h": "Int32",
    },
    "Pool2DOptions": {
        "padding": "Int8",
        "stride_w": "Int32",
        "stride_h": "Int32",
        "filter_width": "Int32",
        "filter_height": "Int32",
        "activation": "Int8",
    },
    "ConcatenationOptions": {"axis": "Int32", "activation": "Int8"},
    "ReducerOptions": {"keep_dims": "Bool"},
    "ReshapeOptions": {"new_shape": ["Int32"]},
    "FullyConnectedOptions": {
        "activation": "Int8",
        "weights_format": "Int8",
        "keep_num_dims": "Bool",
    },
    "SoftmaxOptions": {"beta": "Float32"},
    "LeakyReluOptions": {"alpha": "Float32"},
    "TransposeConvOptions": {"padding": "Int8", "stride_w": "Int32", "stride_h": "Int32"},
    "ResizeBilinearOptions": {"align_corners": "Bool", "half_pixel_centers": "Bool"},
    **{f"{name}Options": {"activation": "Int8"} for name in ("Add", "Sub", "Mul", "Div", "L2Norm")},
    "ResizeNearestNeighborOptions": {"align_corners": "Bool", "half_pixel_centers": "Bool"},
    "StridedSliceOptions": {
        **{f"{name}_mask": "Int32" for name in ("begin", "end", "ellipsis", "new_axis", "shrink")},
        "offset": "Bool",
    },
    "PackOptions": {"values_count": "Int32", "axis": "Int32"},
    "UnpackOptions": {"num": "Int32", "axis": "Int32"},
    "SplitOptions": {"num_splits": "Int32"},
    "SplitVOptions": {"num_splits": "Int32"},
    "GatherOptions": {"axis": "Int32", "batch_dims": "Int32"},
    "SqueezeOptions": {"squeeze_dims": ["Int32"]},
    "MirrorPadOptions": {"mode": "Int8"},
    "BatchMatMulOptions": {"adj_x": "Bool", "adj_y": "Bool"},
    "DepthToSpaceOptions": {"block_size": "Int32"},
    "SpaceToDepthOptions": {"block_size": "Int32"},
    "GeluOptions": {"approximate": "Bool"},
    "CumsumOptions": {"exclusive": "Bool", "reverse": "Bool"},
    "ArgMaxOptions": {"output_type": "Int8"},
    "CastOptions": {"in_data_type": "Int8", "out_data_type": "Int8"},
    "ShapeOptions": {"out_type": "Int8"},
}
"""Tables by name: their fields in the order of the schema. A list is a vector; "union" is the table
that the field before says."""

_UNIONS = {
    number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)
}
SCHEMA |= {name: {} for name in _UNIONS.values() if name not in SCHEMA}


# ------------------------------------------------------------------------------- documents


def decoded(data: bytes) -> dict[str, Any]:
    """Return a valid file as a document."""
    (start,) = struct.unpack_from("<I", data)
    return _table(Table(bytearray(data), start), "Model")


def _table(table: Table, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for slot, (field, kind) in enumerate(SCHEMA[name].items()):
        offset = table.Offset(4 + 2 * slot)
        if offset:
            if kind == "union":
                kind = _UNIONS[found["builtin_options_type"]]
            found[field] = _value(table, table.Pos + offset, offset, kind)
    return found


def _value(table: Table, place: int, offset: int, kind: Any) -> Any:
    if isinstance(kind, list):
        start, count = table.Vector(offset), table.VectorLen(offset)
        if kind[0] in SCHEMA:
            places = [table.Indirect(start + 4 * index) for index in range(count)]
            return [_table(Table(table.Bytes, at), kind[0]) for at in places]
        flags = getattr(number_types, f"{kind[0]}Flags")
        width = flags.bytewidth
        return [table.Get(flags, start + width * index) for index in range(count)]
    if kind == "string":
        return table.String(place).decode()
    if kind == "bytes":
        start = table.Vector(offset)
        return bytes(table.Bytes[start : start + table.VectorLen(offset)])
    if kind in SCHEMA:
        return _table(Table(table.Bytes, table.Indirect(place)), kind)
    return table.Get(getattr(number_types, f"{kind}Flags"), place)


def encoded(document: dict[str, Any]) -> bytes:
    """Return a document as a file; what has another type than its field is left out."""
    builder = flatbuffers.Builder(1 << 14)
    builder.Finish(_write(builder, document, "Model"), b"TFL3")
    return bytes(builder.Output())


def _write(builder: flatbuffers.Builder, document: Any, name: str) -> int:
    """Write a table; return its offset."""
    fields = document if isinstance(document, dict) else {}
    made: list[tuple[int, str, Any]] = []
    for slot, (field, kind) in enumerate(SCHEMA[name].items()):
        value = fields.get(field)
        if value is None:
            continue
        if kind == "union":
            kind = _UNIONS.get(fields.get("builtin_options_type"), "Nothing")
        if isinstance(kind, str) and hasattr(number_types, f"{kind}Flags"):
            made.append((slot, kind, _number(value, kind)))
        else:
            made.append((slot, "UOffsetT", _part(builder, value, kind)))
    builder.StartObject(len(SCHEMA[name]))
    for slot, kind, value in made:
        if kind == "UOffsetT":
            builder.PrependUOffsetTRelative(value)
        else:
            builder.Prepend(getattr(number_types, f"{kind}Flags"), value)
        builder.Slot(slot)
    return int(builder.EndObject())


def _part(builder: flatbuffers.Builder, value: Any, kind: Any) -> int:
    """Write what lies outside of the table that names it; return its offset."""
    if not isinstance(kind, list):
        if kind == "string":
            return int(builder.CreateString(str(value)))
        if kind == "bytes":
            return int(builder.CreateByteVector(value if isinstance(value, bytes) else b""))
        return _write(builder, value, kind)
    (kind,) = kind
    values = value if isinstance(value, list) else []
    if kind in SCHEMA:
        offsets = [_write(builder, item, kind) for item in values]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    numbers = [_number(item, kind) for item in values]
    return int(builder.CreateNumpyVector(np.array(numbers, kind.lower())))


def _number(value: Any, kind: str) -> Any:
    """Return a number as a field can hold it: integers modulo their width."""
    if kind == "Float32":
        return float(np.float32(value)) if isinstance(value, int | float) else 0.0
    if kind == "Bool" or not isinstance(value, int):
        return bool(value) if kind == "Bool" else 0
    width = 8 * int(getattr(number_types, f"{kind}Flags").bytewidth)
    value &= (1 << width) - 1
    return value - (1 << width) if kind.startswith("I") and value >> (width - 1) else value


# ------------------------------------------------------------------------------ mutations


def _elements() -> bytes:
    """Return operators on elements, a resize, a turned convolution, a softmax."""
    w = Writer(7)
    x = w.tensor((1, 4, 6, 8), "int8", 0.05, 3)

    def next_(name: str, shape: tuple[int, ...], *others: int, **options: Any) -> int:
        y = w.tensor(shape, "int8", 0.0625, -5)
        w.operator(name, [last[0], *others], [y], **options)
        last[0] = y
        return y

    last = [x]
    next_("MUL", (1, 4, 6, 8), x, FusedActivationFunction=0)
    next_("LOGISTIC", (1, 4, 6, 8))
    next_("SUB", (1, 4, 6, 8), x, FusedActivationFunction=1)
    next_("LEAKY_RELU", (1, 4, 6, 8), Alpha=0.125)
    size = w.constant([8, 12])
    next_("RESIZE_BILINEAR", (1, 8, 12, 8), size, AlignCorners=False, HalfPixelCenters=True)
    next_("TANH", (1, 8, 12, 8))
    next_("MAXIMUM", (1, 8, 12, 8), last[0])
    shape = w.constant([1, 768])
    next_("RESHAPE", (1, 768), shape)
    scores = next_("SOFTMAX", (1, 768), Beta=1.0)
    return w.finish([x], [scores])


@cache
def documents() -> tuple[dict[str, Any], ...]:
    """Return valid models."""
    one_operator = [case.file(kind) for case, kind in zip(cases(), cycle(KINDS), strict=False)]
    whole = small_tflite(), small_tflite(pad=True), small_tflite("float32"), float_tflite()
    return tuple(map(decoded, (*whole, _elements(), *one_operator)))


KINDS = ("int8", "float32", "uint8", "int8")


def places(value: Any, table: str = "Model") -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield every field and element: its name with that of its table, owner, key and type."""
    for field, kind in SCHEMA[table].items():
        if field not in value:
            continue
        if kind == "union":
            kind = _UNIONS.get(value.get("builtin_options_type"), "Nothing")
        yield f"{table}.{field}", value, field, kind
        inner = value[field]
        if isinstance(kind, list) and isinstance(inner, list):
            for index, item in enumerate(inner):
                yield f"{table}.{field}[]", inner, index, kind[0]
                if isinstance(item, dict):
                    yield from places(item, kind[0])
        elif isinstance(inner, dict):
            yield from places(inner, kind)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Return a file with up to three of its parts replaced, removed, doubled or added."""
    document = copy.deepcopy(draw(st.deferred(lambda: st.sampled_from(documents()))))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        if draw(st.booleans()):
            _replace(draw, document)
            continue
        groups: dict[str, list[tuple[str, Any, Any, Any]]] = {}
        for place in places(document):
            groups.setdefault(place[0], []).append(place)
        _mutate(draw, *draw(st.sampled_from(groups[draw(st.sampled_from(sorted(groups)))])))
    data = encoded(document)
    return _damaged(draw, data) if draw(st.integers(0, 7)) == 0 else data


def _replace(draw: st.DrawFn, document: dict[str, Any]) -> None:
    """Replace a part by one that is right for itself: an operator, operand, shape, grid, type."""
    graphs = document.get("subgraphs")
    if not isinstance(graphs, list) or not graphs or not isinstance(graphs[0], dict):
        return
    tensors, operators = (
        [item for item in graphs[0].get(key) or [] if isinstance(item, dict)]
        for key in ("tensors", "operators")
    )
    codes = [c for c in document.get("operator_codes") or [] if isinstance(c, dict)]
    known = st.sampled_from(sorted(tflite_operators()))
    match draw(st.integers(0, 6)):
        case 0 if codes:
            number = draw(known)
            draw(st.sampled_from(codes)).update(
                deprecated_builtin_code=min(number, 127), builtin_code=number
            )
        case 1 if operators:
            operands = draw(st.sampled_from(operators)).get(draw(st.sampled_from(_OPERANDS)))
            if operands:
                index = draw(st.integers(0, len(operands) - 1))
                operands[index] = draw(st.integers(-1, len(tensors)))
        case 2 if tensors:
            sizes = st.lists(st.sampled_from([-1, 0, 1, 1, 2, 3, 4, 5, 8, 24]), max_size=5)
            draw(st.sampled_from(tensors))["shape"] = draw(sizes)
        case 3 if tensors:
            draw(st.sampled_from(tensors))["type"] = draw(st.integers(0, 18))
        case 4 if tensors:
            count = draw(st.sampled_from([0, 1, 1, 2, 16]))
            numbers = st.sampled_from([0.0, 0.05, 0.05, 0.05, 0.5, *FLOATS])
            zeros = st.sampled_from([0, 0, 1, -128, 127, 128, -129, *LONGS])
            draw(st.sampled_from(tensors))["quantization"] = {
                "scale": draw(st.lists(numbers, min_size=count, max_size=count)),
                "zero_point": draw(st.lists(zeros, min_size=count, max_size=count)),
                "quantized_dimension": draw(st.sampled_from([0, 0, 1, 3, *LONGS])),
            }
        case 5 if operators:
            operators[:] = draw(st.permutations(operators))
            graphs[0]["operators"] = operators
        case _ if tensors:  # another tensor's numbers
            one, other = (draw(st.sampled_from(tensors)) for _ in range(2))
            one["buffer"] = other.get("buffer", 0)


_OPERANDS = ("inputs", "inputs", "outputs")


def tflite_operators() -> tuple[int, ...]:
    """Return the numbers of all operators of TFLite."""
    return tuple(v for v in vars(tflite.BuiltinOperator).values() if isinstance(v, int))


def _mutate(draw: st.DrawFn, name: str, owner: Any, key: Any, kind: Any) -> None:
    """Remove, double or replace a field or an element."""
    match draw(st.integers(0, 9)):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, list):
            owner.append(copy.deepcopy(owner[key]))
        case 1 | 2 if isinstance(kind, list) and isinstance(owner[key], list):
            owner[key] = owner[key] * draw(st.sampled_from([0, 2, 3]))
        case _ if kind == "bytes":
            owner[key] = draw(_contents(owner[key]))
        case _ if kind == "string":
            owner[key] = draw(st.text("ab/.é\0", max_size=4))
        case _ if kind == "Float32":
            owner[key] = draw(st.sampled_from(FLOATS))
        case _ if isinstance(kind, str) and kind not in SCHEMA:
            usual = st.integers(0, 4) if name in _SMALL else st.integers(-2, 40)
            owner[key] = draw(usual if draw(st.booleans()) else st.sampled_from(LONGS))
        case _ if isinstance(owner, list):
            owner[key] = copy.deepcopy(owner[draw(st.integers(0, len(owner) - 1))])
        case _:
            del owner[key]


_SMALL = frozenset(f"{table}.{field}" for table in SCHEMA for field in ("padding", "activation"))


def _contents(value: bytes) -> st.SearchStrategy[bytes]:
    words = len(value) // 4
    return st.one_of(
        st.binary(min_size=len(value), max_size=len(value)),
        st.sampled_from([b"", value[:-1], value * 2, b"\xff" * len(value), bytes(len(value))]),
        st.sampled_from(LONGS).map(lambda n: struct.pack("<I", n & 0xFFFFFFFF) * words),
    )


def _damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Replace words (offsets, lengths) or the end of a file."""
    image = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        if not draw(st.integers(0, 9)):
            del image[draw(st.integers(8, len(image))) :]
        if len(image) < 12:
            break
        place = 4 * draw(st.integers(2, len(image) // 4 - 1))
        usual = st.sampled_from([0, 1, 4, len(image), (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
        word = draw(usual | st.integers(0, 2 * len(image)).map(lambda n: n & ~3))
        struct.pack_into("<I", image, place, word)
    return bytes(image)


# ------------------------------------------------------------------------------------- use


def use_tflite(data: bytes) -> None:
    """Read a model, plan it, compute it; of some, compare what a device computes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(data)
        try:
            graph = import_model(path)
        except (ModelError, ShapeError, UnsupportedError):
            return
    use_graph(graph, data)
