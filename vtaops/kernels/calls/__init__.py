"""The calls that `vtaops.cpu` and `vtaops.cuda` share: from arguments to operators and kernels."""

from vtaops.kernels.calls.convolution import Convolutions, pack_int8_kernel
from vtaops.kernels.calls.elementwise import Elementwise
from vtaops.kernels.calls.matmul import Products
from vtaops.kernels.calls.pooling import Poolings
from vtaops.kernels.calls.softmax import Reductions

__all__ = ["Operators", "pack_int8_kernel"]


class Operators(Convolutions, Products, Poolings, Elementwise, Reductions):
    """All operators of a backend."""
