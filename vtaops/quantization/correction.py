"""Bias correction: remove the mean error that rounded weights add to each channel.

Nagel et al. (ICCV 2019), section 4.2: rounded weights W + E change the output by E x, on average by
E mean(x), which is subtracted through the bias. Borders are treated as if the image continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    Arrays,
    ModelProto,
    NodeProto,
    attributes,
    initializers,
    replace_initializer,
)
from vtaops.quantization.scales import WeightScale


def correct_biases(
    model: ModelProto,
    weights: Mapping[str, WeightScale],
    mean: Callable[[str], Array],
    plain: Arrays,
) -> None:
    """Correct the biases of a float model in place.

    Parameters
    ----------
    model
        The prepared float model; its weights may have been rounded.
    weights
        The scales of the weights that are rounded.
    mean
        Returns the mean of each channel of a tensor on the calibration data.
    plain
        The constants before anything was rounded.
    """
    constants = initializers(model)
    for node in correctable(model, weights):
        if any(name not in plain for name in node.input[2:]):  # the file computes its bias
            continue
        weight = plain[node.input[1]].astype(np.float64)
        error = weights[node.input[1]].rounded(constants[node.input[1]]) - weight
        error = error.sum(axis=tuple(range(2, weight.ndim)))
        if node.op_type == "Gemm" and not attributes(node).get("transB", 0):
            error = error.T
        groups = attributes(node).get("group", 1)
        means = mean(node.input[0]).reshape(groups, 1, -1)
        shift = (error.reshape(groups, -1, error.shape[1]) * means).sum(axis=2).reshape(-1)
        if len(node.input) == 2:
            node.input.append(f"{node.output[0]}:bias")
        bias = plain.get(node.input[2], np.zeros(len(shift)))
        replace_initializer(model, node.input[2], (bias - shift).astype(np.float32))


def correctable(model: ModelProto, weights: Mapping[str, object]) -> list[NodeProto]:
    """Return the convolutions and plain dense layers by weights of these names."""
    nodes = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    return [node for node in nodes if node.input[1] in weights and _is_plain(node)]


def _is_plain(node: NodeProto) -> bool:
    """Return whether a product is of its data as they stand, and its bias counts once."""
    found = attributes(node)
    return not found.get("transA", 0) and found.get("alpha", 1.0) == found.get("beta", 1.0) == 1.0
