"""Conv2d: two-dimensional convolution of int8 images, with bias, shift, residual and clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_init
from vtaops.base.shapes import Padding, Pair, ceil_div, require_at_least
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import AluOp
from vtaops.machine.layout import Layout, data_layout, kernel_layout
from vtaops.machine.views import KernelColumns, Patches, Windows
from vtaops.ops.arguments import (
    Arguments,
    image_sizes,
    int8_array,
    present,
    vectors,
)
from vtaops.ops.base import plain
from vtaops.ops.constants import DIGIT_BITS, constant_buffers, scale_buffer
from vtaops.ops.epilogue import AluStage, Epilogue, Residual, Stage
from vtaops.ops.families import SumOfProducts, WindowOperator
from vtaops.ops.groups import ChannelGroups, GroupBlocks
from vtaops.program import Buffer, Role


@checked_init
@dataclass(frozen=True, kw_only=True, repr=False)
class Conv2d(WindowOperator, SumOfProducts):
    """``out = int8(clip((conv(data, kernel) + bias) >> shift))`` on NCHW data and OIHW weights.

    Any channel count is accepted; channels and batch are padded with zeros to whole tiles.

    With a residual, an int8 tensor of the result's shape is added before the clip, without a DRAM
    round trip of the convolution's result::

        own = clip((conv(data, kernel) + bias) >> shift, *residual_clip)
        out = int8(clip((own + residual * residual_scale) >> residual_shift, *clip))

    With scales the residual is a term of the sum instead, with a 16-bit factor per channel::

        sum = conv(data, kernel) + bias + residual * (256 * residual_high + residual_low)

    Wide weights have two int8 digits; a residual is then a term of the sum too, whose factors have
    three digits::

        sum = conv(data, 256 * kernel_high + kernel) + bias + residual * factor

    Parameters
    ----------
    batch, in_channels, height, width : int
        Shape of the input, NCHW.
    out_channels : int
        Number of filters.
    kernel, strides, dilation : int or (int, int)
        (height, width); dilation 1 is a dense kernel.
    padding : int, (int, int), (int, int, int, int), "same" or "valid"
        Zeros around the input: one number, (height, width), or (top, left, bottom, right); "same"
        for a result of the input's size, with strides of 1; "valid" for none.
    groups : int
        Groups of channels that are convolved separately; divides both channel counts.
    bias : bool
        Whether an int32 bias (out_channels,) is added before the shift.
    shift : int
        Arithmetic right shift of the accumulators, 0..31.
    clip : (int, int) or None
        Bounds of the result; None stores the low 8 bits.
    rounding : "truncate" or "half_up"
        Rounding of the shifts: towards minus infinity, or to nearest with halves upwards.
    residual : bool
        Whether an int8 tensor of the result's shape is added. With scales or wide weights, two or
        three int8 vectors (out_channels, 1, 1, 1) hold the digits of its factors
        (`vtaops.ops.constants.digits`).
    residual_scale : int
        Factor of the residual, a non-zero int8.
    residual_shift : int
        Arithmetic right shift of the sum, 0..31.
    residual_clip : (int, int) or None
        Bounds of the convolution's own result before the addition.
    bias_tiles : bool
        Whether the bias is passed as weights (out_channels, block) of a constant input tile
        (`vtaops.machine.views.constant_digits`), instead of `bias`: one tile product instead of a
        two-cycle ALU pass.
    scales : bool
        Whether an int32 vector (out_channels,) of fixed-point scales requantizes the sums instead
        of `shift`: ``clip(((sum * multiplier + half) >> shift) + zero_point)`` with an exact
        product. A channel's scale is ``multiplier | shift << 16``: multiplier 16 bits, unsigned;
        shift 0..47. Needs the extension ``post``.
    fine : int
        1..3 for fine scales with that base (`vtaops.base.fixed_point`): needs the extension
        ``exact``.
    zero_point : int
        With scales: added after the shift.
    fold_columns : bool
        Whether the host packs kernel columns as input channels, so that a first layer of few
        channels fills its tiles (see `vtaops.machine.views.Patches.of_columns`); one group only.
    wide : bool
        Whether the weights have two digits: the products with `kernel_high` are shifted left by 8
        before those with `kernel` are added. Not with `scales`, `bias_tiles` and weights of
        four bits.
    weight_bits : int
        8, or with one group 4: `Gemm`.

    Raises
    ------
    ShapeError
        If a parameter is out of range or the kernel exceeds the padded input.

    Notes
    -----
    Accumulators are int32 and wrap; with ``in_channels * kernel_h * kernel_w <= 131071`` they
    cannot overflow (131071 * 128 * 128 < 2**31).
    """

    batch: int = 1
    in_channels: int
    out_channels: int
    height: int
    width: int
    kernel: Pair
    strides: Pair = 1
    padding: Padding = 0
    dilation: Pair = 1
    groups: int = 1
    residual: bool = False
    residual_scale: int = 1
    residual_shift: int = 0
    residual_clip: tuple[int, int] | None = None
    fold_columns: bool = False
    bias_tiles: bool = False
    wide: bool = False
    weight_bits: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(1, in_channels=self.in_channels, out_channels=self.out_channels)
        self._check_wide()
        self._check_residual()
        self.channel_groups.check()
        if self.bias_tiles and (self.bias or self.rounding != "truncate" or self.scales):
            raise ShapeError("bias_tiles replaces the bias, and what rounds is part of it")
        if self.groups != 1 and (self.fold_columns or self.weight_bits != 8):
            raise ShapeError(
                f"fold_columns and weights of four bits need one group; groups is {self.groups}"
            )

    def _check_wide(self) -> None:
        narrow = self.weight_bits != 8
        if self.wide and (self.scales or self.bias_tiles or narrow):
            raise ShapeError("wide weights exclude scales, bias_tiles and four bits")

    def _check_residual(self) -> None:
        own = self._residual
        if self.residual and self.has_factors and own != Residual():
            raise ShapeError(
                f"residual scale, shift and clip are {own.scale, own.shift, own.clip}; with scales "
                f"or wide weights, a residual has vectors of factors alone"
            )

    # ------------------------------------------------------------------- arrays

    @classmethod
    def of(
        cls,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        groups: int = 1,
        bias: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
        residual: npt.ArrayLike | None = None,
        **parameters: Any,
    ) -> tuple[Conv2d, Arguments]:
        """Return the convolution of arrays, and the arrays in the order of its program's arguments.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Images.
        kernel : int8 array, shape (O, C / groups, KH, KW)
            Filters.
        bias, scales : int32 arrays, shape (O,), optional
            One value for each filter.
        residual : int8 array, shape (N, O, OH, OW), optional
            Added before the clip.
        groups, **parameters
            The fields of this class that the arrays do not determine.

        Raises
        ------
        ShapeError
            If ranks, dtypes, channel counts or parameters do not fit.
        """
        images, filters = int8_array("data", data, "NCHW"), int8_array("kernel", kernel, "OIHW")
        groups = plain(groups)
        require_at_least(1, groups=groups)
        c, expected = images.shape[1], filters.shape[1] * groups
        if c != expected:
            raise ShapeError(
                f"data has {c} channels (shape {images.shape}), kernel expects {expected} "
                f"(shape {filters.shape}, groups {groups})"
            )
        per_channel = {"bias": bias, "scales": scales}
        op = cls(
            **image_sizes(images, filters),
            in_channels=c,
            out_channels=len(filters),
            groups=groups,
            residual=residual is not None,
            **present(per_channel),
            **parameters,
        )
        added: Arguments = () if residual is None else (int8_array("residual", residual, "NCHW"),)
        if op.wide or (op.residual and op.has_factors):
            raise ShapeError(
                "wide filters, and a residual with scales, have digits as further arguments: give "
                "the description and all arrays to Session.run"
            )
        return op, (images, filters, *vectors(op.out_channels, per_channel), *added)

    # ------------------------------------------------------------------- shapes

    @property
    def gathers_rows(self) -> bool:
        """Whether the stride skips input rows, so that only the rows in use are loaded."""
        return self.window.strides[0] > self.window.extent[0]

    @property
    def summary(self) -> str:
        extras = f", {self.groups} groups" if self.groups > 1 else ""
        extras += ", wide" if self.wide else ""
        extras += " + residual" if self.residual else ""
        image = self._image_text(self.in_channels)
        return f"conv2d {image} -> {self.out_channels}, {self.window.text}{extras}"

    @property
    def macs(self) -> int:
        sums = self.batch * self.out_channels * prod(self.out_size)
        return sums * self.in_channels // self.groups * self.window.count

    @property
    def has_factors(self) -> bool:
        """Whether a residual is a term of the sum, with a factor for each channel."""
        return self.scales or self.wide

    @property
    def residual_digits(self) -> list[str]:
        """The weights that multiply a residual, the highest digit of its factors first."""
        return ["residual_top", "residual_high", "residual_low"][0 if self.wide else 1 :]

    @property
    def digits(self) -> list[list[str]]:
        """The products that fill the accumulators, digit by digit, the highest first.

        Before those of the next digit are added, the accumulators are shifted to the left.
        """
        sums = [["conv_high"], ["conv"]] if self.wide else [["conv"]]
        if not (self.residual and self.has_factors):
            return sums
        sums = [[], *sums]
        return [[name, *rest] for name, rest in zip(self.residual_digits, sums, strict=True)]

    @property
    def stages(self) -> Sequence[Stage]:
        stages: list[Stage] = []
        for number, names in enumerate(self.digits[1:]):
            stages.append(AluStage(f"res_wide_{number}", AluOp.SHR, -DIGIT_BITS))
            stages += map(AluStage.adding, names)
        if self.bias_tiles:
            stages.append(AluStage.adding("constant"))
        return [*stages, *super().stages]

    @cached_property
    def epilogue(self) -> Epilogue:
        alone = self.residual and not self.has_factors
        return replace(super().epilogue, residual=self._residual if alone else None)

    @property
    def _residual(self) -> Residual:
        return Residual(self.residual_scale, self.residual_shift, self.residual_clip)

    @cached_property
    def channel_groups(self) -> ChannelGroups:
        """The groups of channels."""
        return ChannelGroups(self.groups, self.in_channels, self.out_channels)

    def blocks(self, config: HardwareConfig) -> GroupBlocks:
        """Return the channel blocks of the groups."""
        return self.channel_groups.blocks(config)

    def windows(self, config: HardwareConfig) -> Windows | None:
        """Return the weights' view for window products, or None if these do not apply."""
        (_, columns), (_, distance) = self.window.kernel, self.window.dilation
        return None if distance > 1 else self.channel_groups.windows(columns, config)

    def folded_if_shorter(self, config: HardwareConfig) -> Conv2d:
        """Return the operator, with its columns folded if that halves the tile products."""
        block, columns = config.block_in, self.window.kernel[1]
        plain = ceil_div(self.in_channels, block) * columns
        folded = ceil_div(self.in_channels * columns, block)
        return replace(self, fold_columns=self.groups == 1 and folded * 2 <= plain)

    @property
    def unfolded(self) -> Conv2d:
        """The same convolution on the folded tensors that the host packs."""
        if not self.fold_columns:
            return self
        top, _, bottom, _ = self.pads
        return replace(
            self,
            in_channels=self.in_channels * self.window.kernel[1],
            width=self.out_size[1],
            kernel=(self.window.kernel[0], 1),
            strides=(self.window.strides[0], 1),
            dilation=(self.window.dilation[0], 1),
            padding=(top, 0, bottom, 0),
            fold_columns=False,
        )

    def buffers(self, config: HardwareConfig) -> tuple[Buffer, ...]:
        i, o = self.in_channels, self.out_channels
        layout, weights = self._layouts(config)
        data, res = self.image_buffers(i, o, config, layout)
        filters = (o, i // self.groups, *self.window.kernel)
        kernel = self.weight_buffer("kernel", filters, weights, config)
        high = [replace(kernel, name="kernel_high")] if self.wide else []
        buffers = [data, kernel, *high, *self.epilogue.buffers(o, config)]
        if self.bias_tiles:
            buffers += constant_buffers(o, config)
        if self.residual:
            buffers.append(replace(res, name="residual", role=Role.INPUT))
            buffers += self._factor_buffers(config)
        return (*buffers, res)

    def _factor_buffers(self, config: HardwareConfig) -> list[Buffer]:
        """Return the weight tiles that multiply the residual."""
        if not self.has_factors:
            return [scale_buffer("residual_scale", self.residual_scale, config)]
        o = self.out_channels
        layout = kernel_layout(config, ChannelGroups(o, o, o).view(config))
        shape = o, 1, 1, 1
        return [Buffer(n, Role.PARAMETER, shape, "int8", layout) for n in self.residual_digits]

    def _layouts(self, config: HardwareConfig) -> tuple[Layout, Layout]:
        """Return the layouts of data and weights."""
        if not self.fold_columns:
            view = self.windows(config) or self.channel_groups.view(config)
            return data_layout(config), kernel_layout(config, view)
        return data_layout(config, Patches.of_columns(self.window)), kernel_layout(
            config, KernelColumns()
        )
