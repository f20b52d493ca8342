"""The operators on an NVIDIA GPU: the same calls as `vtaops.cpu`.

NumPy arrays are copied to the GPU and back. Arrays on the GPU (PyTorch, CuPy, anything with
``__dlpack__``) stay there: the result is one of the same library, computed on its current stream.

Without a GPU every kernel can still be scheduled, printed and compiled to CUDA source
(`CudaKernel`), and with nvcc to machine code (`resources`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.calls.arguments import PRODUCT
from vtaops.kernels.calls.backend import KernelCall
from vtaops.kernels.cuda.gpu import GpuCall, device_present, lies_on_gpu
from vtaops.kernels.cuda.kernel import CACHE, CudaKernel, kernel
from vtaops.kernels.cuda.resources import Resources, occupancy, resources
from vtaops.kernels.ops import TensorOp


class _Cuda(OperatorCalls):
    """The operators of this machine's GPU."""

    product_dtypes = (*PRODUCT, "float16")

    def call(
        self,
        describe: Callable[..., KernelCall],
        arrays: tuple[Any, ...],
        out: Any,
        parameters: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Any:
        """Run a call; as any backend, but arrays on the GPU are not copied."""
        if not any(map(lies_on_gpu, arrays)):
            return super().call(describe, arrays, out, parameters, keywords)
        call = GpuCall(partial(describe, self), arrays, parameters, keywords or {})
        result = call.result(out)
        call.run(self.kernel(call.work.op), result)
        return result

    def kernel(self, op: TensorOp) -> CudaKernel:
        return kernel(op)


_cuda = _Cuda()
globals().update(_cuda.operators())
__all__ = [
    "CACHE",
    "CudaKernel",
    "Resources",
    "device_present",
    "kernel",
    "occupancy",
    "resources",
    *_cuda.operators(),
]
