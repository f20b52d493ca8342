"""Pooling; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vtaops.base.shapes import four_sides
from vtaops.kernels.arrays import Array, as_array
from vtaops.kernels.calls.arguments import FLOAT
from vtaops.kernels.calls.backend import Backend, KernelCall
from vtaops.kernels.ops import GlobalPoolOp, PoolOp, Window


class PoolingCalls(Backend):
    """Pooling over windows and whole images."""

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
    ) -> Array:
        """Return the maximum over each window of float32 NCHW data.

        Parameters
        ----------
        data : array_like
            (N, C, H, W).
        kernel_size : int or (int, int)
            Size of the window.
        strides : int or (int, int), optional
            Distance of the windows; by default their size.
        padding : int, (int, int) or (int, int, int, int)
            Minus infinity around the image; at most half the window.
        dilation : int or (int, int)
            Distance of the pixels of a window.
        ceil_mode : bool
            Windows may reach over the padded image at the bottom and right, if they begin inside.
        out : array, optional
            Where to write.

        Raises
        ------
        ShapeError
            If shapes, dtypes or parameters do not fit.
        """
        parameters = ("max", kernel_size, strides, padding, dilation, bool(ceil_mode))
        return self.call(_pool, (data,), out, parameters)

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
    ) -> Array:
        """Return the average over each window of float32 NCHW data.

        Parameters
        ----------
        data, kernel_size, strides, padding, ceil_mode, out
            As `max_pool2d`; the padding is zero.
        count_include_pad : bool
            Divide by the pixels of the window that lie in the padded image, else in the image.
        """
        flags = bool(ceil_mode), bool(count_include_pad)
        parameters = ("avg", kernel_size, strides, padding, 1, *flags)
        return self.call(_pool, (data,), out, parameters)

    def global_max_pool2d(self, data: Any, *, out: Any = None) -> Array:
        """Return the maximum of each image: (N, C, H, W) to (N, C, 1, 1), float32.

        The CPU returns NaN for an image with NaN, and minus infinity for one of nothing else; CUDA
        passes over NaN and returns the least finite float32 where no pixel is greater.
        """
        return self.call(_global_pool, (data,), out, ("max",))

    def global_avg_pool2d(self, data: Any, *, out: Any = None) -> Array:
        """Return the average of each image: (N, C, H, W) to (N, C, 1, 1), float32."""
        return self.call(_global_pool, (data,), out, ("avg",))


def _pool(
    data: Any,
    kind: str,
    kernel_size: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    include_padding: bool = True,
) -> KernelCall:
    x = as_array(data, "data", FLOAT, rank=4)
    steps = kernel_size if strides is None else strides
    window = Window.of(kernel_size, steps, four_sides(padding), dilation, ceil_mode)
    n, c, height, width = x.shape
    beyond = window.beyond(height, width)
    top, left, bottom, right = window.padding
    sides = top, left, bottom + beyond[0], right + beyond[1]
    window = replace(window, padding=sides, ceil=False)
    return KernelCall(PoolOp(kind, n, c, height, width, window, include_padding, beyond), (x,))


def _global_pool(data: Any, kind: str) -> KernelCall:
    x = as_array(data, "data", FLOAT, rank=4)
    n, c, height, width = x.shape
    return KernelCall(GlobalPoolOp(kind, n * c, height * width), (x,), (n, c, 1, 1))
