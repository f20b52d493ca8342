"""emit: lower a tree of tiles to a fragment, the operations of one operator.

A fragment knows only its own buffers, has no tokens, and its micro-ops have no addresses: `link`
joins fragments to a program. Equal operators with equal tilings share a fragment.
"""

from __future__ import annotations

from vtaops.base.errors import ShapeError
from vtaops.lowering.emission.images import spanned
from vtaops.lowering.emission.walk import walk
from vtaops.lowering.operation import Fragment, PassContext
from vtaops.lowering.options import DEFAULT_OPTIONS, LoweringOptions
from vtaops.lowering.passes.order import OPERATOR_PASSES, apply
from vtaops.lowering.tree.nodes import Tree
from vtaops.lowering.tree.preserve import preserve_operands
from vtaops.machine.config import HardwareConfig
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
        If strides are given for an unknown buffer, or one that is neither image nor matrix.
    """
    strides = dict(options.strides)
    names = [buffer.name for buffer in buffers]
    unknown = sorted(strides.keys() - set(names))
    if unknown:
        raise ShapeError(f"strides for {unknown[0]!r}; the operator has {', '.join(names)}")
    outer = tuple(spanned(b, strides[b.name], config) if b.name in strides else b for b in buffers)
    tree = preserve_operands(tree)
    context = PassContext(config, options.depth(config))
    operations = apply(OPERATOR_PASSES, walk(tree, buffers, config, options), context)
    return Fragment(config, tuple(operations), outer, options, record)
