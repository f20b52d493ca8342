"""Products of two tensors on VTA: regions of their own, whose operands the host packs.

The second operand lies in the scratchpad of weights, in tiles of rows and columns; no image has
that layout, so both operands come from the host and the results go there. Products that can run at
the same time share a launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vtaops.graph import Graph, Node, Tensor
from vtaops.graph.operators import Matmul
from vtaops.lowering import Part, Place, link
from vtaops.model import Argument, Region
from vtaops.network.fragments import Fragments
from vtaops.network.storage import MappedOperator
from vtaops.ops import BatchMatmul
from vtaops.program import Buffer


def are_products(nodes: Sequence[Node]) -> bool:
    """Whether nodes on VTA are products of two tensors, which no image holds."""
    return any(isinstance(node.op, Matmul) for node in nodes)


def product(node: Node) -> BatchMatmul:
    """Return what VTA executes of a product; the second operand comes transposed."""
    assert isinstance(node.op, Matmul)
    scaling = node.op.requantization
    assert scaling.right_shift is not None
    *leading, rows, inner = node.inputs[0].shape
    return BatchMatmul(
        batch=math.prod(leading),
        m=rows,
        n=node.inputs[1].shape[-1],
        k=inner,
        shift=scaling.right_shift,
        clip=scaling.clip,
        rounding="half_up",
    )


def compile_products(graph: Graph, nodes: Sequence[Node], fragments: Fragments) -> Region:
    """Return the program of products that do not read each other's results."""
    buffers: list[Buffer] = []
    parts, inputs, outputs = [], [], []
    for node in nodes:
        op = product(node)
        fragment = fragments.of(MappedOperator(node.name, op, {}))
        places: list[Place | int] = []
        for buffer in fragment.buffers:
            name = f"{node.name}:{buffer.name}"
            places.append(len(buffers))
            buffers.append(replace(buffer, name=name))
            if buffer.name == "data":
                inputs.append(_argument(node.inputs[0], name, (op.batch, op.m, op.k)))
            elif buffer.name == "other":
                shape = op.batch, op.k, op.n
                inputs.append(replace(_argument(node.inputs[1], name, shape), axes=(0, 2, 1)))
            elif buffer.name == "res":
                result = _argument(node.outputs[0], name, (op.batch, op.m, op.n))
                outputs.append(replace(result, lanes=tuple(range(op.m))))
        parts.append(Part(fragment, tuple(places), node.name))
    metadata = {"network": graph.name, "capabilities": fragments.target.capabilities.name}
    return Region(
        nodes=tuple(node.name for node in nodes),
        program=link(parts, buffers, metadata),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def _argument(tensor: Tensor, buffer: str, shape: tuple[int, ...]) -> Argument:
    return Argument(tensor.name, buffer, tensor.shape, shape)
