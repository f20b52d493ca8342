"""The operators on an NVIDIA GPU: the calls of `vtaops.cpu`, where a GPU is.

NumPy arrays are copied there and back. Arrays that lie on the GPU (PyTorch, CuPy, whatever has
``__dlpack__``) stay there: the result is one of the same library, computed on its current stream.

Without a GPU every kernel can still be scheduled, printed and compiled to CUDA source
(`CudaKernel`), and to machine code where nvcc is (`resources`).
"""

from collections.abc import Callable
from typing import Any

from vtaops.cuda.calls import GpuCalls, pack_int8_kernel
from vtaops.cuda.gpu import GpuCall, device_present, lies_on_gpu
from vtaops.cuda.kernel import CACHE, CudaKernel, kernel
from vtaops.cuda.resources import Resources, occupancy, resources
from vtaops.kernels.calls.arguments import PRODUCT
from vtaops.kernels.calls.backend import KernelCall
from vtaops.kernels.ops import TensorOp


class _Cuda(GpuCalls):
    """The operators of this machine's GPU."""

    product_dtypes = (*PRODUCT, "float16")

    def call(
        self,
        describe: Callable[..., KernelCall],
        arrays: tuple[Any, ...],
        out: Any,
        parameters: tuple[Any, ...] = (),
        fused: dict[str, Any] | None = None,
    ) -> Any:
        """As of every backend; arrays on the GPU are neither copied nor moved."""
        if not any(map(lies_on_gpu, arrays)):
            return super().call(describe, arrays, out, parameters, fused)
        call = GpuCall(describe, arrays, parameters, fused or {})
        result = call.result(out)
        call.run(self.kernel(call.work.op), result)
        return result

    def kernel(self, op: TensorOp) -> CudaKernel:
        return kernel(op)


_cuda = _Cuda()
activation = _cuda.activation
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
    "CACHE",
    "CudaKernel",
    "Resources",
    "activation",
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
    "pack_int8_kernel",
    "relu",
    "resources",
    "scale_shift",
    "softmax",
    "subtract",
    "vector_add",
]
