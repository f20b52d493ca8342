"""Backend: dispatch a call to its kernel, fast for repeated calls.

A backend operator is a method that checks its arguments and describes the kernel; the decorator
`operator` turns it into the call. The first call with given shapes, dtypes and parameters is fully
checked and described. The resulting `CallPlan` is cached under these shapes, dtypes and parameters,
so that later calls only check the memory layout of the arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from math import prod
from operator import methodcaller
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.names import checked_call
from vtaops.base.shapes import Array
from vtaops.kernels.arrays import (
    allocator,
    as_given,
    as_output,
    dtype_name,
    dtype_of,
    output,
    ready,
)
from vtaops.kernels.calls.arguments import FUSED_ARRAYS, PRODUCT, check_shapes, frozen
from vtaops.kernels.ops import BroadcastOp, NormalizeOp, TensorOp, UnaryOp
from vtaops.kernels.ops.storage import STORAGE, StoredOp, stored

_MOST_PLANS = 4096
"""Number of plans after which all are dropped: ever-changing shapes must not fill memory."""

_MOST_ELEMENTS = 1 << 31
"""TVM computes indices in 32 bits."""

_P = ParamSpec("_P")


class RunnableKernel(Protocol):
    """A compiled operator."""

    op: TensorOp

    def __call__(self, *arrays: Array, out: Any = None) -> Array:
        """Run on checked arrays; return `out`, or a new array, with the result."""

    @property
    def run(self) -> Callable[..., Any]:
        """Run on checked arrays: ``run(*inputs, output)``."""


class KernelCall(NamedTuple):
    """An operator with the arrays of one call.

    Attributes
    ----------
    op : TensorOp
        The operator.
    arrays : tuple of arrays
        Its inputs: checked, C-contiguous, with the operator's element counts; shapes may be the
        caller's.
    shape : tuple of int, optional
        Shape of the caller's result, if it differs from the operator's.
    """

    op: TensorOp
    arrays: tuple[Array, ...]
    shape: tuple[int, ...] | None = None

    @staticmethod
    def checked(op: TensorOp, arrays: tuple[Array, ...]) -> KernelCall:
        """Create the call of an operator on its inputs, checking their shapes.

        Raises
        ------
        ShapeError
            If a shape differs.
        """
        check_shapes(op.inputs, arrays)
        return KernelCall(op, arrays)


class CallPlan:
    """A compiled kernel with the array shapes of one kind of call.

    Parameters
    ----------
    work : KernelCall
        An example call.
    kernel : RunnableKernel
        The kernel of its operator.
    """

    __slots__ = ("_allocate", "_dtype", "_in_place", "_kernel", "_shape", "_views")

    def __init__(self, work: KernelCall, kernel: RunnableKernel) -> None:
        result = work.op.output
        shapes = [spec.shape for spec in work.op.inputs]
        self._kernel = kernel
        self._shape = result.shape if work.shape is None else work.shape
        self._dtype = dtype_of(result.dtype)
        self._allocate = allocator(self._shape, self._dtype)
        actual = [*(array.shape for array in work.arrays), self._shape]
        needed = [*shapes, result.shape]
        views = enumerate(zip(actual, needed, strict=True))
        self._views = [(at, _view(shape)) for at, (a, shape) in views if a != shape]
        computed = work.op.op if isinstance(work.op, StoredOp) else work.op
        elementwise = isinstance(computed, BroadcastOp | UnaryOp | NormalizeOp)
        self._in_place = [elementwise and shape == result.shape for shape in shapes]

    def run(self, arrays: tuple[Array, ...], out: Any) -> Array:
        """Run on checked arrays; return `out`, checked and filled, or a new array.

        Raises
        ------
        ShapeError
            If `out` has the wrong shape, dtype or layout.
        """
        if out is None:
            return self.run_fresh(arrays)
        if (
            type(out) is np.ndarray
            and out.dtype is self._dtype
            and out.shape == self._shape
            and out.flags.carray
        ):
            result = out
        else:
            result = as_output(out, self._shape, self._kernel.op.output.dtype)
        if self._disturbs(result, arrays):
            result[...] = self.run_fresh(arrays)
        else:
            self._fill(result, arrays)
        return result

    def run_fresh(self, arrays: tuple[Array, ...]) -> Array:
        """Run on checked arrays; return a new array."""
        result = self._allocate()
        self._fill(result, arrays)
        return result

    def _fill(self, result: Array, arrays: tuple[Array, ...]) -> None:
        if self._views:
            shaped = [*arrays, result]
            for at, view in self._views:
                shaped[at] = view(shaped[at])
            self._kernel.run(*shaped)
        else:
            self._kernel.run(*arrays, result)

    def _disturbs(self, result: Array, arrays: tuple[Array, ...]) -> bool:
        """Whether writing the result would overwrite inputs that the kernel has yet to read.

        Elementwise operators may overwrite an input: each element is read before it is written.
        """
        for at, array in enumerate(arrays):
            if np.may_share_memory(array, result):
                same = array is result or array.ctypes.data == result.ctypes.data
                if not (self._in_place[at] and same):
                    return True
        return False


def _view(shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return the fastest function that reshapes a C-contiguous array without a copy."""
    return np.ndarray.ravel if len(shape) == 1 else methodcaller("reshape", shape)


class Backend(ABC):
    """A device that runs kernels."""

    stores_16_bits: ClassVar[bool] = False
    """Whether float32 operators also accept float16 and bfloat16 arrays."""

    product_dtypes: ClassVar[tuple[str, ...]] = PRODUCT
    """Dtypes of the left operand of a matrix product."""

    joins_rows: ClassVar[bool] = False
    """Whether kernels write the rows of a strided 1x1 convolution as one row."""

    multiplies_stacks: ClassVar[bool] = False
    """Whether one kernel multiplies stacks of matrices; otherwise one call per matrix does."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...] | None, CallPlan] = {}

    def operators(self) -> dict[str, Callable[..., Array]]:
        """Return the operators by name: the public methods added by subclasses."""
        own = (name for name in dir(self) if not (name.startswith("_") or hasattr(Backend, name)))
        return {name: getattr(self, name) for name in own}

    def call(
        self,
        describe: Callable[..., KernelCall],
        arrays: tuple[Any, ...],
        out: Any,
        parameters: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Array:
        """Run the call that ``describe(self, *arrays, *parameters, **keywords)`` describes.

        Parameters
        ----------
        describe : callable
            Depends only on the shapes and dtypes of the arrays, not on their values.
        arrays : tuple of array_like
            In the order of the kernel's arguments.
        out : array or None
            Destination of the result.
        parameters : tuple
            Positional arguments after the arrays.
        keywords : dict, optional
            Parameters by name, and fused operations; see
            `vtaops.kernels.calls.arguments.fused_epilogue`.

        Returns
        -------
        numpy.ndarray
            Or `out`; or an array of the first argument's library.

        Raises
        ------
        ShapeError
            If `out` does not fit, or from `describe`.
        """
        first, keywords = arrays[0], keywords or {}
        given = (*arrays, *_fused_arrays(keywords)) if keywords else arrays
        key = _key(describe, given, parameters, keywords)
        if key is None:
            arrays, keywords = tuple(map(ready, arrays)), _map_fused(ready, keywords)
            given = (*arrays, *_fused_arrays(keywords)) if keywords else arrays
            key = _key(describe, given, parameters, keywords)
        try:
            plan = self._plans.get(key)
        except TypeError:  # unhashable: a list or an array
            key = _key(describe, given, *_frozen(parameters, keywords))
            key = key if _hashable(key) else None
            plan = self._plans.get(key)
        if plan is not None:
            return as_given(plan.run(given, out), first, out)
        fixed = _frozen(parameters, keywords)
        work = self._describe(partial(describe, self), arrays, *fixed)
        result = self._run_first(work, out, key if _same_objects(given, work.arrays) else None)
        return as_given(result, first, out)

    def _run_first(self, work: KernelCall, out: Any, key: tuple[Any, ...] | None) -> Array:
        """Run a call without a plan, and store its plan if it has a key."""
        if prod(work.op.output.shape) == 0:
            return output(out, work.shape or work.op.output.shape, work.op.output.dtype)
        _check_sizes(work.op)
        plan = CallPlan(work, self.kernel(work.op))
        result = plan.run(work.arrays, out)
        if key is not None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return result

    def _describe(
        self,
        describe: Callable[..., KernelCall],
        arrays: tuple[Any, ...],
        parameters: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> KernelCall:
        """Call `describe`; for 16-bit arrays, as a float32 operator between 16-bit arrays.

        Raises
        ------
        ShapeError
            If 16-bit arrays are mixed with other dtypes.
        """
        operands = [a for a in (*arrays, *_fused_arrays(keywords)) if isinstance(a, np.ndarray)]
        kinds = {dtype_name(array) for array in operands}
        if not (self.stores_16_bits and kinds & set(STORAGE)):
            return describe(*arrays, *parameters, **keywords)
        if len(kinds) > 1:
            raise ShapeError(f"arrays have dtypes {', '.join(sorted(kinds))}; give all the same")
        arguments = {}

        def stand_in(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            wide = np.empty(value.shape, np.float32)
            arguments[id(wide)] = value, wide
            return wide

        work = describe(*map(stand_in, arrays), *parameters, **_map_fused(stand_in, keywords))
        actual = tuple(arguments[id(array)][0] for array in work.arrays)
        return KernelCall(stored(work.op, [*kinds] * len(actual)), actual, work.shape)

    @abstractmethod
    def kernel(self, op: TensorOp) -> RunnableKernel:
        """Return the kernel of an operator, compiling it at most once."""


def operator(arrays: int) -> Callable[[Callable[_P, KernelCall]], Callable[_P, Array]]:
    """Turn a method that describes a call, with `arrays` leading array arguments, into the call.

    The keyword `out`, the destination array, is handled by the backend and not passed on.
    """

    def call_of(method: Callable[_P, KernelCall]) -> Callable[_P, Array]:
        describe, described = checked_call(method), signature(method)

        @wraps(describe)
        def call(self: Backend, *given: Any, out: Any = None, **keywords: Any) -> Array:
            if len(given) == arrays:
                if out is None and not keywords:  # `Backend.call`, without its other cases
                    plan = self._plans.get(_with_arrays((describe, ()), given))
                    if plan is not None:
                        return plan.run_fresh(given)
                return self.call(describe, given, out, (), keywords)
            if len(given) < arrays:  # some by keyword
                bound = described.bind(self, *given, **keywords)
                given, keywords = bound.args[1:], bound.kwargs
            return self.call(describe, given[:arrays], out, given[arrays:], keywords)

        call.__signature__ = described.replace(return_annotation="Array")  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return call_of


def _check_sizes(op: TensorOp) -> None:
    """Reject reductions over no elements, and arrays whose indices exceed 32 bits.

    Raises
    ------
    ShapeError
        If so; the message names the argument.
    """
    for spec in op.arguments:
        elements = prod(spec.shape)
        if elements == 0:
            raise ShapeError(f"{spec.name} of shape {spec.shape} is empty, the result is not")
        if elements >= _MOST_ELEMENTS:
            raise ShapeError(
                f"{spec.name} of shape {spec.shape} has {elements} elements; kernels index up to "
                f"{_MOST_ELEMENTS - 1}: split it along the first axis"
            )


def _key(
    describe: Callable[..., KernelCall],
    arrays: tuple[Any, ...],
    parameters: tuple[Any, ...],
    keywords: dict[str, Any],
) -> tuple[Any, ...] | None:
    """Return the plan key of a call; None if a kernel cannot read an array directly."""
    key = _with_arrays((describe, parameters), arrays)
    if key is None:
        return None
    for name, value in keywords.items():
        key += (name, value is None if name in FUSED_ARRAYS else value)
    return key


def _with_arrays(key: tuple[Any, ...], arrays: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the key with the shapes and dtypes of arrays; None if a kernel cannot read one."""
    for array in arrays:
        if type(array) is not np.ndarray or not array.flags.carray:
            return None
        key += (array.shape, array.dtype)
    return key


def _frozen(
    parameters: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the parameters of a call in hashable form."""
    fixed = {n: v if n in FUSED_ARRAYS else frozen(v) for n, v in keywords.items()}
    return tuple(map(frozen, parameters)), fixed


def _hashable(key: tuple[Any, ...] | None) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _fused_arrays(keywords: dict[str, Any]) -> list[Any]:
    """Return the arrays of the fused operations, in the order of kernel arguments."""
    arrays: list[Any] = []
    for name in FUSED_ARRAYS:
        value = keywords.get(name)
        if value is not None:
            arrays += value if isinstance(value, (tuple, list)) else (value,)
    return arrays


def _map_fused(convert: Callable[[Any], Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the fused operations with their arrays converted."""

    def mapped(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(map(convert, value))
        return None if value is None else convert(value)

    return {n: mapped(v) if n in FUSED_ARRAYS else v for n, v in keywords.items()}


def _same_objects(given: tuple[Any, ...], used: tuple[Array, ...]) -> bool:
    """Whether the kernel used the given arrays without conversion, so that the plan is reusable."""
    return len(given) == len(used) and all(a is b for a, b in zip(given, used, strict=True))
