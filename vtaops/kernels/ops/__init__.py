"""Descriptions of the CPU and GPU operators: static shapes and te declarations.

The folders `schedule` of `cpu` and `cuda` schedule them. They accept tensors of any layout and
dtype; the VTA's own operators are in `vtaops.ops`.
"""

from vtaops.kernels.ops.common import TensorOp, TensorSpec, Window
from vtaops.kernels.ops.convolution import Conv2dOp, DepthwiseOp
from vtaops.kernels.ops.elementwise import BroadcastOp, NormalizeOp, UnaryOp
from vtaops.kernels.ops.epilogue import Epilogue
from vtaops.kernels.ops.matmul import MatmulOp, StackedMatmulOp
from vtaops.kernels.ops.packed import PackedConv2dOp, PackedWindowOp
from vtaops.kernels.ops.reduction import GlobalPoolOp, PoolOp, SoftmaxOp

__all__ = [
    "BroadcastOp",
    "Conv2dOp",
    "DepthwiseOp",
    "Epilogue",
    "GlobalPoolOp",
    "MatmulOp",
    "NormalizeOp",
    "PackedConv2dOp",
    "PackedWindowOp",
    "PoolOp",
    "SoftmaxOp",
    "StackedMatmulOp",
    "TensorOp",
    "TensorSpec",
    "UnaryOp",
    "Window",
]
