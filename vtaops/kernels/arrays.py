"""Arrays that are passed to kernels: which are accepted, copied or refused.

A kernel reads C-contiguous host memory of any alignment. NumPy arrays and CPU tensors of other
libraries pass without a copy (DLPack); strided ones are copied; foreign dtypes are refused.
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
"""Bytes of a cache line. What straddles two of them is slower: results and weights are aligned."""

_LARGE = 1 << 18
"""Bytes above which the aligned allocation of a result is worth its microsecond."""


_NAMES = {
    np.dtype(name): name for name in ("float32", "float64", "int8", "uint8", "int32", "float16")
}


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a name; bfloat16 is that of ml_dtypes, which NumPy does not know."""
    if name != "bfloat16":
        return np.dtype(name)
    from ml_dtypes import bfloat16

    return cast("np.dtype[Any]", np.dtype(bfloat16))


def dtype_name(array: Array) -> str:
    """Return the name of the dtype, as ``array.dtype.name`` but at once."""
    return _NAMES.get(array.dtype) or str(array.dtype.name)


def as_array(value: Any, name: str, dtypes: tuple[str, ...], rank: int | None = None) -> Array:
    """Return `value` as a C-contiguous NumPy array, without a copy where possible.

    Parameters
    ----------
    value : array_like
        A NumPy array, an object with ``__dlpack__`` on the CPU (a PyTorch tensor), or nested lists.
    name : str
        The argument's name, for messages.
    dtypes : tuple of str
        What is accepted.
    rank : int, optional
        Number of axes that is needed.

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
    """Return `value` as `as_array` does, without checking its dtype and rank.

    What cannot be converted is returned unchanged.
    """
    try:
        array = value if type(value) is np.ndarray else _convert(value, "")
    except ShapeError:
        return value
    return _readable(array) if array.dtype.kind in "fiu" or is_bfloat16(array) else value


def as_rows(value: Any) -> tuple[Any, bool]:
    """Return matrices in row-major order, and whether they had to be transposed for that.

    What is no array, or is contiguous in neither order, is returned unchanged.
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
    """Whether elements are of ml_dtypes' bfloat16."""
    return array.dtype.kind == "V" and dtype_name(array) == "bfloat16"


def _readable(array: Array) -> Array:
    """Return the array, or a copy or alias of it, as a kernel can read it."""
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
        If shape or dtype differ, or it is not contiguous and writeable.
    """
    array = value if type(value) is np.ndarray else _convert(value, "out", shared=True)
    if array.shape != shape or dtype_name(array) != dtype:
        raise ShapeError(
            f"out has shape {array.shape} and dtype {array.dtype}; the result is {shape}, {dtype}"
        )
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise ShapeError("out is not C-contiguous; give a contiguous array, or none")
    if not array.flags.writeable:
        # NumPy marks what came through an old DLPack as read-only, though its owner may write it.
        if type(value) is np.ndarray:
            raise ShapeError("out is read-only; give a writeable array, or none")
        return _writeable_alias(array)
    return array


def output(out: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a caller's `out` argument, checked by `as_output`, or a new array if it is None."""
    return empty(shape, dtype) if out is None else as_output(out, shape, dtype)


def as_given(result: Array, given: Any, out: Any = None) -> Array:
    """Return a result as the caller has arrays: `out`, or of the library that `given` is from."""
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
    """Return a result that no kernel has written as the caller has it: in `out`, or as `given` is.

    Raises
    ------
    ShapeError
        If `out` does not fit.
    """
    if out is not None:
        as_output(out, result.shape, dtype_name(result))[...] = result
    return as_given(np.ascontiguousarray(result), given, out)


def allocator(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Array]:
    """Return an allocator of uninitialised arrays, aligned to a cache line if they are large."""
    nbytes = math.prod(shape) * dtype.itemsize
    large = nbytes >= _LARGE
    return partial(_aligned, shape, dtype, nbytes) if large else partial(np.empty, shape, dtype)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any] | str) -> Array:
    """Return an uninitialised array, aligned to a cache line if it is large."""
    return allocator(shape, dtype_of(dtype) if isinstance(dtype, str) else dtype)()


def aligned(array: Array) -> Array:
    """Return a C-contiguous copy aligned to a cache line, for kernels that read whole vectors."""
    copy = _aligned(array.shape, array.dtype, array.nbytes)
    copy[...] = array
    return copy


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> Array:
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    first = ctypes.c_char.from_buffer(raw)  # type: ignore[arg-type]  # a buffer from Python 3.12
    start = -ctypes.addressof(first) % _ALIGNMENT  # NumPy's own ways to it take a microsecond more
    result: Array = np.ndarray(shape, dtype, raw, start)
    return result


def _convert(value: Any, name: str, *, shared: bool = False) -> Array:
    """Return anything array-like as a NumPy array; of the same memory, if that must be."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return _from_tensor(value, name, shared)
        return np.asarray(value)
    except ShapeError:
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ShapeError(f"{name} is no array of numbers in host memory: {error}") from error


def _from_tensor(value: Any, name: str, shared: bool) -> Array:
    """Return the tensor of another library as a NumPy array of the same memory."""
    if getattr(value, "requires_grad", False):
        value = value.detach()
    # PyTorch's array protocol is faster than DLPack, but it may copy: not for results.
    if hasattr(value, "detach") and hasattr(value, "__array__") and not shared:
        try:
            return np.asarray(value.__array__())
        except TypeError:  # not in host memory, say
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
    """Return a tensor of bfloat16 on the CPU as an array of the same memory.

    Raises
    ------
    RuntimeError
        If it is of another dtype.
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
    memory.owner = tensor  # kept as long as the array is
    found: Array = np.ndarray(shape, dtype_of("bfloat16"), memory, strides=strides)
    return found


def _writeable_alias(array: Array) -> Array:
    """Return the same memory marked writeable: DLPack cannot export read-only arrays.

    The kernels never write their inputs.
    """
    memory = (ctypes.c_uint8 * array.nbytes).from_address(array.ctypes.data)
    memory.owner = array  # type: ignore[attr-defined]  # kept as long as the alias is
    alias: Array = np.ndarray(array.shape, array.dtype, memoryview(memory))
    return alias
