"""Operators: every operator on NumPy arrays, with the shapes read from the arrays.

Owns the user's way to write an operator: arrays in, int8 array out, parameters by keyword. Whoever
can run an operator description (`Session`) inherits these methods; they know no device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig
from vtaops.errors import ShapeError, UnsupportedError
from vtaops.ops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    DepthwiseConv2dAlu,
    Elementwise,
    Gemm,
    MaxPool2d,
    Operator,
)
from vtaops.ops.base import Pair, plain, require_at_least
from vtaops.ops.elementwise import Function
from vtaops.ops.postprocess import Rounding
from vtaops.ops.window import Padding
from vtaops.schedule import Tiling

Int8Array = npt.NDArray[np.int8]
Clip = tuple[int, int] | None

INT8 = (-128, 127)


class Operators(ABC):
    """The operators as methods; every one ends in `run`.

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

    def conv2d(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (0, 127),
        rounding: Rounding = "truncate",
        multiplier: npt.ArrayLike | None = None,
        residual: npt.ArrayLike | None = None,
        residual_scale: int = 1,
        residual_shift: int = 0,
        residual_clip: Clip = None,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Convolve: ``int8(clip((conv(data, kernel) + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int8 array, shape (O, C / groups, KH, KW)
            Filters.
        strides, dilation : int or (int, int)
            (height, width).
        padding : int, (int, int) or (int, int, int, int)
            Zeros around the input: one number, (height, width) or (top, left, bottom, right).
        groups : int
            Groups of channels that are convolved separately.
        bias : int32 array, shape (O,), optional
            Added to the accumulators before the shift.
        shift : int
            Arithmetic right shift, 0..31.
        clip : (int, int) or None
            Bounds of the result within int8; None stores the low 8 bits.
        rounding : "truncate" or "half_up"
            How shifts round: towards minus infinity, or to the nearest, halves upwards.
        multiplier : int32 array, shape (O,), optional
            Multiplies the sums, with the bias, before the shift: a scale for each channel. Products
            wrap as int32; needs a device with MUL.
        residual : int8 array, shape (N, O, OH, OW), optional
            Added to the shifted sums before the clip: ``(own + residual * residual_scale) >>
            residual_shift``, where ``own`` is the shifted sum within `residual_clip`.
        residual_scale, residual_shift, residual_clip : int, int, (int, int) or None
            See `residual`.
        tiling : Tiling, optional
            How to cut the operator; by default the best by a bound on cycles. Without one, a
            first layer of few channels takes the columns of its kernel as channels
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
        images = _int8("data", data, "NCHW")
        filters = _int8("kernel", kernel, "OIHW")
        groups = plain(groups)
        require_at_least(1, groups=groups)
        if images.shape[1] != filters.shape[1] * groups:
            raise ShapeError(
                f"data has {images.shape[1]} channels (shape {images.shape}), kernel expects "
                f"{filters.shape[1] * groups} (shape {filters.shape}, groups {groups})"
            )
        op = Conv2d(
            batch=images.shape[0],
            in_channels=images.shape[1],
            out_channels=filters.shape[0],
            height=images.shape[2],
            width=images.shape[3],
            kernel=(filters.shape[2], filters.shape[3]),
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias is not None,
            shift=shift,
            clip=clip,
            rounding=rounding,
            multiplier=multiplier is not None,
            residual=residual is not None,
            residual_scale=residual_scale,
            residual_shift=residual_shift,
            residual_clip=residual_clip,
        )
        if tiling is None:
            op = op.folded_if_shorter(self.config)
        arrays: list[npt.ArrayLike] = [images, filters]
        arrays += _vector("bias", bias, op.out_channels)
        arrays += _vector("multiplier", multiplier, op.out_channels)
        if residual is not None:
            arrays.append(_int8("residual", residual, "NCHW"))
        return self.run(op, *arrays, tiling=tiling)

    def depthwise_conv2d(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (0, 127),
        rounding: Rounding = "truncate",
        unit: Literal["gemm", "alu"] = "gemm",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Convolve every channel with filters of its own.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int8 array, shape (C * M, 1, KH, KW)
            M filters for each channel; output channel ``c * M + m`` is channel c with its m-th.
        strides, padding, dilation, bias, shift, clip, rounding, tiling
            As for `conv2d`.
        unit : "gemm" or "alu"
            What multiplies: the GEMM core with diagonal weight tiles, or the vector ALU (one
            filter for each channel, no dilation, devices with MUL), which takes six times longer.

        Returns
        -------
        int8 array, shape (N, C * M, OH, OW)
        """
        channels = _int8("data", data, "NCHW").shape[1]
        if unit not in ("gemm", "alu"):
            raise ShapeError(f"unit is {unit!r}; it must be 'gemm' or 'alu'")
        if unit == "alu":
            if plain(dilation) not in (1, (1, 1)):
                raise UnsupportedError(f"dilation is {dilation}; on the ALU it must be 1")
            return self._depthwise_alu(
                data, kernel, strides, padding, bias, shift, clip, rounding, tiling
            )
        return self.conv2d(
            data,
            kernel,
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=channels,
            bias=bias,
            shift=shift,
            clip=clip,
            rounding=rounding,
            tiling=tiling,
        )

    def _depthwise_alu(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        strides: Pair,
        padding: Padding,
        bias: npt.ArrayLike | None,
        shift: int,
        clip: Clip,
        rounding: Rounding,
        tiling: Tiling | None,
    ) -> Int8Array:
        images, filters = _int8("data", data, "NCHW"), _int8("kernel", kernel, "OIHW")
        if filters.shape[:2] != (images.shape[1], 1):
            raise ShapeError(
                f"data has {images.shape[1]} channels, kernel has shape {filters.shape}; on the "
                f"ALU it must have one filter for each: ({images.shape[1]}, 1, KH, KW)"
            )
        op = DepthwiseConv2dAlu(
            batch=images.shape[0],
            channels=images.shape[1],
            height=images.shape[2],
            width=images.shape[3],
            kernel=(filters.shape[2], filters.shape[3]),
            strides=strides,
            padding=padding,
            bias=bias is not None,
            shift=shift,
            clip=clip,
            rounding=rounding,
        )
        return self.run(op, images, filters, *_vector("bias", bias, op.channels), tiling=tiling)

    def conv2d_transpose(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: Padding = 0,
        output_padding: Pair = 0,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (0, 127),
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
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
            Output pixels cut off: one number, (height, width) or (top, left, bottom, right).
        output_padding : int or (int, int)
            Rows and columns added at the bottom and the right; less than the stride.
        bias, shift, clip, rounding, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, O, OH, OW)
        """
        images = _int8("data", data, "NCHW")
        filters = _int8("kernel", kernel, "IOHW")
        if images.shape[1] != filters.shape[0]:
            raise ShapeError(
                f"data has {images.shape[1]} channels (shape {images.shape}), kernel expects "
                f"{filters.shape[0]} (shape {filters.shape}, axes IOHW)"
            )
        op = Conv2dTranspose(
            batch=images.shape[0],
            in_channels=images.shape[1],
            out_channels=filters.shape[1],
            height=images.shape[2],
            width=images.shape[3],
            kernel=(filters.shape[2], filters.shape[3]),
            strides=strides,
            padding=padding,
            output_padding=output_padding,
            bias=bias is not None,
            shift=shift,
            clip=clip,
            rounding=rounding,
        )
        return self.run(op, images, filters, *_vector("bias", bias, op.out_channels), tiling=tiling)

    def gemm(
        self,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (0, 127),
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Multiply matrices: ``int8(clip((data @ weight.T + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (M, K)
            Left operand.
        weight : int8 array, shape (N, K)
            Right operand, transposed.
        bias : int32 array, shape (N,), optional
            Added to the accumulators before the shift.
        shift, clip, rounding, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        left, right = _int8("data", data, "MK"), _int8("weight", weight, "NK")
        if left.shape[1] != right.shape[1]:
            raise ShapeError(
                f"data has shape {left.shape} and weight {right.shape}; their last extents must "
                f"be equal"
            )
        op = Gemm(
            m=left.shape[0],
            n=right.shape[0],
            k=left.shape[1],
            bias=bias is not None,
            shift=shift,
            clip=clip,
            rounding=rounding,
        )
        return self.run(op, left, right, *_vector("bias", bias, op.n), tiling=tiling)

    dense = gemm

    def batch_matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        shift: int = 8,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Multiply pairs of matrices: ``int8(clip((data[b] @ other[b].T) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (B, M, K)
            Left operands.
        other : int8 array, shape (B, N, K)
            Right operands, transposed.
        shift, clip, rounding, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (B, M, N)
        """
        left, right = _int8("data", data, "BMK"), _int8("other", other, "BNK")
        if (left.shape[0], left.shape[2]) != (right.shape[0], right.shape[2]):
            raise ShapeError(
                f"data has shape {left.shape} and other {right.shape}; their first and last "
                f"extents must be equal"
            )
        op = BatchMatmul(
            batch=left.shape[0],
            m=left.shape[1],
            n=right.shape[1],
            k=left.shape[2],
            shift=shift,
            clip=clip,
            rounding=rounding,
        )
        return self.run(op, left, right, tiling=tiling)

    # -------------------------------------------------------------------------- pooling

    def max_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Take the greatest pixel of each window; padding never wins.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int or (int, int)
            Window (height, width).
        strides : int or (int, int), optional
            Step of the window; by default its size.
        padding : int, (int, int) or (int, int, int, int)
            One number, (height, width) or (top, left, bottom, right).
        tiling : Tiling, optional
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        images = _int8("data", data, "NCHW")
        step = kernel if strides is None else strides
        n, c, h, w = images.shape
        op = MaxPool2d(n, c, h, w, kernel=kernel, strides=step, padding=padding)
        return self.run(op, images, tiling=tiling)

    def avg_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
        count_include_pad: bool = True,
        rounding: Rounding = "half_up",
        clip: Clip = INT8,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Take the mean of each window in fixed point; see `AvgPool2d` for its rounding.

        Parameters
        ----------
        data, kernel, strides, padding, tiling
            As for `max_pool2d`.
        count_include_pad : bool
            Whether means at the border count the padding.
        rounding : "truncate" or "half_up"
            How the means round.
        clip : (int, int) or None
            Bounds of the result.

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        images = _int8("data", data, "NCHW")
        n, c, h, w = images.shape
        op = AvgPool2d(
            n,
            c,
            h,
            w,
            kernel=kernel,
            strides=kernel if strides is None else strides,
            padding=padding,
            count_include_pad=count_include_pad,
            rounding=rounding,
            clip=clip,
        )
        return self.run(op, images, tiling=tiling)

    def global_avg_pool2d(
        self,
        data: npt.ArrayLike,
        *,
        rounding: Rounding = "half_up",
        clip: Clip = INT8,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Take the mean of each channel: `avg_pool2d` with a window as large as the image.

        Returns
        -------
        int8 array, shape (N, C, 1, 1)
        """
        height, width = _int8("data", data, "NCHW").shape[2:]
        return self.avg_pool2d(data, (height, width), rounding=rounding, clip=clip, tiling=tiling)

    # ----------------------------------------------------------------------- elementwise

    def add(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        shift: int = 0,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Add: ``int8(clip((data * scale + other * other_scale) >> shift))``.

        Parameters
        ----------
        data, other : int8 arrays of equal shape, of any rank
            The operands.
        scale, other_scale : int
            Their factors: int8, not 0.
        shift : int
            Arithmetic right shift, 0..31; or left shift, -1..-15.
        clip : (int, int) or None
            Bounds of the result within int8; None stores the low 8 bits.
        rounding : "truncate" or "half_up"
            How a right shift rounds.
        tiling : Tiling, optional
            ``h`` counts the tiles of a piece; ``oc`` and ``ic`` are one block.

        Returns
        -------
        int8 array of the same shape
        """
        return self._elementwise(
            "add", (data, other), scale, other_scale, shift, clip, rounding, tiling
        )

    def sub(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        shift: int = 0,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Subtract: ``int8(clip((data * scale - other * other_scale) >> shift))``; as `add`."""
        return self._elementwise(
            "sub", (data, other), scale, other_scale, shift, clip, rounding, tiling
        )

    def multiply(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        shift: int = 0,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Multiply elements: ``int8(clip((data * other) >> shift))``; as `add`; needs MUL."""
        return self._elementwise("multiply", (data, other), 1, 1, shift, clip, rounding, tiling)

    def minimum(
        self, data: npt.ArrayLike, other: npt.ArrayLike, *, tiling: Tiling | None = None
    ) -> Int8Array:
        """Take the lesser of each pair of elements; as `add`."""
        return self._elementwise("minimum", (data, other), 1, 1, 0, None, "truncate", tiling)

    def maximum(
        self, data: npt.ArrayLike, other: npt.ArrayLike, *, tiling: Tiling | None = None
    ) -> Int8Array:
        """Take the greater of each pair of elements; as `add`."""
        return self._elementwise("maximum", (data, other), 1, 1, 0, None, "truncate", tiling)

    def requantize(
        self,
        data: npt.ArrayLike,
        *,
        scale: int = 1,
        shift: int = 0,
        clip: Clip = INT8,
        rounding: Rounding = "half_up",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Rescale: ``int8(clip((data * scale) >> shift))``; as `add`, for one tensor."""
        return self._elementwise("identity", (data,), scale, 1, shift, clip, rounding, tiling)

    def relu(self, data: npt.ArrayLike, *, tiling: Tiling | None = None) -> Int8Array:
        """Replace negative elements by 0; a tensor of any rank."""
        return self._elementwise("identity", (data,), 1, 1, 0, (0, 127), "truncate", tiling)

    def clip(
        self, data: npt.ArrayLike, low: int, high: int, *, tiling: Tiling | None = None
    ) -> Int8Array:
        """Bound the elements of a tensor of any rank to ``low..high``."""
        return self._elementwise("identity", (data,), 1, 1, 0, (low, high), "truncate", tiling)

    def shift_right(
        self,
        data: npt.ArrayLike,
        bits: int,
        *,
        rounding: Rounding = "truncate",
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Shift the elements of a tensor of any rank right by 0..31 bits, with their sign."""
        bits = plain(bits)
        require_at_least(0, bits=bits)
        return self._elementwise("identity", (data,), 1, 1, bits, None, rounding, tiling)

    def shift_left(
        self, data: npt.ArrayLike, bits: int, *, clip: Clip = INT8, tiling: Tiling | None = None
    ) -> Int8Array:
        """Shift the elements of a tensor of any rank to the left by 0..15 bits, and clip."""
        bits = plain(bits)
        require_at_least(0, bits=bits)
        return self._elementwise("identity", (data,), 1, 1, -bits, clip, "truncate", tiling)

    def _elementwise(
        self,
        function: Function,
        arrays: tuple[npt.ArrayLike, ...],
        scale: int,
        other_scale: int,
        shift: int,
        clip: Clip,
        rounding: Rounding,
        tiling: Tiling | None,
    ) -> Int8Array:
        names = ("data", "other")[: len(arrays)]
        tensors = [_int8(name, array) for name, array in zip(names, arrays, strict=True)]
        if tensors[0].shape != tensors[-1].shape:
            raise ShapeError(
                f"data has shape {tensors[0].shape} and other {tensors[-1].shape}; they must be "
                f"equal: VTA does not broadcast"
            )
        op = Elementwise(
            function,
            tensors[0].shape,
            scale=scale,
            other_scale=other_scale,
            shift=shift,
            clip=clip,
            rounding=rounding,
        )
        return self.run(op, *tensors, tiling=tiling)


def _int8(name: str, array: npt.ArrayLike, axes: str = "") -> Int8Array:
    """Return an int8 array of the rank of `axes`, or of any rank from 1 on."""
    value = _array(name, array)
    if value.dtype != np.int8:
        raise ShapeError(f"{name} has dtype {value.dtype}; VTA computes on int8")
    if axes and value.ndim != len(axes):
        raise ShapeError(
            f"{name} has rank {value.ndim} (shape {value.shape}); it must have rank {len(axes)}: "
            f"{axes}"
        )
    if 0 in value.shape:
        raise ShapeError(f"{name} is empty (shape {value.shape}); every extent must be at least 1")
    return value


def _array(name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name} is no array: {error}") from error


def _vector(
    name: str, vector: npt.ArrayLike | None, channels: int
) -> tuple[npt.NDArray[np.int32], ...]:
    """Return an int32 vector of channels, or nothing if there is none."""
    if vector is None:
        return ()
    value = _array(name, vector)
    if value.dtype != np.int32 or value.shape != (channels,):
        raise ShapeError(
            f"{name} has dtype {value.dtype} and shape {value.shape}; it must be int32 of shape "
            f"({channels},)"
        )
    return (value,)
