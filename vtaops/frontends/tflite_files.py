"""Read TFLite files: FlatBuffers into tensors and operators, checked before anything is built."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.files import NETWORK, open_file, read_open, reason_of
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import require

IDENTIFIER = b"TFL3"

DTYPES: Mapping[int, str] = {
    **{0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16"},
    **{9: "int8", 10: "float64", 12: "uint64", 15: "uint32", 16: "uint16", 17: "int8"},
}
"""NumPy dtypes by the numbers of TFLite's types; 4-bit integers are read as int8."""

INT4 = 17

CORRUPT = (
    *(TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError),
    struct.error,
)
"""What flatbuffers raises if it follows an offset to nowhere."""


@dataclass(frozen=True, eq=False)
class TfliteTensor:
    """A tensor.

    Attributes
    ----------
    name
        Its name.
    shape
        Its shape as declared; -1 marks a dimension that is not static.
    dtype
        Name of its NumPy dtype; empty if it has none.
    number
        Its number in the file.
    grid
        Scale and zero point: of shape (), or one per index of `axis`; None if it is not quantised.
    axis
        The axis along which scales differ.
    data
        Its elements, if they are constant.
    signature
        Its shape as a caller may choose it, -1 where any size is allowed; empty if none is.
    """

    name: str
    number: int
    shape: tuple[int, ...]
    dtype: str
    grid: tuple[Array, Array] | None
    axis: int
    data: Array | None
    signature: tuple[int, ...]


@dataclass(frozen=True)
class TfliteOperator:
    """An operator: its name in TFLite, its tensors but absent ones, which are last, and options."""

    kind: str
    inputs: list[TfliteTensor]
    outputs: list[TfliteTensor]
    label: str
    table: Any

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option; the default, if there is one, where the file has no options.

        Raises
        ------
        ModelError
            If the file lacks the option.
        """
        if self.table is None and default is not None:
            return default
        with raising(ModelError, f"{self.label} has no valid option {name}", *CORRUPT):
            return getattr(self.table, name)()


@dataclass(frozen=True)
class File:
    """The first subgraph of a file."""

    operators: list[TfliteOperator]
    inputs: list[TfliteTensor]
    outputs: list[TfliteTensor]


def read_file(path: Path) -> File:
    """Return the content of a file.

    Raises
    ------
    ModelError
        If the file does not exist, is not a TFLite model, or is inconsistent.
    UnsupportedError
        If its weights lie in another part of the file than the model.
    """
    with (
        raising(ModelError, f"cannot read {path}", OSError, describe=reason_of),
        open_file(path) as file,
    ):
        if file.read(8)[4:] != IDENTIFIER:
            raise ModelError(f"{path} is not a TFLite model: it has no identifier TFL3")
        content = read_open(file, NETWORK)
    with raising(ModelError, f"{path} is damaged", *CORRUPT):
        return _content(require("tflite").Model.GetRootAsModel(content, 0))


def _content(model: Any) -> File:
    graph, buffers = model.Subgraphs(0), _every(model, "Buffers")
    tensors = [_tensor(n, tensor, buffers) for n, tensor in enumerate(_every(graph, "Tensors"))]
    kinds = [*map(_kind, _every(model, "OperatorCodes"))]
    operators = [_operator(each, kinds, tensors) for each in _every(graph, "Operators")]
    return File(operators, *_ends(graph, tensors))


def _ends(table: Any, tensors: list[TfliteTensor]) -> tuple[list[TfliteTensor], ...]:
    """Return the inputs and the outputs of a graph or an operator."""
    ends = table.InputsAsNumpy(), table.OutputsAsNumpy()
    return tuple([tensors[n] for n in _numbers(numbers) if n >= 0] for numbers in ends)


def _every(table: Any, name: str) -> list[Any]:
    """Return the tables of a vector of tables."""
    return [getattr(table, name)(number) for number in range(getattr(table, f"{name}Length")())]


# --------------------------------------------------------------------------------- operators


@cache
def _names(enumeration: str) -> dict[int, str]:
    """Return the names of an enumeration of TFLite's schema by their numbers."""
    members = vars(getattr(require("tflite"), enumeration)).items()
    return {number: name for name, number in members if isinstance(number, int)}


def _kind(code: Any) -> str:
    """Return the name of an operator; of a custom one, its own name behind "CUSTOM"."""
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _names("BuiltinOperator").get(number, f"operator {number}")
    custom = (code.CustomCode() or b"").decode()
    return f"{name} {custom}" if name == "CUSTOM" and custom else name


def _operator(operator: Any, kinds: list[str], tensors: list[TfliteTensor]) -> TfliteOperator:
    kind, (inputs, outputs) = kinds[operator.OpcodeIndex()], _ends(operator, tensors)
    label = f"{kind} {outputs[0].name!r}" if outputs else kind
    table, options = operator.BuiltinOptions(), None
    name = _names("BuiltinOptions").get(operator.BuiltinOptionsType(), "")
    if table is not None and name:
        options = getattr(require("tflite"), name)()
        options.Init(table.Bytes, table.Pos)
    return TfliteOperator(kind, inputs, outputs, label, options)


# ----------------------------------------------------------------------------------- tensors


def _tensor(number: int, tensor: Any, buffers: list[Any]) -> TfliteTensor:
    name, shape = tensor.Name().decode(), _numbers(tensor.ShapeAsNumpy())
    buffer, dtype = buffers[tensor.Buffer()], DTYPES.get(tensor.Type(), "")
    if buffer.Offset() > 1:
        raise UnsupportedError(f"the tensor {name!r} lies outside of the model: convert it anew")
    if tensor.Sparsity() is not None:
        raise UnsupportedError(f"the tensor {name!r} is sparse: convert the model without sparsity")
    with raising(ModelError, f"the tensor {name!r} is malformed", *CORRUPT):
        size = buffer.DataLength()
        raw = buffer.DataAsNumpy() if size else np.zeros(0, np.uint8)
        constant = dtype and (size or 0 in shape) and not tensor.IsVariable()
        data = _elements(raw, tensor, shape, dtype) if constant else None
        signature, grid = _numbers(tensor.ShapeSignatureAsNumpy()), _grid(tensor, dtype, shape)
        return TfliteTensor(name, number, shape, dtype, *grid, data, signature)


def _elements(raw: Array, tensor: Any, shape: tuple[int, ...], dtype: str) -> Array:
    if tensor.Type() != INT4:
        return raw.view(dtype).reshape(shape)
    both = np.stack([raw << 4, raw], axis=-1).view(np.int8) >> 4  # the low half comes first
    return both.reshape(-1)[: math.prod(shape)].reshape(shape)


def _grid(
    tensor: Any, dtype: str, shape: tuple[int, ...]
) -> tuple[tuple[Array, Array] | None, int]:
    """Return scales and zero points, None for what is not quantised, and their axis."""
    grid = tensor.Quantization()
    if grid is None or not grid.ScaleLength() or "int" not in dtype:
        return None, 0
    scale = np.array(grid.ScaleAsNumpy(), np.float32)
    zero = np.array(grid.ZeroPointAsNumpy() if grid.ZeroPointLength() else [0])
    axis, exact = grid.QuantizedDimension(), zero.astype(dtype)
    wrong = (zero != exact).any() or zero.size not in (1, scale.size)
    if wrong or (scale.size > 1 and scale.size != shape[axis]):
        raise ModelError(
            f"the tensor {tensor.Name().decode()!r} of shape {[*shape]} has {scale.size} scales of "
            f"{dtype} along its axis {axis}, and the zero points {zero[:4].tolist()}"
        )
    if scale.size == 1:
        return (scale.reshape(()), exact.reshape(())), 0
    return (scale, np.resize(exact, scale.shape)), axis


def _numbers(vector: Any) -> tuple[int, ...]:
    """Return a vector of numbers; flatbuffers returns 0 for a missing vector."""
    return () if isinstance(vector, int) else tuple(vector.tolist())
