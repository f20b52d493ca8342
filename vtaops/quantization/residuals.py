"""Residual additions: the pair between a convolution and the addition that it ends in is taken out.

So the file itself says what VTA computes: the residual joins the exact sum of the convolution, and
the result is rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtaops.quantization.onnx_files import Connections

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

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
