"""Fold additions of matrix products: accumulate the product onto the other addend.

A declaration such as ``res_sum = res_shr + product`` is valid te, but the GEMM core adds to its
accumulators anyway. So if a tile of products is added to another tile, the product loses its reset,
the addition is removed, and both share their accumulators. A residual added to a convolution thus
costs one tile product per pixel, and no accumulator memory. The same holds for a whole convolution
added to another tile: it starts from that tile instead of a reset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

from vtaops.lowering.tree.nodes import PRODUCT_CALL, CallNest, Node, Tree, leaves
from vtaops.machine.isa import AluOp
from vtaops.schedule.calls import ALU_CALL, GEMM_CALL, RESET_CALL

JOIN_CALL = "vta.join"
"""A call that executes nothing: it says that its operands are one accumulator tile."""


def accumulate_in_place(tree: Tree) -> Tree:
    """Fold every addition of a matrix product in a parsed function."""
    readers = Counter(name for leaf in leaves(tree.body) for name in leaf.read)
    return tree.rewritten(partial(_rewritten, readers))


def _rewritten(readers: Counter[str], nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    for addition in [n for n in nodes if isinstance(n, CallNest) and _is_addition(n)]:
        if not _is_last_use(addition, nodes[: nodes.index(addition)], readers):
            continue
        products, resets = _accumulation(nodes, addition.operands[2].buffer.name)
        if products:
            nodes = tuple(n for n in nodes if n not in products and n not in resets)
            place = nodes.index(addition)  # the other addend is complete here
            sums = (*map(_accumulating, products), replace(addition, call=JOIN_CALL))
            nodes = nodes[:place] + sums + nodes[place + 1 :]
    return nodes


def _accumulation(nodes: tuple[Node, ...], buffer: str) -> tuple[list[Node], list[Node]]:
    """Return the products that fill a buffer, and its resets, if another addend can come first."""
    products = [n for n in nodes if _fills(n, PRODUCT_CALL, buffer)]
    if len(products) == 1:
        return products, []
    resets = [n for n in nodes if _fills(n, RESET_CALL, buffer)]
    sums = [n for n in nodes if _sums_only(n, buffer)]
    return (sums, resets) if len(resets) == 1 else ([], [])


def _sums_only(node: Node, buffer: str) -> bool:
    """Whether a node sums products in one buffer, and computes nothing else."""
    calls = [leaf for leaf in leaves([node]) if isinstance(leaf, CallNest)]
    return bool(calls) and all(_fills(leaf, GEMM_CALL, buffer) for leaf in calls)


def _is_last_use(addition: CallNest, before: tuple[Node, ...], readers: Counter[str]) -> bool:
    """Whether both addends are tiles like the sum, filled just before, that nothing else reads."""
    result, *addends = addition.operands
    filled = {leaf.dst.buffer.name for leaf in leaves(before)}
    return all(
        readers[addend.buffer.name] == 1
        and addend.buffer.name in filled
        and addend.offset.names == result.offset.names
        for addend in addends
    )


def _accumulating(node: Node) -> Node:
    """Return a product that adds to its accumulators as they are."""
    return replace(node, call=GEMM_CALL) if isinstance(node, CallNest) else node


def _is_addition(leaf: CallNest) -> bool:
    """Whether a call adds a different tile to a tile, in place."""
    return (
        leaf.call == ALU_CALL
        and leaf.alu_op == AluOp.ADD
        and len(leaf.operands) == 3
        and leaf.operands[1].buffer.name != leaf.operands[2].buffer.name
    )


def _fills(node: Node, call: str, buffer: str) -> bool:
    """Whether a node is a call of the given kind that fills a buffer."""
    return isinstance(node, CallNest) and node.call == call and node.dst.buffer.name == buffer
