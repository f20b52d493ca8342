"""DepthwiseConv2dAlu: depthwise convolution by multiply-adds of the vector ALU.

`Conv2d` with as many groups as channels computes the same with diagonal weight tiles on the GEMM
core, in a sixth of the cycles; this variant needs MUL and 8-bit accumulator loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy.typing as npt
from tvm import te

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_init
from vtaops.base.shapes import Padding, Pair, require_at_least
from vtaops.machine.capabilities import Feature
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.machine.layout import Layout
from vtaops.ops.arguments import Arguments, image_sizes, int8_array, present, vectors
from vtaops.ops.declarations import Given, Shape, bordered
from vtaops.ops.epilogue import INT8, AluStage, Rounding, lane_meaning
from vtaops.ops.families import SumOfProducts, WindowOperator
from vtaops.program import Buffer, Role

CYCLES_OF_A_TAP = 6
"""Cycles per tap and tile: widening load (2, at 8 bytes a cycle), multiply (2), add (2); the GEMM
core needs 1."""

MULTIPLY = AluStage("res_product", AluOp.MUL, None, "kernel")
"""The pass that multiplies the pixels of one tap by its weights."""


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class DepthwiseConv2dAlu(WindowOperator, SumOfProducts):
    """``out = int8(clip((depthwise(data, kernel) + bias) >> shift))``, on the vector ALU.

    Parameters
    ----------
    batch, channels, height, width : int
        Shape of the input, NCHW; the kernel is (channels, 1, KH, KW).
    kernel, strides : int or (int, int)
        (height, width).
    padding : int, (int, int) or (int, int, int, int)
        One number, (height, width), or (top, left, bottom, right).
    bias, shift, clip, rounding
        As for `Conv2d`.

    Raises
    ------
    ShapeError
        If a parameter is out of range or the kernel exceeds the padded input.
    """

    batch: int = 1
    channels: int
    height: int
    width: int
    kernel: Pair
    strides: Pair = 1
    padding: Padding = 0
    bias: bool = False
    shift: int = 8
    clip: tuple[int, int] | None = INT8
    rounding: Rounding = "truncate"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, channels=self.channels)

    @classmethod
    def of(
        cls,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        **parameters: Any,
    ) -> tuple[DepthwiseConv2dAlu, Arguments]:
        """Return the operator for arrays, and the arrays; as `Conv2d.of`.

        Raises
        ------
        ShapeError
            If ranks, dtypes, channel counts or parameters do not fit.
        """
        images, filters = int8_array("data", data, "NCHW"), int8_array("kernel", kernel, "OIHW")
        if filters.shape[:2] != (images.shape[1], 1):
            raise ShapeError(
                f"data has {images.shape[1]} channels, kernel has shape {filters.shape}; on the "
                f"ALU it must have one filter for each: ({images.shape[1]}, 1, KH, KW)"
            )
        sizes, given = image_sizes(images, filters), {"bias": bias}
        op = cls(**sizes, channels=len(filters), **present(given), **parameters)
        return op, (images, filters, *vectors(op.channels, given))

    @property
    def features(self) -> frozenset[Feature]:
        padding = {Feature.ACC_PADDING} if any(self.pads) else set()
        return frozenset({Feature.MUL, Feature.ACC_8BIT} | padding)

    @property
    def macs(self) -> int:
        return self.batch * self.channels * prod(self.out_size) * self.window.count

    @property
    def summary(self) -> str:
        return f"depthwise_conv2d {self._image_text(self.channels)}, {self.window.text} on the ALU"

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        filters = (self.channels, 1, *self.window.kernel)
        # One accumulator tile for each tap and channel block; all rows have the same weights.
        weights = Layout(f"OIHW{config.batch}n{config.block_out}o")
        kernel = Buffer("kernel", Role.PARAMETER, filters, "int8", weights)
        data, res = self.image_buffers(self.channels, self.channels, config)
        return (data, kernel, *self.vector_buffers(self.channels, config), res)

    def compute(self, given: Given, shape: Shape, config: HardwareConfig) -> te.Tensor:
        kernel = given["kernel"]
        blocks, _, kh, kw, *tile = kernel.shape
        kernel_buf = te.compute(
            (blocks, kh, kw, *tile),
            lambda c, dy, dx, *lane: kernel(c, 0, dy, dx, *lane).astype("int32"),
            name="kernel_buf",
        )
        # Every tap multiplies its own widened copy of its pixels in place.
        taps = (*shape[:2], kh, kw, *shape[2:4], *tile)
        sh, sw = self.window.strides
        pixel = bordered(given["data"], self.pads[:2], border=any(self.pads))
        pixels = te.compute(
            taps,
            lambda b, ci, dy, dx, y, x, *lane: pixel(b, ci, y * sh + dy, x * sw + dx, *lane).astype(
                "int32"
            ),
            name="pixel_buf",
        )
        products = te.compute(
            taps,
            lambda b, ci, dy, dx, y, x, *lane: lane_meaning(
                MULTIPLY.op, pixels(b, ci, dy, dx, y, x, *lane), kernel_buf(ci, dy, dx, *lane)
            ),
            name=MULTIPLY.name,
        )
        dy, dx = te.reduce_axis((0, kh), name="dy"), te.reduce_axis((0, kw), name="dx")
        total = te.compute(
            shape,
            lambda b, ci, y, x, *lane: te.sum(products(b, ci, dy, dx, y, x, *lane), axis=[dy, dx]),
            name="res_total",
        )
        return self.declare_epilogue(total, given)
