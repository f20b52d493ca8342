"""Preserve values that are read again: the ALU works in place and overwrites its operand.

If a stage's operand has other readers (a leaky ReLU takes the maximum of ``x`` and ``x >> 3``), the
stage works on a copy: a tile of zeros, to which the ALU adds the operand. The library's own
declarations read each value once, so they need no copies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from vtaops.lowering.parsing.nests import CallNest, LeafNest, Node, Tree, leaves
from vtaops.machine.isa import AluOp
from vtaops.schedule.intrinsics import ALU_CALL, RESET_CALL


def preserve_operands(tree: Tree) -> Tree:
    """Copy the operands of ALU stages that have other readers, or are filled further outside."""
    readers = Counter(name for leaf in leaves(tree.body) for name in leaf.read)

    def rewrite(nodes: tuple[Node, ...]) -> list[Node]:
        found: list[Node] = []
        filled: set[str] = set()
        for node in nodes:
            if isinstance(node, CallNest) and _overwrites(node):
                source = node.operands[1].buffer.name
                copied = readers[source] > 1 or source not in filled
                found += _on_a_copy(node) if copied else [node]
            else:
                found.append(node)
            filled |= {leaf.dst.buffer.name for leaf in leaves([node])}
        return found

    return tree.rewritten(rewrite)


def _overwrites(leaf: CallNest) -> bool:
    """Whether a call is an ALU stage that overwrites its first operand's tile."""
    names = [operand.buffer.name for operand in leaf.operands]
    return leaf.call == ALU_CALL and names[0] != names[1]


def _on_a_copy(leaf: CallNest) -> list[LeafNest]:
    result, source, *rest = leaf.operands
    reset = replace(leaf, call=RESET_CALL, operands=(result,), alu_op=None, imm=None)
    copy = replace(leaf, operands=(result, result, source), alu_op=int(AluOp.ADD), imm=None)
    return [reset, copy, replace(leaf, operands=(result, result, *rest))]
