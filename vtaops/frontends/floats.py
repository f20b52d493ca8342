"""Float operators that a graph defines bit for bit, so that the host needs no function."""

from __future__ import annotations

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.constants import real
from vtaops.frontends.steps import NotTranslated, argument, first, reduced_axes, shape_of
from vtaops.frontends.values import Value
from vtaops.graph import AddTerm, GraphOperator, LayerNorm, Mean, Softmax

Found = tuple[GraphOperator, Value] | None
"""An operator and its input."""


def float_operator(value: Value) -> Found:
    """Return the graph operator of a float32 value; None if there is none."""
    rule = _RULES.get(value.op)
    if rule is None or value.dtype != "float32":
        return None
    try:
        return rule(value)
    except NotTranslated:
        return None


def _softmax(value: Value) -> Found:
    return (Softmax(), first(value)) if _is_last(value.attrs.get("axis", -1), value) else None


def _layer_norm(value: Value) -> Found:
    weight, bias = _term(argument(value, 1)), _term(argument(value, 2))
    whole = value.node is not None and not any(result.readers for result in value.node.results[1:])
    if weight is None or not whole or not _is_last(value.attrs.get("axis", -1), value):
        return None
    bias = np.zeros_like(weight) if bias is None else bias
    extent = shape_of(value)[-1:]
    if weight.shape != extent or bias.shape != extent:
        return None
    return LayerNorm(weight, bias, float(value.attrs.get("epsilon", 1e-5))), first(value)


def _mean(value: Value) -> Found:
    axes = reduced_axes(value)
    kept = value.attrs.get("keepdims", 1)
    return (Mean(axes[0]), first(value)) if len(axes) == 1 and not kept else None


def _add(value: Value) -> Found:
    shape = shape_of(value)
    for data, constant in (value.args, value.args[::-1]):
        term = _term(constant)
        if term is None or data is None or data.fixed or data.shape != shape:
            continue
        while term.ndim and term.shape[0] == 1:
            term = term[0]
        if term.ndim <= len(shape) and shape[len(shape) - term.ndim :] == term.shape:
            return AddTerm(term), data
    return None


_RULES = {
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "ReduceMean": _mean,
    "Add": _add,
}


def _is_last(axis: int, value: Value) -> bool:
    return axis in (-1, len(shape_of(value)) - 1)


def _term(value: Value | None) -> Array | None:
    """Return a float32 constant; None if it is none, or larger than any float32."""
    found = real(value)
    if found is None or not (np.abs(found) <= np.finfo(np.float32).max).all():
        return None
    return found.astype(np.float32)
