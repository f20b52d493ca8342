"""The operators on the CPU: accept NumPy, DLPack and PyTorch arrays, return NumPy arrays.

Each call accepts ``out=``, a destination array, and returns it; only elementwise operators may
overwrite an input. The first call for a shape compiles a kernel for this machine (some tenths of a
second) and caches it; see `vtaops.kernels.KernelCache`.
`vtaops.kernels.cpu.layers` packs weights once, for networks.
float16 and bfloat16 arrays (one dtype per call) are computed in float32 and rounded once, to their
own dtype. The number of threads is TVM_NUM_THREADS, OMP_NUM_THREADS, or the usable CPUs.
"""

from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.calls.backend import RunnableKernel
from vtaops.kernels.cpu.kernel import CACHE, CpuKernel, kernel
from vtaops.kernels.ops import TensorOp


class _Cpu(OperatorCalls):
    """The operators of this CPU."""

    joins_rows = True
    multiplies_stacks = True
    stores_16_bits = True

    def kernel(self, op: TensorOp) -> RunnableKernel:
        return kernel(op)


_cpu = _Cpu()
globals().update(_cpu.operators())
__all__ = ["CACHE", "CpuKernel", "kernel", *_cpu.operators()]
