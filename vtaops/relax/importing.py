"""Import networks from every source to a normal form: a Relax function with quantize/dequantize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax

from vtaops.base.errors import ModelError, raising
from vtaops.graph import Graph, onnx_files
from vtaops.graph.onnx_files import ModelProto
from vtaops.relax.channels_first import channels_first
from vtaops.relax.graphs import TFLITE, to_graph
from vtaops.relax.messages import last_line
from vtaops.relax.names import tensor_names
from vtaops.relax.qoperators import to_pairs
from vtaops.relax.tflite_files import from_tflite_file
from vtaops.relax.values import Body

if TYPE_CHECKING:
    from vtaops.relax.onnx_nodes import OnnxImport
    from vtaops.relax.onnx_parts import OnnxParts

Shapes = Mapping[str, Sequence[int]]


def import_model(source: Any, *, shapes: Shapes | None = None) -> Graph:
    """Read a network and translate it to an integer graph.

    Parameters
    ----------
    source
        Path of an ONNX file (float, QDQ or with quantised operators) or an int8 TFLite file, an
        ONNX model, a program from `torch.export`, or a Relax module.
    shapes
        Shapes of inputs with dynamic dimensions, by name.

    Returns
    -------
    vtaops.graph.Graph
        Integer operators, and host functions for what VTA cannot run, with the reason.

    Raises
    ------
    ModelError
        If the file is missing or malformed, a shape is not static, or a scale is not positive.
    ShapeError
        If a tensor is empty.
    UnsupportedError
        If a node of the model is unknown, or computes in float16 or float64.
    """
    name = Path(source).stem if isinstance(source, str | Path) else "network"
    if _is_onnx(source):
        model = onnx_files.load(source, shapes)
        pairs = to_pairs(model)
        found = _from_onnx(pairs, foreign=True)
        names = partial(tensor_names, pairs, found.names)
        parts = partial(_parts, model, pairs, found)
        return to_graph(normalize(found.module), name, names, parts)
    return to_graph(to_relax(source, shapes=shapes), name)


def to_relax(source: Any, *, shapes: Shapes | None = None) -> Any:
    """Read a network into a Relax module of the normal form.

    In the normal form, `main` has static shapes, no dataflow blocks, and each quantised tensor is
    between `relax.quantize` and `relax.dequantize`. Parameters and errors are those of
    `import_model`.
    """
    if isinstance(source, str | Path) and Path(source).suffix == ".tflite":
        module = normalize(from_tflite_file(Path(source), shapes))
        with raising(ModelError, "not a valid TFLite model", Exception, told=last_line):
            module = normalize(channels_first(module))
            module["main"] = module["main"].with_attr(TFLITE, True)
            return module
    if _is_onnx(source):
        pairs = to_pairs(onnx_files.load(source, shapes))
        return normalize(_from_onnx(pairs, foreign=False).module)
    kind = type(source).__module__.split(".")[0]
    if kind == "torch":
        from vtaops.relax.torch_programs import from_torch

        return normalize(from_torch(source))
    if kind == "tvm":
        return normalize(source)
    raise ModelError(
        f"{type(source).__name__} is not a model; give a path, an ONNX model, a program of "
        "torch.export or a Relax module"
    )


def _is_onnx(source: Any) -> bool:
    """Return whether a source is an ONNX model or its path: any path except those of TFLite."""
    if isinstance(source, str | Path):
        return Path(source).suffix != ".tflite"
    return type(source).__module__.split(".")[0] == "onnx"


def normalize(mod: Any) -> Any:
    """Return a Relax module without tuples passed around, dead code and dataflow blocks."""
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
        relax.transform.ToNonDataflow(),
    ]
    with raising(ModelError, "not a valid Relax module", Exception, told=last_line):
        return tvm.transform.Sequential(passes)(mod)


def _from_onnx(model: ModelProto, *, foreign: bool) -> OnnxImport:
    from vtaops.relax.onnx_nodes import import_nodes  # loads the package onnx

    return import_nodes(model, foreign=foreign)


def _parts(source: ModelProto, pairs: ModelProto, found: OnnxImport, body: Body) -> OnnxParts:
    from vtaops.relax.onnx_parts import OnnxParts

    return OnnxParts(source, pairs, found, body)
