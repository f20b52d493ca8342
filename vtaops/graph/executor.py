"""Evaluate a graph in NumPy: run its operators in order by their `reference`.

Also runs integer operators that stay on the host. Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, as_array
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


def evaluate_runs(
    graph: Graph, runs: Iterable[Sequence[npt.ArrayLike]]
) -> Iterator[tuple[Array, ...]]:
    """Yield the results of runs on arguments, each with the state that the one before left.

    Raises
    ------
    ArgumentError
        If there is no room for the rows of a run.
    """
    state = zeros(graph.tensors[name] for name in graph.state)
    for number, arrays in enumerate(runs):
        inputs = checked_inputs(graph.arguments, arrays) | state
        values = evaluate_all(graph, *(inputs[tensor.name] for tensor in graph.inputs))
        place = number * graph.new_rows
        state = {past: carried(graph, past, state[past], values, place) for past in state}
        yield tuple(values[tensor.name] for tensor in graph.results)


def zeros(tensors: Iterable[Tensor]) -> dict[str, Array]:
    """Return arrays of 0.0 by name."""
    return {t.name: np.full(t.shape, t.zero_point, t.dtype) for t in tensors}


def carried(
    graph: Graph, past: str, before: Array, values: Mapping[str, Array], place: int
) -> Array:
    """Return what state is after a run: what it made, or what it was with new rows at a place."""
    after: Array = values[graph.state[past]]
    if graph.row_axis(past) is not None:
        after, made = before.copy(), after
        after[graph.rows(past, place)] = made
    return after


def evaluate_all(graph: Graph, *arrays: npt.ArrayLike) -> dict[str, Array]:
    """Evaluate a graph; return all tensors' values by name. Raises as `evaluate`."""
    values = checked_inputs(graph.inputs, arrays)
    for node in graph.nodes:
        values.update(evaluate_node(node, values))
    return values


def batches(inputs: Sequence[Tensor], arrays: Sequence[npt.ArrayLike]) -> list[list[Array]]:
    """Return the arrays of each run: one, or several if each array holds as many batches.

    ``(8, 3, 224, 224)`` for an input of ``(1, 3, 224, 224)`` are eight. What does not fit is
    returned as it is, for `checked_inputs` to refuse.
    """
    values = [as_array("an input", array, ShapeError) for array in arrays]
    counts = {_count(value, tensor) for value, tensor in zip(values, inputs, strict=False)}
    count = counts.pop() if len(counts) == 1 and len(values) == len(inputs) else 0
    if count < 2:
        return [values]
    parts = [np.split(value, count) for value in values]
    return [list(part) for part in zip(*parts, strict=True)]


def _count(value: Array, tensor: Tensor) -> int:
    """Return how many batches of an input an array holds; 0 if it does not fit."""
    alike = value.ndim == len(tensor.shape) and value.shape[1:] == tensor.shape[1:]
    count, rest = divmod(value.size, max(1, tensor.elements))
    return count if alike and not rest else 0


def _converted(value: Any, tensor: Tensor) -> Array:
    """Return numbers in the type of an input: any for floats, lists if they have such numbers."""
    data, wanted = as_array(tensor.name, value, ShapeError), np.dtype(tensor.dtype)
    if wanted == np.float32 and data.dtype.kind in "fiu":
        return data.astype(np.float32, copy=False)
    if isinstance(value, list | tuple) and data.dtype.kind in "iu":
        exact = data.astype(wanted)
        return exact if np.array_equal(exact, data) else data
    return data


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
        data = _converted(array, tensor)
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
    made = node.op.reference(node.inputs, *(values[tensor.name] for tensor in node.inputs))
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
