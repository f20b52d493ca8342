"""Factors and terms behind a convolution move into its weights and its bias.

Exact in float; on integers each of them would be a rounding of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.shapes import Array
from vtaops.quantization.onnx_files import (
    Arrays,
    Connections,
    attributes,
    replace_initializer,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


AFFINE = frozenset({"Mul", "Div", "Add", "Sub"})


def fold_affine(model: ModelProto) -> int:
    """Fold such operators into convolutions in place; return how many."""
    tensors = Connections(model)
    folded: list[NodeProto] = []
    for node in model.graph.node:
        found = _weight_and_bias(node, tensors.constants)
        if found is None:
            continue
        weight, bias = found
        axis = int(node.op_type == "ConvTranspose")
        name, chain = node.output[0], len(folded)
        while (reader := tensors.only_reader(name)) is not None:
            function = _factor_and_term(reader, name, tensors.constants, len(bias))
            if function is None:
                break
            factor, term = function
            weight = weight * np.expand_dims(factor, tuple({0, 1, 2, 3} - {axis}))
            bias = bias * factor + term
            folded.append(reader)
            name = reader.output[0]
        if len(folded) > chain:
            names = [f"{name}_weight", f"{name}_bias"]
            for each, value in zip(names, (weight, bias), strict=True):
                replace_initializer(model, each, value.astype(np.float32))
            node.input[1:] = names
            node.output[0] = name
    for node in folded:
        model.graph.node.remove(node)
    return len(folded)


def _weight_and_bias(node: NodeProto, constants: Arrays) -> tuple[Array, Array] | None:
    """Return what a convolution multiplies by and adds, float64; None if it is none of constants.

    What has a bias of another length is no convolution; ONNX Runtime refuses it when it runs.
    """
    transposed = node.op_type == "ConvTranspose"
    if not (node.op_type == "Conv" or (transposed and attributes(node).get("group", 1) == 1)):
        return None
    if any(name not in constants for name in node.input[1:]):
        return None
    weight, *given = (constants[name].astype(np.float64) for name in node.input[1:])
    channels = weight.shape[int(transposed)]
    bias = given[0] if given else np.zeros(channels)
    return (weight, bias) if bias.shape == (channels,) else None


def _factor_and_term(
    node: NodeProto, name: str, constants: Arrays, channels: int
) -> tuple[Array, Array] | None:
    """Return what a node does to a tensor as ``factor * x + term`` for each channel, or None."""
    if node.op_type not in AFFINE:
        return None
    first = node.input[0] == name
    other = constants.get(node.input[1 if first else 0])
    if other is None or (node.op_type == "Div" and not first):
        return None
    shape = (1,) * (4 - other.ndim) + other.shape
    if shape not in ((1, 1, 1, 1), (1, channels, 1, 1)):
        return None
    value = np.broadcast_to(other.reshape(-1).astype(np.float64), (channels,))
    one, zero = np.ones(channels), np.zeros(channels)
    if node.op_type == "Mul":
        return value, zero
    if node.op_type == "Div":
        return 1 / value, zero
    if node.op_type == "Add":
        return one, value
    return (one, -value) if first else (-one, value)
