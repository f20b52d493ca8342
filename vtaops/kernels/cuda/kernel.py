"""CudaKernel: one operator scheduled for an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

from vtaops.base.shapes import Array
from vtaops.kernels.arrays import as_output, empty
from vtaops.kernels.cache import KernelCache
from vtaops.kernels.cuda.gpu import detect, require_device
from vtaops.kernels.cuda.target import CudaTarget, Launch, compile_cuda, cuda_source, launches_of
from vtaops.kernels.ops import TensorOp

Schedule = Callable[[Any, CudaTarget], Any]
"""``schedule(op, target)`` returns a ``tvm.s_tir.Schedule``."""


_SOURCES = "kernels/cuda/schedule", "kernels/cuda/target.py"
"""Sources of every kernel's machine code."""

CACHE = KernelCache()
"""The compiled kernels of this process."""


class CudaKernel:
    """One operator scheduled for one GPU.

    Parameters
    ----------
    op : TensorOp
        The operator.
    target : CudaTarget, optional
        The target GPU.
    schedule : callable, optional
        ``schedule(op, target)``; by default that of the operator's family.
    sources : tuple of str, optional
        Folders and files, relative to the package, that declare or schedule `op`, besides those of
        all kernels. A kernel with a custom schedule is cached on disk only if they are given.
    """

    def __init__(
        self,
        op: TensorOp,
        target: CudaTarget | None = None,
        schedule: Schedule | None = None,
        sources: tuple[str, ...] | None = None,
    ) -> None:
        from vtaops.kernels.cuda.schedule import schedule as of_family

        self.op = op
        self.target = target or CudaTarget()
        self._schedule = schedule or of_family
        self._sources = () if schedule is None and sources is None else sources

    @cached_property
    def scheduled(self) -> Any:
        """The ``tvm.s_tir.Schedule``."""
        return self._schedule(self.op, self.target)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Grids and blocks: of one kernel, or of two if the second adds up partial sums."""
        return launches_of(self.scheduled)

    @property
    def launch(self) -> Launch:
        """Grid and block of the (first) kernel."""
        return self.launches[0]

    @property
    def workspace(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of the arrays passed from the first kernel to the second, by name.

        They are arguments before the output, allocated by the caller: TVM would reuse its own for
        the next call, possibly on another stream.
        """
        named = {spec.name for spec in self.op.arguments}
        buffers = self.scheduled.mod["main"].params
        return {
            str(buffer.name): (tuple(map(int, buffer.shape)), str(buffer.dtype))
            for buffer in buffers
            if str(buffer.name) not in named
        }

    def script(self) -> str:
        """Return the scheduled kernel as TVMScript, for reading."""
        return str(self.scheduled.mod.script())

    def source(self) -> str:
        """Return the generated CUDA C++."""
        return self._source

    @cached_property
    def _source(self) -> str:
        return cuda_source(self.scheduled, self.target)

    @cached_property
    def function(self) -> Any:
        """The compiled kernel, for GPU arrays: inputs, `workspace`, then the output.

        Raises
        ------
        DeviceError
            If no GPU is available.
        """
        require_device()
        if self._sources is None:
            return self._compile()["main"]
        return CACHE.get(self.op, self.target, self._compile, _SOURCES + self._sources)

    def _compile(self) -> Any:
        return compile_cuda(self.scheduled, self.target)

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Copy host arrays to the GPU, run, and copy the result back.

        Raises
        ------
        DeviceError
            If no GPU is available.
        """
        function = self.function
        import tvm

        device = tvm.cuda(0)
        output = self.op.output
        on_device = [tvm.runtime.tensor(array, device=device) for array in arrays]
        specs = (*self.workspace.values(), (output.shape, output.dtype))
        *between, target = (tvm.runtime.empty(*spec, device=device) for spec in specs)
        function(*on_device, *between, target)
        values: Array = target.numpy()
        if out is None:
            return values
        result = as_output(out, output.shape, output.dtype)
        result[...] = values
        return result

    def run(self, *arguments: Any) -> None:
        """Run on host inputs and a host output, the last argument."""
        self(*arguments[:-1], out=arguments[-1])

    def time(self, budget: float = 0.5) -> float:
        """Return the time of one run on the GPU in seconds, without copies.

        Raises
        ------
        DeviceError
            If no GPU is available.
        """
        require_device()
        import tvm

        device = tvm.cuda(0)
        inputs = [(spec.shape, spec.dtype) for spec in self.op.inputs]
        specs = (*inputs, *self.workspace.values(), (self.op.output.shape, self.op.output.dtype))
        tensors = [tvm.runtime.tensor(empty(*spec), device=device) for spec in specs]
        timer = self._compile().mod.time_evaluator(
            "main", device, number=10, repeat=3, min_repeat_ms=int(budget * 1000 / 3)
        )
        return float(timer(*tensors).median)


@lru_cache(maxsize=1024)
def kernel(
    op: TensorOp, schedule: Schedule | None = None, sources: tuple[str, ...] | None = None
) -> CudaKernel:
    """Return an operator's kernel for this machine's GPU; see `CudaKernel`."""
    return CudaKernel(op, detect(), schedule, sources)
