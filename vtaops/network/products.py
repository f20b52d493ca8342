"""Products of two tensors on VTA: separate regions whose operands are packed by the host.

The second operand is in the weight scratchpad, in tiles of rows and columns. No image has that
layout on hardware whose results are not stored like weights, so both operands come from the host,
and the results go there. Products that can run at the same time share a launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vtaops.graph import FineRequantization, Graph, Node, Requantization
from vtaops.graph.operators import Matmul
from vtaops.lowering import BufferSlice, PlacedFragment, link
from vtaops.network.epilogue import require_accumulator, right_shift, uniform
from vtaops.network.fragments import Fragments, finished
from vtaops.network.places import MappedOperator
from vtaops.network.storage import matrices_of
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import BatchMatmul
from vtaops.ops.matmul import LONGEST_SUM
from vtaops.program import Buffer
from vtaops.program.region import Argument, Region


@dataclass(frozen=True)
class LoweredProducts:
    """Products of two tensors that share a launch.

    Attributes
    ----------
    graph : Graph
        The network.
    nodes : sequence of Node
        The products.
    steps : list of MappedOperator
        VTA's operators for them; the second operand of each is transposed.
    """

    graph: Graph
    nodes: Sequence[Node]
    steps: list[MappedOperator]


def lower_products(graph: Graph, nodes: Sequence[Node], target: Target) -> LoweredProducts:
    """Return what VTA executes for products that do not read each other's results."""
    steps = [MappedOperator(node.name, lower_matmul(node, target), {}) for node in nodes]
    return LoweredProducts(graph, nodes, steps)


def lower_matmul(node: Node, target: Target) -> BatchMatmul:
    """Return VTA's operator for a product of two tensors; raises NotOnVta if there is none."""
    assert isinstance(node.op, Matmul)
    scaling, zeros = node.op.requantization, [tensor.zero_point for tensor in node.inputs]
    if isinstance(scaling, FineRequantization):
        text = "it has a fine scale; VTA multiplies two tensors with coarse ones"
        raise NotOnVta("rounding", text)
    first, second = (tensor.shape[:-2] for tensor in node.inputs)
    if math.prod(second) > 1 and first != second:
        text = f"it multiplies {first} by {second} matrices; VTA by as many, or by one"
        raise NotOnVta("shape", text)
    batch, rows, inner = matrices_of(node, 0)
    if inner > LONGEST_SUM and any(zeros):
        text = f"it sums {inner:,} products with zero points; VTA at most {LONGEST_SUM:,}"
        raise NotOnVta("accumulator", text)
    columns, scale = node.outputs[0].shape[-1], _scale(scaling, zeros, inner, target)
    return BatchMatmul(batch=batch, m=rows, n=columns, k=inner, clip=scaling.clip, **scale)


def _scale(
    scaling: Requantization, zeros: Sequence[int], inner: int, target: Target
) -> dict[str, Any]:
    """Return the parameters of the requantisation and of the operands' zero points."""
    if target.scales:
        scale = uniform(scaling)
        assert scale is not None
        return {**scale, "data_zero_point": zeros[0], "other_zero_point": zeros[1]}
    shift = right_shift(scaling)
    if scaling.zero_point or any(zeros):
        text = f"its zero points are {[*zeros, scaling.zero_point]}; without 'post' it needs 0"
        raise NotOnVta("zero_point", text)
    require_accumulator(128 * 128 * inner + (1 << shift >> 1))
    return {"shift": shift, "rounding": "half_up"}


def compile_products(products: LoweredProducts, fragments: Fragments) -> Region:
    """Return the program of products."""
    buffers: list[Buffer] = []
    parts, inputs, outputs = [], [], []
    for node, step in zip(products.nodes, products.steps, strict=True):
        fragment = finished(fragments.of(step), step.op)
        places: list[BufferSlice | int] = []
        for buffer in fragment.buffers:
            name = f"{node.name}:{buffer.name}"
            places.append(len(buffers))
            buffers.append(replace(buffer, name=name))
            if buffer.name in ("data", "other"):
                inputs.append(_operand(node, buffer.name == "other", name))
            elif buffer.name == "res":
                result, lanes = node.outputs[0], tuple(range(matrices_of(node, 0)[1]))
                outputs.append(Argument(result.name, name, result.shape, lanes=lanes))
        parts.append(PlacedFragment(fragment, tuple(places), node.name))
    metadata = {"network": products.graph.name, "capabilities": fragments.target.capabilities.name}
    return Region(
        nodes=tuple(node.name for node in products.nodes),
        program=link(parts, buffers, metadata),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def _operand(node: Node, second: bool, buffer: str) -> Argument:
    """Return an operand of a product, the second one transposed."""
    tensor, axes = node.inputs[second], (0, 2, 1) if second else ()
    return Argument(tensor.name, buffer, tensor.shape, matrices_of(node, second), axes=axes)
