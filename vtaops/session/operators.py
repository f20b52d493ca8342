"""OperatorMethods: every operator on NumPy arrays, with shapes inferred from the arrays.

Owns the user-level call: arrays in, int8 array out, parameters by keyword. Classes that can run an
operator description (`Session`) inherit these methods, which know no device. Parameters and
defaults are those of the descriptions in `vtaops.ops` (see `vtaops.session.signatures`);
``operators.pyi`` declares them for type checkers and editors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy.typing as npt

from vtaops import ops
from vtaops.base.shapes import Pair, require_at_least
from vtaops.machine.config import HardwareConfig
from vtaops.ops import Operator
from vtaops.ops.arguments import Int8Array, int8_array
from vtaops.ops.base import plain
from vtaops.ops.epilogue import Rounding
from vtaops.schedule import Tiling
from vtaops.session.signatures import Call, operator_method


def _bits(bits: int) -> int:
    bits = plain(bits)
    require_at_least(0, bits=bits)
    return bits


class OperatorMethods(ABC):
    """The operators as methods; each ends in `run`.

    PyTorch's ``stride`` and ``kernel_size`` are accepted for ``strides`` and ``kernel``.

    All raise `ShapeError` if ranks, dtypes, channel counts or parameters do not fit,
    `ScheduleError` if a tiling does not fit, `UnsupportedError` if VTA or the device cannot run
    the operator, and `DeviceError` if the device fails.
    """

    @property
    @abstractmethod
    def config(self) -> HardwareConfig:
        """The configuration that operators are compiled for."""

    @abstractmethod
    def run(self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None) -> Int8Array:
        """Run an operator description on arrays."""

    # -------------------------------------------------------- convolutions and products

    @operator_method(ops.Conv2d)
    def conv2d(self, data: npt.ArrayLike, kernel: npt.ArrayLike, **parameters: Any) -> Call:
        """Convolve: ``int8(clip((conv(data, kernel) + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int8 array, shape (O, C / groups, KH, KW)
            Filters.
        strides, dilation : int or (int, int)
            (height, width).
        padding : int, (int, int), (int, int, int, int), "same" or "valid"
            Zeros around the input: one number, (height, width) or (top, left, bottom, right);
            "same" for a result of the input's size, with strides of 1; "valid" for none.
        groups : int
            Groups of channels that are convolved separately.
        bias : int32 array, shape (O,), optional
            Added to the accumulators before the shift.
        shift : int
            Arithmetic right shift, 0..31.
        clip : (int, int) or None
            Bounds of the result within int8, ``(0, 127)`` for a ReLU; None stores the low 8 bits.
        rounding : "truncate" or "half_up"
            Rounding of shifts: towards minus infinity, or to nearest with halves upwards.
        multiplier : int32 array, shape (O,), optional
            Multiplies the sums, including the bias, before the shift: one scale per channel.
            Products wrap as int32; needs a device with MUL.
        residual : int8 array, shape (N, O, OH, OW), optional
            Added to the shifted sums before the clip: ``(own + residual * residual_scale) >>
            residual_shift``, where ``own`` is the shifted sum within `residual_clip`.
        residual_scale, residual_shift, residual_clip : int, int, (int, int) or None
            See `residual`.
        scales : int32 array, shape (O,), optional
            Fixed-point scales, ``multiplier | shift << 16`` with unsigned 16-bit multipliers and
            shifts 0..47, that requantize the sums, rounding half up; `shift` must be 0. Needs
            hardware with the extension ``post``.
        fine : int
            1..3 for fine scales with that base (`vtaops.base.fixed_point`). Needs hardware with the
            extension ``exact``.
        zero_point : int
            With scales: added to the result before the clip.
        residual_factor : int array, shape (O,), optional
            With scales: factors of the residual, which is then a term of the sums.
        tiling : Tiling, optional
            Tiling of the operator; by default the best by a bound on cycles. Without one, a first
            layer of few channels uses the columns of its kernel as channels
            (``Conv2d.fold_columns``).

        Returns
        -------
        int8 array, shape (N, O, OH, OW)

        Raises
        ------
        ShapeError
            If ranks, dtypes, channel counts or parameters do not fit.
        ScheduleError
            If the tiling does not fit.
        UnsupportedError
            If VTA cannot run it.
        DeviceError
            If the device fails.
        """
        return ops.Conv2d.of(data, kernel, **parameters)

    @operator_method(ops.Conv2d, "strides", "padding", "bias", "shift", "clip", "rounding")
    def depthwise_conv2d(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        dilation: Pair = 1,
        **parameters: Any,
    ) -> Call:
        """Convolve every channel with its own filters.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int8 array, shape (C * M, 1, KH, KW)
            M filters per channel; output channel ``c * M + m`` is channel c under its m-th filter.
        strides, padding, dilation, bias, shift, clip, rounding, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, C * M, OH, OW)
        """
        groups = int8_array("data", data, "NCHW").shape[1]
        return ops.Conv2d.of(data, kernel, dilation=dilation, groups=groups, **parameters)

    @operator_method(ops.Conv2dTranspose)
    def conv2d_transpose(
        self, data: npt.ArrayLike, kernel: npt.ArrayLike, **parameters: Any
    ) -> Call:
        """Transposed convolution: every pixel adds its scaled kernel to the output.

        Parameters
        ----------
        data : int8 array, shape (N, I, H, W)
            Input images.
        kernel : int8 array, shape (I, O, KH, KW)
            Filters.
        strides : int or (int, int)
            Output pixels between the kernels of neighbouring input pixels.
        padding : int, (int, int) or (int, int, int, int)
            Cropped output pixels: one number, (height, width) or (top, left, bottom, right).
        output_padding : int or (int, int)
            Rows and columns added at the bottom and right; less than the stride.
        bias, shift, clip, rounding, scales, fine, zero_point, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, O, OH, OW)
        """
        return ops.Conv2dTranspose.of(data, kernel, **parameters)

    @operator_method(ops.Gemm)
    def gemm(self, data: npt.ArrayLike, weight: npt.ArrayLike, **parameters: Any) -> Call:
        """Multiply matrices: ``int8(clip((data @ weight.T + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (M, K)
            Left operand.
        weight : int8 array, shape (N, K)
            Right operand, transposed.
        bias : int32 array, shape (N,), optional
            Added to the accumulators before the shift.
        shift, clip, rounding, scales, fine, zero_point, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        return ops.Gemm.of(data, weight, **parameters)

    dense = gemm

    @operator_method(ops.Gemm)
    def matmul(self, data: npt.ArrayLike, other: npt.ArrayLike, **parameters: Any) -> Call:
        """Multiply matrices as written: ``int8(clip((data @ other + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (M, K)
            Left operand.
        other : int8 array, shape (K, N)
            Right operand; `gemm` takes it transposed, as dense layers store their weights.
        bias, shift, clip, rounding, scales, fine, zero_point, tiling
            As for `gemm`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        return ops.Gemm.of(data, int8_array("other", other, "KN").T, **parameters)

    @operator_method(ops.BatchMatmul)
    def batch_matmul(self, data: npt.ArrayLike, other: npt.ArrayLike, **parameters: Any) -> Call:
        """Multiply pairs of matrices: ``int8(clip((data[b] @ other[b].T) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (B, M, K)
            Left operands.
        other : int8 array, shape (B, N, K)
            Right operands, transposed.
        coarse : two int8 arrays, shapes (B, M, C) and (B, N, C), optional
            Further operands, whose products are multiplied by 128 and added to the sums.
        shift, clip, rounding, tiling
            As for `conv2d`.
        multiplier, zero_point, nudge, fine : int
            Fixed-point scaling, as `vtaops.BatchMatmul` describes; multiplier 0: none.

        Returns
        -------
        int8 array, shape (B, M, N)
        """
        return ops.BatchMatmul.of(data, other, **parameters)

    # -------------------------------------------------------------------------- pooling

    @operator_method(ops.MaxPool2d)
    def max_pool2d(self, data: npt.ArrayLike, kernel: Pair, **parameters: Any) -> Call:
        """Return the maximum of each window; padding never wins.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int or (int, int)
            Window (height, width).
        strides : int or (int, int), optional
            Strides of the window; by default its size.
        padding : int, (int, int) or (int, int, int, int)
            One number, (height, width) or (top, left, bottom, right).
        tiling : Tiling, optional
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        return ops.MaxPool2d.of(data, kernel, **parameters)

    @operator_method(ops.AvgPool2d)
    def avg_pool2d(self, data: npt.ArrayLike, kernel: Pair, **parameters: Any) -> Call:
        """Return the mean of each window in fixed point; see `AvgPool2d` for its rounding.

        Parameters
        ----------
        data, kernel, strides, padding, tiling
            As for `max_pool2d`.
        count_include_pad : bool
            Whether means at the border count the padding.
        rounding : "truncate" or "half_up"
            Rounding of the means.
        division, offset
            The factor (1..127, 0..31), by default nearest to the reciprocal of the count, and a
            constant added to the products.
        shift, multiplier, zero_point, constant, nudge, fine : int
            Fixed-point scaling instead, see `vtaops.AvgPool2d`; multiplier 0: none.
        clip : (int, int) or None
            Bounds of the result.

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        return ops.AvgPool2d.of(data, kernel, **parameters)

    @operator_method(ops.AvgPool2d, "rounding", "clip")
    def global_avg_pool2d(self, data: npt.ArrayLike, **parameters: Any) -> Call:
        """Return the mean of each channel: `avg_pool2d` with a window as large as the image.

        Returns
        -------
        int8 array, shape (N, C, 1, 1)
        """
        return ops.AvgPool2d.of(data, int8_array("data", data, "NCHW").shape[2:], **parameters)

    # ----------------------------------------------------------------------- elementwise

    @operator_method(ops.Elementwise)
    def add(self, data: npt.ArrayLike, other: npt.ArrayLike, **parameters: Any) -> Call:
        """Add: ``int8(clip((data * scale + other * other_scale) >> shift))``.

        Parameters
        ----------
        data, other : int8 arrays of any rank
            The operands; of one shape, or broadcast by the host, as in NumPy.
        scale, other_scale : int
            Factors of the operands: non-zero int8.
        data_offset, other_offset : int
            16-bit constants added to the scaled operands; not for sums.
        by_channel : bool
            Whether `other` has one value per channel; not for sums.
        shift : int
            Arithmetic right shift, 0..31; or left shift, -1..-15.
        clip : (int, int) or None
            Bounds of the result within int8; None stores the low 8 bits.
        rounding : "truncate" or "half_up"
            Rounding of a right shift.
        multiplier, zero_point, constant, nudge, fine : int
            Fixed-point scaling, see `vtaops.Elementwise`; multiplier 0: none.
        tiling : Tiling, optional
            ``h`` counts the tiles of a piece; ``oc`` and ``ic`` are one block.

        Returns
        -------
        int8 array of that shape
        """
        return ops.Elementwise.of("add", data, other, **parameters)

    @operator_method(ops.Elementwise)
    def sub(self, data: npt.ArrayLike, other: npt.ArrayLike, **parameters: Any) -> Call:
        """Subtract: ``int8(clip((data * scale - other * other_scale) >> shift))``; as `add`."""
        return ops.Elementwise.of("sub", data, other, **parameters)

    subtract = sub

    @operator_method(ops.Elementwise, "shift", "clip", "rounding")
    def multiply(self, data: npt.ArrayLike, other: npt.ArrayLike, **parameters: Any) -> Call:
        """Multiply elements: ``int8(clip((data * other) >> shift))``; as `add`; needs MUL."""
        return ops.Elementwise.of("multiply", data, other, **parameters)

    @operator_method()
    def minimum(self, data: npt.ArrayLike, other: npt.ArrayLike) -> Call:
        """Return the elementwise minimum; as `add`."""
        return ops.Elementwise.of("minimum", data, other, clip=None)

    @operator_method()
    def maximum(self, data: npt.ArrayLike, other: npt.ArrayLike) -> Call:
        """Return the elementwise maximum; as `add`."""
        return ops.Elementwise.of("maximum", data, other, clip=None)

    @operator_method(ops.Elementwise, "scale", "shift", "clip")
    def requantize(
        self, data: npt.ArrayLike, *, rounding: Rounding = "half_up", **parameters: Any
    ) -> Call:
        """Rescale: ``int8(clip((data * scale) >> shift))``; as `add`, for one tensor."""
        return ops.Elementwise.of("identity", data, rounding=rounding, **parameters)

    @operator_method()
    def relu(self, data: npt.ArrayLike) -> Call:
        """Replace negative elements of a tensor of any rank by 0."""
        return ops.Elementwise.of("identity", data, clip=(0, 127))

    @operator_method()
    def clip(self, data: npt.ArrayLike, low: int, high: int) -> Call:
        """Clip the elements of a tensor of any rank to ``low..high``."""
        return ops.Elementwise.of("identity", data, clip=(low, high))

    @operator_method(ops.Elementwise, "rounding")
    def shift_right(self, data: npt.ArrayLike, bits: int, **parameters: Any) -> Call:
        """Shift the elements of a tensor of any rank right by 0..31 bits, arithmetically."""
        return ops.Elementwise.of("identity", data, shift=_bits(bits), clip=None, **parameters)

    @operator_method(ops.Elementwise, "clip")
    def shift_left(self, data: npt.ArrayLike, bits: int, **parameters: Any) -> Call:
        """Shift the elements of a tensor of any rank left by 0..15 bits, and clip."""
        return ops.Elementwise.of("identity", data, shift=-_bits(bits), **parameters)
