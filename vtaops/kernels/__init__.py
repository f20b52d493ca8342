"""What the kernels of CPU and GPU share: operators, calls, arrays, compilation, cache.

Knows no schedule: `vtaops.cpu` and `vtaops.cuda` bring those.
"""

from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_array, empty
from vtaops.kernels.cache import KernelCache, cache_directory

__all__ = ["Array", "KernelCache", "as_array", "cache_directory", "empty"]
