"""The operators of a graph as steps of a bundle, encoded in the order of ``vta_steps.h``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.exact import padded
from vtaops.base.shapes import ceil_div
from vtaops.base.window import Window
from vtaops.graph import (
    Graph,
    GraphOperator,
    Node,
    Quotient,
    Requantization,
    Tensor,
    evaluate,
    operators,
)
from vtaops.graph.fixed_softmax import exponentials
from vtaops.graph.thresholds import scale_of_quotient
from vtaops.graph.weighted import spread
from vtaops.model.export.blob import NONE, Blob, SlotNumber, StepKind
from vtaops.model.export.boxes import Places, places
from vtaops.model.export.values import Values, itemsize

Words = tuple[int, ...]

_LANES, _BLOCK, _SHARED = 4, 32, 32
"""How ``vta_products.c`` divides its work."""


def add_node(node: Node, values: Values) -> None:
    """Add the steps of a node that runs on the host.

    Raises
    ------
    UnsupportedError
        If it is a float function that ONNX Runtime computes, or has weights of 16 bits.
    """
    if getattr(node.op, "weight", np.zeros(0)).dtype == np.int16:
        raise UnsupportedError(f"{node.name} has weights of 16 bits, which only VTA multiplies")
    _add(node.op, node, values)


@singledispatch
def _add(op: GraphOperator, node: Node, values: Values) -> None:
    reason = getattr(op, "reason", "")
    raise UnsupportedError(
        f"{node.name} ({op.kind}) has no C code: ONNX Runtime, NumPy or VTA alone computes it"
        f"{f' ({reason})' if reason else ''}; export a network whose float parts are quantised, or "
        "that ends before them"
    )


# ----------------------------------------------------------------------- sums of products


@_add.register
def _add_convolution(op: operators.Convolution, node: Node, values: Values) -> None:
    residual = None if op.residual_factor is None else (node.inputs[1], op.residual_factor)
    image = places(values.slot(node.inputs[0]), node.inputs[0].shape)
    _convolution(op, op.weight, op.window, image, node, values, residual)


@_add.register
def _add_transposed_convolution(
    op: operators.TransposedConvolution, node: Node, values: Values
) -> None:
    """Add a convolution by the reversed taps, of pixels with zero points between them."""
    (n, c, height, width), (down, across) = node.inputs[0].shape, op.strides
    apart = np.full((n, c, height, down, width, across), node.inputs[0].zero_point, np.int64)
    apart[:, :, :, 0, :, 0] = values.array(node.inputs[0])
    slot = values.in_order(apart, 1)
    weight = spread(op.by_output, op.dilation)[:, :, ::-1, ::-1]
    top, left = (taps - 1 - side for taps, side in zip(weight.shape[2:], op.padding, strict=False))
    image = places(slot, (n, c, height * down, width * across))
    image = image[:, :, max(0, -top) :, max(0, -left) :]
    window = Window(weight.shape[2:], padding=(max(0, top), max(0, left), 0, 0))
    _convolution(op, weight, window, image, node, values)


def _convolution(
    op: operators.Convolution | operators.TransposedConvolution,
    weight: np.ndarray,
    window: Window,
    image: Places,
    node: Node,
    values: Values,
    residual: tuple[Tensor, np.ndarray] | None = None,
) -> None:
    """Add a convolution of an image."""
    blob, data, groups = values.blob, node.inputs[0], getattr(op, "groups", 1)
    n, outputs, *found = node.outputs[0].shape
    added, factors = residual or (None, np.ones((), np.int32))
    blob.step(
        StepKind.CONVOLUTION,
        values.in_order(image, 1),
        blob.constant(weight.transpose(0, 3, 2, 1)),
        _bias(blob, op.bias),
        NONE if added is None else values.slot(added),
        blob.constant(factors.astype(np.int32)),
        values.result(node.outputs[0]),
        blob.temporary(_work_nbytes(weight.shape, groups, (*found,), window)),
        *(n, image.shape[1], outputs, groups),
        data.zero_point,
        0 if added is None else added.zero_point,
        factors.size,
        *_window(image.shape[2:], (*found,), window),
        *_scaling(blob, op.requantization),
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
def _add_dense(op: operators.Dense, node: Node, values: Values) -> None:
    columns, depth = op.weight.shape
    rows = node.inputs[0].elements // depth
    right = values.blob.constant(op.weight)
    slots = values.slot(node.inputs[0]), right
    _matmul(op, node, values, slots, (1, rows, depth, columns, 1), _bias(values.blob, op.bias))


@_add.register
def _add_matmul(op: operators.Matmul, node: Node, values: Values) -> None:
    a, b = node.inputs
    leading, rows, columns = op.leading(node.inputs), a.shape[-2], b.shape[-1]
    whole = (np.broadcast_to(values.array(x), (*leading, *x.shape[-2:])) for x in (a, b))
    slots = [values.in_order(array, 1) for array in whole]
    sizes = math.prod(leading), rows, a.shape[-1], columns, 0
    _matmul(op, node, values, slots, sizes, NONE)


def _matmul(
    op: operators.Dense | operators.Matmul,
    node: Node,
    values: Values,
    slots: Sequence[SlotNumber],
    sizes: Words,
    bias: int,
) -> None:
    blob, zeros = values.blob, [tensor.zero_point for tensor in node.inputs]
    _, rows, depth, *_ = sizes
    widened = 2 * (_LANES + min(rows, _BLOCK)) * _padded(depth)
    blob.step(
        StepKind.MATMUL,
        *slots,
        bias,
        values.result(node.outputs[0]),
        blob.temporary(4 * _LANES * _BLOCK + widened),
        *sizes,
        *(*zeros, 0)[:2],
        *_scaling(blob, op.requantization),
    )


def _bias(blob: Blob, bias: np.ndarray | None) -> int:
    return NONE if bias is None else blob.constant(bias)


def _window(size: Words, found: Words, window: Window) -> Words:
    sides = window.padding[:2]
    return (*size, *found, *window.kernel, *window.strides, *window.dilation, *sides)


def _scaling(blob: Blob, scaling: Requantization) -> Words:
    found = _pairs(scaling)
    return (blob.constant(found), len(found), scaling.zero_point, *scaling.clip)


def _pairs(scaling: Requantization) -> np.ndarray:
    """Return multipliers and shifts, and the rounding correction by sign."""
    shifts = scaling.shift | (scaling.by_sign >> 14) % (1 << 24) << 8
    pairs = np.stack(np.broadcast_arrays(scaling.multiplier, shifts), axis=-1)
    return pairs.reshape(-1, 2).astype(np.uint32)


# ----------------------------------------------------------------------------- pooling


@_add.register
def _add_max_pool(op: operators.MaxPool, node: Node, values: Values) -> None:
    data = node.inputs[0]
    image = places(values.slot(data), data.shape)
    _pool(node, values, image, op.window(data), (NONE, 0), (NONE, 0, 0, 0, 0, 1))


@_add.register
def _add_average_pool(op: operators.AveragePool, node: Node, values: Values) -> None:
    blob, data = values.blob, node.inputs[0]
    window, entries = op.window(data), []
    image = places(values.slot(data), data.shape)
    if op.differs(data):
        for real in np.unique(np.multiply.outer(*op.counts(data))):
            factor, scaling = op.of_count(int(real), window.count)
            entries.append([int(real), factor, *_pairs(_of_values(scaling, int(real)))[0]])
        if not op.exclude_padding:  # its padding counts like pixels, what is beyond does not
            image = padded(image, Window((1, 1), padding=op.padding), data.zero_point)
            window = replace(window, padding=(0, 0, 0, 0))
    cases = (blob.constant(np.array(entries, np.uint32)), len(entries)) if entries else (NONE, 0)
    scaling = op.requantization
    zero = 0 if isinstance(scaling, Quotient) else data.zero_point
    given = (*_scaling(blob, _of_values(scaling, window.count)), op.factor)
    _pool(node, values, image, window, cases, given, zero)


def _of_values(scaling: Requantization | Quotient, count: int) -> Requantization:
    """Return a quotient of `count` values as a product; leave requantizations unchanged."""
    return scale_of_quotient(scaling, count) if isinstance(scaling, Quotient) else scaling


def _pool(
    node: Node,
    values: Values,
    image: Places,
    window: Window,
    cases: Words,
    scaling: Words,
    zero: int = 0,
) -> None:
    result, (n, channels, *size) = node.outputs[0], image.shape
    values.blob.step(
        StepKind.POOL,
        values.in_order(image, 1),
        values.result(result),
        *cases,
        *(n * channels, channels, zero),
        *_window((*size,), result.shape[2:], window),
        *scaling,
    )


# ------------------------------------------------------------------------- elementwise


@_add.register
def _add_pair(
    op: operators.Add | operators.Multiply | operators.Extremum, node: Node, values: Values
) -> None:
    kind = StepKind[getattr(op, "function", type(op).__name__).upper()]
    unchanged = Requantization(1, 0, node.outputs[0].zero_point)
    by = getattr(op, "requantization", unchanged)
    first, second = node.inputs
    broadcast = first.shape != second.shape
    scaling = _scaling(values.blob, by)
    values.blob.step(
        kind,
        values.slot(first),
        values.slot(second),
        values.result(node.outputs[0]),
        *_channels(first, broadcast or scaling[1] > 1),
        broadcast,
        *(first.zero_point, second.zero_point, *getattr(op, "factors", (1, 1))),
        *scaling,
    )


def _channels(tensor: Tensor, needed: bool) -> Words:
    """Return a shape as (outer, channels, inner), with channels on axis 1."""
    if not needed:
        return 1, 1, tensor.elements
    return tensor.shape[0], tensor.shape[1], math.prod(tensor.shape[2:])


@_add.register(operators.LookupTable)
@_add.register(operators.Requantize)
def _add_function(op: GraphOperator, node: Node, values: Values) -> None:
    """Add a function of one value as a table of its results."""
    data = node.inputs[0]
    scaling = getattr(op, "requantization", Requantization())
    tables = scaling.channels
    if isinstance(op, operators.LookupTable) and op.table.ndim == 2:
        tables = len(op.table)
    one = Graph("all values")
    x = one.input("x", (1, tables, 256), zero_point=data.zero_point)
    one.output(one.add(op, x))
    every = np.broadcast_to(np.arange(-128, 128).astype(np.int8), x.shape)
    table = values.blob.constant(evaluate(one, every)[0])
    _one(StepKind.TABLE, node, values, table, tables, *_channels(data, tables > 1))


# ------------------------------------------------------------------------------ movement


@_add.register
def _add_movement(
    op: operators.Concat | operators.Slice | operators.Transpose | operators.Expand | operators.Pad,
    node: Node,
    values: Values,
) -> None:
    """Move places as the operator moves elements."""
    arrays = map(values.array, node.inputs)
    values.define(node.outputs[0], op.reference(node.inputs, *arrays))


@_add.register
def _add_upsample(op: operators.Upsample, node: Node, values: Values) -> None:
    data, (rows, columns) = node.inputs[0], op.factors
    n, c, h, w = data.shape
    each = values.array(data)[:, :, :, None, :, None]
    spread = np.broadcast_to(each, (n, c, h, rows, w, columns))
    values.define(node.outputs[0], values.in_order(spread, itemsize(data)))


@_add.register
def _add_constant(op: operators.Constant, node: Node, values: Values) -> None:
    values.define(node.outputs[0], values.blob.constant(np.ascontiguousarray(op.value)))


@_add.register
def _add_reshape(op: operators.Reshape, node: Node, values: Values) -> None:
    values.define(node.outputs[0], values.slot(node.inputs[0]))


# -------------------------------------------------------------------- the world outside


@_add.register
def _add_quantize(op: operators.Quantize, node: Node, values: Values) -> None:
    elements = node.inputs[0].elements
    _one(StepKind.QUANTIZE, node, values, elements, _bits(op.scale), op.zero_point)


@_add.register
def _add_dequantize(op: operators.Dequantize, node: Node, values: Values) -> None:
    data = node.inputs[0]
    _one(StepKind.DEQUANTIZE, node, values, data.elements, _bits(data.scale), data.zero_point)


def _one(kind: StepKind, node: Node, values: Values, *words: int) -> None:
    """Add a step that makes the result of a node from its first input."""
    values.blob.step(kind, values.slot(node.inputs[0]), values.result(node.outputs[0]), *words)


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


@_add.register
def _add_uint8(op: operators.FromUint8 | operators.ToUint8, node: Node, values: Values) -> None:
    data, numbers = node.inputs[0], np.arange(256).astype(np.int8)  # of -128, -127, ..., 127
    table = values.blob.constant(numbers)
    _one(StepKind.TABLE, node, values, table, 1, *_channels(data, needed=False))


@_add.register
def _add_fixed_softmax(op: operators.FixedSoftmax, node: Node, values: Values) -> None:
    data = node.inputs[0]
    columns = data.shape[-1]
    terms, reach = exponentials(data.scale)
    table = values.blob.constant(terms.astype(np.int32))
    sizes = data.elements // columns, columns
    _one(StepKind.FIXED_SOFTMAX, node, values, *sizes, table, reach)


@_add.register
def _add_softmax(op: operators.Softmax, node: Node, values: Values) -> None:
    if len(node.inputs) > 1:
        raise UnsupportedError(f"{node.name} has no C code: it is a softmax with a mask in floats")
    *rows, columns = node.inputs[0].shape
    _one(StepKind.SOFTMAX, node, values, math.prod(rows), columns)


@_add.register
def _add_layer_norm(op: operators.LayerNorm, node: Node, values: Values) -> None:
    *rows, columns = node.inputs[0].shape
    terms = values.blob.constant(op.weight), values.blob.constant(op.bias)
    sizes = math.prod(rows), columns
    _one(StepKind.LAYER_NORM, node, values, *terms, *sizes, _bits(op.epsilon), int(op.centered))


@_add.register
def _add_add_term(op: operators.AddTerm, node: Node, values: Values) -> None:
    sizes = node.inputs[0].elements // op.term.size, op.term.size
    _one(StepKind.ADD_TERM, node, values, values.blob.constant(op.term), *sizes)
