"""Rewrite attention so that heads stay channels, norms of tokens, and global response norms.

Exporters move heads to the last axis, mix them there by a product, and move them back. Scores lie
with their heads as channels, where such a product is a convolution of one pixel: transpositions of
scores, which make heads last, move behind what reads them. Norms come behind the choice of a token.

Global response norms are channels over the mean of their L2 norms: ``x * n / (mean(n) + epsilon)``,
where ``n`` is the L2 norm of a channel over all pixels, is a mean of squares, two functions of one
value (a root, and a reciprocal of one number for an image), and products. Each of these is rounded
to a grid of its own.
"""

from __future__ import annotations

import math

import numpy as np

from vtaops.graph.onnx_files import NodeProto, attributes, make_node
from vtaops.quantization.rewriting import Nodes, Rewriting

_LAST = (0, 2, 3, 1)
"""The transposition of an image that makes its channels last."""
_SCALES = ("Add", "Div", "Mul", "Where")
"""Operators that may stand between a product and what mixes its heads."""


def transpose_of_scores(graph: Rewriting, node: NodeProto) -> Nodes | str | None:
    """Note a transposition that makes heads last; drop or join what moves them back."""
    axes, image = tuple(attributes(node).get("perm", ())), graph.images.get(node.input[0])
    if image is None:
        if axes == _LAST and _is_score(graph, node.input[0]):
            graph.images[node.output[0]] = node.input[0]
        return None
    joined = [_LAST[axis] for axis in axes]
    if joined == sorted(joined) and node.output[0] not in graph.tensors.outputs:
        return image
    return [make_node("Transpose", [image], node.output, perm=joined)]


def _is_score(graph: Rewriting, name: str) -> bool:
    """Return whether a tensor is a product of two, maybe scaled or masked."""
    node = graph.tensors.writers.get(name)
    while node is not None and node.op_type in _SCALES:
        loose = [n for n in node.input if n not in graph.constants]
        node = graph.tensors.writers.get(loose[0]) if len(loose) == 1 else None
    if node is None or node.op_type != "MatMul":
        return False
    return graph.constants.keys().isdisjoint(node.input)


def softmax_along_rows(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return a softmax along the last axis, of scores as they lie or as they are read."""
    rank, image = len(graph.shapes.get(node.input[0], ())), graph.images.get(node.input[0])
    axis, (result,) = attributes(node).get("axis", -1) % max(rank, 1), node.output
    if image is not None:
        softmax = make_node("Softmax", [image], [f"{result}:heads"], axis=_LAST[axis])
        return _turned(graph, softmax, result)
    reader = graph.tensors.only_reader(result)
    if axis == rank - 1 or reader is None or reader.op_type != "Transpose":
        return None
    axes = attributes(reader)["perm"]
    if axes[-1] != axis:
        return None
    graph.done.update(reader.output)
    before = make_node("Transpose", node.input, [f"{result}:rows"], perm=axes)
    return [before, make_node("Softmax", before.output, reader.output, axis=-1)]


def mixed_heads(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return a product along the heads, which are last, as a convolution of them as channels.

    A dense layer has rows: it stands between a reshape, and one back to the heads, the node given.
    """
    (result,) = node.output
    product, first = graph.tensors.chain(node.input[0], "Gemm", "Reshape") or (node, node)
    image, attrs = graph.images.get(first.input[0]), attributes(product)
    before, after = (graph.shapes.get(name, ()) for name in (first.input[0], result))
    alike = len(before) == len(after) == 4 and before[:3] == after[:3]
    if image is None or not alike or not {*product.input[1:]} <= graph.constants.keys():
        return None
    weight = graph.constants[product.input[1]]
    if weight.ndim != 2 or attrs.get("transA"):
        return None
    weight = weight if attrs.get("transB") else weight.T
    name = graph.store(f"{result}:heads_weight", np.ascontiguousarray(weight[:, :, None, None]))
    inputs = [image, name, *product.input[2:]]
    made = make_node("Conv", inputs, [f"{result}:heads"], kernel_shape=[1, 1])
    return _turned(graph, made, result)


def _turned(graph: Rewriting, node: NodeProto, result: str) -> Nodes:
    """Return a node on scores as they lie, and what makes heads last, if it is still read."""
    (made,) = node.output
    graph.images[result] = made
    return [node, make_node("Transpose", [made], [result], perm=_LAST)]


def norm_of_token(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return the norm of one token in place of a token of what is normalised."""
    norm, index = graph.tensors.writers.get(node.input[0]), graph.constants.get(node.input[1])
    rank = len(graph.shapes.get(node.input[0], ()))
    if norm is None or norm.op_type != "LayerNormalization" or index is None or rank < 3:
        return None
    axis, attrs = attributes(node).get("axis", 0), attributes(norm)
    if attrs.get("axis", -1) not in (-1, rank - 1) or index.size > 1 or axis % rank == rank - 1:
        return None
    (result,), token = node.output, f"{node.output[0]}:token"
    inputs = [token, *norm.input[1:]]
    return [
        make_node("Gather", [norm.input[0], node.input[1]], [token], axis=axis),
        make_node("LayerNormalization", inputs, [result], **{**attrs, "axis": -1}),
    ]


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
image = Transpose <perm = [0, 3, 1, 2]> (whole)
{_CHANNELS_FIRST}
result = Transpose <perm = [0, 2, 3, 1]> (scaled)"""


def response_norm(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Spell out ``x * n / (mean(n) + epsilon)``, where ``n`` are the L2 norms of channels."""
    tensors = graph.tensors
    norm, scaled = tensors.writers.get(node.input[0]), tensors.only_reader(node.output[0])
    if scaled is None or norm is None or norm.op_type != "ReduceL2":
        return None
    epsilon, data = _epsilon(graph, node.input[1], norm), norm.input[0]
    shape, axis = graph.shapes.get(data, ()), _channels(graph, norm)
    if axis is None or data not in scaled.input or not np.isfinite(epsilon):
        return None
    graph.done.add(scaled.output[0])
    channels = shape[axis]
    least = max(epsilon, SMALLEST) / math.sqrt(math.prod(shape) / channels)
    constants = {
        "half": 0.5,
        "minus": -1.0,
        "least": least,
        "mean_weight": np.full((1, channels, 1, 1), 1 / channels),
        "mean_bias": [least],
        "inverses_weight": np.ones((channels, 1, 1, 1)),
    }
    if axis == 1:
        names, text = {"image": data, "scaled": scaled.output[0]}, _CHANNELS_FIRST
    else:
        names, text = {"whole": data}, _CHANNELS_LAST
    return graph.written(text, scaled, constants, **names)


def _channels(graph: Rewriting, norm: NodeProto) -> int | None:
    """Return the axis that L2 norms leave of one image; None if it is not that of channels."""
    whole, reduced = (graph.shapes.get(n, ()) for n in (norm.input[0], norm.output[0]))
    kept = (axis for axis in (1, 3) if reduced == tuple(np.where(np.arange(4) == axis, whole, 1)))
    return next(kept, None) if len(whole) == 4 else None


def _epsilon(graph: Rewriting, name: str, norm: NodeProto) -> float:
    """Return what is added to the mean of norms that a tensor is; NaN if it is none."""
    epsilon = 0.0
    while name != norm.output[0]:
        step = graph.tensors.writers.get(name)
        if step is None or step.op_type not in _OF_MEAN or {*graph.shapes[name]} != {1}:
            return math.nan
        name, *others = sorted(step.input, key=graph.constants.__contains__)
        if step.op_type == "Add":
            epsilon += float(graph.constants.get(others[0], math.nan))
    return epsilon
