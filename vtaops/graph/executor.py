"""The meaning of a graph, in NumPy: what every device must equal, bit for bit.

Follows ``docs/quantization.md`` operator by operator and shares no code with the compiler or the
simulators. Sums of products go through float64 matrix products, which are exact below 2**53; all
else is int64. Also what runs integer operators that stay on the host. Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.base.exact import convolve, convolve_transposed, over_windows
from vtaops.base.shapes import Array
from vtaops.graph import operators as ops
from vtaops.graph.graph import Graph, Node
from vtaops.graph.operators import GraphOperator
from vtaops.graph.requantization import along
from vtaops.graph.tensor import Tensor


def evaluate(graph: Graph, *arrays: npt.ArrayLike) -> tuple[Array, ...]:
    """Return the outputs of a graph on arrays for its inputs.

    Raises
    ------
    ShapeError
        If the arrays are not what the inputs say.
    """
    values = evaluate_all(graph, *arrays)
    return tuple(values[tensor.name] for tensor in graph.outputs)


def evaluate_all(graph: Graph, *arrays: npt.ArrayLike) -> dict[str, Array]:
    """Return all values of a graph, by name; as `evaluate`."""
    values = checked_inputs(graph.inputs, arrays)
    for node in graph.nodes:
        values.update(evaluate_node(node, values))
    return values


def checked_inputs(inputs: Sequence[Tensor], arrays: Sequence[npt.ArrayLike]) -> dict[str, Array]:
    """Return arrays by the names of the inputs.

    Raises
    ------
    ShapeError
        If their number, shapes or dtypes are others.
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
    """Return the results of one node, by name.

    Raises
    ------
    ShapeError
        If a host function returns something else than it said.
    """
    made = _evaluate(node.op, node.inputs, [values[tensor.name] for tensor in node.inputs])
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


@singledispatch
def _evaluate(op: GraphOperator, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    raise UnsupportedError(f"the executor does not know {op.kind}")


def _real(tensor: Tensor, array: Array) -> Array:
    """Return ``value - zero_point``: the real value in steps of the scale."""
    return array.astype(np.int64) - tensor.zero_point


# ----------------------------------------------------------------------- sums of products


@_evaluate.register
def _(op: ops.Convolution, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    data = _real(tensors[0], arrays[0])
    acc = convolve(data, op.weight, op.window, op.groups).astype(np.int64)
    if op.bias is not None:
        acc += op.bias.astype(np.int64)[:, None, None]
    if op.residual_factor is not None:
        acc += _real(tensors[1], arrays[1]) * along(1, 4, op.residual_factor)
    return op.requantization.apply(acc)


@_evaluate.register
def _(op: ops.TransposedConvolution, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    *_, height, width = op.results(tensors)[0].shape
    data = _real(tensors[0], arrays[0])
    acc = convolve_transposed(data, op.weight, op.window, (height, width)).astype(np.int64)
    if op.bias is not None:
        acc += op.bias.astype(np.int64)[:, None, None]
    return op.requantization.apply(acc)


@_evaluate.register
def _(op: ops.Dense, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    data = _real(tensors[0], arrays[0]).astype(np.float64)
    acc = (data @ op.weight.T.astype(np.float64)).astype(np.int64)
    if op.bias is not None:
        acc += op.bias
    return op.requantization.apply(acc, axis=acc.ndim - 1)


@_evaluate.register
def _(op: ops.Matmul, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    a, b = (_real(t, x).astype(np.float64) for t, x in zip(tensors, arrays, strict=True))
    return op.requantization.apply((a @ b).astype(np.int64))


# ----------------------------------------------------------------------------- pooling


@_evaluate.register
def _(op: ops.MaxPool, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    return over_windows(np.maximum, arrays[0], op.window, -128)


@_evaluate.register
def _(op: ops.AveragePool, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    window, data = op.window(tensors[0]), _real(tensors[0], arrays[0])
    total = over_windows(np.add, data, window, 0)
    if not op.exclude_padding:
        return op.requantization.apply(total * op.factor)
    counts = np.multiply.outer(*op.counts(tensors[0]))
    result = np.empty(total.shape, np.int8)
    for count in np.unique(counts):
        factor, scaling = op.of_count(int(count), window.count)
        windows = counts == count
        result[..., windows] = scaling.apply(total[..., windows] * factor)
    return result


# ------------------------------------------------------------------------- elementwise


@_evaluate.register
def _(op: ops.Add, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    a, b = (_real(t, x) * f for t, x, f in zip(tensors, arrays, op.factors, strict=True))
    return op.requantization.apply(a + b)


@_evaluate.register
def _(op: ops.Multiply, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    a, b = (_real(t, x) for t, x in zip(tensors, arrays, strict=True))
    return op.requantization.apply(a * b)


@_evaluate.register
def _(op: ops.Requantize, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    return op.requantization.apply(_real(tensors[0], arrays[0]))


@_evaluate.register
def _(op: ops.LeakyRelu, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    value = _real(tensors[0], arrays[0])
    return op.requantization.apply(value * np.where(value >= 0, op.positive, op.negative))


@_evaluate.register
def _(op: ops.LookupTable, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    index = arrays[0].astype(np.int64) + 128
    if op.table.ndim == 1:
        return op.table[index]
    channels = along(1, index.ndim, np.arange(len(op.table)))
    return op.table[channels, index]


# ------------------------------------------------------------------------------ movement


@_evaluate.register
def _(op: ops.Concat, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    return np.concatenate(arrays, axis=op.axis)


@_evaluate.register
def _(op: ops.Upsample, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    return arrays[0].repeat(op.factors[0], axis=2).repeat(op.factors[1], axis=3)


@_evaluate.register
def _(op: ops.Pad, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    top, left, bottom, right = op.padding
    sides = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(arrays[0], sides, constant_values=tensors[0].zero_point)


@_evaluate.register
def _(op: ops.Slice, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    index = [slice(None)] * arrays[0].ndim
    index[op.axis] = slice(op.start, op.stop, op.step)
    return arrays[0][tuple(index)]


@_evaluate.register
def _(op: ops.ChannelShuffle, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    n, c, h, w = arrays[0].shape
    grouped = arrays[0].reshape(n, op.groups, c // op.groups, h, w)
    return grouped.swapaxes(1, 2).reshape(n, c, h, w)


@_evaluate.register
def _(op: ops.Reshape, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    return arrays[0].reshape(op.shape)


@_evaluate.register
def _(op: ops.Transpose, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    return arrays[0].transpose(op.axes)


# -------------------------------------------------------------------- the world outside


@_evaluate.register
def _(op: ops.Quantize, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    with np.errstate(over="ignore"):  # infinity is clipped like what is large
        steps = np.rint(arrays[0] / np.float32(op.scale)) + np.float32(op.zero_point)
    steps = np.where(np.isnan(steps), np.float32(op.zero_point), steps)
    return np.clip(steps, -128, 127).astype(np.int8)


@_evaluate.register
def _(op: ops.Dequantize, tensors: Sequence[Tensor], arrays: list[Array]) -> Any:
    steps = _real(tensors[0], arrays[0]).astype(np.float32)
    with np.errstate(over="ignore"):
        return np.multiply(steps, np.float32(tensors[0].scale))


@_evaluate.register
def _(op: ops.Host, tensors: Sequence[Tensor], arrays: list[Array]) -> tuple[Array, ...]:
    return op.function(*arrays)
