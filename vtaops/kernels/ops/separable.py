"""SeparableOp: a depthwise convolution and the 1x1 convolution behind it, as one operator."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te

from vtaops.kernels.ops.common import Tensor, TensorSpec, Window, specs
from vtaops.kernels.ops.convolution import DepthwiseOp, WindowedSum
from vtaops.kernels.ops.epilogue import NOTHING, Epilogue


@dataclass(frozen=True)
class SeparableOp(WindowedSum):
    """Depthwise convolution of NCHW data, an activation, and a 1x1 convolution; float32.

    Attributes
    ----------
    batch, channels, height, width : int
        Shape of the data.
    window : Window
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
    window: Window
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
