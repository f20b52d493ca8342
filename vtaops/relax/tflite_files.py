"""Read int8 TFLite models through TVM's front end."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.files import NETWORK, open_file, read_open, reason_of
from vtaops.graph.onnx_files import require
from vtaops.relax.messages import last_line

IDENTIFIER = b"TFL3"

ITEM_BYTES = {0: 4, 1: 2, 2: 4, 3: 1, 4: 8, 6: 1, 7: 2, 9: 1, 10: 8, 12: 8, 15: 4, 16: 2}
"""Bytes per element by the number of a type (`TensorType` in TFLite's schema), for types of fixed
size."""


def from_tflite_file(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
    """Return the Relax module of a file, with NHWC images as in TFLite.

    Raises
    ------
    ModelError
        If the file does not exist, is not a TFLite model, or is inconsistent.
    UnsupportedError
        If TVM's front end does not support an operator; the message names it.
    """
    with (
        raising(ModelError, f"cannot read {path}", OSError, told=reason_of),
        open_file(path) as file,
    ):
        if file.read(8)[4:] != IDENTIFIER:
            raise ModelError(f"{path} is not a TFLite model: it has no identifier TFL3")
        content = read_open(file, NETWORK)
    tflite = require("tflite")
    from tvm.relax.frontend.tflite import from_tflite

    whole = tflite.Model.GetRootAsModel(content, 0)
    try:
        wrong = _contradiction(whole)
    except (TypeError, ValueError, IndexError, AttributeError, struct.error) as error:
        # flatbuffers follows offsets to anywhere
        raise ModelError(f"{path} is damaged: an offset leads out of its tables") from error
    if wrong:
        raise ModelError(f"{path} is damaged: {wrong}")
    _refuse_unread(whole, path)
    given = {name: tuple(shape) for name, shape in (shapes or {}).items()} or None
    try:
        return from_tflite(whole, shape_dict=given)
    except Exception as error:  # TVM, flatbuffers and struct share no base class
        reason = last_line(error)
        if not isinstance(error, NotImplementedError):
            reason = f"{type(error).__name__}: {reason}"
        raise UnsupportedError(f"TVM's front end cannot read {path}: {reason}") from error


def _refuse_unread(model: Any, path: Path) -> None:
    """Refuse what TVM's front end reads as something else, and says nothing.

    It takes each softmax for one of ``exp(x)``, whatever the factor of `x` is.
    """
    tflite = require("tflite")
    graph = model.Subgraphs(0)
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        options = tflite.SoftmaxOptions()
        table = operator.BuiltinOptions()
        if operator.BuiltinOptionsType() != tflite.BuiltinOptions.SoftmaxOptions or not table:
            continue
        options.Init(table.Bytes, table.Pos)
        if options.Beta() != 1:
            raise UnsupportedError(
                f"the operator {number} of {path} is a softmax with the beta {options.Beta():g}; "
                "vtaops computes those with 1"
            )


def _contradiction(model: Any) -> str:
    """Return an inconsistency of a model; empty if there is none."""
    if not model.SubgraphsLength():
        return "it has no subgraph"
    graph = model.Subgraphs(0)
    count = graph.TensorsLength()
    for number in range(count):
        if wrong := _wrong_tensor(graph.Tensors(number), model):
            return f"its tensor {number} {wrong}"
    constants = {n for n in range(count) if model.Buffers(graph.Tensors(n).Buffer()).DataLength()}
    known = constants | set(_numbers(graph.InputsAsNumpy()))
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        if wrong := _wrong_operator(operator, model.OperatorCodesLength(), count, known):
            return f"its operator {number} {wrong}"
        known |= set(_numbers(operator.OutputsAsNumpy()))
    outside = set(_numbers(graph.OutputsAsNumpy())) - known
    return f"no operator computes its output, the tensor {min(outside)}" if outside else ""


def _wrong_operator(operator: Any, codes: int, tensors: int, known: set[int]) -> str:
    """Return the error in an operator that may read the tensors `known`; empty if there is none."""
    code = operator.OpcodeIndex()
    if code >= codes:
        return f"has the code {code} of {codes}"
    inputs = {read for read in _numbers(operator.InputsAsNumpy()) if read != -1}
    for tensor in sorted(inputs.union(_numbers(operator.OutputsAsNumpy()))):
        if not 0 <= tensor < tensors:
            return f"names the tensor {tensor}; it has {tensors}"
    unknown = inputs - known
    return f"reads the tensor {min(unknown)} before it is computed" if unknown else ""


def _wrong_tensor(tensor: Any, model: Any) -> str:
    """Return the error in a tensor; empty if there is none."""
    buffer = tensor.Buffer()
    if not tensor.Name() or buffer >= model.BuffersLength():
        return f"has no name, or refers to a missing buffer {buffer}"
    return _wrong_shape(tensor, model.Buffers(buffer).DataLength()) or _wrong_grid(tensor)


def _wrong_shape(tensor: Any, size: int) -> str:
    """Return the error in the shape of a tensor whose buffer has `size` bytes."""
    shape = _numbers(tensor.ShapeAsNumpy())
    if min(shape, default=1) < -1:
        return f"has the shape {shape}"
    each = ITEM_BYTES.get(tensor.Type())
    if size and each and tensor.Sparsity() is None and size != each * math.prod(shape):
        return f"has {size} bytes; its shape {shape} needs {each * math.prod(shape)}"
    return ""


def _wrong_grid(tensor: Any) -> str:
    """Return the error in the scales and zero points of a tensor."""
    grid = tensor.Quantization()
    scales = [] if grid is None else [grid.Scale(index) for index in range(grid.ScaleLength())]
    if not all(0 < scale < math.inf for scale in scales):
        return f"is quantised with the scales {scales[:4]}; they must be positive and finite"
    if scales and grid.ZeroPointLength() not in (0, 1, len(scales)):
        return f"has {len(scales)} scales and {grid.ZeroPointLength()} zero points"
    return ""


def _numbers(vector: Any) -> list[int]:
    """Return a vector of numbers; flatbuffers returns 0 for a missing vector."""
    return [] if isinstance(vector, int) else [int(number) for number in vector]
