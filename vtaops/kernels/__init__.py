"""The runtime of compiled CPU and GPU kernels: target, arrays, compilation, cache.

Knows neither operators nor schedules: `vtaops.cpu` and `vtaops.cuda` bring those together.
"""

from vtaops.kernels.arrays import Array, as_array, empty
from vtaops.kernels.cache import KernelCache, cache_directory
from vtaops.kernels.target import CpuTarget

__all__ = ["Array", "CpuTarget", "KernelCache", "as_array", "cache_directory", "empty"]
