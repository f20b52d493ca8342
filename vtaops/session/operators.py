"""OperatorMethods: every operator on NumPy arrays, with the shapes read from the arrays.

Owns the user's way to write an operator: arrays in, int8 array out, parameters by keyword. Whoever
can run an operator description (`Session`) inherits these methods; they know no device. The classes
of `vtaops.ops` read the arrays (`Conv2d.of`); signatures and documentation stand here.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, TypeVar

import numpy.typing as npt

from vtaops.base.errors import ArgumentError, ShapeError, UnsupportedError
from vtaops.base.names import settle
from vtaops.base.shapes import Padding, Pair, Sides, require_at_least
from vtaops.machine.config import HardwareConfig
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
from vtaops.ops.arguments import Arguments, Int8Array, int8_array
from vtaops.ops.base import plain
from vtaops.ops.postprocess import INT8, Rounding
from vtaops.schedule import Tiling

Clip = tuple[int, int] | None
Methods = TypeVar("Methods", bound="OperatorMethods")


def _spelled(method: Callable[..., Int8Array]) -> Callable[..., Int8Array]:
    """Return a method that takes keywords in either spelling, and explains what it cannot take."""
    signature = inspect.signature(method)
    known = [*signature.parameters][1:]

    @wraps(method)
    def explaining(*args: Any, **given: Any) -> Int8Array:
        settled = settle(method.__name__, known, given)
        try:
            signature.bind(*args, **settled)
        except TypeError as error:
            raise ArgumentError(
                f"{method.__name__}: {error}; it takes {', '.join(known)}"
            ) from None
        return method(*args, **settled)

    return explaining


def _all_spelled(methods: type[Methods]) -> type[Methods]:
    for name, method in list(vars(methods).items()):
        if inspect.isfunction(method) and not name.startswith("_") and name != "run":
            setattr(methods, name, _spelled(method))
    return methods


@_all_spelled
class OperatorMethods(ABC):
    """The operators as methods; every one ends in `run`.

    PyTorch's ``stride`` and ``kernel_size`` are taken for ``strides`` and ``kernel``.

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
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        multiplier: npt.ArrayLike | None = None,
        residual: npt.ArrayLike | None = None,
        residual_scale: int = 1,
        residual_shift: int = 0,
        residual_clip: Clip = None,
        residual_factor: npt.ArrayLike | None = None,
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
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
            How shifts round: towards minus infinity, or to the nearest, halves upwards.
        multiplier : int32 array, shape (O,), optional
            Multiplies the sums, with the bias, before the shift: a scale for each channel. Products
            wrap as int32; needs a device with MUL.
        residual : int8 array, shape (N, O, OH, OW), optional
            Added to the shifted sums before the clip: ``(own + residual * residual_scale) >>
            residual_shift``, where ``own`` is the shifted sum within `residual_clip`.
        residual_scale, residual_shift, residual_clip : int, int, (int, int) or None
            See `residual`.
        scales : int32 array, shape (O,), optional
            Fixed-point scales, ``multiplier | shift << 16`` with unsigned 16-bit multipliers and
            shifts 0..47, that requantise the sums; `shift` must be 0. They round half up. Needs
            hardware with the extension ``post``.
        zero_point : int
            With scales: added to the result before the clip.
        residual_factor : int array, shape (O,), optional
            With scales: the residual times these is a term of the sums.
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
        return self._call(Conv2d.of, locals())

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
        clip: Clip = INT8,
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
        given = locals()
        del given["unit"]
        if unit == "gemm":
            given["groups"] = int8_array("data", data, "NCHW").shape[1]
            return self._call(Conv2d.of, given)
        if unit != "alu":
            raise ShapeError(f"unit is {unit!r}; it must be 'gemm' or 'alu'")
        if plain(given.pop("dilation")) not in (1, (1, 1)):
            raise UnsupportedError(f"dilation is {dilation}; on the ALU it must be 1")
        return self._call(DepthwiseConv2dAlu.of, given)

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
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
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
        bias, shift, clip, rounding, scales, zero_point, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (N, O, OH, OW)
        """
        return self._call(Conv2dTranspose.of, locals())

    def gemm(
        self,
        data: npt.ArrayLike,
        weight: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
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
        shift, clip, rounding, scales, zero_point, tiling
            As for `conv2d`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        return self._call(Gemm.of, locals())

    dense = gemm

    def matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        bias: npt.ArrayLike | None = None,
        shift: int = 8,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        scales: npt.ArrayLike | None = None,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Multiply matrices as written: ``int8(clip((data @ other + bias) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (M, K)
            Left operand.
        other : int8 array, shape (K, N)
            Right operand; `gemm` takes it transposed, as dense layers keep their weights.
        bias, shift, clip, rounding, scales, zero_point, tiling
            As for `gemm`.

        Returns
        -------
        int8 array, shape (M, N)
        """
        given = locals()
        given["weight"] = int8_array("other", given.pop("other"), "KN").T
        return self._call(Gemm.of, given)

    def batch_matmul(
        self,
        data: npt.ArrayLike,
        other: npt.ArrayLike,
        *,
        coarse: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        shift: int = 8,
        clip: Clip = INT8,
        rounding: Rounding = "truncate",
        multiplier: int = 0,
        zero_point: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Multiply pairs of matrices: ``int8(clip((data[b] @ other[b].T) >> shift))``.

        Parameters
        ----------
        data : int8 array, shape (B, M, K)
            Left operands.
        other : int8 array, shape (B, N, K)
            Right operands, transposed.
        coarse : two int8 arrays, shapes (B, M, C) and (B, N, C), optional
            Further operands, whose products count 128 times and are added to the sums.
        shift, clip, rounding, tiling
            As for `conv2d`.
        multiplier, zero_point : int
            Fixed-point scaling, as `vtaops.BatchMatmul` describes; multiplier 0: none.

        Returns
        -------
        int8 array, shape (B, M, N)
        """
        return self._call(BatchMatmul.of, locals())

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
        return self._call(MaxPool2d.of, locals())

    def avg_pool2d(
        self,
        data: npt.ArrayLike,
        kernel: Pair,
        *,
        strides: Pair | None = None,
        padding: Padding = 0,
        count_include_pad: bool = True,
        rounding: Rounding = "half_up",
        division: tuple[int, int] | None = None,
        offset: int = 0,
        shift: int = 0,
        multiplier: int = 0,
        zero_point: int = 0,
        constant: int = 0,
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
        division, offset
            The factor (1..127, 0..31) instead of the nearest to one over the window, and what is
            added to the products.
        shift, multiplier, zero_point, constant : int
            Fixed-point scaling instead, as `vtaops.AvgPool2d` describes; multiplier 0: none.
        clip : (int, int) or None
            Bounds of the result.

        Returns
        -------
        int8 array, shape (N, C, OH, OW)
        """
        return self._call(AvgPool2d.of, locals())

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
        given = locals()
        height, width = int8_array("data", data, "NCHW").shape[2:]
        return self._call(AvgPool2d.of, {**given, "kernel": (height, width)})

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
        multiplier: int = 0,
        zero_point: int = 0,
        constant: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Add: ``int8(clip((data * scale + other * other_scale) >> shift))``.

        Parameters
        ----------
        data, other : int8 arrays of any rank
            The operands; of one shape, or broadcast to one by the host, as NumPy does.
        scale, other_scale : int
            Their factors: int8, not 0.
        shift : int
            Arithmetic right shift, 0..31; or left shift, -1..-15.
        clip : (int, int) or None
            Bounds of the result within int8; None stores the low 8 bits.
        rounding : "truncate" or "half_up"
            How a right shift rounds.
        multiplier, zero_point, constant : int
            Fixed-point scaling, as `vtaops.Elementwise` describes; multiplier 0: none.
        tiling : Tiling, optional
            ``h`` counts the tiles of a piece; ``oc`` and ``ic`` are one block.

        Returns
        -------
        int8 array of that shape
        """
        return self._call(partial(Elementwise.of, "add"), locals())

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
        multiplier: int = 0,
        zero_point: int = 0,
        constant: int = 0,
        tiling: Tiling | None = None,
    ) -> Int8Array:
        """Subtract: ``int8(clip((data * scale - other * other_scale) >> shift))``; as `add`."""
        return self._call(partial(Elementwise.of, "sub"), locals())

    subtract = sub

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
        return self._call(partial(Elementwise.of, "multiply"), locals())

    def minimum(
        self, data: npt.ArrayLike, other: npt.ArrayLike, *, tiling: Tiling | None = None
    ) -> Int8Array:
        """Take the lesser of each pair of elements; as `add`."""
        return self._call(partial(Elementwise.of, "minimum"), locals(), clip=None)

    def maximum(
        self, data: npt.ArrayLike, other: npt.ArrayLike, *, tiling: Tiling | None = None
    ) -> Int8Array:
        """Take the greater of each pair of elements; as `add`."""
        return self._call(partial(Elementwise.of, "maximum"), locals(), clip=None)

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
        return self._call(_identity, locals())

    def relu(self, data: npt.ArrayLike, *, tiling: Tiling | None = None) -> Int8Array:
        """Replace negative elements by 0; a tensor of any rank."""
        return self._call(_identity, locals(), clip=(0, 127))

    def clip(
        self, data: npt.ArrayLike, low: int, high: int, *, tiling: Tiling | None = None
    ) -> Int8Array:
        """Bound the elements of a tensor of any rank to ``low..high``."""
        return self._call(_identity, {"data": data, "tiling": tiling}, clip=(low, high))

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
        given = {"data": data, "rounding": rounding, "tiling": tiling}
        return self._call(_identity, given, shift=bits, clip=None)

    def shift_left(
        self, data: npt.ArrayLike, bits: int, *, clip: Clip = INT8, tiling: Tiling | None = None
    ) -> Int8Array:
        """Shift the elements of a tensor of any rank to the left by 0..15 bits, and clip."""
        bits = plain(bits)
        require_at_least(0, bits=bits)
        given = {"data": data, "clip": clip, "tiling": tiling}
        return self._call(_identity, given, shift=-bits)

    def _call(
        self,
        of: Callable[..., tuple[Operator, Arguments]],
        given: dict[str, Any],
        **more: Any,
    ) -> Int8Array:
        """Run the operator that `of` makes of the arguments of a method (its ``locals()``)."""
        given = {name: value for name, value in given.items() if name != "self"}
        tiling = given.pop("tiling")
        op, arrays = of(**given, **more)
        if isinstance(op, Conv2d) and tiling is None:
            op = op.folded_if_shorter(self.config)
        return self.run(op, *arrays, tiling=tiling)


_identity = partial(Elementwise.of, "identity")
