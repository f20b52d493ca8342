"""Epilogues: how VTA's operators requantise in the same way as the graph.

Plain hardware shifts all channels alike: zero points and rounding are added to the bias, and a
factor that is not a shift enlarges the weights or the residual; `vtaops.network.digits` makes other
scales part of weights of two digits. Hardware with the extension ``post`` has a multiplier and a
shift per channel, and adds the zero point itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from vtaops.base.exact import magnitudes
from vtaops.base.fixed_point import (
    FINE_BITS,
    MAX_SCALE_SHIFT,
    MAX_SHIFT,
    MULTIPLIER_BITS,
    TWO_DIGITS,
)
from vtaops.base.shapes import Array
from vtaops.graph import FineRequantization, Requantization, Tensor
from vtaops.graph.operator import ACCUMULATOR
from vtaops.graph.operators import Weighted
from vtaops.graph.thresholds import quotient_scale
from vtaops.network.places import Lanes, on_lanes
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import Conv2d, Conv2dTranspose, Gemm
from vtaops.ops.constants import digits

LARGEST_WEIGHT = 127

Sum = TypeVar("Sum", Conv2d, Conv2dTranspose, Gemm)


@dataclass(frozen=True, eq=False)
class SumEpilogue:
    """The epilogue of an operator's sums of products.

    Attributes
    ----------
    fields : dict
        Parameters of the operator on VTA.
    constant : ndarray of int64, shape (channels,)
        Constant added to the sums.
    vectors : dict of str to ndarray
        Additional arguments of the operator, channels first.
    """

    fields: dict[str, Any]
    constant: Array
    vectors: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def of(op: Weighted, weight: Array, inputs: Sequence[Tensor], target: Target) -> SumEpilogue:
        """Return the epilogue of sums on a target.

        Parameters
        ----------
        op : Weighted
            The graph's operator.
        weight : ndarray of int8 or int16
            Its weights that multiply the zero point, with output channels first.
        inputs : sequence of Tensor
            The data, and the residual if there is one.
        target : Target
            The hardware.

        Raises
        ------
        NotOnVta
            If the hardware cannot requantise these sums in this way.
        """
        if not target.scales:
            return _shifted(op, weight, inputs)
        if weight.dtype != np.int8:
            raise NotOnVta("type", f"its weights are {weight.dtype}; with 'post' they are int8")
        return _scaled(op, weight, inputs)

    def on_lanes(self, lanes: Lanes, size: int) -> SumEpilogue:
        """Return the epilogue for lanes, some of which hold the channels."""
        vectors = {name: on_lanes(value, lanes, size) for name, value in self.vectors.items()}
        return replace(self, constant=on_lanes(self.constant, lanes, size), vectors=vectors)

    def with_bias(self, op: Sum) -> tuple[Sum, Array | None]:
        """Return an operator that adds the constant, and its bias; None if the constant is zero."""
        if not self.constant.any():
            return op, None
        return replace(op, bias=True), self.constant.astype(np.int32)  # sums wrap as well


def _scaled(op: Weighted, weight: Array, inputs: Sequence[Tensor]) -> SumEpilogue:
    """Return the epilogue on hardware with ``post``.

    Its constants fit int32, as the sums do (`Graph.add`).
    """
    scaling, channels = op.requantization, len(weight)
    residual = getattr(op, "residual_factor", None)
    fields: dict[str, Any] = {"scales": True, "shift": 0, "clip": scaling.clip}
    fields["zero_point"] = scaling.zero_point
    if isinstance(scaling, FineRequantization):
        fields["fine"] = scaling.fine
    vectors = {"scales": np.broadcast_to(scaling.words, (channels,)).astype(np.int32)}
    factors: Array | int = 0
    if residual is not None:
        require_digits("its residual has", residual)
        fields["residual"] = True
        factors = np.broadcast_to(residual, (channels,))
        vectors |= _residual_digits(factors, 2)
    return SumEpilogue(fields, _constant(op, weight, inputs, factors), vectors)


def _shifted(op: Weighted, weight: Array, inputs: Sequence[Tensor]) -> SumEpilogue:
    """Return the epilogue on plain hardware: one shift, a factor of the residual by another one.

    Weights of two digits stand for the scales of the channels, so factors are terms of the sums.
    """
    scaling, wide = op.requantization, weight.dtype == np.int16
    residual = getattr(op, "residual_factor", None)
    shift = _shift_behind(scaling)
    factor: Any = 0
    if residual is not None:
        factor = np.broadcast_to(residual, (len(weight),)) if wide else _factor(residual, shift)
    # The zero point of the result and the half for rounding are added before the shift.
    constant = _constant(op, weight, inputs, factor) + scaling.constant
    reach = magnitudes(weight) + factor
    require_accumulator((128 * reach + np.abs(constant)).max())
    fields: dict[str, Any] = {"shift": shift, "clip": scaling.clip}
    if wide:
        fields["wide"] = True
    if residual is None:
        return SumEpilogue(fields, constant)
    fields["residual"] = True
    if wide:
        return SumEpilogue(fields, constant, _residual_digits(factor, 3))
    bits = common_shift(factor, shift)
    fields |= {"shift": bits, "residual_scale": factor >> bits, "residual_shift": shift - bits}
    return SumEpilogue(fields, constant)


def _shift_behind(scaling: Requantization) -> int:
    """Return the shift behind sums whose scales weights hold; raises NotOnVta if they could not."""
    if scaling.right_shift is None:
        greatest = float((scaling.multiplier / 2.0**scaling.shift).max())
        text = f"its scales, up to {greatest:.4g}, and its weights exceed two digits together"
        raise NotOnVta("scale", text)
    return right_shift(scaling)


def _residual_digits(factors: Array, count: int) -> dict[str, Array]:
    """Return the weights that hold the digits of factors, one for each channel."""
    names = ("residual_top", "residual_high", "residual_low")[-count:]
    found = (each.astype(np.int8).reshape(-1, 1, 1, 1) for each in digits(factors, count))
    return dict(zip(names, found, strict=True))


def _factor(residual: Array, shift: int) -> int:
    """Return the factor of a residual that an int8 and a shift before the last one apply."""
    factors = np.unique(residual)
    if factors.size > 1:
        raise NotOnVta(
            "channels", "its residual has a factor for each channel; VTA scales all channels alike"
        )
    factor = int(factors[0])
    if factor >> common_shift(factor, shift) > LARGEST_WEIGHT:
        text = f"its residual has the factor {factor}, which is not an int8 times 2**{shift}"
        raise NotOnVta("scale", text)
    return factor


def right_shift(scaling: Requantization) -> int:
    """Return the shift to the right of all channels.

    Raises
    ------
    NotOnVta
        If there is none.
    """
    shift = scaling.right_shift
    if shift is None:
        text = "its scale is not a power of two alike for all channels, which needs 'post'"
        raise NotOnVta("scale", text)
    if not 0 <= shift <= MAX_SHIFT:
        text = f"its scales need a shift by {shift}; VTA shifts by 0 to {MAX_SHIFT}"
        raise NotOnVta("scale", text)
    return shift


def require_digits(what: str, factors: Any) -> None:
    """Refuse factors that two int8 digits do not hold; raises NotOnVta."""
    greatest = int(np.abs(factors).max())
    if greatest > TWO_DIGITS:
        text = f"{what} factors up to {greatest}; VTA's have two digits, at most {TWO_DIGITS}"
        raise NotOnVta("scale", text)


def require_accumulator(bound: int) -> None:
    """Refuse sums that could leave int32; raises NotOnVta."""
    if bound >= ACCUMULATOR:
        text = "its sums with the constant of the zero points could leave int32"
        raise NotOnVta("accumulator", text)


def common_shift(factor: int, shift: int) -> int:
    """Return how many of the low `shift` bits of a factor are zero."""
    return min(shift, (factor & -factor).bit_length() - 1)


def _constant(op: Weighted, weight: Array, inputs: Sequence[Tensor], factor: Array | int) -> Array:
    """Return the part of the sums of each output channel that does not depend on the data.

    It consists of the bias, and of the inputs' zero points times their weights. Output channels are
    on axis 0 of `weight`.
    """
    sums = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.int64)
    total = -inputs[0].zero_point * sums
    if len(inputs) > 1:
        total = total - inputs[1].zero_point * factor
    return np.asarray(total if op.bias is None else total + op.bias)


def scale_of(scaling: Requantization, target: Target) -> dict[str, Any]:
    """Return the parameters of one scale for all channels; raises NotOnVta if there is none."""
    if target.scales:
        return uniform(scaling)
    return {"shift": right_shift(scaling), "rounding": "half_up"}


def uniform(scaling: Requantization, factor: int = 1) -> dict[str, Any]:
    """Return the parameters of one fixed-point scale; raises NotOnVta if channels differ.

    `factor` is an exact factor of the sums.
    """
    scale: dict[str, Any] = {"zero_point": scaling.zero_point}
    limit = 1 << MULTIPLIER_BITS
    if isinstance(scaling, FineRequantization):
        scale |= {"nudge": int(scaling.nudge.max()), "fine": scaling.fine}
        limit = 1 << FINE_BITS if factor == 1 else 0
    multiplier, shift = int(scaling.multiplier.max()) * factor, int(scaling.shift.max())
    differs = any(np.ptp(getattr(scaling, name)) for name in scaling.limits)
    if differs or not 0 <= multiplier < limit:
        raise NotOnVta("scale", "its factor and its multiplier exceed 16 bits together")
    if not multiplier:  # 0 would mean none: this one leaves nothing of 32 bits either
        multiplier, shift = 1, MAX_SCALE_SHIFT
    return scale | {"multiplier": multiplier, "shift": shift}


def divided(count: int) -> dict[str, Any]:
    """Return the scale parameters of a quotient of sums by `count`."""
    scale = quotient_scale(count)
    names = "multiplier", "shift", "nudge"
    return {name: getattr(scale, name) for name in names} | {"fine": scale.kind}
