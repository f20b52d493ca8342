"""Float operators that a graph defines bit for bit, so that the host computes them without TVM."""

from __future__ import annotations

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import AddTerm, GraphOperator, LayerNorm, Mean, Softmax
from vtaops.relax.values import Value, real

Found = tuple[GraphOperator, Value] | None
"""An operator and its input."""


def float_operator(value: Value) -> Found:
    """Return the graph operator of a float32 value; None if there is none."""
    rule = _RULES.get(value.op)
    return rule(value) if rule and value.dtype == "float32" else None


def _softmax(value: Value) -> Found:
    return (Softmax(), value.args[0]) if _is_last(value.attrs.axis, value) else None


def _layer_norm(value: Value) -> Found:
    data, attrs = value.args[0], value.attrs
    weight, bias = (_term(argument) for argument in value.args[1:])
    if weight is None or bias is None or len(attrs.axes) != 1 or not _is_last(attrs.axes[0], value):
        return None
    weight = weight if attrs.scale else np.ones_like(weight)
    bias = bias if attrs.center else np.zeros_like(bias)
    return LayerNorm(weight, bias, float(attrs.epsilon)), data


def _mean(value: Value) -> Found:
    axes = [int(axis) for axis in value.attrs.axis or ()]
    return (Mean(axes[0]), value.args[0]) if len(axes) == 1 and not value.attrs.keepdims else None


def _add(value: Value) -> Found:
    for data, constant in (value.args, value.args[::-1]):
        term = _term(constant)
        if term is None or data.fixed or data.shape != value.shape or term.ndim > len(data.shape):
            continue
        while term.ndim and term.shape[0] == 1:
            term = term[0]
        if data.shape[len(data.shape) - term.ndim :] == term.shape:
            return AddTerm(term), data
    return None


_RULES = {"nn.softmax": _softmax, "nn.layer_norm": _layer_norm, "mean": _mean, "add": _add}


def _is_last(axis: object, value: Value) -> bool:
    return int(str(axis)) in (-1, len(value.shape) - 1)


def _term(value: Value) -> Array | None:
    """Return a float32 constant; None if it is none, or larger than any float32."""
    found = real(value)
    if found is None or not (np.abs(found) <= np.finfo(np.float32).max).all():
        return None
    return found.astype(np.float32)
