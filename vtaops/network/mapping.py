"""From the nodes of a graph to operators of VTA and the places of their tensors.

`Mapper` walks the nodes that one region executes, in order, and collects steps. Constants are
folded on the way: weights are spread over the lanes that hold their channels, and everything that
is added to the sums, zero points included, becomes one bias (``docs/quantization.md``). Where
padding must hold a zero point other than 0, the operator reads it from a border in DRAM and pads
nothing itself.

Relies on `vtaops.network.rules`: a node comes here only if it has no obstacle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.shapes import Array, Sides
from vtaops.graph import Graph, Node, Tensor
from vtaops.graph import operators as ops
from vtaops.graph.operators import GraphOperator
from vtaops.machine.layout import data_layout
from vtaops.machine.views import Patches, constant_digits
from vtaops.network import rules
from vtaops.network.averages import parts
from vtaops.network.endings import Ending
from vtaops.network.rules import Target
from vtaops.network.scaling import as_int32, uniform
from vtaops.network.storage import (
    NO_SIDES,
    Lanes,
    MappedOperator,
    StoredImage,
    TensorPlace,
    Use,
    image_shape,
    on_lanes,
    packed_lanes,
)
from vtaops.ops import (
    AvgPool2d,
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Gemm,
    MaxPool2d,
    Operator,
)
from vtaops.ops.elementwise import Function


class Mapper:
    """The steps of one region.

    Parameters
    ----------
    graph : Graph
        The network.
    nodes : sequence of Node
        What the region executes, in order; none has an obstacle.
    target : Target
        The hardware.

    Attributes
    ----------
    steps : list of MappedOperator
        What VTA executes, in order.
    memories : dict of str to StoredImage
        The images in DRAM, by name.
    places : dict of str to TensorPlace
        Where each tensor of the region lies, by its name.
    """

    def __init__(self, graph: Graph, nodes: Sequence[Node], target: Target) -> None:
        self.graph = graph
        self.nodes = list(nodes)
        self.config = target.config
        self.scales = target.scales
        self.block = target.config.block_in
        self.steps: list[MappedOperator] = []
        self.memories: dict[str, StoredImage] = {}
        self.places: dict[str, TensorPlace] = {}
        made = {tensor.name for node in nodes for tensor in node.outputs}
        self.inputs = _unique(t for n in nodes for t in n.inputs if t.name not in made)
        inside = {id(node) for node in nodes}
        self.outputs = [
            tensor
            for node in nodes
            for tensor in node.outputs
            if tensor in graph.outputs
            or any(id(reader) not in inside for reader in graph.consumers(tensor))
        ]
        self._tables: dict[str, Array] = {}
        """What maps the result of an operator on its way out, by the name of that result."""
        if target.tables:
            self._join_functions()
        self._slots: dict[str, TensorPlace] = {}
        for tensor in self.inputs:
            self.places[tensor.name] = self._new(tensor, role="input")
        self._join_concatenations()
        for node in self.nodes:
            self._map(node.op, node)
        for tensor in self.outputs:
            self._hand_over(tensor)

    # ------------------------------------------------------------------------ memory

    def _new(self, tensor: Tensor, *, role: str = "scratch", name: str = "") -> TensorPlace:
        """Return a new image for a tensor, its channels one after the other."""
        image = _image(tensor)
        memory = self._memory(name or tensor.name, image, tensor, role)
        return TensorPlace(memory, packed_lanes(image[1]))

    def _memory(
        self, name: str, image: tuple[int, int, int, int], tensor: Tensor, role: str = "scratch"
    ) -> StoredImage:
        n, c, h, w = image
        if role != "input":  # the host pads what it hands over
            c = -(-c // self.block) * self.block
        memory = StoredImage(name, (n, c, h, w), tensor.zero_point, role=role)
        self.memories[name] = memory
        return memory

    def _result(self, tensor: Tensor, lanes: Lanes | None = None) -> TensorPlace:
        """Return where a step puts a tensor: its part of a concatenation, or a new image.

        `lanes` are those that the operator keeps from its input, counted from the first block.
        """
        place = self._slots.get(tensor.name)
        if place is None:
            n, channels, h, w = _image(tensor)
            lanes = packed_lanes(channels) if lanes is None else lanes
            place = TensorPlace(self._memory(tensor.name, (n, max(lanes) + 1, h, w), tensor), lanes)
        self.places[tensor.name] = place
        return place

    def _is_fixed(self, tensor: Tensor) -> bool:
        return tensor.name in self._slots

    def _join_functions(self) -> None:
        """Join a table with the operator before it, if nothing else reads what that makes."""
        joined: dict[str, Node] = {}  # by the name of the operator before
        makers = {node.name: node for node in self.nodes if isinstance(node.op, ops.Requantized)}
        for node in self.nodes:
            tensor = node.inputs[0]
            alone = self.graph.consumers(tensor) == [node] and tensor not in self.graph.outputs
            if isinstance(node.op, ops.LookupTable) and tensor.name in makers and alone:
                joined[tensor.name] = node
        functions = {id(node) for node in joined.values()}
        for function in joined.values():
            assert isinstance(function.op, ops.LookupTable)
            self._tables[function.name] = function.op.table
        self.nodes = [
            replace(node, outputs=joined[node.name].outputs) if node.name in joined else node
            for node in self.nodes
            if id(node) not in functions
        ]

    def _join_concatenations(self) -> None:
        """Give the inputs of every concatenation their parts of one image.

        An input that lies elsewhere anyway, in another concatenation or as a view of something, is
        copied; the others are stored where they belong.
        """
        makers = {t.name: n for n in self.nodes for t in n.outputs}
        joins = [n for n in self.nodes if isinstance(n.op, ops.Concat)]
        parts: dict[str, list[str]] = {}  # for each join the names of its parts
        taken: set[str] = set()
        for node in reversed(joins):
            names = parts[node.outputs[0].name] = []
            for position, tensor in enumerate(node.inputs):
                maker, name = makers.get(tensor.name), tensor.name
                stored = maker is not None and (maker in joins or not rules.is_free(maker.op))
                if not stored or name in taken:
                    name = _copy_name(node, position)
                taken.add(name)
                names.append(name)
        widths: dict[str, int] = {}  # in blocks
        for node in joins:
            for name, tensor in zip(parts[node.outputs[0].name], node.inputs, strict=True):
                widths.setdefault(name, self._block_count(tensor))
            widths[node.outputs[0].name] = sum(widths[n] for n in parts[node.outputs[0].name])
        for node in reversed(joins):
            (result,) = node.outputs
            if result.name not in self._slots:
                n, _, h, w = _image(result)
                image = n, widths[result.name] * self.block, h, w
                self._slots[result.name] = TensorPlace(
                    self._memory(result.name, image, result), (0,)
                )
            memory, start = self._slots[result.name].memory, self._slots[result.name].lanes[0]
            for name, tensor in zip(parts[result.name], node.inputs, strict=True):
                lanes = range(start, start + _image(tensor)[1])
                self._slots[name] = TensorPlace(memory, tuple(lanes))
                start += widths[name] * self.block

    def _block_count(self, tensor: Tensor) -> int:
        return -(-_image(tensor)[1] // self.block)

    def _hand_over(self, tensor: Tensor) -> None:
        """Make sure that the host can read a tensor of the region."""
        place = self.places[tensor.name]
        memory = place.memory
        if memory.role == "input" or memory.filled or any(memory.border):
            copy = self._new(tensor, name=f"{tensor.name}:output")
            self._copy(tensor.name, place, copy)
            self.places[tensor.name] = place = copy
        place.memory.role = "output"

    # ------------------------------------------------------------------------- steps

    def _step(
        self,
        node: Node,
        op: Operator,
        uses: dict[str, Use],
        **weights: Array | None,
    ) -> None:
        """Emit a step that makes the result of a node, mapped by the function behind it."""
        table = self._tables.get(node.outputs[0].name)
        self._append(node.name, op, uses, **weights, table=table)

    def _append(
        self,
        node: str,
        op: Operator,
        uses: dict[str, Use],
        **weights: Array | None,
    ) -> None:
        for use in uses.values():
            use.place.memory.widen(use.sides)
        given = {name: value for name, value in weights.items() if value is not None}
        self.steps.append(MappedOperator(node, op, uses, given))

    def _copy(
        self, node: str, source: TensorPlace, target: TensorPlace, sides: Sides = NO_SIDES
    ) -> None:
        """Copy a tensor, to other lanes if need be; `sides` of the target stay as they are."""
        lanes, wanted = source.relative(self.block), target.relative(self.block)
        n, _, h, w = source.memory.image
        uses = {"data": Use(source), "res": Use(target, sides)}
        if lanes == wanted and not any(sides):
            shape = n, self._width(source), h, w
            self._append(node, Elementwise(function="identity", shape=shape, clip=None), uses)
            return
        inputs, outputs = self._width(source), self._width(target)
        weight = np.zeros((outputs, inputs, 1, 1), np.int8)
        weight[wanted, lanes] = 1
        op = Conv2d(
            batch=n,
            in_channels=inputs,
            out_channels=outputs,
            height=h,
            width=w,
            kernel=1,
            shift=0,
            clip=None,
        )
        self._append(node, op, uses, kernel=weight)

    def _width(self, place: TensorPlace) -> int:
        """Return the lanes of the blocks that hold a tensor."""
        return place.blocks(self.block)[1] * self.block

    def _packed(self, node: Node, tensor: Tensor, suffix: str = "packed") -> TensorPlace:
        """Return a tensor with its channels one after the other, copied if they are not."""
        place = self.places[tensor.name]
        channels = len(place.lanes)
        if place.relative(self.block) == packed_lanes(channels):
            return place
        copy = self._new(tensor, name=f"{node.name}:{suffix}:{tensor.name}")
        self._copy(node.name, place, copy)
        return copy

    def _padded(self, tensor: Tensor, padding: Sides) -> tuple[Sides, Sides]:
        """Return the padding that the operator does itself, and the border that it reads."""
        if tensor.zero_point == 0 or not any(padding):
            return padding, NO_SIDES
        return NO_SIDES, padding

    # ------------------------------------------------------------------ sums of products

    @singledispatchmethod
    def _map(self, op: GraphOperator, node: Node) -> None:
        raise AssertionError(f"{op.kind} has no mapping, but no obstacle either")

    @_map.register
    def _(self, op: ops.Convolution, node: Node) -> None:
        if op.groups > 1 and op.weight.shape[0] == op.groups and op.weight.shape[1] == 1:
            self._depthwise(node, op.weight, op)
            return
        self._convolve(node, op.weight, op, groups=op.groups)

    def _depthwise(self, node: Node, weight: Array, op: ops.Convolution) -> None:
        """Map a convolution in which every channel reads itself: its lanes stay as they are."""
        data = self._alike(node)
        lanes, size = data.relative(self.block), self._width(data)
        self._sum(node, op, data, on_lanes(weight, lanes, size), lanes, groups=size)

    def _convolve(self, node: Node, weight: Array, op: ops.Convolution, groups: int = 1) -> None:
        (result,) = node.outputs
        data = self.places[node.inputs[0].name]
        lanes, size = data.relative(self.block), self._width(data)
        if groups > 1:
            if lanes == packed_lanes(len(lanes)):
                size = len(lanes)
            else:
                weight, groups = _ungrouped(weight, groups), 1
        outputs = self._output_lanes(node, result)
        if groups == 1:
            weight = on_lanes(weight, lanes, size, axis=1)
            weight = on_lanes(weight, outputs, self._lanes_of(outputs), axis=0)
        elif outputs != packed_lanes(len(outputs)):
            raise AssertionError("the result of a grouped convolution has other lanes")
        self._sum(node, op, data, weight, outputs, groups, inputs=size)

    def _output_lanes(self, node: Node, result: Tensor) -> Lanes:
        """Return the lanes of a result: those of the residual, if there is one."""
        channels = _image(result)[1]
        if len(node.inputs) > 1 and not self._is_fixed(result):
            groups = getattr(node.op, "groups", 1)
            if groups == 1:
                return self.places[node.inputs[1].name].relative(self.block)
        return packed_lanes(channels)

    def _lanes_of(self, lanes: Lanes) -> int:
        return -(-(max(lanes) + 1) // self.block) * self.block

    def _alike(self, node: Node) -> TensorPlace:
        """Return the first input of an operator that keeps lanes, its channels where they must be.

        If the result is part of a concatenation, or the inputs lie in different lanes, they are
        packed.
        """
        tensors = node.inputs
        found = [self.places[t.name].relative(self.block) for t in tensors]
        if self._is_fixed(node.outputs[0]) or any(lanes != found[0] for lanes in found):
            for tensor in _unique(tensors):
                self.places[f"{node.name}<{tensor.name}"] = self._packed(node, tensor)
            return self.places[f"{node.name}<{tensors[0].name}"]
        return self.places[tensors[0].name]

    def _second(self, node: Node, lanes: Lanes) -> TensorPlace:
        """Return the second input, its channels in certain lanes."""
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
        """Emit a convolution on lanes: weights are those of all lanes."""
        source, (result,) = node.inputs[0], node.outputs
        padding, sides = self._padded(source, op.padding)
        n, _, h, w = data.memory.image
        top, left, bottom, right = sides
        place = self._result(result, outputs)
        uses = {"data": Use(data, sides)}
        if op.residual_factor is not None:
            uses["residual"] = Use(self._second(node, place.relative(self.block)))
        uses["res"] = Use(place)
        size = weight.shape[0] if groups > 1 else self._lanes_of(outputs)
        ending = self._ending(op, node, op.residual_factor)
        convolution = Conv2d(
            batch=n,
            in_channels=inputs or self._width(data),
            out_channels=size,
            height=h + top + bottom,
            width=w + left + right,
            kernel=weight.shape[2:],
            strides=op.strides,
            padding=padding,
            dilation=op.dilation,
            groups=groups,
            **ending.fields,
        )
        ending = ending.on_lanes(outputs, size)
        weight = weight << ending.left
        given = self._from_host(node, convolution, data, weight, ending.constant)
        convolution, weight, constant = given or (convolution, weight, ending.constant)
        self._emit_sum(node, convolution, uses, weight, replace(ending, constant=constant))

    def _ending(
        self,
        op: ops.Convolution | ops.TransposedConvolution | ops.Dense,
        node: Node,
        residual: Array | None = None,
    ) -> Ending:
        """Return what follows the sums of products of an operator."""
        weight = op.weight
        if isinstance(op, ops.TransposedConvolution):
            weight = weight.transpose(1, 0, 2, 3)
        zeros = tuple(tensor.zero_point for tensor in node.inputs)
        if self.scales:
            return Ending.scaled(weight, op.bias, op.requantization, zeros, residual)
        factor = 0 if residual is None else int(residual.flat[0])
        return Ending.shifted(weight, op.bias, op.requantization, zeros, factor)

    def _emit_sum(
        self, node: Node, op: Conv2d, uses: dict[str, Use], weight: Array, ending: Ending
    ) -> None:
        """Emit a convolution with what is added to its sums."""
        constant = ending.constant
        digits = None if self.scales else constant_digits(constant, self.block)
        if digits is None:
            op, bias = ending.with_bias(op)
            self._step(node, op, uses, kernel=weight, bias=bias, **ending.vectors)
        elif constant.any():
            op, tiles = replace(op, bias_tiles=True), digits[:, :, None, None]
            self._step(node, op, uses, kernel=weight, constant_scale=tiles)
        else:
            self._step(node, op, uses, kernel=weight)

    def _from_host(
        self, node: Node, op: Conv2d, data: TensorPlace, weight: Array, constant: Array
    ) -> tuple[Conv2d, Array, Array] | None:
        """Let the host gather the pixels of windows, if it packs the image for this operator alone.

        Then few channels fill their tiles: all pixels of a window become channels, or those of a
        row of it, whichever takes fewer cycles. What is left of the last tile holds constants,
        which add the bias.
        """
        tensor = node.inputs[0]
        readers = [n for n in self.nodes if tensor in n.inputs]
        channels = len(data.lanes)
        alone = data.memory.role == "input" and readers == [node] and op.groups == 1
        alone = alone and node.inputs.count(tensor) == 1  # it may be the residual too
        if not alone or tensor in self.graph.outputs:
            return None
        op = replace(op, in_channels=channels)
        weight = weight[:, :channels]
        columns = replace(op, fold_columns=True)
        patches, view = self._as_patches(op)
        costs = {id(o): self._input_cost(o) for o in (op, columns.unfolded, patches)}
        best = min(costs.values())
        if costs[id(op)] <= 1.1 * best:
            return None
        if costs[id(patches)] > best:
            data.memory.folded = columns.buffers(self.config)[0]
            return columns, weight, constant
        gathered = weight.transpose(0, 2, 3, 1).reshape(len(weight), -1, 1, 1)
        digits = constant_digits(constant, view.constants) if view.constants > 1 else None
        if digits is None:
            digits = np.zeros((len(weight), view.constants), np.int8)
        else:
            constant = np.zeros_like(constant)
        gathered = np.concatenate([gathered, digits[:, :, None, None]], axis=1)
        image = op.buffers(self.config)[0]
        data.memory.folded = replace(image, layout=data_layout(self.config, view))
        return patches, gathered, constant

    def _as_patches(self, op: Conv2d) -> tuple[Conv2d, Patches]:
        """Return the convolution of one tap that reads `Patches`, and those."""
        pixels = op.in_channels * op.window.count
        spare = -pixels % self.block
        view = Patches.of(op.window, constants=spare)
        oh, ow = op.out_size
        patches = replace(
            op,
            in_channels=pixels + spare,
            height=oh,
            width=ow,
            kernel=1,
            strides=1,
            padding=0,
            dilation=1,
        )
        return patches, view

    def _input_cost(self, op: Conv2d) -> float:
        """Estimate the cycles of a first layer: its products, or its image over the bus."""
        (oh, ow), (kh, kw) = op.out_size, op.window.kernel
        blocks = -(-op.in_channels // self.block)
        outputs = -(-op.out_channels // self.config.block_out)
        nbytes = blocks * op.height * op.width * self.config.inp.element_bytes
        return max(blocks * kh * kw * outputs * oh * ow, 8 * nbytes / self.config.board.bus_bits)

    @_map.register
    def _(self, op: ops.TransposedConvolution, node: Node) -> None:
        (result,) = node.outputs
        data = self.places[node.inputs[0].name]
        n, _, h, w = data.memory.image
        place = self._result(result)
        outputs, inputs = self._width(place), self._width(data)
        lanes = place.relative(self.block)
        ending = self._ending(op, node)
        weight = on_lanes(op.weight << ending.left, data.relative(self.block), inputs, axis=0)
        weight = on_lanes(weight, lanes, outputs, axis=1)
        transposed = Conv2dTranspose(
            batch=n,
            in_channels=inputs,
            out_channels=outputs,
            height=h,
            width=w,
            kernel=weight.shape[2:],
            strides=op.strides,
            padding=op.padding,
            output_padding=op.output_padding,
            **ending.fields,
        )
        ending = ending.on_lanes(lanes, outputs)
        transposed, bias = ending.with_bias(transposed)
        uses = {"data": Use(data), "res": Use(place)}
        self._step(node, transposed, uses, kernel=weight, bias=bias, **ending.vectors)

    @_map.register
    def _(self, op: ops.Dense, node: Node) -> None:
        data = self.places[node.inputs[0].name]
        n, _, h, w = data.memory.image
        (result,) = node.outputs
        if h * w > 1:  # of a flattened image: a convolution of the size of the image
            outputs, inputs = op.weight.shape[0], len(data.lanes)
            weight = op.weight.reshape(outputs, inputs, h, w)
            self._convolve(node, weight, ops.Convolution(weight, op.bias, op.requantization))
            return
        place = self._result(result)
        outputs, inputs = self._width(place), self._width(data)
        lanes = place.relative(self.block)
        ending = self._ending(op, node)
        weight = on_lanes(op.weight << ending.left, data.relative(self.block), inputs, axis=1)
        weight = on_lanes(weight, lanes, outputs)
        gemm = Gemm(m=n, n=outputs, k=inputs, **ending.fields)
        ending = ending.on_lanes(lanes, outputs)
        gemm, bias = ending.with_bias(gemm)
        uses = {"data": Use(data), "res": Use(place)}
        self._step(node, gemm, uses, weight=weight, bias=bias, **ending.vectors)

    # ---------------------------------------------------------------- channel by channel

    @_map.register
    def _(self, op: ops.MaxPool, node: Node) -> None:
        data = self._alike(node)
        n, _, h, w = data.memory.image
        pool = MaxPool2d(
            batch=n,
            channels=self._width(data),
            height=h,
            width=w,
            kernel=op.kernel,
            strides=op.strides,
            padding=op.padding,
        )
        place = self._result(node.outputs[0], data.relative(self.block))
        self._step(node, pool, {"data": Use(data), "res": Use(place)})

    @_map.register
    def _(self, op: ops.AveragePool, node: Node) -> None:
        data = self.places[node.inputs[0].name]
        kernel = op.window(node.inputs[0]).kernel
        if op.exclude_padding and any(op.padding):
            self._average_in_parts(node, op)
            return
        if self._average(node, op, kernel):
            return
        weight = np.full((len(data.lanes), 1, *kernel), op.factor, np.int8)
        convolution = ops.Convolution(
            weight, None, op.requantization, op.strides, op.padding, groups=len(weight)
        )
        self._depthwise(node, weight, convolution)

    def _average_in_parts(self, node: Node, op: ops.AveragePool) -> None:
        """Map a mean that excludes its padding: a pool for each part of the result."""
        (source,), (result,) = node.inputs, node.outputs
        data = self._alike(node)
        place = self._result(result, data.relative(self.block))
        found = parts(op, source.shape, result.shape, source.zero_point, self.scales)
        for part in found:
            pool = replace(part.pool, channels=self._width(data))
            uses = {"data": Use(data, part.data), "res": Use(place, part.res)}
            self._step(node, pool, uses)

    def _average(self, node: Node, op: ops.AveragePool, kernel: tuple[int, int]) -> bool:
        """Map a pool to the one of VTA, whose weights are one tile; False if it is another."""
        data = self._alike(node)
        n, _, h, w = data.memory.image
        (source,), (result,) = node.inputs, node.outputs
        padding, (top, left, bottom, right) = self._padded(source, op.padding)
        pool = AvgPool2d(
            batch=n,
            channels=self._width(data),
            height=h + top + bottom,
            width=w + left + right,
            kernel=kernel,
            strides=op.strides,
            padding=padding,
            rounding="half_up",
            clip=op.requantization.clip,
        )
        if self.scales:
            scaling = uniform(op.requantization, op.factor)
            if scaling is None:
                return False
            zeros = -source.zero_point * kernel[0] * kernel[1]
            pool = replace(pool, **scaling, constant=zeros)
        else:
            divided = self._divided(op, pool, source.zero_point)
            if divided is None:
                return False
            pool = divided
        place = self._result(result, data.relative(self.block))
        uses = {"data": Use(data, (top, left, bottom, right)), "res": Use(place)}
        self._step(node, pool, uses)
        return True

    def _divided(self, op: ops.AveragePool, pool: AvgPool2d, zero: int) -> AvgPool2d | None:
        """Return a pool that divides by a shift; None where a depthwise convolution does better.

        That is where a constant, which takes the pool passes over the results, is a product there,
        and the results outnumber the weights.
        """
        shift = op.requantization.right_shift
        assert shift is not None
        offset = (
            op.requantization.zero_point << max(0, shift)
        ) - zero * op.factor * pool.window.count
        (h, w), division = pool.out_size, (op.factor, shift)
        if shift < 0 or (offset and h * w > pool.window.count):
            return None
        if pool.factor != division or offset:
            try:
                return replace(pool, division=division, offset=offset)
            except ShapeError:
                return None
        return pool

    @_map.register
    def _(self, op: ops.Requantize, node: Node) -> None:
        channels = len(self.places[node.inputs[0].name].lanes)
        weight = np.ones((channels, 1, 1, 1), np.int8)
        convolution = ops.Convolution(weight, None, op.requantization, groups=channels)
        self._depthwise(node, weight, convolution)

    @_map.register
    def _(self, op: ops.Add, node: Node) -> None:
        if self.scales:
            constant = rules.addition_zeros(op, node)
            self._elementwise(node, op, "add", *op.factors, constant=constant)
            return
        shift = op.requantization.right_shift
        assert shift is not None
        found = rules.addition(op.factors, shift)
        assert found is not None
        swapped, first, second, bits = found
        data = self._alike(node)
        lanes, size = data.relative(self.block), self._width(data)
        other = self._second(node, lanes)
        if swapped:
            data, other = other, data
        n, _, h, w = data.memory.image
        place = self._result(node.outputs[0], lanes)
        constant = rules.addition_constant(op, node)
        convolution = Conv2d(
            batch=n,
            in_channels=size,
            out_channels=size,
            height=h,
            width=w,
            kernel=1,
            groups=size,
            bias=constant != 0,
            shift=bits,
            clip=op.requantization.clip,
            residual=True,
            residual_scale=second,
            residual_shift=shift - bits,
        )
        uses = {"data": Use(data), "residual": Use(other), "res": Use(place)}
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
        """Emit a function of two tensors, or of one and itself."""
        data = self._alike(node)
        lanes, size = data.relative(self.block), self._width(data)
        other = self._second(node, lanes) if len(node.inputs) > 1 else data
        n, _, h, w = data.memory.image
        fields: dict[str, Any] = {"shift": op.requantization.right_shift, "rounding": "half_up"}
        if self.scales:
            scaling = uniform(op.requantization)
            assert scaling is not None
            fields = {**scaling, "constant": as_int32(constant)}
        fields["clip"] = op.requantization.clip
        combined = Elementwise(
            function=function,
            shape=(n, size, h, w),
            scale=factor,
            other_scale=other_factor,
            **fields,
        )
        place = self._result(node.outputs[0], lanes)
        uses = {"data": Use(data), "other": Use(other), "res": Use(place)}
        self._step(node, combined, uses)

    @_map.register
    def _(self, op: ops.LookupTable, node: Node) -> None:
        """Map a table that no operator before it takes along: it maps a copy."""
        data = self._alike(node)
        lanes, size = data.relative(self.block), self._width(data)
        n, _, h, w = data.memory.image
        copy = Elementwise(function="identity", shape=(n, size, h, w), multiplier=1)
        self._tables[node.outputs[0].name] = op.table
        uses = {"data": Use(data), "res": Use(self._result(node.outputs[0], lanes))}
        self._step(node, copy, uses)

    # --------------------------------------------------------------------------- movement

    @_map.register
    def _(self, op: ops.Concat, node: Node) -> None:
        lanes: list[int] = []
        for position, tensor in enumerate(node.inputs):
            place = self.places[tensor.name]
            slot = self._slots.get(_copy_name(node, position))
            if slot is not None:
                self._copy(node.name, place, slot)
                place = slot
            lanes += place.lanes
        result = node.outputs[0]
        memory = self._slots[result.name].memory
        self.places[result.name] = TensorPlace(memory, tuple(lanes))

    @_map.register
    def _(self, op: ops.Slice, node: Node) -> None:
        place = self.places[node.inputs[0].name]
        lanes = place.lanes[op.start : op.stop : op.step]
        self.places[node.outputs[0].name] = TensorPlace(place.memory, lanes)

    @_map.register
    def _(self, op: ops.ChannelShuffle, node: Node) -> None:
        place = self.places[node.inputs[0].name]
        order = np.array(place.lanes).reshape(op.groups, -1).T.ravel()
        self.places[node.outputs[0].name] = TensorPlace(place.memory, tuple(order.tolist()))

    @_map.register
    def _(self, op: ops.Reshape, node: Node) -> None:
        self.places[node.outputs[0].name] = self.places[node.inputs[0].name]

    @_map.register
    def _(self, op: ops.Pad, node: Node) -> None:
        data = self._alike(node)
        place = self._result(node.outputs[0], data.relative(self.block))
        place.memory.filled = True
        top, left, bottom, right = op.padding
        self._copy(node.name, data, place, (-top, -left, -bottom, -right))

    @_map.register
    def _(self, op: ops.Upsample, node: Node) -> None:
        """Map to a transposed convolution that copies each pixel to every position of its phase."""
        (result,) = node.outputs
        data = self.places[node.inputs[0].name]
        n, _, h, w = data.memory.image
        place = self._result(result)
        outputs, inputs = self._width(place), self._width(data)
        weight = np.zeros((inputs, outputs, *op.factors), np.int8)
        weight[data.relative(self.block), place.relative(self.block)] = 1
        transposed = Conv2dTranspose(
            batch=n,
            in_channels=inputs,
            out_channels=outputs,
            height=h,
            width=w,
            kernel=op.factors,
            strides=op.factors,
            shift=0,
            clip=None,
        )
        self._step(node, transposed, {"data": Use(data), "res": Use(place)}, kernel=weight)


def _image(tensor: Tensor) -> tuple[int, int, int, int]:
    """Return the image of a tensor that can lie on the device."""
    image = image_shape(tensor.shape)
    assert image is not None
    return image


def _copy_name(node: Node, position: int) -> str:
    """Return the name of the copy of an input of a concatenation."""
    return f"{node.name}:{position}"


def _unique(tensors: Any) -> list[Tensor]:
    return list({tensor.name: tensor for tensor in tensors}.values())


def _ungrouped(weight: Array, groups: int) -> Array:
    """Return the weights of a grouped convolution as those of a dense one."""
    outputs, inputs = weight.shape[:2]
    dense = np.zeros((outputs, inputs * groups, *weight.shape[2:]), weight.dtype)
    for output in range(outputs):
        first = output // (outputs // groups) * inputs
        dense[output, first : first + inputs] = weight[output]
    return dense
