"""Float operators whose results are the same bits on every processor, and TFLite's softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, grows_to
from vtaops.graph import fixed_softmax
from vtaops.graph.operator import GraphOperator, Tensors, axis_of, graph_operator
from vtaops.graph.requantization import check_array
from vtaops.graph.tensor import Tensor


class FloatOperator(GraphOperator):
    """A function of finite float32 to float32, whose order of additions and products is defined.

    So every processor gets the same bits (``docs/quantization.md``).
    """

    takes = ("float32",)

    def infer(self, data: Tensor) -> Tensor:
        return Tensor("-", data.shape, "float32")


@graph_operator
class Softmax(FloatOperator):
    """``exp(x - max) / sum of exp(x - max)`` along the last axis, in float64.

    A second input is a mask, of a shape that broadcasts to that of the first, and is added to it in
    float32: 0, or at most -1e9 for what does not count, which the compiler relies on.
    """

    named = "softmax"
    arity = None

    def infer(self, data: Tensor, *masks: Tensor) -> Tensor:
        shapes = [mask.shape for mask in masks]
        if not data.shape:
            raise ShapeError(f"{data.name} is a scalar; softmax needs an axis")
        if len(masks) > 1 or not all(grows_to(shape, data.shape) for shape in shapes):
            text = f"a softmax of {data.shape} has one mask of such a shape, not {shapes}"
            raise ShapeError(text)
        return super().infer(data)

    def reference(self, inputs: Tensors, data: Array, *masks: Array) -> Any:
        with np.errstate(over="ignore"):
            data = sum(masks, data).astype(np.float64)
        with np.errstate(invalid="ignore"):
            below = data - data.max(axis=-1, keepdims=True)
            values = np.where(below >= -700, exponential(np.clip(below, -700, 0)), 0.0)
            return (values / _sum(values)).astype(np.float32)


@graph_operator
class LayerNorm(FloatOperator):
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias`` along the last axis, in float64.

    Parameters
    ----------
    weight, bias : numpy.ndarray of float32
        For each place on the last axis.
    epsilon : float
        Taken as float32.
    centered : bool
        Whether the mean is subtracted. An RMS norm takes 0 in its place, for the variance, too.
    """

    weight: Array
    bias: Array
    epsilon: float = 1e-5
    centered: bool = True

    @property
    def kind(self) -> str:
        return "layer_norm" if self.centered else "rms_norm"

    def infer(self, data: Tensor) -> Tensor:
        columns = data.shape[axis_of(-1, data)]
        for name in ("weight", "bias"):
            check_array(name, getattr(self, name), "float32", (columns,))
        return super().infer(data)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        data = data.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            if self.centered:
                data -= _sum(data) / data.shape[-1]
            variance = _sum(data * data) / data.shape[-1]
            data *= inverse_root(variance + np.float64(np.float32(self.epsilon)))
            return (data * self.weight + self.bias).astype(np.float32)


@graph_operator
class AddTerm(FloatOperator):
    """The sum with a constant of float32, in float32; its shape is the end of the tensor's."""

    term: Array

    def infer(self, data: Tensor) -> Tensor:
        shape = data.shape
        kept = max(0, len(shape) - getattr(self.term, "ndim", 0))
        check_array("term", self.term, "float32", shape[kept:])
        return super().infer(data)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        with np.errstate(over="ignore"):
            return data + self.term


@graph_operator
class FixedSoftmax(GraphOperator):
    """TFLite's int8 softmax along the last axis, in steps of 1/256 above -128.

    `vtaops.graph.fixed_softmax` does the fixed-point arithmetic; it uses the input's scale.
    """

    named = "softmax in fixed point"

    def infer(self, data: Tensor) -> Tensor:
        if not data.shape:
            raise ShapeError(f"{data.name} is a scalar; softmax needs an axis")
        if data.shape[-1] > fixed_softmax.MOST:
            most = fixed_softmax.MOST
            raise ShapeError(f"a softmax of {data.shape[-1]} values; its sums hold {most}")
        return Tensor("-", data.shape, "int8", 1 / 256, -128)

    def reference(self, inputs: Tensors, data: Array) -> Any:
        return fixed_softmax.softmax(data, inputs[0].scale)


def _sum(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the sum along the last axis, which stays: from the first to the last, one by one."""
    return np.cumsum(x, -1)[..., -1:]


def inverse_root(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1 / sqrt(x), to some 1e-15, by Newton's method: the same bits on every processor."""
    root = (0x5FE6EB50C7B537A9 - (x.view(np.int64) >> 1)).view(np.float64)
    for _ in range(4):
        root = root * (1.5 - 0.5 * x * root * root)
    return root


def exponential(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return exp(x) for -700 <= x <= 0 by a polynomial: the same bits on every processor."""
    power = np.trunc(x * 1.4426950408889634 - 0.5)  # x / log 2, rounded to nearest
    rest = x - power * 0.6931471805599453
    total = np.zeros_like(x)
    for n in range(13, -1, -1):
        total = total * rest + 1.0 / math.factorial(n)
    return np.ldexp(total, power.astype(np.int32))
