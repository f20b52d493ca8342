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
activation = _cpu.activation
add = _cpu.add
avg_pool2d = _cpu.avg_pool2d
batch_norm = _cpu.batch_norm
conv1d = _cpu.conv1d
conv2d = _cpu.conv2d
dense = _cpu.dense
depthwise_conv2d = _cpu.depthwise_conv2d
depthwise_separable_conv2d = _cpu.depthwise_separable_conv2d
global_avg_pool2d = _cpu.global_avg_pool2d
global_max_pool2d = _cpu.global_max_pool2d
matmul = _cpu.matmul
max_pool2d = _cpu.max_pool2d
maximum = _cpu.maximum
minimum = _cpu.minimum
multiply = _cpu.multiply
relu = _cpu.relu
scale_shift = _cpu.scale_shift
softmax = _cpu.softmax
subtract = _cpu.subtract
vector_add = _cpu.vector_add

__all__ = [
    "CACHE",
    "CpuKernel",
    "activation",
    "add",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "dense",
    "depthwise_conv2d",
    "depthwise_separable_conv2d",
    "global_avg_pool2d",
    "global_max_pool2d",
    "kernel",
    "matmul",
    "max_pool2d",
    "maximum",
    "minimum",
    "multiply",
    "relu",
    "scale_shift",
    "softmax",
    "subtract",
    "vector_add",
]
