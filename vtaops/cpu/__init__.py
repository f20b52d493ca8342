"""The operators on the CPU: NumPy, DLPack and PyTorch arrays in, NumPy arrays out.

Each call takes ``out=``, an array to write to, and returns it; only elementwise operators may write
over one of their inputs. The first call of a shape compiles a kernel for this machine (some tenths
of a second) and stores it; see `vtaops.kernels.KernelCache`.
`vtaops.cpu.layers` packs weights once, for networks.
float16 and bfloat16 arrays, all of a call alike, are computed in float32 and rounded once, to their
own dtype. The number of threads is TVM_NUM_THREADS, OMP_NUM_THREADS, or the usable CPUs.
"""

from vtaops.cpu.kernel import CACHE, CpuKernel, kernel
from vtaops.kernels.calls import OperatorCalls
from vtaops.kernels.calls.backend import RunnableKernel
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
