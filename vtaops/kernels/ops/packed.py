"""Operators on NCHW[b]c data, (batch, blocks, rows, columns, b), for chains of them.

The innermost axis is a channel block, as long as a vector register: the sums of a pixel are one
vector, and an operator reads its predecessor's result without conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, prod

from tvm import te, tirx

from vtaops.base.errors import ShapeError
from vtaops.kernels.ops.common import (
    Expr,
    Tensor,
    TensorSpec,
    Window,
    inside_or,
    lowest,
    reduce_largest,
    specs,
    window_axes,
    zero,
)
from vtaops.kernels.ops.convolution import WindowedSum
from vtaops.kernels.ops.epilogue import NOTHING, Epilogue


class _Blocked(WindowedSum):
    """Sums over windows with results in channel blocks."""

    block: int
    out_blocks: int

    @property
    def _shape(self) -> tuple[int, ...]:
        return (self.batch, self.out_blocks, *self.out_size, self.block)

    def channel(self, *index: Expr) -> Expr:
        return index[1] * self.block + index[4]


@dataclass(frozen=True)
class PackedConv2dOp(_Blocked):
    """2-D convolution of NCHW[b]c data, with blocked channels.

    Attributes
    ----------
    batch, in_blocks, height, width, out_blocks : int
        Data (batch, in_blocks, height, width, in_block), result (batch, out_blocks, ..., block).
    window : Window
        Kernel size, strides, padding, dilation.
    block : int
        Channels in one block.
    dtype : str
        float32: the kernel is OIHW[b]i[b]o, (out_blocks, in_blocks, rows, columns, in_block,
        block). int8 or uint8: the int8 kernel has groups of four inputs innermost, (out_blocks,
        in_blocks, rows, columns, in_block / 4, block, 4).
    epilogue : Epilogue
        Fused operations after the sum; a residual has the result's shape, vectors are
        (blocks * block,).
    in_block : int
        Channels in one block of the data; 0: as in the result.
    plain : bool
        Whether the data are NCHW, (batch, in_blocks * in_block, height, width), to start a chain.
    zero_point : int
        Padding value, for uint8 data that represent ``data - zero_point``; the sums include the
        zero point, which a bias must subtract.
    used : int
        Channels in use, for float32 data; 0: all. The others are not read.
    """

    batch: int
    in_blocks: int
    height: int
    width: int
    out_blocks: int
    window: Window
    block: int = 16
    dtype: str = "float32"
    epilogue: Epilogue = NOTHING
    in_block: int = 0
    plain: bool = False
    zero_point: int = 0
    used: int = 0

    def __post_init__(self) -> None:
        if not self.in_block:
            object.__setattr__(self, "in_block", self.block)
        if self.dtype != "float32" and self.in_block % 4:
            raise ShapeError(f"int8 blocks have {self.in_block} channels; give a multiple of 4")
        if self.zero_point and self.dtype != "uint8":
            raise ShapeError(f"zero_point is {self.zero_point}; only uint8 data have one")
        if self.plain and self.dtype != "float32":
            raise ShapeError(f"plain data are {self.dtype}; give float32, or pack them")
        super().__post_init__()

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        inner: tuple[int, ...] = (self.in_block, self.block)
        if self.dtype != "float32":
            inner = (self.in_block // 4, self.block, 4)
        kernel = (self.out_blocks, self.in_blocks, *self.window.kernel, *inner)
        data: tuple[int, ...] = (
            self.batch, self.in_blocks, self.height, self.width, self.in_block
        )  # fmt: skip
        if self.plain:
            data = (self.batch, self.in_blocks * self.in_block, self.height, self.width)
        return self._arguments(data, kernel, self.out_blocks * self.block)

    @property
    def flops(self) -> int:
        taps = self.in_blocks * self.in_block * prod(self.window.kernel)
        return 2 * prod(self._shape) * taps

    @property
    def sum_channels(self) -> tuple[int, int]:
        """Outer and inner extent of the channel reduction; the inner one divides a block."""
        used = self.used or self.in_blocks * self.in_block
        inner = gcd(used, self.in_block)
        return used // inner, inner

    @property
    def around(self) -> Expr:
        """Padding value."""
        return tirx.const(self.zero_point, self.dtype)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        padded = pad_blocked(self, given["data"])
        tap = self.sums(self.window, padded, given["kernel"], self.dtype != "float32")
        return self.finished(tap, given)

    def sums(
        self, window: Window, image: Tensor, kernel: Tensor, in_groups: bool
    ) -> Callable[..., Expr]:
        """Return ``f(n, c, i, j, b)``, the sums over the windows of a padded image.

        Parameters
        ----------
        window : Window
            Window over the image, see `without_gaps`.
        image, kernel : te tensor
            Blocked, as the operator's arguments.
        in_groups : bool
            Whether groups of four neighbouring bytes have their own reduction axis, the innermost.
        """
        (steps, inner), group = self.sum_channels, 4 if in_groups else 1
        outer = te.reduce_axis((0, steps), name="ico")
        channel = te.reduce_axis((0, inner // group), name="ici")
        byte = [te.reduce_axis((0, group), name="byte")] if in_groups else []
        kh, kw = window_axes(window)

        def tap(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
            block, first = outer * inner // self.in_block, outer * inner % self.in_block
            within = first + (channel * group + byte[0] if in_groups else channel)
            pixel = image(n, block, *window.pixel(i, j, kh, kw), within)
            weight = kernel(c, block, kh, kw, first // group + channel, b, *byte)
            product = pixel.astype(self.accumulator) * weight.astype(self.accumulator)
            return te.sum(product, axis=[outer, kh, kw, channel, *byte])

        return tap


@dataclass(frozen=True)
class PackedWindowOp(_Blocked):
    """Windows within each channel of NCHW[b]c data: a depthwise convolution, or a pooling.

    Attributes
    ----------
    kind : str
        "depthwise" (the kernel is (blocks, rows, columns, block)), "max" (padding is minus
        infinity) or "avg" (over the padded window).
    batch, blocks, height, width : int
        Data (batch, blocks, height, width, block).
    window : Window
        Kernel size, strides, padding, dilation.
    block : int
        Channels in one block.
    epilogue : Epilogue
        Fused operations after the sum of a depthwise convolution.
    dtype : str
        float32; for a depthwise convolution also int8 or uint8, with an int8 kernel.

    Raises
    ------
    ShapeError
        If a pooling has other data than float32, or the window does not fit.
    """

    kind: str
    batch: int
    blocks: int
    height: int
    width: int
    window: Window
    block: int = 16
    epilogue: Epilogue = NOTHING
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.kind != "depthwise" and self.dtype != "float32":
            raise ShapeError(f"data of a pooling are {self.dtype}; give float32")
        super().__post_init__()

    @property
    def out_blocks(self) -> int:  # type: ignore[override]
        """Blocks of the result."""
        return self.blocks

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        shape = (self.batch, self.blocks, self.height, self.width, self.block)
        if self.kind != "depthwise":
            return specs(data=shape, result=self._shape)
        kernel = (self.blocks, *self.window.kernel, self.block)
        return self._arguments(shape, kernel, self.blocks * self.block)

    @property
    def flops(self) -> int:
        return 2 * prod(self._shape) * prod(self.window.kernel)

    @property
    def around(self) -> Expr:
        """Padding value."""
        return lowest("float32") if self.kind == "max" else zero(self.dtype)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        padded = pad_blocked(self, given["data"])
        kh, kw = window_axes(self.window)

        def tap(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
            pixel = padded(n, c, *self.window.pixel(i, j, kh, kw), b)
            return self.combine(pixel, given.get("kernel"), (c, kh, kw, b))

        total = te.compute(self._shape, tap, name="total")
        return self.result(total, self.bound_epilogue(given))

    def combine(
        self, pixel: Expr, kernel: Tensor | None, tap: tuple[Expr, ...], dtype: str = ""
    ) -> Expr:
        """Reduce pixels over taps (block, row, column, channel).

        Products are computed in `dtype`, by default the accumulator's.
        """
        axes = list(tap[1:3])
        if self.kind == "max":
            return reduce_largest(pixel, axis=axes)
        if kernel is None:
            return te.sum(pixel, axis=axes)
        dtype = dtype or self.accumulator
        return te.sum(pixel.astype(dtype) * kernel(*tap).astype(dtype), axis=axes)

    def bound_epilogue(self, tensors: dict[str, Tensor]) -> Expr:
        """Return ``f(total, channel, *index)``, an element of the result."""
        if self.kind == "depthwise":
            return self.epilogue.bind(tensors, self.accumulator)
        if self.kind == "max":
            return lambda value, *_: value
        factor = 1.0 / prod(self.window.kernel)
        return lambda value, *_: value * factor


def without_gaps(window: Window) -> tuple[Window, tuple[int, int]]:
    """Return the window and the strides of a gap-free copy of the image for it to read.

    A strided 1x1 window skips most pixels: the copy has only those that it reads.
    """
    if window.kernel != (1, 1):
        return window, (1, 1)
    return Window((1, 1), padding=window.padding), window.strides


def pad_blocked(
    op: PackedConv2dOp | PackedWindowOp,
    data: Tensor,
    size: tuple[int, int] | None = None,
    strides: tuple[int, int] = (1, 1),
    convert: Callable[[Expr], Expr] = lambda value: value,
) -> Tensor:
    """Declare the data padded for the window, or to `size` rows and columns.

    The result is blocked, (batch, blocks, rows, columns, block), even for plain data; `strides`
    subsample rows and columns. `convert` is applied to pixels and padding.
    """
    (down, across), (top, left, bottom, right) = strides, op.window.padding
    size = size or (op.height + top + bottom, op.width + left + right)
    if isinstance(op, PackedConv2dOp):
        blocks, inner = op.in_blocks, op.in_block
        plain = op.plain
    else:
        blocks, inner, plain = op.blocks, op.block, False

    def pixel(n: Expr, c: Expr, i: Expr, j: Expr, b: Expr) -> Expr:
        row, column = i * down - top, j * across - left
        index = (n, c * inner + b, row, column) if plain else (n, c, row, column, b)
        return convert(inside_or(data, index, (2, 3), op.around))

    return te.compute((op.batch, blocks, *size, inner), pixel, name="padded")
