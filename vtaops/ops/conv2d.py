"""Conv2d: two-dimensional convolution of int8 images, with bias, shift and clip."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import te, tirx

from vtaops.config import HardwareConfig
from vtaops.errors import ShapeError, UnsupportedError
from vtaops.layout import bias_layout, data_layout, kernel_layout
from vtaops.ops.base import Operator, Pair, as_pair, require_at_least
from vtaops.ops.postprocess import (
    AluStage,
    alu_stages,
    check_postprocessing,
    declare_postprocessing,
)
from vtaops.program import Buffer, Role


@dataclass(frozen=True)
class Conv2d(Operator):
    """``out = int8(clip((conv(data, kernel) + bias) >> shift))`` on NCHW data and OIHW weights.

    Any channel count is accepted; channels and batch are padded with zeros to whole tiles.

    Parameters
    ----------
    batch, in_channels, height, width : int
        Shape of the input, NCHW.
    out_channels : int
        Number of filters.
    kernel, strides, dilation : int or (int, int)
        (height, width); dilation 1 is a dense kernel.
    padding : int, (int, int) or (int, int, int, int)
        Zeros around the input: one number, (height, width), or (top, left, bottom, right).
    groups : int
        Must be 1.
    bias : bool
        Whether an int32 bias (out_channels,) is added before the shift.
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.

    Raises
    ------
    ShapeError
        If a parameter is out of range or the kernel exceeds the padded input.
    UnsupportedError
        For groups other than 1.

    Notes ----- Accumulators are int32 and wrap; with ``in_channels * kernel_h * kernel_w <=
    131071`` no input can overflow them (131071 * 128 * 128 < 2**31).
    """

    batch: int = 1
    in_channels: int = 256
    out_channels: int = 256
    height: int = 14
    width: int = 14
    kernel: Pair = 3
    strides: Pair = 1
    padding: int | tuple[int, int] | tuple[int, int, int, int] = 1
    dilation: Pair = 1
    groups: int = 1
    bias: bool = False
    shift: int = 8
    clip: tuple[int, int] | None = (0, 127)

    def __post_init__(self) -> None:
        for name in ("kernel", "strides", "dilation"):
            object.__setattr__(self, name, as_pair(name, getattr(self, name)))
        object.__setattr__(self, "padding", _four_sides(self.padding))
        require_at_least(
            1,
            batch=self.batch,
            in_channels=self.in_channels,
            out_channels=self.out_channels,
            height=self.height,
            width=self.width,
            kernel_h=self.kernel_size[0],
            kernel_w=self.kernel_size[1],
            stride_h=self.stride[0],
            stride_w=self.stride[1],
            dilation_h=self.dilations[0],
            dilation_w=self.dilations[1],
        )
        sides = ("padding_top", "padding_left", "padding_bottom", "padding_right")
        require_at_least(0, **dict(zip(sides, self.pads, strict=True)))
        check_postprocessing(self.shift, self.clip)
        if self.groups != 1:
            raise UnsupportedError(f"groups is {self.groups}; grouped convolution is not available")
        for axis, extent, needed in zip(
            ("height", "width"), self.padded_size, self.kernel_extent, strict=True
        ):
            if needed > extent:
                raise ShapeError(
                    f"the kernel spans {needed} pixels in {axis}, the padded input has {extent}"
                )

    # ------------------------------------------------------------------- shapes

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Kernel (height, width)."""
        return as_pair("kernel", self.kernel)

    @property
    def stride(self) -> tuple[int, int]:
        """Strides (height, width)."""
        return as_pair("strides", self.strides)

    @property
    def dilations(self) -> tuple[int, int]:
        """Dilation (height, width)."""
        return as_pair("dilation", self.dilation)

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Padding (top, left, bottom, right)."""
        return _four_sides(self.padding)

    @property
    def kernel_extent(self) -> tuple[int, int]:
        """Pixels that the kernel spans, dilation included (height, width)."""
        (kh, kw), (dh, dw) = self.kernel_size, self.dilations
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    @property
    def padded_size(self) -> tuple[int, int]:
        """Input size with padding (height, width)."""
        top, left, bottom, right = self.pads
        return self.height + top + bottom, self.width + left + right

    @property
    def out_size(self) -> tuple[int, int]:
        """Output size (height, width)."""
        (ph, pw), (eh, ew), (sh, sw) = self.padded_size, self.kernel_extent, self.stride
        return (ph - eh) // sh + 1, (pw - ew) // sw + 1

    @property
    def gathers_rows(self) -> bool:
        """Whether the stride skips input rows; then only the rows that are read are loaded."""
        return self.stride[0] > self.kernel_extent[0]

    @property
    def summary(self) -> str:
        (kh, kw), (sh, sw) = self.kernel_size, self.stride
        batch = f"{self.batch}x" if self.batch > 1 else ""
        stride = "" if sh == sw == 1 else f" /{sh}" if sh == sw else f" /{sh}x{sw}"
        image = f"{batch}{self.in_channels}x{self.height}x{self.width}"
        return f"conv2d {image} -> {self.out_channels}, {kh}x{kw}{stride}"

    @property
    def macs(self) -> int:
        (oh, ow), (kh, kw) = self.out_size, self.kernel_size
        return self.batch * self.out_channels * oh * ow * self.in_channels * kh * kw

    @property
    def stages(self) -> list[AluStage]:
        return alu_stages(self.bias, self.shift, self.clip)

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        n, i, o = self.batch, self.in_channels, self.out_channels
        data, kernel = (n, i, self.height, self.width), (o, i, *self.kernel_size)
        result = Buffer("res", Role.OUTPUT, (n, o, *self.out_size), "int8", data_layout(config))
        return (
            Buffer("data", Role.INPUT, data, "int8", data_layout(config)),
            Buffer("kernel", Role.PARAMETER, kernel, "int8", kernel_layout(config)),
            *(
                [Buffer("bias", Role.PARAMETER, (o,), "int32", bias_layout(config))]
                if self.bias
                else []
            ),
            result,
        )

    # -------------------------------------------------------------- declaration

    def declare(self, config: HardwareConfig) -> tvm.IRModule:
        shapes = {buffer.name: buffer.packed_shape for buffer in self.buffers(config)}
        data = te.placeholder(shapes["data"], "int8", name="data")
        kernel = te.placeholder(shapes["kernel"], "int8", name="kernel")
        data_buf = self._declare_input(data)
        kernel_buf = te.compute(kernel.shape, lambda *i: kernel(*i), name="kernel_buf")

        (kh, kw), (sh, sw), (dh, dw) = self.kernel_size, self.stride, self.dilations
        row_step, row_tap = (kh, 1) if self.gathers_rows else (sh, dh)
        ic = te.reduce_axis((0, shapes["data"][1]), name="ic")
        dy = te.reduce_axis((0, kh), name="dy")
        dx = te.reduce_axis((0, kw), name="dx")
        ic_tns = te.reduce_axis((0, config.block_in), name="ic_tns")
        acc = te.compute(
            shapes["res"],
            lambda bo, co, i, j, bi, ci: te.sum(
                data_buf[bo, ic, i * row_step + dy * row_tap, j * sw + dx * dw, bi, ic_tns].astype(
                    "int32"
                )
                * kernel_buf[co, ic, dy, dx, ci, ic_tns].astype("int32"),
                axis=[ic, dy, dx, ic_tns],
            ),
            name="res_conv",
        )
        arguments = [data, kernel]
        bias_of = None
        if self.bias:
            bias = te.placeholder(shapes["bias"], "int32", name="bias")
            bias_buf = te.compute(bias.shape, lambda *i: bias(*i), name="bias_buf")
            arguments.append(bias)

            def bias_of(bo, co, i, j, bi, ci):  # type: ignore[no-untyped-def]
                return bias_buf[co, bi, ci]

        res = declare_postprocessing(acc, self.stages, bias_of)
        return tvm.IRModule({"main": te.create_prim_func([*arguments, res])})

    def _declare_input(self, data: te.Tensor) -> te.Tensor:
        """Declare the padded input; where the stride skips rows, only those that are read."""
        n, c, _, _, *tile = (int(extent) for extent in data.shape)
        (kh, _), (sh, _), (dh, _) = self.kernel_size, self.stride, self.dilations
        top, left, _, _ = self.pads
        rows, columns = self.padded_size
        if self.gathers_rows:
            rows = self.out_size[0] * kh

        def body(bo, ci, r, x, *lanes):  # type: ignore[no-untyped-def]
            y = (r // kh) * sh + (r % kh) * dh - top if self.gathers_rows else r - top
            value = data(bo, ci, y, x - left, *lanes)
            if not any(self.pads):
                return value
            inside = tirx.all(y >= 0, y < self.height, x >= left, x < self.width + left)
            return tirx.if_then_else(inside, value, tirx.const(0, "int8"))

        return te.compute((n, c, rows, columns, *tile), body, name="data_buf")


def _four_sides(
    padding: int | tuple[int, int] | tuple[int, int, int, int],
) -> tuple[int, int, int, int]:
    sides = (padding,) if isinstance(padding, int) else tuple(padding)
    if len(sides) not in (1, 2, 4):
        raise ShapeError(
            f"padding is {padding!r}; give one integer, (height, width) or "
            f"(top, left, bottom, right)"
        )
    top, left, bottom, right = (sides * 4)[:4]
    return top, left, bottom, right
