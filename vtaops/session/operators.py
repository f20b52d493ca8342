"""OperatorMethods: every operator on NumPy arrays, with shapes inferred from the arrays.

Owns the user-level call: arrays in, int8 array out, parameters by keyword. Classes that can run an
operator description (`Session`) inherit these methods, which know no device. A test holds
parameters and defaults against the descriptions in `vtaops.ops`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy.typing as npt

from vtaops.base.names import checked_call
from vtaops.base.shapes import Int8Array, Padding, Pair, Sides
from vtaops.machine.config import HardwareConfig
from vtaops.ops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Gemm,
    MaxPool2d,
    Operator,
)
from vtaops.ops.arguments import Arguments, int8_array
from vtaops.ops.epilogue import Rounding

Clip = tuple[int, int] | None
"""Bounds of a result; None stores the low 8 bits."""


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
    def run(self, op: Operator, *arrays: npt.ArrayLike) -> Int8Array:
        """Run an operator description on arrays."""

    def _run(
        self, of: Callable[..., tuple[Operator, Arguments]], given: dict[str, Any]
    ) -> Int8Array:
        """Run the operator that `of` makes of the parameters of a method, all of them by name.

        The columns of a first layer are folded if that is shorter.
        """
        op, arrays = of(**{name: given[name] for name in given if name != "self"})
        return self.run(
            op.folded_if_shorter(self.config) if isinstance(op, Conv2d) else op, *arrays
        )

    # -------------------------------------------------------- convolutions and products

    @checked_call
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
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
        residual: npt.ArrayLike | None = None,
        residual_scale: int = 1,
        residual_shift: int = 0,
        residual_clip: Clip = None,
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
    ) -> Int8Array:
        """Convolve: ``int8(clip((conv(data, kernel) + bias) >> shift))``.

        A first layer of few channels uses the columns of its kernel as channels
        (``Conv2d.fold_columns``).

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
        residual : int8 array, shape (N, O, OH, OW), optional
            Added to the shifted sums before the clip: ``(own + residual * residual_scale) >>
            residual_shift``, where ``own`` is the shifted sum within `residual_clip`.
        residual_scale, residual_shift, residual_clip : int, int, (int, int) or None
            See `residual`.
        scales : int32 array, shape (O,), optional
            Fixed-point scales, ``multiplier | shift << 16`` with unsigned 16-bit multipliers and
            shifts 0..47, that requantize the sums, rounding half up; `shift` must be 0. Needs
            hardware with the extension ``post``.
        zero_point : int
            With scales: added to the result before the clip.

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
        return self._run(Conv2d.of, locals())

    @checked_call
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
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
    ) -> Int8Array:
        """Convolve every channel with its own filters, by products with diagonal weight tiles.

        Parameters
        ----------
        data : int8 array, shape (N, C, H, W)
            Input images.
        kernel : int8 array, shape (C * M, 1, KH, KW)
            M filters per channel; output channel ``c * M + m`` is channel c under its m-th filter.
        strides, padding, dilation, bias, shift, clip, rounding
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, C * M, OH, OW)
        """
        groups = int8_array("data", data, "NCHW").shape[1]
        return self._run(Conv2d.of, locals())

    @checked_call
    def conv2d_transpose(
        self,
        data: npt.ArrayLike,
        kernel: npt.ArrayLike,
        *,
        strides: Pair = 1,
        padding: int | tuple[int, int] | Sides = 0,
        output_padding: Pair = 0,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
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
            Cropped output pixels: one number, (height, width) or (top, left, bottom, right).
        output_padding : int or (int, int)
            Rows and columns added at the bottom and right; less than the stride.
        bias, shift, clip, rounding, scales, zero_point
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, O, OH, OW)
        """
        return self._run(Conv2dTranspose.of, locals())

    @checked_call
    def gemm(
        self,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
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
        shift, clip, rounding, scales, zero_point
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        return self._run(Gemm.of, locals())

    @checked_call
    def matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
    ) -> Int8Array:
        """Multiply matrices as written: ``int8(clip((data @ other + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (M, K)
            Left operand.
        other : int8 array, shape (K, N)
            Right operand; `gemm` takes it transposed, as dense layers store their weights.
        bias, shift, clip, rounding, scales, zero_point
            As for `gemm`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        arguments = locals()
        arguments["weight"] = int8_array("other", arguments.pop("other"), "KN").T
        return self._run(Gemm.of, arguments)

    @checked_call
    def batch_matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        shift: int = 8,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
    ) -> Int8Array:
        """Multiply pairs of matrices: ``int8(clip((data[b] @ other[b].T) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (B, M, K)
            Left operands.
        other : int8 array, shape (B, N, K)
            Right operands, transposed.
        shift, clip, rounding
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (B, M, N)
        """
        return self._run(BatchMatmul.of, locals())

    # -------------------------------------------------------------------------- pooling

    @checked_call
    def max_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
    ) -> Int8Array:
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

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        return self._run(MaxPool2d.of, locals())

    @checked_call
    def avg_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
        rounding: Rounding = "half_up",
        clip: Clip = (-128, 127),
    ) -> Int8Array:
        """Return the mean of each window in fixed point; see `AvgPool2d` for its rounding.

        Parameters
        ----------
        data, kernel, strides, padding
            As for `max_pool2d`.
        rounding : "truncate" or "half_up"
            Rounding of the means.
        clip : (int, int) or None
            Bounds of the result.

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        return self._run(AvgPool2d.of, locals())

    @checked_call
    def global_avg_pool2d(
        self,
        data: npt.ArrayLike,
        *,
        rounding: Rounding = "half_up",
        clip: Clip = (-128, 127),
    ) -> Int8Array:
        """Return the mean of each channel: `avg_pool2d` with a window as large as the image.

        Returns
        -------
        int8 array, shape (N, C, 1, 1)
        """
        window = int8_array("data", data, "NCHW").shape[2:]
        return self.avg_pool2d(data, window, rounding=rounding, clip=clip)

    # ----------------------------------------------------------------------- elementwise

    @checked_call
    def add(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        shift: int = 0,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
    ) -> Int8Array:
        """Add: ``int8(clip((data * scale + other * other_scale) >> shift))``.

        Parameters
        ----------
        data, other : int8 arrays of any rank
            The operands; of one shape, or broadcast by the host, as in NumPy.
        scale, other_scale : int
            Factors of the operands: non-zero int8.
        shift : int
            Arithmetic right shift, 0..31; or left shift, -1..-15.
        clip : (int, int) or None
            Bounds of the result within int8; None stores the low 8 bits.
        rounding : "truncate" or "half_up"
            Rounding of a right shift.

        Returns
        -------
        int8 array of that shape
        """
        return self._run(partial(Elementwise.of, "add"), locals())

    @checked_call
    def sub(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        scale: int = 1,
        other_scale: int = 1,
        shift: int = 0,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
    ) -> Int8Array:
        """Subtract: ``int8(clip((data * scale - other * other_scale) >> shift))``; as `add`."""
        return self._run(partial(Elementwise.of, "sub"), locals())

    @checked_call
    def multiply(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        shift: int = 0,
        clip: Clip = (-128, 127),
        rounding: Rounding = "truncate",
    ) -> Int8Array:
        """Multiply elements: ``int8(clip((data * other) >> shift))``; as `add`; needs MUL."""
        return self._run(partial(Elementwise.of, "multiply"), locals())

    @checked_call
    def minimum(self, data: npt.ArrayLike, other: npt.ArrayLike) -> Int8Array:
        """Return the elementwise minimum; as `add`."""
        return self._run(partial(Elementwise.of, "minimum", clip=None), locals())

    @checked_call
    def maximum(self, data: npt.ArrayLike, other: npt.ArrayLike) -> Int8Array:
        """Return the elementwise maximum; as `add`."""
        return self._run(partial(Elementwise.of, "maximum", clip=None), locals())

    @checked_call
    def requantize(
        self,
        data: npt.ArrayLike,
        *,
        rounding: Rounding = "half_up",
        scale: int = 1,
        shift: int = 0,
        clip: Clip = (-128, 127),
    ) -> Int8Array:
        """Rescale: ``int8(clip((data * scale) >> shift))``; as `add`, for one tensor."""
        return self._run(partial(Elementwise.of, "identity"), locals())

    @checked_call
    def relu(self, data: npt.ArrayLike) -> Int8Array:
        """Replace negative elements of a tensor of any rank by 0."""
        return self.clip(data, 0, 127)

    @checked_call
    def clip(self, data: npt.ArrayLike, low: int, high: int) -> Int8Array:
        """Clip the elements of a tensor of any rank to ``low..high``."""
        return self.requantize(data, rounding="truncate", clip=(low, high))
