"""Epilogues: how VTA's operators requantise in the same way as the graph.

Plain hardware shifts all channels alike: zero points and rounding are added to the bias, and a
factor that is not a shift enlarges the weights or the residual. If its ALU has MUL, it multiplies
each channel by a factor before that. Hardware with the extension ``post`` has a multiplier and a
shift per channel, and adds the zero point itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from vtaops.base.fixed_point import MAX_SCALE_SHIFT, MAX_SHIFT, MULTIPLIER_BITS
from vtaops.base.shapes import Array
from vtaops.graph import Requantization
from vtaops.graph.thresholds import quotient_scale
from vtaops.network.storage import Lanes, on_lanes
from vtaops.ops import Conv2d, Conv2dTranspose, Gemm
from vtaops.ops.constants import digits

Sum = TypeVar("Sum", Conv2d, Conv2dTranspose, Gemm)


@dataclass(frozen=True, eq=False)
class MappedEpilogue:
    """The epilogue of an operator's sums of products.

    Attributes
    ----------
    fields : dict
        Parameters of the operator on VTA.
    constant : ndarray of int64, shape (channels,)
        Constant added to the sums.
    left : int
        Left shift of the weights in bits.
    vectors : dict of str to ndarray
        Additional arguments of the operator, channels first.
    """

    fields: dict[str, Any]
    constant: Array
    left: int = 0
    vectors: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def shifted(
        weight: Array,
        bias: Array | None,
        scaling: Requantization,
        zero_points: tuple[int, ...],
        factor: int = 0,
    ) -> MappedEpilogue:
        """Return the epilogue on plain hardware.

        Parameters
        ----------
        weight, bias, scaling
            Those of the graph's operator, with output channels first.
        zero_points : tuple of int
            Zero points of its inputs: the data, the residual.
        factor : int
            Factor of the residual; 0 if there is none.
        """
        shift = scaling.right_shift
        assert shift is not None
        left = max(0, -shift)
        shift += left
        given = None if bias is None else bias.astype(np.int64) << left
        weights = weight.astype(np.int64) << left
        # The zero point of the result and the half for rounding are added before the shift.
        constant = sum_constant(weights, given, zero_points, factor) + scaling.constant
        residual: dict[str, Any] = {}
        if factor:
            bits = common_shift(factor, shift)
            scale, rest = factor >> bits, shift - bits
            residual = {"residual": True, "residual_scale": scale, "residual_shift": rest}
            shift = bits
        return MappedEpilogue({"shift": shift, "clip": scaling.clip, **residual}, constant, left)

    @staticmethod
    def scaled(
        weight: Array,
        bias: Array | None,
        scaling: Requantization,
        zero_points: tuple[int, ...],
        factor: Array | None = None,
    ) -> MappedEpilogue:
        """Return the epilogue on hardware with ``post``; as `shifted`, with factors by channel."""
        channels = len(weight)
        fields: dict[str, Any] = {"scales": True, "shift": 0, "clip": scaling.clip}
        fields["zero_point"] = scaling.zero_point
        fields |= {"fine": scaling.fine} if scaling.fine else {}
        vectors = {"scales": np.broadcast_to(scaling.words, (channels,)).astype(np.int32)}
        factors = np.zeros(1, np.int64)
        if factor is not None:
            fields["residual"] = True
            factors = np.broadcast_to(factor, (channels,))
            for name, digit in zip(("residual_high", "residual_low"), digits(factors), strict=True):
                vectors[name] = digit.astype(np.int8).reshape(-1, 1, 1, 1)
        constant = sum_constant(weight, bias, zero_points, factors)
        return MappedEpilogue(fields, constant, vectors=vectors)

    @staticmethod
    def multiplied(
        weight: Array, bias: Array | None, scaling: Requantization, zero_points: tuple[int, ...]
    ) -> MappedEpilogue:
        """Return the epilogue on plain hardware with MUL: a multiplier by channel, one shift."""
        fields: dict[str, Any] = {"multiplier": True, "shift": int(scaling.shift.flat[0])}
        fields |= {"rounding": "half_up", "clip": scaling.clip, "zero_point": scaling.zero_point}
        factors = np.broadcast_to(scaling.multiplier, (len(weight),)).astype(np.int32)
        constant = sum_constant(weight, bias, zero_points)
        return MappedEpilogue(fields, constant, vectors={"multiplier": factors})

    def on_lanes(self, lanes: Lanes, size: int) -> MappedEpilogue:
        """Return the epilogue for lanes, some of which hold the channels."""
        vectors = {name: on_lanes(value, lanes, size) for name, value in self.vectors.items()}
        return replace(self, constant=on_lanes(self.constant, lanes, size), vectors=vectors)

    def with_bias(self, op: Sum) -> tuple[Sum, Array | None]:
        """Return an operator that adds the constant, and its bias; None if the constant is zero."""
        if not self.constant.any():
            return op, None
        return replace(op, bias=True), self.constant.astype(np.int32)  # sums wrap as well


def common_shift(factor: int, shift: int) -> int:
    """Return how many of the low `shift` bits of a factor are zero."""
    return min(shift, (factor & -factor).bit_length() - 1)


def sum_constant(
    weight: Array,
    bias: Array | None,
    zero_points: tuple[int, ...],
    factor: Array | int = 0,
) -> Array:
    """Return the part of the sums of each output channel that does not depend on the data.

    It consists of the bias, and of the inputs' zero points times their weights. Output channels are
    on axis 0 of `weight`.
    """
    sums = weight.astype(np.int64).reshape(len(weight), -1).sum(axis=1)
    total = -zero_points[0] * sums
    if len(zero_points) > 1:
        total = total - zero_points[1] * factor
    return np.asarray(total if bias is None else total + bias)


def largest_sums(weight: Array, bias: Array | None, zero_point: int) -> Array:
    """Return a bound of the magnitude of the sums of each output channel."""
    products = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1)
    constant = sum_constant(weight, bias, (zero_point,))
    return np.asarray(128 * products + np.abs(constant))


def one_shift(scaling: Requantization, largest: Array) -> Requantization | None:
    """Return the nearest requantisation with one shift whose products int32 holds.

    Parameters
    ----------
    scaling : Requantization
        Rounds half up.
    largest : ndarray of int64
        Bound of the magnitude of the sums of each channel.

    Returns
    -------
    Requantization or None
        None if a result would move by more than a step.
    """
    ratio = np.maximum(scaling.multiplier / 2.0**scaling.shift, 2.0**-60)
    ratio, largest = np.broadcast_arrays(ratio, largest)
    room = min((1 << 30) / max(float((ratio * largest).max()), 0.5), 65535 / ratio.max())
    shift = min(int(np.floor(np.log2(max(room, 1)))), MAX_SHIFT)
    factors = np.rint(ratio * 2.0**shift).astype(np.int64)
    moved = np.abs(factors / 2.0**shift - ratio) * np.minimum(largest, 256 / ratio)
    if shift < 1 or moved.max() > 1:
        return None
    alike = len(np.unique(factors)) == 1
    return Requantization(factors[0] if alike else factors, shift, scaling.zero_point, scaling.clip)


def products_fit(scaling: Requantization, largest: Array) -> bool:
    """Whether it has one shift, which rounds, and int32 holds the products of such sums."""
    shifts = np.unique(scaling.shift)
    if scaling.rounding != "half_up" or shifts.size > 1 or not 1 <= shifts[0] <= MAX_SHIFT:
        return False
    half = 1 << int(shifts[0]) - 1
    return bool((largest * scaling.multiplier + half < 1 << 31).all())


def uniform(scaling: Requantization, factor: int = 1) -> dict[str, Any] | None:
    """Return the parameters of one scale for all channels; None if channels differ.

    `factor` is an exact factor of the sums.
    """
    multiplier, shift = np.unique(scaling.multiplier), np.unique(scaling.shift)
    if multiplier.size > 1 or shift.size > 1 or factor < 0:
        return None
    if scaling.fine:
        scale = {"multiplier": int(multiplier[0]), "shift": int(shift[0]), "fine": scaling.fine}
        scale |= {"nudge": int(np.unique(scaling.nudge)[0]), "zero_point": scaling.zero_point}
        return scale if factor == 1 and np.unique(scaling.nudge).size == 1 else None
    product = int(multiplier[0]) * factor
    if product >= 1 << MULTIPLIER_BITS:
        return None
    scale = {"multiplier": product, "shift": int(shift[0])}
    if not product:  # a multiplier of 0 means none: this one leaves nothing of 32 bits either
        scale = {"multiplier": 1, "shift": MAX_SCALE_SHIFT}
    return {**scale, "zero_point": scaling.zero_point}


def divided(count: int) -> dict[str, Any]:
    """Return the scale parameters of a quotient of sums by `count`."""
    scale = quotient_scale(count)
    return {
        "multiplier": scale.multiplier,
        "shift": scale.shift,
        "nudge": scale.nudge,
        "fine": scale.kind,
    }


def as_int32(value: int) -> int:
    """Return an integer wrapped to int32."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
