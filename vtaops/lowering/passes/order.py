"""The passes in their order.

A pass is a function from the operations of an operator to those of an equivalent one.
"""

from __future__ import annotations

from collections.abc import Callable

from vtaops.lowering.operation import Operation, PassContext
from vtaops.lowering.passes.dead_loads import without_dead_loads
from vtaops.lowering.passes.overwrite import overwrite_instead_of_reset
from vtaops.lowering.passes.pairs import merge_pairs
from vtaops.lowering.passes.post import post_process_outputs
from vtaops.machine.config import Extension

Pass = Callable[[list[Operation], PassContext], list[Operation]]
Table = tuple[tuple[Extension | None, Pass], ...]
"""Passes, with the extension that each needs."""

OPERATOR_PASSES: Table = (
    (None, without_dead_loads),
    # Before `overwrite`: two products that pair are one instruction, of which one step overwrites.
    (Extension.PAIRS, merge_pairs),
    (None, overwrite_instead_of_reset),
    # Last: it post-processes the last writers of accumulators, which `overwrite` splits.
    (Extension.POST, post_process_outputs),
)


def apply(passes: Table, operations: list[Operation], context: PassContext) -> list[Operation]:
    """Run passes, one after the other; those whose extension the hardware lacks are left out."""
    for extension, rewrite in passes:
        if extension is None or context.config.has(extension):
            operations = rewrite(operations, context)
    return operations
