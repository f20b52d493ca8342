"""Regions: the parts of a network that VTA executes in one launch, ready to run.

A region is a program, its packed weights, and how the tensors of the graph become its buffers.
Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from vtaops.base.shapes import Array, Concise
from vtaops.machine.views import constant_digits, constant_values, in_units
from vtaops.program import Program


@dataclass(frozen=True)
class Row:
    """One row of a plan.

    Attributes
    ----------
    name : str
        The node.
    operator : str
        What it computes.
    where : "vta" or "host"
        Where it runs.
    reason : str
        Why it is on the host; or what is special about it.
    """

    name: str
    operator: str
    where: str
    reason: str


@dataclass(frozen=True)
class RowSums:
    """Columns that the host adds to the rows of a matrix: what zero points add to its products.

    Each row stands for ``factor * sum(row) + constant``, written as int8 digits whose product with
    the constants of the other operand is that number. A product has two such numbers, one for each
    row of either operand: the digits of one lie where the constants of the other do.

    Attributes
    ----------
    factor, constant : int
        What a row stands for.
    before, digits, behind : int
        Columns of constants, of digits, and of constants.
    part : "all", "units" or "rest"
        All of the number behind the matrix; or its units of 128, alone, and the rest, behind it.
    """

    factor: int
    constant: int
    before: int
    digits: int
    behind: int
    part: Literal["all", "units", "rest"] = "all"

    def columns(self, columns: int) -> int:
        """Return the columns of the buffer of a matrix that has `columns`."""
        return columns * (self.part != "units") + self.before + self.digits + self.behind

    def bound(self, columns: int) -> int:
        """Return what digits must hold for a matrix of `columns`, in magnitude."""
        number = abs(self.factor) * 128 * columns + abs(self.constant)
        return {"all": number, "units": (number + 64) // 128, "rest": 64}[self.part]

    def added_to(self, matrix: Array) -> Array:
        """Return a matrix (..., rows, columns) of int8 as its buffer takes it."""
        rows = matrix.shape[:-1]
        parts = [] if self.part == "units" else [matrix]
        if self.before:
            parts.append(_constants(rows, self.before))
        if self.digits:
            number = self.factor * matrix.sum(axis=-1, dtype=np.int64).reshape(-1) + self.constant
            units, rest = in_units(number)
            found = {"all": number, "units": units, "rest": rest}[self.part]
            digits = constant_digits(found, self.digits)
            assert digits is not None
            parts.append(digits.reshape(*rows, self.digits))
        if self.behind:
            parts.append(_constants(rows, self.behind))
        return np.concatenate(parts, axis=-1)


def _constants(rows: tuple[int, ...], count: int) -> Array:
    return np.broadcast_to(np.array(constant_values(count), np.int8), (*rows, count))


@dataclass(frozen=True)
class Argument:
    """A tensor of the graph as a buffer of a program.

    Attributes
    ----------
    tensor, buffer : str
        Their names.
    shape : tuple of int
        Shape of the tensor.
    image : tuple of int
        The image (N, C, H, W) that holds it; for operands of products, matrices.
    axes : tuple of int
        For inputs that are not images: the order of its axes in the buffer.
    lanes : tuple of int
        For results: the channels of the buffer that are those of the tensor.
    border : (int, int, int, int)
        For inputs: rows and columns around the image: (top, left, bottom, right).
    zero_point : int
        What the border holds.
    sums : RowSums or None
        For operands of products: columns that join or replace the matrix.
    """

    tensor: str
    buffer: str
    shape: tuple[int, ...]
    image: tuple[int, ...]
    lanes: tuple[int, ...] = ()
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    zero_point: int = 0
    axes: tuple[int, ...] = ()
    sums: RowSums | None = None

    def to_device(self, array: Array) -> Array:
        """Return an input as its buffer takes it."""
        image = array.reshape(self.image)
        if self.axes:
            image = np.transpose(image, self.axes)
        if self.sums:
            return self.sums.added_to(image)
        if not any(self.border):
            return image
        top, left, bottom, right = self.border
        sides = ((0, 0), (0, 0), (top, bottom), (left, right))
        return np.pad(image, sides, constant_values=self.zero_point)

    def from_device(self, array: Array) -> Array:
        """Return a result from what its buffer holds."""
        if self.lanes != tuple(range(array.shape[1])):
            array = array[:, list(self.lanes)]
        return array.reshape(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Region(Concise):
    """Nodes that VTA executes in one launch.

    Attributes
    ----------
    nodes : tuple of str
        The nodes of the graph.
    program : Program
        What is launched.
    parameters : dict of str to ndarray
        DRAM images of its parameters, by the names of their buffers.
    inputs, outputs : tuple of Argument
        Tensors of the graph, in the order of the program's buffers.
    """

    nodes: tuple[str, ...]
    program: Program
    parameters: Mapping[str, Array] = field(default_factory=dict)
    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class HostStage:
    """Nodes that run on the host one after the other.

    Attributes
    ----------
    nodes : tuple of str
        The nodes of the graph.
    """

    nodes: tuple[str, ...]


Stage = Region | HostStage
