"""The region of a network that is being lowered: its steps, and the places of its tensors in DRAM.

The inputs of a concatenation are stored in one image from the start, so that joining moves nothing.
If padding must hold a zero point other than 0, an operator reads it from a border in DRAM and does
not pad.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from vtaops.base.shapes import Array, Sides, ceil_div
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator, Pattern
from vtaops.network.places import (
    NO_SIDES,
    Lanes,
    MappedOperator,
    StoredImage,
    TensorPlace,
    packed_lanes,
)
from vtaops.network.propagation import joins_pixels
from vtaops.network.readers import storages
from vtaops.network.storage import Image, Storage
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import Conv2d, Elementwise, Operator
from vtaops.program import Role
from vtaops.program.region import Argument

MAX_WEIGHTS = 1 << 28
"""Maximum bytes of weights made by the compiler, to move channels or for zeros between groups."""


class LoweredRegion:
    """The operators that VTA executes for nodes of a graph, and the places of their tensors.

    `vtaops.network.lower` adds them, node by node.

    Parameters
    ----------
    graph : Graph
        The network.
    nodes : sequence of Node
        Nodes that the region executes, in order.
    target : Target
        The hardware.

    Attributes
    ----------
    names : tuple of str
        The names of the nodes.
    nodes : list of Node
        The nodes, without tables that the operators before them apply.
    steps : list of MappedOperator
        Operators that VTA executes, in order.
    inputs, outputs : list of Tensor
        Tensors that the region reads from the host, and those that others read from it.
    memories : dict of str to StoredImage
        The images in DRAM, by name.
    places : dict of str to TensorPlace
        Place of each tensor, by name.
    storages : mapping of str to Storage
        How the images hold the tensors of the graph, by name.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], target: Target) -> None:
        self.graph, self.target = graph, target
        self.names = tuple(node.name for node in nodes)
        self.nodes = list(nodes)
        self.block = target.config.block_in
        self.steps: list[MappedOperator] = []
        self.memories: dict[str, StoredImage] = {}
        self.places: dict[str, TensorPlace] = {}
        self._made = [tensor for node in nodes for tensor in node.outputs]
        names = {tensor.name for tensor in self._made}
        read = (t for node in nodes for t in node.inputs if t.name not in names)
        self.inputs = [*dict.fromkeys(read)]
        self.storages = storages(graph) | self._heads_apart(storages(graph))
        self._slots: dict[str, TensorPlace] = {}
        self._tables: dict[str, Array] = {}
        """Tables that operators apply to their results, by name of the result."""
        if target.tables:
            self._fuse_tables()
        for tensor in self.inputs:
            self.places[tensor.name] = self.new(tensor, role=Role.INPUT)
        self._join_concatenations()

    def _heads_apart(self, known: Mapping[str, Storage]) -> dict[str, Storage]:
        """Return inputs that are stored as heads, with an image for each, if products read them."""
        others = {t for n in self.nodes if not isinstance(n.op, ops.Matmul) for t in n.inputs}
        inputs = [t.name for t in self.inputs if t.name in known and t not in others]
        return {name: known[name].apart for name in inputs if known[name].split}

    @property
    def arguments(self) -> tuple[list[Argument], list[Argument]]:
        """The inputs and the outputs as arguments of the program."""
        inputs, outputs = [], []
        for tensor in self.inputs:
            memory, order = self.places[tensor.name].memory, self.storages[tensor.name].order
            inputs.append(
                Argument(
                    tensor.name,
                    memory.name,
                    tensor.shape,
                    tuple(memory.image[axis] for axis in order) or memory.image,
                    border=memory.border,
                    zero_point=tensor.zero_point if any(memory.border) else 0,
                    axes=(0, 3, 1, 2) if order else (),
                )
            )
        for tensor in self.outputs:
            place, storage = self.places[tensor.name], self.storages[tensor.name]
            buffer, image = place.memory.name, storage.parts if storage.split else ()
            made = Argument(tensor.name, buffer, tensor.shape, image, place.lanes)
            outputs.append(replace(made, axes=storage.order))
        return inputs, outputs

    @cached_property
    def outputs(self) -> list[Tensor]:
        results, own = {*self.graph.outputs}, {*self.names}
        return [
            tensor
            for tensor in self._made
            if tensor in results or any(n.name not in own for n in self.graph.consumers(tensor))
        ]

    def _fuse_tables(self) -> None:
        """Merge a table with the operator before it if nothing else reads that result."""
        nodes = {node.name: node for node in self.nodes}
        for node in self.nodes:
            tensor = node.inputs[0]
            maker = nodes.get(tensor.name)
            if maker is None or not isinstance(maker.op, ops.Requantized):
                continue
            alone = self.graph.consumers(tensor) == [node] and tensor not in self.graph.outputs
            if isinstance(node.op, ops.LookupTable) and alone:
                nodes[maker.name] = replace(maker, outputs=node.outputs)
                del nodes[node.name]
                self._tables[node.name] = node.op.table
        self.nodes = list(nodes.values())

    # -------------------------------------------------------------------------- images

    def image_of(self, tensor: Tensor) -> Image:
        """Return the shape (N, C, H, W) of the image that holds a tensor."""
        return self.storages[tensor.name].image

    def new(
        self, tensor: Tensor, lanes: Lanes = (), *, role: Role = Role.SCRATCH, name: str = ""
    ) -> TensorPlace:
        """Return a new image for a tensor, by default with contiguous channels."""
        image = self.image_of(tensor)
        return self.own(name or tensor.name, image, lanes or packed_lanes(image[1]), tensor, role)

    def own(
        self,
        name: str,
        size: Image,
        lanes: Lanes,
        like: Tensor | StoredImage,
        role: Role = Role.SCRATCH,
    ) -> TensorPlace:
        """Return a place of its own for a tensor, in an image of a size, but with these lanes."""
        while name in self.memories:
            name += "'"
        (n, _, h, w), c, inputs = size, max(lanes) + 1, role is Role.INPUT  # which the host pads
        image = n, c if inputs else self.filled(c), h, w
        memory = StoredImage(name, image, self.block, like.zero_point, role=role, zeros=inputs)
        self.memories[name] = memory
        return TensorPlace(memory, lanes)

    def result(self, node: Node, lanes: Lanes = ()) -> TensorPlace:
        """Return the place of a node's result: its part of a concatenation, or a new image.

        `lanes` are those that the operator keeps from its input, counted from the first block.
        """
        (tensor,) = node.outputs
        place = self._slots.get(tensor.name) or self.new(tensor, lanes)
        self.places[tensor.name] = place
        return place

    def filled(self, lanes: int) -> int:
        """Return the number of lanes of the blocks that hold so many lanes."""
        return ceil_div(lanes, self.block) * self.block

    # ---------------------------------------------------------------- concatenations

    def _join_concatenations(self) -> None:
        """Assign the inputs of every concatenation to parts of one image.

        An input that already has another place, in another concatenation or as a view, is copied;
        the others are stored directly in their parts.
        """
        joins = [
            node
            for node in self.nodes
            if isinstance(node.op, ops.Concat) and not joins_pixels(node, self.storages)
        ]
        parts = self._parts(joins)
        widths: dict[str, int] = {}  # in lanes
        for node in joins:
            for name, tensor in parts[node.name]:
                widths.setdefault(name, self.filled(self.image_of(tensor)[1]))
            widths[node.name] = sum(widths[name] for name, _ in parts[node.name])
        for node in reversed(joins):
            (result,) = node.outputs
            known = self._slots.get(result.name)
            slot = known or self.new(result, packed_lanes(widths[result.name]))
            start = slot.lanes[0]
            for name, tensor in parts[node.name]:
                lanes = tuple(range(start, start + self.image_of(tensor)[1]))
                self._slots[name] = TensorPlace(slot.memory, lanes)
                start += widths[name]

    def _parts(self, joins: Sequence[Node]) -> dict[str, list[tuple[str, Tensor]]]:
        """Return the inputs of each concatenation by name; copies have separate names."""
        makers = {tensor.name: node for node in self.nodes for tensor in node.outputs}
        parts: dict[str, list[tuple[str, Tensor]]] = {}
        taken = set[str]()
        for node in reversed(joins):
            parts[node.name] = []
            for position, tensor in enumerate(node.inputs):
                maker, name = makers.get(tensor.name), tensor.name
                moved = maker is None or _has_own_place(maker.op)
                if name in taken or (moved and maker not in joins):
                    name = _copy_name(node, position)
                taken.add(name)
                parts[node.name].append((name, tensor))
        return parts

    def part(self, node: Node, position: int) -> TensorPlace:
        """Return the place of an input of a concatenation in its result, copied if necessary."""
        place = self.places[node.inputs[position].name]
        slot = self._slots.get(_copy_name(node, position))
        if slot is None:
            return place
        self.copy(node.name, place, slot)
        return slot

    # ------------------------------------------------------------------------- operands

    def first(self, node: Node) -> TensorPlace:
        """Return the place of the first input of a node."""
        return self.places[node.inputs[0].name]

    def same_lanes(self, node: Node) -> TensorPlace:
        """Return the first input of an operator that keeps lanes, with channels in the right lanes.

        If the result is part of a concatenation, or the inputs have different lanes, they are
        packed.
        """
        found = [self.places[tensor.name].seen_lanes for tensor in node.inputs]
        joined = node.outputs[0].name in self._slots
        if not joined and all(lanes == found[0] for lanes in found):
            return self.first(node)
        first, *_ = [self.packed(node, tensor) for tensor in node.inputs]
        return first

    def second(self, node: Node, lanes: Lanes) -> TensorPlace:
        """Return the second input of a node with its channels in the given lanes."""
        tensor = node.inputs[1]
        place = self.places[tensor.name]
        if place.seen_lanes != lanes:
            place = self.packed(node, tensor, "residual")
        if tensor.shape != node.inputs[0].shape:
            return place
        return self.seen_as(node, place, self.image_of(node.inputs[0]))

    def packed(self, node: Node, tensor: Tensor, suffix: str = "packed") -> TensorPlace:
        """Return a tensor with contiguous channels, copied if necessary."""
        place, key = self.places[tensor.name], f"{node.name}<{tensor.name}"
        if place.seen_lanes == packed_lanes(len(place.lanes)):
            return place
        if key not in self.places:
            self.places[key] = self.new(tensor, name=f"{node.name}:{suffix}:{tensor.name}")
            self.copy(node.name, place, self.places[key])
        return self.places[key]

    def is_only_for(self, node: Node) -> bool:
        """Return whether the host packs the first input of a node for this node only."""
        tensor, readers = node.inputs[0], [n for n in self.nodes if node.inputs[0] in n.inputs]
        alone = readers == [node] and node.inputs.count(tensor) == 1  # not also the residual
        return alone and tensor in self.inputs and tensor not in self.graph.outputs

    # ---------------------------------------------------------------------------- steps

    def step(
        self, node: Node, op: Operator, uses: dict[str, TensorPlace], **weights: Array | None
    ) -> None:
        """Add an operator that computes the result of a node, mapped by the table after it."""
        self.append(node.name, op, uses, **weights, table=self._tables.get(node.outputs[0].name))

    def step_alike(
        self, node: Node, op: Operator, data: TensorPlace, **others: TensorPlace
    ) -> None:
        """Add an operator that keeps the lanes of `data`."""
        self.step(node, op, {"data": data, **others, "res": self.result(node, data.seen_lanes)})

    def append(
        self, node: str, op: Operator, uses: dict[str, TensorPlace], **weights: Array | None
    ) -> None:
        """Add an operator."""
        uses = {name: self._with_border(node, use) for name, use in uses.items()}
        given = {name: value for name, value in weights.items() if value is not None}
        self.steps.append(MappedOperator(node, op, uses, given))

    def _with_border(self, node: str, place: TensorPlace) -> TensorPlace:
        """Return a place whose image has the border seen of it, a copy if its pixels are fixed."""
        top, left, bottom, right = place.sides
        if place.memory.fixed and max(top, left, right, bottom if place.size else 0) > 0:
            place = self._copied(node, place.with_sides(NO_SIDES)).with_sides(place.sides)
        place.memory.widen(place.sides)
        return place

    def _copied(self, node: str, place: TensorPlace) -> TensorPlace:
        """Return a copy of a tensor in an image of its own, as the tensor sees it."""
        name = f"{node}:copy:{place.memory.name}"
        copy = self.own(name, place.image, place.seen_lanes, place.memory)
        self.copy(node, place, copy)
        return copy

    def seen_as(self, node: Node, place: TensorPlace, image: Image) -> TensorPlace:
        """Return a place with its pixels in the rows of an image, which has as many."""
        size = image[2], image[3]
        if size == place.image[2:]:
            return place
        top, left, _, right = place.memory.border
        if max(top, left, right) > 0:
            place = self._copied(node.name, place)
        place.memory.fix()
        return replace(place, size=size)

    def copy(self, node: str, data: TensorPlace, res: TensorPlace, *, zeros: bool = False) -> None:
        """Copy an image or a part of it, to other lanes if necessary.

        With `zeros`, lanes of no channel become 0.
        """
        uses = {"data": data, "res": res}
        if data.seen_lanes == res.seen_lanes and not zeros:
            op = Elementwise(function="identity", shape=data.shape, clip=None)
            self.append(node, op, uses)
            return
        weight = zero_weights(res.width, data.width, 1, 1)
        weight[res.seen_lanes, data.seen_lanes] = 1
        move = Conv2d(
            **data.extents,
            in_channels=data.width,
            out_channels=res.width,
            kernel=1,
            shift=0,
            clip=None,
        )
        self.append(node, move, uses, kernel=weight)

    def export_outputs(self) -> None:
        """Ensure that the host can read the results of the region."""
        for tensor in self.outputs:
            place = self.places[tensor.name]
            memory = place.memory
            if memory.role is Role.INPUT or memory.filled or any(memory.border):
                copy = self.new(tensor, name=f"{tensor.name}:output")
                self.copy(tensor.name, place, copy)
                self.places[tensor.name] = place = copy
            place.memory.role = Role.OUTPUT


def is_free(op: GraphOperator) -> bool:
    """Whether an operator moves no data on VTA: its result is another view of its input."""
    return op.pattern is Pattern.MOVEMENT


def _has_own_place(op: GraphOperator) -> bool:
    """Return whether the result of an operator lies in no part of another image."""
    return is_free(op) or op.pattern is Pattern.ROWS or isinstance(op, ops.Matmul)


def padding_of(tensor: Tensor, padding: Sides) -> tuple[Sides, Sides]:
    """Return the padding that an operator performs itself, and the border that it reads."""
    if tensor.zero_point == 0 or not any(padding):
        return padding, NO_SIDES
    return NO_SIDES, padding


def all_but(axis: int, along: tuple[int, int], across: tuple[int, int] = (0, 0)) -> Sides:
    """Return the sides of all but a row (axis 0) or a column of an image, as negative numbers."""
    (top, bottom), (left, right) = (along, across) if axis == 0 else (across, along)
    return -top, -left, -bottom, -right


def zero_weights(*shape: int) -> Array:
    """Return zero weights, some of which the caller sets; raises NotOnVta if they are too many."""
    if math.prod(shape) > MAX_WEIGHTS:
        raise NotOnVta(
            "scratchpad",
            f"it takes {shape[0]:,} x {shape[1]:,} weights of {shape[2]} x {shape[3]} on VTA, most "
            f"of them zeros; the limit is {MAX_WEIGHTS:,} bytes",
        )
    return np.zeros(shape, np.int8)


def _copy_name(node: Node, position: int) -> str:
    """Return the name of the copy of an input of a concatenation."""
    return f"{node.name}:{position}"
