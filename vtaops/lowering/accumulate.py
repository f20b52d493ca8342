"""Additions of matrix products fall away: the product accumulates onto the other addend.

A declaration such as ``res_sum = res_shr + product`` is honest te, but the GEMM core adds to what
its accumulators hold anyway. So where a tile of products is added to another tile, the product
loses its reset, the addition falls away, and both share their accumulators. A residual that is
added to a convolution thus costs one tile product a pixel, and no accumulator memory.
"""

from __future__ import annotations

from vtaops.isa import AluOp
from vtaops.lowering.nests import PRODUCT_CALL, CallNest, LoopNode, Node, ThreadNode, Tree
from vtaops.schedule.intrinsics import ALU_CALL, GEMM_CALL

JOIN_CALL = "vta.join"
"""A call that executes nothing: its operands share one accumulator tile."""


def accumulate_in_place(tree: Tree) -> Tree:
    """Rewrite every addition of a matrix product in a parsed function."""
    return Tree(_rewritten(tree.body), tree.allocations)


def _rewritten(nodes: list[Node]) -> list[Node]:
    nodes = [
        type(node)(node.loop, _rewritten(node.body)) if isinstance(node, LoopNode | ThreadNode)
        else node
        for node in nodes
    ]  # fmt: skip
    for addition in [node for node in nodes if _is_addition(node)]:
        assert isinstance(addition, CallNest)
        products = [n for n in nodes if _is_product(n, addition.operands[2].buffer.name)]
        if len(products) == 1:
            (product,) = products
            assert isinstance(product, CallNest)
            product.call, addition.call = GEMM_CALL, JOIN_CALL
            nodes.remove(product)  # the addend is complete where the addition stands
            nodes.insert(nodes.index(addition), product)
    return nodes


def _is_addition(node: Node) -> bool:
    """Whether a node adds, in place, a tile to a different tile."""
    return (
        isinstance(node, CallNest)
        and node.call == ALU_CALL
        and node.alu_op == AluOp.ADD
        and len(node.operands) == 3
        and node.operands[1].buffer.name != node.operands[2].buffer.name
    )


def _is_product(node: Node, buffer: str) -> bool:
    """Whether a node is the product that fills `buffer`."""
    return (
        isinstance(node, CallNest)
        and node.call == PRODUCT_CALL
        and node.operands[0].buffer.name == buffer
    )
