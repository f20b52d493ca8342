"""What all graph operators share: their base classes and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.base.names import checked_init
from vtaops.base.shapes import Array, ReprMixin
from vtaops.graph.requantization import (
    Integers,
    Quotient,
    Requantization,
    integers,
)
from vtaops.graph.tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Stand in for `typing.dataclass_transform`, which Python 3.10 of a board lacks."""
        return lambda decorator: decorator


Pair = tuple[int, int]
Shape = tuple[int, ...]
Tensors = Sequence[Tensor]

ACCUMULATOR = 1 << 31
"""Exclusive bound of a sum's magnitude: int32."""

MAX_FACTOR = 1 << 15
"""Largest factor of an operand in a sum."""

_COUNTS = {
    "kernel": 2,
    "strides": 2,
    "dilation": 2,
    "padding": 4,
    "output_padding": 2,
    "factors": 2,
}
"""Number of integers in each parameter of windows and of factors."""


T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def graph_operator(cls: type[T]) -> type[T]:
    """Make a class an operator: a frozen dataclass, of which wrong calls are explained."""
    return checked_init(dataclass(frozen=True, eq=False, repr=False)(cls))


class Pattern(Enum):
    """Which elements of its inputs an element of an operator's result depends on.

    The pattern decides how VTA's images hold the tensors.
    """

    ELEMENTWISE = auto()
    """Those at the same position; parameters may differ by channel."""

    WINDOWS = auto()
    """A window of the pixels of an image."""

    ROWS = auto()
    """A row along the last axis."""

    PRODUCT = auto()
    """A row, and a column of a matrix."""

    MOVEMENT = auto()
    """One at another position: nothing is computed."""


class GraphOperator(ReprMixin):
    """Base class: a frozen dataclass of parameters and weights."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    arity: int | None = 1
    """Number of inputs; None: any."""

    takes: tuple[str, ...] = ("int8",)
    """Dtypes of the inputs."""

    pattern: ClassVar[Pattern | None] = None
    """None: VTA has no such operator."""

    named = ""
    """Name where it is not that of the class: importers' operators keep theirs."""

    def __post_init__(self) -> None:
        """Convert parameters of `_COUNTS` to tuples of integers; reject invalid ones."""
        for name, count in _COUNTS.items():
            if getattr(self, name, None) is not None:
                least = 0 if name in ("padding", "output_padding") else 1
                check_integers(self, name, count, least, (1 << 31) - 1)

    def infer(self, *inputs: Any, **_: Any) -> Tensor:
        """Infer the result from its inputs; the graph names it.

        Raises
        ------
        ShapeError
            If the operator rejects the inputs.
        """
        raise NotImplementedError

    def infer_outputs(self, inputs: Tensors) -> tuple[Tensor, ...]:
        """Infer all results: one, but for `Host`. Raises as `infer`."""
        return (self.infer(*inputs),)

    def reference(self, inputs: Tensors, *arrays: Any, **_: Any) -> Any:
        """Compute the result, or a tuple of results, from input arrays.

        Raises
        ------
        UnsupportedError
            If the operator has no NumPy implementation.
        """
        raise UnsupportedError(f"{self.kind} has no NumPy implementation")

    @property
    def kind(self) -> str:
        """Display name of the operator, for example ``max_pool``."""
        name = type(self).__name__
        words = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
        return self.named or words.removeprefix("_")


class Requantized(GraphOperator):
    """An operator that ends in a requantization."""

    requantization: Requantization | Quotient
    channels_axis: ClassVar[int | None] = 1
    """Axis of the sums to which per-channel requantization applies; None: one for all channels."""

    def result(self, shape: Shape) -> Tensor:
        """Return the int8 result tensor of a shape.

        Raises
        ------
        ShapeError
            If the operator has another number of channels.
        """
        scaling, axis = self.requantization, self.channels_axis
        assert isinstance(scaling, Requantization)  # a quotient has no numbers to check
        if axis is None and scaling.channels > 1:
            raise ShapeError(
                f"{self.kind} has one scale for all channels; {scaling.channels} are given"
            )
        for name in scaling.limits:
            if (values := getattr(scaling, name)).size > 1:
                check_channels(name, values, shape[axis or 0])
        return Tensor("-", shape, zero_point=scaling.zero_point)

    def sums(self, *real: Integers) -> Integers:
        """Compute the sums to requantize from zero-point-free inputs, in steps of their scales.

        Sums of products use float64, which is exact below 2**53.
        """
        raise NotImplementedError

    def reference(self, inputs: Tensors, *arrays: Array) -> Any:
        real = (tensor.real(array) for tensor, array in zip(inputs, arrays, strict=True))
        assert isinstance(self.requantization, Requantization)
        return self.requantization.apply(self.sums(*real), self.channels_axis or 0)


def check_accumulator(kind: str, bound: npt.NDArray[Any]) -> None:
    """Reject sums that could leave int32.

    Raises
    ------
    ShapeError
        If `bound`, one or one for each channel, exceeds int32; the message quotes it.
    """
    if np.max(bound) >= ACCUMULATOR:
        where = f" in channel {int(np.argmax(bound))}" if np.size(bound) > 1 else ""
        reach = int(np.max(bound))
        raise ShapeError(f"the sums of {kind} could reach {reach}{where}, beyond int32")


def require_one_zero_point(inputs: Tensors, become: str) -> None:
    """Reject tensors of several zero points; raises ShapeError, with what they are to become."""
    first = inputs[0]
    for other in inputs[1:]:
        if other.zero_point != first.zero_point:
            raise ShapeError(
                f"{first.name} and {other.name} have zero points {first.zero_point} and "
                f"{other.zero_point}; requantize them to one before they are {become}"
            )


def check_channels(name: str, values: npt.NDArray[Any], channels: int) -> None:
    """Reject numbers by channel that are not one for each; raises ShapeError."""
    if values.ndim and values.shape != (channels,):
        raise ShapeError(f"{name} has shape {values.shape}; there are {channels} output channels")


def check_integers(op: GraphOperator, name: str, count: int, least: int, most: int) -> None:
    """Convert a parameter to a tuple of so many integers; raises ShapeError."""
    values = integers(name, getattr(op, name), least, most)
    if values.shape != (count,):
        raise ShapeError(f"{name} is {getattr(op, name)}; give {count} integers")
    object.__setattr__(op, name, tuple(int(value) for value in values))


def image_of(tensor: Tensor) -> tuple[int, int, int, int]:
    """Return the extents of an image; raises ShapeError if the tensor is none."""
    if len(tensor.shape) != 4:
        raise ShapeError(f"{tensor.name} has shape {tensor.shape}; an image is (N, C, H, W)")
    n, c, h, w = tensor.shape
    return n, c, h, w


def axis_of(axis: int, tensor: Tensor) -> int:
    """Return an axis, counted from the first one; raises ShapeError if the tensor lacks it."""
    if not -len(tensor.shape) <= axis < len(tensor.shape):
        raise ShapeError(f"axis is {axis}; {tensor.name} has shape {tensor.shape}")
    return axis % len(tensor.shape)
