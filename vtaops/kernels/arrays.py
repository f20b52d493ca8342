"""Kernel arguments: accept, copy or reject arrays.

A kernel reads C-contiguous host memory of any alignment. NumPy arrays and CPU tensors of other
libraries pass without a copy (DLPack); strided arrays are copied; unsupported dtypes are rejected.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array

_ALIGNMENT = 64
"""Cache-line size in bytes. Accesses across lines are slower: results and weights are aligned."""

_LARGE = 1 << 18
"""Size in bytes above which aligned allocation of a result pays off its microsecond."""


_NAMES = {
    np.dtype(name): name for name in ("float32", "float64", "int8", "uint8", "int32", "float16")
}


def dtype_of(name: str) -> np.dtype[Any]:
    """Return a dtype by name; bfloat16, unknown to NumPy, comes from ml_dtypes."""
    if name != "bfloat16":
        return np.dtype(name)
    from ml_dtypes import bfloat16

    return cast("np.dtype[Any]", np.dtype(bfloat16))


def dtype_name(array: Array) -> str:
    """Return the dtype's name, a faster ``array.dtype.name``."""
    return _NAMES.get(array.dtype) or str(array.dtype.name)


def as_array(value: Any, name: str, dtypes: tuple[str, ...], rank: int | None = None) -> Array:
    """Return `value` as a C-contiguous NumPy array, without a copy if possible.

    Parameters
    ----------
    value : array_like
        A NumPy array, an object with ``__dlpack__`` on the CPU (a PyTorch tensor), or nested lists.
    name : str
        The argument's name, for messages.
    dtypes : tuple of str
        Accepted dtypes.
    rank : int, optional
        Required number of axes.

    Raises
    ------
    ShapeError
        If the array is of another dtype or rank, or not in host memory.
    """
    array = value if type(value) is np.ndarray else _convert(value, name)
    if dtype_name(array) not in dtypes:
        raise ShapeError(f"{name} has dtype {array.dtype}; accepted: {', '.join(dtypes)}")
    if rank is not None and array.ndim != rank:
        raise ShapeError(f"{name} has shape {array.shape}; it needs {rank} axes")
    return _readable(array)


def ready(value: Any) -> Any:
    """Convert `value` as `as_array` does, without checking its dtype and rank.

    Values that cannot be converted are returned unchanged.
    """
    try:
        array = value if type(value) is np.ndarray else _convert(value, "")
    except ShapeError:
        return value
    return _readable(array) if array.dtype.kind in "fiu" or is_bfloat16(array) else value


def as_rows(value: Any) -> tuple[Any, bool]:
    """Return matrices in row-major order, and whether they were transposed for it.

    Non-arrays, and arrays contiguous in neither order, are returned unchanged.
    """
    if (type(value) is np.ndarray and value.flags.c_contiguous) or np.ndim(value) < 2:
        return value, False
    try:
        array = value if type(value) is np.ndarray else _convert(value, "")
    except ShapeError:
        return value, False
    across = array.swapaxes(-1, -2)
    turned = across.flags.c_contiguous and not array.flags.c_contiguous
    return (across if turned else array), turned


def is_bfloat16(array: Array) -> bool:
    """Whether the elements are ml_dtypes' bfloat16."""
    return array.dtype.kind == "V" and dtype_name(array) == "bfloat16"


def _readable(array: Array) -> Array:
    """Return the array, or a copy or alias of it that kernels can read."""
    flags, native = array.flags, array.dtype.isnative
    if flags.carray and native:
        return array
    if not native or not (flags.c_contiguous and flags.aligned):
        return np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return _writeable_alias(array)


def as_output(value: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a caller's `out` argument as an array that a kernel can fill.

    Raises
    ------
    ShapeError
        If shape or dtype differ, or it is not contiguous and writable.
    """
    array = value if type(value) is np.ndarray else _convert(value, "out", shared=True)
    if array.shape != shape or dtype_name(array) != dtype:
        raise ShapeError(
            f"out has shape {array.shape} and dtype {array.dtype}; the result is {shape}, {dtype}"
        )
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ShapeError("out is not C-contiguous; give a contiguous array, or none")
    if not array.flags.writeable:
        # NumPy marks arrays from an old DLPack read-only, though their owner may write them.
        if type(value) is np.ndarray:
            raise ShapeError("out is read-only; give a writeable array, or none")
        return _writeable_alias(array)
    return array


def output(out: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a caller's `out` argument, checked by `as_output`, or a new array if it is None."""
    return empty(shape, dtype) if out is None else as_output(out, shape, dtype)


def as_given(result: Array, given: Any, out: Any = None) -> Array:
    """Return `out`, or a result converted to the library of `given`."""
    if out is not None:
        return cast("Array", out)
    if type(given) is np.ndarray or not hasattr(given, "__dlpack__"):
        return result
    library = sys.modules.get(type(given).__module__.partition(".")[0])
    # PyTorch's own conversion takes half the time of DLPack.
    convert = getattr(library, "from_numpy", None) or getattr(library, "from_dlpack", None)
    if convert is None or isinstance(given, np.generic):
        return result
    if is_bfloat16(result):
        kind = getattr(library, "bfloat16", None)
        return result if kind is None else cast("Array", convert(result.view(np.uint16)).view(kind))
    return cast("Array", convert(result))


def deliver(result: Array, given: Any, out: Any) -> Array:
    """Return a NumPy result in the caller's form: copied to `out`, or in the library of `given`.

    Raises
    ------
    ShapeError
        If `out` has another shape or dtype.
    """
    if out is not None:
        as_output(out, result.shape, dtype_name(result))[...] = result
    return as_given(np.ascontiguousarray(result), given, out)


def allocator(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """Return an allocator of uninitialized arrays, aligned to a cache line if large."""
    nbytes = math.prod(shape) * dtype.itemsize
    large = nbytes >= _LARGE
    return partial(_aligned, shape, dtype, nbytes) if large else partial(np.empty, shape, dtype)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any] | str) -> Array:
    """Return an uninitialized array, aligned to a cache line if large."""
    return allocator(shape, dtype_of(dtype) if isinstance(dtype, str) else dtype)()


def aligned(array: Array) -> Array:
    """Return a C-contiguous copy aligned to a cache line, for kernels that read whole vectors."""
    copy = _aligned(array.shape, array.dtype, array.nbytes)
    copy[...] = array
    return copy


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> Array:
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    first = ctypes.c_char.from_buffer(raw)  # type: ignore[arg-type]  # a buffer from Python 3.12
    start = -ctypes.addressof(first) % _ALIGNMENT  # NumPy's own address is a microsecond slower
    result: Array = np.ndarray(shape, dtype, raw, start)
    return result


def _convert(value: Any, name: str, *, shared: bool = False) -> Array:
    """Convert an array-like to a NumPy array; if `shared`, of the same memory."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return _from_tensor(value, name, shared)
        return np.asarray(value)
    except ShapeError:
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ShapeError(f"{name} is not an array of numbers in host memory: {error}") from error


def _from_tensor(value: Any, name: str, shared: bool) -> Array:
    """Return another library's tensor as a NumPy array of the same memory."""
    if getattr(value, "requires_grad", False):
        value = value.detach()
    # PyTorch's array protocol is faster than DLPack, but it may copy: not for outputs.
    if hasattr(value, "detach") and hasattr(value, "__array__") and not shared:
        try:
            return np.asarray(value.__array__())
        except TypeError:  # for example not in host memory
            pass
    device = value.__dlpack_device__()[0]
    if device != 1:  # kDLCPU
        raise ShapeError(
            f"{name} lies on DLPack device type {int(device)}; copy it to the CPU first"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):
        return _from_bfloat16(value)


def _from_bfloat16(value: Any) -> Array:
    """Return a bfloat16 CPU tensor as an array of the same memory.

    Raises
    ------
    RuntimeError
        If it has another dtype.
    """
    import tvm_ffi

    tensor = tvm_ffi.from_dlpack(value)
    if str(tensor.dtype) != "bfloat16":
        raise RuntimeError(f"dtype {tensor.dtype} is unknown")
    shape, strides = tuple(tensor.shape), [2 * step for step in tensor.strides]
    if 0 in shape:
        return np.empty(shape, dtype_of("bfloat16"))
    last = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    memory = (ctypes.c_uint8 * (last + 2)).from_address(tensor.data_ptr())
    memory.owner = tensor  # keep the tensor alive
    array: Array = np.ndarray(shape, dtype_of("bfloat16"), memory, strides=strides)
    return array


def _writeable_alias(array: Array) -> Array:
    """Return the same memory marked writeable: DLPack cannot export read-only arrays.

    The kernels never write their inputs.
    """
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    memory.owner = array  # type: ignore[attr-defined]  # keep the array alive
    alias: Array = np.ndarray(array.shape, array.dtype, memoryview(memory))
    return alias
