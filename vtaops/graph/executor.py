"""Evaluate a graph in NumPy: run its operators in order by their `meaning`.

Also runs integer operators that stay on the host. Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.graph.graph import Graph, Node
from vtaops.graph.tensor import Tensor


def evaluate(graph: Graph, *arrays: npt.ArrayLike) -> tuple[Array, ...]:
    """Evaluate a graph on input arrays; return its outputs.

    Raises
    ------
    ShapeError
        If the arrays do not match the inputs.
    """
    values = evaluate_all(graph, *arrays)
    return tuple(values[tensor.name] for tensor in graph.outputs)


def evaluate_all(graph: Graph, *arrays: npt.ArrayLike) -> dict[str, Array]:
    """Evaluate a graph; return all tensors' values by name. Raises as `evaluate`."""
    values = checked_inputs(graph.inputs, arrays)
    for node in graph.nodes:
        values.update(evaluate_node(node, values))
    return values


def checked_inputs(inputs: Sequence[Tensor], arrays: Sequence[npt.ArrayLike]) -> dict[str, Array]:
    """Return the arrays by input name.

    Raises
    ------
    ShapeError
        If their number, shapes or dtypes do not match.
    """
    if len(arrays) != len(inputs):
        names = ", ".join(tensor.name for tensor in inputs)
        raise ShapeError(f"{len(arrays)} arrays given; the network takes {len(inputs)}: {names}")
    values = {}
    for tensor, array in zip(inputs, arrays, strict=True):
        data = np.asarray(array)
        if data.shape != tensor.shape or data.dtype != np.dtype(tensor.dtype):
            raise ShapeError(
                f"{tensor.name} has shape {data.shape} and dtype {data.dtype}; the network takes "
                f"shape {tensor.shape} and dtype {tensor.dtype}"
            )
        values[tensor.name] = data
    return values


def evaluate_node(node: Node, values: dict[str, Array]) -> dict[str, Array]:
    """Evaluate one node; return its results by name.

    Raises
    ------
    ShapeError
        If a host function returns results of undeclared number, shape or dtype.
    """
    made = node.op.meaning(node.inputs, [values[tensor.name] for tensor in node.inputs])
    results = made if isinstance(made, tuple) else (made,)
    if len(results) != len(node.outputs):
        raise ShapeError(f"{node.name} made {len(results)} results instead of {len(node.outputs)}")
    for tensor, array in zip(node.outputs, results, strict=True):
        if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
            raise ShapeError(
                f"{node.name} made {array.dtype}{list(array.shape)} instead of "
                f"{tensor.dtype}{list(tensor.shape)}"
            )
    return {tensor.name: array for tensor, array in zip(node.outputs, results, strict=True)}
