"""Operators: what is computed. One file for each family; declarations in te, rules of shapes."""

from vtaops.ops.base import Operator
from vtaops.ops.conv2d import Conv2d
from vtaops.ops.gemm import Gemm

__all__ = ["Conv2d", "Gemm", "Operator"]
