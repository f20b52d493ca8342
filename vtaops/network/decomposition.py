"""Replace operators that VTA lacks by others that it has, with the same integer results.

Without tables, a leaky ReLU is a sum of the tensor and its negative part: ``p * v + (n - p) *
min(v, 0)``. The negative part is a clip at the zero point. If factors differ by channel, the sum is
a depthwise convolution with a residual.

A transposed convolution with groups or a dilation is one with zeros between its weights. One of a
tensor with a zero point uses other taps, and hence another constant,
for each phase of its result. A convolution computes every phase in separate channels; then a
transposed convolution with one tap moves the pixels of the phases into place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from vtaops.base.exact import convolve
from vtaops.base.shapes import Array, ceil_div
from vtaops.graph import Graph, Node, Requantization, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator, Pattern
from vtaops.graph.weighted import spread
from vtaops.network.lower import ON_HOST, reason_for_host
from vtaops.network.lower_sums import ungrouped
from vtaops.network.slopes import nearest_factors
from vtaops.network.target import Target

Steps = tuple[tuple[GraphOperator, Sequence[int]], ...]
"""Operators, each with its operands: inputs of the node from 0 on, or -1 for the one before."""


@dataclass(frozen=True)
class Decomposition:
    """The operators in place of a node.

    Attributes
    ----------
    steps : tuple of (GraphOperator, sequence of int)
        Each with its operands: inputs of the node from 0 on, or -1 for the one before.
    note : str
        How the results differ from the node's; empty if they are equal.
    """

    steps: Steps
    note: str = ""


def decomposition_of(node: Node, graph: Graph, target: Target) -> Decomposition | None:
    """Return operators for a node that VTA cannot execute as one; None if there are none."""
    make = _DECOMPOSITIONS.get(type(node.op))
    if make is None or not (make is _convolution or reason_for_host(node, graph, target)):
        return None
    found = make(node, graph, target)
    if isinstance(found, Decomposition):
        return found
    return Decomposition(found) if found else None  # an Expand to its own shape has no steps


def _reads_channels(node: Node, graph: Graph, target: Target) -> bool:
    """Return whether a convolution of one line reads one that VTA made as channels."""
    assert isinstance(node.op, ops.Convolution)
    shape = node.inputs[0].shape
    if node.op.weight.shape[:2] != (1, 1) or 1 not in shape[2:] or len(node.inputs) > 1:
        return False
    moves, maker = False, graph.maker(node.inputs[0])
    while maker is not None and isinstance(maker.op, ops.Reshape | ops.Transpose):
        moves = moves or bool(reason_for_host(maker, graph, target))
        maker = graph.maker(maker.inputs[0])
    return moves and maker is not None and not isinstance(maker.op, ON_HOST)


def _lookup_table(node: Node, graph: Graph, target: Target) -> Decomposition | None:
    """Return a leaky ReLU that comes within a step of a table of two slopes."""
    op, data = node.op, node.inputs[0]
    assert isinstance(op, ops.LookupTable)
    found = nearest_factors(op, data.zero_point, shifts_only=not target.scales)
    if found is None:
        return None
    (positive, *negative), scaling, off = found
    rest, zero = np.array(negative) - positive, data.zero_point
    total: GraphOperator
    if len(rest) == 1 and rest.any():
        total = ops.Add((int(rest[0]), int(positive)), scaling)
    elif len(data.shape) == 4:
        channels = data.shape[1]
        weight = np.broadcast_to(rest, (channels,)).astype(np.int8).reshape(-1, 1, 1, 1)
        total = ops.Convolution(weight, None, scaling, groups=channels, residual_factor=positive)
    else:
        return None
    below = ops.Requantize(Requantization(1, 0, zero, (-128, zero)))
    note = f"a step off for {off} of {op.table.size} values"
    return Decomposition(((below, (0,)), (total, (-1, 0))), note)


def _transposed(node: Node, graph: Graph, target: Target) -> Steps | None:
    assert isinstance(node.op, ops.TransposedConvolution)
    op = _plain(node.op)
    if op is None:
        return None
    if op is not node.op and not reason_for_host(replace(node, op=op), graph, target):
        return ((op, (0,)),)
    return _by_phases(op, node)


def _plain(op: ops.TransposedConvolution) -> ops.TransposedConvolution | None:
    """Return an equal transposed convolution without groups and dilation; None if too large."""
    if op.groups == 1 and op.dilation == (1, 1):
        return op
    weight = spread(op.weight, op.dilation)
    if weight.size * op.groups > MOST_WEIGHTS:
        return None
    return replace(op, weight=ungrouped(weight, op.groups), groups=1, dilation=(1, 1))


def _by_phases(op: ops.TransposedConvolution, node: Node) -> Steps | None:
    *_, height, width = node.inputs[0].shape
    rows, columns = node.outputs[0].shape[2:]
    window, (top, left, *_) = op.window, op.padding
    (stride_h, stride_w), outputs = window.strides, op.weight.shape[1]
    # Rows per phase: those of the result and those cut off above them.
    size = ceil_div(top + rows, stride_h), ceil_div(left + columns, stride_w)
    taps = tuple(map(ceil_div, window.kernel, window.strides))
    bottom, right = size[0] - height, size[1] - width
    phases = _phases(op.weight, (stride_h, stride_w), (taps[0], taps[1]))
    if min(bottom, right) < 0 or phases.size > MOST_WEIGHTS:
        return None
    each = op.requantization.repeated(stride_h * stride_w)
    bias = None if op.bias is None else np.repeat(op.bias, stride_h * stride_w)
    first = ops.Convolution(phases, bias, each, padding=(taps[0] - 1, taps[1] - 1, bottom, right))
    weight = np.eye(len(phases), dtype=np.int8).reshape(-1, outputs, stride_h, stride_w)
    cut = (top, left, size[0] * stride_h - top - rows, size[1] * stride_w - left - columns)
    unchanged = Requantization(1, 0, op.requantization.zero_point)
    placed = ops.TransposedConvolution(
        weight, None, unchanged, strides=(stride_h, stride_w), padding=cut
    )
    return (first, (0,)), (placed, (-1,))


MOST_WEIGHTS = 1 << 24
"""Maximum number of weights of the convolution for the phases."""


def _phases(weight: Array, strides: tuple[int, int], taps: tuple[int, int]) -> Array:
    """Return the weights (O * phases, C, taps) of a convolution that computes all phases.

    Phase r of the result reads tap ``r + stride * t`` at the pixel t positions before.
    """
    channels, _, *kernel = weight.shape
    more = [(0, n * step - k) for n, step, k in zip(taps, strides, kernel, strict=True)]
    padded = np.pad(weight, ((0, 0), (0, 0), *more))
    split = padded.reshape(channels, -1, taps[0], strides[0], taps[1], strides[1])
    turned = split.transpose(1, 3, 5, 0, 2, 4)[..., ::-1, ::-1]
    return np.ascontiguousarray(turned.reshape(-1, channels, *taps))


def _convolution(node: Node, graph: Graph, target: Target) -> Steps | None:
    """Return the product of a line with the matrix that holds the taps of a convolution."""
    op, (line,), (result,) = node.op, node.inputs[:1], node.outputs
    assert isinstance(op, ops.Convolution)
    batch, size = line.shape[0], prod(line.shape)
    if (
        not _reads_channels(node, graph, target)
        or size // batch * prod(result.shape) > MOST_WEIGHTS
    ):
        return None
    each = np.eye(size // batch, dtype=np.int8).reshape(-1, *line.shape[1:])
    taps = convolve(each, op.weight, op.window).reshape(len(each), -1).T
    bias = None if op.bias is None else np.repeat(op.bias, len(taps))
    one = {name: getattr(op.requantization, name).reshape(()) for name in ("multiplier", "shift")}
    product = ops.Dense(taps.astype(op.weight.dtype), bias, replace(op.requantization, **one))
    rows = ops.Reshape((batch, len(each)))
    return (rows, (0,)), (product, (-1,)), (ops.Reshape(result.shape), (-1,))


def _expanded(node: Node, graph: Graph, target: Target) -> Steps | None:
    (data,), (result,) = node.inputs, node.outputs
    readers = graph.consumers(result)
    read = {reader.op.pattern for reader in readers}
    if read.isdisjoint({Pattern.WINDOWS, Pattern.ELEMENTWISE}):
        return None
    return _repeated_pixels(data, result.shape, graph)


def _repeated_pixels(data: Tensor, shape: tuple[int, ...], graph: Graph) -> Steps | None:
    """Return operators that repeat channels and pixels; None if the host can do so for nothing."""
    maker = graph.maker(data)
    if maker is None or isinstance(maker.op, ON_HOST) or {len(data.shape), len(shape)} != {4}:
        return None
    (n, c, h, w), (batch, channels, height, width) = data.shape, shape
    if n != batch:
        return None
    found: list[GraphOperator] = []
    if w < width:
        found.append(ops.Upsample((1, width)))
    if h < height:
        found.append(ops.Upsample((height, 1)))
    if c < channels:
        ones = np.ones((channels, 1, 1, 1), np.int8)
        found.append(ops.Convolution(ones, None, Requantization(1, 0, data.zero_point)))
    return tuple((op, (-1 if number else 0,)) for number, op in enumerate(found))


def _added(node: Node, graph: Graph, target: Target) -> Steps | None:
    """Return the sum of an image and one value for each of its channels."""
    image, other = node.inputs
    if image.shape == other.shape:
        return None
    found = _repeated_pixels(other, image.shape, graph) or ((ops.Expand(image.shape), (0,)),)
    (first, _), *others = found
    return (first, (1,)), *others, (node.op, (0, -1))


def _multiplied(node: Node, graph: Graph, target: Target) -> Steps | None:
    """Return the product of as many matrices by as many."""
    assert isinstance(node.op, ops.Matmul)
    a, b = node.inputs
    leading = node.op.leading(node.inputs)
    if prod(b.shape[:-2]) == 1:
        return None
    if b.shape[:-2] == leading:
        return (ops.Expand((*leading, *a.shape[-2:])), (0,)), (node.op, (-1, 1))
    if a.shape[:-2] == leading:
        return (ops.Expand((*leading, *b.shape[-2:])), (1,)), (node.op, (0, -1))
    return None


_DECOMPOSITIONS: dict[
    type[GraphOperator], Callable[[Node, Graph, Target], Decomposition | Steps | None]
] = {
    ops.Add: _added,
    ops.Convolution: _convolution,
    ops.Expand: _expanded,
    ops.LookupTable: _lookup_table,
    ops.Matmul: _multiplied,
    ops.RescaledAdd: _added,
    ops.TransposedConvolution: _transposed,
}
"""Decompositions by operator."""
