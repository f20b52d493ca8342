"""Insert pairs of quantize and dequantize into a prepared float model.

A node computes on integers if VTA or the importer has it (`QUANTIZED`), all of its tensors have
grids, and it is not inside a function of one tensor, which is rounded as a whole. Its constants are
quantised, and it reads and writes tensors through pairs. Floats that only float nodes write and
read have no pair, nor has what a Relu or Clip on integers bounds, which rounds it once; a float
node reads the integers of a tensor only if that is all there is of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from graphlib import TopologicalSorter

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.names import suggestion
from vtaops.base.shapes import Array
from vtaops.graph.grid import Grid
from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    make_node,
    producers,
    read_by,
    refill,
    require,
)
from vtaops.quantization.activations import functions, norms
from vtaops.quantization.pairs import join_residuals
from vtaops.quantization.rewriting import let_read
from vtaops.quantization.scales import (
    LARGEST_BIAS,
    MOVES,
    PRODUCTS,
    WeightScale,
    constant_operands,
    saturated,
    weight_scales,
)

QUANTIZED = frozenset(
    {
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "Relu", "Clip", "LeakyRelu"),
        *("Add", "Sub", "Mul", "Max", "Min", "Concat", "GlobalAveragePool", *MOVES),
    }
)
"""ONNX operators that VTA runs or that move data, if their tensors are integers."""

_ROWS = ("LayerNormalization", "Softmax")
"""Functions of rows, between two of which VTA needs integers."""

_BIAS = 2
"""Number of the input of a product that is its bias."""

_FIRST = frozenset({*MOVES, "Clip"})
"""Operators whose other inputs are amounts, not tensors of the network."""


def integer_weights(
    model: ModelProto, grids: Mapping[str, Grid], floats: Collection[str], *, free: bool, bits: int
) -> dict[str, WeightScale]:
    """Return the scales of the constants that nodes on integers read (see `insert_pairs`).

    Those of products have one for each channel if `free`, else all have one power of two; `bits`
    are those of the weights of products.
    """
    nodes = _Insertion(model, grids, {}, floats)
    return weight_scales(model, grids, nodes.integers - nodes.inside, free=free, bits=bits)


def insert_pairs(
    model: ModelProto,
    grids: Mapping[str, Grid],
    weights: Mapping[str, WeightScale],
    floats: Collection[str],
) -> ModelProto:
    """Return a QDQ model whose tensors have the given grids.

    Parameters
    ----------
    model
        The prepared float model; it is not changed.
    grids
        The grid of each tensor; one without a grid has no pair.
    weights
        The scales of constants.
    floats
        Tensors whose writer computes on floats, though it could compute on integers.
    """
    result = deepcopy(model)
    _Insertion(result, grids, weights, floats).run()
    result.producer_name = "vtaops"
    join_residuals(result)
    require("onnx").checker.check_model(result)
    return result


def _by_breadth(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Return nodes so that each follows its inputs, those of parallel branches side by side.

    The compiler keeps the order, and hides the loads of one branch behind the work of others.
    """
    writers = {name: number for number, node in enumerate(nodes) for name in node.output}
    before = {
        number: {writers[name] for name in read_by(node) if name in writers}
        for number, node in enumerate(nodes)
    }
    return [nodes[number] for number in TopologicalSorter(before).static_order()]


def given_floats(model: ModelProto, names: Iterable[str]) -> frozenset[str]:
    """Return the results of nodes that stay float, each given by its name or by its result.

    An activation takes the node before it along, of which it is the end.

    Raises
    ------
    ModelError
        If there is no such node.
    """
    nodes = {node.name: node for node in model.graph.node} | producers(model)
    floats: set[str] = set()
    for name in names:
        if name not in nodes:
            hint = suggestion(name, nodes)
            raise ModelError(f"no node of the prepared model is called or writes {name!r}{hint}")
        floats.update(nodes[name].output)
    return frozenset(floats).union(n for n, end in saturated(model).items() if end in floats)


def _mark(names: Collection[str]) -> str:
    """Return colons that no name has."""
    mark = "::"
    while any(mark in name for name in names):
        mark += ":"
    return mark


class _Insertion:
    """The pairs of a model: those of constants in front, those of other tensors behind them.

    Attributes
    ----------
    integers
        The names of the nodes that compute on integers.
    inside
        The names of the nodes of functions, which read their constants as floats.
    shown
        The tensors that have pairs.
    nodes
        The nodes of the file so far.
    images
        The dequantised tensor of each tensor that has a pair.
    mark
        What no name of the model has, and all new names have.
    """

    def __init__(
        self,
        model: ModelProto,
        grids: Mapping[str, Grid],
        weights: Mapping[str, WeightScale],
        floats: Collection[str],
    ) -> None:
        self.model, self.grids, self.weights = model, grids, weights
        self.tensors = Connections(model)
        curves = functions(model) + norms(model)
        self.inside = set[str]().union(*(function.nodes for function in curves))
        integers = (node.name for node in model.graph.node if self._is_integer(node, floats))
        self.integers = {*integers} - self.inside
        writers, ends = self.tensors.writers, saturated(model)
        inner = writers.keys() & ends.keys()
        bounded = {name for name in inner if writers[ends[name]].name in self.integers}
        self.shown = {*filter(self._is_near, grids)} - bounded
        whole = (f.nodes for f in curves if {f.root, f.end} <= self.shown and f.end not in floats)
        self.integers.update(*whole)
        self.nodes: list[NodeProto] = []
        self.images: dict[str, str] = {}
        self.mark = _mark({*self.tensors.readers, *writers}.union(n.name for n in model.graph.node))

    def _is_integer(self, node: NodeProto, floats: Collection[str]) -> bool:
        """Return whether a node computes on integers: it can, and all its tensors have grids."""
        if node.op_type not in QUANTIZED or not {*node.output}.isdisjoint(floats):
            return False
        read = node.input[:1] if node.op_type in _FIRST else node.input
        named = [name for name in (*read, *node.output) if name]
        known = all(name in self.grids or name in self.tensors.constants for name in named)
        return known and not (node.op_type == "Clip" and self._loses_bound(node))

    def _loses_bound(self, node: NodeProto) -> bool:
        """Return whether a bound above 0 becomes 0, whose logarithm or quotient is infinite."""
        bound = self.tensors.constants.get([*node.input, ""][1], np.zeros(()))
        return bool(0 < bound.max(initial=0) < self.grids[node.output[0]].scale / 2)

    def _is_near(self, name: str) -> bool:
        """Return whether integers are written to a tensor, or a node reads the integers of it."""
        writer, readers = self.tensors.writers.get(name), self.tensors.readers.get(name, [])
        written = writer is not None and writer.name in self.integers
        return written or any(self._reads_image(node, name) for node in readers)

    def run(self) -> None:
        """Replace the nodes of the model."""
        for value in self.model.graph.input:
            self._add_pair(value.name)
        for node in self.model.graph.node:
            if node.name in self.integers - self.inside:
                self._read_constants(node)
            read = self.shown.intersection(read_by(node))
            let_read(node, {n: self.images[n] for n in read if self._reads_image(node, n)})
            self.nodes.append(node)
            for name in node.output:
                self._add_pair(name)
        refill(self.model.graph.node, _by_breadth(self.nodes))
        read = self.tensors.outputs.union(*map(read_by, self.nodes))
        constants = self.model.graph.initializer
        refill(constants, [tensor for tensor in constants if tensor.name in read])
        del self.model.graph.value_info[:]

    def _reads_image(self, node: NodeProto, name: str) -> bool:
        """Return whether a node reads the integers of a tensor: any, if nothing else is left."""
        ends = [node, *filter(None, [self.tensors.writers.get(name)])]
        rows = len(ends) == 2 and {each.op_type for each in ends} <= {*_ROWS}
        return rows or any(each.name in self.integers for each in ends)

    # ------------------------------------------------------------------------- tensors

    def _add_pair(self, name: str) -> None:
        """Add the pair of a tensor that has a grid and that integers write or read."""
        if name not in self.shown:
            return
        grid, source, image = self.grids[name], name, f"{name}{self.mark}rounded"
        if name in self.tensors.outputs:  # its writer writes another tensor
            source, image = f"{name}{self.mark}exact", name
            written = self.tensors.writers[name].output
            written[[*written].index(name)] = source
        parameters = self._parameters(name, np.float32(grid.scale), np.int8(grid.zero_point))
        self._add("QuantizeLinear", [source, *parameters], f"{name}{self.mark}quantized")
        self._add("DequantizeLinear", [f"{name}{self.mark}quantized", *parameters], image)
        self.images[name] = image

    # ----------------------------------------------------------------------- constants

    def _read_constants(self, node: NodeProto) -> None:
        """Let a node read its constants, and its bias, from grids."""
        constants, inputs = self.tensors.constants, list(node.input)
        read = [name for name in constant_operands(node) if name in self.weights]
        let_read(node, {n: self._constant(n, constants[n], self.weights[n]) for n in read})
        if node.op_type in PRODUCTS and len(inputs) > _BIAS and inputs[_BIAS] in constants:
            data, weight, bias = inputs
            if data in self.grids and weight in self.weights:
                steps = self.grids[data].scale * self.weights[weight].scale
                scale = WeightScale(steps, 0 if np.ndim(steps) else None, LARGEST_BIAS)
                own = f"{node.output[0]}:bias"  # products that share one have sums of their own
                node.input[_BIAS] = self._constant(own, constants[bias], scale)

    def _constant(self, name: str, value: Array, scale: WeightScale) -> str:
        """Return a dequantised constant; each is stored once."""
        if name in self.images:
            return self.images[name]
        integers = scale.integers(value)
        stored = self._store(f"{name}{self.mark}quantized", integers)
        zeros: Array = np.zeros(np.shape(scale.scale), integers.dtype)
        parameters = self._parameters(stored, np.asarray(scale.scale, np.float32), zeros)
        self.images[name] = f"{name}{self.mark}rounded"
        self._add("DequantizeLinear", [stored, *parameters], self.images[name], axis=scale.axis)
        return self.images[name]

    # --------------------------------------------------------------------------- names

    def _parameters(self, name: str, scale: Array, zero: Array) -> list[str]:
        parts = {"scale": scale, "zero_point": zero}
        return [self._store(f"{name}{self.mark}{part}", value) for part, value in parts.items()]

    def _store(self, name: str, value: Array) -> str:
        tensor = require("onnx").numpy_helper.from_array(np.asarray(value), name)
        self.model.graph.initializer.append(tensor)
        return name

    def _add(self, kind: str, inputs: list[str], result: str, **attributes: int | None) -> None:
        name = f"{result}{self.mark}{kind}"
        self.nodes.append(make_node(kind, inputs, [result], name=name, **attributes))
