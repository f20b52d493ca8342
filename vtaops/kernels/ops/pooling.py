"""Pooling: maximum and average over windows of an image, or over the whole image."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tvm import te, tirx

from vtaops.errors import ShapeError
from vtaops.kernels.ops.common import (
    Expr,
    SlidingWindow,
    Tensor,
    TensorOp,
    TensorSpec,
    pad_image,
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
        "max" (padding counts as minus infinity) or "avg".
    batch, channels, height, width : int
        Shape of the data.
    window : SlidingWindow
        Kernel size, strides, padding, dilation.
    count_padding : bool
        An average divides by the whole window, also at the border; else by the pixels inside.

    Raises
    ------
    ShapeError
        If the padding exceeds half the window: a window could lie in the padding alone.
    """

    kind: str
    batch: int
    channels: int
    height: int
    width: int
    window: SlidingWindow
    count_padding: bool = True

    def __post_init__(self) -> None:
        self.window.output(self.height, self.width)
        for axis in (0, 1):
            span = (self.window.kernel[axis] - 1) * self.window.dilation[axis] + 1
            if 2 * max(self.window.padding[axis], self.window.padding[axis + 2]) > span:
                raise ShapeError(
                    f"padding is {self.window.padding}; pooling allows at most half the window "
                    f"{self.window.kernel}"
                )

    @property
    def out_size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.output(self.height, self.width)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        shape = (self.batch, self.channels, self.height, self.width)
        return (TensorSpec("data", shape, "float32"),)

    @property
    def output(self) -> TensorSpec:
        return TensorSpec("result", (self.batch, self.channels, *self.out_size), "float32")

    @property
    def flops(self) -> int:
        return prod(self.output.shape) * prod(self.window.kernel)

    @property
    def pad_value(self) -> Expr:
        """What surrounds the image."""
        return tirx.min_value("float32") if self.kind == "max" else zero("float32")

    def weight(self, i: Expr, j: Expr) -> Expr:
        """Return the factor of an average at result row `i`, column `j`."""
        one = tirx.const(1.0, "float32")
        if self.count_padding or not any(self.window.padding):
            return tirx.const(1.0 / prod(self.window.kernel), "float32")
        rows = self._inside(i, 0, self.height)
        columns = self._inside(j, 1, self.width)
        return one / (rows * columns).astype("float32")

    def _inside(self, position: Expr, axis: int, extent: int) -> Expr:
        """Count the taps of a window that lie inside the image along one axis."""
        first = position * self.window.strides[axis] - self.window.padding[axis]
        total: Expr = tirx.const(0, "int32")
        for tap in range(self.window.kernel[axis]):
            at = first + tap * self.window.dilation[axis]
            total = total + tirx.all(at >= 0, at < extent).astype("int32")
        return total

    def declare(self) -> list[Tensor]:
        data = self.inputs[0].placeholder()
        padded = pad_image(data, self.window, self.pad_value)
        kh, kw = window_axes(self.window)
        (sh, sw), (dh, dw) = self.window.strides, self.window.dilation
        reduce = te.max if self.kind == "max" else te.sum
        shape = self.output.shape

        def pool(n: Expr, c: Expr, i: Expr, j: Expr) -> Expr:
            return reduce(padded[n, c, i * sh + kh * dh, j * sw + kw * dw], axis=[kh, kw])

        if self.kind == "max":
            return [data, te.compute(shape, pool, name="result")]
        total = te.compute(shape, pool, name="total")
        result = te.compute(
            shape, lambda n, c, i, j: total[n, c, i, j] * self.weight(i, j), name="result"
        )
        return [data, result]


@dataclass(frozen=True)
class GlobalPoolOp(TensorOp):
    """Maximum or average over each image: (rows, pixels) to (rows,), float32."""

    kind: str
    rows: int
    pixels: int

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec("data", (self.rows, self.pixels), "float32"),)

    @property
    def output(self) -> TensorSpec:
        return TensorSpec("result", (self.rows,), "float32")

    @property
    def flops(self) -> int:
        return self.rows * self.pixels

    def declare(self) -> list[Tensor]:
        data = self.inputs[0].placeholder()
        p = te.reduce_axis((0, self.pixels), name="p")
        if self.kind == "max":
            result = te.compute((self.rows,), lambda r: te.max(data[r, p], axis=p), name="result")
            return [data, result]
        total = te.compute((self.rows,), lambda r: te.sum(data[r, p], axis=p), name="total")
        factor = tirx.const(1.0 / self.pixels, "float32")
        return [data, te.compute((self.rows,), lambda r: total[r] * factor, name="result")]
