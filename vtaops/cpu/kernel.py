"""CpuKernel: one operator compiled for this CPU, ready to be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from vtaops.cpu.target import CpuTarget
from vtaops.kernels.arrays import Array, as_output, empty
from vtaops.kernels.cache import KernelCache
from vtaops.kernels.ops import TensorOp

Schedule = Callable[[Any, CpuTarget], Any]
"""``schedule(op, target)`` returns a ``tvm.s_tir.Schedule``."""

_SOURCES = ("kernels/ops", "kernels/build.py", "cpu/schedule")
"""What the machine code of every kernel comes from."""

CACHE = KernelCache()
"""The compiled kernels of this process."""


class CpuKernel:
    """One operator compiled for one CPU.

    Parameters
    ----------
    op : TensorOp
        What it computes.
    target : CpuTarget
        For which machine.
    schedule : callable, optional
        By default the one for the family of `op`.
    sources : tuple of str
        Folders and files below the package that declare `op` or schedule it, beside those of all
        kernels.

    Attributes
    ----------
    run : callable
        The machine code, without any check of ours: inputs, then the output (DLPack).
    """

    def __init__(
        self,
        op: TensorOp,
        target: CpuTarget,
        schedule: Schedule | None = None,
        sources: tuple[str, ...] = (),
    ) -> None:
        self.op = op
        self.target = target
        self._schedule = schedule
        output = op.output
        self._shape, self._dtype = output.shape, output.dtype
        self.run: Callable[..., Any] = CACHE.get(op, target, self._compile, _SOURCES + sources)

    def schedule(self) -> Any:
        """Return the ``tvm.s_tir.Schedule`` that it is compiled from."""
        if self._schedule is None:
            from vtaops.cpu.schedule import schedule

            return schedule(self.op, self.target)
        return self._schedule(self.op, self.target)

    def script(self) -> str:
        """Return the scheduled kernel as TVMScript, for reading."""
        return str(self.schedule().mod.script())

    def _compile(self) -> Any:
        from vtaops.kernels.build import compile_schedule

        return compile_schedule(self.schedule(), self.target.tvm)

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Run on arrays as `vtaops.kernels.as_array` returns them, of the operator's shapes.

        Raises
        ------
        ShapeError
            If `out` does not fit.
        """
        if out is None:
            result = empty(self._shape, self._dtype)
        else:
            result = as_output(out, self._shape, self._dtype)
        self.run(*arrays, result)
        return result


@lru_cache(maxsize=4096)
def kernel(
    op: TensorOp, schedule: Schedule | None = None, sources: tuple[str, ...] = ()
) -> CpuKernel:
    """Return the kernel of an operator for this CPU, compiled at most once; see `CpuKernel`."""
    return CpuKernel(op, CpuTarget.detect(), schedule, sources)
