"""Pooling; the calls of `vtaops.cpu` and `vtaops.cuda`."""

from __future__ import annotations

from typing import Any

from vtaops.calls.arguments import FLOAT, frozen
from vtaops.calls.backend import Backend, interned
from vtaops.kernels.arrays import Array, as_array, as_output
from vtaops.ops.tensor import GlobalPoolOp, PoolOp, Window
from vtaops.ops.tensor.common import pair, sides


class Poolings(Backend):
    """Pooling over windows and whole images."""

    def max_pool2d(
        self,
        data: Any,
        kernel_size: int | tuple[int, int],
        *,
        strides: int | tuple[int, int] | None = None,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int] = 1,
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
        out : array, optional
            Where to write.

        Raises
        ------
        ShapeError
            If shapes, dtypes or parameters do not fit.
        """
        x = as_array(data, "data", FLOAT, rank=4)
        n, c, height, width = x.shape
        window = _window(kernel_size, strides, padding, dilation)
        return self.prepared(interned(PoolOp, "max", n, c, height, width, window))(x, out=out)

    def avg_pool2d(
        self,
        data: Any,
        kernel_size: int | tuple[int, int],
        *,
        strides: int | tuple[int, int] | None = None,
        padding: int | tuple[int, ...] = 0,
        count_include_pad: bool = True,
        out: Any = None,
    ) -> Array:
        """Return the average over each window of float32 NCHW data.

        Parameters
        ----------
        data, kernel_size, strides, padding, out
            As `max_pool2d`; the padding is zero.
        count_include_pad : bool
            Divide by the size of the window, else by the number of pixels inside the image.
        """
        x = as_array(data, "data", FLOAT, rank=4)
        n, c, height, width = x.shape
        window = _window(kernel_size, strides, padding, 1)
        return self.prepared(
            interned(PoolOp, "avg", n, c, height, width, window, bool(count_include_pad))
        )(x, out=out)

    def global_max_pool2d(self, data: Any, *, out: Any = None) -> Array:
        """Return the maximum of each image: (N, C, H, W) to (N, C, 1, 1), float32."""
        return self._global("max", data, out)

    def global_avg_pool2d(self, data: Any, *, out: Any = None) -> Array:
        """Return the average of each image: (N, C, H, W) to (N, C, 1, 1), float32."""
        return self._global("avg", data, out)

    def _global(self, kind: str, data: Any, out: Any) -> Array:
        x = as_array(data, "data", FLOAT, rank=4)
        n, c, height, width = x.shape
        pool = self.prepared(interned(GlobalPoolOp, kind, n * c, height * width))
        flat = x.reshape(n * c, height * width)
        if out is None:
            return pool(flat).reshape(n, c, 1, 1)
        result = as_output(out, (n, c, 1, 1), "float32")
        pool(flat, out=result.reshape(-1))
        return result


def _window(kernel_size: Any, strides: Any, padding: Any, dilation: Any) -> Window:
    size = pair(frozen(kernel_size), "kernel_size")
    return Window(
        size,
        size if strides is None else pair(frozen(strides), "strides"),
        sides(frozen(padding)),
        pair(frozen(dilation), "dilation"),
    )
