"""CpuKernel: one operator compiled for this CPU, ready to be called."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import numpy as np

from vtaops.base.shapes import Array
from vtaops.kernels.arrays import output
from vtaops.kernels.cache import KernelCache
from vtaops.kernels.cpu.schedule import family
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops import TensorOp
from vtaops.kernels.ops.storage import StoredOp

Schedule = Callable[[Any, CpuTarget], Any]
"""``schedule(op, target)`` returns a ``tvm.s_tir.Schedule``."""

_SOURCES = "kernels/cpu/schedule", "kernels/cpu/target.py"
"""Sources of every kernel's machine code."""

CACHE = KernelCache()
"""The compiled kernels of this process."""


class CpuKernel:
    """One operator compiled for one CPU.

    Parameters
    ----------
    op : TensorOp
        The operator.
    target : CpuTarget
        The target machine.
    schedule : callable, optional
        By default the schedule of the operator's family.
    sources : tuple of str
        Folders and files, relative to the package, that declare or schedule `op`, besides those of
        all kernels. A kernel with a custom schedule is cached only if they are given.

    Attributes
    ----------
    run : callable
        The machine code, without our checks: inputs, then the output (DLPack).
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
        self._schedule = schedule or family(op, target)
        self._shape, self._dtype = op.output.shape, op.output.dtype
        if schedule is None or sources:
            function = CACHE.get(op, target, self._compile, _SOURCES + sources)
        else:
            function = self._compile()["main"]
        self.run: Callable[..., Any] = function
        if isinstance(op, StoredOp) and op.dtype == "bfloat16":
            self.run = _of_bits(self.run)
        if _forked:
            self.run = _outside(self.run)
        _KERNELS.add(self)

    def schedule(self) -> Any:
        """Return the ``tvm.s_tir.Schedule`` of the kernel."""
        return self._schedule(self.op, self.target)

    def script(self) -> str:
        """Return the scheduled kernel as TVMScript, for reading."""
        return str(self.schedule().mod.script())

    def _compile(self) -> Any:
        from vtaops.kernels.build import compile_schedule

        return compile_schedule(self.schedule(), self.target.tvm)

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Run on arrays from `vtaops.kernels.as_array` with the operator's shapes.

        Raises
        ------
        ShapeError
            If `out` has the wrong shape, dtype or layout.
        """
        result = output(out, self._shape, self._dtype)
        self.run(*arrays, result)
        return result


def _of_bits(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel to pass bfloat16 as uint16: NumPy cannot export it by DLPack."""

    def call(*arrays: Array) -> None:
        run(*[a.view(np.uint16) if a.dtype.kind == "V" else a for a in arrays])

    return call


@lru_cache(maxsize=4096)
def kernel(
    op: TensorOp, schedule: Schedule | None = None, sources: tuple[str, ...] = ()
) -> CpuKernel:
    """Return an operator's kernel for this CPU, compiled at most once; see `CpuKernel`."""
    return CpuKernel(op, CpuTarget.detect(), schedule, sources)


_KERNELS: WeakSet[CpuKernel] = WeakSet()
"""All kernels of this process."""

_forked = False


def _after_fork() -> None:
    """Keep kernels usable in a forked child, in which TVM's pool threads do not exist.

    TVM keeps one pool per calling thread, so kernels run on a new thread.
    """
    global _forked
    _forked = True
    _worker.cache_clear()
    for known in list(_KERNELS):
        known.run = _outside(known.run)


def _outside(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel to run on the worker thread of this forked process."""
    return lambda *arrays: _worker().submit(run, *arrays).result()


@lru_cache(maxsize=1)
def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
