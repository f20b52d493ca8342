"""Backend: what the calls need of a device, a kernel for each operator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from vtaops.kernels.arrays import Array
from vtaops.ops.tensor import TensorOp


class RunnableKernel(Protocol):
    """A compiled operator."""

    op: TensorOp

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Run on checked arrays; write to `out`, or to a new array, and return it."""

    def run(self, *arguments: Any) -> None:
        """Run on checked inputs and an output, without further checks."""


class Backend(ABC):
    """A device that has kernels."""

    @abstractmethod
    def kernel(self, op: TensorOp) -> RunnableKernel:
        """Return the kernel of an operator, compiled at most once."""
