"""Residual additions: the pair between a convolution and the addition that it ends in is taken out.

So the file itself says what VTA computes: the residual joins the exact sum of the convolution, and
the result is rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtaops.quantization.onnx_files import Arrays, consumers, initializers, producers

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

LEAST, GREATEST = 64, 1 << 15
"""Factors that a residual may have: its scale over that of the sums (docs/quantization.md)."""


def join_residuals(model: ModelProto) -> int:
    """Take such pairs out of a QDQ model in place; return how many.

    A pair stays where somebody else reads it, or where the residual's step would need a factor of
    the sums that hardware has not: below 64 and no whole number, or above 2^15.
    """
    readers, writers, constants = consumers(model), producers(model), initializers(model)
    order = {node.output[0]: index for index, node in enumerate(model.graph.node)}
    outputs = {value.name for value in model.graph.output}
    joined, dead = 0, []
    for node in model.graph.node:
        if node.op_type != "Add":
            continue
        pairs = [_pair(name, readers, writers, outputs) for name in node.input]
        found = [
            (order[pair[0].output[0]], index, pair)
            for index, pair in enumerate(pairs)
            if pair is not None and _fits(pair[0], node.input[1 - index], writers, constants)
        ]
        if found:
            _, index, (convolution, *pair) = max(found, key=lambda each: each[:2])
            node.input[index] = convolution.output[0]
            dead.extend(pair)
            joined += 1
    for node in dead:
        model.graph.node.remove(node)
    return joined


def _pair(
    name: str,
    readers: dict[str, list[NodeProto]],
    writers: dict[str, NodeProto],
    outputs: set[str],
) -> tuple[NodeProto, NodeProto, NodeProto] | None:
    """Return convolution, quantize and dequantize that end in a tensor, if nobody else reads."""
    chain = []
    for kind in ("DequantizeLinear", "QuantizeLinear", "Conv"):
        node = writers.get(name)
        if node is None or node.op_type != kind:
            return None
        if len(readers[name]) != 1 or name in outputs:
            return None
        chain.append(node)
        name = node.input[0]
    dequantize, quantize, convolution = chain
    return convolution, quantize, dequantize


def _fits(
    convolution: NodeProto, residual: str, writers: dict[str, NodeProto], constants: Arrays
) -> bool:
    """Whether the residual's scale over that of the sums is a factor that hardware has."""
    scales = []
    for name in (residual, *convolution.input[:2]):
        node = writers.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return False
        scales.append(constants[node.input[1]].astype(np.float64))
    if residual in constants or writers[residual].input[0] in constants:
        return False
    factor = scales[0] / (scales[1] * scales[2])
    whole = np.rint(factor) == factor
    return bool(((whole | (factor >= LEAST)) & (factor >= 1) & (factor <= GREATEST)).all())
