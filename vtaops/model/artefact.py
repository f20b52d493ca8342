"""The model file: everything that a run needs, and nothing of the compiler.

Owns header and body of the file; the framing is `vtaops.base.envelope`'s:

====================  ==========================================================================
bytes                 content
====================  ==========================================================================
H                     header: JSON, ASCII, keys sorted: graph, stages, reasons of the plan, table
                      of the blobs, lengths of the host functions
                      padding to a multiple of 64 bytes of the file
...                   blobs: arrays, programs (complete files); each starts at a multiple of 64
...                   host functions, one behind the other, deflated (`vtaops.model.deflated`)
====================  ==========================================================================

Equal models give equal bytes, with one version of zlib. Weights that a program has as an image in
tiles are stored as this image only. Other arrays are views of the file's bytes, so a model loads as
fast as its file is read and hashed, and host functions inflated. These are parts of ONNX models,
and their weights are floats. Reading a file never opens them: the first run that calls one does.

Imports no TVM.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vtaops.base.agreement import Agreement
from vtaops.base.envelope import PREAMBLE_BYTES, Envelope
from vtaops.base.errors import ProgramError, VTAError, raising
from vtaops.base.files import NETWORK
from vtaops.base.names import checked_call
from vtaops.base.quoting import check_texts
from vtaops.base.records import MALFORMED, check_fields
from vtaops.graph import (
    FineRequantization,
    Graph,
    GraphOperator,
    HostFunction,
    Quotient,
    Requantization,
    Tensor,
    TfliteRequantization,
    operators,
)
from vtaops.graph.onnx_function import OnnxFunction
from vtaops.machine.capabilities import find
from vtaops.machine.config import HardwareConfig
from vtaops.machine.layout import Layout, has_nibbles, kernel_layout
from vtaops.model.checks import check_stages, check_tensors
from vtaops.model.deflated import deflated, inflated
from vtaops.model.model import Model
from vtaops.model.placement import placements
from vtaops.program import Program
from vtaops.program.file_format import dumps as dump_program
from vtaops.program.file_format import loads as load_program
from vtaops.program.region import Argument, HostStage, Region

MAGIC = b"VTAMODEL"
FORMAT_VERSION = 12

_Record = TypeVar("_Record")

_FILE = Envelope("model", MAGIC, FORMAT_VERSION, NETWORK)
_ALIGNMENT = 64
_DTYPES = frozenset(
    {"bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float32", "float64"}
)


def save(model: Model, path: str | Path) -> None:
    """Write a model to a file atomically.

    Raises
    ------
    ProgramError
        If the file cannot be written.
    """
    _FILE.save(dumps(model), path)


@checked_call
def load(path: str | Path) -> Model:
    """Read a model from a file without running any of its code.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    ProgramError
        If the file cannot be read, or is not exactly what `save` writes.
    """
    return _FILE.load(path, loads)


def dumps(model: Model) -> bytes:
    """Serialize a model to the bytes of its file."""
    text, blobs = _contents(model)
    sections: list[bytes | memoryview] = [text, _padding(PREAMBLE_BYTES + len(text))]
    for blob in blobs.data:
        sections += [blob, _padding(len(blob))]
    return _FILE.seal(*sections, deflated(b"".join(blobs.functions)))


def _contents(model: Model) -> tuple[bytes, _Blobs]:
    """Return the header of a model's file, and what it refers to."""
    blobs = _Blobs(kernel_layout(model.config))
    stages = _write(model.stages, blobs)  # first: the graph's weights are found in their images
    header: dict[str, Any] = {
        "agreement": _write(model.agreement, blobs),
        "capabilities": model.capabilities.name,
        "config": model.config.to_dict(),
        "config_name": model.config.name,
        "fingerprint": model.config.fingerprint,
        "graph": _graph(model.graph, blobs),
        "reasons": [[row.reason, row.code] for row in model.plan],
        "stages": stages,
    }
    header["blobs"] = blobs.table
    header["functions"] = [*map(len, blobs.functions)]
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii"), blobs


def loads(data: bytes) -> Model:
    """Deserialize a model.

    Raises
    ------
    ProgramError
        If the file is foreign, of another version, truncated, corrupted or inconsistent; the
        message says which.
    """
    text, header, body, table = _checked(data)
    try:
        config = HardwareConfig.from_dict(header["config"], name=header["config_name"])
        if config.fingerprint != header["fingerprint"]:
            raise ProgramError(
                f"it was made for a configuration {header['fingerprint']}, which has the "
                f"fingerprint {config.fingerprint} in this vtaops"
            )
        functions = _functions(body, table, header["functions"])
        blobs = _Reader(body, table, functions, kernel_layout(config))
        graph = _read_graph(header["graph"], blobs)
        stages = _read_all(header["stages"], blobs, HostStage, Region)
        capabilities = find(header["capabilities"])
        (agreement,) = _read_all([header["agreement"]], blobs, Agreement)
        check_stages(graph, stages, config.fingerprint)
        rows = placements(graph, stages, header["reasons"])
    except VTAError as error:
        raise ProgramError(f"the model is inconsistent: {error}") from error
    except MALFORMED as error:
        raise ProgramError(f"the model is inconsistent: {_short(error)}") from error
    model = Model(graph, config, capabilities, rows, stages, agreement)
    if text != _contents(model)[0]:
        raise ProgramError("the header of the model is not in the form that vtaops writes")
    return model


def _padding(size: int) -> bytes:
    """Return the zeros up to the next multiple of 64."""
    return bytes(-size % _ALIGNMENT)


def _checked(data: bytes) -> tuple[bytes, dict[str, Any], memoryview, list[tuple[int, int]]]:
    """Return the header of a file as bytes and as a document, its blobs, and their table."""
    text, body = _FILE.open(data)
    inconsistent = "the header of the model is inconsistent"
    with raising(ProgramError, inconsistent, *MALFORMED, describe=_short):
        header = json.loads(text)
        check_texts(header)
        table: list[tuple[int, int]] = [(int(o), int(n)) for o, n in header["blobs"]]
    start = len(_padding(PREAMBLE_BYTES + len(text)))
    return text, header, body[start:], table


def _functions(
    body: memoryview, table: Sequence[tuple[int, int]], lengths: Sequence[int]
) -> list[bytes]:
    """Return the host functions behind the blobs."""
    if any(type(length) is not int or length < 0 for length in lengths):
        raise ProgramError(f"host functions have the lengths {_shown(lengths)}")
    end = max((offset + nbytes for offset, nbytes in table), default=0)
    ends = [0, *itertools.accumulate(lengths)]
    whole = inflated(body[end + len(_padding(end)) :], ends[-1])
    return [whole[start:stop] for start, stop in itertools.pairwise(ends)]


# ---------------------------------------------------------------------------------- blobs


class _Blobs:
    """The blobs after the header, and the host functions behind them."""

    def __init__(self, tiled: Layout) -> None:
        self.functions: list[bytes] = []
        self.data: list[bytes | memoryview] = []
        self.table: list[tuple[int, int]] = []
        self.nbytes = 0
        self._numbers: dict[bytes, int] = {}
        self._tiled = tiled

    def add(self, data: bytes | memoryview) -> int:
        """Return the number of a blob of this content, which is appended if it is new."""
        digest = hashlib.sha256(data).digest()
        if digest not in self._numbers:
            self._numbers[digest] = len(self.data)
            self.table.append((self.nbytes, len(data)))
            self.data.append(data)
            self.nbytes += len(data) + len(_padding(len(data)))
        return self._numbers[digest]

    def function(self, function: HostFunction) -> int:
        """Return the number of a host function, which is appended if it is new."""
        if not isinstance(function, OnnxFunction):
            raise ProgramError(
                f"the host function {type(function).__name__} is code of this process; a file "
                "holds ONNX models (vtaops.graph.onnx_function.OnnxFunction)"
            )
        if function.data not in self.functions:
            self.functions.append(function.data)
        return self.functions.index(function.data)

    def array(self, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Append an array if neither it nor its image is there; return its description."""
        kind = {"dtype": str(array.dtype), "shape": list(array.shape)}
        if array.dtype == np.int8 and array.ndim in (2, 4):
            layouts = [self._tiled, *[self._tiled.shared] * has_nibbles(array)]
            for layout in layouts:
                image = layout.pack(array.reshape(_filters(array.shape)))
                number = self._numbers.get(hashlib.sha256(image.data).digest())
                if number is not None:
                    return {"array": number, "tiled": layout.text, **kind}
        blob = self.add(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return {"array": blob, **kind}


def _filters(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of weights as those of a convolution."""
    return *shape, *(1 for _ in range(4 - len(shape)))


class _Reader:
    """The blobs and host functions of a file."""

    def __init__(
        self,
        view: memoryview,
        table: list[tuple[int, int]],
        functions: list[bytes],
        tiled: Layout,
    ) -> None:
        self._view = view
        self._tiled = tiled
        self._functions = functions
        self._table = table
        if any(o < 0 or n < 0 or o + n > len(self._view) for o, n in table):
            raise ProgramError("the table of the model points beyond the file")

    def bytes_of(self, number: int) -> memoryview:
        """Return a blob."""
        offset, nbytes = _numbered("blob", self._table, number)
        return self._view[offset : offset + nbytes]

    def function(self, number: int) -> OnnxFunction:
        """Return a host function."""
        return OnnxFunction(_numbered("host function", self._functions, number))

    def array(self, entry: dict[str, Any]) -> np.ndarray[Any, Any]:
        """Return an array: a read-only view of the file's bytes."""
        if entry["dtype"] not in _DTYPES:
            raise ProgramError(f"an array has dtype {entry['dtype']!r}")
        flat = np.frombuffer(self.bytes_of(entry["array"]), entry["dtype"])
        if "tiled" in entry:
            shape = _filters(entry["shape"])
            narrow = entry["tiled"] == self._tiled.shared.text
            tiled = self._tiled.shared if narrow else self._tiled  # older files say True
            flat = tiled.unpack(flat.reshape(tiled.packed_shape(shape)), shape)
            flat.flags.writeable = False
        array: np.ndarray[Any, Any] = flat.reshape(entry["shape"])
        return array


def _numbered(what: str, items: Sequence[_Record], number: int) -> _Record:
    if type(number) is not int or not 0 <= number < len(items):
        raise ProgramError(f"unknown {what} {_shown(number)}; there are {len(items)}")
    return items[number]


# -------------------------------------------------------------------------------- records


def _is_operator(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, GraphOperator) and is_dataclass(kind)


_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Agreement, Argument, HostStage, Region, Tensor),
        *(FineRequantization, Quotient, Requantization, TfliteRequantization),
        *(kind for kind in vars(operators).values() if _is_operator(kind)),
    )
}
"""Dataclasses that a file holds, by name."""


def _write(value: Any, blobs: _Blobs) -> Any:
    """Return a value as JSON: dataclasses by their fields, arrays and programs as blobs."""
    if isinstance(value, np.ndarray):
        return blobs.array(value)
    if isinstance(value, Program):
        return {"program": blobs.add(dump_program(value))}
    if isinstance(value, HostFunction):
        return {"function": blobs.function(value)}
    if isinstance(value, Mapping):
        return {"items": [[name, _write(item, blobs)] for name, item in sorted(value.items())]}
    if isinstance(value, list | tuple):
        return [_write(item, blobs) for item in value]
    if is_dataclass(value):
        named = {f.name: _write(getattr(value, f.name), blobs) for f in fields(value)}
        return {"record": type(value).__name__, **named}
    return value


def _read(entry: Any, blobs: _Reader) -> Any:
    """Return the value of an entry; the inverse of `_write`."""
    if isinstance(entry, list):
        return tuple(_read(item, blobs) for item in entry)
    if not isinstance(entry, dict):
        return entry
    if "record" in entry:
        values = {name: _read(value, blobs) for name, value in entry.items()}
        return _made(_RECORDS[values.pop("record")], values)
    if "array" in entry:
        return blobs.array(entry)
    if "items" in entry:
        return {_text(name): _read(item, blobs) for name, item in entry["items"]}
    if "program" in entry:
        return load_program(bytes(blobs.bytes_of(entry["program"])))
    return blobs.function(entry["function"])


def _made(kind: type[_Record], values: dict[str, Any]) -> _Record:
    check_fields(kind, values)
    return kind(**values)


def _read_all(entries: list[Any], blobs: _Reader, *kinds: type) -> list[Any]:
    """Return records of some kinds."""
    found = [_read(entry, blobs) for entry in entries]
    for value in found:
        if not isinstance(value, kinds):
            raise ProgramError(f"{_shown(value)} is out of place")
    return found


# ----------------------------------------------------------------------------------- graph


def _graph(graph: Graph, blobs: _Blobs) -> dict[str, Any]:
    made = [tensor for node in graph.nodes for tensor in node.outputs]
    return {
        "name": graph.name,
        "inputs": [tensor.name for tensor in graph.inputs],
        "outputs": [tensor.name for tensor in graph.outputs],
        "state": graph.state,
        "tensors": _write([*graph.inputs, *made], blobs),
        "nodes": [
            {
                "inputs": [tensor.name for tensor in node.inputs],
                "outputs": [tensor.name for tensor in node.outputs],
                "operator": _write(node.op, blobs),
            }
            for node in graph.nodes
        ],
    }


def _read_graph(entry: dict[str, Any], blobs: _Reader) -> Graph:
    """Build a graph through the public interface, so that invalid graphs are rejected."""
    stated = _read_all(entry["tensors"], blobs, Tensor)
    check_tensors(stated)
    tensors = {tensor.name: tensor for tensor in stated}
    graph = Graph(_text(entry["name"]))
    for name in entry["inputs"]:
        graph.input_like(tensors[name])
    read = _read_all([node["operator"] for node in entry["nodes"]], blobs, GraphOperator)
    for node, operator in zip(entry["nodes"], read, strict=True):
        graph.add_many(
            operator,
            *(graph.tensors[name] for name in node["inputs"]),
            names=[_text(name) for name in node["outputs"]],
            scales=[tensors[name].scale for name in node["outputs"]],
        )
    if graph.tensors != tensors:
        raise ProgramError("the tensors of the graph are not what its operators make")
    graph.output(*(graph.tensors[name] for name in entry["outputs"]))
    graph.carry(entry["state"])
    return graph


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ProgramError(f"a name is {_shown(value)}; it must be a string")
    return value


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _short(error: BaseException) -> str:
    return repr(error)[:200]
