"""QuantizeLinear and DequantizeLinear with what files may leave out, and the errors in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
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
