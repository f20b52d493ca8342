"""Additions of matrix products fall away: the product accumulates onto the other addend.

A declaration such as ``res_sum = res_shr + product`` is honest te, but the GEMM core adds to what
its accumulators hold anyway. So where a tile of products is only ever added to another tile, the
reset and the addition are dropped and both share their accumulators. A residual that is added to a
convolution thus costs one tile product a pixel, and no accumulator memory.
"""

from __future__ import annotations

from vtaops.isa import AluOp
from vtaops.lowering.nests import CallNest, CopyNest, LeafNest, LoopNode, Node, ThreadNode, Tree
from vtaops.schedule.vta.intrinsics import ALU_CALL, GEMM_CALL, RESET_CALL

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
        product = addition.operands[2].buffer.name
        reset = [n for n in nodes if _writes(n, product, RESET_CALL)]
        multiplies = [n for n in nodes if _writes(n, product, GEMM_CALL)]
        if len(reset) == 1 and len(multiplies) == 1 and reset[0] is not multiplies[0]:
            addition.call = JOIN_CALL
            nodes.remove(reset[0])
            nodes.remove(multiplies[0])
            nodes.insert(nodes.index(addition), multiplies[0])
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


def _writes(node: Node, buffer: str, call: str) -> bool:
    """Whether a node, or a leaf below it, writes `buffer` by calls of one kind alone."""
    calls = {
        leaf.call if isinstance(leaf, CallNest) else ""
        for leaf in _leaves(node)
        if _destination(leaf) == buffer
    }
    return calls == {call}


def _destination(leaf: LeafNest) -> str:
    if isinstance(leaf, CallNest):
        return leaf.operands[0].buffer.name
    assert isinstance(leaf, CopyNest)
    return leaf.dst.name


def _leaves(node: Node) -> list[LeafNest]:
    if isinstance(node, LeafNest):
        return [node]
    return [leaf for child in node.body for leaf in _leaves(child)]
