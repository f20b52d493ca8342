"""Activations that rounding does already: a Relu between two pairs of one grid without negatives.

ONNX Runtime's quantiser drops every Relu and Clip of asymmetric grids, because it takes for granted
that the grid is that of the activation's own range. Here a grid is shared with what the tensor is
concatenated or pooled with, and powers of two are coarser than the range; so only those go that
keep every value of their grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vtaops.quantization.onnx_files import Arrays, consumers, initializers, producers
from vtaops.quantization.scales import SATURATING, Range

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def drop_idle_activations(model: ModelProto) -> int:
    """Take activations that change nothing out of a QDQ model in place; return how many.

    Such an activation stands between two pairs of one grid that has no value which it would change,
    and nobody else reads what it reads. It goes with the pair before it.
    """
    readers, writers, constants = consumers(model), producers(model), initializers(model)
    shown = {value.name for value in model.graph.output}
    dead = []
    for node in model.graph.node:
        pair = _pair_before(node, writers) if node.op_type in SATURATING else None
        again = readers.get(node.output[0], [])
        if pair is None or [reader.op_type for reader in again] != ["QuantizeLinear"]:
            continue
        entering = pair[0].input[0]
        inner = (entering, pair[0].output[0], pair[1].output[0])
        alone = all(len(readers[name]) == 1 and name not in shown for name in inner)
        if alone and entering in writers and _idle(node, pair[0], again[0], constants):
            names = writers[entering].output
            names[list(names).index(entering)] = node.output[0]
            dead += [*pair, node]
    for node in dead:
        model.graph.node.remove(node)
    return len(dead) // 3


def _pair_before(node: NodeProto, writers: dict[str, NodeProto]) -> list[NodeProto] | None:
    """Return the quantize and the dequantize that a node reads from."""
    pair: list[NodeProto] = []
    for kind in ("DequantizeLinear", "QuantizeLinear"):
        found = writers.get(node.input[0])
        if found is None or found.op_type != kind:
            return None
        pair, node = [found, *pair], found
    return pair


def _idle(activation: NodeProto, before: NodeProto, after: NodeProto, constants: Arrays) -> bool:
    """Whether both grids are one, within what the activation lets through."""
    ends = [_ends(pair, constants) for pair in (before, after)]
    low, high = _bounds(activation, constants)
    return ends[0] == ends[1] and low <= ends[0][0] and ends[0][1] <= high


def _ends(quantize: NodeProto, constants: Arrays) -> Range:
    """Return the least and the greatest value of a grid; both together give its step."""
    scale, zero = (constants[name] for name in quantize.input[1:3])
    kind = np.iinfo(zero.dtype)
    return float((kind.min - int(zero)) * scale), float((kind.max - int(zero)) * scale)


def _bounds(activation: NodeProto, constants: Arrays) -> Range:
    """Return what an activation lets through; a bound computed at run time is NaN."""
    default = (0.0 if activation.op_type == "Relu" else -np.inf, np.inf)
    names = [*activation.input[1:], "", ""][:2]
    low, high = (
        float(constants.get(name, np.float32(np.nan))) if name else bound
        for name, bound in zip(names, default, strict=True)
    )
    return low, high
