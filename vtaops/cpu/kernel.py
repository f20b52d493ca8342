"""Kernel: one operator compiled for this CPU, ready to be called."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from vtaops.kernels.arrays import Array, as_output, empty
from vtaops.kernels.cache import KernelCache
from vtaops.kernels.target import CpuTarget
from vtaops.ops.tensor import TensorOp

CACHE = KernelCache()
"""The compiled kernels of this process."""


class Kernel:
    """One operator compiled for one CPU.

    Parameters
    ----------
    op : TensorOp
        What it computes.
    target : CpuTarget
        For which machine.

    Attributes
    ----------
    run : callable
        The machine code, without any check of ours: inputs, then the output (DLPack).
    """

    def __init__(self, op: TensorOp, target: CpuTarget) -> None:
        self.op = op
        self.target = target
        output = op.output
        self._shape, self._dtype = output.shape, output.dtype
        self.run: Callable[..., Any] = CACHE.get(op, target, self._compile)

    def schedule(self) -> Any:
        """Return the ``tvm.s_tir.Schedule`` that it is compiled from."""
        from vtaops.schedule.cpu import schedule

        return schedule(self.op, self.target)

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
def kernel(op: TensorOp) -> Kernel:
    """Return the kernel of an operator for this CPU, compiled at most once."""
    return Kernel(op, CpuTarget.detect())
