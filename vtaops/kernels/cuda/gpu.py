"""The GPU of this machine: its presence, what is missing, and arrays in its memory.

GPU arrays are passed by DLPack and stay there. A call is checked with stand-ins, host arrays of the
same shapes and dtypes that are never read or written; then the kernel runs on the actual arrays, on
their library's current stream.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.errors import DeviceError, ShapeError
from vtaops.kernels.calls.backend import KernelCall
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops import BroadcastOp, NormalizeOp, UnaryOp

_ON_GPU = (2, 13)
"""DLPack's device types of CUDA memory: device and managed."""

_ALIGNMENT = 64
"""Alignment in bytes that kernels require of GPU arrays."""


def device_present() -> bool:
    """Return whether an NVIDIA GPU, its driver and TVM's runtime are available."""
    import tvm

    return bool(tvm.cuda(0).exist)


@lru_cache(maxsize=1)
def detect() -> CudaTarget:
    """Return the target of this machine's GPU, or the default without one."""
    if not device_present():
        return CudaTarget()
    import tvm

    device = tvm.cuda(0)
    arch = "sm_" + str(device.compute_version).replace(".", "")
    return CudaTarget(arch, multiprocessors=int(device.multi_processor_count))


def require_device() -> None:
    """Require a GPU.

    Raises
    ------
    DeviceError
        If no usable GPU is available; the message says what is missing.
    """
    if not device_present():
        raise DeviceError(
            f"there is no NVIDIA GPU to run on: {_missing()}. vtaops.cpu has the same operators; "
            "CudaKernel(op).source() gives the CUDA source, and vtaops.kernels.cuda.emulate runs "
            "it without one"
        )


def _missing() -> str:
    """Return which of driver, TVM's runtime library and card is missing."""
    import tvm

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"the driver does not load ({error})"
    runtime = Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"
    try:
        ctypes.CDLL(str(runtime))
    except OSError as error:
        return (
            f"the driver is there, but TVM's CUDA runtime does not load ({error}); install CUDA "
            "13's runtime, 'pip install nvidia-cuda-runtime', and put the folder of its library on "
            "LD_LIBRARY_PATH"
        )
    return "the driver is there, but shows no card"


def lies_on_gpu(value: Any) -> bool:
    """Return whether an argument is an array in GPU memory."""
    if type(value) is np.ndarray or not hasattr(value, "__dlpack_device__"):
        return False
    return int(value.__dlpack_device__()[0]) in _ON_GPU


class GpuCall:
    """A call with arrays in GPU memory.

    Parameters
    ----------
    describe : callable
        Validates and describes the call, see `vtaops.kernels.calls.backend.Backend.call`.
    arrays, parameters, fused
        Its arguments.

    Attributes
    ----------
    work : KernelCall
        The call with stand-ins for its arrays.
    arrays : list of array
        The GPU arrays, in the order and the shapes of the kernel's inputs.

    Raises
    ------
    ShapeError
        If some arrays are in host memory, are not C-contiguous or not aligned, or from
        `describe`.
    """

    def __init__(
        self,
        describe: Callable[..., KernelCall],
        arrays: tuple[Any, ...],
        parameters: tuple[Any, ...],
        fused: dict[str, Any],
    ) -> None:
        self._given: dict[int, Any] = {}
        arguments = [self._stand_in(array) for array in arrays]
        ends = {name: self._stand_in(value) for name, value in fused.items()}
        self.work = describe(*arguments, *parameters, **ends)
        pairs = zip(self.work.arrays, self.work.op.inputs, strict=True)
        self.arrays = [self._array(stand_in, spec) for stand_in, spec in pairs]

    def _stand_in(self, value: Any) -> Any:
        """Return a host stand-in for a GPU array; anything else unchanged."""
        if isinstance(value, tuple | list):
            return tuple(map(self._stand_in, value))
        if not lies_on_gpu(value):
            return value
        stand_in = np.empty(tuple(value.shape), _dtype_name(value))
        self._given[stand_in.ctypes.data] = value
        return stand_in

    def _array(self, stand_in: Any, spec: Any) -> Any:
        """Return the GPU array of a stand-in, in the shape of the kernel's argument."""
        value = self._given.get(stand_in.ctypes.data)
        if value is None:
            raise ShapeError(
                f"{spec.name} lies in host memory, other arguments on the GPU; move all to one side"
            )
        return _checked(value, spec.name).reshape(spec.shape)

    def result(self, out: Any) -> Any:
        """Return `out`, checked, or a new array of the first input's library.

        Raises
        ------
        ShapeError
            If `out` does not fit.
        """
        output = self.work.op.output
        shape = output.shape if self.work.shape is None else self.work.shape
        if out is None:
            return self._empty(shape, output.dtype)
        if not lies_on_gpu(out) or tuple(out.shape) != shape or _dtype_name(out) != output.dtype:
            raise ShapeError(f"out must lie on the GPU, with shape {shape} and {output.dtype}")
        in_place = isinstance(self.work.op, BroadcastOp | UnaryOp | NormalizeOp)
        if not in_place and any(out is array for array in self._given.values()):
            raise ShapeError("out is also an input; give another array, or none")
        return _checked(out, "out")

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new array of the first input's library."""
        first = self.arrays[0]
        library = _library(first)
        return library.empty(shape, dtype=getattr(library, dtype), device=first.device)

    def run(self, kernel: Any, result: Any) -> None:
        """Run a `CudaKernel` on the arrays, on their library's current stream."""
        import tvm_ffi

        first = self.arrays[0]
        device = tvm_ffi.device("cuda", int(first.__dlpack_device__()[1]))
        with tvm_ffi.use_raw_stream(device, _current_stream(first)):
            between = [self._empty(*spec) for spec in kernel.workspace.values()]
            output = result.reshape(self.work.op.output.shape)
            kernel.function(*self.arrays, *between, output)


def _dtype_name(value: Any) -> str:
    return str(value.dtype).rpartition(".")[2]


def _checked(value: Any, name: str) -> Any:
    """Return a GPU array if a kernel can use its memory directly."""
    import tvm_ffi

    plain = value.detach() if hasattr(value, "detach") else value
    try:
        tvm_ffi.from_dlpack(plain, require_contiguous=True, require_alignment=_ALIGNMENT)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ShapeError(
            f"{name} must be C-contiguous and start at a multiple of {_ALIGNMENT} bytes; give a "
            f"copy ({error})"
        ) from error
    return plain


def _library(value: Any) -> Any:
    """Return the array module of an array: has `empty`, and dtypes by name."""
    if hasattr(value, "__array_namespace__"):
        return value.__array_namespace__()
    return import_module(type(value).__module__.partition(".")[0])


def _current_stream(value: Any) -> int:
    """Return the current stream of an array's library; 0 is CUDA's default."""
    root = type(value).__module__.partition(".")[0]
    if root == "torch":
        return int(sys.modules["torch"].cuda.current_stream(value.device).cuda_stream)
    if root == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0
