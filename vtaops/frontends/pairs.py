"""QuantizeLinear and DequantizeLinear with what files may leave out, and the errors in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.frontends.constants import number
from vtaops.frontends.inference import dtype_of
from vtaops.frontends.values import NetworkBuilder, OnnxNode, Value

BEFORE_ROUNDING = ":float"
"""Ends the name of a float tensor of which the file has only the rounded integers."""


def add_pair(builder: NetworkBuilder, operator: OnnxNode) -> Value:
    """Add one half of a pair; a missing zero point becomes 0.

    Raises
    ------
    ModelError
        If scales or zero points are neither one nor one for each channel, or a zero point is not
        an integer.
    """
    data, scale, zero = operator.part(0)
    attrs = operator.attrs
    if data is None or scale is None:
        raise ModelError(f"{operator.label} has no scale")
    if zero is None:
        stated = dtype_of(attrs["output_dtype"]) if attrs.get("output_dtype") else "uint8"
        dtype = data.dtype if operator.op == "DequantizeLinear" else stated
        zeros = np.zeros(scale.shape or (), np.dtype(dtype))
        zero = builder.constant(zeros, f"{operator.name}:zero_point")
    if not attrs.get("block_size"):
        _check_grid(operator.name, data, attrs, scale, zero)
    return builder.add(
        operator.op, data, scale, zero, name=operator.name, label=operator.label, **attrs
    )


def clipped_integers(builder: NetworkBuilder, operator: OnnxNode) -> Value | None:
    """Add a Clip of the integers of a QuantizeLinear, as a Clip of the numbers that they stand for.

    Returns
    -------
    Value or None
        The integers; None if the Clip reads something else, or bounds or grid depend on data.
    """
    rounded, *given = operator.args
    if rounded is None or rounded.op != "QuantizeLinear" or rounded.fixed:
        return None
    grid, name, label = rounded.args[1:], operator.name, operator.label
    bounds = _dequantized(builder, name, given, grid)
    if bounds is None:
        return None
    data = builder.add("DequantizeLinear", rounded, *grid, name=f"{name}:real", label=label)
    clipped = builder.add("Clip", data, *bounds, name=name + BEFORE_ROUNDING, label=label)
    return builder.add("QuantizeLinear", clipped, *grid, name=name, label=label, **rounded.attrs)


def _dequantized(
    builder: NetworkBuilder,
    name: str,
    bounds: Sequence[Value | None],
    grid: Sequence[Value | None],
) -> list[Value | None] | None:
    """Return bounds of integers as real numbers; None if something depends on data."""
    scale, zero = map(number, grid)
    found: list[Value | None] = []
    for bound in bounds:
        end = number(bound)
        if bound is not None and None in (end, scale, zero):
            return None
        real = np.float32(((end or 0) - (zero or 0)) * (scale or 0))
        found.append(bound and builder.constant(np.asarray(real), f"{name}:bound"))
    return found


def _check_grid(
    name: str, data: Value, attrs: Mapping[str, Any], scale: Value, zero: Value
) -> None:
    axis, extents = int(attrs.get("axis", 1)), data.shape or ()
    channels = extents[axis] if -len(extents) <= axis < len(extents) else 1
    for parameter, what in ((scale, "scales"), (zero, "zero points")):
        count = math.prod(parameter.shape or ())
        if count not in (1, channels):
            raise ModelError(
                f"the tensor {name!r} of shape {extents} is quantised with {count} {what} "
                f"along its axis {axis}; give one, or one for each of its {channels} channels"
            )
