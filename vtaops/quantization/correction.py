"""Bias correction: remove the mean error that rounded weights add to each channel.

Nagel et al. (ICCV 2019), section 4.2: rounded weights W + E change the output by E x, on average by
E mean(x), which is subtracted through the bias. Borders are treated as if the image continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import onnx_files
from vtaops.quantization.pairs import images


def correct_biases(
    model: onnx_files.ModelProto,
    quantized: onnx_files.ModelProto,
    mean: Callable[[str], Array],
    plain: onnx_files.ModelProto,
) -> int:
    """Correct the biases of the float model in place; return the number of corrected convolutions.

    Parameters
    ----------
    model
        The prepared float model.
    quantized
        The same model after a first quantisation; provides the rounded weights.
    mean
        Returns the mean of each channel of a tensor on the calibration data.
    plain
        The model with unrounded weights; it is not changed.
    """
    constants, rounded = onnx_files.initializers(plain), dequantized_constants(plain, quantized)
    layers = [node for node in correctable(model, constants) if node.input[1] in rounded]
    for node in layers:
        weight = constants[node.input[1]].astype(np.float64)
        error = (rounded[node.input[1]] - weight).sum(axis=tuple(range(2, weight.ndim)))
        groups = onnx_files.attributes(node).get("group", 1)
        means = mean(node.input[0]).reshape(groups, 1, -1)
        shift = (error.reshape(groups, -1, error.shape[1]) * means).sum(axis=2).reshape(-1)
        if len(node.input) == 2:
            node.input.append(f"{node.output[0]}_bias")
        bias = constants.get(node.input[2], np.zeros(len(shift)))
        onnx_files.replace_initializer(model, node.input[2], (bias - shift).astype(np.float32))
    return len(layers)


def correctable(
    model: onnx_files.ModelProto, constants: Mapping[str, Array]
) -> list[onnx_files.NodeProto]:
    """Return the convolutions whose weights are constants."""
    nodes = model.graph.node
    return [node for node in nodes if node.op_type == "Conv" and node.input[1] in constants]


def dequantized_constants(
    model: onnx_files.ModelProto, quantized: onnx_files.ModelProto
) -> dict[str, Array]:
    """Return the constants of a QDQ model as float64, by their name in the float model."""
    constants = onnx_files.initializers(quantized)
    return {
        name: onnx_files.dequantized(node, constants)
        for name, node in _constant_pairs(model, quantized).items()
    }


def constant_scales(
    model: onnx_files.ModelProto, quantized: onnx_files.ModelProto
) -> dict[str, Array]:
    """Return the scales of a QDQ model's constants in broadcastable shape, by the same name."""
    constants = onnx_files.initializers(quantized)
    return {
        name: onnx_files.along_axis(
            node, constants[node.input[1]].astype(np.float64), constants[node.input[0]].ndim
        )
        for name, node in _constant_pairs(model, quantized).items()
    }


def _constant_pairs(
    model: onnx_files.ModelProto, quantized: onnx_files.ModelProto
) -> dict[str, onnx_files.NodeProto]:
    """Return the node that dequantises each constant of the float model."""
    written, known = onnx_files.producers(quantized), onnx_files.initializers(model)
    return {n: written[image] for n, image in images(model, quantized).items() if n in known}
