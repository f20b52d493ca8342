"""Float operators that a graph defines bit for bit, so that the host needs no function."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.constants import number, real
from vtaops.frontends.steps import reduced_axes
from vtaops.frontends.values import NotTranslated, OnnxNetwork, Value
from vtaops.graph import AddTerm, GraphOperator, LayerNorm, Softmax

OperatorMatch = tuple[GraphOperator, list[Value]] | None
"""An operator and its inputs."""

MASKING = -1e9
"""A mask holds numbers of at most this in the places that do not count; sums forget the other."""


def float_operator(value: Value) -> OperatorMatch:
    """Return the graph operator of a float32 value; None if there is none."""
    rule = _RULES.get(value.op)
    if rule is None or value.dtype != "float32":
        return None
    try:
        return rule(value)
    except NotTranslated:
        return None


def _softmax(value: Value) -> OperatorMatch:
    if not _is_last(value.attrs.get("axis", -1), value):
        return None
    total = value.first
    for data, mask in total.orders if total.op == "Add" else ():
        if data.shape == value.shape and _masks(mask):
            return Softmax(), [data, mask]
    return Softmax(), [total]


def _masks(value: Value) -> bool:
    """Return whether a value, which the host computes, is 0 or far below in each place."""
    while value.op in ("Unsqueeze", "Expand", "Reshape"):
        value = value.first
    if value.fixed or value.op != "Where":
        return False
    choice = [number(value.argument(index)) for index in (1, 2)]
    return 0 in choice and any(each is not None and each <= MASKING for each in choice)


def _layer_norm(value: Value) -> OperatorMatch:
    weight, extent = _term(value.argument(1)), value.static_shape[-1:]
    absent = value.argument(2) is None
    bias = np.zeros(extent, np.float32) if absent else _term(value.argument(2))
    whole = not any(result.readers for result in value.node.results[1:])
    if not whole or not _is_last(value.attrs.get("axis", -1), value):
        return None
    if weight is None or bias is None or not weight.shape == bias.shape == extent:
        return None
    return LayerNorm(weight, bias, float(value.attrs.get("epsilon", 1e-5))), [value.first]


def _norm(value: Value) -> OperatorMatch:
    """Return an RMS norm in single operators: a layer norm, if it is of what differs from a mean.

    The mean is that of a row.
    """
    extent, normal = value.static_shape[-1:], value
    weight = np.ones(extent, np.float32)
    for data, constant in value.orders if value.op == "Mul" else ():
        term = _term(constant)
        if term is not None and data.shape == value.shape:
            weight, normal = term, data
    quotient = _over_root(normal)
    if quotient is None or weight.shape not in ((), extent):
        return None
    x, epsilon = quotient
    data, mean = x.orders[0] if x.op == "Sub" else (x, x)
    centered = _averaged(mean) is data
    weight = np.broadcast_to(weight, extent).copy()
    norm = LayerNorm(weight, np.zeros_like(weight), epsilon, centered=centered)
    return norm, [data if centered else x]


def _over_root(value: Value) -> tuple[Value, float] | None:
    """Return x and epsilon if a value is ``x / sqrt(mean(x * x) + epsilon)``; else None."""
    for x, root in _quotients(value):
        if root.op == "Sqrt" and x.shape == value.shape:
            epsilon = _beside_mean_square(root.first, x)
            if epsilon is not None:
                return x, epsilon
    return None


def _quotients(value: Value) -> Iterator[tuple[Value, Value]]:
    """Yield x and y of all quotients x / y that a value is."""
    if value.op == "Div":
        yield value.orders[0]
    for x, factor in value.orders if value.op == "Mul" else ():
        if factor.op == "Reciprocal":
            yield x, factor.first
        elif factor.op == "Div" and number(factor.first) == 1:
            yield x, factor.orders[0][1]


def _beside_mean_square(total: Value, x: Value) -> float | None:
    """Return what is added to the mean of the squares of x along its last axis, if it is so."""
    for mean, constant in total.orders if total.op == "Add" else ():
        square = _averaged(mean)
        if square is not None and _is_square(square, x):
            return number(constant)
    return None


def _averaged(mean: Value) -> Value | None:
    """Return what a value is the mean of along the last axis, which it keeps; else None."""
    if mean.op != "ReduceMean" or not mean.attrs.get("keepdims", 1):
        return None
    return mean.first if reduced_axes(mean) == [len(mean.static_shape) - 1] else None


def _is_square(value: Value, x: Value) -> bool:
    if value.op == "Mul":
        return value.args == (x, x)
    return value.op == "Pow" and value.first is x and number(value.argument(1)) == 2


def row_norms(network: OnnxNetwork) -> list[tuple[Value, Value]]:
    """Return the RMS norms that stand as several operators: what each reads, and its result."""
    inputs: dict[Value, Value] = {}
    for value in network.values:
        if value.op in ("Mul", "Div") and (step := float_operator(value)):
            inputs[value] = step[1][0]
            for inner in inputs.keys() & {*value.args}:  # without the weights
                del inputs[inner]
    return [(data, value) for value, data in inputs.items()]


def _add(value: Value) -> OperatorMatch:
    shape = value.static_shape
    for data, constant in value.orders:
        term = _term(constant)
        if term is None or data.fixed or data.shape != shape:
            continue
        if shape[len(shape) - term.ndim :] == term.shape:
            return AddTerm(term), [data]
    return None


_RULES = {
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "Mul": _norm,
    "Div": _norm,
    "Add": _add,
}


def _is_last(axis: int, value: Value) -> bool:
    return axis in (-1, len(value.static_shape) - 1)


def _term(value: Value | None) -> Array | None:
    """Return a float32 constant without leading axes of one element.

    None if it is none, or larger than any float32.
    """
    array = real(value)
    if array is None or not (np.abs(array) <= np.finfo(np.float32).max).all():
        return None
    while array.ndim and len(array) == 1:
        array = array.squeeze(0)
    return array.astype(np.float32)
