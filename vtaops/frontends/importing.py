"""The entry point for networks from every source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtaops.base.errors import ModelError
from vtaops.frontends.graphs import to_graph
from vtaops.frontends.values import OnnxNetwork
from vtaops.graph import Graph

Shapes = Mapping[str, Sequence[int]]


def import_model(source: Any, *, shapes: Shapes | None = None) -> Graph:
    """Read a network and translate it to an integer graph.

    Parameters
    ----------
    source
        Path of an ONNX file (float, QDQ or with quantised operators) or a TFLite file, an ONNX
        model, a program from `torch.export`, or a Relax module.
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
    network = read_model(source, shapes=shapes)
    graph = to_graph(network, name)
    network.forget()
    return graph


def read_model(source: Any, *, shapes: Shapes | None = None) -> OnnxNetwork:
    """Read a network, as `import_model` does, in the operators of ONNX."""
    is_path, kind = isinstance(source, str | Path), type(source).__module__.split(".")[0]
    if is_path and Path(source).suffix == ".tflite":
        from vtaops.frontends.tflite import read_tflite

        return read_tflite(Path(source), shapes)
    if kind == "torch":
        from vtaops.frontends.torch import read_torch

        return read_torch(source)
    if kind == "tvm":
        from vtaops.frontends.relax import read_relax

        return read_relax(source)
    if not is_path and kind != "onnx":
        raise ModelError(
            f"{type(source).__name__} is not a model; give a path, an ONNX model, a program of "
            "torch.export or a Relax module"
        )
    from vtaops.frontends.onnx import read_onnx

    return read_onnx(source, shapes)
