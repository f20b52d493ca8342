"""Learned rounding and bias correction: rounded weights change a layer's outputs least.

Weights are rounded up or down so that their errors cancel: `vtaops.graph.learned_rounding` does it
for a layer, here are those of a model.

Bias correction removes the mean error that rounded weights add to each channel. Nagel et al. (ICCV
2019), section 4.2: rounded weights W + E change the output by E x, on average by E mean(x), which
is subtracted through the bias. Borders are treated as if the image continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph.learned_rounding import rounded
from vtaops.graph.onnx_files import (
    Arrays,
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
            values = (steps.reshape(weight.shape) * scale).astype(np.float32)
            replace_initializer(model, name, _results_first(node, values))


def _results_first(node: NodeProto, weight: Array) -> Array:
    """Return weights with an output a row, or, of such weights, as the node has them."""
    turned = node.op_type == "Gemm" and not attributes(node).get("transB", 0)
    return weight.T if turned else weight


def learnable(model: ModelProto, constants: Mapping[str, Array]) -> list[NodeProto]:
    """Return the layers whose weights can be rounded on calibration data."""
    products = correctable(model, constants)
    return [node for node in products if _suits(node, constants[node.input[1]])]


def _suits(node: NodeProto, weight: Array) -> bool:
    if node.op_type == "Gemm":
        return bool(_results_first(node, weight).shape[1] <= MOST_TAPS)
    automatic = attributes(node).get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET")
    return bool(weight.ndim == 4 and weight[0].size <= MOST_TAPS and not automatic)


def correct_biases(
    model: ModelProto,
    weights: Mapping[str, WeightScale],
    means: Mapping[str, Sequence[Array]],
    plain: Arrays,
) -> None:
    """Correct the biases of a float model in place.

    Parameters
    ----------
    model
        The prepared float model; its weights may have been rounded.
    weights
        The scales of the weights that are rounded.
    means
        The mean of each channel of tensors, for each sample.
    plain
        The constants before anything was rounded.
    """
    constants = initializers(model)
    for node in correctable(model, weights):
        if not {*node.input[2:]} <= plain.keys():  # the file computes its bias
            continue
        weight = plain[node.input[1]].astype(np.float64)
        error = weights[node.input[1]].rounded(constants[node.input[1]]) - weight
        error = _results_first(node, error.sum(axis=tuple(range(2, weight.ndim))))
        groups = attributes(node).get("group", 1)
        mean = np.mean(means[node.input[0]], axis=0).reshape(groups, 1, -1)
        shift = (error.reshape(groups, -1, error.shape[1]) * mean).sum(axis=2).reshape(-1)
        bias, own = sum(plain[name] for name in node.input[2:]), f"{node.output[0]}:bias"
        node.input[2:] = [own]
        replace_initializer(model, own, (bias - shift).astype(np.float32))


def correctable(model: ModelProto, weights: Mapping[str, object]) -> list[NodeProto]:
    """Return the convolutions and dense layers, of data as they stand, by weights of these names.

    `prepare` has left constant weights and biases no factors.
    """
    nodes = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    plain = (node for node in nodes if not attributes(node).get("transA", 0))
    return [node for node in plain if node.input[1] in weights]
