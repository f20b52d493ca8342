"""The GPU of this machine, without one: arrays by stand-ins, kernels on disk, what is missing."""

from __future__ import annotations

import ctypes
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
import tvm_ffi

from vtaops import cuda
from vtaops.base.errors import DeviceError, ShapeError
from vtaops.kernels.build import compile_schedule, create_schedule
from vtaops.kernels.cache import KernelCache
from vtaops.kernels.calls.backend import KernelCall
from vtaops.kernels.cuda import gpu
from vtaops.kernels.cuda.emulate import Emulated, compiler
from vtaops.kernels.cuda.kernel import CudaKernel
from vtaops.kernels.cuda.target import CudaTarget
from vtaops.kernels.ops import MatmulOp, UnaryOp

kernel_file = import_module("vtaops.kernels.cuda.kernel")  # the package has a function of this name
emulated = pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")


class GpuArray:
    """An array that says it lies on a GPU; its memory is that of a NumPy array."""

    device = "gpu"

    def __init__(self, memory):
        self.memory = memory

    shape = property(lambda self: self.memory.shape)
    dtype = property(lambda self: self.memory.dtype)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **_):
        return self.memory.__dlpack__()

    def reshape(self, shape):
        view = self.memory.reshape(shape)
        assert np.shares_memory(view, self.memory)
        return GpuArray(view)

    def __array_namespace__(self):
        return SimpleNamespace(
            float32=np.float32,
            int32=np.int32,
            empty=lambda shape, dtype, device: GpuArray(aligned(np.zeros(shape, dtype))),
        )


def aligned(values):
    raw = np.zeros(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


def on_gpu(values):
    return GpuArray(aligned(np.asarray(values)))


class EmulatedOnGpu(type(cuda.matmul.__self__)):
    """The calls of `vtaops.cuda`; kernels on the GPU's arrays run in the emulator."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def kernel(self, op):
        kernel = CudaKernel(op)
        emulator = Emulated.of(kernel)

        def function(*arrays):
            self.seen.append([array.memory for array in arrays])
            inputs = (spec.name for spec in op.inputs)
            names = [*inputs, *kernel.workspace, op.output.name]
            emulator(dict(zip(names, self.seen[-1], strict=True)))

        return SimpleNamespace(op=op, function=function, workspace=kernel.workspace)


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@emulated
def test_arrays_on_the_gpu_are_neither_copied_nor_moved():
    calls = EmulatedOnGpu()
    a, b, bias = on_gpu(draw(5, 7)), on_gpu(draw(7, 9)), on_gpu(draw(9))
    result = calls.matmul(a, b, bias=bias, activation="relu")
    assert isinstance(result, GpuArray)
    expected = np.maximum(a.memory @ b.memory + bias.memory, 0)
    np.testing.assert_allclose(result.memory, expected, rtol=1e-4, atol=1e-5)
    (seen,) = calls.seen
    assert all(
        np.shares_memory(x, y.memory) for x, y in zip(seen, (a, b, bias, result), strict=True)
    )


@emulated
def test_what_two_kernels_share_is_allocated_by_the_library_of_the_arrays():
    calls = EmulatedOnGpu()
    a, b = on_gpu(draw(3, 2048)), on_gpu(draw(2048, 8))
    result = calls.matmul(a, b)
    np.testing.assert_allclose(result.memory, a.memory @ b.memory, rtol=1e-3, atol=1e-3)
    ((*_, parts, _),) = calls.seen
    assert parts.ndim == 3
    np.testing.assert_allclose(parts.sum(0)[:3, :8], result.memory, rtol=1e-3, atol=1e-3)


@emulated
def test_shapes_of_the_caller_come_back_and_out_is_filled():
    calls = EmulatedOnGpu()
    data, out = on_gpu(draw(2, 3, 10)), on_gpu(draw(2, 3, 10))
    assert calls.softmax(data).shape == (2, 3, 10)
    assert calls.softmax(data, out=out) is out
    np.testing.assert_allclose(out.memory.sum(-1), 1, rtol=1e-5)
    vectors = [on_gpu(np.abs(draw(3)) + 1) for _ in range(4)]
    normal = calls.batch_norm(data, *vectors)
    gamma, beta, mean, variance = (vector.memory[:, None] for vector in vectors)
    expected = (data.memory - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose(normal.memory, expected, rtol=1e-4)
    assert calls.relu(data, out=data) is data


def test_arrays_that_no_kernel_can_use_are_refused():
    calls = EmulatedOnGpu()
    a, b = on_gpu(draw(4, 6)), on_gpu(draw(6, 8))
    with pytest.raises(ShapeError, match="B lies in host memory"):
        calls.matmul(a, b.memory)
    with pytest.raises(ShapeError, match="bias lies in host memory"):
        calls.matmul(a, b, bias=draw(8))
    with pytest.raises(ShapeError, match="A must be C-contiguous"):
        calls.matmul(GpuArray(aligned(draw(6, 4)).T), b)
    with pytest.raises(ShapeError, match="64 bytes"):
        calls.matmul(GpuArray(aligned(draw(25))[1:].reshape(4, 6)), b)
    with pytest.raises(ShapeError, match="the sums run over"):
        calls.matmul(a, a)
    with pytest.raises(ShapeError, match="out must lie on the GPU"):
        calls.matmul(a, b, out=np.zeros((4, 8), "float32"))
    square = on_gpu(draw(6, 6))
    with pytest.raises(ShapeError, match="also an input"):
        calls.matmul(square, square, out=square)


def test_kernels_run_on_the_stream_of_the_library_of_their_arrays(monkeypatch):
    stream = SimpleNamespace(cuda_stream=0x7000)
    torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda device: stream))
    monkeypatch.setitem(gpu.sys.modules, "torch", torch)
    monkeypatch.setattr(GpuArray, "__module__", "torch")
    seen = []

    def function(*_):
        seen.append(tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", 0)))

    data = on_gpu(draw(8))
    call = gpu.GpuCall(cuda_relu, (data,), (), {})
    call.run(SimpleNamespace(function=function, workspace={}), data)
    assert seen == [0x7000]


def cuda_relu(data):
    return KernelCall(UnaryOp("relu", data.size), (data,), data.shape)


def test_kernels_are_kept_on_disk(tmp_path, monkeypatch):
    op, compiled = MatmulOp(3, 4, 5), []

    def compile_for_the_cpu(_, target):
        compiled.append(target)
        return compile_schedule(create_schedule(op.declare()), tvm.target.Target({"kind": "llvm"}))

    monkeypatch.setattr(kernel_file, "require_device", lambda: None)
    monkeypatch.setattr(kernel_file, "compile_cuda", compile_for_the_cpu)
    a, b, c = draw(3, 4 + 1)[:, :5].copy(), draw(5, 4), np.zeros((3, 4), "float32")
    for _ in range(2):  # a new process would begin with an empty cache in memory
        monkeypatch.setattr(kernel_file, "CACHE", KernelCache(tmp_path))
        CudaKernel(op).function(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert len(compiled) == 1
    CudaKernel(op, CudaTarget("sm_80")).function(a, b, c)
    assert len(compiled) == 2
    CudaKernel(op, schedule=lambda o, t: CudaKernel(op).scheduled).function(a, b, c)
    assert len(compiled) == 3
    assert len(list(tmp_path.glob("*.so"))) == 2


@pytest.mark.skipif(cuda.device_present(), reason="for machines without a GPU")
@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("libcuda.so.1", "the driver does not load"),
        ("libtvm_runtime_cuda.so", "'pip install nvidia-cuda-runtime'"),
        ("nothing", "shows no card"),
    ],
)
def test_what_is_missing_is_named(monkeypatch, missing, told):
    def load(path, *_):
        if missing in path:
            raise OSError(f"{missing}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(DeviceError, match=told):
        CudaKernel(MatmulOp(2, 2, 2)).function  # noqa: B018
