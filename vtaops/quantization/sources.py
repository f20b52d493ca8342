"""Convert other sources to float ONNX models: torch modules and programs, TFLite, Relax.

PyTorch's exporter writes torch models as ONNX with batch 1. Weights that are integers become the
real numbers that they represent.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.frontends.composites import is_composite
from vtaops.graph.branches import fix_inputs
from vtaops.graph.onnx_files import (
    ModelProto,
    checked,
    dequantized,
    first_line,
    initializers,
    input_dtypes,
    input_shapes,
    opened,
    read,
    refill,
    replace_initializer,
    require,
    tensors,
)
from vtaops.quantization.pictures import Preparation
from vtaops.quantization.samples import (
    Calibration,
    Sample,
    first_arrays,
    first_shapes,
    load_samples,
)

Shapes = Mapping[str, Sequence[int]]


def load(
    source: Any,
    calibration: Calibration,
    shapes: Shapes | None,
    preparation: Preparation | None,
    fixed: Mapping[str, Any] | None,
) -> tuple[ModelProto, list[Sample]]:
    """Read a float model and samples; the data determine the model's dynamic dimensions."""
    fixed = fixed or {}
    if isinstance(calibration, Iterator):
        calibration = list(calibration)
    files = isinstance(source, str | Path | require("onnx").ModelProto)
    if shapes is None and files:
        shapes = first_shapes(calibration, inputs_as_written(source))
    if is_relax(source):
        source, shapes = from_relax(source, shapes), {}
    elif _is_of("torch", source):
        source, shapes = from_torch(source, calibration, shapes), {}
    elif not files:
        raise ModelError(
            f"{type(source).__name__} is not a model; give a path, an ONNX model, a torch module "
            "or program, or a Relax module"
        )
    model = opened(source, shapes)
    fix_inputs(model, fixed)
    to_single(model)
    dequantize_weights(model)
    composed = any(map(is_composite, model.graph.node))
    model = from_relax(model, None) if composed else checked(model)
    if not model.graph.output:
        raise ModelError("the model has no output; what nobody reads needs no integers")
    types = input_dtypes(model)
    return model, load_samples(calibration, input_shapes(model), types, preparation, left_out=fixed)


def _is_of(package: str, source: Any) -> bool:
    """Return whether a source is of a package's kinds, without importing it."""
    return any(kind.__module__.split(".")[0] == package for kind in type(source).__mro__)


def is_relax(source: Any) -> bool:
    """Whether a source is read as a network first: TFLite or Relax."""
    if isinstance(source, str | Path):
        return Path(source).suffix == ".tflite"
    return _is_of("tvm", source)


def inputs_as_written(source: str | Path | ModelProto) -> dict[str, tuple[int | None, ...]]:
    """Return the inputs' shapes, with None for open dimensions."""
    from vtaops.frontends import open_shapes

    if isinstance(source, str | Path):
        if is_relax(source):
            return open_shapes(Path(source))
        source = read(Path(source))
    shapes = input_shapes(source).items()
    return {name: tuple(size if size > 0 else None for size in shape) for name, shape in shapes}


def from_relax(source: Any, shapes: Shapes | None) -> ModelProto:
    """Return the ONNX model of a TFLite file or a Relax module."""
    from vtaops.frontends import read_model
    from vtaops.frontends.parts import to_onnx

    return checked(to_onnx(read_model(source, shapes=shapes)))


def from_torch(source: Any, calibration: Calibration, shapes: Shapes | None) -> ModelProto:
    """Return the ONNX model of a module or an exported program, for one image.

    Parameters
    ----------
    source
        `torch.nn.Module` or `torch.export.ExportedProgram`; its parameters name the inputs.
    calibration
        Calibration data, which determine the input shapes of a module.
    shapes
        Input shapes that override those of the data.

    Raises
    ------
    ModelError
        If it is another torch object.
    UnsupportedError
        If PyTorch cannot export it to ONNX.
    """
    import torch

    if isinstance(source, torch.export.ExportedProgram):
        names = list(source.graph_signature.user_inputs)
        values = {node.name: node.meta.get("val") for node in source.graph.nodes}
        batches = [values[name].shape[:1] for name in names]
        dynamic = [any(not isinstance(size, int) for size in batch) for batch in batches]
        inputs = zip(source.example_inputs[0], dynamic, strict=True)
        examples = tuple(each[:1] if open_ else each for each, open_ in inputs)
        module = _module(source, examples if any(dynamic) else None)
    elif isinstance(source, torch.nn.Module):
        names, module = _parameters(source), source.eval()
        examples = tuple(map(torch.from_numpy, _examples(names, calibration, shapes)))
    else:
        raise ModelError(f"{type(source).__name__} is not a torch module or exported program")
    content = BytesIO()
    text = "PyTorch cannot write this module as an ONNX model"
    with warnings.catch_warnings(), raising(UnsupportedError, text, Exception, describe=first_line):
        warnings.simplefilter("ignore")
        with _exporting_norms():
            torch.onnx.export(module, examples, content, input_names=names, dynamo=False)
    model: ModelProto = require("onnx").load_model_from_string(content.getvalue())
    return model


def _module(program: Any, examples: Any) -> Any:
    """Return a program as a module, whose batch is that of the examples, if there are any."""
    import torch

    module = program.module(check_guards=False)
    if examples is not None:
        module = torch.export.export(module, examples).module(check_guards=False)
    module.train = module.eval = lambda *_: module  # as PyTorch's exporter calls them
    return module


def _parameters(module: Any) -> list[str]:
    """Return the parameters of `forward` without default values."""
    parameters = inspect.signature(module.forward).parameters.values()
    return [
        p.name for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD
    ] or ["input"]


def _examples(
    names: list[str], calibration: Calibration, shapes: Shapes | None
) -> list[np.ndarray[Any, Any]]:
    arrays: Mapping[str, Any] = first_arrays(calibration, names) if shapes is None else shapes
    missing = [name for name in names if name not in arrays]
    if missing:
        source = "calibration data" if shapes is None else "shapes"
        raise ModelError(
            f"the {source} have no {missing[0]!r}; the module takes {', '.join(names)}"
        )
    if shapes is not None:
        return [np.zeros(tuple(shapes[name]), np.float32) for name in names]
    return [np.array(arrays[name][:1]) for name in names]


_OPSET = 18
"""From this one on, the axes of ReduceMean are an input."""


@contextmanager
def _exporting_norms() -> Iterator[None]:
    """Let ``torch.onnx.export`` write RMS norms within a block."""
    import torch
    from torch.onnx.symbolic_helper import parse_args

    written = parse_args("v", "is", "v", "f")(_rms_norm)
    torch.onnx.register_custom_op_symbolic("aten::rms_norm", written, _OPSET)
    try:
        yield
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::rms_norm", _OPSET)


def _constant(graph: Any, value: Any) -> Any:
    import torch

    return graph.op("Constant", value_t=torch.tensor(value))


def _rms_norm(graph: Any, x: Any, shape: Sequence[int], weight: Any, epsilon: float | None) -> Any:
    """Write ``x / sqrt(mean(x * x) + epsilon) * weight`` over the last axes."""
    if epsilon is None:
        epsilon = float(np.finfo(np.float32).eps)
    axes = _constant(graph, [*range(-len(shape), 0)])
    square = graph.op("Mul", x, x)
    mean = graph.op("ReduceMean", square, axes, keepdims_i=1)
    root = graph.op("Sqrt", graph.op("Add", mean, _constant(graph, epsilon)))
    normalized = graph.op("Div", x, root)
    return normalized if weight.node().mustBeNone() else graph.op("Mul", normalized, weight)


_ON_INTEGERS = re.compile("QLinear|Integer|QuantizeLinear|^QGemm")
"""Operators on integers, and those between these and floats."""


def dequantize_weights(model: ModelProto) -> None:
    """Make the integer weights of a float model real numbers, in place.

    Raises
    ------
    ModelError
        If more than its weights is quantised.
    """
    constants, kept = initializers(model), []
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            value = dequantized(node, constants).astype(np.float32)
            replace_initializer(model, node.output[0], value)
        elif _ON_INTEGERS.search(node.op_type):
            raise ModelError(
                f"the model is quantised already: its node {node.name or node.output[0]!r} is "
                f"{node.op_type}. Compile it as it is, or quantise the float model"
            )
        else:
            kept.append(node)
    refill(model.graph.node, kept)


def to_single(model: ModelProto) -> None:
    """Make every float of a model float32 in place: its tensors, its ends and what its nodes say.

    Results of float16 become more precise; those of float64 less, as int8 needs no more.
    """
    types, helper = require("onnx").TensorProto, require("onnx").numpy_helper
    others = {types.FLOAT16, types.BFLOAT16, types.DOUBLE}
    for tensor in list(tensors(model)):
        if tensor.data_type in others:
            damaged = f"the constant {tensor.name!r} is damaged"
            with raising(ModelError, damaged, ValueError, TypeError), np.errstate(over="ignore"):
                value = helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(helper.from_array(value, tensor.name))
    _convert_graph(model.graph, others)


def _convert_graph(graph: Any, others: set[int]) -> None:
    """Change the types that a graph states, and those of the graphs inside its nodes."""
    single = require("onnx").TensorProto.FLOAT
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in others:
            value.type.tensor_type.elem_type = single
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype", "output_dtype") and attribute.i in others:
                attribute.i = single
            if attribute.HasField("g"):
                _convert_graph(attribute.g, others)
