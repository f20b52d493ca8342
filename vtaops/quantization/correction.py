"""Bias correction: remove the mean error that rounded weights add to each channel.

Nagel et al. (ICCV 2019), section 4.2: rounded weights W + E change the output by E x, on average by
E mean(x), which is subtracted through the bias. Borders are treated as if the image continued.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph import onnx_files
from vtaops.graph.probe import Probe
from vtaops.quantization.pairs import images
from vtaops.quantization.samples import Sample


def correct_biases(
    model: onnx_files.ModelProto,
    quantized: onnx_files.ModelProto,
    samples: Sequence[Sample],
    plain: onnx_files.ModelProto,
) -> int:
    """Correct the biases of the float model in place; return the number of corrected convolutions.

    Parameters
    ----------
    model
        The prepared float model.
    quantized
        The same model after a first quantisation; provides the rounded weights.
    samples
        Calibration data for the means.
    plain
        The model with unrounded weights; it is not changed.
    """
    constants, rounded = onnx_files.initializers(plain), dequantized_constants(plain, quantized)
    layers = [
        node
        for node in model.graph.node
        if node.op_type == "Conv" and node.input[1] in rounded and node.input[1] in constants
    ]
    if not layers:
        return 0
    means = _channel_means(model, [node.input[0] for node in layers], samples)
    for node in layers:
        weight = constants[node.input[1]].astype(np.float64)
        error = (rounded[node.input[1]] - weight).sum(axis=(2, 3))
        groups = onnx_files.attributes(node).get("group", 1)
        mean = means[node.input[0]].reshape(groups, 1, -1)
        shift = (error.reshape(groups, -1, error.shape[1]) * mean).sum(axis=2).reshape(-1)
        if len(node.input) == 2:
            node.input.append(f"{node.output[0]}_bias")
        bias = constants.get(node.input[2], np.zeros(len(shift)))
        onnx_files.replace_initializer(model, node.input[2], (bias - shift).astype(np.float32))
    return len(layers)


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


def _channel_means(
    model: onnx_files.ModelProto, names: Sequence[str], samples: Sequence[Sample]
) -> dict[str, Array]:
    written = onnx_files.producers(model)
    probe = Probe(model, sorted({n for n in names if n in written}), exact=False)
    sums: dict[str, Array] = {}
    for sample in tracked("correct biases, image", samples):
        for name, value in {**sample, **probe.run(sample)}.items():
            if name in names:
                mean = value.mean(axis=(0, 2, 3), dtype=np.float64) / len(samples)
                sums[name] = sums.get(name, 0) + mean
    return sums
