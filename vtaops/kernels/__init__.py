"""Shared by the CPU and GPU kernels: operators, calls, arrays, compilation, cache.

The schedules are in `vtaops.cpu` and `vtaops.cuda`.
"""

from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_array, empty
from vtaops.kernels.cache import KernelCache, cache_directory

__all__ = ["Array", "KernelCache", "as_array", "cache_directory", "empty"]
