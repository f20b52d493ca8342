"""Sums of products: convolutions and matrix products."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, raising
from vtaops.base.exact import by_rows, convolve, convolve_transposed, magnitudes
from vtaops.base.fixed_point import THREE_DIGITS, TWO_DIGITS
from vtaops.base.shapes import Array, Sides
from vtaops.base.window import Window
from vtaops.graph.operator import (
    Pair,
    Pattern,
    Requantized,
    Shape,
    Tensors,
    check_accumulator,
    check_channels,
    graph_operator,
    image_of,
)
from vtaops.graph.requantization import Integers, Requantization, along, check_array, integers
from vtaops.graph.tensor import Tensor

Weights = npt.NDArray[np.int8] | npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(Requantized):
    """Base class of sums of products of a tensor with int8 weights, plus a bias.

    Those of int16 have two digits, within `vtaops.base.fixed_point.TWO_DIGITS`: a graph for
    hardware that only shifts, whose scales are part of the weights, has them.
    """

    weight: Weights
    bias: npt.NDArray[np.int32] | None = None
    requantization: Requantization = field(default_factory=Requantization)
    rank: ClassVar[int] = 4
    """Rank of the weights."""
    kinds: ClassVar[tuple[str, ...]] = ("int8", "int16")
    """Types of the weights."""
    channels_axis: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._check_weight()
        bias, channels = self.bias, len(self.by_output)
        if bias is not None:
            check_array("bias", bias, "int32", (channels,))
        for name in self.requantization.limits:
            check_channels(name, getattr(self.requantization, name), channels)
        super().__post_init__()

    def _check_weight(self) -> None:
        rank, weight = self.rank, self.weight
        kind = getattr(weight, "dtype", type(weight))
        if not isinstance(weight, np.ndarray) or kind not in self.kinds or weight.ndim != rank:
            raise ShapeError(
                f"the weights are {kind}{list(np.shape(weight))}; they must be "
                f"{' or '.join(self.kinds)} of rank {rank}"
            )
        if 0 in weight.shape:
            raise ShapeError(f"the weights have shape {weight.shape}; no extent may be 0")
        if kind == np.int16 and max(int(weight.max()), -int(weight.min())) > TWO_DIGITS:
            raise ShapeError(f"weights of int16 lie within {TWO_DIGITS}, whose digits are int8")

    @property
    def by_output(self) -> Array:
        """The weights with output channels first."""
        return self.weight

    @cached_property
    def _magnitudes(self) -> Integers:
        return magnitudes(self.by_output)

    def bound(self, data: Tensor) -> Integers:
        """Return the largest magnitude of the sums of each output channel."""
        sums: Integers = self._magnitudes * data.reach
        return sums if self.bias is None else sums + np.abs(self.bias.astype(np.int64))

    def biased(self, products: Array) -> Integers:
        """Return exact products plus the bias."""
        acc: Integers = products.astype(np.int64)
        if self.bias is None:
            return acc
        return acc + along(self.channels_axis, acc.ndim, self.bias.astype(np.int64))


@graph_operator
class Convolution(Weighted):
    """``y = requantize(conv(x - x.zero_point, weight) + bias [+ (r - r.zero_point) * factor])``.

    Inputs: ``x`` (N, C, H, W), and ``r`` of the result's shape if there is a residual factor.

    Parameters
    ----------
    weight : ndarray of int8 or int16, shape (O, C // groups, KH, KW)
        Weights.
    bias : ndarray of int32, shape (O,), optional
        Bias, in steps of the sums.
    requantization : Requantization
        Maps sums to results; per-channel values have O elements.
    strides, dilation : (int, int)
        (height, width).
    padding : (int, int, int, int)
        Pixels of value 0.0 around the image: (top, left, bottom, right).
    groups : int
        Groups of channels.
    residual_factor : ndarray of int, shape () or (O,), optional
        Factor of the residual, 1..`vtaops.base.fixed_point.THREE_DIGITS`: its scale divided by
        that of the sums. Hardware with scales has two of its digits.
    """

    pattern = Pattern.WINDOWS

    strides: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    residual_factor: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        channels = self.weight.shape[0]
        if self.groups < 1 or channels % self.groups:
            raise ShapeError(f"groups is {self.groups}; it must divide {channels} output channels")
        if self.residual_factor is not None:
            factor = integers("residual_factor", self.residual_factor, 1, THREE_DIGITS)
            object.__setattr__(self, "residual_factor", factor)
            object.__setattr__(self, "arity", 2)
            check_channels("residual_factor", factor, channels)

    @property
    def kind(self) -> str:
        depthwise = self.groups > 1 and self.weight.shape[1] == 1
        name = "depthwise_convolution" if depthwise else "convolution"
        return name if self.residual_factor is None else f"{name}+residual"

    @property
    def window(self) -> Window:
        """The window over the image."""
        return Window(self.weight.shape[2:], self.strides, self.padding, self.dilation)

    def infer(self, data: Tensor, *residual: Tensor) -> Tensor:
        n, c, h, w = image_of(data)
        o, i, *_ = self.weight.shape
        if i * self.groups != c:
            raise ShapeError(
                f"{data.name} has {c} channels; weights {self.weight.shape} in {self.groups} "
                f"groups read {i * self.groups}"
            )
        shape = (n, o, *self.window.out_size(h, w))
        bound = self.bound(data)
        for other in residual:
            if other.shape != shape:
                raise ShapeError(f"the residual has shape {other.shape}, the result {shape}")
            bound = bound + self.residual_factor * other.reach
        check_accumulator(self.kind, bound)
        return self.result(shape)

    def sums(self, *real: Integers) -> Integers:
        data, *residual = real
        acc = self.biased(convolve(data, self.weight, self.window, self.groups))
        return acc + residual[0] * along(1, 4, self.residual_factor) if residual else acc


@graph_operator
class TransposedConvolution(Weighted):
    """``y = requantize(conv_transpose(x - x.zero_point, weight) + bias)``; weights are (C, O, ...).

    Parameters
    ----------
    weight : ndarray of int8, shape (C, O // groups, KH, KW)
        Weights.
    bias, requantization
        As for `Convolution`.
    strides, dilation : (int, int)
        (height, width).
    padding : (int, int, int, int)
        Output pixels cut off: (top, left, bottom, right).
    output_padding : (int, int)
        Rows and columns added at the bottom and the right; less than the stride or the dilation.
    groups : int
        Groups of channels.
    """

    pattern = Pattern.WINDOWS

    strides: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    output_padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    kinds: ClassVar[tuple[str, ...]] = ("int8",)

    @property
    def by_output(self) -> Array:
        inputs, outputs, *kernel = self.weight.shape
        if self.groups < 1 or inputs % self.groups:
            raise ShapeError(f"groups is {self.groups}; it must divide {inputs} input channels")
        grouped = self.weight.reshape(self.groups, -1, outputs, *kernel).swapaxes(1, 2)
        weight: Array = grouped.reshape(self.groups * outputs, -1, *kernel)
        return weight

    @property
    def window(self) -> Window:
        """The window over the result."""
        return Window(self.weight.shape[2:], self.strides, self.padding, self.dilation)

    def infer(self, data: Tensor) -> Tensor:
        n, c, h, w = image_of(data)
        i, o, *_ = self.weight.shape
        if i != c:
            raise ShapeError(f"{data.name} has {c} channels; the weights read {i}")
        most = tuple(map(max, self.strides, self.dilation))
        if any(a >= b for a, b in zip(self.output_padding, most, strict=True)):
            raise ShapeError(
                f"output_padding is {self.output_padding}; it must be less than the strides "
                f"{self.strides} or the dilation {self.dilation}"
            )
        rows, columns = self.window.transposed_size(h, w, self.output_padding)
        if rows < 1 or columns < 1:
            raise ShapeError(f"nothing is left of the result: {rows} x {columns} pixels")
        check_accumulator(self.kind, self.bound(data))
        return self.result((n, o * self.groups, rows, columns))

    def sums(self, *real: Integers) -> Integers:
        (data,) = real
        *_, height, width = data.shape
        size = self.window.transposed_size(height, width, self.output_padding)
        return self.biased(convolve_transposed(data, self.weight, self.window, size, self.groups))


@graph_operator
class Dense(Weighted):
    """``y = requantize((x - x.zero_point) @ weight.T + bias)`` on the last axis of ``x``.

    Parameters
    ----------
    weight : ndarray of int8 or int16, shape (N, K)
        Weights.
    bias, requantization
        As for `Convolution`, with N channels.
    """

    pattern = Pattern.PRODUCT

    rank = 2
    channels_axis = -1

    def infer(self, data: Tensor) -> Tensor:
        if len(data.shape) < 2 or data.shape[-1] != self.weight.shape[1]:
            raise ShapeError(
                f"{data.name} has shape {data.shape}; the weights read (..., "
                f"{self.weight.shape[1]})"
            )
        check_accumulator(self.kind, self.bound(data))
        return self.result((*data.shape[:-1], self.weight.shape[0]))

    def sums(self, *real: Integers) -> Integers:
        data = real[0].astype(np.float64)
        rows = data.reshape(-1, data.shape[-1]).T
        sums = by_rows(lambda weight: weight.astype(np.float64) @ rows, self.weight)
        return self.biased(sums.T.reshape(*data.shape[:-1], -1))


@graph_operator
class Matmul(Requantized):
    """``y = requantize((a - a.zero_point) @ (b - b.zero_point))`` of two tensors.

    Inputs: ``a`` (..., M, K) and ``b`` (..., K, N); leading axes of one element repeat.

    Parameters
    ----------
    requantization : Requantization
        Maps sums to results; one for all channels.
    """

    pattern = Pattern.PRODUCT

    requantization: Requantization = field(default_factory=Requantization)
    channels_axis = None
    arity = 2

    def infer(self, a: Tensor, b: Tensor) -> Tensor:
        if min(len(a.shape), len(b.shape)) < 2 or a.shape[-1] != b.shape[-2]:
            raise ShapeError(f"{a.shape} and {b.shape} cannot be multiplied as matrices")
        check_accumulator(self.kind, np.array(a.shape[-1] * a.reach * b.reach))
        return self.result((*self.leading((a, b)), a.shape[-2], b.shape[-1]))

    @staticmethod
    def leading(inputs: Tensors) -> Shape:
        """Return the leading axes of the result.

        Raises
        ------
        ShapeError
            If those of the operands differ, and neither has one element.
        """
        a, b = (tensor.shape[:-2] for tensor in inputs)
        with raising(ShapeError, f"{a} and {b} matrices cannot be multiplied", ValueError):
            return np.broadcast_shapes(a, b)

    def sums(self, *real: Integers) -> Integers:
        a, b = (x.astype(np.float64) for x in real)
        return (a @ b).astype(np.int64)


def spread(weight: Array, dilation: Pair) -> Array:
    """Return the weights (..., KH, KW) with zeros between dilated taps."""
    if dilation == (1, 1):
        return weight
    *outer, kh, kw = weight.shape
    (down, across), size = dilation, Window((kh, kw), dilation=dilation).extent
    dilated = np.zeros((*outer, *size), weight.dtype)
    dilated[..., ::down, ::across] = weight
    return dilated
