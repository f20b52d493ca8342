"""Regions: the parts of a network that VTA executes in one launch, ready to run.

A region is a program, its packed weights, and the mapping of graph tensors to its buffers. Imports
no TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vtaops.base.shapes import Array, ReprMixin
from vtaops.program import Program


@dataclass(frozen=True)
class NodePlacement:
    """One row of a plan.

    Attributes
    ----------
    name : str
        Name of the node.
    operator : str
        Description of the operator.
    where : "vta" or "host"
        Its placement.
    reason : str
        Why it is on the host; or a remark.
    code : str
        The code of a reason (`vtaops.base.reasons`); empty on VTA.
    """

    name: str
    operator: str
    where: str
    reason: str
    code: str = ""


@dataclass(frozen=True)
class Argument:
    """The mapping of a graph tensor to a program buffer.

    Attributes
    ----------
    tensor, buffer : str
        Their names.
    shape : tuple of int
        Shape of the tensor.
    image : tuple of int
        For inputs: the image (N, C, H, W) that holds it; for operands of products, matrices. For
        results whose channels are in two parts, of which the first is outside of the pixels: the
        buffer's axes with both, (N, outer, inner, H, W).
    axes : tuple of int
        For inputs: the order of the image's axes in the buffer; for results: that of the buffer's
        axes in the tensor. Empty: as they are.
    lanes : tuple of int
        For results: the buffer's channels that belong to the tensor.
    border : (int, int, int, int)
        For inputs: rows and columns around the image: (top, left, bottom, right).
    zero_point : int
        Value of the border; 0 if there is none.
    """

    tensor: str
    buffer: str
    shape: tuple[int, ...]
    image: tuple[int, ...] = ()
    lanes: tuple[int, ...] = ()
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    zero_point: int = 0
    axes: tuple[int, ...] = ()

    def to_device(self, array: Array) -> Array:
        """Convert an input to the form of its buffer."""
        image = array.reshape(self.image)
        if self.axes:
            image = np.transpose(image, self.axes)
        if not any(self.border):
            return image
        top, left, bottom, right = self.border
        sides = ((0, 0), (0, 0), (top, bottom), (left, right))
        return np.pad(image, sides, constant_values=self.zero_point)

    def from_device(self, array: Array) -> Array:
        """Convert the contents of a buffer to a result."""
        if self.lanes != tuple(range(array.shape[1])):
            array = array[:, list(self.lanes)]
        if self.image:
            array = array.reshape(self.image)
        if self.axes:
            array = np.transpose(array, self.axes)
        return array.reshape(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Region(ReprMixin):
    """Nodes that VTA executes in one launch.

    Attributes
    ----------
    nodes : tuple of str
        The nodes of the graph.
    program : Program
        The program to launch.
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
    """Consecutive nodes that run on the host.

    Attributes
    ----------
    nodes : tuple of str
        The nodes of the graph.
    """

    nodes: tuple[str, ...]


Stage = Region | HostStage
