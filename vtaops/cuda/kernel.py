"""CudaKernel: one operator scheduled for an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

from vtaops.base.shapes import Array
from vtaops.cuda.gpu import detect, require_device
from vtaops.cuda.target import CudaTarget, Launch, compile_cuda, cuda_source, launches_of
from vtaops.kernels.arrays import as_output, empty
from vtaops.kernels.cache import KernelCache
from vtaops.kernels.ops import TensorOp

Schedule = Callable[[Any, CudaTarget], Any]
"""``schedule(op, target)`` returns a ``tvm.s_tir.Schedule``."""


_SOURCES = ("kernels/ops", "kernels/build.py", "cuda/schedule", "cuda/target.py")
"""What the machine code of every kernel comes from."""

CACHE = KernelCache()
"""The compiled kernels of this process."""


class CudaKernel:
    """One operator scheduled for one GPU.

    Parameters
    ----------
    op : TensorOp
        What it computes.
    target : CudaTarget, optional
        For which GPU.
    schedule : callable, optional
        ``schedule(op, target)``; by default the one for the family of `op`.
    sources : tuple of str, optional
        Folders and files below the package that declare `op` or schedule it, beside those of all
        kernels. A kernel with a schedule of its own is kept on disk only if they are given.
    """

    def __init__(
        self,
        op: TensorOp,
        target: CudaTarget | None = None,
        schedule: Schedule | None = None,
        sources: tuple[str, ...] | None = None,
    ) -> None:
        from vtaops.cuda.schedule import schedule as of_family

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
        """Grids and blocks: of one kernel, or of two where the second adds up parts of sums."""
        return launches_of(self.scheduled)

    @property
    def launch(self) -> Launch:
        """Grid and block of the (first) kernel."""
        return self.launches[0]

    @property
    def workspace(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of what the first kernel hands on to the second, by name.

        They are arguments before the output, so that whoever calls allocates them as its own: TVM
        would reuse them for the next call, on another stream perhaps.
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
        """The compiled kernel, for arrays on the GPU: inputs, `workspace`, then the output.

        Raises
        ------
        DeviceError
            If there is no GPU.
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
            If there is no GPU.
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
        """Return the seconds of one run on the GPU, without copies.

        Raises
        ------
        DeviceError
            If there is no GPU.
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
    """Return the kernel of an operator for the GPU of this machine; see `CudaKernel`."""
    return CudaKernel(op, detect(), schedule, sources)
