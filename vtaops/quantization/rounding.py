"""Learned rounding: round weights up or down so that the layer's outputs change least.

`vtaops.graph.learned_rounding` rounds the weights of a layer; here are those of a model.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph.learned_rounding import rounded
from vtaops.graph.onnx_files import (
    ModelProto,
    NodeProto,
    attributes,
    initializers,
    replace_initializer,
)
from vtaops.quantization.scales import WeightScale

MOST_TAPS = 2048
"""Layers with more weights per output are skipped: their moments take too long."""


def learn_rounding(
    model: ModelProto, weights: Mapping[str, WeightScale], moments: Mapping[str, Array]
) -> None:
    """Round the weights of a prepared float model in place.

    Parameters
    ----------
    model
        The model.
    weights
        The scales of the weights that are rounded.
    moments
        Second moments of the inputs of layers, by their results (`vtaops.quantization.observers`).
    """
    constants = initializers(model)
    for node in tracked("learn rounding, layer", learnable(model, constants)):
        name, moment = node.input[1], moments[node.output[0]]
        if name in weights:
            weight, grid = constants[name].astype(np.float64), weights[name]
            scale = np.broadcast_to(grid.steps(weight.ndim), weight.shape)
            weight, scale = (_results_first(node, each) for each in (weight, scale))
            grouped = (len(moment), -1, moment.shape[-1])
            steps = rounded(weight.reshape(grouped), scale.reshape(grouped), moment, grid.largest)
            found = (steps.reshape(weight.shape) * scale).astype(np.float32)
            replace_initializer(model, name, _results_first(node, found))


def _results_first(node: NodeProto, weight: Array) -> Array:
    """Return weights with an output a row, or, of such weights, as the node has them."""
    turned = node.op_type == "Gemm" and not attributes(node).get("transB", 0)
    return weight.T if turned else weight


def learnable(model: ModelProto, constants: Mapping[str, Array]) -> list[NodeProto]:
    """Return the layers whose weights can be rounded on calibration data."""
    return [node for node in model.graph.node if _suits(node, constants)]


def _suits(node: NodeProto, constants: Mapping[str, Array]) -> bool:
    if node.op_type not in ("Conv", "Gemm") or node.input[1] not in constants:
        return False
    found, weight = attributes(node), constants[node.input[1]]
    if node.op_type == "Gemm":
        plain = not found.get("transA", 0) and found.get("alpha", 1.0) == 1.0
        return plain and _results_first(node, weight).shape[1] <= MOST_TAPS
    automatic = found.get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET")
    return weight.ndim == 4 and weight[0].size <= MOST_TAPS and not automatic
