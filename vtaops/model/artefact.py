"""The model file: everything that a run needs, and nothing of the compiler.

A file of `vtaops.base.records`, whose content is a `Model`. Weights that a program has as an
image in tiles are stored as this image only. Other arrays are views of the file's bytes, so a model
loads as fast as its file is read and hashed, and host functions inflated. These are parts of ONNX
models, and their weights are floats. Reading a file never opens them: the first run that calls one
does.

Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.agreement import Agreement
from vtaops.base.errors import ProgramError
from vtaops.base.files import NETWORK
from vtaops.base.names import checked_call
from vtaops.base.records import Archive, Blobs, Kinds, Record
from vtaops.base.shapes import Array
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
from vtaops.model.checks import check_plan, check_stages, check_tensors
from vtaops.model.deflated import deflated, inflated
from vtaops.model.model import Model
from vtaops.program import file_format
from vtaops.program.region import Argument, HostStage, NodePlacement, Region, Stage

MAGIC = b"VTAMODEL"
FORMAT_VERSION = 12


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
        If the file cannot be read, or is not exactly what `Model.save` writes.
    """
    return _FILE.load(path)


# -------------------------------------------------------------------------------- records


@dataclass(frozen=True)
class GraphNode:
    """A node of a graph, with the names of its tensors."""

    operator: GraphOperator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _stand_in(value: Any, model: Model, blobs: Blobs) -> Any:
    """Return what is written for a part of a model."""
    if isinstance(value, Model):
        return Record("Model", _contents(value))
    if isinstance(value, Graph):
        return Record("Graph", _described(value))
    if isinstance(value, OnnxFunction):
        data = np.frombuffer(deflated(value.data), np.uint8)
        return Record("HostFunction", {"data": data, "nbytes": len(value.data)})
    if isinstance(value, HostFunction):
        raise ProgramError(
            f"the host function {type(value).__name__} is code of this process; a file holds ONNX "
            "models (vtaops.graph.onnx_function.OnnxFunction)"
        )
    if isinstance(value, np.ndarray) and value.dtype == np.int8 and value.ndim in (2, 4):
        return _tiled(value, kernel_layout(model.config), blobs) or value
    return value


def _tiled(weight: Array, layout: Layout, blobs: Blobs) -> Record | None:
    """Return weights as their image in tiles, if that is stored."""
    filters = weight.reshape(*weight.shape, *[1] * (4 - weight.ndim))
    for form in [layout, *[layout.shared] * has_nibbles(weight)]:
        image = form.pack(filters)
        if blobs.find(image.data) is not None:
            parts = {"image": image, "layout": form.text, "shape": weight.shape}
            return Record("Tiled", parts)
    return None


def _untiled(image: Array, layout: str, shape: tuple[int, ...]) -> Array:
    weight = Layout(layout).unpack(image, (*shape, *[1] * (4 - len(shape)))).reshape(shape)
    weight.flags.writeable = False
    return weight


def _host_function(data: Array, nbytes: int) -> HostFunction:
    return OnnxFunction(inflated(data.tobytes(), nbytes))


def _contents(model: Model) -> dict[str, Any]:
    """Return the arguments with which `_model` makes a model again.

    The stages come first: in their images the graph's weights are found.
    """
    same = {name: getattr(model, name) for name in ("stages", "graph", "config", "agreement")}
    return {**same, "capabilities": model.capabilities.name, "plan": model.plan}


def _model(
    stages: tuple[Stage, ...],
    graph: Graph,
    config: HardwareConfig,
    agreement: Agreement,
    capabilities: str,
    plan: tuple[NodePlacement, ...],
) -> Model:
    """Check the parts of a model against each other, and put them together."""
    check_stages(graph, stages, config.fingerprint)
    check_plan(graph, stages, plan)
    return Model(graph, config, find(capabilities), plan, stages, agreement)


def _described(graph: Graph) -> dict[str, Any]:
    """Return the arguments with which `_graph` makes a graph again."""

    def names(tensors: Sequence[Tensor]) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in tensors)

    return {
        "name": graph.name,
        "inputs": names(graph.inputs),
        "outputs": names(graph.outputs),
        "state": graph.state,
        "tensors": (*graph.inputs, *(t for node in graph.nodes for t in node.outputs)),
        "nodes": tuple(GraphNode(n.op, names(n.inputs), names(n.outputs)) for n in graph.nodes),
    }


def _graph(
    name: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    state: Mapping[str, str],
    tensors: tuple[Tensor, ...],
    nodes: tuple[GraphNode, ...],
) -> Graph:
    """Build a graph through the public interface, so that invalid graphs are rejected."""
    check_tensors(tensors)
    stated, graph = {tensor.name: tensor for tensor in tensors}, Graph(name)
    for tensor in inputs:
        graph.input_like(stated[tensor])
    for node in nodes:
        graph.add_many(
            node.operator,
            *(graph.tensors[tensor] for tensor in node.inputs),
            names=node.outputs,
            scales=[stated[tensor].scale for tensor in node.outputs],
        )
    if graph.tensors != stated:
        raise ProgramError("the tensors of the graph are not what its operators make")
    graph.output(*(graph.tensors[tensor] for tensor in outputs))
    graph.carry(state)
    return graph


def _is_operator(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, GraphOperator) and is_dataclass(kind)


_CLASSES = (
    *(Agreement, Argument, HostStage, NodePlacement, Region, Tensor),
    *(FineRequantization, Quotient, Requantization, TfliteRequantization),
    *filter(_is_operator, vars(operators).values()),
)
_KINDS: Kinds = {
    **file_format.KINDS,
    **{kind.__name__: kind for kind in _CLASSES},
    "Model": _model,
    "Graph": _graph,
    "GraphNode": GraphNode,
    "HostFunction": _host_function,
    "Tiled": _untiled,
}
"""What makes the records of a model, by name."""

_FILE = Archive("model", MAGIC, FORMAT_VERSION, NETWORK, Model, _KINDS, _stand_in)

dumps, loads, save = _FILE.dumps, _FILE.loads, _FILE.save
