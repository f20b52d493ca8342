"""Convolutions: 2-D of NCHW data (grouped), depthwise, separable, and 1-D."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import te, tirx

from vtaops.base.errors import ShapeError
from vtaops.kernels.ops.common import (
    ACCUMULATOR,
    Expr,
    Tensor,
    TensorOp,
    TensorSpec,
    Window,
    pad_image,
    specs,
    window_axes,
    zero,
)
from vtaops.kernels.ops.epilogue import NOTHING, Epilogue, FusedOp


class WindowedSum(FusedOp):
    """Base class of the 2-D convolutions: sums of products over windows of an image."""

    batch: int
    out_channels: int
    height: int
    width: int
    window: Window
    dtype: str

    def __post_init__(self) -> None:
        self.window.out_size(self.height, self.width)

    @property
    def accumulator(self) -> str:
        return ACCUMULATOR[self.dtype]

    @property
    def out_size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.out_size(self.height, self.width)

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (self.batch, self.out_channels, *self.out_size)

    def _arguments(
        self, data: tuple[int, ...], kernel: tuple[int, ...], channels: int
    ) -> tuple[TensorSpec, ...]:
        """Return the specs of data, kernel, epilogue inputs and result."""
        return (
            TensorSpec("data", data, self.dtype),
            TensorSpec("kernel", kernel, "float32" if self.dtype == "float32" else "int8"),
            *self.epilogue.arguments("result", channels, self._shape, self.accumulator),
        )


@dataclass(frozen=True)
class Conv2dOp(WindowedSum):
    """2-D convolution of NCHW data with an OIHW kernel, then an epilogue over the channels O.

    Attributes
    ----------
    batch, in_channels, height, width, out_channels : int
        Shapes of the data and the result.
    window : Window
        Kernel size, strides, padding, dilation.
    groups : int
        Groups of channels convolved separately; the kernel has in_channels / groups inputs.
    dtype : str
        float32, int8 or uint8 data; the kernel is float32 or int8.
    epilogue : Epilogue
        Fused operations after the sum.
    joined : bool
        Whether the rows of the result, and of a residual, form one: (batch, O, 1, rows * columns).

    Raises
    ------
    ShapeError
        If the groups do not divide the channels or the window does not fit.
    """

    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    window: Window
    groups: int = 1
    dtype: str = "float32"
    epilogue: Epilogue = NOTHING
    joined: bool = False

    def __post_init__(self) -> None:
        if self.groups < 1 or self.in_channels % self.groups or self.out_channels % self.groups:
            raise ShapeError(
                f"groups is {self.groups}; it must divide {self.in_channels} input and "
                f"{self.out_channels} output channels"
            )
        super().__post_init__()

    @property
    def group_in(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        kernel = (self.out_channels, self.group_in, *self.window.kernel)
        data = (self.batch, self.in_channels, self.height, self.width)
        return self._arguments(data, kernel, self.out_channels)

    @property
    def _shape(self) -> tuple[int, ...]:
        rows, columns = self.out_size
        size = (1, rows * columns) if self.joined else (rows, columns)
        return (self.batch, self.out_channels, *size)

    @property
    def flops(self) -> int:
        return 2 * prod(self._shape) * self.group_in * prod(self.window.kernel)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        padded = pad_image(given["data"], self.window, zero(self.dtype))
        return self.finished(self.sums(padded, given["kernel"]), given)

    def sums(self, image: Tensor, kernel: Tensor) -> Callable[..., Expr]:
        """Return ``f(n, c, i, j)``, the sums over the windows of a padded image.

        They cover as many channels of a group as the kernel has.
        """
        channel = te.reduce_axis((0, int(kernel.shape[1])), name="ic")
        kh, kw = window_axes(self.window)
        kind = self.accumulator

        def tap(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            group = c // self.group_out * self.group_in if self.groups > 1 else 0
            if self.joined:
                i, j = j // self.out_size[1], j % self.out_size[1]
            pixel = image(n, group + channel, *self.window.pixel(i, j, kh, kw)).astype(kind)
            weight = kernel[c, channel, kh, kw].astype(kind)
            return te.sum(pixel * weight, axis=[channel, kh, kw])

        return tap


@dataclass(frozen=True)
class DepthwiseOp(WindowedSum):
    """Depthwise 2-D convolution: channel c of NCHW data with the kernels [c, q], giving c*M + q.

    Attributes
    ----------
    batch, channels, height, width : int
        Shape of the data.
    window : Window
        Kernel size, strides, padding, dilation.
    multiplier : int
        Results per channel, M; the kernel is (channels, M, rows, columns).
    dtype : str
        float32, int8 or uint8 data; the kernel is float32 or int8.
    epilogue : Epilogue
        Fused operations after the sum.
    """

    batch: int
    channels: int
    height: int
    width: int
    window: Window
    multiplier: int = 1
    dtype: str = "float32"
    epilogue: Epilogue = NOTHING

    @property
    def out_channels(self) -> int:  # type: ignore[override]
        """Channels of the result."""
        return self.channels * self.multiplier

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        kernel = (self.channels, self.multiplier, *self.window.kernel)
        data = (self.batch, self.channels, self.height, self.width)
        return self._arguments(data, kernel, self.out_channels)

    @property
    def flops(self) -> int:
        return 2 * prod(self._shape) * prod(self.window.kernel)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        return self.finished(self.sums(given["data"], given["kernel"]), given)

    def sums(self, data: Tensor, kernel: Tensor) -> Callable[..., Expr]:
        """Return ``f(n, c, i, j)``, the sums over the windows of the padded image."""
        padded = pad_image(data, self.window, zero(self.dtype))
        kh, kw = window_axes(self.window)

        def tap(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            source, q = c // self.multiplier, c % self.multiplier
            pixel = padded(n, source, *self.window.pixel(i, j, kh, kw)).astype(self.accumulator)
            weight = kernel[source, q, kh, kw].astype(self.accumulator)
            return te.sum(pixel * weight, axis=[kh, kw])

        return tap


@dataclass(frozen=True)
class SeparableOp(WindowedSum):
    """Depthwise convolution of NCHW data, an activation, and a 1x1 convolution; float32.

    Attributes
    ----------
    batch, channels, height, width : int
        Shape of the data.
    window : Window
        Window of the depthwise convolution.
    out_channels : int
        Output channels of the 1x1 convolution.
    multiplier : int
        Results of the depthwise convolution per channel, M; its kernel is (channels, M, rows,
        columns), that of the 1x1 convolution (out_channels, channels * M).
    between : Epilogue
        After the depthwise convolution: nothing or an activation.
    epilogue : Epilogue
        After the 1x1 convolution.
    """

    batch: int
    channels: int
    height: int
    width: int
    window: Window
    out_channels: int
    multiplier: int = 1
    between: Epilogue = NOTHING
    epilogue: Epilogue = NOTHING
    dtype = "float32"  # not a field: the only dtype

    @property
    def middle_channels(self) -> int:
        """Channels between the two convolutions."""
        return self.channels * self.multiplier

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        operands = specs(
            data=(self.batch, self.channels, self.height, self.width),
            depthwise=(self.channels, self.multiplier, *self.window.kernel),
            pointwise=(self.out_channels, self.middle_channels),
        )
        end = self.epilogue.arguments("result", self.out_channels, self._shape, "float32")
        return operands + end

    @property
    def flops(self) -> int:
        rows, columns = self.out_size
        taps = self.window.kernel[0] * self.window.kernel[1]
        return 2 * self.batch * rows * columns * self.middle_channels * (taps + self.out_channels)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        size = (self.batch, self.channels, self.height, self.width)
        first = DepthwiseOp(*size, self.window, self.multiplier)
        shape = first.output.shape
        sums = first.sums(given["data"], given["depthwise"])
        middle = te.compute(shape, sums, name="middle")
        act = self.between.bind({})
        active = te.compute(
            shape, lambda *index: act(middle(*index), index[1], *index), name="active"
        )
        c = te.reduce_axis((0, self.middle_channels), name="c")
        return self.finished(
            lambda n, o, i, j: te.sum(active[n, c, i, j] * given["pointwise"][o, c], axis=c), given
        )


@dataclass(frozen=True)
class Conv1dOp(TensorOp):
    """1-D convolution of one signal with one kernel (cross-correlation, zero padding).

    Attributes
    ----------
    length : int
        Samples of the signal.
    kernel : int
        Taps.
    padding : (int, int)
        Zeros before and after the signal.
    flip : bool
        Whether the taps are reversed, as in signal processing (``numpy.convolve``).
    """

    length: int
    kernel: int
    padding: tuple[int, int] = (0, 0)
    flip: bool = False

    def __post_init__(self) -> None:
        if min(self.padding) < 0 or self.out_length < 1:
            raise ShapeError(
                f"a kernel of {self.kernel} taps does not fit into {self.length} samples padded by "
                f"{self.padding}"
            )

    @property
    def out_length(self) -> int:
        """Samples of the result."""
        return self.length + sum(self.padding) - self.kernel + 1

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return specs(data=(self.length,), kernel=(self.kernel,), result=(self.out_length,))

    @property
    def flops(self) -> int:
        return 2 * self.out_length * self.kernel

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        sums = self.sums(given, self.out_length, copied=any(self.padding))
        return te.compute((self.out_length,), sums, name="result")

    def sums(
        self, tensors: dict[str, Tensor], length: int, *, copied: bool
    ) -> Callable[[Expr], Expr]:
        """Return ``f(i)``, the sums of `length` results; if `copied`, of a zero-padded copy."""
        data, kernel = tensors["data"], tensors["kernel"]
        if copied:
            data = te.compute(
                (length + self.kernel - 1,),
                lambda i: inside_or(tensors["data"], (i - self.padding[0],), (0,), zero("float32")),
                name="padded",
            )
        k = te.reduce_axis((0, self.kernel), name="k")
        tap = self.kernel - 1 - k if self.flip else k
        return lambda i: te.sum(data[i + k] * kernel[tap], axis=k)


def inside_or(image: Tensor, index: tuple[Expr, ...], axes: tuple[int, ...], value: Expr) -> Expr:
    """Return ``image[index]`` if the index is inside the image along `axes`, else `value`."""
    bounds = [index[a] >= 0 for a in axes] + [index[a] < image.shape[a] for a in axes]
    return tirx.if_then_else(tirx.all(*bounds), image(*index), value)
