"""The calls shared by `vtaops.cpu` and `vtaops.cuda`: from arguments to operators and kernels."""

from vtaops.kernels.calls.convolution import ConvolutionCalls
from vtaops.kernels.calls.elementwise import ElementwiseCalls
from vtaops.kernels.calls.matmul import ProductCalls
from vtaops.kernels.calls.reduction import ReductionCalls

__all__ = ["OperatorCalls"]


class OperatorCalls(ConvolutionCalls, ProductCalls, ReductionCalls, ElementwiseCalls):
    """All operators of a backend."""
