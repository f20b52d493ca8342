"""The meaning of a graph's nodes on terms: exact integers as in docs/quantization.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.row_norm import FURTHEST, shares
from vtaops.base.window import Window
from vtaops.graph import (
    FineRequantization,
    Node,
    Quotient,
    Requantization,
    Tensor,
    TfliteRequantization,
)
from vtaops.graph import operators as ops
from vtaops.graph.normalization import normalized
from vtaops.graph.operators import GraphOperator
from vtaops.graph.requantization import along
from vtaops.graph.thresholds import quotient_scale, scale_of_quotient
from vtaops.proof.records import Unknown
from vtaops.proof.sums import convolve, convolve_transposed, window_maxima, window_sums
from vtaops.proof.terms import Fields, Terms


@dataclass(frozen=True)
class Inputs:
    """The inputs of a node.

    Attributes
    ----------
    fields : Fields
        The fields.
    tensors : sequence of Tensor
        Its input tensors.
    terms : sequence of Terms
        Their values, int8.
    results : sequence of Tensor
        Its result tensors.
    """

    fields: Fields
    tensors: Sequence[Tensor]
    terms: Sequence[Terms]
    results: Sequence[Tensor]

    def real(self, index: int) -> Terms:
        """Return ``value - zero_point`` for an input."""
        zero = self.tensors[index].zero_point
        return (
            self.fields.sum(self.terms[index], self.fields.numbers(-zero))
            if zero
            else self.terms[index]
        )

    def requantized(
        self, scaling: Requantization, sums: Terms, axis: int = 1, bias: Any = None
    ) -> Terms:
        """Return sums requantised to int8, with a bias per channel."""
        fields, rank = self.fields, len(sums.shape)
        plus = None if bias is None else along(axis, rank, bias)
        if isinstance(scaling, TfliteRequantization):
            raise Unknown(f"a scale that rounds {scaling.rounds} has no meaning on terms")
        factor: Any = along(axis, rank, scaling.multiplier)
        shift: Any = along(axis, rank, scaling.shift)
        if isinstance(scaling, FineRequantization):
            factor, shift = fields.numbers(along(axis, rank, scaling.words)), -scaling.fine
        zero, clip = scaling.zero_point, scaling.clip
        return fields.requantized(sums, factor, shift, zero, clip, bias=plus)


def meaning(fields: Fields, node: Node, terms: Sequence[Terms]) -> Terms:
    """Return the result of a node.

    Raises
    ------
    Unknown
        If the meaning of its operator is not defined here.
    """
    return _meaning(node.op, Inputs(fields, node.inputs, terms, node.outputs))


@singledispatch
def _meaning(op: GraphOperator, given: Inputs) -> Terms:
    raise Unknown(f"no meaning of {op.kind} is known here")


@_meaning.register
def _convolution(op: ops.Convolution, given: Inputs) -> Terms:
    data, border = given.real(0), given.tensors[0].zero_point != 0

    def products(weight: npt.NDArray[Any]) -> Terms:
        return convolve(given.fields, data, weight, op.window, op.groups, border)

    sums = _of_digits(given.fields, op.weight, products)
    if op.residual_factor is not None:
        factor = along(1, 4, op.residual_factor)
        sums = given.fields.sum(sums, given.fields.times(given.real(1), factor))
    return given.requantized(op.requantization, sums, bias=op.bias)


@_meaning.register
def _transposed_convolution(op: ops.TransposedConvolution, given: Inputs) -> Terms:
    *_, height, width = given.results[0].shape
    data, size = given.real(0), (height, width)
    sums = convolve_transposed(given.fields, data, op.weight, op.window, size, op.groups)
    return given.requantized(op.requantization, sums, bias=op.bias)


@_meaning.register
def _dense(op: ops.Dense, given: Inputs) -> Terms:
    data, (outputs, columns) = given.real(0), op.weight.shape

    def products(weight: npt.NDArray[Any]) -> Terms:
        image = replace(data, value=data.value.reshape(len(data.value), -1, columns, 1, 1))
        one = Window.of((1, 1), (1, 1), (0, 0, 0, 0))
        return convolve(given.fields, image, weight[:, :, None, None], one)

    sums = _of_digits(given.fields, op.weight, products)
    value = sums.value.reshape(len(sums.value), *data.shape[:-1], outputs)
    middle, radius = sums.middle.reshape(-1), sums.radius.reshape(-1)
    sums = replace(sums, value=value, middle=middle, radius=radius)
    return given.requantized(op.requantization, sums, axis=len(data.shape) - 1, bias=op.bias)


def _of_digits(
    fields: Fields, weight: npt.NDArray[Any], products: Callable[[npt.NDArray[Any]], Terms]
) -> Terms:
    """Return the products with weights; those of 16 bits as products with both of their digits."""
    if weight.dtype == np.int8:
        return products(weight)
    low = (weight + 128) % 256 - 128
    high = products(((weight - low) >> 8).astype(np.int8))
    return fields.sum(fields.times(high, 256), products(low.astype(np.int8)))


@_meaning.register
def _matmul(op: ops.Matmul, given: Inputs) -> Terms:
    a, b = given.real(0), given.real(1)
    rank = max(len(a.shape), len(b.shape))
    value = given.fields.matmul(*(_of_rank(x.value, rank) for x in (a, b)))
    reach = a.reach * b.reach * a.shape[-1]
    return given.requantized(op.requantization, Terms(value, np.float64(0), np.float64(reach)))


def _of_rank(value: npt.NDArray[Any], rank: int) -> npt.NDArray[Any]:
    """Return residues (planes, ...) of tensors with leading axes of one element."""
    planes, *shape = value.shape
    return value.reshape(planes, *(1,) * (rank - len(shape)), *shape)


@_meaning.register
def _row_norm(op: ops.RowNorm, given: Inputs) -> Terms:
    fields = given.fields
    sums, multiplier = normalized(_Arithmetic(fields), given.terms[0], op)
    scale = multiplier, op.shift, op.zero_point, (-128, 127)
    return fields.requantized(sums, *scale)


@_meaning.register
def _row_softmax(op: ops.RowSoftmax, given: Inputs) -> Terms:
    fields, x = given.fields, given.terms[0]
    mask = None if op.mask is None else fields.numbers(op.offsets(x.shape))
    if len(given.terms) > 1:
        mask = fields.times(given.terms[1], 4)
    total = x if mask is None else fields.sum(x, mask)
    columns = [total.moved(lambda part, at=at: part[..., at : at + 1]) for at in range(x.shape[-1])]
    most = fields.times(fields.extremum_of(columns, 1), -1)
    below = fields.sum(x, most)
    if mask is not None:
        below = fields.sum(fields.clamped(below, FURTHEST, np.inf), mask)
    if len(given.terms) > 1:
        empty = fields.clamped(fields.sum(most, fields.numbers(np.array(-128))), 0, np.inf)
        below = fields.sum(below, fields.times(fields.forced(empty), 2))
    index = fields.requantized(below, 1, 0, 127, (-128, 127))
    high, low = (fields.mapped(index, table) for table in op.tables)
    sums = shares(_Arithmetic(fields), high, low, x.shape[-1])
    return given.requantized(op.requantization, sums)


class _Arithmetic:
    """The arithmetic of row norms on terms: what the machine's ALU does to them."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def _terms(self, y: Any) -> Terms:
        return y if isinstance(y, Terms) else self._fields.numbers(y)

    def add(self, x: Terms, y: Any) -> Terms:
        return self._fields.sum(x, self._terms(y))

    def mul(self, x: Terms, y: Any) -> Terms:
        return self._fields.product_of(x, self._terms(y))

    def shr(self, x: Terms, y: Any) -> Terms:
        fields = self._fields
        return fields.opaque("SHR", x, y) if isinstance(y, Terms) else fields.shifted(x, y)

    def clip(self, x: Terms, low: float, high: float) -> Terms:
        return self._fields.clamped(x, low, high)

    def total(self, x: Terms) -> Terms:
        middle, radius = (
            np.broadcast_to(part, x.shape).sum(axis=-1, keepdims=True)
            for part in (x.middle, x.radius)
        )
        value = self._fields.centred(x.value.sum(axis=-1, keepdims=True))
        return Terms(value, middle, radius, degree=x.degree)


@_meaning.register
def _max_pool(op: ops.MaxPool, given: Inputs) -> Terms:
    return window_maxima(given.fields, given.terms[0], op.window(given.tensors[0]))


@_meaning.register
def _average_pool(op: ops.AveragePool, given: Inputs) -> Terms:
    fields, tensor = given.fields, given.tensors[0]
    window = op.window(tensor)
    total = window_sums(fields, given.real(0), window, tensor.zero_point != 0)
    if not op.differs(tensor):
        return _mean(op, given, total, window.count, window.count)
    total = window_sums(fields, given.real(0), window)
    counts = np.multiply.outer(*op.counts(tensor))
    value = np.zeros(total.value.shape)
    for count in np.unique(counts):
        mean = _mean(op, given, total, int(count), window.count)
        value = np.where(counts == count, mean.value, value)
    return Terms(value, given.terms[0].middle, given.terms[0].radius)


def _mean(op: ops.AveragePool, given: Inputs, total: Terms, count: int, size: int) -> Terms:
    """Return the means of `count` of `size` real pixels, of which the sums are given."""
    fields, (factor, scaling) = given.fields, op.of_count(count, size)
    if isinstance(scaling, Quotient):
        count = count or size
        if quotient_scale(count).differing:
            raise Unknown(f"no scale divides sums of {count} values exactly")
        total = fields.sum(total, fields.numbers(count * given.tensors[0].zero_point))
        scaling = scale_of_quotient(scaling, count)
    return given.requantized(scaling, fields.times(total, factor))


@_meaning.register
def _add(op: ops.Add, given: Inputs) -> Terms:
    a, b = (given.fields.times(given.real(k), op.factors[k]) for k in (0, 1))
    return given.requantized(op.requantization, given.fields.sum(a, b))


@_meaning.register
def _multiply(op: ops.Multiply, given: Inputs) -> Terms:
    product = given.fields.product_of(given.real(0), given.real(1))
    return given.requantized(op.requantization, product)


@_meaning.register
def _extremum(op: ops.Extremum, given: Inputs) -> Terms:
    sign = 1 if op.function == "maximum" else -1
    return given.fields.extremum_of([*given.terms], sign)


@_meaning.register
def _requantize(op: ops.Requantize, given: Inputs) -> Terms:
    return given.requantized(op.requantization, given.real(0))


@_meaning.register
def _lookup_table(op: ops.LookupTable, given: Inputs) -> Terms:
    if op.table.ndim > 1:
        raise Unknown("a table for each channel")
    return given.fields.mapped(given.terms[0], op.table)


@_meaning.register
def _concat(op: ops.Concat, given: Inputs) -> Terms:
    first = given.terms[0]
    axis = op.axis % len(first.shape) + 1
    value = np.concatenate([x.value for x in given.terms], axis=axis)
    return Terms(value, first.middle, first.radius)


def _moving(op: GraphOperator, zero_point: int) -> Any:
    """Return the effect on an array of an operator that moves scalars, or None."""
    match op:
        case ops.Upsample(factors=(rows, columns)):
            return lambda x: x.repeat(rows, axis=2).repeat(columns, axis=3)
        case ops.Pad(padding=(top, left, bottom, right), mode=mode):
            sides = (0, 0), (0, 0), (top, bottom), (left, right)
            if mode != "constant":
                return lambda x: np.pad(x, sides, mode)
            return lambda x: np.pad(x, sides, constant_values=zero_point)
        case ops.Expand(shape=shape):
            return lambda x: np.broadcast_to(x, shape)
        case ops.Slice():
            return lambda x: np.take(x, range(op.start, op.stop, op.step), axis=op.axis)
        case ops.Reshape(shape=shape):
            return lambda x: x.reshape(shape)
        case ops.Transpose(axes=axes):
            return lambda x: x.transpose(axes)
    raise AssertionError(op.kind)


@_meaning.register
def _movement(
    op: ops.Upsample | ops.Pad | ops.Slice | ops.Reshape | ops.Transpose | ops.Expand,
    given: Inputs,
) -> Terms:
    x, move = given.terms[0], _moving(op, given.tensors[0].zero_point)
    return Terms(np.stack([move(plane) for plane in x.value]), x.middle, x.radius)
