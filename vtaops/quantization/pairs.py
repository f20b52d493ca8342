"""Remove pairs of quantize and dequantize that VTA does not need from a QDQ model.

A residual addition removes the pair after a convolution: the residual is added to the exact sum,
and the result is rounded once. An activation that rounding already performs is removed with the
pair before it. ONNX Runtime's quantiser removes every Relu and Clip of asymmetric grids, because it
assumes that the grid is that of the activation's own range. Here, tensors that are concatenated or
pooled share a grid, and powers of two are coarser than the range; therefore only activations that
keep every value of their grid are removed.

Residuals come first: later, a pair behind a convolution may be all that is left of an activation.
"""

from __future__ import annotations

import numpy as np

from vtaops.graph.grid import Range
from vtaops.graph.onnx_files import (
    Arrays,
    Connections,
    ModelProto,
    NodeProto,
    producers,
)
from vtaops.quantization.scales import SATURATING

LEAST, GREATEST = 64, 1 << 15
"""Factors that hardware supports for a residual: its scale over that of the sums
(docs/quantization.md)."""


def remove_pairs(model: ModelProto) -> None:
    """Remove the pairs and activations that VTA does not need from a QDQ model in place."""
    _join_residuals(model)
    _drop_idle_activations(model)


def _join_residuals(model: ModelProto) -> None:
    """Remove the pairs between convolutions and additions, before any activation is dropped.

    A pair stays if something else reads it, or if hardware does not support the residual's factor:
    one below 64 that is not a whole number, or one above 2^15.
    """
    tensors = Connections(model)
    order = {node.output[0]: index for index, node in enumerate(model.graph.node)}
    dead = []
    for node in model.graph.node:
        if node.op_type != "Add" or not _is_rounded(node, tensors):
            continue
        chains = []
        for index, name in enumerate(node.input):
            chain = tensors.chain(name, "DequantizeLinear", "QuantizeLinear", "Conv")
            if chain and _fits(chain[-1], node.input[1 - index], tensors):
                chains.append((order[chain[-1].output[0]], index, chain))
        if chains:
            _, index, (*pair, convolution) = max(chains, key=lambda each: each[:2])
            node.input[index] = convolution.output[0]
            dead += pair
    for node in dead:
        model.graph.node.remove(node)


def images(model: ModelProto, quantized: ModelProto) -> dict[str, str]:
    """Return the dequantised tensor that nodes of a QDQ model read for those of its float model.

    Outputs that are dequantised have the same name in both.
    """
    written, twins = producers(quantized), {node.name: node for node in quantized.graph.node}
    dequantized = {name for name, node in written.items() if node.op_type == "DequantizeLinear"}
    image_of = {v.name: v.name for v in model.graph.output if v.name in dequantized}
    for node in model.graph.node:
        read = twins[node.name].input if node.name in twins else []
        image_of |= {
            n: image for n, image in zip(node.input, read, strict=False) if image in dequantized
        }
    return image_of


def _is_rounded(node: NodeProto, tensors: Connections) -> bool:
    """Return whether a result is quantised, maybe behind activations, and read by nothing else."""
    reader = tensors.only_reader(node.output[0])
    while reader is not None and reader.op_type in SATURATING:
        reader = tensors.only_reader(reader.output[0])
    return reader is not None and reader.op_type == "QuantizeLinear"


def _fits(convolution: NodeProto, residual: str, tensors: Connections) -> bool:
    """Return whether hardware supports the residual's scale over that of the sums as a factor."""
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


def _drop_idle_activations(model: ModelProto) -> None:
    """Remove activations between two pairs of one grid, all of whose values they keep.

    Nothing else reads the input of such an activation. The pair before it is removed, so that the
    pair behind it saturates in its place: no later pass may remove that.
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


def _is_idle(activation: NodeProto, before: NodeProto, after: NodeProto, constants: Arrays) -> bool:
    """Return whether both grids are equal and lie within the bounds of the activation."""
    ends = [_ends(pair, constants) for pair in (before, after)]
    low, high = _bounds(activation, constants)
    return ends[0] == ends[1] and low <= ends[0][0] and ends[0][1] <= high


def _ends(quantize: NodeProto, constants: Arrays) -> Range:
    """Return the minimum and maximum of a grid, which determine its step."""
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
