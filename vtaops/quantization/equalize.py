"""Cross-layer equalisation: channels of consecutive convolutions brought to one range.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (ICCV 2019),
equation 9: a channel divided by s in one layer and multiplied by s in the next gives the same
network, since what lies between commutes with positive factors. With one scale for a whole weight
tensor, as shifts demand, this is what makes depthwise convolutions usable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vtaops.onnx_files import attributes, consumers, initializers, replace_initializer

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

HOMOGENEOUS = frozenset({"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool"})
"""Operators f with f(s x) = s f(x) for s > 0, channel by channel."""

ROUNDS = 10


@dataclass(frozen=True)
class Pair:
    """Two convolutions, the second of which alone reads the first."""

    first: NodeProto
    second: NodeProto


def equalize(model: ModelProto) -> int:
    """Equalise all pairs of convolutions in place; return how many there are."""
    weights = {
        name: value.astype(np.float64)
        for name, value in initializers(model).items()
        if value.dtype == np.float32
    }
    pairs = [pair for pair in _pairs(model) if _owned(pair, weights, model)]
    for _ in range(ROUNDS):
        for pair in pairs:
            _balance(pair, weights)
    for pair in pairs:
        for name in {*pair.first.input[1:], *pair.second.input[1:]} & set(weights):
            replace_initializer(model, name, weights[name].astype(np.float32))
    return len(pairs)


def _pairs(model: ModelProto) -> list[Pair]:
    readers = consumers(model)
    outputs = {value.name for value in model.graph.output}
    found = []
    for node in model.graph.node:
        if node.op_type != "Conv":
            continue
        name = node.output[0]
        while len(after := readers.get(name, [])) == 1 and name not in outputs:
            if after[0].op_type == "Conv" and after[0].input[0] == name:
                found.append(Pair(node, after[0]))
            if after[0].op_type not in HOMOGENEOUS:
                break
            name = after[0].output[0]
    return found


def _owned(pair: Pair, weights: dict[str, np.ndarray[Any, Any]], model: ModelProto) -> bool:
    """Whether the weights are constants that nobody else uses and the groups are simple."""
    readers = consumers(model)
    names = [*pair.first.input[1:], pair.second.input[1]]
    if not all(name in weights and len(readers[name]) == 1 for name in names):
        return False
    groups = attributes(pair.second).get("group", 1)
    return bool(groups == 1 or weights[pair.second.input[1]].shape[:2] == (groups, 1))


def _balance(pair: Pair, weights: dict[str, np.ndarray[Any, Any]]) -> None:
    first, second = pair.first.input[1], pair.second.input[1]
    depthwise = weights[second].shape[1] == 1 and attributes(pair.second).get("group", 1) > 1
    axis = 0 if depthwise else 1
    ours = np.abs(weights[first]).max(axis=(1, 2, 3))
    theirs = np.abs(weights[second]).max(axis=tuple({0, 1, 2, 3} - {axis}))
    usable = (ours > 0) & (theirs > 0)
    factor = np.ones_like(ours)
    factor[usable] = np.sqrt(ours[usable] / theirs[usable])
    weights[first] /= factor.reshape(-1, 1, 1, 1)
    if len(pair.first.input) == 3:
        weights[pair.first.input[2]] /= factor
    weights[second] *= np.expand_dims(factor, tuple({0, 1, 2, 3} - {axis}))
