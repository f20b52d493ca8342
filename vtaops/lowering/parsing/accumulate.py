"""Additions of matrix products fall away: the product accumulates onto the other addend.

A declaration such as ``res_sum = res_shr + product`` is honest te, but the GEMM core adds to what
its accumulators hold anyway. So where a tile of products is added to another tile, the product
loses its reset, the addition falls away, and both share their accumulators. A residual that is
added to a convolution thus costs one tile product a pixel, and no accumulator memory. The same
holds for a whole convolution that is added to something: it begins with that, not with a reset.
"""

from __future__ import annotations

from collections.abc import Iterator

from vtaops.lowering.parsing.nests import PRODUCT_CALL, CallNest, LoopNode, Node, ThreadNode, Tree
from vtaops.machine.isa import AluOp
from vtaops.schedule.intrinsics import ALU_CALL, GEMM_CALL, RESET_CALL

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
        else:
            nodes = _begun_with(nodes, addition)
    return nodes


def _begun_with(nodes: list[Node], addition: CallNest) -> list[Node]:
    """Let a sum of products that is added begin with the other addend."""
    buffer = addition.operands[2].buffer.name
    resets = [n for n in nodes if isinstance(n, CallNest) and _fills(n, RESET_CALL, buffer)]
    products = [n for n in nodes if any(_fills(c, GEMM_CALL, buffer) for c in _calls(n))]
    if len(resets) != 1 or not products:
        return nodes
    addition.call = JOIN_CALL
    others = [n for n in nodes if n not in resets and n not in products]
    place = others.index(addition)
    return [*others[:place], *products, *others[place:]]


def _calls(node: Node) -> Iterator[CallNest]:
    if isinstance(node, CallNest):
        yield node
    elif isinstance(node, LoopNode | ThreadNode):
        for child in node.body:
            yield from _calls(child)


def _fills(call: CallNest, kind: str, buffer: str) -> bool:
    return call.call == kind and call.operands[0].buffer.name == buffer


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
