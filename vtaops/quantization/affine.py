"""Factors and terms behind a convolution move into its weights and its bias.

Exact in float; on integers each of them would be a rounding of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.quantization.onnx_files import attributes, consumers, initializers, replace_initializer

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    Array = np.ndarray[Any, Any]

AFFINE = frozenset({"Mul", "Div", "Add", "Sub"})


def fold_affine(model: ModelProto) -> int:
    """Fold such operators into convolutions in place; return how many."""
    constants, readers = initializers(model), consumers(model)
    outputs = {value.name for value in model.graph.output}
    folded = []
    for node in model.graph.node:
        if node.op_type not in ("Conv", "ConvTranspose") or node.input[1] not in constants:
            continue
        if node.op_type == "ConvTranspose" and attributes(node).get("group", 1) != 1:
            continue
        axis = int(node.op_type == "ConvTranspose")
        weight = constants[node.input[1]].astype(np.float64)
        bias = np.zeros(weight.shape[axis])
        if len(node.input) == 3:
            if node.input[2] not in constants:
                continue
            bias = constants[node.input[2]].astype(np.float64)
        if bias.shape != (weight.shape[axis],):
            continue  # no convolution; ONNX Runtime refuses it when it runs
        chain: list[NodeProto] = []
        name = node.output[0]
        while len(readers.get(name, ())) == 1 and name not in outputs:
            (reader,) = readers[name]
            found = _factor_and_term(reader, name, constants, len(bias))
            if found is None:
                break
            factor, term = found
            weight = weight * np.expand_dims(factor, tuple({0, 1, 2, 3} - {axis}))
            bias = bias * factor + term
            chain.append(reader)
            name = reader.output[0]
        if not chain:
            continue
        names = [f"{name}_weight", f"{name}_bias"]
        for each, value in zip(names, (weight, bias), strict=True):
            replace_initializer(model, each, value.astype(np.float32))
        del node.input[1:]
        node.input.extend(names)
        node.output[0] = name
        folded += chain
    for node in folded:
        model.graph.node.remove(node)
    return len(folded)


def _factor_and_term(
    node: NodeProto, name: str, constants: dict[str, Array], channels: int
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
