"""Pairs of quantize and dequantize that VTA does not need are taken out of a QDQ model.

A residual addition takes the pair behind a convolution out: the residual joins the exact sum, and
the result is rounded once. An activation that rounding does already takes the pair before it along:
ONNX Runtime's quantiser drops every Relu and Clip of asymmetric grids, because it takes for granted
that the grid is that of the activation's own range. Here a grid is shared with what the tensor is
concatenated or pooled with, and powers of two are coarser than the range; so only those go that
keep every value of their grid.
"""

from __future__ import annotations

import numpy as np

from vtaops.quantization.onnx_files import Arrays, Connections, ModelProto, NodeProto
from vtaops.quantization.scales import SATURATING, Range

LEAST, GREATEST = 64, 1 << 15
"""Factors that a residual may have: its scale over that of the sums (docs/quantization.md)."""


def join_residuals(model: ModelProto) -> int:
    """Take such pairs out of a QDQ model in place; return how many.

    A pair stays where somebody else reads it, or where the residual's step would need a factor of
    the sums that hardware has not: below 64 and no whole number, or above 2^15.
    """
    tensors = Connections(model)
    order = {node.output[0]: index for index, node in enumerate(model.graph.node)}
    dead = []
    for node in model.graph.node:
        if node.op_type != "Add":
            continue
        found = []
        for index, name in enumerate(node.input):
            chain = tensors.chain(name, "DequantizeLinear", "QuantizeLinear", "Conv")
            if chain and _fits(chain[-1], node.input[1 - index], tensors):
                found.append((order[chain[-1].output[0]], index, chain))
        if found:
            _, index, (*pair, convolution) = max(found, key=lambda each: each[:2])
            node.input[index] = convolution.output[0]
            dead += pair
    for node in dead:
        model.graph.node.remove(node)
    return len(dead) // 2


def _fits(convolution: NodeProto, residual: str, tensors: Connections) -> bool:
    """Whether the residual's scale over that of the sums is a factor that hardware has."""
    scales = []
    for name in (residual, *convolution.input[:2]):
        node = tensors.writers.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return False
        scales.append(tensors.constants[node.input[1]].astype(np.float64))
    if not tensors.constants.keys().isdisjoint((residual, tensors.writers[residual].input[0])):
        return False
    factor = scales[0] / (scales[1] * scales[2])
    whole = np.rint(factor) == factor
    return bool(((whole | (factor >= LEAST)) & (factor >= 1) & (factor <= GREATEST)).all())


def drop_idle_activations(model: ModelProto) -> int:
    """Take activations that change nothing out of a QDQ model in place; return how many.

    Such an activation stands between two pairs of one grid that has no value which it would change,
    and nobody else reads what it reads. It goes with the pair before it.
    """
    tensors = Connections(model)
    dead = []
    for node in model.graph.node:
        if node.op_type not in SATURATING:
            continue
        pair = tensors.chain(node.input[0], "DequantizeLinear", "QuantizeLinear")
        again = tensors.readers.get(node.output[0], [])
        if pair is None or [reader.op_type for reader in again] != ["QuantizeLinear"]:
            continue
        entering = pair[1].input[0]
        alone = entering in tensors.writers and tensors.only_reader(entering) is not None
        if alone and _is_idle(node, pair[1], again[0], tensors.constants):
            writer = tensors.writers[node.output[0]] = tensors.writers[entering]
            writer.output[list(writer.output).index(entering)] = node.output[0]
            dead += [*pair, node]
    for node in dead:
        model.graph.node.remove(node)
    return len(dead) // 3


def _is_idle(activation: NodeProto, before: NodeProto, after: NodeProto, constants: Arrays) -> bool:
    """Whether both grids are equal and lie within the bounds of the activation."""
    ends = [_ends(pair, constants) for pair in (before, after)]
    low, high = _bounds(activation, constants)
    return ends[0] == ends[1] and low <= ends[0][0] and ends[0][1] <= high


def _ends(quantize: NodeProto, constants: Arrays) -> Range:
    """Return the least and the greatest value of a grid; both together give its step."""
    scale, zero = (constants[name] for name in quantize.input[1:3])
    kind = np.iinfo(zero.dtype)
    return float((kind.min - int(zero)) * scale), float((kind.max - int(zero)) * scale)


def _bounds(activation: NodeProto, constants: Arrays) -> Range:
    """Return the bounds of an activation; a bound computed at run time is NaN."""
    default = (0.0 if activation.op_type == "Relu" else -np.inf, np.inf)
    names = [*activation.input[1:], "", ""][:2]
    low, high = (
        float(constants.get(name, np.float32(np.nan))) if name else bound
        for name, bound in zip(names, default, strict=True)
    )
    return low, high
