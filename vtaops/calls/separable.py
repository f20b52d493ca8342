"""Depthwise-separable convolution as one kernel, for devices that have one."""

from __future__ import annotations

from typing import Any

from vtaops.calls.arguments import FLOAT, check_shapes, frozen, tail
from vtaops.calls.backend import interned
from vtaops.calls.convolution import Convolutions
from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array
from vtaops.ops.tensor import Epilogue, SeparableOp, Window
from vtaops.ops.tensor.common import pair, sides


class FusedSeparable(Convolutions):
    """Convolutions whose separable one keeps what lies between its parts on the chip."""

    def depthwise_separable_conv2d(
        self,
        data: Any,
        depthwise: Any,
        pointwise: Any,
        *,
        strides: int | tuple[int, int] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, int] = 1,
        activation: str | None = None,
        out: Any = None,
        **fused: Any,
    ) -> Array:
        x = as_array(data, "data", FLOAT, rank=4)
        first = as_array(depthwise, "depthwise", FLOAT, rank=4)
        second = as_array(pointwise, "pointwise", FLOAT, rank=4)
        outputs, middle, *size = second.shape
        if size != [1, 1]:
            raise ShapeError(f"pointwise has shape {second.shape}; its window must be 1x1")
        second = second.reshape(outputs, middle)
        window = Window(
            pair(first.shape[2:], "kernel"),
            pair(frozen(strides), "strides"),
            sides(frozen(padding)),
            pair(frozen(dilation), "dilation"),
        )
        end = tail(activation=activation, **fused)
        n, c, height, width = x.shape
        op = interned(
            SeparableOp,
            n,
            c,
            height,
            width,
            window,
            outputs,
            first.shape[1],
            Epilogue(activation=activation),
            end.epilogue,
        )
        arrays = (x, first, second, *end.arrays)
        check_shapes(op, arrays)
        return self.prepared(op)(*arrays, out=out)
