"""Learned rounding: round weights up or down so that the layer's outputs change least.

Rounding to nearest treats each weight by itself. On calibration data the errors of the weights of
one output can cancel: after each weight is rounded, its error is distributed over the remaining
weights according to the second moments of the inputs (Frantar et al., "GPTQ", ICLR 2023;
the aim is that of Nagel et al., "Up or Down? Adaptive Rounding", ICML 2020). Plain NumPy, seconds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    ModelProto,
    NodeProto,
    attributes,
    initializers,
    replace_initializer,
)
from vtaops.quantization.scales import LARGEST, WeightScale

MOST_TAPS = 2048
"""Layers with more weights per output are skipped: their moments take too long."""

BLOCK = 64
"""Taps whose errors go to the taps behind them together."""

DAMPING = 0.01
"""Damping of the moments relative to their mean, for nearly constant inputs."""


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
            weight = constants[name].astype(np.float64)
            scale = np.broadcast_to(weights[name].steps(weight.ndim), weight.shape)
            grouped = (len(moment), -1, moment.shape[-1])
            steps = rounded(weight.reshape(grouped), scale.reshape(grouped), moment)
            found = (steps.reshape(weight.shape) * scale).astype(np.float32)
            replace_initializer(model, name, found)


def rounded(weight: Array, scale: Array, moment: Array) -> Array:
    """Return rounded weights as integers, shape (groups, results, taps).

    Parameters
    ----------
    weight, scale
        Real weights and the steps of their grids.
    moment
        Second moments of the inputs, shape (groups, taps, taps).
    """
    taps = weight.shape[-1]
    each = np.arange(taps)
    damped = moment.copy()
    mean = moment[:, each, each].mean(axis=1, keepdims=True)
    damped[:, each, each] += DAMPING * mean + 1e-12
    upper = np.linalg.cholesky(np.linalg.inv(damped)).transpose(0, 2, 1)
    fixed = np.abs(weight / scale) > LARGEST - 0.5  # the largest weights determine the scale
    return np.stack([*map(_rounded_in_order, weight, scale, fixed, upper)])


def _rounded_in_order(weight: Array, scale: Array, fixed: Array, upper: Array) -> Array:
    """Return weights of shape (results, taps) as integers, tap after tap.

    The error of a tap goes to those behind it: at once in its block, to the others for all taps of
    the block together, as one product.
    """
    kept, step, stays = (np.ascontiguousarray(array.T) for array in (weight, scale, fixed))
    left, result = kept.copy(), np.zeros_like(kept)  # taps first: each is read and written whole
    for start in range(0, len(left), BLOCK):
        errors = []
        for tap in range(start, end := min(start + BLOCK, len(left))):
            steps = np.rint(np.where(stays[tap], kept[tap], left[tap]) / step[tap])
            result[tap] = np.clip(steps, -LARGEST, LARGEST)
            errors.append((left[tap] - result[tap] * step[tap]) / upper[tap, tap])
            left[tap + 1 : end] -= np.outer(upper[tap, tap + 1 : end], errors[-1])
        left[end:] -= upper[start:end, end:].T @ np.stack(errors)
    transposed: Array = result.T
    return transposed


def learnable(model: ModelProto, constants: Mapping[str, Array]) -> list[NodeProto]:
    """Return the layers whose weights can be rounded on calibration data."""
    return [node for node in model.graph.node if _suits(node, constants)]


def _suits(node: NodeProto, constants: Mapping[str, Array]) -> bool:
    if node.op_type not in ("Conv", "Gemm") or node.input[1] not in constants:
        return False
    found, weight = attributes(node), constants[node.input[1]]
    if node.op_type == "Gemm":
        plain = found.get("transB", 0) and not found.get("transA", 0)
        return bool(plain and found.get("alpha", 1.0) == 1.0 and weight.shape[1] <= MOST_TAPS)
    automatic = found.get("auto_pad", b"NOTSET") not in (b"NOTSET", "NOTSET")
    return weight.ndim == 4 and weight[0].size <= MOST_TAPS and not automatic
