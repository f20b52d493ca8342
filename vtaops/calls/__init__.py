"""The calls that `vtaops.cpu` and `vtaops.cuda` share: from arguments to operators and kernels."""

from vtaops.calls.convolution import Convolutions, pack_int8_kernel
from vtaops.calls.elementwise import Elementwise
from vtaops.calls.matmul import Products
from vtaops.calls.pooling import Poolings
from vtaops.calls.softmax import Reductions

__all__ = ["Operators", "pack_int8_kernel"]


class Operators(Convolutions, Products, Poolings, Elementwise, Reductions):
    """All operators of a backend."""
