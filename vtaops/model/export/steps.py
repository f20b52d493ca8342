"""The operators of a graph as steps of a bundle, encoded in the order of ``vta_steps.h``."""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import ceil_div
from vtaops.base.window import Window
from vtaops.graph import GraphOperator, Node, Quotient, Requantization, Tensor, operators
from vtaops.graph.fixed_softmax import exponentials
from vtaops.graph.thresholds import scale_of_quotient
from vtaops.graph.weighted import spread
from vtaops.model.export.blob import NONE, SlotNumber, StepKind
from vtaops.model.export.boxes import Places, places
from vtaops.model.export.values import Values

Words = tuple[int, ...]

_LANES, _BLOCK, _SHARED = 4, 32, 32
"""How ``vta_products.c`` divides its work."""


class NodeSteps:
    """Where a node adds its steps: its first input, its result, and the values before it."""

    def __init__(self, node: Node, values: Values) -> None:
        self.node, self.values, self.blob = node, values, values.blob
        self.constant, self.inputs, self.result = self.blob.constant, node.inputs, node.outputs[0]

    @property
    def data(self) -> Tensor:
        """The first input."""
        return self.inputs[0]

    @property
    def rows(self) -> Words:
        """How many rows the first input has, and the extent of its last axis."""
        *rows, columns = self.data.shape
        return math.prod(rows), columns

    @property
    def zero_points(self) -> Words:
        """The zero points of two inputs; 0 of one that is not there."""
        return (*(tensor.zero_point for tensor in self.inputs), 0)[:2]

    def bias(self, bias: np.ndarray | None) -> int:
        """Return a slot with a bias, if there is one."""
        return NONE if bias is None else self.constant(bias)

    def scaling(self, scaling: Requantization) -> Words:
        """Return the words of a requantization."""
        found = _pairs(scaling)
        return (self.constant(found), len(found), scaling.zero_point, *scaling.clip)

    def one(self, kind: StepKind, *words: int) -> None:
        """Add a step that makes the result from the first input."""
        self.blob.step(kind, self.values.slot(self.data), self.values.result(self.result), *words)


def add_node(node: Node, values: Values) -> None:
    """Add the steps of a node that runs on the host.

    Raises
    ------
    UnsupportedError
        If it is a float function that ONNX Runtime computes, or has weights of 16 bits.
    """
    if getattr(node.op, "weight", np.zeros(0)).dtype == np.int16:
        raise UnsupportedError(f"{node.name} has weights of 16 bits, which only VTA multiplies")
    _add(node.op, NodeSteps(node, values))


@singledispatch
def _add(op: GraphOperator, to: NodeSteps) -> None:
    reason = getattr(op, "reason", "")
    raise UnsupportedError(
        f"{to.node.name} ({op.kind}) has no C code: ONNX Runtime, NumPy or VTA alone computes it"
        f"{f' ({reason})' if reason else ''}; export a network whose float parts are quantised, or "
        "that ends before them"
    )


# ----------------------------------------------------------------------- sums of products


@_add.register
def _add_convolution(op: operators.Convolution, to: NodeSteps) -> None:
    image = places(to.values.slot(to.data), to.data.shape)
    _convolution(op, op.weight, op.window, image, to)


@_add.register
def _add_transposed_convolution(op: operators.TransposedConvolution, to: NodeSteps) -> None:
    """Add a convolution by the reversed taps, of pixels with zero points between them."""
    (n, c, height, width), (down, across) = to.data.shape, op.strides
    apart = np.full((n, c, height, down, width, across), to.data.zero_point, np.int64)
    apart[:, :, :, 0, :, 0] = to.values.array(to.data)
    slot = to.values.in_order(apart, 1)
    weight = spread(op.by_output, op.dilation)[:, :, ::-1, ::-1]
    top, left = (taps - 1 - side for taps, side in zip(weight.shape[2:], op.padding, strict=False))
    image = places(slot, (n, c, height * down, width * across))
    image = image[:, :, max(0, -top) :, max(0, -left) :]
    window = Window(weight.shape[2:], padding=(max(0, top), max(0, left), 0, 0))
    _convolution(op, weight, window, image, to)


def _convolution(
    op: operators.Convolution | operators.TransposedConvolution,
    weight: np.ndarray,
    window: Window,
    image: Places,
    to: NodeSteps,
) -> None:
    """Add a convolution of an image, and perhaps of a residual."""
    n, outputs, *found = to.result.shape
    residual = to.inputs[1:]
    factors = np.asarray(getattr(op, "residual_factor", 1) if residual else 1)
    to.blob.step(
        StepKind.CONVOLUTION,
        to.values.in_order(image, 1),
        to.constant(weight.transpose(0, 3, 2, 1)),
        to.bias(op.bias),
        *(map(to.values.slot, residual) if residual else [NONE]),
        to.constant(factors.astype(np.int32)),
        to.values.result(to.result),
        to.blob.temporary(_work_nbytes(weight.shape, op.groups, (*found,), window)),
        *(n, image.shape[1], outputs, op.groups),
        *to.zero_points,
        factors.size,
        *_window(image.shape[2:], (*found,), window),
        *to.scaling(op.requantization),
    )


def _work_nbytes(weight: Words, groups: int, found: Words, window: Window) -> int:
    """Return the workspace of a convolution in bytes, as ``vta_products.c`` requires it."""
    outputs, inside, *_ = weight
    rows, columns = found
    (down, across), stride, dilation = window.kernel, window.strides[1], window.dilation[1]
    if groups > 1 and groups == outputs and inside == 1:
        high, wide = window.reach(rows, columns)
        part = ceil_div(wide, stride)
        sums = rows * (part if window.strides == (1, 1) else columns)
        return 5 * (sums + sums % 2) + 2 * high * stride * part
    step = stride if dilation == 1 and stride < across else across
    depth = _padded(down * across * inside)
    band = (columns - 1) * step * down * inside + depth
    bands = min(rows, max(1, _SHARED // columns)) * band
    return 4 * _LANES * (columns + columns % 2) + 2 * (bands + _LANES * depth)


def _padded(depth: int) -> int:
    return ceil_div(depth, 16) * 16


@_add.register
def _add_dense(op: operators.Dense, to: NodeSteps) -> None:
    slots = to.values.slot(to.data), to.constant(op.weight), to.bias(op.bias)
    _matmul(op, to, slots, (1, *to.rows, len(op.weight), 1))


@_add.register
def _add_matmul(op: operators.Matmul, to: NodeSteps) -> None:
    a, b = to.inputs
    leading, rows, columns = op.leading(to.inputs), a.shape[-2], b.shape[-1]
    whole = (np.broadcast_to(to.values.array(x), (*leading, *x.shape[-2:])) for x in (a, b))
    slots = (*(to.values.in_order(array, 1) for array in whole), NONE)
    sizes = math.prod(leading), rows, a.shape[-1], columns, 0
    _matmul(op, to, slots, sizes)


def _matmul(
    op: operators.Dense | operators.Matmul, to: NodeSteps, slots: Words, sizes: Words
) -> None:
    _, rows, depth, *_ = sizes
    widened = 2 * (_LANES + min(rows, _BLOCK)) * _padded(depth)
    to.blob.step(
        StepKind.MATMUL,
        *slots,
        to.values.result(to.result),
        to.blob.temporary(4 * _LANES * _BLOCK + widened),
        *sizes,
        *to.zero_points,
        *to.scaling(op.requantization),
    )


def _window(size: Words, found: Words, window: Window) -> Words:
    sides = window.padding[:2]
    return (*size, *found, *window.kernel, *window.strides, *window.dilation, *sides)


def _pairs(scaling: Requantization) -> np.ndarray:
    """Return multipliers and shifts, and the rounding correction by sign."""
    shifts = scaling.shift | (scaling.by_sign >> 14) % (1 << 24) << 8
    pairs = np.stack(np.broadcast_arrays(scaling.multiplier, shifts), axis=-1)
    return pairs.reshape(-1, 2).astype(np.uint32)


# ----------------------------------------------------------------------------- pooling


@_add.register
def _add_max_pool(op: operators.MaxPool, to: NodeSteps) -> None:
    unchanged = NONE, 0, 0, 0, 0, 1
    _pool(to, to.values.slot(to.data), op.window(to.data), (NONE, 0), unchanged)


@_add.register
def _add_average_pool(op: operators.AveragePool, to: NodeSteps) -> None:
    source, window, cases = to.values.slot(to.data), op.window(to.data), (NONE, 0)
    if op.differs(to.data):
        entries = []
        for real in np.unique(np.multiply.outer(*op.counts(to.data))).tolist():
            factor, scaling = op.of_count(real, window.count)
            entries.append([real, factor, *_pairs(_of_values(scaling, real))[0]])
        cases = to.constant(np.array(entries, np.uint32)), len(entries)
    zero = 0 if isinstance(op.requantization, Quotient) else to.data.zero_point
    given = to.scaling(_of_values(op.requantization, window.count))
    _pool(to, source, window, cases, (*given, op.factor), zero)


def _of_values(scaling: Requantization | Quotient, count: int) -> Requantization:
    """Return a quotient of `count` values as a product; leave requantizations unchanged."""
    return scale_of_quotient(scaling, count) if isinstance(scaling, Quotient) else scaling


def _pool(
    to: NodeSteps, source: SlotNumber, window: Window, cases: Words, scaling: Words, zero: int = 0
) -> None:
    n, channels, *size = to.data.shape
    to.blob.step(
        StepKind.POOL,
        source,
        to.values.result(to.result),
        *cases,
        *(n * channels, channels, zero),
        *_window((*size,), to.result.shape[2:], window),
        *scaling,
    )


# ------------------------------------------------------------------------- elementwise


@_add.register
def _add_pair(op: operators.Add | operators.Multiply | operators.Extremum, to: NodeSteps) -> None:
    kind = StepKind[getattr(op, "function", type(op).__name__).upper()]
    unchanged = Requantization(1, 0, to.result.zero_point)
    scaling = to.scaling(getattr(op, "requantization", unchanged))
    first, second = to.inputs
    broadcast = first.shape != second.shape
    to.blob.step(
        kind,
        to.values.slot(first),
        to.values.slot(second),
        to.values.result(to.result),
        *_channels(first, broadcast or scaling[1] > 1),
        broadcast,
        *to.zero_points,
        *getattr(op, "factors", (1, 1)),
        *scaling,
    )


def _channels(tensor: Tensor, needed: bool) -> Words:
    """Return a shape as (outer, channels, inner), with channels on axis 1."""
    if not needed:
        return 1, 1, tensor.elements
    return tensor.shape[0], tensor.shape[1], math.prod(tensor.shape[2:])


@_add.register
def _add_function(
    op: operators.LookupTable | operators.Requantize | operators.FromUint8 | operators.ToUint8,
    to: NodeSteps,
) -> None:
    """Add a function of one value as a table of its results."""
    tables = getattr(op, "requantization", Requantization()).channels
    if isinstance(op, operators.LookupTable):
        tables = op.table.size // 256
    every = np.broadcast_to(np.arange(-128, 128).astype(np.int8), (1, tables, 256))
    results = op.reference(to.inputs, every.view(to.data.dtype))
    to.one(StepKind.TABLE, to.constant(results), tables, *_channels(to.data, tables > 1))


# ------------------------------------------------------------------------------ movement


@_add.register
def _add_movement(
    op: operators.Concat | operators.Slice | operators.Transpose | operators.Expand | operators.Pad,
    to: NodeSteps,
) -> None:
    """Move places as the operator moves elements."""
    arrays = map(to.values.array, to.inputs)
    to.values.define(to.result, op.reference(to.inputs, *arrays))


@_add.register
def _add_upsample(op: operators.Upsample, to: NodeSteps) -> None:
    data, (rows, columns) = to.data, op.factors
    n, c, h, w = data.shape
    each = to.values.array(data)[:, :, :, None, :, None]
    spread = np.broadcast_to(each, (n, c, h, rows, w, columns))
    to.values.define(to.result, to.values.in_order(spread, data.itemsize))


@_add.register
def _add_constant(op: operators.Constant, to: NodeSteps) -> None:
    to.values.define(to.result, to.constant(np.ascontiguousarray(op.value)))


@_add.register
def _add_reshape(op: operators.Reshape, to: NodeSteps) -> None:
    to.values.define(to.result, to.values.slot(to.data))


# -------------------------------------------------------------------- the world outside


@_add.register
def _add_quantize(op: operators.Quantize, to: NodeSteps) -> None:
    to.one(StepKind.QUANTIZE, to.data.elements, _bits(op.scale), op.zero_point)


@_add.register
def _add_dequantize(op: operators.Dequantize, to: NodeSteps) -> None:
    to.one(StepKind.DEQUANTIZE, to.data.elements, _bits(to.data.scale), to.data.zero_point)


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


@_add.register
def _add_fixed_softmax(op: operators.FixedSoftmax, to: NodeSteps) -> None:
    terms, reach = exponentials(to.data.scale)
    to.one(StepKind.FIXED_SOFTMAX, *to.rows, to.constant(terms.astype(np.int32)), reach)


@_add.register
def _add_softmax(op: operators.Softmax, to: NodeSteps) -> None:
    if len(to.inputs) > 1:
        raise UnsupportedError(
            f"{to.node.name} has no C code: it is a softmax with a mask in floats"
        )
    to.one(StepKind.SOFTMAX, *to.rows)


@_add.register
def _add_layer_norm(op: operators.LayerNorm, to: NodeSteps) -> None:
    terms = to.constant(op.weight), to.constant(op.bias)
    to.one(StepKind.LAYER_NORM, *terms, *to.rows, _bits(op.epsilon), int(op.centered))


@_add.register
def _add_add_term(op: operators.AddTerm, to: NodeSteps) -> None:
    times = to.data.elements // op.term.size
    to.one(StepKind.ADD_TERM, to.constant(op.term), times, op.term.size)
