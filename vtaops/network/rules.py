"""Rules: which nodes of a graph VTA can execute, and the reasons against the others.

They depend only on a node and the hardware, without compiling, so that a plan is cheap. A node
without a reason is mapped by `vtaops.network.mapping`, which relies on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.fixed_point import MAX_SHIFT, TWO_DIGITS
from vtaops.graph import Graph, Node, Requantization
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator
from vtaops.machine.capabilities import Capabilities, Feature
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.network.averages import parts
from vtaops.network.epilogue import common_shift, largest_sums, products_fit, sum_constant
from vtaops.network.views import Storage, joins_pixels, made, storages
from vtaops.ops.epilogue import offset_stages

LARGEST_WEIGHT = 127


@dataclass(frozen=True)
class Target:
    """The hardware for which a network is compiled."""

    config: HardwareConfig
    capabilities: Capabilities

    @property
    def scales(self) -> bool:
        """Whether it requantises by fixed-point scales instead of only by shifts."""
        return self.config.has(Extension.POST)

    @property
    def fine(self) -> bool:
        """Whether its fixed-point scales may be fine ones."""
        return self.config.has(Extension.EXACT)

    @property
    def multiplies(self) -> bool:
        """Whether it has no fixed-point scales, but an ALU that multiplies each channel."""
        return not self.scales and self.capabilities.has(Feature.MUL)

    def needs_product(self, scaling: Requantization) -> bool:
        """Whether only a multiplier for each channel requantises: no scales, no common shift."""
        return not self.scales and scaling.right_shift is None

    @property
    def tables(self) -> bool:
        """Whether it supports lookup tables for results."""
        return self.config.has(Extension.TABLE)


ON_HOST = (
    ops.Host
    | ops.FloatOperator
    | ops.Quantize
    | ops.Dequantize
    | ops.Constant
    | ops.FromUint8
    | ops.ToUint8
)
"""Operators that always run on the host."""


def reason_for_host(node: Node, graph: Graph, target: Target) -> str:
    """Return why a node runs on the host; empty if VTA can execute it."""
    for tensor in (*node.inputs, *node.outputs):
        if not isinstance(node.op, ON_HOST) and tensor.dtype != "int8":
            return f"{tensor.name} is {tensor.dtype}; VTA computes on int8"
    reason = (
        _reason(node.op, node, graph, target)
        or _reason_of_storage(node, graph)
        or _rounding_reason(node.op, target)
    )
    return reason if isinstance(node.op, ops.Host) else _named(reason, node.op.kind)


def _named(reason: str, kind: str) -> str:
    """Return a reason with the name of the operator in place of its pronoun."""
    name = f"the {kind.replace('_', ' ').replace('+', ' with ')}"
    for pronoun, noun in (("its ", f"{name}'s "), ("it ", f"{name} ")):
        if reason.startswith(pronoun):
            return noun + reason.removeprefix(pronoun)
    return reason


MAX_EXTENT = 1 << 18
"""Maximum size of an image axis, because the compiler lists them; vocabularies are smaller."""


def _reason_of_storage(node: Node, graph: Graph) -> str:
    """Return why an operator cannot read or write the images that hold its tensors."""
    if isinstance(node.op, ON_HOST | ops.Matmul):
        return ""
    known, found = storages(graph), []
    for tensor in (*node.inputs, *node.outputs):
        if (storage := known.get(tensor.name)) is None:
            return f"{tensor.name} has rank {len(tensor.shape)}; VTA's images need 2 or more"
        if (extent := max(storage.image)) > MAX_EXTENT:
            return f"{tensor.name} has an axis of {extent:,}; an image's are at most {MAX_EXTENT:,}"
        found.append(storage)
    given, result = found[:-1], found[-1]
    return "" if made(node.op, node, given) == result else _misfit(node, given)


def _misfit(node: Node, given: Sequence[Storage]) -> str:
    """Return why an operator cannot read its inputs as they are stored."""
    data = node.inputs[0]
    before, after = data.shape, node.outputs[0].shape
    if isinstance(node.op, ops.Reshape | ops.Transpose):
        return (
            f"its bytes move: {before} to {after}; on VTA, a view keeps the pixels of images apart "
            f"from their channels"
        )
    if isinstance(node.op, ops.Concat | ops.Slice):
        does = "joins" if isinstance(node.op, ops.Concat) else "cuts"
        return f"it {does} axis {node.op.axis} of {before}; VTA {does} channels or adjacent pixels"
    stored = " and ".join(map(str, given))
    return f"{data.name} lies as {stored}, as others read it; {node.op.kind} has other channels"


def _rounding_reason(op: GraphOperator, target: Target) -> str:
    """Return why VTA cannot round like an operator; empty if it can."""
    rounding = op.requantization.rounding if isinstance(op, ops.Requantized) else "half_up"
    if rounding in ("once", "twice"):
        return "it rounds like TFLite, which VTA can only approximate; with 'exact', it is equal"
    if rounding != "half_up" and not target.fine:
        return f"{target.config.name} has no extension 'exact', which has its scales"
    return ""


def is_free(op: GraphOperator) -> bool:
    """Whether an operator moves no data on VTA: its result is another view of its input."""
    views = ops.Concat | ops.Slice | ops.ChannelShuffle | ops.Reshape | ops.Transpose
    return isinstance(op, views)


def is_view(node: Node, graph: Graph) -> bool:
    """Return whether the result of a node on VTA is another view of its input."""
    if isinstance(node.op, ops.Slice):
        return not joins_pixels(node, storages(graph)[node.inputs[0].name])
    return is_free(node.op) and not isinstance(node.op, ops.Concat)


@singledispatch
def _reason(op: GraphOperator, node: Node, graph: Graph, target: Target) -> str:
    return f"VTA has no {op.kind}"


@_reason.register
def _(op: ops.Host, node: Node, graph: Graph, target: Target) -> str:
    return op.reason or "it is not an integer operator"


@_reason.register
def _(op: ops.FloatOperator, node: Node, graph: Graph, target: Target) -> str:
    return f"VTA has no operator {op.kind}"


@_reason.register
def _(op: ops.Quantize | ops.Dequantize, node: Node, graph: Graph, target: Target) -> str:
    return "the quantize/dequantize boundary"


@_reason.register
def _(op: ops.Convolution, node: Node, graph: Graph, target: Target) -> str:
    if target.scales:
        return _factor_reason(op)
    shift = op.requantization.right_shift
    if shift is None:
        return _product_reason(op, node, target, alone=op.residual_factor is None)
    factor = 0
    if op.residual_factor is not None:
        factors = np.unique(op.residual_factor)
        if factors.size > 1:
            return "its residual has a factor for each channel; VTA scales all channels alike"
        factor = int(factors[0])
        if factor >> common_shift(factor, max(shift, 0)) > LARGEST_WEIGHT:
            return f"its residual has the factor {factor}, which is not an int8 times 2**{shift}"
    return _sum_reason(op.weight, op.bias, op.requantization, node, target, factor)


@_reason.register
def _(op: ops.TransposedConvolution, node: Node, graph: Graph, target: Target) -> str:
    zero_point = node.inputs[0].zero_point
    if op.groups > 1 or op.dilation != (1, 1):
        return (
            f"it has {op.groups} groups and the dilation {op.dilation}; with zeros between its "
            f"weights, they would be too many or its sums not those of VTA"
        )
    if zero_point and not one_tap(op):  # each phase has other taps, hence another constant
        return f"its input has the zero point {zero_point}; transposed, VTA needs 0"
    return _sum_reason(constant_weight(op), op.bias, op.requantization, node, target)


@_reason.register
def _(op: ops.Dense, node: Node, graph: Graph, target: Target) -> str:
    if target.needs_product(op.requantization):
        return _product_reason(op, node, target)
    return _sum_reason(op.weight, op.bias, op.requantization, node, target)


@_reason.register
def _(op: ops.Matmul, node: Node, graph: Graph, target: Target) -> str:
    if op.requantization.fine:
        return "it has a fine scale; VTA multiplies two tensors with coarse ones"
    a, b = (tensor.shape[:-2] for tensor in node.inputs)
    if math.prod(b) > 1 and a != b:
        return f"it multiplies {a} by {b} matrices; VTA by as many, or by one"
    if target.scales:
        return ""
    shift = op.requantization.right_shift
    if shift is None or shift > MAX_SHIFT:
        return no_shift(op.requantization)
    if shift < 0:
        return f"its scales need a shift to the left by {-shift}"
    constant = (abs(op.requantization.zero_point) << shift) + (1 << shift >> 1)
    if 255 * 255 * node.inputs[0].shape[-1] + constant >= ops.ACCUMULATOR:
        return "its sums with the constant of the zero points could leave int32"
    return ""


@_reason.register
def _(op: ops.AveragePool, node: Node, graph: Graph, target: Target) -> str:
    (data,), (result,) = node.inputs, node.outputs
    if op.differs(data):
        try:
            list(parts(op, data, result, target.scales))
        except ShapeError as error:
            return f"in parts of equal windows: {error}"
        return ""
    weight = np.full((1, 1, *op.window(data).kernel), op.factor, np.int8)
    return _sum_reason(weight, None, op.requantization, node, target)


@_reason.register
def _(op: ops.Add, node: Node, graph: Graph, target: Target) -> str:
    a, b = node.inputs
    if a.shape != b.shape:
        return f"its operands have the shapes {a.shape} and {b.shape}; VTA adds equal ones"
    if target.scales:
        return _wide("its factors are", op.factors)
    shift = op.requantization.right_shift
    if shift is None or shift > MAX_SHIFT:
        return no_shift(op.requantization)
    if shift < 0:
        return f"its scales need a shift to the left by {-shift}"
    constant = addition_constant(op, node)
    if 128 * sum(map(abs, op.factors)) + abs(constant) >= ops.ACCUMULATOR:
        return "its sums with the constant of the zero points could leave int32"
    return "" if addition(op.factors, shift) else _wide_sum_reason(op, node, shift)


@_reason.register
def _(op: ops.Multiply, node: Node, graph: Graph, target: Target) -> str:
    if not target.capabilities.has(Feature.MUL):
        return f"{target.capabilities.name} cannot multiply two tensors"
    return _one_constant(op.requantization, node, target)


@_reason.register
def _(op: ops.Requantize, node: Node, graph: Graph, target: Target) -> str:
    if target.needs_product(op.requantization):
        return _product_reason(op, node, target)
    return _sum_reason(np.ones((1, 1), np.int8), None, op.requantization, node, target)


@_reason.register
def _(op: ops.LeakyRelu, node: Node, graph: Graph, target: Target) -> str:
    if np.ndim(op.negative):
        return "it has a factor for each channel; VTA scales all its channels alike"
    if op.negative > op.positive or op.negative == 0:
        return f"its factors are {op.positive} and {op.negative}; VTA takes the greater product"
    return _symmetric(op.requantization, node, target)


@_reason.register
def _(op: ops.LookupTable, node: Node, graph: Graph, target: Target) -> str:
    if op.table.ndim > 1:
        return "it has a table for each channel; VTA maps all channels alike"
    return "" if target.tables else f"{op.kind} is a table, which {target.config.name} lacks"


@_reason.register
def _(op: ops.MaxPool, node: Node, graph: Graph, target: Target) -> str:
    if op.dilation != (1, 1):
        return f"its windows have the dilation {op.dilation}; VTA compares adjacent pixels"
    return ""


@_reason.register
def _(op: ops.Constant, node: Node, graph: Graph, target: Target) -> str:
    return "a constant, which the host passes"


@_reason.register
def _(op: ops.FromUint8 | ops.ToUint8, node: Node, graph: Graph, target: Target) -> str:
    return "the uint8 boundary"


@_reason.register
def _(op: ops.Expand, node: Node, graph: Graph, target: Target) -> str:
    before, after = node.inputs[0].shape, node.outputs[0].shape
    return f"it repeats {before} to {after}; VTA repeats channels and pixels of images that it made"


@_reason.register
def _(
    op: ops.ChannelShuffle
    | ops.Upsample
    | ops.Pad
    | ops.Concat
    | ops.Slice
    | ops.Reshape
    | ops.Transpose,
    node: Node,
    graph: Graph,
    target: Target,
) -> str:
    return ""


def flattens(node: Node, graph: Graph) -> bool:
    """Return whether a reshape flattens images for dense layers, which can also read images."""
    if not isinstance(node.op, ops.Reshape):
        return False
    storage = storages(graph)[node.outputs[0].name]
    readers = graph.consumers(node.outputs[0])
    return storage.pixels > 1 and all(
        isinstance(n.op, ops.Dense) and not storage.ends_in(n.op.weight.shape[1]) for n in readers
    )


def one_tap(op: ops.TransposedConvolution) -> bool:
    """Return whether every pixel of the result has one tap, all with the same sum of weights."""
    weight = op.weight.astype(np.int64)
    sums = np.stack([weight.sum(axis=0), np.abs(weight).sum(axis=0)])
    alone = op.weight.shape[2:] == op.strides and op.output_padding == (0, 0)
    return alone and bool((sums == sums[..., :1, :1]).all())


def constant_weight(op: ops.TransposedConvolution) -> npt.NDArray[np.int8]:
    """Return the weights that multiply the zero point of the input, output channels first."""
    weight: npt.NDArray[np.int8] = op.weight.transpose(1, 0, 2, 3)
    return weight[..., :1, :1] if one_tap(op) else weight


# ------------------------------------------------------------------------------ integers


def no_shift(scaling: Requantization) -> str:
    """Return why a requantisation is not a shift that VTA has; empty if it is."""
    shift = scaling.right_shift
    if shift is None:
        each = " for each channel" if scaling.multiplier.ndim or scaling.shift.ndim else ""
        return f"its scales need a multiplier or a shift{each}; this VTA shifts all channels alike"
    if shift > MAX_SHIFT:
        return f"its scales need a shift by {shift}; VTA shifts by at most {MAX_SHIFT}"
    return ""


def _no_right_shift(scaling: Requantization) -> str:
    """Return why a requantisation is no shift to the right that VTA has; empty if it is."""
    left = -(scaling.right_shift or 0)
    return f"its scales need a shift to the left by {left}" if left > 0 else no_shift(scaling)


def addition(factors: tuple[int, int], shift: int) -> tuple[bool, int, int, int] | None:
    """Return VTA's form of an addition: (swapped, first factor, second factor, intermediate shift).

    The first operand is multiplied and shifted by the intermediate bits; the second is added before
    the rest of the shift. This is exact, since the second product is a multiple of ``2**bits``.
    """
    for swapped, (first, second) in ((False, factors), (True, factors[::-1])):
        bits = common_shift(second, shift)
        if -128 <= first <= LARGEST_WEIGHT and -128 <= second >> bits <= LARGEST_WEIGHT:
            return swapped, first, second >> bits, bits
    return None


def addition_zeros(op: ops.Add, node: Node) -> int:
    """Return the contribution of the operands' zero points to an addition."""
    return -sum(f * t.zero_point for f, t in zip(op.factors, node.inputs, strict=True))


def addition_constant(op: ops.Add, node: Node) -> int:
    """Return the constant that VTA adds to the sums of an addition; like `sum_constant`."""
    return addition_zeros(op, node) + op.requantization.constant


def _wide_sum_reason(op: ops.Add, node: Node, shift: int) -> str:
    """Return why VTA cannot shift sums with factors of two digits; empty if it can."""
    try:
        offset_stages("sum", wide_constant(op, node), shift, "half_up")
    except ShapeError as error:
        return f"its constant of the zero points: {error}"
    return _wide("its factors are", op.factors)


def wide_constant(op: ops.Add, node: Node) -> int:
    """Return the constant of sums that round by themselves; as `addition_constant`."""
    scaling = op.requantization
    return addition_zeros(op, node) + (scaling.zero_point << (scaling.right_shift or 0))


def _factor_reason(op: ops.Convolution) -> str:
    """Return why a residual's factor does not have two int8 digits; empty if it has."""
    return "" if op.residual_factor is None else _wide("its residual has", op.residual_factor)


def _wide(what: str, factors: Any) -> str:
    greatest = int(np.abs(factors).max())
    if greatest <= TWO_DIGITS:
        return ""
    return f"{what} factors up to {greatest}; VTA's have two digits, at most {TWO_DIGITS}"


def _sum_reason(
    weight: npt.NDArray[Any],
    bias: npt.NDArray[Any] | None,
    scaling: Requantization,
    node: Node,
    target: Target,
    factor: int = 0,
) -> str:
    """Return why VTA cannot compute or requantise the sums of a node; empty if it can.

    With fixed-point scales, the constants are those of the sums, which fit int32 (`Graph.add`).
    """
    shift = scaling.right_shift
    if target.scales or shift is None or shift > MAX_SHIFT:
        return "" if target.scales else no_shift(scaling)
    if shift < 0:
        if factor or (np.abs(weight.astype(np.int64)) << -shift).max() > LARGEST_WEIGHT:
            return f"its scales need a shift to the left by {-shift}"
        weight = weight.astype(np.int64) << -shift
        bias = None if bias is None else bias.astype(np.int64) << -shift
    zero_points = tuple(tensor.zero_point for tensor in node.inputs)[: 1 + bool(factor)]
    constant = sum_constant(weight, bias, zero_points, factor) + scaling.constant
    reach = np.abs(weight.astype(np.int64)).reshape(len(weight), -1).sum(axis=1) + factor
    if (128 * reach + np.abs(constant)).max() >= ops.ACCUMULATOR:
        return "its sums with the constant of the zero points could leave int32"
    return ""


def _product_reason(
    op: ops.Convolution | ops.Dense | ops.Requantize,
    node: Node,
    target: Target,
    *,
    alone: bool = True,
) -> str:
    """Return why VTA cannot multiply the sums of each channel; empty if it can."""
    largest = largest_sums(*sums_of(op), node.inputs[0].zero_point)
    fits = alone and target.multiplies and products_fit(op.requantization, largest)
    return "" if fits else no_shift(op.requantization)


def sums_of(
    op: ops.Convolution | ops.Dense | ops.Requantize,
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int32] | None]:
    """Return the weights and the bias of an operator, output channels first."""
    if isinstance(op, ops.Requantize):
        return np.ones((1, 1), np.int8), None
    return op.weight, op.bias


def _one_constant(scaling: Requantization, node: Node, target: Target) -> str:
    """Return why VTA cannot requantise a product of tensors; empty if it can."""
    if target.scales:
        return ""
    if node.outputs[0].zero_point:
        return f"its result has the zero point {node.outputs[0].zero_point}; on VTA it needs 0"
    return _no_right_shift(scaling)


def _symmetric(scaling: Requantization, node: Node, target: Target) -> str:
    """Return why VTA cannot execute an operator that adds no constant; empty if it can."""
    if target.scales:  # fixed-point scaling adds the zero point of the result
        zero_points = {tensor.zero_point for tensor in node.inputs}
        if zero_points != {0}:
            return f"the zero points of its inputs are {sorted(zero_points)}; on VTA it needs 0"
        return ""
    zero_points = {tensor.zero_point for tensor in (*node.inputs, *node.outputs)}
    if zero_points != {0}:
        return f"its zero points are {sorted(zero_points)}; on VTA it needs 0"
    return _no_right_shift(scaling)
