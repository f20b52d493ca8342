"""Patches and windows of images: pixels that move between reshapes and transpositions, as copies.

A network that makes groups of an image's pixels, every so manieth of them or those side by side,
reshapes to an axis for each factor, transposes, and reshapes again. What that moves are pixels with
all their channels: slices of rows and columns, which are joined one group below the other. The way
back joins windows again; pixels of groups that alternate are put into place by a convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph import Graph, GraphOperator, Node, Requantization, Tensor
from vtaops.graph import operators as ops
from vtaops.network.lower import ON_HOST, reason_for_host
from vtaops.network.target import Target

MOST_GROUPS = 64
"""Groups of pixels at most: each takes three operators."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Groups:
    """The pixels of an image (C, H, W) in groups.

    Attributes
    ----------
    image : (int, int, int)
        Channels, height and width.
    counts : (int, int)
        Groups along the height and the width.
    apart : bool
        Whether the pixels of a group are every so manieth; else they are side by side.
    from_last, to_last : bool
        Whether channels are the last axis of the image, and of the groups.
    """

    image: tuple[int, int, int]
    counts: tuple[int, int]
    apart: bool
    from_last: bool
    to_last: bool

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a group."""
        return self.image[1] // self.counts[0], self.image[2] // self.counts[1]

    def order(self) -> Array:
        """Return the number of each element of the groups in the image."""
        c, h, w = self.image
        elements = np.arange(c * h * w)
        last = elements.reshape(h, w, c).transpose(2, 0, 1)
        image = last if self.from_last else elements.reshape(c, h, w)
        cuts = product(self.ranges(0), self.ranges(1))
        parts = [image[:, slice(*rows), slice(*columns)].reshape(c, -1) for rows, columns in cuts]
        groups = np.stack(parts, axis=1)
        return (groups.transpose(1, 2, 0) if self.to_last else groups).ravel()

    def ranges(self, axis: int) -> Iterator[tuple[int, int, int]]:
        """Yield where the pixels of groups begin and end along an axis, and their distance."""
        count, each, extent = self.counts[axis], self.size[axis], self.image[1 + axis]
        for number in range(count):
            side = number * each, (number + 1) * each, 1
            yield (number, extent, count) if self.apart else side


def patches_as_copies(graph: Graph, target: Target) -> Graph:
    """Return a graph whose patches are slices of pixels, where VTA does not make them otherwise."""
    found = dict[str, tuple[Tensor, _Groups, bool]]()
    for chain in _chains(graph):
        if any(reason_for_host(node, graph, target) for node in chain):
            known = _match(chain)
            if known is not None:
                nodes, groups, back = known
                found[nodes[-1].name] = nodes[0].inputs[0], groups, back

    def put(result: Graph, node: Node) -> None:
        if node.name in found:
            source, groups, back = found[node.name]
            make = _Copies(result, node)
            (make.joined if back else make.grouped)(result.tensors[source.name], groups)
        else:
            result.clone(node)

    return graph.transform(put) if found else graph


def _chains(graph: Graph) -> Iterator[list[Node]]:
    """Yield reshapes and transpositions in a row of what VTA makes; only the next reads each."""
    seen = set[str]()
    for node in graph.nodes:
        maker = graph.maker(node.inputs[0]) if node.inputs else None
        chain: list[Node] = []
        while isinstance(node.op, ops.Reshape | ops.Transpose) and node.name not in seen:
            chain.append(node)
            seen.add(node.name)
            readers = graph.consumers(node.outputs[0])
            if len(readers) != 1 or node.outputs[0] in graph.outputs:
                break
            (node,) = readers
        if len(chain) > 1 and maker is not None and not isinstance(maker.op, ON_HOST):
            yield chain


def _match(chain: Sequence[Node]) -> tuple[Sequence[Node], _Groups, bool] | None:
    """Return the longest part of a chain that makes groups of pixels, or joins them; else None."""
    for first, end in product(range(len(chain)), range(len(chain), 1, -1)):
        nodes = chain[first:end]
        if len(nodes) < 2 or nodes[0].inputs[0].elements > 1 << 22:
            continue
        before, after = nodes[0].inputs[0].shape, nodes[-1].outputs[0].shape
        order = _order(nodes)
        for back, shape, wanted in ((False, before, order), (True, after, np.argsort(order))):
            groups = _groups(shape, wanted)
            if groups is not None:
                return nodes, groups, back
    return None


def _order(nodes: Sequence[Node]) -> Array:
    """Return the number of each element of the last result in the first input."""
    tensor = nodes[0].inputs[0]
    elements = np.arange(tensor.elements).reshape(tensor.shape)
    for node in nodes:
        elements = node.op.reference(node.inputs, elements)
    return elements.ravel()


def _groups(shape: Shape, order: Array) -> _Groups | None:
    """Return the groups of the pixels of an image that have an order; None if none have."""
    if len(shape) != 4 or shape[0] != 1:
        return None
    for from_last in (False, True):
        c, h, w = (shape[3], *shape[1:3]) if from_last else shape[1:]
        for counts in product(_parts(h), _parts(w)):
            if not 1 < prod(counts) <= MOST_GROUPS:
                continue
            for apart, to_last in product((True, False), repeat=2):
                groups = _Groups((c, h, w), counts, apart, from_last, to_last)
                if np.array_equal(groups.order(), order):
                    return groups
    return None


def _parts(extent: int) -> list[int]:
    """Return into how many equal parts an extent may be divided."""
    return [count for count in range(1, extent + 1) if extent % count == 0]


class _Copies:
    """Adds the operators in place of a chain, the last of which has the name of its last node."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node, self.count = graph, node, 0

    def _add(self, op: GraphOperator, *inputs: Tensor, last: bool = False) -> Tensor:
        self.count += 1
        name = self.node.name if last else f"{self.node.name}:{self.count}"
        return self.graph.add(op, *inputs, name=name, scale=self.node.outputs[0].scale)

    def _end(self, tensor: Tensor) -> None:
        self._add(ops.Reshape(self.node.outputs[0].shape), tensor, last=True)

    def grouped(self, image: Tensor, groups: _Groups) -> None:
        """Add the groups of an image's pixels, one below the other."""
        if groups.from_last:
            image = self._add(ops.Transpose((0, 3, 1, 2)), image)
        parts, line = [], (1, groups.image[0], 1, prod(groups.size))
        for rows in groups.ranges(0):
            band = self._add(ops.Slice(2, *rows), image)
            for columns in groups.ranges(1):
                part = self._add(ops.Slice(3, *columns), band)
                parts.append(self._add(ops.Reshape(line), part))
        found = self._add(ops.Concat(2), *parts)
        self._end(self._add(ops.Transpose((0, 2, 3, 1)), found) if groups.to_last else found)

    def joined(self, tensor: Tensor, groups: _Groups) -> None:
        """Add the image whose pixels are in groups."""
        c, count, each = groups.image[0], prod(groups.counts), prod(groups.size)
        if groups.to_last:
            tensor = self._add(ops.Reshape((1, count, each, c)), tensor)
            tensor = self._add(ops.Transpose((0, 3, 1, 2)), tensor)
        else:
            tensor = self._add(ops.Reshape((1, c, count, each)), tensor)
        lines = (self._add(ops.Slice(2, n, n + 1), tensor) for n in range(count))
        parts = [self._add(ops.Reshape((1, c, *groups.size)), line) for line in lines]
        image = (self._alternated if groups.apart else self._beside)(parts, groups)
        self._end(self._add(ops.Transpose((0, 2, 3, 1)), image) if groups.from_last else image)

    def _beside(self, parts: Sequence[Tensor], groups: _Groups) -> Tensor:
        rows, columns = groups.counts
        bands = [parts[n * columns : (n + 1) * columns] for n in range(rows)]
        joined = [self._add(ops.Concat(3), *band) if columns > 1 else band[0] for band in bands]
        return self._add(ops.Concat(2), *joined) if rows > 1 else joined[0]

    def _alternated(self, parts: Sequence[Tensor], groups: _Groups) -> Tensor:
        c, strides = groups.image[0], groups.counts
        joined = self._add(ops.Concat(1), *parts)
        each = np.eye(len(parts) * c, dtype=np.int8).reshape(-1, len(parts), c)
        weight = each.swapaxes(1, 2).reshape(-1, c, *strides)
        unchanged = Requantization(1, 0, joined.zero_point)
        op = ops.TransposedConvolution(weight, None, unchanged, strides=strides)
        return self._add(op, joined)
