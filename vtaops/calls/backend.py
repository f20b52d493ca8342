"""Backend: what the calls need of a device, a kernel for each operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from vtaops.kernels.arrays import Array
from vtaops.ops.tensor import TensorOp

Op = TypeVar("Op", bound=TensorOp)


@lru_cache(maxsize=4096)
def interned(kind: type[Op], *parameters: Any) -> Op:
    """Return ``kind(*parameters)``, the same object for the same parameters."""
    return kind(*parameters)


class RunnableKernel(Protocol):
    """A compiled operator."""

    op: TensorOp

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Run on checked arrays; write to `out`, or to a new array, and return it."""

    def run(self, *arguments: Any) -> None:
        """Run on checked inputs and an output, without further checks."""


class Backend(ABC):
    """A device that has kernels."""

    def __init__(self) -> None:
        self._prepared: dict[int, tuple[TensorOp, RunnableKernel]] = {}

    def prepared(self, op: TensorOp) -> RunnableKernel:
        """Return the kernel of an operator, quickly where it is an `interned` one.

        The hash of a description costs more than a small kernel; its identity costs nothing.
        """
        found = self._prepared.get(id(op))
        if found is None or found[0] is not op:
            found = op, self.kernel(op)
            self._prepared[id(op)] = found
        return found[1]

    @abstractmethod
    def kernel(self, op: TensorOp) -> RunnableKernel:
        """Return the kernel of an operator, compiled at most once."""
