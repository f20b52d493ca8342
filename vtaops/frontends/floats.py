"""Float operators that a graph defines bit for bit, so that the host needs no function."""

from __future__ import annotations

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
    weight, bias = _term(value.argument(1)), _term(value.argument(2))
    whole = value.node is not None and not any(result.readers for result in value.node.results[1:])
    if weight is None or not whole or not _is_last(value.attrs.get("axis", -1), value):
        return None
    bias = np.zeros_like(weight) if bias is None else bias
    extent = value.static_shape[-1:]
    if weight.shape != extent or bias.shape != extent:
        return None
    return LayerNorm(weight, bias, float(value.attrs.get("epsilon", 1e-5))), [value.first]


def _product(value: Value) -> OperatorMatch:
    """Return an RMS or layer norm in single operators, maybe with weights."""
    extent = value.static_shape[-1:]
    for normal, constant in value.orders:
        weight = _term(constant)
        if weight is None or normal.shape != value.shape:
            continue
        norm = _over_root(normal)
        if norm is None or weight.shape[-1:] not in ((), (1,), extent) or weight.size > extent[0]:
            return None
        return _normalized(np.broadcast_to(weight.reshape(-1), extent).copy(), *norm)
    return _quotient(value)


def _quotient(value: Value) -> OperatorMatch:
    """Return an RMS or layer norm in single operators, without weights."""
    norm = _over_root(value)
    if norm is None:
        return None
    return _normalized(np.ones(value.static_shape[-1], np.float32), *norm)


def _normalized(weight: Array, x: Value, epsilon: float) -> OperatorMatch:
    """Return the RMS norm of x: a layer norm, if x is what differs from the mean of its row."""
    data = _before_centering(x)
    norm = LayerNorm(weight, np.zeros_like(weight), epsilon, centered=data is not None)
    return norm, [data or x]


def _before_centering(x: Value) -> Value | None:
    """Return what a value is less the mean of its row, if it is that."""
    data, mean = x.args if x.op == "Sub" else (None, None)
    if data is None or mean is None or mean.op != "ReduceMean" or mean.args[0] is not data:
        return None
    return data if _is_mean_of_row(mean) else None


def _over_root(value: Value) -> tuple[Value, float] | None:
    """Return x and epsilon if a value is ``x / sqrt(mean(x * x) + epsilon)``; else None."""
    pairs = value.orders[:1] if value.op == "Div" else value.orders
    for x, factor in pairs if value.op in ("Mul", "Div") else []:
        root = factor if value.op == "Div" else _divisor(factor)
        if root is not None and root.op == "Sqrt":
            epsilon = _beside_mean_square(root.first, x)
            if epsilon is not None and x.shape == value.shape:
                return x, epsilon
    return None


def _divisor(value: Value) -> Value | None:
    """Return what 1 is divided by; None if a value is no reciprocal."""
    if value.op == "Reciprocal":
        return value.first
    return value.argument(1) if value.op == "Div" and number(value.first) == 1 else None


def _beside_mean_square(total: Value, x: Value) -> float | None:
    """Return what is added to the mean of the squares of x along its last axis, if it is so."""
    for mean, constant in total.orders if total.op == "Add" else ():
        epsilon = number(constant)
        if epsilon is None or mean.op != "ReduceMean":
            continue
        return epsilon if _is_mean_of_row(mean) and _is_square(mean.first, x) else None
    return None


def _is_mean_of_row(mean: Value) -> bool:
    """Return whether a mean is along the last axis, which it keeps."""
    return bool(mean.attrs.get("keepdims", 1)) and reduced_axes(mean) == [
        len(mean.static_shape) - 1
    ]


def _is_square(value: Value, x: Value) -> bool:
    if value.op == "Mul":
        return value.args == (x, x)
    return value.op == "Pow" and value.first is x and number(value.argument(1)) == 2


def row_norms(network: OnnxNetwork) -> list[tuple[Value, Value]]:
    """Return the RMS norms that stand as several operators: what each reads, and its result."""
    inputs: dict[Value, Value] = {}
    for value in network.values:
        step = float_operator(value) if value.op in ("Mul", "Div") else None
        if step is not None:
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
        while term.ndim and term.shape[0] == 1:
            term = term[0]
        if term.ndim <= len(shape) and shape[len(shape) - term.ndim :] == term.shape:
            return AddTerm(term), [data]
    return None


_RULES = {
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "Mul": _product,
    "Div": _quotient,
    "Add": _add,
}


def _is_last(axis: int, value: Value) -> bool:
    return axis in (-1, len(value.static_shape) - 1)


def _term(value: Value | None) -> Array | None:
    """Return a float32 constant; None if it is none, or larger than any float32."""
    array = real(value)
    if array is None or not (np.abs(array) <= np.finfo(np.float32).max).all():
        return None
    return array.astype(np.float32)
