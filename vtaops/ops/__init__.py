"""Operators: descriptions of VTA computations; one file per family."""

from vtaops.ops.base import Operator
from vtaops.ops.conv2d import Conv2d
from vtaops.ops.conv2d_transpose import Conv2dTranspose
from vtaops.ops.elementwise import Elementwise
from vtaops.ops.matmul import BatchMatmul, Gemm
from vtaops.ops.pooling import AvgPool2d, MaxPool2d

__all__ = [
    "AvgPool2d",
    "BatchMatmul",
    "Conv2d",
    "Conv2dTranspose",
    "Elementwise",
    "Gemm",
    "MaxPool2d",
    "Operator",
]
