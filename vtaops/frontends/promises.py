"""How far a graph's numbers may be from those of its file before they are rounded.

Each bound is a promise of docs/quantization.md, in steps of a node's result. Where integer factors
could be exact, the bound is their own error, but never more than the promise.
"""

from __future__ import annotations

from functools import singledispatch

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
    return _slack(node.op, node)


@singledispatch
def _slack(op: ops.GraphOperator, node: Node) -> float:
    return 0.0


@_slack.register
def _slack_of_host(op: ops.Host | ops.FloatOperator, node: Node) -> float:
    return HOST_ERROR * REACH


@_slack.register
def _slack_of_lookup_table(op: ops.LookupTable, node: Node) -> float:
    return FUNCTION_ERROR


@_slack.register
def _slack_of_requantized(op: ops.Requantized, node: Node) -> float:
    assert isinstance(op.requantization, Requantization)
    return _rounding(op.requantization, REACH * REACH)


@_slack.register
def _slack_of_matmul(op: ops.Matmul, node: Node) -> float:
    return _rounding(op.requantization, node.inputs[0].shape[-1] * REACH * REACH)


@_slack.register
def _slack_of_weighted(op: ops.Weighted, node: Node) -> float:
    scaling = op.requantization
    bias = float(_ratio(scaling).max()) / 2  # a real one is rounded to the sums, also to none
    return _rounding(scaling, op.bound(node.inputs[0])) + bias


@_slack.register
def _slack_of_convolution(op: ops.Convolution, node: Node) -> float:
    error = _slack_of_weighted(op, node)
    if op.residual_factor is None:
        return error
    exact = node.inputs[1].scale / node.outputs[0].scale
    made = op.residual_factor * _ratio(op.requantization)
    return error + REACH * min(float(np.abs(made - exact).max()), exact * FACTOR_ERROR)


@_slack.register
def _slack_of_add(op: ops.Add, node: Node) -> float:
    unit = _ratio(op.requantization)
    exact = [tensor.scale / node.outputs[0].scale for tensor in node.inputs]
    made = sum(
        float(np.abs(abs(f) * unit - e).max()) for f, e in zip(op.factors, exact, strict=True)
    )
    return FLOAT_ERROR * REACH * sum(exact) + REACH * min(made, sum(exact) * SUM_ERROR)


@_slack.register
def _slack_of_average_pool(op: ops.AveragePool, node: Node) -> float:
    data = node.inputs[0]
    exact, count = data.scale / node.outputs[0].scale, op.window(data).count
    scaling = op.requantization
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
