"""Data layouts: conversion of NumPy tensors to VTA's tiled tensors and back.

A layout is written as TVM does: upper-case letters are the axes of the logical tensor, in packed
order; a number with a lower-case letter is an inner block of the axis of the same letter. NCHW data
for a 1x16 array is ``NCHW1n16c``: shape (N/1, C/16, H, W, 1, 16). An inner block without an outer
axis of its letter replicates: ``C1n16c`` repeats a vector (C,) over the rows of a tile. ``/2`` at
the end packs two int8 scalars of -8..7 into a byte, the first one into its low bits.

Extents that are not a multiple of their block are zero-padded; `unpack` crops the padding.
Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, Int8Array, ceil_div
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.machine.views import BlockDiagonal, Flat, Plus, View

_NIBBLES = "/2"
NIBBLE_VALUES = range(-8, 8)

_TOKEN = re.compile(r"([A-Z])|([1-9][0-9]*)([a-z])")


@dataclass(frozen=True)
class Layout:
    """A blocked layout such as ``NCHW1n16c`` (see the module's docstring for the notation).

    Parameters
    ----------
    text : str
        The layout. All upper-case axes come first, then the inner blocks.
    logical : str
        Order of the axes in the logical tensor; empty: their order in `text`.
    view : View, optional
        Rearrangement of the logical tensor before tiling.

    Raises
    ------
    ShapeError
        If the text is not a layout.
    """

    text: str
    logical: str = ""
    view: View | None = None

    def __post_init__(self) -> None:
        outer, blocks = self.outer, [letter for letter, _ in self.blocks]
        spelled = "".join(outer) + "".join(f"{size}{letter}" for letter, size in self.blocks)
        spelled += _NIBBLES * (self.nibbles and not self.blocks[-1][1] % 2)
        if spelled != self.text or not outer or len({*outer}) < len(outer):
            raise ShapeError(
                f"{self.text!r} is not a layout: give distinct upper-case axes, then inner blocks, "
                f"for example NCHW1n16c"
            )
        if len({*blocks}) < len(blocks) or sorted(self.axes) != sorted(outer):
            raise ShapeError(
                f"layout {self.text!r} with logical order {self.logical!r} is inconsistent"
            )

    @cached_property
    def outer(self) -> tuple[str, ...]:
        """The upper-case axes, in packed order."""
        return tuple(m[1] for m in _TOKEN.finditer(self.text) if m[1])

    @cached_property
    def blocks(self) -> tuple[tuple[str, int], ...]:
        """The inner blocks (lower-case letter, size), in packed order."""
        return tuple((m[3], int(m[2])) for m in _TOKEN.finditer(self.text) if m[3])

    @property
    def _letters(self) -> list[str]:
        """The axes of the packed tensor: outer axes, then blocks."""
        return [*self.outer, *(letter for letter, _ in self.blocks)]

    @property
    def nibbles(self) -> bool:
        """Whether two scalars share a byte."""
        return self.text.endswith(_NIBBLES)

    @property
    def unshared(self) -> Layout:
        """The same layout with one scalar in a byte."""
        return replace(self, text=self.text.removesuffix(_NIBBLES))

    @property
    def shared(self) -> Layout:
        """The same layout with two scalars in a byte."""
        return self if self.nibbles else replace(self, text=self.text + _NIBBLES)

    def _split(self, shape: tuple[int, ...]) -> dict[str, int]:
        """Return extents by letter, in the order of the tensor; each block follows its axis."""
        blocks, extents = dict(self.blocks), {}
        for axis, extent in zip(self.axes, shape, strict=True):
            block = blocks.get(axis.lower())
            extents[axis] = ceil_div(extent, block or 1)
            extents |= {axis.lower(): block} if block else {}
        return extents

    @property
    def axes(self) -> str:
        """The axes of the viewed tensor, in its order."""
        return self.logical or "".join(self.outer)

    def packed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the packed shape of a logical tensor of `shape`."""
        viewed = self._viewed(shape)
        if len(viewed) != len(self.axes):
            raise ShapeError(
                f"a tensor of shape {shape} has rank {len(viewed)} in layout {self.text}, which "
                f"has the axes {self.axes}"
            )
        extents = self._split(viewed) | dict(self.blocks)
        *sizes, last = (extents[letter] for letter in self._letters)
        return (*sizes, last // 2 if self.nibbles else last)

    def pack(self, array: npt.ArrayLike) -> Array:
        """Return the packed, C-contiguous copy of a logical tensor.

        Raises
        ------
        ShapeError
            If the rank does not match the layout, or an extent is 0; if scalars that share a byte
            do not have four bits.
        """
        data: Array = np.asarray(array)
        self._check_shape(data.shape)
        if self.view is not None:
            data = self.view.apply(data)
        split = self._split(data.shape)
        padded = self._padded(data.shape)
        if padded != data.shape:
            data = np.pad(data, [(0, b - a) for a, b in zip(data.shape, padded, strict=True)])
        # Split every blocked axis in two, transpose, then replicate.
        order = [[*split].index(letter) for letter in self._letters if letter in split]
        data = data.reshape([*split.values()]).transpose(order)
        for index, letter in enumerate(self._letters):
            if letter not in split:
                count = dict(self.blocks)[letter]
                data = np.repeat(np.expand_dims(data, index), count, axis=index)
        return _in_halves(data) if self.nibbles else np.array(data, order="C")

    def unpack(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return a copy of the logical tensor of `shape` from its packed form; inverse of `pack`.

        Raises
        ------
        ShapeError
            If the packed shape does not match `shape`.
        """
        self._check_shape(shape)
        if array.shape != self.packed_shape(shape):
            raise ShapeError(
                f"packed array has shape {array.shape}; layout {self.text} of {shape} "
                f"has shape {self.packed_shape(shape)}"
            )
        if self.nibbles:
            array = expanded(array)
        viewed = self._viewed(shape)
        split = self._split(viewed)
        # Take the first copy along replicated axes.
        data = array[tuple(slice(None) if x in split else 0 for x in self._letters)]
        letters = [x for x in self._letters if x in split]
        data = data.transpose([letters.index(letter) for letter in split])
        data = data.reshape(self._padded(viewed))
        data = np.array(data[tuple(map(slice, viewed))], order="C")
        return data if self.view is None else self.view.invert(data, shape)

    def _viewed(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.view is None:
            return shape
        if self.view.rank not in (None, len(shape)):
            raise ShapeError(f"{self.view} is not a view of a tensor of shape {shape}")
        return self.view.shape(shape)

    def _padded(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a viewed tensor, rounded up to whole blocks."""
        split = self._split(shape)
        return tuple(split[axis] * split.get(axis.lower(), 1) for axis in self.axes)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        rank = self.view.rank if self.view else len(self.axes)
        if rank not in (None, len(shape)):
            raise ShapeError(
                f"array has rank {len(shape)} (shape {shape}); layout {self.text} needs rank "
                f"{len(self.axes)} with axes {self.axes}"
            )
        if 0 in shape:
            raise ShapeError(f"array of shape {shape} is empty; every extent must be at least 1")


def has_nibbles(scalars: Array) -> bool:
    """Whether all scalars have four bits."""
    return bool(scalars.min() >= NIBBLE_VALUES[0] and scalars.max() <= NIBBLE_VALUES[-1])


def _in_halves(scalars: Array) -> Int8Array:
    """Return scalars of -8..7 in half as many bytes, two neighbours in each: the first one low.

    Raises
    ------
    ShapeError
        If a scalar does not have four bits.
    """
    if not has_nibbles(scalars):
        raise ShapeError(
            f"weights of four bits lie in -8..7; these lie in {scalars.min()}..{scalars.max()}"
        )
    numbers = scalars.astype(np.int8, order="C")
    return numbers[..., ::2] & 15 | numbers[..., 1::2] << 4


def expanded(image: Array) -> Int8Array:
    """Return the scalars of bytes that hold two each; the inverse of `_in_halves`."""
    halves = np.stack([image.view(np.int8) << 4, image.view(np.int8)], axis=-1) >> 4
    return halves.reshape(*image.shape[:-1], -1)


def narrowed(layout: Layout, shape: tuple[int, ...], config: HardwareConfig) -> Layout:
    """Return the layout of weights of four bits: a LOAD takes pairs of tiles, so all must pair."""
    tiles = prod(layout.packed_shape(shape)) // config.wgt.lanes
    return layout.shared if config.has(Extension.NIBBLES) and tiles % 2 == 0 else layout


def data_layout(config: HardwareConfig, view: View | None = None) -> Layout:
    """Layout of input and output images: NCHW in tiles of (batch, block) pixels-channels."""
    return Layout(f"NCHW{config.batch}n{config.block_in}c", view=view)


def flat_layout(config: HardwareConfig) -> Layout:
    """Layout of a tensor of any rank: its scalars in C order, in tiles of batch times block."""
    return Layout(f"L{config.inp.lanes}l", view=Flat())


def kernel_layout(config: HardwareConfig, view: View | None = None) -> Layout:
    """Layout of convolution weights: OIHW in tiles of (block_out, block_in)."""
    return Layout(f"OIHW{config.block_out}o{config.block_in}i", view=view)


def diagonal_layout(config: HardwareConfig) -> Layout:
    """Layout of a vector (block, 1, 1, 1) of scales as one diagonal weight tile."""
    block = config.block_in
    return kernel_layout(config, BlockDiagonal(groups=block, merged=block, inputs=block))


def matrix_layout(config: HardwareConfig) -> Layout:
    """Layout of the left operand and the result of a matrix product: (M, K) or (M, N)."""
    return Layout(f"MC{config.batch}m{config.block_in}c")


def weight_layout(config: HardwareConfig) -> Layout:
    """Layout of the right operand of a matrix product, transposed: (N, K)."""
    return Layout(f"OI{config.block_out}o{config.block_in}i")


def bias_layout(config: HardwareConfig, plus: int = 0) -> Layout:
    """Layout of a bias (channels,): each accumulator tile repeats it over the batch rows.

    `plus` is added to every channel while packing (see `vtaops.machine.views.Plus`).
    """
    return Layout(f"C{config.batch}n{config.block_out}c", view=Plus(plus) if plus else None)


def vector_layout(config: HardwareConfig) -> Layout:
    """Layout of a vector (channels,) as rows of post-processing parameters."""
    return Layout(f"C1n{config.block_out}c")
