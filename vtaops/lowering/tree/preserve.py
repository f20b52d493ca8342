"""Preserve values that are read again: the ALU works in place and overwrites its operand.

If a stage's operand has other readers (a leaky ReLU takes the maximum of ``x`` and ``x >> 3``), or
its tile is not the result's (one is filled piece by piece, the other at once), the stage works on a
copy: a tile of zeros, to which the ALU adds the operand. The library's own declarations read each
value once, so they need no copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from vtaops.lowering.tree.nodes import CallNest, LeafNest, LoopNode, Node, Tree, leaves
from vtaops.machine.isa import AluOp
from vtaops.schedule.calls import ALU_CALL, RESET_CALL


def preserve_operands(tree: Tree) -> Tree:
    """Copy the operands of ALU stages that are needed afterwards, or lie in other tiles."""
    readers = Counter(name for leaf in leaves(tree.body) for name in leaf.read)
    return replace(tree, body=_preserving(tree.body, readers))


def _preserving(nodes: tuple[Node, ...], readers: Counter[str]) -> tuple[Node, ...]:
    found: list[Node] = []
    filled: set[str] = set()
    for node in nodes:
        if isinstance(node, LoopNode):
            found.append(replace(node, body=_preserving(node.body, readers)))
        elif isinstance(node, CallNest) and _overwrites(node):
            result, source = node.operands[:2]
            used_up = readers[source.buffer.name] == 1 and source.buffer.name in filled
            in_place = used_up and result.offset.names == source.offset.names
            found += [node] if in_place else _on_a_copy(node)
        else:
            found.append(node)
        filled |= {leaf.dst.buffer.name for leaf in leaves([node])}
    return tuple(found)


def _overwrites(leaf: CallNest) -> bool:
    """Whether a call is an ALU stage that overwrites its first operand's tile."""
    names = [operand.buffer.name for operand in leaf.operands]
    return leaf.call == ALU_CALL and names[0] != names[1]


def _on_a_copy(leaf: CallNest) -> list[LeafNest]:
    result, source, *rest = leaf.operands
    reset = replace(leaf, call=RESET_CALL, operands=(result,), alu_op=None, imm=None)
    copy = replace(leaf, operands=(result, result, source), alu_op=int(AluOp.ADD), imm=None)
    return [reset, copy, replace(leaf, operands=(result, result, *rest))]
