"""Map the nodes of a graph to operators of VTA, and their tensors to places.

`Mapper` visits the nodes of one region in order and collects steps. Constants are folded: weights
are spread over the lanes that hold their channels, and all terms of the sums, including zero
points, become one bias (``docs/quantization.md``). If padding must hold a zero point other than 0,
the operator reads it from a border in DRAM and does not pad.

Relies on `vtaops.network.rules`: only nodes without a reason to run on the host are mapped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError, UnsupportedError
from vtaops.base.shapes import Array, Sides, ceil_div
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator
from vtaops.machine.views import constant_digits
from vtaops.network import rules
from vtaops.network.averages import parts, scaled
from vtaops.network.epilogue import MappedEpilogue, as_int32, uniform
from vtaops.network.gathering import gathered
from vtaops.network.places import Places, unique
from vtaops.network.rules import Target
from vtaops.network.storage import (
    NO_SIDES,
    Lanes,
    MappedOperator,
    TensorPlace,
    Use,
    on_lanes,
    packed_lanes,
)
from vtaops.ops import AvgPool2d, Conv2d, Conv2dTranspose, Elementwise, Gemm, MaxPool2d, Operator
from vtaops.ops.elementwise import Function

MAX_WEIGHTS = 1 << 28
"""Maximum bytes of weights made by the compiler, to move channels or for zeros between groups."""


class Mapper(Places):
    """The steps of one region.

    Parameters
    ----------
    graph : Graph
        The network.
    nodes : sequence of Node
        Nodes that the region executes, in order; VTA must support each.
    target : Target
        The hardware.

    Attributes
    ----------
    steps : list of MappedOperator
        Operators that VTA executes, in order.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], target: Target) -> None:
        super().__init__(graph, nodes, target.config.block_in)
        self.target = target
        self.config = target.config
        self.scales = target.scales
        self.steps: list[MappedOperator] = []
        self._tables: dict[str, Array] = {}
        """Tables that operators apply to their results, by name of the result."""
        if target.tables:
            self._join_functions()
        for tensor in self.inputs:
            self.places[tensor.name] = self.new(tensor, role="input")
        self.join_concatenations()
        for node in self.nodes:
            self._map(node.op, node)
        for tensor in self.outputs:
            self._hand_over(tensor)

    def _join_functions(self) -> None:
        """Merge a table with the operator before it if nothing else reads that result."""
        joined: dict[str, Node] = {}  # by the name of the preceding operator
        makers = {node.name for node in self.nodes if isinstance(node.op, ops.Requantized)}
        for node in self.nodes:
            name = node.inputs[0].name
            if isinstance(node.op, ops.LookupTable) and name in makers and self.reads_alone(node):
                joined[name] = node
                self._tables[node.name] = node.op.table
        self.nodes = [
            replace(node, outputs=joined[node.name].outputs) if node.name in joined else node
            for node in self.nodes
            if node not in joined.values()
        ]

    def _hand_over(self, tensor: Tensor) -> None:
        """Ensure that the host can read a tensor of the region."""
        place = self.places[tensor.name]
        memory = place.memory
        if memory.role == "input" or memory.filled or any(memory.border):
            copy = self.new(tensor, name=f"{tensor.name}:output")
            self._copy(tensor.name, place, copy)
            self.places[tensor.name] = place = copy
        place.memory.role = "output"

    # ------------------------------------------------------------------------- steps

    def _step(
        self, node: Node, op: Operator, uses: dict[str, Use], **weights: Array | None
    ) -> None:
        """Emit a step that computes the result of a node, mapped by the function after it."""
        table = self._tables.get(node.outputs[0].name)
        self._append(node.name, op, uses, **weights, table=table)

    def _append(
        self, node: str, op: Operator, uses: dict[str, Use], **weights: Array | None
    ) -> None:
        for use in uses.values():
            use.place.memory.widen(use.sides)
        given = {name: value for name, value in weights.items() if value is not None}
        self.steps.append(MappedOperator(node, op, uses, given))

    def _copy(
        self, node: str, source: TensorPlace, target: TensorPlace, sides: Sides = NO_SIDES
    ) -> None:
        """Copy a tensor, to other lanes if necessary, without touching `sides` of the target."""
        lanes, wanted = source.relative(self.block), target.relative(self.block)
        inputs, outputs = self.width(source), self.width(target)
        data = Use(source)
        uses = {"data": data, "res": Use(target, sides)}
        if lanes == wanted and not any(sides):
            copy = Elementwise(function="identity", shape=self._shape(source), clip=None)
            self._append(node, copy, uses)
            return
        weight = _zeros(node, outputs, inputs, 1, 1)
        weight[wanted, lanes] = 1
        op = Conv2d(
            **data.extents,
            in_channels=inputs,
            out_channels=outputs,
            kernel=1,
            shift=0,
            clip=None,
        )
        self._append(node, op, uses, kernel=weight)

    def _shape(self, place: TensorPlace) -> tuple[int, int, int, int]:
        """Return the shape of the blocks that hold a tensor."""
        n, _, h, w = place.memory.image
        return n, self.width(place), h, w

    def _packed(self, node: Node, tensor: Tensor, suffix: str = "packed") -> TensorPlace:
        """Return a tensor with contiguous channels, copied if necessary."""
        place = self.places[tensor.name]
        if place.relative(self.block) == packed_lanes(len(place.lanes)):
            return place
        copy = self.new(tensor, name=f"{node.name}:{suffix}:{tensor.name}")
        self._copy(node.name, place, copy)
        return copy

    def _padded(self, tensor: Tensor, padding: Sides) -> tuple[Sides, Sides]:
        """Return the padding that the operator performs itself, and the border that it reads."""
        if tensor.zero_point == 0 or not any(padding):
            return padding, NO_SIDES
        return NO_SIDES, padding

    # ------------------------------------------------------------------ sums of products

    @singledispatchmethod
    def _map(self, op: GraphOperator, node: Node) -> None:
        raise AssertionError(f"{op.kind} has no mapping, and no reason against it")

    @_map.register
    def _(self, op: ops.Convolution, node: Node) -> None:
        if op.groups > 1 and op.weight.shape[0] == op.groups and op.weight.shape[1] == 1:
            self._depthwise(node, op.weight, op)
            return
        self._convolve(node, op.weight, op, groups=op.groups)

    def _depthwise(self, node: Node, weight: Array, op: ops.Convolution) -> None:
        """Map a convolution in which every channel reads itself; its lanes do not change."""
        data = self._alike(node)
        lanes, size = data.relative(self.block), self.width(data)
        self._sum(node, op, data, on_lanes(weight, lanes, size), lanes, groups=size)

    def _convolve(self, node: Node, weight: Array, op: ops.Convolution, groups: int = 1) -> None:
        (result,) = node.outputs
        data = self.places[node.inputs[0].name]
        lanes, size = data.relative(self.block), self.width(data)
        if groups > 1:
            if lanes == packed_lanes(len(lanes)):
                size = len(lanes)
            else:
                weight, groups = _ungrouped(node.name, weight, groups), 1
        outputs = self._output_lanes(node, result)
        if groups == 1:
            weight = on_lanes(weight, lanes, size, axis=1)
            weight = on_lanes(weight, outputs, self._lanes_of(outputs), axis=0)
        elif outputs != packed_lanes(len(outputs)):
            raise AssertionError("the result of a grouped convolution has other lanes")
        self._sum(node, op, data, weight, outputs, groups, inputs=size)

    def _output_lanes(self, node: Node, result: Tensor) -> Lanes:
        """Return the lanes of a result: those of the residual, if there is one."""
        dense = getattr(node.op, "groups", 1) == 1
        if len(node.inputs) > 1 and dense and not self.is_fixed(result):
            return self.places[node.inputs[1].name].relative(self.block)
        return packed_lanes(self.image_of(result)[1])

    def _lanes_of(self, lanes: Lanes) -> int:
        """Return the number of lanes of the blocks that hold these lanes, from the first block."""
        return ceil_div(max(lanes) + 1, self.block) * self.block

    def _alike(self, node: Node) -> TensorPlace:
        """Return the first input of an operator that keeps lanes, with channels in the right lanes.

        If the result is part of a concatenation, or the inputs have different lanes, they are
        packed.
        """
        tensors = node.inputs
        found = [self.places[t.name].relative(self.block) for t in tensors]
        if self.is_fixed(node.outputs[0]) or any(lanes != found[0] for lanes in found):
            for tensor in unique(tensors):
                self.places[f"{node.name}<{tensor.name}"] = self._packed(node, tensor)
            return self.places[f"{node.name}<{tensors[0].name}"]
        return self.places[tensors[0].name]

    def _second(self, node: Node, lanes: Lanes) -> TensorPlace:
        """Return the second input with its channels in the given lanes."""
        tensor = node.inputs[1]
        place = self.places.get(f"{node.name}<{tensor.name}", self.places[tensor.name])
        if place.relative(self.block) != lanes:
            place = self._packed(node, tensor, "residual")
        return place

    def _sum(
        self,
        node: Node,
        op: ops.Convolution,
        data: TensorPlace,
        weight: Array,
        outputs: Lanes,
        groups: int,
        inputs: int = 0,
    ) -> None:
        """Emit a convolution on lanes; the weights cover all lanes."""
        source, (result,) = node.inputs[0], node.outputs
        padding, sides = self._padded(source, op.padding)
        place = self.result(result, outputs)
        uses = {"data": Use(data, sides)}
        if op.residual_factor is not None:
            uses["residual"] = Use(self._second(node, place.relative(self.block)))
        uses["res"] = Use(place)
        size = weight.shape[0] if groups > 1 else self._lanes_of(outputs)
        epilogue = self._epilogue(op, node, op.residual_factor)
        convolution = Conv2d(
            **uses["data"].extents,
            in_channels=inputs or self.width(data),
            out_channels=size,
            kernel=weight.shape[2:],
            strides=op.strides,
            padding=padding,
            dilation=op.dilation,
            groups=groups,
            **epilogue.fields,
        )
        epilogue, weight = epilogue.on_lanes(outputs, size), weight << epilogue.left
        if self._is_for(node, data) and groups == 1:
            channels = len(data.lanes)
            narrow = replace(convolution, in_channels=channels)
            found = gathered(narrow, weight[:, :channels], epilogue.constant, self.config)
            if found is not None:
                data.memory.folded = found.buffer
                convolution, weight = found.op, found.weight
                epilogue = replace(epilogue, constant=found.constant)
        self._emit_sum(node, convolution, uses, weight, epilogue)

    def _is_for(self, node: Node, data: TensorPlace) -> bool:
        """Return whether the host packs the first input of a node for this node only."""
        tensor = node.inputs[0]
        if tensor not in self.inputs or tensor in self.graph.outputs:
            return False
        twice = node.inputs.count(tensor) > 1  # it may also be the residual
        return not twice and [n for n in self.nodes if tensor in n.inputs] == [node]

    def _epilogue(
        self,
        op: ops.Convolution | ops.TransposedConvolution | ops.Dense,
        node: Node,
        residual: Array | None = None,
    ) -> MappedEpilogue:
        """Return the epilogue of an operator's sums of products."""
        weight = op.weight
        if isinstance(op, ops.TransposedConvolution):
            weight = rules.constant_weight(op)
        zeros = tuple(tensor.zero_point for tensor in node.inputs)
        if self.scales:
            return MappedEpilogue.scaled(weight, op.bias, op.requantization, zeros, residual)
        if self.target.needs_product(op.requantization):
            return MappedEpilogue.multiplied(weight, op.bias, op.requantization, zeros)
        factor = 0 if residual is None else int(residual.flat[0])
        return MappedEpilogue.shifted(weight, op.bias, op.requantization, zeros, factor)

    def _emit_sum(
        self, node: Node, op: Conv2d, uses: dict[str, Use], weight: Array, epilogue: MappedEpilogue
    ) -> None:
        """Emit a convolution with the terms that are added to its sums."""
        constant = epilogue.constant
        plain = not (self.scales or op.multiplier)  # what follows the sums is a shift
        digits = constant_digits(constant, self.block) if plain else None
        if digits is None:
            op, bias = epilogue.with_bias(op)
            self._step(node, op, uses, kernel=weight, bias=bias, **epilogue.vectors)
        elif constant.any():
            op, tiles = replace(op, bias_tiles=True), digits[:, :, None, None]
            self._step(node, op, uses, kernel=weight, constant_scale=tiles)
        else:
            self._step(node, op, uses, kernel=weight)

    @_map.register
    def _(self, op: ops.TransposedConvolution, node: Node) -> None:
        def make(inputs: int, outputs: int, **fields: Any) -> Conv2dTranspose:
            return Conv2dTranspose(
                **Use(self.places[node.inputs[0].name]).extents,
                in_channels=inputs,
                out_channels=outputs,
                kernel=op.weight.shape[2:],
                strides=op.strides,
                padding=op.padding,
                output_padding=op.output_padding,
                **fields,
            )

        self._product(node, op, make, "kernel", (0, 1))

    @_map.register
    def _(self, op: ops.Dense, node: Node) -> None:
        data = self.places[node.inputs[0].name]
        n, _, h, w = data.memory.image
        if h * w > 1 or self.target.needs_product(op.requantization):
            # A product for each pixel, or of a flattened image: a convolution of its size.
            size = (1, 1) if op.weight.shape[1] == len(data.lanes) else (h, w)
            weight = op.weight.reshape(len(op.weight), len(data.lanes), *size)
            self._convolve(node, weight, ops.Convolution(weight, op.bias, op.requantization))
            return

        def make(inputs: int, outputs: int, **fields: Any) -> Gemm:
            return Gemm(m=n, n=outputs, k=inputs, **fields)

        self._product(node, op, make, "weight", (1, 0))

    def _product(
        self,
        node: Node,
        op: ops.TransposedConvolution | ops.Dense,
        make: Callable[..., Any],
        name: str,
        axes: tuple[int, int],
    ) -> None:
        """Emit a product with weights whose input and output channels are on two `axes`."""
        data, place = self.places[node.inputs[0].name], self.result(node.outputs[0])
        inputs, outputs = self.width(data), self.width(place)
        lanes, epilogue = place.relative(self.block), self._epilogue(op, node)
        weight = on_lanes(op.weight << epilogue.left, data.relative(self.block), inputs, axes[0])
        weight = on_lanes(weight, lanes, outputs, axes[1])
        product = make(inputs, outputs, **epilogue.fields)
        epilogue = epilogue.on_lanes(lanes, outputs)
        product, bias = epilogue.with_bias(product)
        weights = {name: weight, "bias": bias, **epilogue.vectors}
        self._step(node, product, {"data": Use(data), "res": Use(place)}, **weights)

    # ---------------------------------------------------------------- channel by channel

    @_map.register
    def _(self, op: ops.MaxPool, node: Node) -> None:
        place = self._alike(node)
        data = Use(place)
        pool = MaxPool2d(
            **data.extents,
            channels=self.width(place),
            kernel=op.kernel,
            strides=op.strides,
            padding=op.window(node.inputs[0]).padding,
        )
        self._step(node, pool, {"data": data, "res": self._kept(node, place)})

    def _kept(self, node: Node, data: TensorPlace) -> Use:
        """Return the result of an operator that keeps the lanes of its input."""
        return Use(self.result(node.outputs[0], data.relative(self.block)))

    @_map.register
    def _(self, op: ops.AveragePool, node: Node) -> None:
        data = self.places[node.inputs[0].name]
        window = op.window(node.inputs[0])
        if op.differs(node.inputs[0]):
            self._average_in_parts(node, op)
            return
        if window.dilation == (1, 1) and self._average(node, op, window.kernel):
            return
        weight = np.full((len(data.lanes), 1, *window.kernel), op.factor, np.int8)
        around, each = (op.padding, op.dilation), len(weight)
        convolution = ops.Convolution(weight, None, op.requantization, op.strides, *around, each)
        self._depthwise(node, weight, convolution)

    def _average_in_parts(self, node: Node, op: ops.AveragePool) -> None:
        """Map a mean whose windows differ to one pool for each part of the result."""
        (source,), (result,) = node.inputs, node.outputs
        data = self._alike(node)
        res = self._kept(node, data)
        for part in parts(op, source, result, self.scales):
            pool = replace(part.pool, channels=self.width(data))
            uses = {"data": Use(data, part.data), "res": replace(res, sides=part.res)}
            self._step(node, pool, uses)

    def _average(self, node: Node, op: ops.AveragePool, kernel: tuple[int, int]) -> bool:
        """Map a pool to that of VTA, whose weights are one tile; False if it does not fit."""
        place, source = self._alike(node), node.inputs[0]
        padding, sides = self._padded(source, op.padding)
        data = Use(place, sides)
        pool = AvgPool2d(
            **data.extents,
            channels=self.width(place),
            kernel=kernel,
            strides=op.strides,
            padding=padding,
            rounding="half_up",
            clip=op.requantization.clip,
        )
        try:
            pool = scaled(pool, op.requantization, op.factor, source.zero_point, self.scales)
        except ShapeError:
            return False
        if not pool.offset and pool.division == (plain := replace(pool, division=None)).factor:
            pool = plain
        elif pool.offset and math.prod(pool.out_size) > pool.window.count:
            return False  # an offset costs passes over the results, in a convolution a product
        self._step(node, pool, {"data": data, "res": self._kept(node, place)})
        return True

    @_map.register
    def _(self, op: ops.Requantize, node: Node) -> None:
        channels = len(self.places[node.inputs[0].name].lanes)
        weight = np.ones((channels, 1, 1, 1), np.int8)
        convolution = ops.Convolution(weight, None, op.requantization, groups=channels)
        self._depthwise(node, weight, convolution)

    @_map.register
    def _(self, op: ops.Add, node: Node) -> None:
        shift = op.requantization.right_shift
        found = None if self.scales else rules.addition(op.factors, shift or 0)
        if found is None:
            whole = rules.addition_zeros if self.scales else rules.wide_constant
            self._elementwise(node, op, "add", *op.factors, constant=whole(op, node))
            return
        swapped, first, second, bits = found
        assert shift is not None
        data = self._alike(node)
        lanes, size = data.relative(self.block), self.width(data)
        other = self._second(node, lanes)
        res = self._kept(node, data)
        if swapped:
            data, other = other, data
        constant = rules.addition_constant(op, node)
        uses = {
            "data": Use(data),
            "residual": Use(other),
            "res": res,
        }
        convolution = Conv2d(
            **uses["data"].extents,
            in_channels=size,
            out_channels=size,
            kernel=1,
            groups=size,
            bias=constant != 0,
            shift=bits,
            clip=op.requantization.clip,
            residual=True,
            residual_scale=second,
            residual_shift=shift - bits,
        )
        kernel = np.full((size, 1, 1, 1), first, np.int8)
        bias = np.full(size, constant, np.int32) if constant else None
        self._step(node, convolution, uses, kernel=kernel, bias=bias)

    @_map.register
    def _(self, op: ops.Multiply, node: Node) -> None:
        self._elementwise(node, op, "multiply", 1, 1)

    @_map.register
    def _(self, op: ops.LeakyRelu, node: Node) -> None:
        self._elementwise(node, op, "maximum", op.positive, op.negative)

    def _elementwise(
        self,
        node: Node,
        op: ops.Add | ops.Multiply | ops.LeakyRelu,
        function: Function,
        factor: int,
        other_factor: int,
        constant: int = 0,
    ) -> None:
        """Emit a function of two tensors, or of one tensor and itself."""
        data = self._alike(node)
        other = self._second(node, data.relative(self.block)) if len(node.inputs) > 1 else data
        fields: dict[str, Any] = {"shift": op.requantization.right_shift, "rounding": "half_up"}
        if self.scales:
            scaling = uniform(op.requantization)
            assert scaling is not None
            fields = scaling
        if isinstance(op, ops.Multiply):
            (image, first), (gate, second) = ((t.shape, -t.zero_point) for t in node.inputs)
            fields |= {"data_offset": first, "other_offset": second, "by_channel": image != gate}
        combined = Elementwise(
            function=function,
            shape=self._shape(data),
            scale=factor,
            other_scale=other_factor,
            clip=op.requantization.clip,
            constant=as_int32(constant),
            **fields,
        )
        uses = {"data": Use(data), "other": Use(other), "res": self._kept(node, data)}
        self._step(node, combined, uses)

    @_map.register
    def _(self, op: ops.LookupTable, node: Node) -> None:
        """Map a table that no operator before it applies to a copy."""
        data = self._alike(node)
        copy = Elementwise(function="identity", shape=self._shape(data), multiplier=1)
        self._tables[node.outputs[0].name] = op.table
        self._step(node, copy, {"data": Use(data), "res": self._kept(node, data)})

    # --------------------------------------------------------------------------- movement

    @_map.register
    def _(self, op: ops.Concat, node: Node) -> None:
        if self.moves_pixels(node):
            self._join_pixels(node, op.axis)
            return
        lanes = []
        for position, tensor in enumerate(node.inputs):
            place = self.places[tensor.name]
            slot = self.joined(node, position)
            if slot is not None:
                self._copy(node.name, place, slot)
                place = slot
            lanes.append(self._channels(tensor, place.lanes))
        name, found = node.outputs[0].name, np.concatenate(lanes, op.axis)
        self.places[name] = TensorPlace(self._slots[name].memory, tuple(found.ravel().tolist()))

    def _join_pixels(self, node: Node, axis: int, start: int = 0) -> None:
        """Copy images to parts of the result, or the part from `start` on of one image."""
        (result,) = node.outputs
        res, storage = self.result(result), self.storages[result.name]
        across = storage.pixel_axis(axis % len(result.shape), result.shape) == 3
        size = storage.image[2 + across]
        for tensor in node.inputs:
            data = self._packed(node, tensor)
            extent = data.memory.image[2 + across]
            shared = min(extent, size)
            uses = [
                Use(place, _all_but(int(across), (at, whole - shared - at), (0, 0)))
                for place, at, whole in (
                    (data, start if extent > size else 0, extent),
                    (res, 0 if extent > size else start, size),
                )
            ]
            start += extent
            self._copy_part(node, *uses)

    def _copy_part(self, node: Node, data: Use, res: Use) -> None:
        """Copy a part of an image, whose channels lie alike in both."""
        extents = data.extents
        shape = extents["batch"], self.width(data.place), extents["height"], extents["width"]
        copy = Elementwise(function="identity", shape=shape, clip=None)
        self._append(node.name, copy, {"data": data, "res": res})

    def _channels(self, tensor: Tensor, lanes: Lanes) -> Array:
        """Return the lanes of a tensor by the axes of its channels; others have one element."""
        axes = self.storages[tensor.name].channel_axes(tensor.shape) or range(0)
        return np.array(lanes).reshape(
            [extent if axis in axes else 1 for axis, extent in enumerate(tensor.shape)]
        )

    @_map.register
    def _(
        self, op: ops.Slice | ops.ChannelShuffle | ops.Reshape | ops.Transpose, node: Node
    ) -> None:
        """Map an operator that moves no data to another view of the same image."""
        place = self.places[node.inputs[0].name]
        lanes = np.array(place.lanes)
        if isinstance(op, ops.Slice) and self.moves_pixels(node):
            self._join_pixels(node, op.axis, op.start)
            return
        if isinstance(op, ops.Slice):
            by_axis = self._channels(node.inputs[0], place.lanes)
            lanes = by_axis.take(range(op.start, op.stop, op.step), op.axis)
        elif isinstance(op, ops.ChannelShuffle):
            lanes = lanes.reshape(op.groups, -1).T
        elif isinstance(op, ops.Transpose):
            lanes = self._channels(node.inputs[0], place.lanes).transpose(op.axes)
        self.places[node.outputs[0].name] = replace(place, lanes=tuple(lanes.ravel().tolist()))

    @_map.register
    def _(self, op: ops.Pad, node: Node) -> None:
        data = self._alike(node)
        place = self._kept(node, data).place
        place.memory.filled = op.mode == "constant"
        top, left, bottom, right = op.padding
        self._copy(node.name, data, place, (-top, -left, -bottom, -right))
        if op.mode != "constant":
            self._repeat_border(node, op, place)

    def _repeat_border(self, node: Node, op: ops.Pad, place: TensorPlace) -> None:
        """Copy rows of an image to its border, and then columns with their ends."""
        inside, size = (self.image_of(t)[2:] for t in (node.inputs[0], node.outputs[0]))
        across = {0: (op.padding[1], op.padding[3]), 1: (0, 0)}
        for axis in (0, 1):
            before, behind = op.sources(axis, inside[axis])
            first, beyond = op.padding[axis], size[axis] - 1
            for to, source in [*enumerate(before), *enumerate(behind, first + inside[axis])]:
                data, res = (
                    Use(place, _all_but(axis, (at, beyond - at), across[axis]))
                    for at in (first + source, to)
                )
                self._copy_part(node, data, res)

    @_map.register
    def _(self, op: ops.Upsample, node: Node) -> None:
        """Map to a transposed convolution that copies each pixel to every position of its phase."""
        data, place = self.places[node.inputs[0].name], self.result(node.outputs[0])
        inputs, outputs = self.width(data), self.width(place)
        weight = _zeros(node.name, inputs, outputs, *op.factors)
        weight[data.relative(self.block), place.relative(self.block)] = 1
        uses = {"data": Use(data), "res": Use(place)}
        transposed = Conv2dTranspose(
            **uses["data"].extents,
            in_channels=inputs,
            out_channels=outputs,
            kernel=op.factors,
            strides=op.factors,
            shift=0,
            clip=None,
        )
        self._step(node, transposed, uses, kernel=weight)


def _all_but(axis: int, along: tuple[int, int], across: tuple[int, int]) -> Sides:
    """Return the sides of all but a row (axis 0) or a column of an image, as negative numbers."""
    (top, bottom), (left, right) = (along, across) if axis == 0 else (across, along)
    return -top, -left, -bottom, -right


def _zeros(node: str, *shape: int) -> Array:
    """Return zero weights, some of which the caller sets."""
    if math.prod(shape) > MAX_WEIGHTS:
        raise UnsupportedError(
            f"{node} takes {shape[0]:,} x {shape[1]:,} weights of {shape[2]} x {shape[3]} on VTA, "
            f"most of them zeros; the limit is {MAX_WEIGHTS:,} bytes"
        )
    return np.zeros(shape, np.int8)


def _ungrouped(node: str, weight: Array, groups: int) -> Array:
    """Return the weights of a grouped convolution as those of a dense one."""
    outputs, inputs = weight.shape[:2]
    dense = _zeros(node, outputs, inputs * groups, *weight.shape[2:])
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        dense[output, first : first + inputs] = weight[output]
    return dense
