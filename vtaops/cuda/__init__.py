"""The operators on an NVIDIA GPU: the calls of `vtaops.cpu`, where a GPU is.

Without a GPU every kernel can still be scheduled, printed and compiled to CUDA source
(`CudaKernel`), and to machine code where nvcc is (`resources`).
"""

from vtaops.cuda.kernel import CudaKernel, device_present, kernel
from vtaops.cuda.resources import Resources, occupancy, resources
from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.calls.arguments import PRODUCT
from vtaops.kernels.calls.backend import RunnableKernel
from vtaops.kernels.calls.separable import SeparableCalls
from vtaops.kernels.ops import TensorOp


class _Cuda(SeparableCalls, OperatorCalls):
    """The operators of this machine's GPU."""

    product_dtypes = (*PRODUCT, "float16")

    def kernel(self, op: TensorOp) -> RunnableKernel:
        return kernel(op)


_cuda = _Cuda()
add = _cuda.add
avg_pool2d = _cuda.avg_pool2d
batch_norm = _cuda.batch_norm
conv1d = _cuda.conv1d
conv2d = _cuda.conv2d
conv2d_nchwc = _cuda.conv2d_nchwc
dense = _cuda.dense
depthwise_conv2d = _cuda.depthwise_conv2d
depthwise_separable_conv2d = _cuda.depthwise_separable_conv2d
global_avg_pool2d = _cuda.global_avg_pool2d
global_max_pool2d = _cuda.global_max_pool2d
matmul = _cuda.matmul
max_pool2d = _cuda.max_pool2d
maximum = _cuda.maximum
minimum = _cuda.minimum
multiply = _cuda.multiply
relu = _cuda.relu
scale_shift = _cuda.scale_shift
softmax = _cuda.softmax
subtract = _cuda.subtract
vector_add = _cuda.vector_add

__all__ = [
    "CudaKernel",
    "Resources",
    "add",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv2d_nchwc",
    "dense",
    "depthwise_conv2d",
    "depthwise_separable_conv2d",
    "device_present",
    "global_avg_pool2d",
    "global_max_pool2d",
    "kernel",
    "matmul",
    "max_pool2d",
    "maximum",
    "minimum",
    "multiply",
    "occupancy",
    "relu",
    "resources",
    "scale_shift",
    "softmax",
    "subtract",
    "vector_add",
]
