"""The requantizations of a device for those of a file: equal if possible, else with a count.

A graph from TFLite rounds like its reference kernels (`vtaops.graph.TfliteRequantization`). For
each such requantization, `hardware_rounding` finds one that the hardware has. With the extension
``exact`` it finds fine scales whose thresholds equal TFLite's for every sum that weights and values
allow (`vtaops.graph.thresholds`); otherwise it uses the nearest scale, and says by how many steps
results may differ. The legal graph is what the compiled network computes,
bit for bit, on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.base.shapes import Array
from vtaops.graph import (
    FineRequantization,
    Quotient,
    Requantization,
    Tensor,
    TfliteRequantization,
)
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator, Weighted
from vtaops.graph.requantization import Integers
from vtaops.graph.thresholds import (
    FineScale,
    Steps,
    fine_scale_for,
    steps_of_requantization,
)
from vtaops.network.digits import folded, nearest, ratios
from vtaops.network.target import Target

EQUAL = "equal to TFLite"
KINDS = {"once": (1,), "twice": (2, 1, 3)}
"""Kinds of fine scales to try for a rounding."""
CONSTANT_SHIFT = 32
"""Value of a channel with a constant sum; its scale is ``2**23 / 2**32``."""
FACTORS_TRIED = 12
"""Number of factor pairs to try for a sum of two tensors, with one digit and with two."""

ValueRange = tuple[Integers, Integers]
"""Minimum and maximum of each channel (axis 1) of a tensor, or of all channels."""

ANY_VALUE: ValueRange = (np.array(-128), np.array(127))
"""The values of int8."""


@dataclass(frozen=True)
class Replacement:
    """The hardware's replacement for an operator.

    Attributes
    ----------
    op : GraphOperator
        The operator.
    differing : int
        Number of possible sums with a difference of one step.
    equal : str
        The note of an operator without differences.
    most : int
        The largest difference, of an operator whose differences are not counted.
    """

    op: GraphOperator
    differing: int = 0
    equal: str = EQUAL
    most: int = 0

    @property
    def steps(self) -> int:
        """The largest difference."""
        return self.most or (1 + (self.equal != EQUAL) if self.differing else 0)

    @property
    def note(self) -> str:
        """The comparison with TFLite, or with the scales of the file, as text."""
        several = "a step" if self.steps == 1 else f"at most {self.steps} steps"
        return f"{self.equal} but for {several}" if self.steps else self.equal


def hardware_rounding(
    op: Any, inputs: Sequence[Tensor], ranges: Sequence[ValueRange], target: Target
) -> Replacement | None:
    """Return the hardware's replacement for an operator; None if it rounds the same.

    Parameters
    ----------
    op : GraphOperator
        The operator.
    inputs : sequence of Tensor
        Its operands.
    ranges : sequence of ValueRange
        The values of each that can occur.
    target : Target
        The hardware.
    """
    if not changes_rounding(op, target) or type(op) not in _ROUNDINGS:
        return None
    found = _ROUNDINGS[type(op)](op, inputs, ranges, target)
    if found is None or isinstance(op.requantization, TfliteRequantization | Quotient):
        return found
    return replace(found, equal="equal to the file")


def changes_rounding(op: GraphOperator, target: Target) -> bool:
    """Whether hardware may round an operator in another way: one of TFLite, or any on plain VTA.

    There scales are part of weights and factors of two digits.
    """
    if not isinstance(op, ops.Requantized):
        return False
    kinds = ops.Convolution | ops.Dense | ops.Requantize | ops.AveragePool | ops.Add
    plain = not target.scales and isinstance(op, kinds)
    scaling = op.requantization
    if isinstance(scaling, TfliteRequantization | Quotient):
        return True
    return plain and scaling.right_shift is None


# ------------------------------------------------------------------- values that can occur


def value_range(op: Any, inputs: Sequence[Tensor], ranges: Sequence[ValueRange]) -> ValueRange:
    """Return the values that the result of an operator can have; any if they are unknown."""
    if isinstance(op, ops.MaxPool | ops.Upsample):
        return ranges[0]
    if isinstance(op, ops.Reshape):
        size, (low, high) = ranges[0][0].size, ranges[0]
        rows = inputs[0].shape[:2]  # the channels stay on axis 1
        kept = size == 1 or (tuple(op.shape) == rows and inputs[0].elements == prod(rows))
        return ranges[0] if kept else (low.min(), high.max())
    by_channel = isinstance(op, ops.Convolution) and len(inputs) == 1
    if by_channel or (isinstance(op, ops.Dense) and len(inputs[0].shape) == 2):
        low, high = _interval(op, inputs[0], ranges[0])
        return _applied(op.requantization, low), _applied(op.requantization, high)
    return ANY_VALUE


def _applied(scaling: Requantization, sums: Integers) -> Integers:
    return scaling.apply(sums, axis=0).astype(np.int64)


def _real(op: Any, values: ValueRange, tensor: Tensor) -> ValueRange:
    """Return values in steps from the zero point, including 0 if there is padding."""
    padded = any(getattr(op, "padding", ())) or isinstance(op, ops.TransposedConvolution)
    low, high = (part - tensor.zero_point for part in values)
    return (np.minimum(low, 0), np.maximum(high, 0)) if padded else (low, high)


def _interval(op: Weighted | ops.Requantize, data: Tensor, values: ValueRange) -> ValueRange:
    """Return the minimum and maximum sum of each output channel."""
    if isinstance(op, ops.Requantize):
        least, most = (int(end) - data.zero_point for end in (values[0].min(), values[1].max()))
        channels = op.requantization.channels
        return np.full(channels, least), np.full(channels, max(most, least + 1))
    if len(data.shape) != op.rank:  # channels are not on axis 1
        values = values[0].min(), values[1].max()
    weight = op.by_output.astype(np.int64)
    outputs, inputs = weight.shape[:2]
    low, high = (
        np.broadcast_to(part, (inputs * getattr(op, "groups", 1),)).reshape(-1, 1, inputs)
        for part in _real(op, values, data)
    )
    grouped = weight.reshape(len(low), outputs // len(low), inputs, -1)
    ends = [grouped * part[..., None] for part in (low, high)]
    bias = 0 if op.bias is None else op.bias.astype(np.int64)
    return (
        np.minimum(*ends).sum(axis=(2, 3)).reshape(-1) + bias,
        np.maximum(*ends).sum(axis=(2, 3)).reshape(-1) + bias,
    )


# --------------------------------------------------------------------- sums with weights


def round_sums(
    op: Weighted | ops.Requantize,
    inputs: Sequence[Tensor],
    ranges: Sequence[ValueRange],
    target: Target,
) -> Replacement | None:
    """Round sums of products, or values, whose scales may differ by channel."""
    scaling, coarse = op.requantization, _coarse(op.requantization)
    if not target.scales and coarse.right_shift is None:
        if isinstance(op, ops.Requantize):
            coarse = nearest(coarse)
        elif isinstance(op, ops.Convolution | ops.Dense) and (
            found := folded(op, inputs, *_real(op, ranges[0], inputs[0]))
        ):
            return Replacement(found[0], most=math.ceil(found[1]))
    if len(inputs) > 1:
        return None
    ends = _interval(op, inputs[0], ranges[0])
    if target.fine:
        return _finest(op, *ends)
    pairs = zip(_steps(coarse, *ends), _steps(scaling, *ends), strict=True)
    count = sum(int(np.abs(own.first - wanted.first).sum()) for own, wanted in pairs)
    return Replacement(replace(op, requantization=coarse), count)


def _steps(scaling: Requantization, low: Integers, high: Integers) -> list[Steps]:
    """Return the steps of each channel on its interval of sums."""
    ends = enumerate(zip(low.tolist(), high.tolist(), strict=True))
    return [steps_of_requantization(scaling, channel, *pair) for channel, pair in ends]


def _finest(op: Any, low: Integers, high: Integers) -> Replacement:
    """Return an operator with the fine scales that are nearest to its own on intervals of sums.

    A channel with a constant sum gets a sum and a scale that give its result.
    """
    scaling, fixed = op.requantization, low == high
    ratio, steps = np.broadcast_to(ratios(scaling), low.shape), _steps(scaling, low, high)

    def of_kind(kind: int) -> list[FineScale]:
        constant = FineScale(1 << 23, CONSTANT_SHIFT, 0, kind)
        channels = zip(fixed, steps, ratio.tolist(), strict=True)
        return [constant if one else fine_scale_for(own, r, kind) for one, own, r in channels]

    best = _fewest(map(of_kind, KINDS[scaling.rounds]))
    made = replace(op, requantization=_nudged(best, scaling))
    results = _applied(scaling, low) - scaling.zero_point
    bias = np.where(fixed, (results << (CONSTANT_SHIFT - 23)) - low, 0)
    if isinstance(op, Weighted) and bias.any():
        before = 0 if op.bias is None else op.bias.astype(np.int64)
        made = replace(made, bias=(before + bias).astype(np.int32))
    return Replacement(made, _off(best))


def _coarse(scaling: Requantization) -> Requantization:
    """Return the nearest requantisation with 16 bits and one rounding."""
    return Requantization.from_ratio(ratios(scaling), scaling.zero_point, scaling.clip)


def _fewest(found: Iterable[Sequence[FineScale]]) -> Sequence[FineScale]:
    """Return the first scales of all channels that are exact, or those wrong for fewest sums."""
    best: Sequence[FineScale] = ()
    for scales in found:
        if not best or _off(scales) < _off(best):
            best = scales
        if not _off(best):
            break
    return best


def _off(scales: Sequence[FineScale]) -> int:
    return sum(scale.differing for scale in scales)


def _nudged(scales: Sequence[FineScale], scaling: Requantization) -> FineRequantization:
    """Return scales as a requantisation, with one number for all channels if they are equal."""
    columns = [[getattr(s, name) for s in scales] for name in ("multiplier", "shift", "nudge")]
    multiplier, shift, nudge = (np.array(column) for column in columns)
    if all(len(set(column)) == 1 for column in columns):
        multiplier, shift, nudge = multiplier[0], shift[0], nudge[0]
    bounds = scaling.zero_point, scaling.clip
    return FineRequantization(multiplier, shift, *bounds, nudge, scales[0].kind)


# --------------------------------------------------------------------------------- means


def round_average_pool(
    op: ops.AveragePool, inputs: Sequence[Tensor], ranges: Sequence[ValueRange], target: Target
) -> Replacement | None:
    """Round a mean; TFLite's pool is unchanged with fine scales."""
    scaling, (source,) = op.requantization, inputs
    size, zero = op.window(source).count, source.zero_point
    if isinstance(scaling, Quotient):
        if target.fine:
            return Replacement(op)  # fine scales divide by any number of pixels
        ratio, zero_point = 1.0, zero
    else:
        parts = op.differs(source) and target.scales  # each has a multiplier of its own
        if parts or not scaling.multiplier.any():
            return None
        if target.fine:
            ends = size * (np.array([[-128], [127]]) - zero)
            return _finest(op, *ends)
        ratio, zero_point = float(ratios(scaling)) * size * op.factor, scaling.zero_point
    widths = [7]
    if not (target.scales or op.differs(source)):  # 15 bits are two digits, if sums fit int32
        widths.append(max(7, min(15, 31 - math.ceil(math.log2(256 * size)))))
    fields = {"zero_point": zero_point, "clip": scaling.clip, **op.windowed}
    found = []
    for bits in widths:
        made = ops.AveragePool.from_ratio(
            ratio, size, shifts_only=not target.scales, bits=bits, **fields
        )
        found.append(_compared_means(made, op, source))
    return min(found, key=lambda each: each.differing)


def _compared_means(made: ops.AveragePool, op: ops.AveragePool, source: Tensor) -> Replacement:
    """Return a mean in place of another, with the number of sums for which they differ."""
    size, zero, off = op.window(source).count, source.zero_point, 0
    for count in np.unique(np.multiply.outer(*op.counts(source))).tolist():
        sums = np.arange(-128 * count, 127 * count + 1) - count * zero
        own, wanted = (pool.means(sums, count, size, zero) for pool in (made, op))
        off += int(np.count_nonzero(own != wanted))
    return Replacement(made, off)


# --------------------------------------------------------------------------- elementwise


def round_multiply(
    op: ops.Multiply, inputs: Sequence[Tensor], ranges: Sequence[ValueRange], target: Target
) -> Replacement:
    """Round a product of two tensors by the sums that occur."""
    scaling, (a, b) = op.requantization, _values(inputs, ranges)
    sums = np.multiply.outer(a, b)
    results = scaling.apply(sums)
    made: Requantization | None = _coarse(scaling)
    if target.fine:
        assert isinstance(scaling, TfliteRequantization)  # others are unchanged there
        made = _fitted(sums, results, float(ratios(scaling)), scaling, KINDS[scaling.rounds])
    assert made is not None  # a requantisation is monotone
    rounded = replace(op, requantization=made)
    return Replacement(rounded, _pairs_off(rounded, a, b, results))


def _fitted(
    sums: Integers, results: Array, ratio: float, scaling: Requantization, kinds: Sequence[int]
) -> FineRequantization | None:
    """Return the fine scale nearest to results; None if they are not monotone in the sums."""
    steps = _steps_of_results(sums, results, scaling)
    if steps is None:
        return None
    return _nudged(_fewest([fine_scale_for(steps, ratio, kind)] for kind in kinds), scaling)


def _values(inputs: Sequence[Tensor], ranges: Sequence[ValueRange]) -> list[Integers]:
    """Return all values of the inputs, in steps from their zero points."""
    return [
        np.arange(int(low.min()), int(high.max()) + 1) - tensor.zero_point
        for tensor, (low, high) in zip(inputs, ranges, strict=True)
    ]


def _steps_of_results(sums: Integers, results: Array, scaling: Requantization) -> Steps | None:
    """Return the steps between possible sums; None if the results are not monotone in them."""
    least, most = scaling.clip
    low, high = int(sums.min()), int(sums.max())
    first = np.full(256, high + 1, np.int64)
    last = np.full(256, low - 1, np.int64)
    index = results.astype(np.int64).reshape(-1) + 128
    np.minimum.at(first, index, sums.reshape(-1))
    np.maximum.at(last, index, sums.reshape(-1))
    first = np.minimum.accumulate(first[::-1])[::-1]  # the first sum that gives k or more
    last = np.maximum.accumulate(last)  # the last that gives k or less
    values = np.arange(least + 1, most + 1)
    steps = Steps(values - scaling.zero_point, first[values + 128], last[values + 127], low, high)
    return None if (steps.last >= steps.first).any() else steps


def round_add(
    op: ops.Add | ops.RescaledAdd,
    inputs: Sequence[Tensor],
    ranges: Sequence[ValueRange],
    target: Target,
) -> Replacement | None:
    """Round a sum: TFLite's, or one whose scale is not a shift, on plain hardware."""
    scaling, (first, second), (a, b) = op.requantization, _ratios(op), _values(inputs, ranges)
    best = None if target.scales else _shifted_sum(first, second, scaling)
    if best is None:
        if isinstance(op, ops.Add):
            return None
        best = ops.Add.from_ratios(first, second, scaling.zero_point, scaling.clip)
    results = scaling.apply(op.sums(a[:, None], b[None, :]))
    fewest = _pairs_off(best, a, b, results)
    for factors in _factors(first, second) if target.fine else []:
        sums = factors[0] * a[:, None] + factors[1] * b[None, :]
        fitted = _fitted(sums, results, first / factors[0], scaling, (1, 2))
        if fitted is not None:
            found = ops.Add(factors, fitted)
            off = _pairs_off(found, a, b, results)
            if off <= max(fewest - 1, 0):
                best, fewest = found, off
        if not fewest:
            break
    return Replacement(best, fewest)


def _ratios(op: ops.Add | ops.RescaledAdd) -> tuple[float, float]:
    """Return the steps of each operand, in steps of the result."""
    ratio = float(ratios(op.requantization))
    if isinstance(op, ops.Add):
        return op.factors[0] * ratio, op.factors[1] * ratio
    (m, n), (s, t) = op.multipliers, op.shifts
    return m / 2.0**s * (1 << 20) * ratio, n / 2.0**t * (1 << 20) * ratio


LONGEST = 22
"""Largest shift of sums to which plain hardware adds any zero point, within int32."""


def _shifted_sum(first: float, second: float, scaling: Requantization) -> ops.Add | None:
    """Return the nearest sum of plain hardware: factors of two digits, and a shift."""
    greatest = max(abs(first), abs(second))
    if not greatest or greatest > TWO_DIGITS:
        return None
    shift = min(int(np.log2(TWO_DIGITS / greatest)), LONGEST)
    factors = [round(factor * 2.0**shift) for factor in (first, second)]
    while not any(factor % 2 for factor in factors) and shift and any(factors):
        factors, shift = [factor // 2 for factor in factors], shift - 1
    shifts = Requantization(1, shift, scaling.zero_point, scaling.clip)
    return ops.Add((factors[0], factors[1]), shifts) if all(factors) else None


def _pairs_off(op: ops.Add | ops.Multiply, a: Integers, b: Integers, results: Array) -> int:
    found = op.requantization.apply(op.sums(a[:, None], b[None, :]))
    return int(np.count_nonzero(found != results))


def _factors(first: float, second: float) -> list[tuple[int, int]]:
    """Return pairs of integers whose ratio is close to that of the scales, cheapest first."""
    great, small = max(abs(first), abs(second)), min(abs(first), abs(second))
    sign = -1 if second < 0 else 1
    pairs: list[tuple[int, int]] = []
    for limit in (127, TWO_DIGITS):
        greater = np.arange(1, limit + 1)
        smaller = np.rint(greater * (small / great)).astype(np.int64)
        reduced = (smaller > 0) & (np.gcd(greater, smaller) == 1)
        error = np.where(reduced, np.abs(smaller / greater - small / great), np.inf)
        for index in np.argsort(error, kind="stable")[:FACTORS_TRIED].tolist():
            pair = int(greater[index]), int(smaller[index])
            pairs.append(pair if abs(first) >= abs(second) else pair[::-1])
    return [(x, sign * y) for x, y in pairs if x and y]


_ROUNDINGS: dict[type[GraphOperator], Callable[..., Replacement | None]] = {
    ops.Add: round_add,
    ops.AveragePool: round_average_pool,
    ops.Convolution: round_sums,
    ops.Dense: round_sums,
    ops.Multiply: round_multiply,
    ops.Requantize: round_sums,
    ops.RescaledAdd: round_add,
    ops.TransposedConvolution: round_sums,
}
