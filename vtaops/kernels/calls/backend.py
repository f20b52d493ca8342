"""Backend: from the arguments of a call to a kernel that runs, quickly when they repeat.

The first call with arguments of some shapes, dtypes and parameters is checked and described in
full. What comes of it, a `Plan`, is kept under exactly those shapes, dtypes and parameters, so
that for the next call only the memory layout of the arrays is left to check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from vtaops.errors import ShapeError
from vtaops.kernels.arrays import Array, as_output, empty, is_large, ready
from vtaops.kernels.ops import BroadcastOp, NormalizeOp, TensorOp, UnaryOp

_MOST_PLANS = 4096
"""Plans after which all are forgotten: shapes that change with every call must not fill memory."""

_FUSED_ARRAYS = ("bias", "scale_shift", "batch_norm", "residual")
"""The fused keywords that hold arrays, in the order of the kernels' arguments."""


class RunnableKernel(Protocol):
    """A compiled operator."""

    op: TensorOp

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Run on checked arrays; write to `out`, or to a new array, and return it."""

    @property
    def run(self) -> Callable[..., Any]:
        """``run(*inputs, output)``: run on checked arrays."""


class KernelCall(NamedTuple):
    """What a call comes to.

    Attributes
    ----------
    op : TensorOp
        What is computed.
    arrays : tuple of arrays
        Its inputs: checked, C-contiguous, of as many elements as the operator's; the shapes may
        be the caller's.
    shape : tuple of int, optional
        Shape of the caller's result, if it is not the operator's.
    """

    op: TensorOp
    arrays: tuple[Array, ...]
    shape: tuple[int, ...] | None = None


class Plan:
    """A kernel, and the shapes of the arrays between which it stands.

    Parameters
    ----------
    work : KernelCall
        A call.
    kernel : RunnableKernel
        The kernel of its operator.
    """

    __slots__ = ("_allocate", "_apart", "_dtype", "_result", "_run", "_shape", "_views")

    def __init__(self, work: KernelCall, kernel: RunnableKernel) -> None:
        output = work.op.output
        shapes = tuple(spec.shape for spec in work.op.inputs)
        self._run = kernel.run
        self._shape = output.shape if work.shape is None else work.shape
        self._dtype = np.dtype(output.dtype)
        self._result = output.shape
        self._allocate: Callable[..., Array] = empty if is_large(output.nbytes) else np.empty
        same = self._shape == output.shape and shapes == tuple(a.shape for a in work.arrays)
        self._views = None if same else shapes
        self._apart = not isinstance(work.op, BroadcastOp | UnaryOp | NormalizeOp)

    def run(self, arrays: tuple[Array, ...], out: Any) -> Array:
        """Run on checked arrays; return `out`, checked and filled, or a new array.

        Raises
        ------
        ShapeError
            If `out` does not fit, or is an input that the kernel still needs.
        """
        if out is None:
            result = self._allocate(self._shape, self._dtype)
        elif (
            type(out) is np.ndarray
            and out.dtype is self._dtype
            and out.shape == self._shape
            and out.flags.carray
        ):
            result = out
        else:
            result = as_output(out, self._shape, self._dtype.name)
        if self._apart:
            for array in arrays:
                if array is result:
                    raise ShapeError("out is also an input; give another array, or none")
        if self._views is None:
            self._run(*arrays, result)
        else:
            inputs = [a.reshape(shape) for a, shape in zip(arrays, self._views, strict=True)]
            self._run(*inputs, result.reshape(self._result))
        return result


class Backend(ABC):
    """A device that has kernels."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], Plan] = {}

    def call(
        self,
        describe: Callable[..., KernelCall],
        arrays: tuple[Any, ...],
        out: Any,
        parameters: tuple[Any, ...] = (),
        fused: dict[str, Any] | None = None,
    ) -> Array:
        """Do the work that ``describe(*arrays, *parameters, **fused)`` checks and describes.

        Parameters
        ----------
        describe : callable
            What it returns depends on the shapes and dtypes of the arrays, not on their values.
        arrays : tuple of array_like
            In the order of the kernel's arguments.
        out : array or None
            Where to write.
        parameters : tuple
            What else `describe` takes.
        fused : dict, optional
            Fused operations; see `vtaops.kernels.calls.arguments.tail`.

        Raises
        ------
        ShapeError
            If `out` does not fit, or whatever `describe` refuses.
        """
        fused = fused or {}
        given = (*arrays, *_fused_arrays(fused)) if fused else arrays
        key = _key(describe, given, parameters, fused)
        if key is None:
            arrays, fused = tuple(map(ready, arrays)), _ready_fused(fused)
            given = (*arrays, *_fused_arrays(fused))
            key = _key(describe, given, parameters, fused)
        try:
            plan = self._plans.get(key) if key else None
        except TypeError:  # a list among the parameters cannot be part of a key
            key = plan = None
        if plan is not None:
            return plan.run(given, out)
        work = describe(*arrays, *parameters, **fused)
        plan = Plan(work, self.kernel(work.op))
        result = plan.run(work.arrays, out)
        if key and _same_objects(given, work.arrays):
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return result

    @abstractmethod
    def kernel(self, op: TensorOp) -> RunnableKernel:
        """Return the kernel of an operator, compiled at most once."""


def _key(
    describe: Callable[..., KernelCall],
    arrays: tuple[Any, ...],
    parameters: tuple[Any, ...],
    fused: dict[str, Any],
) -> tuple[Any, ...] | None:
    """Return what decides the plan of a call; None if a kernel cannot read an array as it is."""
    key = [describe, parameters]
    for array in arrays:
        if type(array) is not np.ndarray or not array.flags.carray:
            return None
        key += (array.shape, array.dtype)
    if fused:
        key += fused
        key += [value is None if n in _FUSED_ARRAYS else value for n, value in fused.items()]
    return tuple(key)


def _fused_arrays(fused: dict[str, Any]) -> list[Any]:
    """Return the arrays of the fused operations, in the order of the kernels' arguments."""
    found: list[Any] = []
    for name in _FUSED_ARRAYS:
        value = fused.get(name)
        if isinstance(value, tuple | list):
            found += value
        elif value is not None:
            found.append(value)
    return found


def _ready_fused(fused: dict[str, Any]) -> dict[str, Any]:
    """Return the fused operations with their arrays as a kernel can read them."""
    found = dict(fused)
    for name in _FUSED_ARRAYS:
        value = fused.get(name)
        if isinstance(value, tuple | list):
            found[name] = tuple(map(ready, value))
        elif value is not None:
            found[name] = ready(value)
    return found


def _same_objects(given: tuple[Any, ...], used: tuple[Array, ...]) -> bool:
    """Whether the kernel took the arrays themselves, so that others of their kind will do."""
    return len(given) == len(used) and all(a is b for a, b in zip(given, used, strict=True))
