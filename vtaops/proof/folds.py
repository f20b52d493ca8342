"""Products of rows with tiles of weights, folded: one multiplication instead of one per weight.

A convolution or a matrix product adds contractions ``y[o] = sum(x[l] * w[o, l])`` of rows x of
scalars with tiles w of numbers. Instead of a contraction, its *fold* represents it::

    L[o] * sum(R[l] * x[l]) * sum(Q[p, m] * w[p, m])

R, Q and L are variables, as the inputs are; m and p run over the whole tile, l over its columns
that are not zero. A fold is therefore an element of a tensor product, at a random point.

**Theorem.** Sums of folds that are equal as polynomials have equal sums of contractions.

*Proof.* The monomials ``R[l] * Q[p, m] * L[o]`` are different for all l, p, m and o. In equal sums
their coefficients are equal, the sums of ``x[l] * w[p, m]`` over all folds whose tile has a column
l. For m = l and p = o, this is the sum of ``x[l] * w[o, l]`` over all folds, since a column that a
tile does not have is zero. Its sum over l is the sum of contractions.

Folds only hide laws: those by which numbers multiply, within a tile, and the zeros of single
weights. Program and definition must thus fold the same products. Both fold the tiles that layers of
the definition have if the program holds all of them, and no rows of numbers, whose products they
compute. Otherwise terms seem different that are equal, and `prove` repeats the proof without folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._proof as _proof
from vtaops.base.shapes import Ints
from vtaops.machine.accesses import distinct
from vtaops.proof.terms import Fields, Floats, Terms

Flags = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]
Residues = npt.NDArray[np.uint32]
"""Residues that are not negative."""
Ranges = npt.NDArray[np.int32]

DEGREE = 3
"""Degree of a fold in R, Q and L."""
MOST_COLUMNS = 4
"""Number of sets of columns up to which a layer is folded."""


@dataclass(frozen=True)
class Tiles:
    """Tiles of numbers.

    Attributes
    ----------
    value : ndarray of uint32, shape (tiles, planes)
        The sums over Q.
    key : ndarray of uint64, shape (tiles,)
        Equal for equal tiles.
    columns : ndarray of bool, shape (tiles, lanes)
        Which columns are not zero.
    ranges : ndarray of int32, shape (tiles, 2 * outputs)
        Sums of the rows, and of the magnitudes.
    """

    value: Residues
    key: Keys
    columns: Flags
    ranges: Ranges


class Folds:
    """Which tiles are folded, and the variables.

    Parameters
    ----------
    fields : Fields
        The fields.
    shape : tuple of int
        Outputs and lanes of a tile.
    held : ndarray of int8, shape (tiles, outputs, lanes)
        The tiles of the program.

    Attributes
    ----------
    held : Tiles
        The same.
    columns, columns_of : ndarray
        The sets of columns that are not zero, and the set of each tile.
    """

    def __init__(
        self, fields: Fields, shape: tuple[int, ...], held: npt.NDArray[np.integer[Any]]
    ) -> None:
        self.fields, (self.outputs, self.lanes) = fields, shape
        self._rows = fields.symbols((self.lanes, 1)).value
        self._tiles = fields.symbols((self.outputs * self.lanes,)).value
        self._outputs = fields.symbols((self.outputs,)).value
        self.held = self.tiles(held)
        self.columns, self.columns_of = sets_of(self.held.columns)
        self._keys, self._which = np.unique(self.held.key, return_inverse=True)
        self._folded = np.zeros(len(self._keys), np.bool_)
        """Which of these keys are those of folded tiles."""

    def fold(self, tiles: Tiles) -> bool:
        """Fold these tiles of a layer from now on, if the program holds all of them."""
        places, held = self._find(tiles)
        self._folded[places] |= held
        return held

    def _find(self, tiles: Tiles) -> tuple[Ints, bool]:
        """Return the places of tiles among the keys, and whether the program holds all of them."""
        places = np.searchsorted(self._keys, tiles.key).clip(max=len(self._keys) - 1)
        return places, bool((self._keys[places] == tiles.key).all())

    def are_folded(self) -> Flags:
        return self._folded[self._which]

    def step(self, weight: npt.NDArray[np.integer[Any]]) -> int:
        """Return how far apart the columns of a tile lie in the rows of a matrix, (O, K).

        Where an image of so many pixels was flattened to rows, a tile has channels of one pixel.
        """
        corner, columns = weight[: self.outputs], weight.shape[1]
        for step in range(1, columns + 1):
            if columns % step == 0:
                lanes = corner[:, ::step][:, : self.lanes]
                tile = np.zeros((1, self.outputs, self.lanes), weight.dtype)
                tile[0, : len(lanes), : lanes.shape[1]] = lanes
                if self._find(self.tiles(tile))[1]:
                    return step
        return 1

    def tiles(self, numbers: npt.NDArray[np.integer[Any]]) -> Tiles:
        """Return the sums over Q of int8 tiles, (tiles, outputs, lanes), and of their rows."""
        count = len(numbers)
        made = Tiles(
            np.empty((count, len(self._tiles)), np.uint32),
            np.empty(0, np.uint64),
            np.empty((count, self.lanes), np.bool_),
            np.empty((count, 2 * self.outputs), np.int32),
        )
        primes = np.array(self.fields.primes, np.float64)
        _proof.sum_tiles(
            np.ascontiguousarray(numbers),
            self._tiles,
            primes,
            made.value,
            made.ranges,
            made.columns,
        )
        return replace(made, key=_keys(made.value))

    def rows(self, value: Floats, columns: Flags) -> Floats:
        """Return the sums over R of rows, (planes, ..., lanes), for each set of columns, last."""
        chosen = self._rows * columns.T
        chosen = chosen.reshape(len(value), *[1] * (value.ndim - 3), *chosen.shape[1:])
        return self.fields.matmul(value, chosen)

    def sums(
        self, products: Sequence[Any], places: Any, held: Any, inputs: Terms, count: int
    ) -> tuple[Floats, Ranges, Ranges, Flags]:
        """Return so many sums of the products that have folds.

        Parameters
        ----------
        products : sequence of ndarray of int32
            The sum, the source and the weight of each product, as in `NameMachine.products_of`.
        places, held : ndarray of int32
            For each name: its tile among `inputs`, (planes, tiles, batch, lanes), or -1 if that is
            not folded; and its tile among those of the program, or -1 if there is none.

        Returns
        -------
        value : ndarray of float64, shape (planes, count, batch, outputs)
        total, reach : ndarray of int32, shape (count, outputs)
            The sums of the tiles' `ranges`.
        rest : ndarray of bool
            Which products have no folds.
        """
        weights = distinct(products[2] >> 2)
        weights = held[weights[held[weights] >= 0]]
        sets = distinct(self.columns_of[weights])
        number = np.zeros(len(self.columns), np.int32)
        number[sets] = np.arange(len(sets))
        planes, tiles, batch, _ = inputs.value.shape
        rows = self.rows(inputs.value, self.columns[sets])
        value = np.zeros((count, batch, planes), np.uint64)
        ranges = np.zeros((count, 2 * self.outputs), np.int32)
        total, reach = np.split(ranges, 2, axis=1)
        rest = np.ones(len(products[0]), np.bool_)
        if not len(sets) or not _proof.add_folds(
            *products,
            places,
            held,
            number[self.columns_of],
            len(sets),
            self._unsigned(rows.transpose(1, 3, 2, 0)).reshape(tiles * len(sets), batch, planes),
            self.held.value,
            self.held.ranges,
            np.array(self.fields.primes, np.uint32),
            ((1 << 31) - 1) // (self.lanes << 7),
            value,
            ranges,
            rest,
        ):
            return np.zeros((planes, count, batch, self.outputs)), total, reach, rest
        made = self.fields.centred(value.transpose(2, 0, 1).astype(np.float64, order="C"))
        whole = self.spread(made, 3, inputs.degree)
        return whole, total, reach, rest

    def _unsigned(self, value: Floats) -> npt.NDArray[np.uint32]:
        """Return residues, (..., planes), as numbers that are not negative."""
        return (value + (value < 0) * np.array(self.fields.primes, np.float64)).astype(
            np.uint32, order="C"
        )

    def spread(self, value: Floats, axis: int, degree: int) -> Floats:
        """Return sums of rows of a degree times tiles, times L, which is a new axis."""
        self.fields.degree = max(self.fields.degree, degree + DEGREE)
        outputs = self._outputs.reshape(
            len(value), *[1] * (axis - 1), -1, *[1] * (value.ndim - axis)
        )
        return self.fields.product(np.expand_dims(value, axis), outputs)

    def are_numbers(self, value: Floats) -> Flags:
        """Return which rows, (planes, ..., lanes), consist of numbers."""
        flags: Flags = self.fields.is_number(value[..., 0])
        flags[flags] = self.fields.is_number(value[:, flags]).all(axis=-1)
        return flags


def _keys(residues: Residues) -> Keys:
    """Return keys of residues, (tiles, planes), that are equal for equal ones."""
    keys: Keys = residues[:, 0].astype(np.uint64) << np.uint64(32) | residues[:, 1]
    return keys


def sets_of(columns: Flags) -> tuple[Flags, Ints]:
    """Return the different rows of flags, and the number of each row among them."""
    packed: Any = np.packbits(columns, axis=1)
    if packed.shape[1] <= 8:  # one number a row, which sorts faster
        packed = np.pad(packed, ((0, 0), (0, 8 - packed.shape[1]))).view(np.uint64)[:, 0]
    _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return columns[first], which.reshape(-1)


def folded_sums(
    folds: Folds,
    image: Floats,
    weights: npt.NDArray[np.integer[Any]],
    groups: int,
    taps: Sequence[Any],
    zero: int,
    degree: int,
) -> Floats | None:
    """Return the sums over taps of a layer as `vtaops.proof.sums` does, or None without folds.

    The rows are those of ``image + zero``, polynomials of a degree. Rows of numbers have to be
    those around the image, or others whose product is zero.
    """
    outputs, inputs = weights.shape[0], weights.shape[1] * groups
    if inputs == groups or weights.dtype != np.int8 or not weights.any():
        return None
    numbers, places = _blocks(folds, weights, groups)
    tiles = folds.tiles(numbers)
    columns, which = sets_of(tiles.columns)
    live = _live(folds, image)
    if live is None or len(columns) > MOST_COLUMNS or not folds.fold(tiles):
        return None
    size, fields = image[0, 0, 0][taps[0]].shape, folds.fields
    rows = folds.rows(_rows(folds, image + zero if zero else image), columns) * live
    planes, n, blocks = rows.shape[:3]
    rows = rows.swapaxes(3, 4).reshape(planes, n, blocks, len(columns), *image.shape[3:])
    seen = np.stack([rows[tap] for tap in taps], axis=4)
    kernel = np.zeros((planes, -(-outputs // folds.outputs), blocks, len(columns), len(taps)))
    output, block, tap = places
    sums = fields.centred(tiles.value.T.astype(np.float64, order="C"))
    kernel[:, output, block, which, tap] = sums
    kernel = kernel.reshape(planes, 1, kernel.shape[1], -1)
    value = fields.matmul(kernel, seen.reshape(planes, n, -1, math.prod(size)))
    value = folds.spread(value, 3, degree).reshape(planes, n, -1, *size)[:, :, :outputs]
    if not zero:
        return value
    added = _sums_of_ones(weights, live.reshape(image.shape[3:]), taps)
    return fields.centred(value - zero * added.reshape(outputs, *size))


def _sums_of_ones(weights: npt.NDArray[np.integer[Any]], live: Any, taps: Sequence[Any]) -> Floats:
    """Return the sums of a layer over pixels that are one where they count: (outputs, pixels)."""
    total = weights.reshape(len(weights), -1, len(taps)).sum(axis=1, dtype=np.float64)
    counted = np.array([live[seen].reshape(-1) for seen in taps])
    sums: Floats = total @ counted
    return sums


def _blocks(
    folds: Folds, weights: npt.NDArray[np.integer[Any]], groups: int
) -> tuple[npt.NDArray[np.integer[Any]], tuple[Any, ...]]:
    """Return the tiles of (O, C / groups, KH, KW) that are not zero, and the place of each."""
    outputs, own = weights.shape[:2]
    flat = weights.reshape(groups, outputs // groups, own, -1)
    sides = (
        -(-outputs // folds.outputs) * folds.outputs,
        -(-own * groups // folds.lanes) * folds.lanes,
    )
    dense = np.zeros((*sides, flat.shape[-1]), weights.dtype)
    for group, part in enumerate(flat):
        rows, lanes = group * (outputs // groups), group * own
        dense[rows : rows + outputs // groups, lanes : lanes + own] = part
    tiles = dense.reshape(-1, folds.outputs, sides[1] // folds.lanes, folds.lanes, flat.shape[-1])
    tiles = tiles.transpose(0, 2, 4, 1, 3)
    places = np.nonzero(tiles.any(axis=(-1, -2)))
    return tiles[places], places


def _rows(folds: Folds, image: Floats) -> Floats:
    """Return the rows of an image (planes, N, C, H, W): (planes, N, blocks, pixels, lanes)."""
    planes, n, channels, *size = image.shape
    more = -channels % folds.lanes
    if more:
        image = np.pad(image, ((0, 0), (0, 0), (0, more), (0, 0), (0, 0)))
    rows: Floats = image.reshape(planes, n, -1, folds.lanes, math.prod(size)).swapaxes(-1, -2)
    return rows


def _live(folds: Folds, image: Floats) -> Flags | None:
    """Return which pixels are no numbers, (pixels, 1); None if blocks or numbers are unequal."""
    rows = _rows(folds, image)
    live = ~folds.are_numbers(rows)
    alive = live.any(axis=(0, 1), keepdims=True)
    unequal = (live != alive).any() or rows[:, ~live].any()
    return None if unequal else alive.reshape(-1, 1)
