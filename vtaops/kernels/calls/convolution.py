"""Convolutions; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, as_pair
from vtaops.kernels.arrays import as_array, dtype_name
from vtaops.kernels.calls.arguments import FLOAT, PRODUCT, fused_epilogue
from vtaops.kernels.calls.backend import Backend, KernelCall, operator
from vtaops.kernels.ops import Conv2dOp, DepthwiseOp, Window
from vtaops.kernels.ops.common import ACCUMULATOR

_VECTOR = 16
"""Minimum row length that fills a vector register on every processor."""


class ConvolutionCalls(Backend):
    """Convolutions and their fusions."""

    @operator(2)
    def conv2d(
        self,
        data: Any,
        kernel: Any,
        *,
        strides: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        out: Any = None,
        **fused: Any,
    ) -> KernelCall:
        """Return the 2-D convolution (cross-correlation) of NCHW data with an OIHW kernel.

        Parameters
        ----------
        data : array_like
            (N, C, H, W); float32, giving float32, or int8 or uint8, giving int32.
        kernel : array_like
            (O, C / groups, KH, KW); float32, or int8 for integer data.
        strides, dilation : int or (int, int)
            Vertical and horizontal.
        padding : int, (int, int) or (int, int, int, int)
            Zeros around the image: everywhere, (vertical, horizontal), or (top, left, bottom,
            right); "same" keeps the image's size (as PyTorch: an odd pixel goes to the bottom and
            right), "valid" is none.
        groups : int
            Groups of channels that are convolved separately.
        out : array, optional
            Destination of the result.
        **fused
            bias (O,), scale_shift (two of (O,)), batch_norm (gamma, beta, mean, variance of (O,)),
            epsilon, residual (shape of the result), activation (see `activation`); for int8: bias,
            residual, activation, shift (arithmetic right shift), clip (low, high), giving int8.
            All are computed in the same kernel, in this order.

        Returns
        -------
        numpy.ndarray
            (N, O, rows, columns).

        Raises
        ------
        ShapeError
            If shapes, dtypes or parameters do not fit.
        """
        x, w, _ = operands(data, kernel)
        window = Window.of(w.shape[2:], strides, padding, dilation)
        return self._convolution(x, w, window, groups, fused)

    @operator(2)
    def depthwise_conv2d(
        self,
        data: Any,
        kernel: Any,
        *,
        strides: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, int] = 1,
        out: Any = None,
        **fused: Any,
    ) -> KernelCall:
        """Return the depthwise 2-D convolution of NCHW data.

        Parameters
        ----------
        data : array_like
            (N, C, H, W); float32, giving float32, or int8 or uint8, giving int32.
        kernel : array_like
            (C, M, KH, KW) with the channel multiplier M; float32, or int8 for integer data.
        strides, padding, dilation, out
            As `conv2d`.
        **fused
            As `conv2d`, per result channel.

        Returns
        -------
        numpy.ndarray
            (N, C * M, rows, columns); channel c * M + q is channel c under kernel [c, q].
        """
        x, w, dtype = operands(data, kernel)
        window = Window.of(w.shape[2:], strides, padding, dilation)
        epilogue, added = fused_epilogue(accumulator=ACCUMULATOR[dtype], **fused)
        n, c, height, width = x.shape
        op = DepthwiseOp(n, c, height, width, window, w.shape[1], dtype, epilogue)
        return KernelCall.checked(op, (x, w, *added))

    def depthwise_separable_conv2d(
        self,
        data: Any,
        depthwise: Any,
        pointwise: Any,
        *,
        strides: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, int] = 1,
        activation: str | None = None,
        out: Any = None,
        **fused: Any,
    ) -> Array:
        """Return a depthwise convolution followed by a 1x1 convolution.

        Parameters
        ----------
        data : array_like
            (N, C, H, W), float32.
        depthwise : array_like
            (C, M, KH, KW).
        pointwise : array_like
            (O, C * M, 1, 1).
        strides, padding, dilation
            Of the depthwise convolution.
        activation : str, optional
            Applied after both the depthwise and the 1x1 convolution.
        out : array, optional
            Where to write.
        **fused
            As `conv2d`, after the 1x1 convolution.
        """
        middle = self.depthwise_conv2d(
            data,
            depthwise,
            strides=strides,
            padding=padding,
            dilation=dilation,
            activation=activation,
        )
        return self.conv2d(middle, pointwise, activation=activation, out=out, **fused)

    @operator(2)
    def conv1d(
        self,
        data: Any,
        kernel: Any,
        *,
        strides: int = 1,
        padding: int | tuple[int, int] | str = 0,
        dilation: int = 1,
        groups: int = 1,
        out: Any = None,
        **fused: Any,
    ) -> KernelCall:
        """Return the 1-D convolution (cross-correlation) of NCW data.

        Parameters
        ----------
        data : array_like
            (N, C, W), as `conv2d`.
        kernel : array_like
            (O, C / groups, K).
        strides, dilation, groups : int
            As `conv2d`.
        padding : int, (int, int) or str
            Zeros before and after; "same" and "valid" as `conv2d`.
        out : array, optional
            Where to write.
        **fused
            As `conv2d`.
        """
        x, w, dtype = operands(data, kernel, rank=3)
        steps, size = ((1, strides), (1, dilation)), (1, w.shape[2])
        if isinstance(padding, str):
            padding = Window.of(size, steps[0], padding, steps[1]).padding[1::2]
        before, behind = as_pair("padding", padding)
        residual = fused.get("residual")
        if residual is not None:
            residual = as_array(residual, "residual", (ACCUMULATOR[dtype],), rank=3)
            fused = {**fused, "residual": residual[:, :, None]}
        window = Window.of(size, steps[0], (0, before, 0, behind), steps[1])
        work = self._convolution(x[:, :, None], w[:, :, None], window, groups, fused)
        ends = work.arrays[2:] if residual is None else (*work.arrays[2:-1], residual)
        n, o, _, length = work.shape or work.op.output.shape
        return KernelCall(work.op, (x, w, *ends), (n, o, length))

    def _convolution(
        self, x: Array, w: Array, window: Window, groups: int, fused: dict[str, Any]
    ) -> KernelCall:
        """Describe the convolution of NCHW data with an OIHW kernel as its best special case."""
        dtype = dtype_name(x)
        epilogue, added = fused_epilogue(accumulator=ACCUMULATOR[dtype], **fused)
        n, c, height, width = x.shape
        if not isinstance(groups, int) or groups < 1 or w.shape[1] * groups != c:
            raise ShapeError(
                f"data has {c} channels, the kernel {w.shape} takes {w.shape[1]} in each of "
                f"{groups} groups; channels must equal their product"
            )
        op = Conv2dOp(n, c, height, width, w.shape[0], window, groups, dtype, epilogue)
        work = KernelCall.checked(op, (x, w, *added))
        multiplier, rest = divmod(w.shape[0], c)
        if groups == c > 1 and not rest:
            depthwise = DepthwiseOp(n, c, height, width, window, multiplier, dtype, epilogue)
            return work._replace(op=depthwise)
        pointwise = window.kernel == (1, 1) and not any(window.padding)
        return self._of_long_row(work, op) if pointwise else work

    def _of_long_row(self, work: KernelCall, op: Conv2dOp) -> KernelCall:
        """Describe a pointwise convolution with the image as one long row: no tails at row ends."""
        work = work._replace(shape=op.output.shape)
        if op.window.strides == (1, 1):
            return work._replace(op=replace(op, height=1, width=op.height * op.width))
        fills = op.groups == 1 and op.dtype == "float32" and prod(op.out_size) >= _VECTOR
        return work._replace(op=replace(op, joined=True)) if self.joins_rows and fills else work


def operands(data: Any, kernel: Any, rank: int = 4) -> tuple[Array, Array, str]:
    """Return data and kernel as arrays, and the dtype of the data, which decides the kernel's."""
    x = as_array(data, "data", PRODUCT, rank=rank)
    dtype = dtype_name(x)
    kinds = FLOAT if dtype == "float32" else ("int8",)
    return x, as_array(kernel, "kernel", kinds, rank=rank), dtype
