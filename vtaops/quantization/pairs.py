"""Pairs of quantize and dequantize in a QDQ model: which of its tensors have them, which need none.

A residual addition removes the pair after a convolution: the residual is added to the exact sum,
and the result is rounded once.
"""

from __future__ import annotations

import numpy as np

from vtaops.graph.onnx_files import Connections, ModelProto, NodeProto, graph_inputs, producers
from vtaops.quantization.scales import SATURATING

LEAST, GREATEST = 64, 1 << 15
"""Factors that hardware supports for a residual: its scale over that of the sums
(docs/quantization.md)."""


def join_residuals(model: ModelProto) -> None:
    """Remove the pairs between convolutions and additions in place.

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


def operators_of(model: ModelProto) -> dict[str, str]:
    """Return the operator that writes each tensor, or what it is if none does."""
    operators = dict.fromkeys((tensor.name for tensor in model.graph.initializer), "constant")
    operators |= {value.name: "input" for value in graph_inputs(model)}
    return operators | {name: node.op_type for name, node in producers(model).items()}


def _is_rounded(node: NodeProto, tensors: Connections) -> bool:
    """Return whether a result is quantised, maybe behind activations, and read by nothing else."""
    reader = tensors.only_reader(node.output[0])
    if reader is None or reader.op_type not in SATURATING:
        return reader is not None and reader.op_type == "QuantizeLinear"
    return _is_rounded(reader, tensors)


def _fits(convolution: NodeProto, residual: str, tensors: Connections) -> bool:
    """Return whether hardware supports the residual's scale over that of the sums as a factor."""
    pairs = [tensors.writers.get(name) for name in (residual, *convolution.input[:2])]
    found = [pair for pair in pairs if pair is not None and pair.op_type == "DequantizeLinear"]
    if len(found) < len(pairs) or found[0].input[0] in tensors.constants:
        return False
    added, data, weight = (tensors.constants[p.input[1]].astype(np.float64) for p in found)
    factor = added / (data * weight)
    whole = np.rint(factor) == factor
    return bool(((whole | (factor >= LEAST)) & (factor >= 1) & (factor <= GREATEST)).all())
