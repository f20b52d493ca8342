"""Sums of products: a convolution or product with all terms that are added before rounding.

`quantize(conv(dequantize(x), dequantize(w)) + dequantize(b) + dequantize(r))` is one operator of
the integer graph: bias and residual are added to the exact sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vtaops.base.shapes import Array
from vtaops.frontends.functions import Affine
from vtaops.frontends.steps import ResultRange, Source, reshaped
from vtaops.frontends.values import NotTranslated, Value
from vtaops.frontends.windows import channel_image
from vtaops.graph import Convolution, Dense, TransposedConvolution
from vtaops.graph.requantization import Rounds

LEAST_FACTOR = 64
"""Least factor of a residual that is not a power of two; its rounding error is below 1 in 128."""


@dataclass(frozen=True, eq=False)
class Sum:
    """An exact sum before rounding.

    Attributes
    ----------
    shape
        Shape of the result.
    product
        Function that makes the operator from weights, bias and requantisation.
    weight
        Its weights.
    inputs
        The tensor that the weights multiply, and maybe a residual.
    scale
        Scale of the sums: one number, or one per output channel.
    axis
        The axis of output channels.
    bias
        Real values to add, one per channel.
    """

    shape: tuple[int, ...]
    product: partial[Convolution | TransposedConvolution | Dense]
    weight: Array
    inputs: tuple[Source, ...]
    scale: Array
    axis: int
    bias: Array

    def rounded(self, target: ResultRange) -> Source:
        """Return the operator that rounds the sum to a grid."""
        weight, scale = self._with_room_for_biases(target)
        steps = np.rint(self.bias / scale)
        if np.abs(steps).max(initial=0) >= 1 << 31:
            channel = int(np.abs(steps).argmax())
            raise NotTranslated(
                f"the bias of channel {channel} has {steps[channel]:.3g} steps of its sums, more "
                "than 32 bits hold: the scale of its weights is too fine"
            )
        moved = np.abs(steps * scale - self.bias) / target.scale
        if moved.max(initial=0) > 0.5:
            raise NotTranslated("a bias between two steps of the sums, which are too coarse for it")
        bias = steps.astype(np.int32) if steps.any() else None
        rounds: Rounds = "twice"
        if target.tflite and self.product.func is Dense:
            rounds = "once"
            if scale.ndim == 0:  # there TFLite multiplies in float32
                scale = np.float32(scale).astype(np.float64)
        requantization = target.requantization(scale / target.scale, rounds)
        op = self.product(weight, bias=bias, requantization=requantization)
        return target.result(op, *self.inputs)

    def _with_room_for_biases(self, target: ResultRange) -> tuple[Array, Array]:
        """Return weights and scale, coarser in channels whose bias would leave int32.

        These weights are so small, for one because a batch norm left none of them, that next to
        nothing of a step of the result is lost.
        """
        weight, scale, far = self.weight, self.scale, np.abs(self.bias / self.scale) >= 1 << 30
        if self.inputs[1:] or target.tflite or len(weight) != len(far) or not far.any():
            return weight, scale
        own, rows = np.broadcast_to(scale, far.shape), weight.reshape(len(far), -1)
        live = own[~far].max(initial=0.0) or target.scale / 256
        coarse = np.where(far, np.maximum(live, np.abs(self.bias) / (1 << 24)), own)
        kept = np.rint(rows * (own / coarse)[:, None])
        lost = np.abs(rows * own[:, None] - kept * coarse[:, None]).sum(axis=1)
        if (255 * lost > target.scale / 512).any():
            return weight, scale
        return kept.reshape(weight.shape).astype(weight.dtype), coarse

    def affine(self, value: Value, function: Affine) -> Sum:
        """Return an affine function of the sum."""
        if not function.axes <= {self.axis}:
            raise NotTranslated(f"{value.label} has constants along another axis than the channels")
        if not (function.factor > 0).all():
            least = function.factor.min()
            raise NotTranslated(f"{value.label} multiplies sums by {least:g}, which must be over 0")
        scale = self.scale * (function.factor if function.factor.size > 1 else function.factor[0])
        return replace(self, scale=scale, bias=self.bias * function.factor + function.term)


def exact_sum(
    value: Value,
    shape: tuple[int, ...],
    product: partial[Any],
    weight: Array,
    data: Source,
    scale: Any,
    axis: int = 1,
) -> Sum:
    """Return the sum for a value whose weights have this scale."""
    scale = data.tensor.scale * np.asarray(scale)
    if not (scale > 0).all():
        raise NotTranslated(f"{value.label} has the scale {np.min(scale):g}; it must be positive")
    return Sum(shape, product, weight, (data,), scale, axis, np.zeros(shape[axis]))


def scaled(value: Value, data: Source, function: Affine) -> Sum:
    """Return an affine function of a tensor.

    It is a depthwise 1x1 convolution; the numbers become part of the scales, and the steps are so
    fine that constants can be added.
    """
    image, exact = channel_image(value.static_shape, function.axes), function.factor
    signs = np.broadcast_to(np.sign(exact), (image[1],))
    scale = np.where(exact == 0, 1.0, np.abs(exact)) / LEAST_FACTOR  # the weight is zero
    scale = scale.reshape(()) if scale.size == 1 else scale
    weight = (LEAST_FACTOR * signs).astype(np.int8).reshape(-1, 1, 1, 1)
    product = partial(Convolution, groups=image[1])
    total = exact_sum(value, image, product, weight, reshaped(data, image), scale)
    return replace(total, bias=total.bias + function.term)
