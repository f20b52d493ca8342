"""Global response norms in operators that VTA has: channels over the mean of their L2 norms.

``x * n / (mean(n) + epsilon)``, where ``n`` is the L2 norm of a channel over all pixels, is a mean
of squares, two functions of one value (a root, and a reciprocal of one number for an image), and
products. Each of these is rounded to a grid of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from vtaops.graph.onnx_files import (
    ModelProto,
    NodeProto,
    attributes,
    make_node,
    replace_initializer,
)
from vtaops.quantization.rewrites import Rewriter


def spell_out_responses(model: ModelProto) -> None:
    """Replace the global response norms of images, with channels first or last, in place."""
    if any(node.op_type == "ReduceL2" for node in model.graph.node):
        _Responses(model).run()


SMALLEST = 1e-12
"""What is added to means at least, of which inverses are taken."""


class _Responses(Rewriter):
    """The nodes of a model, global response norms among them spelled out."""

    def nodes(self) -> Iterable[NodeProto]:
        for node in self.model.graph.node:
            scaled = self.tensors.only_reader(node.output[0]) if node.op_type == "Div" else None
            data = self._normalized(node) if scaled is not None else None
            if scaled is not None and data is not None and data in scaled.input:
                self.done.add(scaled.output[0])
                yield from self._spelled_out(node, data, scaled.output[0])
            elif node.output[0] not in self.done:
                yield node

    def _normalized(self, node: NodeProto) -> str | None:
        """Return the image of whose channels a node divides the L2 norms by their mean."""
        norm, total = map(self._writer, node.input)
        if norm is None or norm.op_type != "ReduceL2" or self._sum(total, norm) is None:
            return None
        shape = self.shapes.get(norm.input[0], ())
        return norm.input[0] if len(shape) == 4 else None

    def _writer(self, name: str) -> NodeProto | None:
        """Return what writes a tensor; one number is the same, however it is transposed."""
        found = self.tensors.writers.get(name)
        if found is None or found.op_type != "Transpose" or {*self.shapes.get(name, (0,))} != {1}:
            return found
        return self._writer(found.input[0])

    def _sum(self, total: NodeProto | None, norm: NodeProto) -> float | None:
        """Return what is added to the mean of the norms of channels; None if it is no such sum."""
        if total is None or total.op_type != "Add":
            return None
        for name, other in (total.input, total.input[::-1]):
            mean, number = self._writer(name), self.tensors.constants.get(other)
            if mean is None or mean.op_type != "ReduceMean" or number is None or number.size != 1:
                continue
            pair = self._axes(norm), self._axes(mean)
            if mean.input[0] == norm.output[0] and pair in (((2, 3), (1,)), ((1, 2), (3,))):
                return float(number.reshape(()))
        return None

    def _axes(self, node: NodeProto) -> tuple[int, ...]:
        """Return the axes that a node reduces and keeps, from 0 on."""
        found = attributes(node)
        axes: Any = found.get("axes", self.tensors.constants.get([*node.input, ""][1], ()))
        rank = max(len(self.shapes.get(node.input[0], ())), 1)
        return tuple(sorted(int(a) % rank for a in axes)) if found.get("keepdims", 1) else ()

    def _spelled_out(self, node: NodeProto, data: str, result: str) -> Iterable[NodeProto]:
        """Yield what computes an image times its normalised L2 norms."""
        norm, total = map(self._writer, node.input)
        assert norm is not None
        shape, epsilon = self.shapes[data], self._sum(total, norm) or 0.0
        if self._axes(norm) == (2, 3):
            yield from self._of_image(data, shape, epsilon, result)
            return
        image, scaled = f"{result}_image", f"{result}_scaled"
        yield make_node("Transpose", [data], [image], perm=(0, 3, 1, 2))
        yield from self._of_image(image, (1, shape[3], *shape[1:3]), epsilon, scaled)
        yield make_node("Transpose", [scaled], [result], perm=(0, 2, 3, 1))

    def _of_image(
        self, image: str, shape: tuple[int, ...], epsilon: float, result: str
    ) -> Iterable[NodeProto]:
        """Yield the same of an image whose channels are first."""
        _, channels, *sides = shape
        least = max(epsilon, SMALLEST) / math.sqrt(math.prod(sides))
        mean, ones = np.full((1, channels, 1, 1), 1 / channels), np.ones((channels, 1, 1, 1))
        window = {"kernel_shape": [1, 1]}
        steps: tuple[tuple[str, str, tuple[Any, ...], dict[str, Any]], ...] = (
            ("Mul", "squares", (image, image), {}),
            ("GlobalAveragePool", "spread", ("squares",), {}),
            ("Pow", "roots", ("spread", np.array(0.5)), {}),
            ("Conv", "mean", ("roots", mean, np.array([least])), window),
            ("Clip", "positive", ("mean", np.array(least)), {}),  # so that no inverse is infinite
            ("Pow", "inverse", ("positive", np.array(-1.0)), {}),
            ("Conv", "inverses", ("inverse", ones), window),
            ("Mul", "shares", ("roots", "inverses"), {}),
        )
        for kind, name, given, attrs in steps:
            inputs = [self._named(result, name, each, image) for each in given]
            yield make_node(kind, inputs, [f"{result}_{name}"], **attrs)
        yield make_node("Mul", [image, f"{result}_shares"], [result])

    def _named(self, result: str, step: str, given: Any, image: str) -> str:
        """Return the name of an operand: an array becomes a constant."""
        if isinstance(given, str):
            return given if given == image else f"{result}_{given}"
        name = f"{result}_{step}_{'weight' if given.ndim > 1 else 'bias'}"
        replace_initializer(self.model, name, given.astype(np.float32))
        return name
