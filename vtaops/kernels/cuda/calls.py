"""GPU-only calls: a separable convolution in one kernel, and a convolution of packed data."""

from __future__ import annotations

from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_array
from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.calls.arguments import FLOAT, check_shapes, fused_epilogue
from vtaops.kernels.calls.backend import KernelCall, operator
from vtaops.kernels.calls.convolution import operands
from vtaops.kernels.ops import Epilogue, PackedConv2dOp, SeparableOp, Window
from vtaops.kernels.ops.common import ACCUMULATOR, ceil_div


class GpuCalls(OperatorCalls):
    """All operators; the separable convolution keeps its intermediate results on chip."""

    @operator(3)
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
    ) -> KernelCall:
        x = as_array(data, "data", FLOAT, rank=4)
        first = as_array(depthwise, "depthwise", FLOAT, rank=4)
        second = as_array(pointwise, "pointwise", FLOAT, rank=4)
        outputs, middle, *size = second.shape
        if size != [1, 1]:
            raise ShapeError(f"pointwise has shape {second.shape}; its window must be 1x1")
        epilogue, added = fused_epilogue(activation=activation, **fused)
        n, c, height, width = x.shape
        op = SeparableOp(
            n,
            c,
            height,
            width,
            Window.of(first.shape[2:], strides, padding, dilation),
            outputs,
            first.shape[1],
            Epilogue(activation=activation),
            epilogue,
        )
        check_shapes(op.inputs, (x, first, second.reshape(outputs, middle), *added))
        return KernelCall(op, (x, first, second, *added))

    @operator(2)
    def conv2d_nchwc(
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
        """Return the 2-D convolution of NCHW[b]c data, float32 or int8.

        int8 data are multiplied by the dp4a instruction. `vtaops.machine.layout.Layout` packs and
        unpacks: ``Layout("NCHW16c")`` the data, ``Layout("OIHW16i16o")`` a float32 kernel; an int8
        kernel is packed by `pack_int8_kernel`.

        Parameters
        ----------
        data : array_like
            (N, C / b, H, W, b); float32, int8 or uint8.
        kernel : array_like
            float32 (O / b, C / b, KH, KW, b, b), or int8 (O / b, C / b, KH, KW, b / 4, b, 4).
        strides, padding, dilation, out
            As `conv2d`.
        **fused
            As `conv2d`; vectors have O elements, a residual the shape of the result.

        Returns
        -------
        numpy.ndarray
            (N, O / b, rows, columns, b).
        """
        x, w, dtype = operands(data, kernel, rank=5, kernel_ranks=(6, 7))
        window = Window.of(w.shape[2:4], strides, padding, dilation)
        epilogue, added = fused_epilogue(accumulator=ACCUMULATOR[dtype], **fused)
        n, blocks, height, width, block = x.shape
        op = PackedConv2dOp(n, blocks, height, width, w.shape[0], window, block, dtype, epilogue)
        return KernelCall.checked(op, (x, w, *added))


def pack_int8_kernel(kernel: Any, block: int = 16) -> Array:
    """Pack an int8 OIHW kernel in channel blocks, padded with zeros.

    Parameters
    ----------
    kernel : array_like
        (O, I, KH, KW).
    block : int
        Channels in one block, a multiple of 4.

    Returns
    -------
    numpy.ndarray
        (O / block, I / block, KH, KW, block / 4, block, 4).

    Raises
    ------
    ShapeError
        If the kernel has another dtype or rank, or `block` does not fit.
    """
    w = as_array(kernel, "kernel", ("int8",), rank=4)
    if block < 4 or block % 4:
        raise ShapeError(f"block is {block}; give a multiple of 4")
    outs, ins, *size = w.shape
    whole = np.pad(w, [(0, -outs % block), (0, -ins % block), (0, 0), (0, 0)])
    blocks = whole.reshape(-1, block, ceil_div(ins, block), block // 4, 4, *size)
    return np.ascontiguousarray(blocks.transpose(0, 2, 5, 6, 3, 1, 4))
