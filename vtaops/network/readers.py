"""Which storage each tensor of a graph gets: what its makers make, and what its readers prefer.

`_Readers` asks all that read a tensor; `storages` decides in the order of the nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import Pattern
from vtaops.network.propagation import VIEWS, backward, forward, made, pattern_of
from vtaops.network.storage import (
    Held,
    Shape,
    Storage,
    as_image,
    as_images,
    as_tokens,
    held_matrices,
    matrices_of,
    stacked,
)

DEPTH = 50
"""Maximum number of readers behind readers that are asked."""


@dataclass(frozen=True)
class Wish:
    """What the readers of a tensor want of its storage.

    Attributes
    ----------
    best : Storage or None
        The storage that they prefer.
    direct : bool
        Whether they compute; a view can also be made on the host, where it costs nothing.
    """

    best: Storage | None
    direct: bool = True

    @property
    def rank(self) -> int:
        """Wishes of a higher rank go first."""
        return 0 if self.best is None else 1 + self.direct


class _Readers:
    """The readers of a graph's tensors on VTA, and their `wishes`, by the name of the tensor."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.wishes = graph, dict[str, Wish]()
        tokens = any(
            isinstance(n.op, ops.Matmul | ops.Transpose) or n.op.pattern is Pattern.ROWS
            for n in graph.nodes
        )
        self._rows = as_tokens if tokens else as_images
        self._taken: dict[tuple[str, Storage], bool] = {}
        self._asked = defaultdict[str, list[tuple[Node, int]]](list)
        for node in reversed(graph.nodes):
            for number, tensor in enumerate(node.inputs):
                if wish := self._wish(node, number):
                    self._asked[tensor.name].append((node, number))
                    if wish.rank >= self.wishes.get(tensor.name, wish).rank:
                        self.wishes[tensor.name] = wish

    def best(self, tensor: Tensor) -> Storage | None:
        """Return the storage that readers prefer, heads as images, or the natural one."""
        wish = self.wishes.get(tensor.name)
        return wish.best.apart if wish and wish.best else self.natural(tensor.shape)

    def natural(self, shape: Shape) -> Storage | None:
        """Return the storage of a tensor of which nothing else is known: an image, or rows."""
        if len(shape) == 4:
            return as_image(shape)
        return self._rows(shape) if len(shape) > 1 else None

    def take(self, tensor: Tensor, storage: Storage, depth: int = 0) -> bool:
        """Return whether all readers read a tensor in a storage, and theirs the results."""
        if depth == DEPTH:
            return storage == self.wishes[tensor.name].best
        key = tensor.name, storage
        if key not in self._taken:
            asked = self._asked[tensor.name]
            self._taken[key] = all(self._takes(*each, storage, depth + 1) for each in asked)
        return self._taken[key]

    def _wish(self, node: Node, number: int) -> Wish | None:
        """Return what a node wants of an input; None if it is the host's."""
        if isinstance(node.op, ops.Matmul):
            return Wish(_operand(node, number, self.graph))
        beyond, shape = self.wishes.get(node.outputs[0].name), node.inputs[number].shape
        pattern = node.op.pattern
        if pattern is None or (pattern is Pattern.MOVEMENT and beyond is None):
            return None
        best = backward(node, shape, beyond.best if beyond else None, self._rows)
        if best and self._reads_host(node):
            best = best.apart
        direct = beyond is None or beyond.direct
        alike = pattern_of(node) is Pattern.ELEMENTWISE
        return Wish(best, direct if alike else not isinstance(node.op, VIEWS))

    def _takes(self, node: Node, number: int, storage: Storage, depth: int) -> bool:
        if isinstance(node.op, ops.Matmul):
            held = held_matrices(storage, matrices_of(node, number))
            return held not in ((None, Held.STACKED) if number else (None,))
        (result, *_), shape = node.outputs, node.inputs[number].shape
        made = forward(node, shape, storage)
        images = pattern_of(node) is Pattern.WINDOWS
        if made is None or (images and storage == as_image(shape)):
            return made is not None
        if storage.split and self._reads_host(node):
            return False
        wish = self.wishes.get(result.name)
        if wish is None:
            return not images  # heads are for what takes such
        return any(self.take(result, seen, depth) for seen in _seen(node, made, wish))

    def _reads_host(self, node: Node) -> bool:
        """Return whether a node computes on values of the host, which does not make heads."""
        makers = map(self.graph.maker, node.inputs)
        made = (m is None or isinstance(m.op, ops.Constant | ops.Quantize) for m in makers)
        return pattern_of(node) is Pattern.ELEMENTWISE and any(made)


def _seen(node: Node, result: Storage, wish: Wish) -> tuple[Storage, ...]:
    """Return storages as which a view shows what another one holds, the best first."""
    return (result.seen_as(wish.best), result) if isinstance(node.op, VIEWS) else (result,)


_KNOWN: WeakKeyDictionary[Graph, tuple[int, dict[str, Storage]]] = WeakKeyDictionary()
"""Storages with the number of tensors that a graph had, which only grows."""


def storages(graph: Graph) -> dict[str, Storage]:
    """Return the storage of each tensor by name, without those that no image holds."""
    size, found = _KNOWN.get(graph, (-1, {}))
    if size != len(graph.tensors):
        found = _decided(graph)
        _KNOWN[graph] = len(graph.tensors), found
    return found


def _decided(graph: Graph) -> dict[str, Storage]:
    readers = _Readers(graph)
    found = {t.name: best for t in graph.inputs if (best := readers.best(t))}
    for node in graph.nodes:
        if isinstance(node.op, ops.RowSoftmax):  # a mask has an image for each matrix
            found |= {mask.name: found[node.inputs[0].name].apart for mask in node.inputs[1:]}
        if isinstance(node.op, ops.Matmul):
            result = _product(node, readers)
        else:
            result = _result(node, found, readers)
        for tensor in node.outputs:
            if storage := result or readers.best(tensor):
                found[tensor.name] = storage
    return found


def _result(node: Node, found: Mapping[str, Storage], readers: _Readers) -> Storage | None:
    """Return the storage of a result; None if its readers decide."""
    given, (tensor, *_) = [found.get(each.name) for each in node.inputs], node.outputs
    result = None if None in given else made(node, [*filter(None, given)])
    if result is None or node.op.pattern is not Pattern.MOVEMENT:
        return result
    wish, own = readers.wishes.get(tensor.name), readers.natural(tensor.shape)
    if wish is None:
        return result if own in (None, result) else None
    seen = _seen(node, result, wish)
    return next((s for s in seen if s == own or readers.take(tensor, s)), None)


def _operand(node: Node, number: int, graph: Graph) -> Storage:
    """Return the storage that a product of two tensors prefers for an operand.

    Pixels are what the maker of the operand, before views, has as pixels: all but the last axis.
    The host makes an input of the graph as it is wanted, with an image for each matrix. Single rows
    that are no view are stacked.
    """
    count, rows, columns = shape = matrices_of(node, number)
    given = graph.maker(node.inputs[number])
    if given is None and number == 1:
        return as_image((count, rows, columns, 1))
    maker, swapped = _behind_views(given, graph)
    if given is not None and given is maker and (number, rows) == (0, 1):
        return stacked(shape)
    pixels, channels = (columns, count * rows) if swapped else (rows, count * columns)
    return Storage.of((1, channels, pixels, 1), outer=channels if swapped else count)


def _behind_views(maker: Node | None, graph: Graph) -> tuple[Node | None, bool]:
    """Return what made a tensor before views, and whether these swapped its last axis."""
    swapped = False
    while maker is not None and isinstance(maker.op, VIEWS | ops.Expand):
        if isinstance(maker.op, ops.Transpose) and maker.op.axes[-1] != len(maker.op.axes) - 1:
            swapped = not swapped
        maker = graph.maker(maker.inputs[0])
    return maker, swapped


def _product(node: Node, readers: _Readers) -> Storage | None:
    """Return the storage of a product of two tensors: what readers prefer, or a matrix an image.

    Matrices of one row are the rows of one image, where functions of rows take them all at once.
    None if it makes nothing that its readers take: then it is a launch of its own.
    """
    count, rows, columns = shape = matrices_of(node, 2)
    (result,), apart = node.outputs, Storage.of((count, columns, rows, 1), last=True)
    wish = readers.wishes.get(result.name)
    if wish is None:
        return apart
    heads = Storage.of((1, count * columns, rows, 1), outer=count)
    known = [stacked(shape)] * (rows == 1)
    if wish.best:
        held = held_matrices(wish.best, shape)
        if held is Held.ROWS_ARE_PIXELS or (held is Held.STACKED and len(result.shape) == 3):
            known.append(wish.best)
    return next((s for s in (*known, apart, heads) if readers.take(result, s)), None)
