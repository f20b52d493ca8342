"""Pooling and softmax; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_call
from vtaops.base.shapes import Array, four_sides
from vtaops.kernels.arrays import as_array, deliver
from vtaops.kernels.calls.arguments import ANY, FLOAT
from vtaops.kernels.calls.backend import Backend, KernelCall, operator
from vtaops.kernels.ops import GlobalPoolOp, PoolOp, SoftmaxOp, Window


class ReductionCalls(Backend):
    """Pooling over windows and whole images; softmax."""

    @operator(1)
    def max_pool2d(
        self,
        data: Any,
        kernel_size: int | tuple[int, int],
        *,
        strides: int | tuple[int, int] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int] = 1,
        ceil_mode: bool = False,
        out: Any = None,
    ) -> KernelCall:
        """Return the maximum over each window of float32 NCHW data.

        Parameters
        ----------
        data : array_like
            (N, C, H, W).
        kernel_size : int or (int, int)
            Size of the window.
        strides : int or (int, int), optional
            Strides of the window; by default its size.
        padding : int, (int, int) or (int, int, int, int)
            Minus infinity around the image; at most half the window.
        dilation : int or (int, int)
            Distance between the pixels of a window.
        ceil_mode : bool
            Whether windows may extend past the bottom and right if they start inside.
        out : array, optional
            Where to write.

        Raises
        ------
        ShapeError
            If shapes, dtypes or parameters do not fit.
        """
        window = Window.of(kernel_size, strides, four_sides(padding), dilation, ceil_mode)
        return _pool("max", data, window)

    @operator(1)
    def avg_pool2d(
        self,
        data: Any,
        kernel_size: int | tuple[int, int],
        *,
        strides: int | tuple[int, int] | None = None,
        padding: int | tuple[int, ...] = 0,
        count_include_pad: bool = True,
        ceil_mode: bool = False,
        out: Any = None,
    ) -> KernelCall:
        """Return the average over each window of float32 NCHW data.

        Parameters
        ----------
        data, kernel_size, strides, padding, ceil_mode, out
            As `max_pool2d`; the padding is zero.
        count_include_pad : bool
            Divide by the window's pixels in the padded image; otherwise by those in the image.
        """
        window = Window.of(kernel_size, strides, four_sides(padding), ceil=ceil_mode)
        return _pool("avg", data, window, bool(count_include_pad))

    @operator(1)
    def global_max_pool2d(self, data: Any, *, out: Any = None) -> KernelCall:
        """Return the maximum of each image: (N, C, H, W) to (N, C, 1, 1), float32.

        The CPU returns NaN for an image with NaN, and minus infinity for one of nothing else; CUDA
        ignores NaN and returns the lowest finite float32 if no pixel is greater.
        """
        return _global_pool("max", data)

    @operator(1)
    def global_avg_pool2d(self, data: Any, *, out: Any = None) -> KernelCall:
        """Return the average of each image: (N, C, H, W) to (N, C, 1, 1), float32."""
        return _global_pool("avg", data)

    @checked_call
    def softmax(self, data: Any, *, axis: int = -1, out: Any = None) -> Array:
        """Return exp(x - max) / sum(exp(x - max)) along an axis of float32 data.

        Parameters
        ----------
        data : array_like
            Of any shape.
        axis : int
            The axis whose elements sum to 1. The last is fastest; others need a copy.
        out : array, optional
            Where to write.
        """
        if axis == -1:
            return self.call(_softmax, (data,), out)
        x = as_array(data, "data", ANY)
        if not -x.ndim <= axis < x.ndim:
            raise ShapeError(f"axis is {axis}; data has {x.ndim} axes")
        last = self.call(_softmax, (np.moveaxis(x, axis, -1),), None)
        return deliver(np.moveaxis(last, -1, axis), data, out)


def _pool(kind: str, data: Any, window: Window, include_padding: bool = True) -> KernelCall:
    x = as_array(data, "data", FLOAT, rank=4)
    n, c, height, width = x.shape
    beyond = window.beyond(height, width)
    top, left, bottom, right = window.padding
    sides = top, left, bottom + beyond[0], right + beyond[1]
    window = replace(window, padding=sides, ceil=False)
    return KernelCall(PoolOp(kind, n, c, height, width, window, include_padding, beyond), (x,))


def _global_pool(kind: str, data: Any) -> KernelCall:
    x = as_array(data, "data", FLOAT, rank=4)
    n, c, height, width = x.shape
    return KernelCall(GlobalPoolOp(kind, n * c, height * width), (x,), (n, c, 1, 1))


def _softmax(_: Backend, data: Any) -> KernelCall:
    x = as_array(data, "data", FLOAT)
    if x.ndim == 0:
        raise ShapeError("data is a scalar; softmax needs at least one axis")
    return KernelCall(SoftmaxOp(prod(x.shape[:-1]), x.shape[-1]), (x,), x.shape)
