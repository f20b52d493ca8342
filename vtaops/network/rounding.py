"""Replace TFLite's requantisations by those of a device: equal if possible, else with a count.

A graph from TFLite rounds like its reference kernels (`vtaops.graph.requantization.Rounding`). For
hardware, `as_hardware_rounds` replaces each such requantisation by one that the hardware has. With
the extension ``exact`` it finds fine scales whose thresholds equal TFLite's for every sum that
weights and values allow (`vtaops.graph.thresholds`); otherwise it uses the nearest scale, and
counts for how many possible sums the result differs by a step. The new graph is what the compiled
network computes, bit for bit, on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np

from vtaops.base.fixed_point import TWO_DIGITS
from vtaops.base.reasons import Reason
from vtaops.base.shapes import Array
from vtaops.graph import Graph, Node, Requantization, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator, Weighted
from vtaops.graph.thresholds import (
    FineScale,
    Integers,
    Steps,
    fine_scale_for,
    firsts_of_requantization,
    quotient_scale,
    steps_of_requantization,
)
from vtaops.network.epilogue import largest_sums, one_shift
from vtaops.network.lower import reason_for_host
from vtaops.network.target import Target

EQUAL = "equal to TFLite"
KINDS = {"once": (1,), "twice": (2, 1, 3)}
"""Kinds of fine scales to try for a rounding."""
CONSTANT_SHIFT = 32
"""Value of a channel with a constant sum; its scale is ``2**23 / 2**32``."""
_ONE = np.ones((1, 1), np.int8)
FACTORS_TRIED = 12
"""Number of factor pairs to try for a sum of two tensors, with one digit and with two."""

Span = tuple[Integers, Integers]
"""Minimum and maximum of each channel (axis 1) of a tensor, or of all channels."""


@dataclass
class Rounded:
    """A graph that rounds like the hardware.

    Attributes
    ----------
    graph : Graph
        The graph that the network computes.
    notes : dict of str to str
        How operators compare with TFLite, by node name.
    refused : dict of str to Reason
        Why nodes run on the host if their scales are the reason.
    steps : dict of str to int
        By how many steps operators may differ from the file's, if they may, by node name.
    """

    graph: Graph
    notes: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Reason] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Form:
    """The hardware's replacement for an operator.

    Attributes
    ----------
    op : GraphOperator
        The operator.
    differing, sums : int
        Number of possible sums with a difference of one step, and of all possible sums.
    equal : str
        The note of an operator without differences.
    """

    op: GraphOperator
    differing: int
    sums: int
    equal: str = EQUAL

    @property
    def note(self) -> str:
        """The comparison with TFLite, or with the scales of the file, as text."""
        if not self.differing:
            return self.equal
        share, count = 100 * self.differing / self.sums, f"{self.differing:,} of {self.sums:,}"
        steps = ("one step", "a step or two")[self.steps - 1]
        return f"{self.equal} but for {steps} at {count} sums ({share:.2g} %)"

    @property
    def steps(self) -> int:
        """The largest difference."""
        return (1 if self.equal == EQUAL else 2) if self.differing else 0


def as_hardware_rounds(graph: Graph, target: Target) -> Rounded:
    """Return a graph whose operators round like the hardware; others run on the host, unchanged."""
    if not any(_changes(node.op, target) for node in graph.nodes):
        return Rounded(graph)
    forms = _forms(graph, target)
    lowered = _rebuilt(graph, forms)
    reasons = _refused(lowered, forms, target)
    if not reasons:
        return _stated(lowered, forms, reasons)
    kept = {name: form for name, form in forms.items() if name not in reasons}
    for node in graph.nodes:
        if node.name in reasons and (form := _on_host(node)) is not None:
            kept[node.name] = form
    result = _rebuilt(graph, kept)
    return _stated(result, kept, reasons)


def _refused(graph: Graph, forms: dict[str, Form], target: Target) -> dict[str, Reason]:
    """Return why nodes in these forms still run on the host, by their names."""
    found = {n.name: reason_for_host(n, graph, target) for n in graph.nodes if n.name in forms}
    return {name: reason for name, reason in found.items() if reason}


def _stated(graph: Graph, forms: dict[str, Form], refused: dict[str, Reason]) -> Rounded:
    """Return a graph with what its forms say."""
    notes = {name: form.note for name, form in forms.items()}
    return Rounded(graph, notes, refused, {name: form.steps for name, form in forms.items()})


def _is_tflite(op: GraphOperator) -> bool:
    scaling = getattr(op, "requantization", None)
    return scaling is not None and scaling.rounding not in ("half_up", "nudged")


def _changes(op: GraphOperator, target: Target) -> bool:
    """Whether hardware may round an operator in another way: one of TFLite, or any on plain VTA.

    There the ALU multiplies the sums of each channel, or factors are the nearest ones.
    """
    kinds = ops.Convolution | ops.Dense | ops.Requantize | ops.AveragePool
    plain = target.multiplies and isinstance(op, kinds)
    plain = plain or (not target.scales and isinstance(op, ops.Add))
    scaling = getattr(op, "requantization", None)
    return _is_tflite(op) or (plain and scaling is not None and scaling.right_shift is None)


def _rebuilt(graph: Graph, forms: dict[str, Form]) -> Graph:
    """Return a graph with the operators of these forms."""
    instead = {name: form.op for name, form in forms.items()}
    return graph.rewritten(lambda result, node: result.add_like(node, instead.get(node.name)))


def _forms(graph: Graph, target: Target) -> dict[str, Form]:
    spans: dict[str, Span] = {}
    forms = {}
    for node in graph.nodes:
        given = [spans.get(tensor.name, _ANY) for tensor in node.inputs]
        found = _form(node.op, node, given, target) if _changes(node.op, target) else None
        if found is not None:
            equal = EQUAL if _is_tflite(node.op) else "equal to the file"
            forms[node.name] = replace(found, equal=equal)
        span = _span(node.op, node, given)
        if span is not None and len(node.outputs) == 1:
            spans[node.outputs[0].name] = span
    return forms


# ------------------------------------------------------------------- values that can occur

_ANY: Span = (np.array(-128), np.array(127))


@singledispatch
def _span(op: GraphOperator, node: Node, given: Sequence[Span]) -> Span | None:
    """Return the possible values of a node's result; None if they are unknown."""
    return None


@_span.register
def _(op: ops.MaxPool | ops.Upsample, node: Node, given: Sequence[Span]) -> Span:
    return given[0]


@_span.register
def _(op: ops.Reshape, node: Node, given: Sequence[Span]) -> Span:
    size, (low, high) = given[0][0].size, given[0]
    rows = node.inputs[0].shape[:2]  # the channels stay on axis 1
    kept = size == 1 or (node.outputs[0].shape == rows and node.inputs[0].elements == prod(rows))
    return given[0] if kept else (low.min(), high.max())


@_span.register
def _(op: ops.Convolution | ops.Dense, node: Node, given: Sequence[Span]) -> Span | None:
    if len(given) > 1 or (isinstance(op, ops.Dense) and len(node.inputs[0].shape) > 2):
        return None
    low, high = _interval(op, node, given[0])
    return _applied(op.requantization, low), _applied(op.requantization, high)


def _applied(scaling: Requantization, sums: Integers) -> Integers:
    return scaling.apply(sums, axis=0).astype(np.int64)


def _real(span: Span, tensor: Tensor, *, padded: bool = False) -> Span:
    """Return a span in steps from the zero point, including 0 if there is padding."""
    low, high = (part - tensor.zero_point for part in span)
    return (np.minimum(low, 0), np.maximum(high, 0)) if padded else (low, high)


def _interval(op: Weighted, node: Node, span: Span) -> Span:
    """Return the minimum and maximum sum of each output channel."""
    if len(node.inputs[0].shape) != op.rank:  # channels are not on axis 1
        span = span[0].min(), span[1].max()
    padded = any(getattr(op, "padding", ())) or isinstance(op, ops.TransposedConvolution)
    weight = op.by_output.astype(np.int64)
    outputs, inputs = weight.shape[:2]
    low, high = (
        np.broadcast_to(part, (inputs * getattr(op, "groups", 1),)).reshape(-1, 1, inputs)
        for part in _real(span, node.inputs[0], padded=padded)
    )
    grouped = weight.reshape(len(low), outputs // len(low), inputs, -1)
    ends = [grouped * part[..., None] for part in (low, high)]
    bias = np.zeros(outputs, np.int64) if op.bias is None else op.bias.astype(np.int64)
    return (
        np.minimum(*ends).sum(axis=(2, 3)).reshape(-1) + bias,
        np.maximum(*ends).sum(axis=(2, 3)).reshape(-1) + bias,
    )


# --------------------------------------------------------------------- sums with weights


@singledispatch
def _form(op: Any, node: Node, given: Sequence[Span], target: Target) -> Form | None:
    """Return the hardware's replacement; None if the operator is unchanged."""
    return None


@_form.register
def _(op: Weighted, node: Node, given: Sequence[Span], target: Target) -> Form | None:
    if len(given) > 1:
        return None
    scaling = op.requantization
    low, high = _interval(op, node, given[0])
    if not target.fine:
        coarse = _coarse(scaling, op, node, target)
        own, wanted = (firsts_of_requantization(each, low, high) for each in (coarse, scaling))
        count = int(np.abs(own - wanted).sum())
        return Form(replace(op, requantization=coarse), count, _sums(low, high))
    chosen, bias = _fine_channels(scaling, low, high)
    before = np.zeros(len(low), np.int64) if op.bias is None else op.bias.astype(np.int64)
    moved = (before + bias).astype(np.int32) if bias.any() else op.bias
    made = replace(op, requantization=_nudged(chosen, scaling), bias=moved)
    return Form(made, sum(scale.differing for scale in chosen), _sums(low, high))


def _sums(low: Integers, high: Integers) -> int:
    return int((high - low + 1).sum())


def _coarse(
    scaling: Requantization, op: GraphOperator, node: Node, target: Target
) -> Requantization:
    """Return the nearest requantisation with 16 bits and one rounding.

    For plain hardware with MUL it has one shift, and products that int32 holds, if there is one.
    """
    ratio = np.maximum(scaling.multiplier / 2.0**scaling.shift, 2.0**-60)
    coarse = Requantization.from_ratio(ratio, scaling.zero_point, scaling.clip)
    if not (target.multiplies and isinstance(op, ops.Convolution | ops.Dense | ops.Requantize)):
        return coarse
    weight, bias = getattr(op, "weight", _ONE), getattr(op, "bias", None)
    largest = largest_sums(weight, bias, node.inputs[0].zero_point)
    shifts = coarse.right_shift is not None
    return coarse if shifts else one_shift(coarse, largest) or coarse


def _fine_channels(
    scaling: Requantization, low: Integers, high: Integers
) -> tuple[list[FineScale], Integers]:
    """Return a scale per channel, all of one kind, and the additional biases.

    A channel with a constant sum gets a sum and a scale that give its result.
    """
    best: list[FineScale] = []
    fixed = low == high
    for kind in KINDS[scaling.rounding]:
        found = _scales_of_kind(scaling, low, high, fixed, kind)
        if not best or sum(s.differing for s in found) < sum(s.differing for s in best):
            best = found
        if not any(scale.differing for scale in best):
            break
    results = _applied(scaling, low) - scaling.zero_point
    return best, np.where(fixed, (results << (CONSTANT_SHIFT - 23)) - low, 0)


def _scales_of_kind(
    scaling: Requantization, low: Integers, high: Integers, fixed: Array, kind: int
) -> list[FineScale]:
    """Return a scale per channel: a common one for channels with the same ratio, if it is exact."""
    multipliers, shifts = (
        np.broadcast_to(part, low.shape) for part in (scaling.multiplier, scaling.shift)
    )
    pairs = list(zip(multipliers.tolist(), shifts.tolist(), strict=True))
    shared: dict[tuple[int, int], FineScale] = {}
    found = []
    for channel, (multiplier, shift) in enumerate(pairs):
        if fixed[channel]:
            found.append(FineScale(1 << 23, CONSTANT_SHIFT, 0, kind))
            continue
        ratio = max(multiplier, 1) / 2.0**shift

        def solve(a: int, b: int, channel: int = channel, ratio: float = ratio) -> FineScale:
            return fine_scale_for(steps_of_requantization(scaling, channel, a, b), ratio, kind)

        pair = multiplier, shift
        if pair not in shared:
            alike = np.array([p == pair for p in pairs]) & ~fixed
            shared[pair] = solve(int(low[alike].min()), int(high[alike].max()))
        scale = shared[pair]
        if scale.differing:
            scale = solve(int(low[channel]), int(high[channel]))
        found.append(scale)
    return found


def _nudged(scales: Sequence[FineScale], scaling: Requantization) -> Requantization:
    """Return scales as a requantisation, with one number for all channels if they are equal."""
    columns = [[getattr(s, name) for s in scales] for name in ("multiplier", "shift", "nudge")]
    multiplier, shift, nudge = (np.array(column) for column in columns)
    if all(len(set(column)) == 1 for column in columns):
        multiplier, shift, nudge = multiplier[0], shift[0], nudge[0]
    bounds = scaling.zero_point, scaling.clip
    return Requantization(multiplier, shift, *bounds, "nudged", nudge, scales[0].kind)


# --------------------------------------------------------------------------------- means


@_form.register
def _(op: ops.AveragePool, node: Node, given: Sequence[Span], target: Target) -> Form | None:
    scaling, (source,) = op.requantization, node.inputs
    size = op.window(source).count
    low, high = (size * int(end) for end in (-128 - source.zero_point, 127 - source.zero_point))
    if scaling.rounding == "quotient":
        return _quotient(op, node, target)
    if op.differs(source) or not scaling.multiplier.any():
        return None
    if target.fine:
        chosen, _ = _fine_channels(scaling, np.array([low]), np.array([high]))
        made = replace(op, requantization=_nudged(chosen, scaling))
        return Form(made, chosen[0].differing, high - low + 1)
    ratio = float(scaling.multiplier) / 2.0 ** float(scaling.shift)
    shifts = not target.scales
    zero, clip = scaling.zero_point, scaling.clip
    made = ops.AveragePool.from_ratio(
        ratio * size * op.factor,
        size,
        shifts_only=shifts,
        zero_point=zero,
        clip=clip,
        **op.windowed,
    )
    sums = np.arange(low, high + 1)
    off = made.requantization.apply(sums * made.factor) != scaling.apply(sums * op.factor)
    return Form(made, int(np.count_nonzero(off)), len(sums))


def _quotient(op: ops.AveragePool, node: Node, target: Target) -> Form:
    """Return TFLite's pool: unchanged with fine scales, else the nearest one."""
    (source,) = node.inputs
    size, scaling = op.window(source).count, op.requantization
    counts = [size]
    if op.differs(source):
        counts = np.unique(np.multiply.outer(*op.counts(source))).tolist()
    if target.fine:
        off = sum(quotient_scale(count).differing for count in counts)
        return Form(op, off, 255 * sum(counts))
    made = ops.AveragePool.from_ratio(
        1.0,
        size,
        shifts_only=not target.scales,
        zero_point=scaling.zero_point,
        clip=scaling.clip,
        **op.windowed,
    )
    off = total = 0
    for count in counts:
        sums = np.arange(-128 * count, 127 * count + 1) - count * source.zero_point
        factor, own = made.of_count(count, size)
        _, wanted = op.of_count(count, size)
        off += int(np.count_nonzero(own.apply(sums * factor) != wanted.apply(sums)))
        total += len(sums)
    return Form(made, off, total)


# --------------------------------------------------------------------------- elementwise


@_form.register
def _(op: ops.Requantize, node: Node, given: Sequence[Span], target: Target) -> Form:
    (values,) = _values(node, given)
    channels = op.requantization.channels
    if channels > 1 and target.fine:
        low, high = np.full(channels, values.min()), np.full(channels, values.max())
        chosen, _ = _fine_channels(op.requantization, low, high)
        made = replace(op, requantization=_nudged(chosen, op.requantization))
        return Form(made, sum(scale.differing for scale in chosen), channels * values.size)
    if channels > 1:
        values = np.repeat(values[:, None], channels, axis=1)
    return _pointwise(op, (values,), op.requantization.apply(values), node, target)


@_form.register
def _(op: ops.Multiply, node: Node, given: Sequence[Span], target: Target) -> Form:
    a, b = _values(node, given)
    sums = np.multiply.outer(a, b)
    return _pointwise(op, (sums,), op.requantization.apply(sums), node, target)


def _values(node: Node, given: Sequence[Span]) -> list[Integers]:
    """Return all values of the inputs, in steps from their zero points."""
    return [
        np.arange(int(low.min()), int(high.max()) + 1) - tensor.zero_point
        for tensor, (low, high) in zip(node.inputs, given, strict=True)
    ]


def _pointwise(op: Any, sums: tuple[Array], results: Array, node: Node, target: Target) -> Form:
    """Return an operator of one sum with the scale that gives the specified results at its sums."""
    scaling, (values,) = op.requantization, sums
    if target.fine:
        ratio = max(float(scaling.multiplier), 1.0) / 2.0 ** float(scaling.shift)
        steps = _steps_of_results(values, results, scaling)
        assert steps is not None  # a requantisation is monotone
        found = [fine_scale_for(steps, ratio, kind) for kind in KINDS[scaling.rounding]]
        made = _nudged([min(found, key=lambda scale: scale.differing)], scaling)
    else:
        made = _coarse(scaling, op, node, target)
    off = np.count_nonzero(made.apply(values) != results)
    return Form(replace(op, requantization=made), int(off), values.size)


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


@_form.register
def _(op: ops.RescaledAdd, node: Node, given: Sequence[Span], target: Target) -> Form:
    return _addition(op, node, given, fine=target.fine, plain=not target.scales)


@_form.register
def _(op: ops.Add, node: Node, given: Sequence[Span], target: Target) -> Form | None:
    if target.scales:
        return None
    scaling = op.requantization
    ratio = float(scaling.multiplier) / 2.0 ** float(scaling.shift)
    made = _shifted_sum(op.factors[0] * ratio, op.factors[1] * ratio, scaling)
    if made is None:
        return None
    a, b = _values(node, given)
    results = scaling.apply(op.sums(a[:, None], b[None, :]))
    return Form(made, _pairs_off(made, a, b, results), results.size)


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
    if not all(factors):
        return None
    shifts = Requantization(1, shift, scaling.zero_point, scaling.clip)
    return ops.Add((factors[0], factors[1]), shifts)


def _addition(
    op: ops.RescaledAdd, node: Node, given: Sequence[Span], *, fine: bool, plain: bool = False
) -> Form:
    a, b = _values(node, given)
    results = op.requantization.apply(op.sums(a[:, None], b[None, :]))
    unit = [m / 2.0**s * (1 << 20) for m, s in zip(op.multipliers, op.shifts, strict=True)]
    scaling = op.requantization
    ratio = float(scaling.multiplier) / 2.0 ** float(scaling.shift)
    first, second = (each * ratio for each in unit)
    shifted = _shifted_sum(first, second, scaling) if plain else None
    best = shifted or ops.Add.from_ratios(first, second, scaling.zero_point, scaling.clip)
    fewest = _pairs_off(best, a, b, results)
    if fine:
        for factors in _factors(first, second):
            found = _fine_add(factors, first, a, b, results, scaling)
            off = results.size if found is None else _pairs_off(found, a, b, results)
            if found is not None and off <= max(fewest - 1, 0):
                best, fewest = found, off
            if not fewest:
                break
    return Form(best, fewest, results.size)


def _on_host(node: Node) -> Form | None:
    """Return a host addition equal to TFLite's; None if there is none."""
    if not isinstance(node.op, ops.RescaledAdd):
        return None
    form = _addition(node.op, node, [_ANY, _ANY], fine=True)
    return None if form.differing else form


def _pairs_off(op: ops.Add, a: Integers, b: Integers, results: Array) -> int:
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


def _fine_add(
    factors: tuple[int, int],
    ratio: float,
    a: Integers,
    b: Integers,
    results: Array,
    scaling: Requantization,
) -> ops.Add | None:
    """Return the addition whose factors come nearest to the results; None if there is none."""
    sums = factors[0] * a[:, None] + factors[1] * b[None, :]
    steps = _steps_of_results(sums, results, scaling)
    if steps is None:
        return None
    found = [fine_scale_for(steps, ratio / factors[0], kind) for kind in (1, 2)]
    scale = min(found, key=lambda each: each.differing)
    return ops.Add(factors, _nudged([scale], scaling))
