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

from vtaops.graph.onnx_files import ModelProto, NodeProto, replace_initializer
from vtaops.quantization.rewrites import Rewriter, steps

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
        whole, left = (self.shapes.get(n, ()) for n in (norm.input[0], norm.output[0]))
        axes = (axis for axis in (1, 3) if left == tuple(np.where(np.arange(4) == axis, whole, 1)))
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
