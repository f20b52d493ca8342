"""Depthwise-separable convolution as one kernel, for devices that have one."""

from __future__ import annotations

from typing import Any

from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_array
from vtaops.kernels.calls.arguments import FLOAT, check_shapes, tail
from vtaops.kernels.calls.backend import KernelCall
from vtaops.kernels.calls.convolution import ConvolutionCalls, window_of
from vtaops.kernels.ops import Epilogue, SeparableOp


class SeparableCalls(ConvolutionCalls):
    """Convolutions whose separable one keeps what lies between its parts on the chip."""

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
        parameters = (strides, padding, dilation, activation)
        return self.call(_separable, (data, depthwise, pointwise), out, parameters, fused)


def _separable(
    data: Any,
    depthwise: Any,
    pointwise: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    activation: str | None,
    **fused: Any,
) -> KernelCall:
    x = as_array(data, "data", FLOAT, rank=4)
    first = as_array(depthwise, "depthwise", FLOAT, rank=4)
    second = as_array(pointwise, "pointwise", FLOAT, rank=4)
    outputs, middle, *size = second.shape
    if size != [1, 1]:
        raise ShapeError(f"pointwise has shape {second.shape}; its window must be 1x1")
    end = tail(activation=activation, **fused)
    n, c, height, width = x.shape
    op = SeparableOp(
        n,
        c,
        height,
        width,
        window_of(first.shape[2:], strides, padding, dilation),
        outputs,
        first.shape[1],
        Epilogue(activation=activation),
        end.epilogue,
    )
    check_shapes(op, (x, first, second.reshape(outputs, middle), *end.arrays))
    return KernelCall(op, (x, first, second, *end.arrays))
