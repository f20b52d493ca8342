"""The operators on the CPU: NumPy, DLPack and PyTorch arrays in, NumPy arrays out.

Each call takes ``out=``, an array to write to, and returns it. The first call of a shape compiles
a kernel for this machine (some tenths of a second) and stores it; see `vtaops.kernels.KernelCache`.
The number of threads is TVM_NUM_THREADS, OMP_NUM_THREADS, or the usable CPUs.
"""

from vtaops.cpu.convolution import (
    conv1d,
    conv2d,
    conv2d_nchwc,
    depthwise_conv2d,
    depthwise_separable_conv2d,
    pack_int8_kernel,
)
from vtaops.cpu.elementwise import (
    add,
    batch_norm,
    maximum,
    minimum,
    multiply,
    relu,
    scale_shift,
    subtract,
    vector_add,
)
from vtaops.cpu.kernel import CACHE, Kernel, kernel
from vtaops.cpu.matmul import dense, matmul
from vtaops.cpu.pooling import avg_pool2d, global_avg_pool2d, global_max_pool2d, max_pool2d
from vtaops.cpu.softmax import softmax

__all__ = [
    "CACHE",
    "Kernel",
    "add",
    "avg_pool2d",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv2d_nchwc",
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
    "pack_int8_kernel",
    "relu",
    "scale_shift",
    "softmax",
    "subtract",
    "vector_add",
]
