"""Convolutions of NCHW data: grouped, and depthwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.kernels.ops.common import (
    ACCUMULATOR,
    Expr,
    Tensor,
    TensorSpec,
    Window,
    pad_image,
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
