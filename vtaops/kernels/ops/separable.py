"""SeparableOp: a depthwise convolution and the 1x1 convolution behind it, as one operator."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te

from vtaops.kernels.ops.common import (
    Expr,
    SlidingWindow,
    Tensor,
    TensorSpec,
    pad_image,
    window_axes,
    zero,
)
from vtaops.kernels.ops.convolution import WindowedSum
from vtaops.kernels.ops.epilogue import NOTHING, Epilogue


@dataclass(frozen=True)
class SeparableOp(WindowedSum):
    """Depthwise convolution of NCHW data, an activation, and a 1x1 convolution; float32.

    Attributes
    ----------
    batch, channels, height, width : int
        Shape of the data.
    window : SlidingWindow
        Of the depthwise convolution.
    out_channels : int
        Of the 1x1 convolution.
    multiplier : int
        Results of the depthwise convolution per channel, M; its kernel is (channels, M, rows,
        columns), that of the 1x1 convolution (out_channels, channels * M).
    between : Epilogue
        Behind the depthwise convolution: nothing or an activation.
    epilogue : Epilogue
        Behind the 1x1 convolution.
    """

    batch: int
    channels: int
    height: int
    width: int
    window: SlidingWindow
    out_channels: int
    multiplier: int = 1
    between: Epilogue = NOTHING
    epilogue: Epilogue = NOTHING
    dtype = "float32"  # no field: there is no other

    @property
    def middle_channels(self) -> int:
        """Channels between the two convolutions."""
        return self.channels * self.multiplier

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        data = (self.batch, self.channels, self.height, self.width)
        depthwise = (self.channels, self.multiplier, *self.window.kernel)
        return (
            TensorSpec("data", data, "float32"),
            TensorSpec("depthwise", depthwise, "float32"),
            TensorSpec("pointwise", (self.out_channels, self.middle_channels), "float32"),
            *self.epilogue.inputs(self.out_channels, self._shape, "float32"),
        )

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.batch, self.out_channels, *self.out_size)

    @property
    def flops(self) -> int:
        rows, columns = self.out_size
        taps = self.window.kernel[0] * self.window.kernel[1]
        return 2 * self.batch * rows * columns * self.middle_channels * (taps + self.out_channels)

    def declare(self) -> list[Tensor]:
        tensors = self.placeholders()
        image = pad_image(tensors["data"], self.window, zero("float32"))
        kh, kw = window_axes(self.window)
        rows, columns = self.out_size

        def tap(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            source, q = c // self.multiplier, c % self.multiplier
            pixel = image(n, source, *self.window.pixel(i, j, kh, kw))
            return te.sum(pixel * tensors["depthwise"][source, q, kh, kw], axis=[kh, kw])

        shape = (self.batch, self.middle_channels, rows, columns)
        middle = te.compute(shape, tap, name="middle")
        act = self.between.bind({})
        active = te.compute(
            shape, lambda *index: act(middle(*index), index[1], *index), name="active"
        )
        c = te.reduce_axis((0, self.middle_channels), name="c")
        return self._finished(
            tensors,
            lambda n, o, i, j: te.sum(active[n, c, i, j] * tensors["pointwise"][o, c], axis=c),
        )
