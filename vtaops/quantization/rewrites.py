"""Rewrite attention so that heads stay channels, norms of tokens, and global response norms.

Exporters move heads to the last axis, mix them there by a product, and move them back. Scores lie
with their heads as channels, where such a product is a convolution of one pixel. Norms come behind
the choice of a token.

Global response norms are channels over the mean of their L2 norms: ``x * n / (mean(n) + epsilon)``,
where ``n`` is the L2 norm of a channel over all pixels, is a mean of squares, two functions of one
value (a root, and a reciprocal of one number for an image), and products. Each of these is rounded
to a grid of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    attributes,
    inferred_shapes,
    make_node,
    needed,
    refill,
    replace_initializer,
    require,
)


class Rewriter(ABC):
    """A model whose nodes are replaced, in their order.

    Attributes
    ----------
    model, tensors, shapes
        The model, and the connections and shapes that it has at first.
    done : set of str
        Results that the nodes so far compute, and the model's own nodes no more.
    """

    def __init__(self, model: ModelProto) -> None:
        self.model, self.tensors = model, Connections(model)
        self.shapes = inferred_shapes(model)
        self.done: set[str] = set()

    def run(self) -> None:
        """Replace the nodes in place, without those whose results nobody reads any more."""
        refill(self.model.graph.node, needed([*self.nodes()], self.tensors.outputs))

    @abstractmethod
    def nodes(self) -> Iterable[NodeProto]:
        """Yield the nodes of the model, some of them replaced."""


def steps(text: str, names: Mapping[str, str], stem: str) -> list[NodeProto]:
    """Return nodes written in ONNX's own syntax, one a line.

    The names of their tensors are those given, others begin with a stem.
    """
    nodes = [*map(require("onnx.parser").parse_node, text.splitlines())]
    for node in nodes:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, f"{stem}:{name}") for name in tensors]
        node.name = node.output[0]
    return nodes


_LAST = (0, 2, 3, 1)
"""The transposition of an image that makes its channels last."""
_SCALES = ("Add", "Div", "Mul", "Where")
"""Operators that may stand between a product and what mixes its heads."""


def keep_heads(model: ModelProto) -> None:
    """Rewrite what mixes heads, softmax along other axes than the last, and norms of tokens."""
    kinds = {node.op_type for node in model.graph.node}
    if "Softmax" in kinds or {"MatMul", "Transpose"} <= kinds:
        _Heads(model).run()
    if {"LayerNormalization", "Gather"} <= kinds:
        _Tokens(model).run()


class _Heads(Rewriter):
    """Moves transpositions of scores, which make heads last, behind what reads them."""

    def __init__(self, model: ModelProto) -> None:
        super().__init__(model)
        self.images: dict[str, str] = {}
        """The scores, heads first, of which tensors are transpositions."""
        self.same: dict[str, str] = {}
        """The scores that tensors are."""

    def nodes(self) -> Iterable[NodeProto]:
        for node in self.model.graph.node:
            if node.output[0] not in self.done:
                node.input[:] = [self.same.get(name, name) for name in node.input]
                yield from self._replaced(node)

    def _replaced(self, node: NodeProto) -> list[NodeProto]:
        image = self.images.get(node.input[0]) if node.input else None
        if node.op_type == "Softmax":
            return self._softmax(node, image)
        if node.op_type == "Transpose":
            return self._transpose(node, image)
        product = self._product(node) if image and node.op_type in ("MatMul", "Reshape") else None
        return self._convolution(image, *product) if image and product else [node]

    def _transpose(self, node: NodeProto, image: str | None) -> list[NodeProto]:
        axes = tuple(attributes(node).get("perm", ()))
        if image is None:
            if axes == _LAST and self._is_score(node.input[0]):
                self.images[node.output[0]] = node.input[0]
            return [node]
        joined = [_LAST[axis] for axis in axes]
        if joined == sorted(joined) and node.output[0] not in self.tensors.outputs:
            self.same[node.output[0]] = image
            return []
        return [make_node("Transpose", [image], node.output, perm=joined)]

    def _is_score(self, name: str) -> bool:
        """Return whether a tensor is a product of two, maybe scaled or masked."""
        node = self.tensors.writers.get(name)
        while node is not None and node.op_type in _SCALES:
            loose = [n for n in node.input if n not in self.tensors.constants]
            node = self.tensors.writers.get(loose[0]) if len(loose) == 1 else None
        if node is None or node.op_type != "MatMul":
            return False
        return self.tensors.constants.keys().isdisjoint(node.input)

    def _softmax(self, node: NodeProto, image: str | None) -> list[NodeProto]:
        """Return a softmax along the last axis, of scores as they lie or as they are read."""
        rank = len(self.shapes.get(node.input[0], ()))
        axis, (result,) = attributes(node).get("axis", -1) % max(rank, 1), node.output
        if image is not None:
            return self._turned(
                make_node("Softmax", [image], [f"{result}:heads"], axis=_LAST[axis]), result
            )
        reader = self.tensors.only_reader(result)
        if axis == rank - 1 or reader is None or reader.op_type != "Transpose":
            return [node]
        axes = attributes(reader)["perm"]
        if axes[-1] != axis:
            return [node]
        self.done.update(reader.output)
        before = make_node("Transpose", node.input, [f"{result}:rows"], perm=axes)
        return [before, make_node("Softmax", before.output, reader.output, axis=-1)]

    def _product(self, node: NodeProto) -> tuple[NodeProto, str] | None:
        """Return the product of matrices that begins with a node, and its result as an image."""
        constants = self.tensors.constants.keys()
        if node.op_type == "MatMul":
            return (node, node.output[0]) if node.input[1] in constants else None
        product = self._next(node, "Gemm")
        if product is None or not {*product.input[1:]} <= constants:
            return None
        back = self._next(product, "Reshape")
        if back is None or attributes(product).get("transA"):
            return None
        before, after = (self.shapes.get(n, ()) for n in (node.input[0], back.output[0]))
        alike = len(before) == len(after) == 4 and before[:3] == after[:3]
        return (product, back.output[0]) if alike else None

    def _next(self, node: NodeProto, kind: str) -> NodeProto | None:
        """Return the only node, of a kind, that reads what another one makes; None if none does."""
        reader = self.tensors.only_reader(node.output[0])
        return reader if reader is not None and reader.op_type == kind else None

    def _convolution(self, image: str, product: NodeProto, result: str) -> list[NodeProto]:
        """Return a product with the last axis as a convolution of heads."""
        weight: Any = self.tensors.constants[product.input[1]]
        if weight.ndim != 2:
            return [product]
        if not attributes(product).get("transB"):
            weight = weight.T
        name = f"{result}:heads_weight"
        replace_initializer(self.model, name, np.ascontiguousarray(weight[:, :, None, None]))
        made = make_node(
            "Conv", [image, name, *product.input[2:]], [f"{result}:heads"], kernel_shape=[1, 1]
        )
        self.done.update({*product.output, result})
        return self._turned(made, result)

    def _turned(self, node: NodeProto, result: str) -> list[NodeProto]:
        """Return a node on scores as they lie, and what makes heads last, if it is still read."""
        (made,) = node.output
        self.images[result] = made
        return [node, make_node("Transpose", [made], [result], perm=_LAST)]


class _Tokens(Rewriter):
    """Puts norms of one token in place of a token of what is normalised."""

    def nodes(self) -> Iterable[NodeProto]:
        for node in self.model.graph.node:
            norm = self.tensors.writers.get(node.input[0]) if node.op_type == "Gather" else None
            if norm is None or not self._takes_row(node, norm):
                yield node
                continue
            (result,), attrs = node.output, attributes(norm)
            token = f"{result}:token"
            yield make_node("Gather", [norm.input[0], node.input[1]], [token], **attributes(node))
            yield make_node(
                "LayerNormalization", [token, *norm.input[1:]], [result], **{**attrs, "axis": -1}
            )

    def _takes_row(self, node: NodeProto, norm: NodeProto) -> bool:
        """Return whether a Gather takes one token of what is normalised along the last axis."""
        if norm.op_type != "LayerNormalization":
            return False
        rank, index = (
            len(self.shapes.get(norm.output[0], ())),
            self.tensors.constants.get(node.input[1]),
        )
        axis = attributes(node).get("axis", 0)
        last = attributes(norm).get("axis", -1) in (-1, rank - 1)
        return (
            last and index is not None and index.size == 1 and rank > 2 and axis % rank < rank - 1
        )


# --------------------------------------------------------------------- global response norms


SMALLEST = 1e-12
"""What is added to means at least, of which inverses are taken."""

_OF_MEAN = ("Add", "ReduceMean", "Transpose")
"""Operators between the norms of channels and what they are divided by."""

_CHANNELS_FIRST = """\
squares = Mul (image, image)
spread = GlobalAveragePool (squares)
roots = Pow (spread, half)
mean = Conv <kernel_shape = [1, 1]> (roots, mean_weight, mean_bias)
positive = Clip (mean, least)
inverse = Pow (positive, minus)
inverses = Conv <kernel_shape = [1, 1]> (inverse, inverses_weight)
shares = Mul (roots, inverses)
scaled = Mul (image, shares)"""
"""The steps in ONNX's own syntax. The bound lets no inverse be infinite."""

_CHANNELS_LAST = f"""\
image = Transpose <perm = [0, 3, 1, 2]> (data)
{_CHANNELS_FIRST}
result = Transpose <perm = [0, 2, 3, 1]> (scaled)"""


def spell_out_responses(model: ModelProto) -> None:
    """Replace the global response norms of images, with channels first or last, in place."""
    if any(node.op_type == "ReduceL2" for node in model.graph.node):
        _Responses(model).run()


class _Responses(Rewriter):
    """The nodes of a model, global response norms among them spelled out."""

    def nodes(self) -> Iterable[NodeProto]:
        for node in self.model.graph.node:
            scaled = self.tensors.only_reader(node.output[0]) if node.op_type == "Div" else None
            norm, epsilon = self._norm(node) if scaled is not None else (None, 0.0)
            if scaled is not None and norm is not None and norm.input[0] in scaled.input:
                self.done.add(scaled.output[0])
                yield from self._spelled_out(norm, epsilon, scaled.output[0])
            elif node.output[0] not in self.done:
                yield node

    def _norm(self, node: NodeProto) -> tuple[NodeProto | None, float]:
        """Return the L2 norms that a node divides by their mean, and what is added to that."""
        norm, name, epsilon = self.tensors.writers.get(node.input[0]), node.input[1], 0.0
        if norm is None or norm.op_type != "ReduceL2" or self._channels(norm) is None:
            return None, 0.0
        while name != norm.output[0]:
            step = self.tensors.writers.get(name)
            if step is None or step.op_type not in _OF_MEAN or {*self.shapes[name]} != {1}:
                return None, 0.0
            name, *others = sorted(step.input, key=self.tensors.constants.__contains__)
            if step.op_type == "Add":
                epsilon += float(self.tensors.constants.get(others[0], np.nan))
        return (norm, epsilon) if np.isfinite(epsilon) else (None, 0.0)

    def _channels(self, norm: NodeProto) -> int | None:
        """Return the axis that L2 norms leave of one image; None if it is not that of channels."""
        whole, reduced = (self.shapes.get(n, ()) for n in (norm.input[0], norm.output[0]))
        axes = (
            axis for axis in (1, 3) if reduced == tuple(np.where(np.arange(4) == axis, whole, 1))
        )
        return next(axes, None) if len(whole) == 4 else None

    def _spelled_out(self, norm: NodeProto, epsilon: float, result: str) -> Iterable[NodeProto]:
        """Yield what computes an image times its normalised L2 norms."""
        data, first = norm.input[0], self._channels(norm) == 1
        shape = self.shapes[data]
        channels = shape[1 if first else 3]
        least = max(epsilon, SMALLEST) / math.sqrt(math.prod(shape) / channels)
        constants: dict[str, Any] = {
            "half": 0.5,
            "minus": -1.0,
            "least": least,
            "mean_weight": np.full((1, channels, 1, 1), 1 / channels),
            "mean_bias": [least],
            "inverses_weight": np.ones((channels, 1, 1, 1)),
        }
        for name, value in constants.items():
            replace_initializer(self.model, f"{result}:{name}", np.float32(value))
        ends = {"image": data, "scaled": result} if first else {"data": data, "result": result}
        yield from steps(_CHANNELS_FIRST if first else _CHANNELS_LAST, ends, result)
