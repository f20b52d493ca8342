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
from vtaops.graph import Graph, Node
from vtaops.graph.operators import Matmul
from vtaops.lowering import Part, Place, link
from vtaops.machine.views import lanes_for
from vtaops.network.epilogue import uniform
from vtaops.network.fragments import Fragments, finished
from vtaops.network.rules import Target
from vtaops.network.storage import MappedOperator
from vtaops.ops import BatchMatmul
from vtaops.program import Buffer
from vtaops.program.region import Argument, Region, RowSums


@dataclass(frozen=True)
class MappedProduct:
    """VTA's operator for a product of two tensors.

    Attributes
    ----------
    op : BatchMatmul
        The operator; its second operand is transposed.
    sums : dict of str to RowSums
        Numbers that the host appends to its operands, by buffer name.
    """

    op: BatchMatmul
    sums: dict[str, RowSums]


def are_products(nodes: Sequence[Node]) -> bool:
    """Return whether nodes on VTA are products of two tensors, which no image holds."""
    return any(isinstance(node.op, Matmul) for node in nodes)


def product(node: Node, target: Target) -> MappedProduct:
    """Return VTA's operator for a product of two tensors that VTA can execute."""
    assert isinstance(node.op, Matmul)
    (a, b), (result,) = node.inputs, node.outputs
    batch, rows, inner = _matrices(node, 0)
    constant = inner * a.zero_point * b.zero_point
    fields, added = _epilogue(node.op, target, bool(a.zero_point or b.zero_point))
    op = BatchMatmul(
        batch=batch,
        m=rows,
        n=result.shape[-1],
        k=inner,
        clip=node.op.requantization.clip,
        **fields,
    )
    first, second = RowSums(-b.zero_point, 0, 0, 0, 0), RowSums(-a.zero_point, 0, 0, 0, 0)
    if second.factor or not first.factor:
        second = replace(second, constant=constant + added)
    else:
        first = replace(first, constant=constant + added)
    return _with_sums(op, first, second, target.config.block_in)


def _epilogue(op: Matmul, target: Target, zeros: bool) -> tuple[dict[str, Any], int]:
    """Return the parameters of the requantisation, and the constant that it adds to the sums."""
    scaling = op.requantization
    if target.scales:
        scale = uniform(scaling)
        assert scale is not None
        return scale, 0
    shift = scaling.right_shift
    assert shift is not None
    if not (zeros or scaling.zero_point):
        return {"shift": shift, "rounding": "half_up"}, 0
    return {"shift": shift}, scaling.constant


def _with_sums(op: BatchMatmul, first: RowSums, second: RowSums, block: int) -> MappedProduct:
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
        return MappedProduct(op, {})
    single = [min(1, lanes) for lanes in needed]
    together = ceil_div(op.k + sum(needed), block)
    separate = ceil_div(op.k + sum(single), block) + ceil_div(sum(units), block) + 1
    if together <= separate:
        left, right = _joined(first, second, needed)
        return MappedProduct(replace(op, k=op.k + sum(needed)), {"data": left, "other": right})
    left, right = _joined(replace(first, part="rest"), replace(second, part="rest"), single)
    coarse = _joined(replace(first, part="units"), replace(second, part="units"), units)
    sums = {"data": left, "other": right, "data_coarse": coarse[0], "other_coarse": coarse[1]}
    return MappedProduct(replace(op, k=op.k + sum(single), coarse=sum(units)), sums)


def _joined(first: RowSums, second: RowSums, lanes: Sequence[int]) -> tuple[RowSums, RowSums]:
    """Align the digits of each operand with the constants of the other."""
    own, other = lanes
    return replace(first, digits=own, behind=other), replace(second, before=own, digits=other)


def compile_products(graph: Graph, nodes: Sequence[Node], fragments: Fragments) -> Region:
    """Return the program of products that do not read each other's results."""
    buffers: list[Buffer] = []
    parts, inputs, outputs = [], [], []
    for node in nodes:
        found = product(node, fragments.target)
        fragment = finished(fragments.of(MappedOperator(node.name, found.op, {})), found.op)
        places: list[Place | int] = []
        for buffer in fragment.buffers:
            name = f"{node.name}:{buffer.name}"
            places.append(len(buffers))
            buffers.append(replace(buffer, name=name))
            if buffer.name.startswith(("data", "other")):
                inputs.append(_operand(node, name, found.sums.get(buffer.name)))
            elif buffer.name == "res":
                result, lanes = node.outputs[0], tuple(range(found.op.m))
                outputs.append(Argument(result.name, name, result.shape, lanes=lanes))
        parts.append(Part(fragment, tuple(places), node.name))
    metadata = {"network": graph.name, "capabilities": fragments.target.capabilities.name}
    return Region(
        nodes=tuple(node.name for node in nodes),
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
