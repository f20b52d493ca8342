"""Convert other sources to float ONNX models: torch modules and programs, quantised models.

PyTorch's exporter writes torch models as ONNX with batch 1. The pairs of a quantised model are
removed: weights become the real numbers that they represent, and a grid that begins at 0 becomes
the ReLU that it represents.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    ValueInfoProto,
    checked,
    dequantized,
    first_line,
    graph_inputs,
    input_dtypes,
    input_shapes,
    make_node,
    read,
    refill,
    replace_initializer,
    require,
)
from vtaops.quantization.samples import Calibration, InputGrid, first_arrays
from vtaops.quantization.torch_operators import exported_too

Shapes = Mapping[str, Sequence[int]]


def is_torch(source: Any) -> bool:
    """Return whether a source is a torch module or program, without importing torch."""
    return any(kind.__module__.split(".")[0] == "torch" for kind in type(source).__mro__)


def is_relax(source: Any) -> bool:
    """Whether a source is read as a network first: TFLite, Relax, or a program of PT2E."""
    if isinstance(source, str | Path):
        return Path(source).suffix == ".tflite"
    nodes = getattr(getattr(source, "graph", None), "nodes", ()) if is_torch(source) else ()
    pairs = any("quantize_per" in str(node.target) for node in nodes)
    return pairs or type(source).__module__.split(".")[0] == "tvm"


def inputs_as_written(source: str | Path | ModelProto) -> dict[str, tuple[int | None, ...]]:
    """Return the inputs' shapes, with None for open dimensions; none if the file is no model."""
    from vtaops.frontends import open_shapes

    if not isinstance(source, require("onnx").ModelProto):
        path = Path(source)
        try:  # whoever opens the file reports its errors
            if path.suffix == ".tflite":
                return open_shapes(path)
            source = read(path)
        except (ModelError, UnsupportedError):
            return {}
    shapes = input_shapes(source).items()
    return {name: tuple(size if size > 0 else None for size in shape) for name, shape in shapes}


def from_relax(source: Any, shapes: Shapes | None) -> ModelProto:
    """Return the ONNX model of a TFLite file, a Relax module or a program of PT2E."""
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
        dynamic = _dynamic(source, names)
        examples = tuple(map(_single, source.example_inputs[0], dynamic))
        module = _module(source, examples if any(dynamic) else None)
    elif isinstance(source, torch.nn.Module):
        names, module = _parameters(source), source.eval()
        examples = tuple(map(torch.from_numpy, _examples(names, calibration, shapes)))
    else:
        raise ModelError(f"{type(source).__name__} is not a torch module or exported program")
    content = BytesIO()
    text = "PyTorch cannot write this module as an ONNX model"
    with warnings.catch_warnings(), raising(UnsupportedError, text, Exception, told=first_line):
        warnings.simplefilter("ignore")
        with exported_too():
            torch.onnx.export(module, examples, content, input_names=names, dynamo=False)
    model: ModelProto = require("onnx").load_model_from_string(content.getvalue())
    return model


def _module(program: Any, examples: Any) -> Any:
    """Return a program as a module that PyTorch's exporter may set to evaluation mode.

    Its batch is that of the examples, if there are any.
    """
    import torch

    run = program.module(check_guards=False)
    if examples is not None:
        run = torch.export.export(run, examples).module(check_guards=False)

    class Program(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.run = run

        def forward(self, *args: Any) -> Any:
            return self.run(*args)

        def train(self, mode: bool = True) -> Any:
            return self  # programs reject it, even for evaluation mode

    return Program()


def _parameters(module: Any) -> list[str]:
    """Return the parameters of `forward` without default values."""
    found = inspect.signature(module.forward).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in found if p.default is p.empty and p.kind in plain] or ["input"]


def _examples(
    names: list[str], calibration: Calibration, shapes: Shapes | None
) -> list[np.ndarray[Any, Any]]:
    arrays = first_arrays(calibration, names) if shapes is None else {}
    missing = [name for name in names if name not in (arrays if shapes is None else shapes)]
    if missing:
        given = "calibration data" if shapes is None else "shapes"
        raise ModelError(f"the {given} have no {missing[0]!r}; the module takes {', '.join(names)}")
    if shapes is not None:
        return [np.zeros(tuple(shapes[name]), np.float32) for name in names]
    return [np.array(arrays[name][:1]) for name in names]


def _dynamic(program: Any, names: list[str]) -> list[bool]:
    """Return, for each input of a program, whether its batch is dynamic."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.name in names}
    shapes = (values[name].shape for name in names)
    return [bool(shape) and not isinstance(shape[0], int) for shape in shapes]


def _single(example: Any, dynamic: bool) -> Any:
    return example[:1] if dynamic else example


def input_grids(model: ModelProto) -> dict[str, InputGrid]:
    """Return the grids of inputs that are integers and are dequantised first of all."""
    tensors, found = Connections(model), {}
    for name, dtype in input_dtypes(model).items():
        readers = tensors.readers.get(name, [])
        if readers and all(node.op_type == "DequantizeLinear" for node in readers):
            scale, *zeros = (tensors.constants.get(part) for part in readers[0].input[1:])
            if scale is not None and scale.size == 1:
                zero = zeros[0] if zeros else None
                found[name] = dtype, scale.item(), 0 if zero is None else int(zero.item())
    return found


def without_pairs(model: ModelProto) -> None:
    """Remove the pairs of a QDQ model in place; integers at its ends become real numbers.

    Raises
    ------
    UnsupportedError
        If other integers enter the model, or it has operators on integers.
    """
    tensors, entries = Connections(model), input_grids(model)
    kept: list[NodeProto] = []
    real: dict[str, str] = {}
    for node in model.graph.node:
        _refuse_integers(node)
        for index, name in enumerate(node.input):
            node.input[index] = real.get(name, name)
        if node.op_type == "QuantizeLinear":
            kept += _activation(model, node, tensors)
        elif node.op_type != "DequantizeLinear":
            kept.append(node)
        elif node.input[0] in tensors.constants:
            real_value = dequantized(node, tensors.constants).astype(np.float32)
            replace_initializer(model, node.output[0], real_value)
        else:
            entry = node.input[0] in entries
            real[node.output[0]] = node.input[0] if entry else f"{node.input[0]}_real"
    kept += _real_ends(model, real, tensors, entries)
    _check_entries(kept, set(real.values()) - entries.keys())
    refill(model.graph.node, kept)
    del model.graph.value_info[:]


def _real_ends(
    model: ModelProto, real: dict[str, str], tensors: Connections, entries: Collection[str]
) -> list[NodeProto]:
    """Make the ends of a model float; return the nodes that make its outputs."""
    nodes = []
    for value in model.graph.output:
        writer = tensors.writers.get(value.name)
        quantized = writer is not None and writer.op_type == "QuantizeLinear"
        if quantized or value.name in real:
            source = real.get(value.name, f"{value.name}_real")
            nodes.append(make_node("Identity", [source], [value.name]))
            _make_float(value)
    for value in graph_inputs(model):
        if value.name in entries:
            _make_float(value)
    return nodes


def _make_float(value: ValueInfoProto) -> None:
    value.type.tensor_type.elem_type = require("onnx").TensorProto.FLOAT


def _refuse_integers(node: NodeProto) -> None:
    if "QLinear" in node.op_type or node.op_type in _INTEGER:
        raise UnsupportedError(
            f"the node {node.name or node.output[0]!r} is {node.op_type}, an operator on "
            "integers; quantize takes float models, and those with pairs around float operators"
        )


def _check_entries(nodes: list[NodeProto], real: set[str]) -> None:
    """Reject tensors that are dequantised without being quantised in the model."""
    lost = real - {name for node in nodes for name in node.output}
    if lost:
        raise UnsupportedError(
            f"{min(lost).removesuffix('_real')!r} enters the model as integers; quantize takes "
            "models whose inputs are float"
        )


_INTEGER = frozenset({"MatMulInteger", "ConvInteger", "QGemm", "DynamicQuantizeLinear"})


def _activation(model: ModelProto, node: NodeProto, tensors: Connections) -> list[NodeProto]:
    """Return the replacement of a quantisation: a clip if its grid begins at 0, else nothing."""
    scale, *zeros = (tensors.constants.get(name) for name in node.input[1:3] if name)
    zero = zeros[0] if zeros else np.zeros((), np.uint8)  # what ONNX takes if none is given
    result = [f"{node.output[0]}_real"]
    if scale is not None and zero is not None and scale.size == 1:
        kind = np.iinfo(zero.dtype)
        if int(zero.reshape(())) == kind.min:
            bounds = [f"{node.output[0]}_low", f"{node.output[0]}_high"]
            high = float(kind.max - kind.min) * float(scale.reshape(()))
            for name, bound in zip(bounds, (0.0, high), strict=True):
                replace_initializer(model, name, np.array(bound, np.float32))
            return [make_node("Clip", [node.input[0], *bounds], result)]
    return [make_node("Identity", node.input[:1], result)]
