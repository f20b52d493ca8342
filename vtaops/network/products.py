"""Products of two tensors on VTA: separate regions whose operands are packed by the host.

The second operand is in the weight scratchpad, in tiles of rows and columns. No image has that
layout, so both operands come from the host, and the results go there. Products that can run at the
same time share a launch.

With zero points, the row sums of both operands are part of the result::

    sum((a - za) * (b - zb)) = sum(a * b) - zb * sum(a) - za * sum(b) + K * za * zb

The second term is one number per row of the result, the third one per column. The host, which packs
both operands, appends these numbers as digits to the operands, so that the product of the appended
columns adds them (`vtaops.program.region.RowSums`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vtaops.base.shapes import ceil_div
from vtaops.graph import FineRequantization, Graph, Node
from vtaops.graph.operators import Matmul
from vtaops.lowering import Part, Place, link
from vtaops.machine.views import lanes_for
from vtaops.network.epilogue import require_accumulator, right_shift, uniform
from vtaops.network.fragments import Fragments, finished
from vtaops.network.places import MappedOperator
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import BatchMatmul
from vtaops.program import Buffer
from vtaops.program.region import Argument, Region, RowSums

Product = tuple[BatchMatmul, dict[str, RowSums]]
"""An operator, and the numbers that the host appends to its operands, by buffer name."""


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
    sums : list of dict of str to RowSums
        Numbers that the host appends to the operands of each, by buffer name.
    """

    graph: Graph
    nodes: Sequence[Node]
    steps: list[MappedOperator]
    sums: list[dict[str, RowSums]]


def lower_products(graph: Graph, nodes: Sequence[Node], target: Target) -> LoweredProducts:
    """Return what VTA executes for products that do not read each other's results."""
    found = [lower_matmul(node, target) for node in nodes]
    steps = [MappedOperator(n.name, op, {}) for n, (op, _) in zip(nodes, found, strict=True)]
    return LoweredProducts(graph, nodes, steps, [sums for _, sums in found])


def lower_matmul(node: Node, target: Target) -> Product:
    """Return VTA's operator for a product of two tensors; raises NotOnVta if there is none."""
    (a, b), (result,), op = node.inputs, node.outputs, node.op
    assert isinstance(op, Matmul)
    require_product(op, node)
    batch, rows, inner = _matrices(node, 0)
    fields, added = _epilogue(op, node, target)
    product = BatchMatmul(
        batch=batch,
        m=rows,
        n=result.shape[-1],
        k=inner,
        clip=op.requantization.clip,
        **fields,
    )
    rest = inner * a.zero_point * b.zero_point + added
    own, other = RowSums(-b.zero_point, 0, 0, 0, 0), RowSums(-a.zero_point, 0, 0, 0, 0)
    if other.factor or not own.factor:
        other = replace(other, constant=rest)
    else:
        own = replace(own, constant=rest)
    return _with_sums(product, own, other, target.config.block_in)


def require_product(op: Matmul, node: Node) -> None:
    """Refuse scales and numbers of matrices that no product of two tensors has."""
    if isinstance(op.requantization, FineRequantization):
        text = "it has a fine scale; VTA multiplies two tensors with coarse ones"
        raise NotOnVta("rounding", text)
    first, second = (tensor.shape[:-2] for tensor in node.inputs)
    if math.prod(second) > 1 and first != second:
        text = f"it multiplies {first} by {second} matrices; VTA by as many, or by one"
        raise NotOnVta("shape", text)


def _epilogue(op: Matmul, node: Node, target: Target) -> tuple[dict[str, Any], int]:
    """Return the parameters of the requantisation, and the constant that it adds to the sums."""
    scaling = op.requantization
    if target.scales:
        scale = uniform(scaling)
        assert scale is not None
        return scale, 0
    shift = right_shift(scaling)
    constant = (abs(scaling.zero_point) << shift) + (1 << shift >> 1)
    require_accumulator(255 * 255 * node.inputs[0].shape[-1] + constant)
    if not (scaling.zero_point or any(tensor.zero_point for tensor in node.inputs)):
        return {"shift": shift, "rounding": "half_up"}, 0
    return {"shift": shift}, scaling.constant


def _with_sums(op: BatchMatmul, first: RowSums, second: RowSums, block: int) -> Product:
    """Return a product that adds the numbers for the rows of both operands.

    Either all digits are columns of the operands, or units of 128 are separate products that one
    pass over the results shifts left. The variant with fewer cycles is chosen.
    """
    needed = [
        lanes_for(sums.bound(op.k)) if sums.factor or sums.constant else 0
        for sums in (first, second)
    ]
    units = [
        lanes_for(replace(sums, part="units").bound(op.k)) if lanes else 0
        for sums, lanes in zip((first, second), needed, strict=True)
    ]
    if not sum(needed):
        return op, {}
    single = [min(1, lanes) for lanes in needed]
    together = ceil_div(op.k + sum(needed), block)
    separate = ceil_div(op.k + sum(single), block) + ceil_div(sum(units), block) + 1
    if together <= separate:
        left, right = _joined(first, second, needed)
        return replace(op, k=op.k + sum(needed)), {"data": left, "other": right}
    left, right = _joined(replace(first, part="rest"), replace(second, part="rest"), single)
    coarse = _joined(replace(first, part="units"), replace(second, part="units"), units)
    sums = {"data": left, "other": right, "data_coarse": coarse[0], "other_coarse": coarse[1]}
    return replace(op, k=op.k + sum(single), coarse=sum(units)), sums


def _joined(first: RowSums, second: RowSums, lanes: Sequence[int]) -> tuple[RowSums, RowSums]:
    """Align the digits of each operand with the constants of the other."""
    own, other = lanes
    return replace(first, digits=own, behind=other), replace(second, before=own, digits=other)


def compile_products(products: LoweredProducts, fragments: Fragments) -> Region:
    """Return the program of products."""
    buffers: list[Buffer] = []
    parts, inputs, outputs = [], [], []
    for node, step, sums in zip(products.nodes, products.steps, products.sums, strict=True):
        fragment = finished(fragments.of(step), step.op)
        places: list[Place | int] = []
        for buffer in fragment.buffers:
            name = f"{node.name}:{buffer.name}"
            places.append(len(buffers))
            buffers.append(replace(buffer, name=name))
            if buffer.name.startswith(("data", "other")):
                inputs.append(_operand(node, name, sums.get(buffer.name)))
            elif buffer.name == "res":
                result, lanes = node.outputs[0], tuple(range(_matrices(node, 0)[1]))
                outputs.append(Argument(result.name, name, result.shape, lanes=lanes))
        parts.append(Part(fragment, tuple(places), node.name))
    metadata = {"network": products.graph.name, "capabilities": fragments.target.capabilities.name}
    return Region(
        nodes=tuple(node.name for node in products.nodes),
        program=link(parts, buffers, metadata),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def _operand(node: Node, buffer: str, sums: RowSums | None) -> Argument:
    """Return an operand of a product, the second one transposed."""
    second = buffer.removeprefix(f"{node.name}:").startswith("other")
    tensor = node.inputs[second]
    found = Argument(tensor.name, buffer, tensor.shape, _matrices(node, second))
    return replace(found, axes=(0, 2, 1) if second else (), sums=sums)


def _matrices(node: Node, operand: int) -> tuple[int, int, int]:
    """Return (matrices, rows, columns) of an operand: rows of all that one matrix multiplies."""
    *leading, rows, columns = node.inputs[operand].shape
    count = math.prod(leading)
    if not operand and math.prod(node.inputs[1].shape[:-2]) == 1:
        return 1, count * rows, columns
    return count, rows, columns
