"""emit: lower a tree of tiles to a fragment, the operations of one operator.

A fragment knows only its own buffers, has no tokens, and its micro-ops have no addresses: `link`
joins fragments to a program. Equal operators with equal tilings share a fragment.
"""

from __future__ import annotations

from vtaops.lowering.emission.images import spanned
from vtaops.lowering.emission.walk import walk
from vtaops.lowering.operation import Fragment
from vtaops.lowering.options import DEFAULT_OPTIONS, LoweringOptions
from vtaops.lowering.passes.dead_loads import without_dead_loads
from vtaops.lowering.passes.overwrite import overwrite_instead_of_reset
from vtaops.lowering.passes.pairs import merge_pairs
from vtaops.lowering.passes.post import post_process_outputs
from vtaops.lowering.tree.nodes import Tree
from vtaops.machine.config import Extension, HardwareConfig
from vtaops.program import Buffer, OperatorRecord

UNDESCRIBED = OperatorRecord()


def emit(
    tree: Tree,
    buffers: tuple[Buffer, ...],
    config: HardwareConfig,
    options: LoweringOptions = DEFAULT_OPTIONS,
    record: OperatorRecord = UNDESCRIBED,
) -> Fragment:
    """Lower a tree to operations.

    Parameters
    ----------
    tree : Tree
        Of an operator (`build_tree`), or of a parsed schedule.
    buffers : tuple of Buffer
        Arguments of the operator.
    config : HardwareConfig
        Configuration to compile for.
    options : LoweringOptions
        Requirements of schedule and device.
    record : OperatorRecord
        Description of the operator.

    Raises
    ------
    ScheduleError
        If a scratchpad overflows.
    ShapeError
        If strides are given for a buffer that is neither image nor matrix.
    """
    operations = without_dead_loads(walk(tree, buffers, config, options))
    # Before `overwrite`: two products that pair are one instruction, of which one step overwrites.
    if config.has(Extension.PAIRS):
        operations = merge_pairs(operations, config, options.depth(config))
    operations = overwrite_instead_of_reset(operations, config)
    # Last: it post-processes the last writers of accumulators, which `overwrite` splits.
    if config.has(Extension.POST):
        operations = post_process_outputs(operations, config)
    outer = spanned(buffers, dict(options.strides), config)
    return Fragment(config, tuple(operations), outer, options, record)
