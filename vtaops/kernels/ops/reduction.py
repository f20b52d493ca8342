"""Reductions: maximum and average over windows of an image, or over the whole image; softmax."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import te, tirx

from vtaops.kernels.ops.activations import exponential
from vtaops.kernels.ops.common import (
    Expr,
    Tensor,
    TensorOp,
    TensorSpec,
    Window,
    lowest,
    pad_image,
    reduce_largest,
    specs,
    window_axes,
    zero,
)

KINDS = ("max", "avg")


@dataclass(frozen=True)
class PoolOp(TensorOp):
    """Maximum or average over the windows of NCHW data, float32.

    Attributes
    ----------
    kind : str
        "max" (padding is minus infinity; NaN if any pixel of the window is) or "avg".
    batch, channels, height, width : int
        Shape of the data.
    window : Window
        Kernel size, strides, padding, dilation.
    count_padding : bool
        Whether an average divides by the padded window; otherwise by the pixels inside the image.
    beyond : (int, int)
        Rows and columns of bottom and right padding that are never counted: the overhang of
        PyTorch's ``ceil_mode``.

    Raises
    ------
    ShapeError
        If the padding exceeds half the window: a window could lie entirely in the padding.
    """

    kind: str
    batch: int
    channels: int
    height: int
    width: int
    window: Window
    count_padding: bool = True
    beyond: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.window.out_size(self.height, self.width)
        self.window.check_for_pooling(self.beyond)

    @property
    def out_size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.out_size(self.height, self.width)

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        planes = (self.batch, self.channels)
        return specs(data=(*planes, self.height, self.width), result=(*planes, *self.out_size))

    @property
    def flops(self) -> int:
        return prod(self.output.shape) * prod(self.window.kernel)

    @property
    def pad_value(self) -> Expr:
        """Padding value."""
        return (lowest if self.kind == "max" else zero)("float32")

    def weight(self, i: Expr, j: Expr) -> Expr:
        """Return the reciprocal pixel count of an average at result row `i`, column `j`."""
        padded = any(self.beyond) or not self.count_padding
        if not padded or not any(self.window.padding):
            return tirx.const(1.0 / prod(self.window.kernel), "float32")
        count = self._counted(i, 0, self.height) * self._counted(j, 1, self.width)
        return tirx.const(1.0, "float32") / count.astype("float32")

    def _counted(self, position: Expr, axis: int, extent: int) -> Expr:
        """Return the number of taps of a window that an average counts along one axis."""
        before, behind = self.window.padding[axis], self.window.padding[axis + 2]
        low, high = 0, extent
        if self.count_padding:
            low, high = -before, extent + behind - self.beyond[axis]
        first, step = position * self.window.strides[axis] - before, self.window.dilation[axis]

        def taps_before(border: int) -> Expr:
            # Arithmetic, since TVM 0.27 cannot vectorize a condition.
            count = tirx.floordiv(border - first + step - 1, step)
            return tirx.max(tirx.min(count, self.window.kernel[axis]), 0)

        return taps_before(high) - taps_before(low)

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        padded = pad_image(given["data"], self.window, self.pad_value)
        kh, kw = window_axes(self.window)
        reduce = reduce_largest if self.kind == "max" else te.sum
        shape = self.output.shape

        def pool(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            return reduce(padded(n, c, *self.window.pixel(i, j, kh, kw)), axis=[kh, kw])

        if self.kind == "max":
            return te.compute(shape, pool, name="result")
        total = te.compute(shape, pool, name="total")
        return te.compute(
            shape, lambda n, c, i, j: total[n, c, i, j] * self.weight(i, j), name="result"
        )


@dataclass(frozen=True)
class GlobalPoolOp(TensorOp):
    """Maximum or average over each image: (rows, pixels) to (rows,), float32.

    GPU threads combine their maxima by TVM's built-in maximum, which ignores NaN and starts at the
    lowest finite number, the result for rows of minus infinities. A reducer that keeps NaN would
    need Python functions registered in TVM, which frees them after Python has exited.
    """

    kind: str
    rows: int
    pixels: int

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return specs(data=(self.rows, self.pixels), result=(self.rows,))

    @property
    def flops(self) -> int:
        return self.rows * self.pixels

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        data, p = given["data"], te.reduce_axis((0, self.pixels), name="p")
        if self.kind == "max":
            return te.compute((self.rows,), lambda r: te.max(data[r, p], axis=p), name="result")
        total = te.compute((self.rows,), lambda r: te.sum(data[r, p], axis=p), name="total")
        factor = tirx.const(1.0 / self.pixels, "float32")
        return te.compute((self.rows,), lambda r: total[r] * factor, name="result")


@dataclass(frozen=True)
class SoftmaxOp(TensorOp):
    """Softmax of each row of (rows, columns) data, float32."""

    rows: int
    columns: int

    @property
    def arguments(self) -> tuple[TensorSpec, ...]:
        return specs(data=(self.rows, self.columns), result=(self.rows, self.columns))

    @property
    def flops(self) -> int:
        return 5 * self.rows * self.columns

    def compute(self, given: dict[str, Tensor]) -> Tensor:
        data, shape = given["data"], self.output.shape
        k = te.reduce_axis((0, self.columns), name="k")
        j = te.reduce_axis((0, self.columns), name="j")
        top = te.compute((self.rows,), lambda r: te.max(data[r, k], axis=k), name="top")
        power = te.compute(shape, lambda r, c: exponential(data[r, c] - top[r]), name="power")
        total = te.compute((self.rows,), lambda r: te.sum(power[r, j], axis=j), name="total")
        return te.compute(shape, lambda r, c: power[r, c] / total[r], name="result")
