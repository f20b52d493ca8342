"""Regions: the parts of a network that VTA executes in one launch, ready to run.

A region is a program, its packed weights, and how the tensors of the graph become its buffers.
Imports no TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.program import Program

Array = npt.NDArray[Any]


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
    """

    tensor: str
    buffer: str
    shape: tuple[int, ...]
    image: tuple[int, ...]
    lanes: tuple[int, ...] = ()
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    zero_point: int = 0
    axes: tuple[int, ...] = ()

    def to_device(self, array: Array) -> Array:
        """Return an input as its buffer takes it."""
        image = array.reshape(self.image)
        if self.axes:
            return np.transpose(image, self.axes)
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


@dataclass(frozen=True, eq=False)
class Region:
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
