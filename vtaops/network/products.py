"""Products of two tensors on VTA: separate regions whose operands are packed by the host.

The second operand is in the weight scratchpad, in tiles of rows and columns. No image has that
layout on hardware whose results are not stored like weights, so both operands come from the host,
and the results go there. Products that can run at the same time share a launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vtaops.graph import FineRequantization, Graph, Node
from vtaops.graph.operators import Matmul
from vtaops.network.epilogue import require_accumulator, scale_of
from vtaops.network.places import MappedOperator, StoredImage, TensorPlace
from vtaops.network.storage import matrices_of
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import BatchMatmul
from vtaops.ops.matmul import LONGEST_SUM
from vtaops.program import Role
from vtaops.program.region import Argument


@dataclass
class LoweredProducts:
    """Products of two tensors that share a launch; attributes as of `LoweredRegion`."""

    graph: Graph
    names: tuple[str, ...]
    steps: list[MappedOperator] = field(default_factory=list)
    memories: dict[str, StoredImage] = field(default_factory=dict)
    arguments: tuple[list[Argument], list[Argument]] = field(default_factory=lambda: ([], []))


def lower_products(graph: Graph, nodes: Sequence[Node], target: Target) -> LoweredProducts:
    """Return what VTA executes for products that do not read each other's results."""
    lowered = LoweredProducts(graph, tuple(node.name for node in nodes))
    inputs, outputs = lowered.arguments
    for node in nodes:
        op, uses = lower_matmul(node, target), dict[str, TensorPlace]()
        for buffer in op.buffers(target.config):
            if buffer.role in (Role.INPUT, Role.OUTPUT):
                (count, rows, columns), name = buffer.shape, f"{node.name}:{buffer.name}"
                image = count, columns, rows, 1
                memory = StoredImage(name, image, 1, role=buffer.role, folded=buffer)
                lowered.memories[name] = memory
                uses[buffer.name] = TensorPlace(memory, (0,))
        lowered.steps.append(MappedOperator(node.name, op, uses))
        *given, made = (use.memory.name for use in uses.values())
        for number, axes in enumerate(((), (0, 2, 1))):  # the second one is transposed
            tensor, matrices = node.inputs[number], matrices_of(node, number)
            inputs.append(Argument(tensor.name, given[number], tensor.shape, matrices, axes=axes))
        (result,), lanes = node.outputs, tuple(range(op.m))
        outputs.append(Argument(result.name, made, result.shape, lanes=lanes))
    return lowered


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
    scale, columns = scale_of(scaling, target), node.outputs[0].shape[-1]
    if target.scales:
        scale |= {"data_zero_point": zeros[0], "other_zero_point": zeros[1]}
    else:
        _check_sums([*zeros, scaling.zero_point], scale["shift"], inner)
    return BatchMatmul(batch=batch, m=rows, n=columns, k=inner, clip=scaling.clip, **scale)


def _check_sums(zero_points: Sequence[int], shift: int, inner: int) -> None:
    """Refuse zero points, and sums that exceed int32, where there are only shifts."""
    if any(zero_points):
        text = f"its zero points are {[*zero_points]}; without 'post' it needs 0"
        raise NotOnVta("zero_point", text)
    require_accumulator(128 * 128 * inner + (1 << shift >> 1))
