"""How far a graph's numbers may be from those of its file before they are rounded.

Each bound is a promise of docs/quantization.md, in steps of a node's result. Where integer factors
could be exact, the bound is their own error, but never more than the promise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import Node, Quotient, Requantization
from vtaops.graph import operators as ops

MULTIPLIER_ERROR = 2.0**-16
"""Relative error of a 16-bit multiplier."""

FLOAT_ERROR = 2.0**-21
"""Error of float32 sums of a file's runtime, relative to the largest possible sum."""

FACTOR_ERROR = 1 / 128
"""Relative error of the factor of an average that uses only shifts, or of a residual's factor."""

SUM_ERROR = 2.0**-14
"""Relative error of the factors of an addition."""

FUNCTION_ERROR = 2.0**-6
"""Error of a table, whose function the file's runtime approximates, in steps."""

HOST_ERROR = 2.0**-12
"""Error of float functions, relative to the largest number of their result."""

REACH = 255
"""Largest magnitude of an integer less its zero point."""


def slack(node: Node) -> float:
    """Return how far a node's numbers before rounding may be from its file's, in steps."""
    op = node.op
    if isinstance(op, ops.Host | ops.FloatOperator):
        return HOST_ERROR * REACH
    if isinstance(op, ops.LookupTable):
        return FUNCTION_ERROR
    if isinstance(op, ops.Add):
        return _of_add(op, node)
    if isinstance(op, ops.AveragePool):
        return _of_average_pool(op, node)
    if isinstance(op, ops.Weighted):
        return _of_weighted(op, node)
    if not isinstance(op, ops.Requantized):
        return 0.0
    scaling: Any = op.requantization
    count = node.inputs[0].shape[-1] if isinstance(op, ops.Matmul) else 1
    return _rounding(scaling, count * REACH * REACH)


def _of_weighted(op: ops.Weighted, node: Node) -> float:
    scaling, residual = op.requantization, getattr(op, "residual_factor", None)
    bias = float(_ratio(scaling).max()) / 2  # a real one is rounded to the sums, also to none
    error = _rounding(scaling, op.bound(node.inputs[0])) + bias
    if residual is None:
        return error
    exact = node.inputs[1].scale / node.outputs[0].scale
    made = residual * _ratio(scaling)
    return error + REACH * min(float(np.abs(made - exact).max()), exact * FACTOR_ERROR)


def _of_add(op: ops.Add, node: Node) -> float:
    unit = _ratio(op.requantization)
    exact = [tensor.scale / node.outputs[0].scale for tensor in node.inputs]
    made = sum(
        float(np.abs(abs(f) * unit - e).max()) for f, e in zip(op.factors, exact, strict=True)
    )
    return FLOAT_ERROR * REACH * sum(exact) + REACH * min(made, sum(exact) * SUM_ERROR)


def _of_average_pool(op: ops.AveragePool, node: Node) -> float:
    data, scaling = node.inputs[0], op.requantization
    exact, count = data.scale / node.outputs[0].scale, op.window(data).count
    if isinstance(scaling, Quotient):
        return REACH * FLOAT_ERROR
    error = _rounding(scaling, REACH * count * op.factor)
    made = abs(float(_ratio(scaling).max()) * op.factor * count - exact)
    promised = exact * FACTOR_ERROR if scaling.right_shift is not None else 0.0
    return error + REACH * (promised if op.differs(data) else min(made, promised))


def _ratio(scaling: Requantization) -> Array:
    return np.asarray(scaling.multiplier / 2.0**scaling.shift)


def _rounding(scaling: Requantization, reach: float | Array) -> float:
    """Return the error of multipliers and of a runtime's sums that reach so far."""
    multipliers = 0.0 if scaling.right_shift is not None else (REACH + 1) * MULTIPLIER_ERROR
    return multipliers + FLOAT_ERROR * float(np.max(reach * _ratio(scaling)))
