"""The images of a region in DRAM, and the place of each tensor in them.

The inputs of a concatenation are stored in one image from the start, so that joining moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vtaops.base.shapes import ceil_div
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.network import rules
from vtaops.network.storage import Lanes, StoredImage, TensorPlace, packed_lanes
from vtaops.network.views import Image, joins_pixels, storages


class Places:
    """The places of the tensors of a region in DRAM.

    Parameters
    ----------
    graph : Graph
        The network.
    nodes : sequence of Node
        Nodes that the region executes, in order.
    block : int
        Number of channels in a block.

    Attributes
    ----------
    inputs, outputs : list of Tensor
        Tensors that the region reads from the host, and those that others read from it.
    memories : dict of str to StoredImage
        The images in DRAM, by name.
    places : dict of str to TensorPlace
        Place of each tensor, by name.
    storages : mapping of str to Storage
        How the images hold the tensors of the graph, by name.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], block: int) -> None:
        self.graph = graph
        self.storages = storages(graph)
        self.nodes = list(nodes)
        self.block = block
        self.memories: dict[str, StoredImage] = {}
        self.places: dict[str, TensorPlace] = {}
        made = [tensor for node in nodes for tensor in node.outputs]
        names = {tensor.name for tensor in made}
        self.inputs = unique(t for n in nodes for t in n.inputs if t.name not in names)
        here = {node.name for node in nodes}
        beyond = [*graph.outputs, *(t for n in graph.nodes if n.name not in here for t in n.inputs)]
        read = {tensor.name for tensor in beyond}
        self.outputs = [tensor for tensor in made if tensor.name in read]
        self._slots: dict[str, TensorPlace] = {}

    def image_of(self, tensor: Tensor) -> Image:
        """Return the shape (N, C, H, W) of the image that holds a tensor."""
        return self.storages[tensor.name].image

    def moves_pixels(self, node: Node) -> bool:
        """Return whether an operator joins or cuts pixels, and not channels."""
        return joins_pixels(node, self.storages[node.inputs[0].name])

    def reads_alone(self, node: Node) -> bool:
        """Return whether nothing else reads the first input of a node."""
        tensor = node.inputs[0]
        return self.graph.consumers(tensor) == [node] and tensor not in self.graph.outputs

    def new(self, tensor: Tensor, *, role: str = "scratch", name: str = "") -> TensorPlace:
        """Return a new image for a tensor, with contiguous channels."""
        image = self.image_of(tensor)
        memory = self._memory(name or tensor.name, image, tensor, role)
        return TensorPlace(memory, packed_lanes(image[1]))

    def _memory(
        self, name: str, image: Image, tensor: Tensor, role: str = "scratch"
    ) -> StoredImage:
        n, c, h, w = image
        if role != "input":  # the host pads inputs
            c = ceil_div(c, self.block) * self.block
        memory = StoredImage(name, (n, c, h, w), tensor.zero_point, role=role)
        self.memories[name] = memory
        return memory

    def result(self, tensor: Tensor, lanes: Lanes | None = None) -> TensorPlace:
        """Return the place of a step's result: its part of a concatenation, or a new image.

        `lanes` are those that the operator keeps from its input, counted from the first block.
        """
        place = self._slots.get(tensor.name)
        if place is None:
            n, channels, h, w = self.image_of(tensor)
            lanes = packed_lanes(channels) if lanes is None else lanes
            place = TensorPlace(self._memory(tensor.name, (n, max(lanes) + 1, h, w), tensor), lanes)
        self.places[tensor.name] = place
        return place

    def is_fixed(self, tensor: Tensor) -> bool:
        return tensor.name in self._slots

    def width(self, place: TensorPlace) -> int:
        """Return the number of lanes of the blocks that hold a tensor."""
        return place.blocks(self.block)[1] * self.block

    # ---------------------------------------------------------------- concatenations

    def join_concatenations(self) -> None:
        """Assign the inputs of every concatenation to parts of one image.

        An input that already has another place, in another concatenation or as a view, is copied;
        the others are stored directly in their parts.
        """
        joins = [
            node
            for node in self.nodes
            if isinstance(node.op, ops.Concat) and not self.moves_pixels(node)
        ]
        parts = self._parts(joins)
        widths: dict[str, int] = {}  # in lanes
        for node in joins:
            for name, tensor in parts[node.name]:
                blocks = ceil_div(self.image_of(tensor)[1], self.block)
                widths.setdefault(name, blocks * self.block)
            widths[node.name] = sum(widths[name] for name, _ in parts[node.name])
        for node in reversed(joins):
            (result,) = node.outputs
            if result.name not in self._slots:
                n, _, h, w = self.image_of(result)
                memory = self._memory(result.name, (n, widths[result.name], h, w), result)
                self._slots[result.name] = TensorPlace(memory, (0,))
            slot = self._slots[result.name]
            start = slot.lanes[0]
            for name, tensor in parts[node.name]:
                lanes = range(start, start + self.image_of(tensor)[1])
                self._slots[name] = TensorPlace(slot.memory, tuple(lanes))
                start += widths[name]

    def _parts(self, joins: Sequence[Node]) -> dict[str, list[tuple[str, Tensor]]]:
        """Return the inputs of each concatenation by name; copies have separate names."""
        makers = {tensor.name: node for node in self.nodes for tensor in node.outputs}
        parts: dict[str, list[tuple[str, Tensor]]] = {}
        taken: set[str] = set()
        for node in reversed(joins):
            parts[node.name] = []
            for position, tensor in enumerate(node.inputs):
                maker, name = makers.get(tensor.name), tensor.name
                stored = maker is not None and (maker in joins or not rules.is_free(maker.op))
                if not stored or name in taken:
                    name = copy_name(node, position)
                taken.add(name)
                parts[node.name].append((name, tensor))
        return parts

    def joined(self, node: Node, position: int) -> TensorPlace | None:
        """Return the place for the copy of an input of a concatenation; None if there is none."""
        return self._slots.get(copy_name(node, position))


def copy_name(node: Node, position: int) -> str:
    """Return the name of the copy of an input of a concatenation."""
    return f"{node.name}:{position}"


def unique(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the distinct tensors in order."""
    return list({tensor.name: tensor for tensor in tensors}.values())
