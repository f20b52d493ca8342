"""Conv2dTranspose: transposed convolution of int8 images, without products of inserted zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy.typing as npt

from vtaops.base import shapes
from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_init
from vtaops.base.shapes import Pair, Sides
from vtaops.base.window import Size, Window
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.machine.layout import Layout
from vtaops.ops.arguments import Arguments, image_sizes, int8_array, present, vectors
from vtaops.ops.epilogue import AluStage, Stage
from vtaops.ops.families import SumOfProducts, WindowOperator
from vtaops.program import Buffer, Role


@dataclass(frozen=True)
class Phases:
    """One axis of a transposed convolution.

    Output pixel ``y`` reads the taps ``(y + before) % stride + stride * t`` of input pixel
    ``(y + before) // stride - t``, for ``t`` in ``0..taps-1``: the outputs of one phase
    ``y % stride`` share their taps, and read no others.

    Attributes
    ----------
    extent, kernel, stride : int
        Input pixels, kernel taps, and output pixels per input pixel.
    before : int
        Output pixels cropped at the start (the padding).
    outputs : int
        Output pixels.
    """

    extent: int
    kernel: int
    stride: int
    before: int
    outputs: int

    @property
    def taps(self) -> int:
        """Maximum number of taps of a phase."""
        return shapes.ceil_div(self.kernel, self.stride)

    @property
    def phases(self) -> int:
        """Number of phases with outputs."""
        return min(self.stride, self.outputs)

    @property
    def steps(self) -> int:
        """Pixels of one phase, rounded up."""
        return shapes.ceil_div(self.outputs, self.stride)

    @property
    def lowest(self) -> int:
        """First input pixel in use; negative in the padding."""
        return self.before // self.stride - (self.taps - 1)

    @property
    def window(self) -> int:
        """Input pixels that all phases of one step read."""
        return (self.before + self.stride - 1) // self.stride - self.lowest + 1

    @property
    def span(self) -> int:
        """Input pixels that all outputs read, including padding."""
        return self.steps - 1 + self.window


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class Conv2dTranspose(WindowOperator, SumOfProducts):
    """``out = int8(clip((conv_transpose(data, kernel) + bias) >> shift))``, NCHW and IOHW.

    The output has ``(height - 1) * stride - top - bottom + kernel + output_padding`` rows.
    It is computed phase by phase: output pixels of equal position modulo the stride form an
    ordinary convolution with every stride-th tap, without inserted zeros.

    Parameters
    ----------
    batch, in_channels, height, width : int
        Shape of the input.
    out_channels : int
        Number of filters.
    kernel, strides : int or (int, int)
        (height, width).
    padding : int, (int, int) or (int, int, int, int)
        Cropped output pixels: one number, (height, width), or (top, left, bottom, right).
    output_padding : int or (int, int)
        Rows and columns added at the bottom and right; less than the stride.
    bias, shift, clip, rounding, scales, zero_point
        As for `Conv2d`.

    Raises
    ------
    ShapeError
        If a parameter is out of range or the output is empty.
    """

    batch: int = 1
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel: Pair
    strides: Pair = 1
    padding: int | tuple[int, int] | Sides = 0
    output_padding: Pair = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        shapes.require_at_least(1, in_channels=self.in_channels, out_channels=self.out_channels)

    def _check_size(self) -> None:
        added = shapes.as_pair("output_padding", self.output_padding)
        object.__setattr__(self, "output_padding", added)
        shapes.require_at_least(0, output_padding_h=added[0], output_padding_w=added[1])
        shapes.check_padded(self.out_size)
        for axis, extra, step, outputs in zip(
            ("height", "width"), added, self.window.strides, self.out_size, strict=True
        ):
            if extra >= step:
                raise ShapeError(
                    f"output_padding is {extra} in {axis}; it must be less than the stride {step}"
                )
            if outputs < 1:
                raise ShapeError(f"the output has {outputs} pixels in {axis}; reduce the padding")

    @classmethod
    def of(
        cls,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
        **parameters: Any,
    ) -> tuple[Conv2dTranspose, Arguments]:
        """Return the operator for arrays (NCHW and IOHW), and the arrays; as `Conv2d.of`.

        Raises
        ------
        ShapeError
            If ranks, dtypes, channel counts or parameters do not fit.
        """
        images, filters = int8_array("data", data, "NCHW"), int8_array("kernel", kernel, "IOHW")
        c = images.shape[1]
        if c != filters.shape[0]:
            raise ShapeError(
                f"data has {c} channels (shape {images.shape}), kernel expects "
                f"{filters.shape[0]} (shape {filters.shape}, axes IOHW)"
            )
        per_channel = {"bias": bias, "scales": scales}
        op = cls(
            **image_sizes(images, filters),
            in_channels=c,
            out_channels=filters.shape[1],
            **present(per_channel),
            **parameters,
        )
        return op, (images, filters, *vectors(op.out_channels, per_channel))

    @cached_property
    def window(self) -> Window:
        """The kernel over the result."""
        return Window.of(self.kernel, self.strides, shapes.four_sides(self.padding))

    @cached_property
    def out_size(self) -> Size:
        """Output size (height, width)."""
        added = shapes.as_pair("output_padding", self.output_padding)
        return self.window.transposed_size(self.height, self.width, added)

    @property
    def rows(self) -> Phases:
        """The phases that map output rows to input rows."""
        return self._phases(0)

    @property
    def columns(self) -> Phases:
        """The phases that map output columns to input columns."""
        return self._phases(1)

    def _phases(self, axis: int) -> Phases:
        kernel, stride = self.window.kernel[axis], self.window.strides[axis]
        extent = (self.height, self.width)[axis]
        return Phases(extent, kernel, stride, self.pads[axis], self.out_size[axis])

    @property
    def summary(self) -> str:
        image = self._image_text(self.in_channels)
        return f"conv2d_transpose {image} -> {self.out_channels}, {self.window.text}"

    @property
    def macs(self) -> int:
        """Multiply-accumulates of input pixels and taps (including cropped outputs)."""
        pixels = self.batch * self.height * self.width
        return pixels * self.in_channels * self.out_channels * self.window.count

    @property
    def stages(self) -> Sequence[Stage]:
        if stages := super().stages:
            return stages
        # If the stride exceeds the kernel, some outputs have no taps; a store needs a last
        # writer that is not a reset.
        return [AluStage("res_copy", AluOp.SHR, 0)]

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        i, o = self.in_channels, self.out_channels
        weights = Layout(f"OIHW{config.block_out}o{config.block_in}i", "IOHW")
        kernel = Buffer("kernel", Role.PARAMETER, (i, o, *self.window.kernel), "int8", weights)
        data, res = self.image_buffers(i, o, config)
        return (data, kernel, *self.epilogue.buffers(o, config), res)
