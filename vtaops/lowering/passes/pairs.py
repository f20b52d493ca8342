"""Merge consecutive products of equal loops, so that their micro-ops pair (extension ``pairs``).

A sum of several tensors, or of the digits of one, is a GEMM for each term. Where two of them
accumulate into the same tiles, one instruction with the micro-ops of both in turn takes half the
steps. Loads between the two come first, unless they write what the first product reads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Operation, Touch, distinct
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Gemm, Load
from vtaops.program.traffic import joined

Rows = npt.NDArray[np.int64]


def merge_pairs(
    operations: list[Operation], config: HardwareConfig, max_micro_ops: int
) -> list[Operation]:
    """Merge each product into its predecessor if that saves steps.

    Parameters
    ----------
    operations : list of Operation
        In program order, micro-ops not yet placed.
    config : HardwareConfig
        Target hardware, with the extension ``pairs``.
    max_micro_ops : int
        Maximum micro-ops of one instruction.
    """
    done: list[Operation] = []
    waiting: list[Operation] = []
    """A product that may be merged with the next one, and the loads behind it."""
    for operation in operations:
        if waiting and _may_precede(operation, waiting[0]):
            waiting.append(operation)
            continue
        both = _merged(waiting[0], operation, config, max_micro_ops) if waiting else None
        if both is not None:
            done += [*waiting[1:], both]
            waiting = []
            continue
        done += waiting
        waiting = [operation] if _single(operation, config) is not None else []
        done += [] if waiting else [operation]
    return [*done, *waiting]


def _may_precede(operation: Operation, product: Operation) -> bool:
    """Whether an operation is a load that may be moved in front of a product."""
    touched = {touch.space: touch.elements for touch in product.touches}
    return isinstance(operation.instruction, Load) and not any(
        np.isin(write.elements, touched[write.space]).any()
        for write in operation.writes
        if write.space in touched
    )


def _merged(
    first: Operation, second: Operation, config: HardwareConfig, max_micro_ops: int
) -> Operation | None:
    """Return two products as one; None if their steps differ or would not pair."""
    a, b = _single(first, config), _single(second, config)
    if a is None or b is None or not np.array_equal(a[1][:, 0], b[1][:, 0]):
        return None
    rows = np.stack([a[1], b[1]], axis=1).reshape(-1, 3)
    whole, other = (i.with_fields(uop_begin=0, uop_end=len(rows)) for i, _ in (a, b))
    if whole != other or len(rows) > max_micro_ops:
        return None
    touches = tuple(map(_both, first.touches, second.touches))
    return replace(first, instruction=whole, touches=touches, micro_ops=rows)


def _single(operation: Operation, config: HardwareConfig) -> tuple[Gemm, Rows] | None:
    """Return an accumulating product and its micro-ops; None of others, and if some pair."""
    i = operation.instruction
    if not isinstance(i, Gemm) or i.reset or i.overwrite:
        return None
    assert operation.micro_ops is not None
    rows = operation.micro_ops[i.uop_begin : i.uop_end]
    return None if joined(config, i, rows).any() else (i, rows)


def _both(first: Touch, second: Touch) -> Touch:
    """Return the elements that two products touch in one memory."""
    return Touch(
        first.space, distinct(np.concatenate([first.elements, second.elements])), first.write
    )
