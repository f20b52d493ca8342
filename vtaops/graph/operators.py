"""The graph operators: computation on int8 tensors, with weights.

Each is a frozen description. `GraphOperator.results` infers the result tensors and rejects invalid
inputs. `GraphOperator.meaning` computes the results in NumPy: every device must match it bit for
bit. It follows ``docs/quantization.md`` and shares no code with the compiler or the simulators.

Activations are ``real = scale * (value - zero_point)``; weights and factors have no zero point.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.base.exact import convolve, convolve_transposed, over_windows, padded
from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.base.shapes import Array, Concise, Sides, ceil_div, check_padded
from vtaops.base.window import Window
from vtaops.graph import fixed_softmax
from vtaops.graph.host import HostFunction
from vtaops.graph.requantization import (
    Integers,
    Requantization,
    along,
    fixed_point,
    integers,
    is_power_of_two,
    quantized_multiplier,
)
from vtaops.graph.tensor import DTYPES, Tensor

__all__ = [
    "Add",
    "AddTerm",
    "AveragePool",
    "ChannelShuffle",
    "Concat",
    "Constant",
    "Convolution",
    "Dense",
    "Dequantize",
    "Expand",
    "FixedSoftmax",
    "FloatOperator",
    "FromUint8",
    "GraphOperator",
    "Host",
    "LayerNorm",
    "LeakyRelu",
    "LookupTable",
    "Matmul",
    "MaxPool",
    "Mean",
    "Multiply",
    "Pad",
    "Quantize",
    "Requantize",
    "RescaledAdd",
    "Reshape",
    "Slice",
    "Softmax",
    "ToUint8",
    "Transpose",
    "TransposedConvolution",
    "Upsample",
]

Pair = tuple[int, int]
Shape = tuple[int, ...]

ACCUMULATOR = 1 << 31
"""Exclusive bound of a sum's magnitude: int32."""

MAX_FACTOR = 1 << 15
"""Largest factor of an operand in a sum."""

FAR = 1 << 14
"""Largest power of two that every device takes as a factor."""

_WINDOWS = {"kernel": 2, "strides": 2, "dilation": 2, "padding": 4, "output_padding": 2}
"""Number of integers in each window parameter."""


class GraphOperator(Concise, ABC):
    """Base class: a frozen dataclass of parameters and weights."""

    arity: int | None = 1
    """Number of inputs; None: any."""

    takes: tuple[str, ...] = ("int8",)
    """Dtypes of the inputs."""

    named = ""
    """Name where it is not that of the class: importers' operators keep theirs."""

    def __post_init__(self) -> None:
        """Convert window parameters to tuples of integers; reject invalid ones."""
        for name, length in _WINDOWS.items():
            if getattr(self, name, None) is not None:
                _check_window(self, name, length)

    @abstractmethod
    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Infer the result tensors; the graph names them.

        Raises
        ------
        ShapeError
            If the operator rejects the inputs.
        """

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        """Compute the result, or a tuple of results, from input arrays.

        Raises
        ------
        UnsupportedError
            If the operator has no NumPy implementation.
        """
        raise UnsupportedError(f"{self.kind} has no NumPy implementation")

    @property
    def kind(self) -> str:
        """Display name of the operator, for example ``max_pool``."""
        name = type(self).__name__
        words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
        return self.named or words.removeprefix("_")


class Requantized(GraphOperator):
    """An operator that ends in a requantization."""

    requantization: Requantization
    channels_axis: ClassVar[int | None] = 1
    """Axis of the sums to which per-channel requantization applies; None: one for all channels."""

    def result(self, shape: Shape) -> tuple[Tensor, ...]:
        """Return the int8 result tensor of a shape.

        Raises
        ------
        ShapeError
            If the operator cannot round like this, or has another number of channels.
        """
        scaling, axis = self.requantization, self.channels_axis
        if scaling.rounding == "quotient" and not isinstance(self, AveragePool):
            raise ShapeError(f"{self.kind} cannot round as a quotient; average pools do")
        if axis is None and scaling.channels > 1:
            raise ShapeError(
                f"{self.kind} has one scale for all channels; {scaling.channels} are given"
            )
        for name in ("multiplier", "shift", "nudge"):
            if (values := getattr(scaling, name)).size > 1:
                _check_channels(name, values, shape[axis or 0])
        return (Tensor("-", shape, zero_point=self.requantization.zero_point),)

    def sums(self, *real: Integers) -> Integers:
        """Compute the sums to requantize from zero-point-free inputs, in steps of their scales.

        Sums of products use float64, which is exact below 2**53.
        """
        raise NotImplementedError

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        real = (_real(*pair) for pair in zip(inputs, arrays, strict=True))
        return self.requantization.apply(self.sums(*real), self.channels_axis or 0)


# ----------------------------------------------------------------------- sums of products


@dataclass(frozen=True, eq=False, repr=False)
class Weighted(Requantized):
    """Base class of sums of products of a tensor with int8 weights, plus a bias."""

    weight: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32] | None = None
    requantization: Requantization = field(default_factory=Requantization)
    rank: ClassVar[int] = 4
    """Rank of the weights."""
    channels_axis: ClassVar[int] = 1

    def __post_init__(self) -> None:
        rank, weight, bias = self.rank, self.weight, self.bias
        if not isinstance(weight, np.ndarray) or weight.dtype != np.int8 or weight.ndim != rank:
            raise ShapeError(
                f"the weights are {getattr(weight, 'dtype', type(weight))}"
                f"{list(np.shape(weight))}; they must be int8 of rank {rank}"
            )
        if 0 in weight.shape:
            raise ShapeError(f"the weights have shape {weight.shape}; no extent may be 0")
        channels = len(self.by_output)
        if bias is not None and (bias.dtype != np.int32 or bias.shape != (channels,)):
            raise ShapeError(
                f"the bias is {bias.dtype}{list(bias.shape)}; it must be int32[{channels}]"
            )
        for name in ("multiplier", "shift", "nudge"):
            _check_channels(name, getattr(self.requantization, name), channels)
        super().__post_init__()

    @property
    def by_output(self) -> npt.NDArray[np.int8]:
        """The weights with output channels first."""
        return self.weight

    def bound(self, data: Tensor) -> Integers:
        """Return the largest magnitude of the sums of each output channel."""
        weight = np.abs(self.by_output.astype(np.int16))
        totals = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
        sums: Integers = totals * _reach(data)
        return sums if self.bias is None else sums + np.abs(self.bias.astype(np.int64))

    def biased(self, products: Array) -> Integers:
        """Return exact products plus the bias."""
        acc: Integers = products.astype(np.int64)
        if self.bias is None:
            return acc
        return acc + along(self.channels_axis, acc.ndim, self.bias.astype(np.int64))


@dataclass(frozen=True, eq=False, repr=False)
class Convolution(Weighted):
    """``y = requantize(conv(x - x.zero_point, weight) + bias [+ (r - r.zero_point) * factor])``.

    Inputs: ``x`` (N, C, H, W), and ``r`` of the result's shape if there is a residual factor.

    Parameters
    ----------
    weight : ndarray of int8, shape (O, C // groups, KH, KW)
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
        Factor of the residual, 1..32768: its scale divided by that of the sums.
    """

    strides: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    residual_factor: Any = None

    arity = None

    def __post_init__(self) -> None:
        super().__post_init__()
        channels = self.weight.shape[0]
        if self.groups < 1 or channels % self.groups:
            raise ShapeError(f"groups is {self.groups}; it must divide {channels} output channels")
        if self.residual_factor is not None:
            factor = integers("residual_factor", self.residual_factor, 1, MAX_FACTOR)
            object.__setattr__(self, "residual_factor", factor)
            _check_channels("residual_factor", factor, channels)

    @property
    def kind(self) -> str:
        depthwise = self.groups > 1 and self.weight.shape[1] == 1
        name = "depthwise_convolution" if depthwise else "convolution"
        return name if self.residual_factor is None else f"{name}+residual"

    @property
    def window(self) -> Window:
        """The window over the image."""
        return Window(self.weight.shape[2:], self.strides, self.padding, self.dilation)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        data = inputs[0]
        n, c, h, w = _image(data)
        o, i, *_ = self.weight.shape
        if i * self.groups != c:
            raise ShapeError(
                f"{data.name} has {c} channels; weights {self.weight.shape} in {self.groups} "
                f"groups read {i * self.groups}"
            )
        shape = (n, o, *self.window.out_size(h, w))
        expected = 1 if self.residual_factor is None else 2
        if len(inputs) != expected:
            raise ShapeError(f"{self.kind} takes {expected} inputs; {len(inputs)} given")
        bound = self.bound(data)
        if self.residual_factor is not None:
            if inputs[1].shape != shape:
                raise ShapeError(f"the residual has shape {inputs[1].shape}, the result {shape}")
            bound = bound + self.residual_factor * _reach(inputs[1])
        check_accumulator(self.kind, bound)
        return self.result(shape)

    def sums(self, *real: Integers) -> Integers:
        data, *residual = real
        acc = self.biased(convolve(data, self.weight, self.window, self.groups))
        return acc + residual[0] * along(1, 4, self.residual_factor) if residual else acc


@dataclass(frozen=True, eq=False, repr=False)
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

    strides: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    output_padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    @property
    def by_output(self) -> npt.NDArray[np.int8]:
        inputs, outputs, *kernel = self.weight.shape
        if self.groups < 1 or inputs % self.groups:
            raise ShapeError(f"groups is {self.groups}; it must divide {inputs} input channels")
        grouped = self.weight.reshape(self.groups, -1, outputs, *kernel).swapaxes(1, 2)
        found: npt.NDArray[np.int8] = grouped.reshape(self.groups * outputs, -1, *kernel)
        return found

    @property
    def window(self) -> Window:
        """The window over the result."""
        return Window(self.weight.shape[2:], self.strides, self.padding, self.dilation)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, c, h, w = _image(inputs[0])
        i, o, *_ = self.weight.shape
        if i != c:
            raise ShapeError(f"{inputs[0].name} has {c} channels; the weights read {i}")
        most = tuple(map(max, self.strides, self.dilation))
        if any(a >= b for a, b in zip(self.output_padding, most, strict=True)):
            raise ShapeError(
                f"output_padding is {self.output_padding}; it must be less than the strides "
                f"{self.strides} or the dilation {self.dilation}"
            )
        rows, columns = self.window.transposed_size(h, w, self.output_padding)
        if rows < 1 or columns < 1:
            raise ShapeError(f"nothing is left of the result: {rows} x {columns} pixels")
        check_accumulator(self.kind, self.bound(inputs[0]))
        return self.result((n, o * self.groups, rows, columns))

    def sums(self, *real: Integers) -> Integers:
        (data,) = real
        *_, height, width = data.shape
        size = self.window.transposed_size(height, width, self.output_padding)
        return self.biased(convolve_transposed(data, self.weight, self.window, size, self.groups))


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Weighted):
    """``y = requantize((x - x.zero_point) @ weight.T + bias)`` on the last axis of ``x``.

    Parameters
    ----------
    weight : ndarray of int8, shape (N, K)
        Weights.
    bias, requantization
        As for `Convolution`, with N channels.
    """

    rank = 2
    channels_axis = -1

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        data = inputs[0]
        if len(data.shape) < 2 or data.shape[-1] != self.weight.shape[1]:
            raise ShapeError(
                f"{data.name} has shape {data.shape}; the weights read (..., "
                f"{self.weight.shape[1]})"
            )
        check_accumulator(self.kind, self.bound(data))
        return self.result((*data.shape[:-1], self.weight.shape[0]))

    def sums(self, *real: Integers) -> Integers:
        return self.biased(real[0].astype(np.float64) @ self.weight.T)


@dataclass(frozen=True, eq=False, repr=False)
class Matmul(Requantized):
    """``y = requantize((a - a.zero_point) @ (b - b.zero_point))`` of two tensors.

    Inputs: ``a`` (..., M, K) and ``b`` (..., K, N); leading axes of one element repeat.

    Parameters
    ----------
    requantization : Requantization
        Maps sums to results; one for all channels.
    """

    requantization: Requantization = field(default_factory=Requantization)
    channels_axis = None
    arity = 2

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        a, b = inputs
        if min(len(a.shape), len(b.shape)) < 2 or a.shape[-1] != b.shape[-2]:
            raise ShapeError(f"{a.shape} and {b.shape} cannot be multiplied as matrices")
        check_accumulator(self.kind, np.array(a.shape[-1] * _reach(a) * _reach(b)))
        return self.result((*self.leading(inputs), a.shape[-2], b.shape[-1]))

    @staticmethod
    def leading(inputs: Sequence[Tensor]) -> Shape:
        """Return the leading axes of the result.

        Raises
        ------
        ShapeError
            If those of the operands differ, and neither has one element.
        """
        a, b = (tensor.shape[:-2] for tensor in inputs)
        try:
            return np.broadcast_shapes(a, b)
        except ValueError as error:
            raise ShapeError(f"{a} and {b} matrices cannot be multiplied: {error}") from error

    def sums(self, *real: Integers) -> Integers:
        a, b = (x.astype(np.float64) for x in real)
        return (a @ b).astype(np.int64)


# ----------------------------------------------------------------------------- pooling


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool(GraphOperator):
    """Maximum of each window; padding never wins (a window of only padding gives -128).

    Parameters
    ----------
    kernel, strides : (int, int)
        Window and step.
    padding : (int, int, int, int)
        (top, left, bottom, right).
    dilation : (int, int)
        (height, width).
    ceil : bool
        Whether the output size is rounded up (`vtaops.base.window.Window`).
    """

    kernel: Pair
    strides: Pair
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    ceil: bool = False

    def window(self, data: Tensor) -> Window:
        """Return the window over an image; a size that is rounded up is padding."""
        window = Window(self.kernel, self.strides, self.padding, self.dilation, self.ceil)
        return window.padded_up(*data.shape[2:])

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, c, h, w = _image(inputs[0])
        return (replace(inputs[0], shape=(n, c, *self.window(inputs[0]).out_size(h, w))),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return over_windows(np.maximum, arrays[0], self.window(inputs[0]), -128)


@dataclass(frozen=True, eq=False, repr=False)
class AveragePool(Requantized):
    """``y = requantize(sum of a window of (x - x.zero_point) * factor)``: the mean in fixed point.

    The scales include the division: `from_ratio` computes factor and requantization. Padding counts
    as zeros unless `exclude_padding`; pixels beyond it, by which `ceil` lets windows extend, never
    count. Factor and requantization depend on how many pixels of a window count (`of_count`).

    Parameters
    ----------
    kernel : (int, int) or None
        Window; None: the whole image.
    strides : (int, int)
        Step.
    padding : (int, int, int, int)
        (top, left, bottom, right).
    factor : int
        1..127.
    requantization : Requantization
        One for all channels.
    exclude_padding : bool
        Whether means at the border average only the real pixels.
    dilation : (int, int)
        (height, width).
    ceil : bool
        Whether the output size is rounded up (`vtaops.base.window.Window`).
    """

    kernel: Pair | None = None
    strides: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    factor: int = 1
    requantization: Requantization = field(default_factory=Requantization)
    exclude_padding: bool = False
    dilation: Pair = (1, 1)
    ceil: bool = False
    channels_axis = None

    def __post_init__(self) -> None:
        super().__post_init__()
        integers("factor", self.factor, 1, 127)

    @staticmethod
    def from_ratio(
        ratio: float,
        count: int,
        *,
        shifts_only: bool,
        zero_point: int = 0,
        clip: tuple[int, int] = (-128, 127),
        **window: Any,
    ) -> AveragePool:
        """Return the pool of windows of `count` pixels with ``x.scale / y.scale == ratio``.

        With `shifts_only` the factor is the nearest 7-bit number such that a shift remains, which
        every VTA supports; otherwise the factor is 1, and a 16-bit multiplier holds the whole
        ratio.
        """
        wanted, factor = ratio / count, 1
        if shifts_only:
            factor, shift = narrow(wanted)
            wanted = 2.0**-shift
        scaling = Requantization.from_ratio(wanted, zero_point, clip)
        return AveragePool(factor=factor, requantization=scaling, **window)

    @property
    def windowed(self) -> dict[str, Any]:
        """The parameters of its windows, as keyword arguments."""
        names = "kernel", "strides", "padding", "dilation", "ceil", "exclude_padding"
        return {name: getattr(self, name) for name in names}

    def _window(self, data: Tensor) -> Window:
        size = data.shape[2], data.shape[3]
        return Window(self.kernel or size, self.strides, self.padding, self.dilation, self.ceil)

    def window(self, data: Tensor) -> Window:
        """Return the window over an image; a size that is rounded up is padding."""
        return self._window(data).padded_up(*data.shape[2:])

    def differs(self, data: Tensor) -> bool:
        """Return whether windows differ in the number of pixels that count."""
        window = self.window(data)
        return any(
            window.padding if self.exclude_padding else self._window(data).beyond(*data.shape[2:])
        )

    def of_count(self, count: int, size: int) -> tuple[int, Requantization]:
        """Return factor and requantization for windows with `count` of `size` real pixels.

        Their product is ``size / count`` times that of whole windows, in the same precision: a
        7-bit factor if a shift follows, else a 16-bit multiplier.

        Raises
        ------
        ShapeError
            If a factor or multiplier is out of range.
        """
        scaling = self.requantization
        if count in (0, size):
            return self.factor, scaling
        if scaling.rounding == "quotient":
            return self.factor, replace(scaling, multiplier=count)
        right = scaling.right_shift
        if right is not None:
            factor, shift = narrow(math.ldexp(self.factor * size / count, -right))
            return factor, replace(scaling, multiplier=1, shift=shift)
        (multiplier,), (shift,) = np.unique(scaling.multiplier), np.unique(scaling.shift)
        if not multiplier:
            return self.factor, scaling
        found = fixed_point(math.ldexp(int(multiplier) * size / count, -int(shift)))
        return self.factor, replace(scaling, multiplier=found[0], shift=found[1])

    def counts(self, data: Tensor) -> tuple[npt.NDArray[np.int64], ...]:
        """Return how many pixels of windows count, along the height and the width of an image."""
        window, size = self.window(data), data.shape[2:]
        outputs = window.out_size(*size)
        if not self.exclude_padding:  # all of the image with its padding
            size = self._window(data).padded(*size)
            window = replace(window, padding=(0, 0, 0, 0))
        return tuple(
            np.array([len(window.taps_inside(axis, size[axis], i)) for i in range(outputs[axis])])
            for axis in (0, 1)
        )

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, c, h, w = _image(inputs[0])
        window = self.window(inputs[0])
        check_padded(window.padded(h, w))
        size = window.out_size(h, w)
        factor = self.factor
        if self.requantization.rounding == "quotient":
            self._check_quotient(inputs[0], window)
        if self.differs(inputs[0]):
            rows, columns = self.counts(inputs[0])
            real = np.unique(np.multiply.outer(np.unique(rows), np.unique(columns)))
            factor = max(self.of_count(int(count), window.count)[0] for count in real)
        check_accumulator(self.kind, np.array(window.count * factor * _reach(inputs[0])))
        return self.result((n, c, *size))

    def _check_quotient(self, data: Tensor, window: Window) -> None:
        """Reject a quotient that is not that of the values of each window and their number."""
        scaling, padded = self.requantization, any(window.padding) and not self.exclude_padding
        divisor = int(scaling.multiplier.flat[0])
        if (self.factor, divisor) != (1, window.count) or scaling.multiplier.ndim or padded:
            raise ShapeError(
                f"a quotient of sums of {window.count} values has the factor 1, divides by "
                f"{window.count} and excludes its padding; factor is {self.factor}, multiplier "
                f"{scaling.multiplier.tolist()}, padding {self.padding}"
            )
        if scaling.zero_point != data.zero_point:
            raise ShapeError(
                f"a quotient keeps the zero point of {data.name}, {data.zero_point}; that of the "
                f"result is {scaling.zero_point}"
            )

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        window = self.window(inputs[0])
        total = over_windows(np.add, _real(inputs[0], arrays[0]), window, 0)
        if not self.differs(inputs[0]):
            return self.requantization.apply(total * self.factor)
        counts = np.multiply.outer(*self.counts(inputs[0]))
        result = np.empty(total.shape, np.int8)
        for count in np.unique(counts):
            factor, scaling = self.of_count(int(count), window.count)
            windows = counts == count
            result[..., windows] = scaling.apply(total[..., windows] * factor)
        return result


# ------------------------------------------------------------------------- elementwise


@dataclass(frozen=True, eq=False, repr=False)
class Add(Requantized):
    """``y = requantize((a - a.zero_point) * factors[0] + (b - b.zero_point) * factors[1])``.

    Inputs: two tensors of one shape, or ``b`` (N, C, 1, 1) beside an image.

    Parameters
    ----------
    factors : (int, int)
        -32768..32768, not 0; a negative one subtracts.
    requantization : Requantization
        One for all channels.
    """

    factors: Pair = (1, 1)
    requantization: Requantization = field(default_factory=Requantization)
    channels_axis = None
    arity = 2

    def __post_init__(self) -> None:
        values = integers("factors", self.factors, -MAX_FACTOR, MAX_FACTOR)
        if values.shape != (2,) or not values.all():
            raise ShapeError(f"factors is {self.factors}; give two integers other than 0")
        object.__setattr__(self, "factors", (int(values[0]), int(values[1])))

    @staticmethod
    def from_ratios(
        first: float, second: float, zero_point: int = 0, clip: tuple[int, int] = (-128, 127)
    ) -> Add:
        """Return the sum with ``a.scale / y.scale == first`` and ``b.scale / y.scale == second``.

        Powers of two (or their negatives) that lie within 2**14 of each other are exact; other
        ratios are within 2**-14 of the greater one. A ratio is lowered where its operand saturates
        the result, unless it is 0.0.

        Raises
        ------
        ShapeError
            If a ratio is 0 or not finite, the results too fine for both, or the rounding of a
            factor moves results by more than half a step.
        """
        sizes = [abs(first), abs(second)]
        if not all(0 < size < math.inf for size in sizes):
            raise ShapeError(f"the ratios are {first} and {second}; they must be finite, and not 0")
        enough = 2.0 ** math.ceil(math.log2(255 * (1 + min(sizes))))
        sizes = [min(size, enough) for size in sizes]
        exact = all(math.frexp(size)[0] == 0.5 for size in sizes)
        unit = max(min(sizes), max(sizes) / FAR) if exact else max(sizes) / TWO_DIGITS
        factors = [max(1, round(size / unit)) for size in sizes]
        moved = max(abs(f * unit - size) for f, size in zip(factors, sizes, strict=True))
        if 255 * moved > 0.5:
            raise ShapeError(
                f"the operands of a sum have steps of {first} and {second} steps of its result; "
                f"factors of the sums hold the smaller one to {moved:.2g}"
            )
        a, b = (int(math.copysign(f, r)) for f, r in zip(factors, (first, second), strict=True))
        return Add((a, b), Requantization.from_ratio(unit, zero_point, clip))

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape = _broadcast(self.kind, inputs)
        reach = (abs(f) * _reach(t) for f, t in zip(self.factors, inputs, strict=True))
        check_accumulator(self.kind, np.array(sum(reach)))
        return self.result(shape)

    def sums(self, *real: Integers) -> Integers:
        a, b = (x * factor for x, factor in zip(real, self.factors, strict=True))
        return a + b


@dataclass(frozen=True, eq=False, repr=False)
class RescaledAdd(Requantized):
    """``y = requantize(rescale(a - a.zero_point) + rescale(b - b.zero_point))``: TFLite's addition.

    Each operand is shifted left by 20 bits, then multiplied and rounded twice to the unit of the
    sums (`vtaops.graph.requantization.Rounding`). Inputs: as `Add`.

    Parameters
    ----------
    multipliers, shifts : (int, int)
        Per operand: 31 bits, 0..62; a negative multiplier subtracts.
    requantization : Requantization
        One for all channels.
    """

    multipliers: Pair
    shifts: Pair
    requantization: Requantization = field(default_factory=Requantization)
    channels_axis = None
    arity = 2

    def __post_init__(self) -> None:
        for name, most in (("multipliers", (1 << 31) - 1), ("shifts", 62)):
            least = 0 if name == "shifts" else -most
            values = integers(name, getattr(self, name), least, most)
            if values.shape != (2,):
                raise ShapeError(f"{name} is {getattr(self, name)}; give two integers")
            object.__setattr__(self, name, (int(values[0]), int(values[1])))

    @staticmethod
    def from_scales(
        a: float, b: float, result: float, *, sign: int, zero_point: int, clip: tuple[int, int]
    ) -> RescaledAdd:
        """Return the sum of tensors of scales `a` and `b`; their difference if `sign` is -1.

        Raises
        ------
        ShapeError
            If a ratio of the scales is out of range.
        """
        unit = 2 * max(a, b)
        (first, s), (second, t) = (quantized_multiplier(scale / unit) for scale in (a, b))
        scaling = Requantization.tflite(unit / (result * (1 << 20)), zero_point, clip)
        return RescaledAdd((first, sign * second), (s, t), scaling)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.result(_broadcast(self.kind, inputs))

    def sums(self, *real: Integers) -> Integers:
        a, b = (self.rescaled(index, x) for index, x in enumerate(real))
        return a + b

    def rescaled(self, index: int, real: Integers) -> Integers:
        """Rescale an operand to the unit of the sums."""
        multiplier, shift = self.multipliers[index], self.shifts[index]
        acc = (real << 20) * (1 if multiplier > 0 else -1)
        more = np.where(acc < 0, -1, 1) * ((1 << 30) if shift > 31 else 0)
        found: Integers = (acc * abs(multiplier) + ((1 << shift) >> 1) + more) >> shift
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Multiply(Requantized):
    """``y = requantize((a - a.zero_point) * (b - b.zero_point))``.

    Inputs: two tensors of one shape, or ``b`` (N, C, 1, 1) beside an image.
    """

    requantization: Requantization = field(default_factory=Requantization)
    channels_axis = None
    arity = 2

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.result(_broadcast(self.kind, inputs))

    def sums(self, *real: Integers) -> Integers:
        return real[0] * real[1]


@dataclass(frozen=True, eq=False, repr=False)
class Requantize(Requantized):
    """``y = requantize(x - x.zero_point)``: a change of scale, a clip, or a standalone ReLU."""

    requantization: Requantization = field(default_factory=Requantization)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.result(inputs[0].shape)

    def sums(self, *real: Integers) -> Integers:
        return real[0]


@dataclass(frozen=True, eq=False, repr=False)
class LeakyRelu(Requantized):
    """``y = requantize(v * (positive if v >= 0 else negative))`` with ``v = x - x.zero_point``.

    Parameters
    ----------
    positive : int
        Factor, 1..127.
    negative : int or ndarray of int, shape (C,)
        Factor, or one for each channel (axis 1): -127..127.
    requantization : Requantization
        One for all channels.
    """

    positive: int = 1
    negative: Any = 1
    requantization: Requantization = field(default_factory=Requantization)
    channels_axis = None

    def __post_init__(self) -> None:
        integers("positive", self.positive, 1, 127)
        negative = integers("negative", self.negative, -127, 127)
        if negative.ndim > 1:
            raise ShapeError(f"negative has shape {negative.shape}; give one number, or (C,)")
        object.__setattr__(self, "negative", negative if negative.ndim else int(negative))

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape, factors = inputs[0].shape, np.shape(self.negative)
        if factors and (len(shape) < 2 or factors != shape[1:2]):
            raise ShapeError(f"{factors[0]} factors for a tensor of shape {shape}")
        return self.result(shape)

    def sums(self, *real: Integers) -> Integers:
        negative = along(1, real[0].ndim, np.asarray(self.negative))
        return real[0] * np.where(real[0] >= 0, self.positive, negative)


@dataclass(frozen=True, eq=False, repr=False)
class LookupTable(GraphOperator):
    """``y = table[x + 128]``: any function of one int8 value (sigmoid, hard-swish, GELU).

    Parameters
    ----------
    table : ndarray of int8, shape (256,) or (C, 256)
        Results for -128..127: one table for all values, or one for each channel (axis 1).
    zero_point : int
        Zero point of the result.
    function : str
        Display name of the function.
    """

    table: npt.NDArray[np.int8]
    zero_point: int = 0
    function: str = "table"

    def __post_init__(self) -> None:
        shape = self.table.shape
        if self.table.dtype != np.int8 or len(shape) not in (1, 2) or shape[-1] != 256:
            raise ShapeError(
                f"the table is {self.table.dtype}{list(shape)}; it must be int8[256], or "
                "int8[C, 256]"
            )

    @property
    def kind(self) -> str:
        return self.function

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape = inputs[0].shape
        if self.table.ndim == 2 and (len(shape) < 2 or shape[1] != len(self.table)):
            raise ShapeError(f"{len(self.table)} tables for a tensor of shape {shape}")
        return (Tensor("-", shape, zero_point=self.zero_point),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        index = arrays[0].astype(np.int64) + 128
        if self.table.ndim == 1:
            return self.table[index]
        return self.table[along(1, index.ndim, np.arange(len(self.table))), index]


# ------------------------------------------------------------------------------ movement


@dataclass(frozen=True, eq=False, repr=False)
class Concat(GraphOperator):
    """Concatenate tensors of one scale and zero point along `axis`."""

    axis: int = 1
    arity = None
    takes = DTYPES

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        first = inputs[0]
        axis = _axis(self.axis, first)
        for other in inputs[1:]:
            same = [e for a, e in enumerate(other.shape) if a != axis]
            if same != [e for a, e in enumerate(first.shape) if a != axis]:
                raise ShapeError(f"{first.shape} and {other.shape} do not join on axis {axis}")
            if other.zero_point != first.zero_point or other.dtype != first.dtype:
                raise ShapeError(
                    f"{first.name} and {other.name} have zero points {first.zero_point} and "
                    f"{other.zero_point}; requantize them to one before they are joined"
                )
        shape = list(first.shape)
        shape[axis] = sum(t.shape[axis] for t in inputs)
        return (replace(first, shape=tuple(shape)),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return np.concatenate(arrays, axis=self.axis)


@dataclass(frozen=True, eq=False, repr=False)
class Upsample(GraphOperator):
    """Nearest-neighbour upsampling: repeat every pixel `factors` (height, width) times."""

    factors: Pair = (2, 2)
    takes = DTYPES

    def __post_init__(self) -> None:
        _check_window(self, "factors", 2)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, c, h, w = _image(inputs[0])
        return (replace(inputs[0], shape=(n, c, h * self.factors[0], w * self.factors[1])),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return arrays[0].repeat(self.factors[0], axis=2).repeat(self.factors[1], axis=3)


@dataclass(frozen=True, eq=False, repr=False)
class Pad(GraphOperator):
    """Pad an image: (top, left, bottom, right).

    Parameters
    ----------
    padding : (int, int, int, int)
        Rows and columns to add.
    mode : "constant", "edge" or "reflect"
        What they hold: 0.0, the nearest pixel, or the image mirrored at its outermost pixels.
    """

    padding: Sides
    mode: Literal["constant", "edge", "reflect"] = "constant"

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, c, h, w = _image(inputs[0])
        top, left, bottom, right = self.padding
        if self.mode not in ("constant", "edge", "reflect"):
            raise ShapeError(f"mode is {self.mode!r}; it must be constant, edge or reflect")
        if self.mode == "reflect" and not (max(top, bottom) < h and max(left, right) < w):
            raise ShapeError(
                f"an image of {h} x {w} pixels cannot be mirrored by the padding {self.padding}"
            )
        return (replace(inputs[0], shape=(n, c, h + top + bottom, w + left + right)),)

    def sources(self, axis: int, extent: int) -> tuple[list[int], list[int]]:
        """Return which of `extent` pixels are repeated before and behind an axis (0 or 1)."""
        before, behind = self.padding[axis], self.padding[axis + 2]
        if self.mode == "edge":
            return [0] * before, [extent - 1] * behind
        return [*range(before, 0, -1)], [*range(extent - 2, extent - 2 - behind, -1)]

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        window = Window((1, 1), padding=self.padding)
        if self.mode == "constant":
            return padded(arrays[0], window, inputs[0].zero_point)
        top, left, bottom, right = self.padding
        return np.pad(arrays[0], ((0, 0), (0, 0), (top, bottom), (left, right)), self.mode)


@dataclass(frozen=True, eq=False, repr=False)
class Slice(GraphOperator):
    """``x[..., start:stop:step, ...]`` on one axis; a split is several slices."""

    axis: int
    start: int
    stop: int
    step: int = 1
    takes = DTYPES

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        axis = _axis(self.axis, inputs[0])
        extent = inputs[0].shape[axis]
        if not (0 <= self.start < self.stop <= extent and self.step >= 1):
            raise ShapeError(
                f"slice {self.start}:{self.stop}:{self.step} of {extent} elements; "
                f"0 <= start < stop <= {extent} and a positive step are needed"
            )
        shape = list(inputs[0].shape)
        shape[axis] = ceil_div(self.stop - self.start, self.step)
        return (replace(inputs[0], shape=tuple(shape)),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        index = [slice(None)] * arrays[0].ndim
        index[self.axis] = slice(self.start, self.stop, self.step)
        return arrays[0][tuple(index)]


@dataclass(frozen=True, eq=False, repr=False)
class ChannelShuffle(GraphOperator):
    """Move channel ``g * (C // groups) + i`` to channel ``i * groups + g``."""

    groups: int
    takes = DTYPES

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        channels = _image(inputs[0])[1]
        if self.groups < 1 or channels % self.groups:
            raise ShapeError(f"groups is {self.groups}; it must divide {channels} channels")
        return (inputs[0],)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        n, c, h, w = arrays[0].shape
        grouped = arrays[0].reshape(n, self.groups, c // self.groups, h, w)
        return grouped.swapaxes(1, 2).reshape(n, c, h, w)


@dataclass(frozen=True, eq=False, repr=False)
class Reshape(GraphOperator):
    """Reshape in C order."""

    shape: Shape
    takes = DTYPES

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if math.prod(self.shape) != inputs[0].elements:
            raise ShapeError(f"{inputs[0].shape} cannot take the shape {self.shape}")
        return (replace(inputs[0], shape=tuple(self.shape)),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return arrays[0].reshape(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Transpose(GraphOperator):
    """Permute the axes, as ``numpy.transpose``."""

    axes: Shape
    takes = DTYPES

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if sorted(self.axes) != list(range(len(inputs[0].shape))):
            raise ShapeError(f"axes is {self.axes}; it must permute those of {inputs[0].shape}")
        return (replace(inputs[0], shape=tuple(inputs[0].shape[a] for a in self.axes)),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return arrays[0].transpose(self.axes)


@dataclass(frozen=True, eq=False, repr=False)
class Expand(GraphOperator):
    """Repeat axes of one element, as ``numpy.broadcast_to``."""

    shape: Shape
    takes = DTYPES

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape, wanted = inputs[0].shape, tuple(self.shape)
        pairs = zip(reversed(shape), reversed(wanted), strict=False)
        if len(shape) > len(wanted) or any(a not in (1, b) for a, b in pairs):
            raise ShapeError(f"{inputs[0].name} has shape {shape}, which cannot become {wanted}")
        return (replace(inputs[0], shape=wanted),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return np.broadcast_to(arrays[0], self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Constant(GraphOperator):
    """An array of the file, for operators that take it like a tensor.

    Parameters
    ----------
    value : ndarray
        Of one of `vtaops.graph.tensor.DTYPES`.
    zero_point : int
        Of int8 values.
    """

    value: Array
    zero_point: int = 0
    arity = 0

    def __post_init__(self) -> None:
        if not isinstance(self.value, np.ndarray) or self.value.dtype.name not in DTYPES:
            found = getattr(self.value, "dtype", type(self.value))
            raise ShapeError(f"the constant is {found}; it must be an array of {DTYPES}")

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        value = self.value
        return (Tensor("-", value.shape, value.dtype.name, zero_point=self.zero_point),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return self.value


# -------------------------------------------------------------------- the world outside


@dataclass(frozen=True, eq=False, repr=False)
class Quantize(GraphOperator):
    """float32 to int8: ``clip(rint(x / scale) + zero_point)``, halves to even, as in ONNX.

    NaN becomes -128, as in ONNX Runtime.
    """

    scale: float
    zero_point: int = 0
    takes = ("float32",)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (Tensor("-", inputs[0].shape, "int8", self.scale, self.zero_point),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        with np.errstate(over="ignore"):  # an overflow to infinity is clipped
            steps = np.rint(arrays[0] / np.float32(self.scale)) + np.float32(self.zero_point)
        return np.fmin(np.fmax(steps, -128), 127).astype(np.int8)


@dataclass(frozen=True, eq=False, repr=False)
class Dequantize(GraphOperator):
    """int8 to float32: ``(x - x.zero_point) * x.scale``, in float32."""

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (Tensor("-", inputs[0].shape, "float32"),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        steps = _real(inputs[0], arrays[0]).astype(np.float32)
        with np.errstate(over="ignore"):
            return np.multiply(steps, np.float32(inputs[0].scale))


@dataclass(frozen=True, eq=False, repr=False)
class FromUint8(GraphOperator):
    """uint8 to int8: 128 less. The zero point is that of the result."""

    zero_point: int = 0
    takes = ("uint8",)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        data = inputs[0]
        return (Tensor("-", data.shape, "int8", data.scale, self.zero_point),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return (arrays[0] ^ 128).view(np.int8)


@dataclass(frozen=True, eq=False, repr=False)
class ToUint8(GraphOperator):
    """int8 to uint8: 128 more."""

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (Tensor("-", inputs[0].shape, "uint8", inputs[0].scale),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return arrays[0].view(np.uint8) ^ 128


class FloatOperator(GraphOperator):
    """A function of finite float32 to float32, whose order of additions and products is defined.

    So every processor gets the same bits (``docs/quantization.md``).
    """

    takes = ("float32",)

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (Tensor("-", inputs[0].shape, "float32"),)


@dataclass(frozen=True, eq=False, repr=False)
class Softmax(FloatOperator):
    """``exp(x - max) / sum of exp(x - max)`` along the last axis, in float64."""

    named = "softmax"

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if not inputs[0].shape:
            raise ShapeError(f"{inputs[0].name} is a scalar; softmax needs an axis")
        return super().results(inputs)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        data = arrays[0].astype(np.float64)
        with np.errstate(invalid="ignore"):
            below = data - data.max(axis=-1, keepdims=True)
            values = np.where(below >= -700, exponential(np.clip(below, -700, 0)), 0.0)
            return (values / _sum(values, -1)).astype(np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class LayerNorm(FloatOperator):
    """``(x - mean) / sqrt(variance + epsilon) * weight + bias`` along the last axis, in float64.

    Parameters
    ----------
    weight, bias : numpy.ndarray of float32
        For each place on the last axis.
    epsilon : float
        Taken as float32.
    """

    weight: Array
    bias: Array
    epsilon: float = 1e-5

    named = "layer_norm"

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        columns = inputs[0].shape[_axis(-1, inputs[0])]
        for name in ("weight", "bias"):
            _check_term(name, getattr(self, name), (columns,))
        return super().results(inputs)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        data = arrays[0].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            data -= _sum(data, -1) / data.shape[-1]
            variance = _sum(data * data, -1) / data.shape[-1]
            data *= inverse_root(variance + np.float64(np.float32(self.epsilon)))
            return (data * self.weight + self.bias).astype(np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class Mean(FloatOperator):
    """The mean along an axis, which the result does not have; in float64."""

    axis: int

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape, axis = inputs[0].shape, _axis(self.axis, inputs[0])
        return (Tensor("-", (*shape[:axis], *shape[axis + 1 :]), "float32"),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        total = _sum(arrays[0].astype(np.float64), self.axis)
        return np.squeeze(total / arrays[0].shape[self.axis], self.axis).astype(np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class AddTerm(FloatOperator):
    """The sum with a constant of float32, in float32; its shape is the end of the tensor's."""

    term: Array

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shape = inputs[0].shape
        kept = max(0, len(shape) - getattr(self.term, "ndim", 0))
        _check_term("term", self.term, shape[kept:])
        return super().results(inputs)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        with np.errstate(over="ignore"):
            return arrays[0] + self.term


@dataclass(frozen=True, eq=False, repr=False)
class FixedSoftmax(GraphOperator):
    """TFLite's int8 softmax along the last axis, in steps of 1/256 above -128.

    `vtaops.graph.fixed_softmax` does the fixed-point arithmetic; it uses the input's scale.
    """

    named = "softmax in fixed point"

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if not inputs[0].shape:
            raise ShapeError(f"{inputs[0].name} is a scalar; softmax needs an axis")
        if inputs[0].shape[-1] > fixed_softmax.MOST:
            most = fixed_softmax.MOST
            raise ShapeError(f"a softmax of {inputs[0].shape[-1]} values; its sums hold {most}")
        return (Tensor("-", inputs[0].shape, "int8", 1 / 256, -128),)

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return fixed_softmax.softmax(arrays[0], inputs[0].scale)


@dataclass(frozen=True, eq=False, repr=False)
class Host(GraphOperator):
    """An opaque function that an importer compiled for the host.

    Parameters
    ----------
    function : HostFunction
        Called with the input arrays.
    outputs : tuple of Tensor
        Its results: shapes, dtypes, scales (names are ignored).
    operators : tuple of str
        Display names of the model's operators that it computes.
    reason, code : str
        Why it does not run on VTA (`vtaops.base.reasons`).
    """

    function: HostFunction
    outputs: tuple[Tensor, ...]
    operators: tuple[str, ...] = ()
    reason: str = "it is not an integer operator"
    code: str = "float"
    arity = None
    takes = DTYPES

    @property
    def kind(self) -> str:
        return ", ".join(self.operators) or "host"

    def results(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.outputs

    def meaning(self, inputs: Sequence[Tensor], arrays: Sequence[Array]) -> Any:
        return self.function(*arrays)


# ------------------------------------------------------------------------------- checks


def narrow(ratio: float) -> tuple[int, int]:
    """Return (factor, shift): the 7-bit factor nearest to ``ratio * 2**shift``.

    Raises
    ------
    ShapeError
        If the ratio is not positive and finite, or beyond 127.
    """
    multiplier, shift = fixed_point(ratio)
    if is_power_of_two(multiplier) and multiplier < 128:
        return multiplier, shift
    exponent = math.frexp(ratio)[1]
    shift = 7 - exponent
    factor = round(math.ldexp(ratio, shift))
    if factor == 128:
        factor, shift = 64, shift - 1
    if shift < 0:
        raise ShapeError(f"a ratio of scales is {ratio}; it must be at most 127")
    while factor % 2 == 0 and shift:
        factor, shift = factor // 2, shift - 1
    return factor, shift


def spread(weight: npt.NDArray[np.int8], dilation: Pair) -> npt.NDArray[np.int8]:
    """Return the weights (..., KH, KW) with zeros between dilated taps."""
    if dilation == (1, 1):
        return weight
    *outer, kh, kw = weight.shape
    (down, across), size = dilation, Window((kh, kw), dilation=dilation).extent
    found = np.zeros((*outer, *size), np.int8)
    found[..., ::down, ::across] = weight
    return found


def check_accumulator(kind: str, bound: npt.NDArray[Any]) -> None:
    """Reject sums that could leave int32.

    Raises
    ------
    ShapeError
        If `bound` exceeds int32; the message quotes it.
    """
    if np.max(bound) >= ACCUMULATOR:
        raise ShapeError(f"the sums of {kind} could reach {int(np.max(bound))}, beyond int32")


def _real(tensor: Tensor, array: Array) -> Integers:
    """Return ``value - zero_point``: the real value in steps of the scale."""
    real: Integers = array.astype(np.int64) - tensor.zero_point
    return real


def _reach(tensor: Tensor) -> int:
    """Return the largest magnitude of ``value - zero_point``."""
    return max(127 - tensor.zero_point, 128 + tensor.zero_point)


def _check_channels(name: str, values: npt.NDArray[Any], channels: int) -> None:
    if values.ndim and values.shape != (channels,):
        raise ShapeError(f"{name} has shape {values.shape}; there are {channels} output channels")


def _check_window(op: GraphOperator, name: str, length: int) -> None:
    least = 0 if name in ("padding", "output_padding") else 1
    values = integers(name, getattr(op, name), least, (1 << 31) - 1)
    if values.shape != (length,):
        raise ShapeError(f"{name} is {getattr(op, name)}; give {length} integers")
    object.__setattr__(op, name, tuple(int(value) for value in values))


def _image(tensor: Tensor) -> tuple[int, int, int, int]:
    if len(tensor.shape) != 4:
        raise ShapeError(f"{tensor.name} has shape {tensor.shape}; an image is (N, C, H, W)")
    n, c, h, w = tensor.shape
    return n, c, h, w


def _axis(axis: int, tensor: Tensor) -> int:
    if not -len(tensor.shape) <= axis < len(tensor.shape):
        raise ShapeError(f"axis is {axis}; {tensor.name} has shape {tensor.shape}")
    return axis % len(tensor.shape)


def _broadcast(kind: str, inputs: Sequence[Tensor]) -> Shape:
    a, b = inputs[0].shape, inputs[1].shape
    if a == b or (len(a) == 4 and b == (*a[:2], 1, 1)):
        return a
    raise ShapeError(f"{kind} of {a} and {b}: they must be equal, or the second (N, C, 1, 1)")


def _check_term(name: str, term: object, shape: Shape) -> None:
    if not isinstance(term, np.ndarray) or (term.dtype, term.shape) != (np.float32, shape):
        found = f"{term.dtype}{[*term.shape]}" if isinstance(term, np.ndarray) else repr(term)
        raise ShapeError(f"{name} is {found}; it must be float32{[*shape]}")


def _sum(x: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
    """Return the sum along an axis, which stays: from the first to the last, one by one."""
    return np.cumsum(x, axis).take([-1], axis)


def inverse_root(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return 1 / sqrt(x), to some 1e-15, by Newton's method: the same bits on every processor."""
    found = (0x5FE6EB50C7B537A9 - (x.view(np.int64) >> 1)).view(np.float64)
    for _ in range(4):
        found = found * (1.5 - 0.5 * x * found * found)
    return found


def exponential(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return exp(x) for -700 <= x <= 0 by a polynomial: the same bits on every processor."""
    power = np.trunc(x * 1.4426950408889634 - 0.5)  # x / log 2, rounded to nearest
    rest = x - power * 0.6931471805599453
    total = np.zeros_like(x)
    for n in range(13, -1, -1):
        total = total * rest + 1.0 / math.factorial(n)
    return np.ldexp(total, power.astype(np.int32))
