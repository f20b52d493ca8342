"""CudaKernel: one operator scheduled for an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any

from vtaops.cuda.target import CudaTarget, Launch, compile_cuda, cuda_source, launch_of
from vtaops.errors import DeviceError
from vtaops.kernels.arrays import Array, as_output, empty
from vtaops.kernels.ops import TensorOp

Schedule = Callable[[Any, CudaTarget], Any]
"""``schedule(op, target)`` returns a ``tvm.s_tir.Schedule``."""


def device_present() -> bool:
    """Return whether an NVIDIA GPU and its driver are there."""
    import tvm

    return bool(tvm.cuda(0).exist)


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
    """

    def __init__(
        self,
        op: TensorOp,
        target: CudaTarget | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        from vtaops.cuda.schedule import schedule as of_family

        self.op = op
        self.target = target or CudaTarget()
        self._schedule = schedule or of_family

    @cached_property
    def scheduled(self) -> Any:
        """The ``tvm.s_tir.Schedule``."""
        return self._schedule(self.op, self.target)

    @property
    def launch(self) -> Launch:
        """Grid and block."""
        return launch_of(self.scheduled)

    def script(self) -> str:
        """Return the scheduled kernel as TVMScript, for reading."""
        return str(self.scheduled.mod.script())

    def source(self) -> str:
        """Return the generated CUDA C++."""
        return cuda_source(self.scheduled, self.target)

    @cached_property
    def _executable(self) -> Any:
        if not device_present():
            raise DeviceError(
                "there is no NVIDIA GPU (or no driver) on this machine; vtaops.cpu has the same "
                "operators, and CudaKernel(op).source() gives the CUDA source"
            )
        return compile_cuda(self.scheduled, self.target)

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Copy host arrays to the GPU, run, and copy the result back.

        Raises
        ------
        DeviceError
            If there is no GPU.
        """
        function = self._executable["main"]
        import tvm

        device = tvm.cuda(0)
        output = self.op.output
        on_device = [tvm.runtime.tensor(array, device=device) for array in arrays]
        target = tvm.runtime.empty(output.shape, output.dtype, device=device)
        function(*on_device, target)
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
        executable = self._executable
        import tvm

        device = tvm.cuda(0)
        tensors = [
            tvm.runtime.tensor(empty(spec.shape, spec.dtype), device=device)
            for spec in (*self.op.inputs, self.op.output)
        ]
        timer = executable.mod.time_evaluator(
            "main", device, number=10, repeat=3, min_repeat_ms=int(budget * 1000 / 3)
        )
        return float(timer(*tensors).median)


@lru_cache(maxsize=1024)
def kernel(op: TensorOp, schedule: Schedule | None = None) -> CudaKernel:
    """Return the kernel of an operator for the GPU of this machine."""
    return CudaKernel(op, _detected(), schedule)


@lru_cache(maxsize=1)
def _detected() -> CudaTarget:
    """Return the target of this machine's GPU; the default where there is none."""
    if not device_present():
        return CudaTarget()
    import tvm

    version = str(tvm.cuda(0).compute_version)
    return CudaTarget(arch="sm_" + version.replace(".", ""))
