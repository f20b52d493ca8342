"""Learned rounding: round weights up or down so that the layer's outputs change least.

Rounding to nearest treats each weight by itself. On calibration data the errors of the weights of
one output can cancel: after each weight is rounded, its error is distributed over the remaining
weights according to the second moments of the inputs (Frantar et al., "GPTQ", ICLR 2023;
the aim is that of Nagel et al., "Up or Down? Adaptive Rounding", ICML 2020). Plain NumPy, seconds.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vtaops.base.shapes import Array

BLOCK = 64
"""Taps whose errors go to the taps behind them together."""

DAMPING = 0.01
"""Damping of the moments relative to their mean, for nearly constant inputs."""


def rounded(weight: Array, scale: Array, moment: Array, largest: int) -> Array:
    """Return rounded weights as integers, shape (groups, results, taps).

    Parameters
    ----------
    weight, scale
        Real weights and the steps of their grids.
    moment
        Second moments of the inputs, shape (groups, taps, taps).
    largest
        The grids have integers up to this, and their negatives.
    """
    taps = weight.shape[-1]
    each = np.arange(taps)
    damped = moment.copy()
    mean = moment[:, each, each].mean(axis=1, keepdims=True)
    damped[:, each, each] += DAMPING * mean + 1e-12
    upper = np.linalg.cholesky(np.linalg.inv(damped)).transpose(0, 2, 1)
    fixed = np.abs(weight / scale) > largest - 0.5  # the largest weights determine the scale
    return np.stack([*map(partial(_rounded_in_order, largest), weight, scale, fixed, upper)])


def _rounded_in_order(
    largest: int, weight: Array, scale: Array, fixed: Array, upper: Array
) -> Array:
    """Return weights of shape (results, taps) as integers, tap after tap.

    The error of a tap goes to those behind it: at once in its block, to the others for all taps of
    the block together, as one product.
    """
    kept, step, stays = (np.ascontiguousarray(array.T) for array in (weight, scale, fixed))
    corrected, result = kept.copy(), np.zeros_like(kept)  # taps first: each is read whole
    for start in range(0, len(corrected), BLOCK):
        errors = []
        for tap in range(start, end := min(start + BLOCK, len(corrected))):
            steps = np.rint(np.where(stays[tap], kept[tap], corrected[tap]) / step[tap])
            result[tap] = np.clip(steps, -largest, largest)
            errors.append((corrected[tap] - result[tap] * step[tap]) / upper[tap, tap])
            corrected[tap + 1 : end] -= np.outer(upper[tap, tap + 1 : end], errors[-1])
        corrected[end:] -= upper[start:end, end:].T @ np.stack(errors)
    transposed: Array = result.T
    return transposed
