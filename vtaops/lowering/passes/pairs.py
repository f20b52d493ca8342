"""Merge consecutive products of equal loops, so that their micro-ops pair (extension ``pairs``).

A sum of several tensors, or of the digits of one, is a GEMM for each term. Where two of them
accumulate into the same tiles, one instruction with the micro-ops of both in turn takes half the
steps. Loads between the two come first, unless they write what the first product reads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Operation
from vtaops.machine.accesses import paired
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Gemm, Load

Rows = npt.NDArray[np.int64]


def merge_pairs(
    operations: list[Operation], config: HardwareConfig, max_micro_ops: int
) -> list[Operation]:
    """Merge each product into its predecessor if that saves steps."""
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
    used = {access.memory: access.elements for access in product.scratchpads}
    return isinstance(operation.instruction, Load) and not any(
        np.isin(access.elements, used[access.memory]).any()
        for access in operation.scratchpads
        if access.writes and access.memory in used
    )


def _merged(
    first: Operation, second: Operation, config: HardwareConfig, max_micro_ops: int
) -> Operation | None:
    """Return two products as one; None if their steps differ or would not pair."""
    a, b = _single(first, config), _single(second, config)
    if a is None or b is None or not np.array_equal(a[1][:, 0], b[1][:, 0]):
        return None
    rows = np.stack([a[1], b[1]], axis=1).reshape(-1, 3)
    whole, other = (replace(i, uop_begin=0, uop_end=len(rows)) for i, _ in (a, b))
    if whole != other or len(rows) > max_micro_ops:
        return None
    return replace(first, instruction=whole, micro_ops=rows)


def _single(operation: Operation, config: HardwareConfig) -> tuple[Gemm, Rows] | None:
    """Return an accumulating product and its micro-ops; None of others, and if some pair."""
    i = operation.instruction
    if not isinstance(i, Gemm) or i.reset or i.overwrite:
        return None
    rows = operation.rows
    assert rows is not None
    return None if paired(config, i, rows).any() else (i, rows)
