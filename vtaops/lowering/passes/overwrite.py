"""Reset elimination: the first product of each accumulator overwrites it (``overwrite``).

A reset is dropped if products follow that reach each of its accumulators before anything else
does. All steps of neighbouring products commute. So some steps that together reach every
accumulator once (for a convolution: one kernel tap) become overwriting instructions and are
executed first; the others accumulate as before.

The same holds for maxima (extension ``pool``), which begin with a reset and the addition of the
smallest int8.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Elements, Operation, Touch, distinct, loop_steps
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Alu, AluOp, Gemm, Pool
from vtaops.program.traffic import joined

LEAST = -128
"""The smallest int8."""

Mask = npt.NDArray[np.bool_]
Parts = dict[int, list[Operation]]
"""Replacements of operations, by their place in the program."""


Product = Gemm | Pool
"""Instructions that can overwrite; those of one kind commute."""


def overwrite_instead_of_reset(
    operations: list[Operation], config: HardwareConfig
) -> list[Operation]:
    """Remove as many resets as possible.

    Parameters
    ----------
    operations : list of Operation
        In program order, micro-ops not yet placed.
    config : HardwareConfig
        Target hardware; without the extensions, operations are unchanged.
    """
    parts: Parts = {place: [operation] for place, operation in enumerate(operations)}
    for place, operation in enumerate(operations):
        if isinstance(operation.instruction, Gemm) and operation.instruction.reset:
            parts.update(_without_reset(operations, parts, place, config))
    return [part for place in range(len(operations)) for part in parts[place]]


def _without_reset(
    operations: list[Operation], parts: Parts, reset: int, config: HardwareConfig
) -> Parts:
    """Return the replacements of a reset and its products; empty if the reset stays."""
    least = _least_added(operations, reset) if "pool" in config.extensions else None
    if least is None and "overwrite" not in config.extensions:
        return {}
    dropped, kind = ([reset], Gemm) if least is None else ([reset, least], Pool)
    pending = np.zeros(config.acc.depth, np.bool_)
    pending[operations[reset].written] = True
    first = _first_products(operations, parts, pending, dropped[-1] + 1, kind, config)
    return {**first, **{place: [] for place in dropped}} if first is not None else {}


def _least_added(operations: list[Operation], reset: int) -> int | None:
    """Return the place where a number at or below every int8 is added to the reset accumulators."""
    elements = operations[reset].written
    for place in range(reset + 1, len(operations)):
        operation, i = operations[place], operations[place].instruction
        if any(np.isin(elements, other).any() for other in operation.accumulators):
            adds = isinstance(i, Alu) and i.alu_op == AluOp.ADD and i.use_imm and i.imm <= LEAST
            return place if adds and np.array_equal(operation.written, elements) else None
    return None


def _first_products(
    operations: list[Operation],
    parts: Parts,
    pending: Mask,
    begin: int,
    kind: type[Product],
    config: HardwareConfig,
) -> Parts | None:
    """Return replacements for the products, from `begin`, that first reach `pending` accumulators.

    None if something else reaches one of them first, or nothing does.
    """
    found: Parts = {}
    places = range(begin, len(operations))
    for products, run in groupby(places, lambda k: _is_product(operations[k], kind)):
        group = [k for k in run if any(pending[e].any() for e in operations[k].accumulators)]
        if not group:
            continue
        # Something else comes first, or a product already split for another reset.
        if not products or any(len(parts[k]) > 1 for k in group):
            return None
        replacement = _overwriting(operations, group, pending, config)
        if replacement is None:
            return None
        found.update(replacement)
        if not pending.any():
            return found
    return None


def _is_product(operation: Operation, kind: type[Product]) -> bool:
    return isinstance(operation.instruction, kind) and not operation.instruction.reset


def _product(operation: Operation) -> tuple[Product, Elements]:
    """Return the instruction and the micro-ops of a product."""
    assert isinstance(operation.instruction, Product)
    assert operation.micro_ops is not None
    return operation.instruction, operation.micro_ops


def _overwriting(
    operations: list[Operation], group: list[int], pending: Mask, config: HardwareConfig
) -> Parts | None:
    """Reorder a group of products: steps that reach `pending` come first and overwrite.

    Removes them from `pending`.
    """
    reached, covered = np.zeros_like(pending), np.zeros_like(pending)
    heads: list[Operation] = []
    parts: Parts = {}
    for place in sorted(group, key=lambda p: -len(operations[p].written)):
        reached[operations[place].written] = True
        head, parts[place] = _split(operations[place], pending & ~covered, config)
        for operation in head:
            heads.append(operation)
            covered[operation.steps("dst")] = True
    if (reached & pending & ~covered).any():
        return None
    parts[group[0]] = [*heads, *parts[group[0]]]
    pending &= ~covered
    return parts


def _split(
    operation: Operation, pending: Mask, config: HardwareConfig
) -> tuple[list[Operation], list[Operation]]:
    """Split a product into steps that can overwrite `pending` accumulators, and the others."""
    i, rows = _product(operation)
    for loop, factor in (("out", i.dst_factor_out), ("in", i.dst_factor_in)):
        extent = getattr(i, f"iter_{loop}")
        if factor == 0 and extent > 1:  # a reduction loop: its first iteration overwrites
            head, rest = _split(_iterations(operation, loop, 0, 1), pending, config)
            if not head:
                return [], [operation]
            return head, [*rest, _iterations(operation, loop, 1, extent)]
    steps, fresh = loop_steps(i, "dst").ravel(), pending.copy()
    stop = i.uop_begin
    once = len(distinct(steps)) == len(steps)  # reaches no accumulator twice
    shares = joined(config, i, rows[i.uop_begin : i.uop_end])
    while once and stop < i.uop_end:
        elements = rows[stop, 0] + steps
        if not shares[stop - i.uop_begin] and not fresh[elements].all():
            break
        fresh[elements] = False
        stop += 1
    head = (
        [_with(operation, i.with_fields(uop_end=stop, overwrite=1))] if stop > i.uop_begin else []
    )
    rest = [_with(operation, i.with_fields(uop_begin=stop))] if stop < i.uop_end else []
    return head, rest


def _iterations(operation: Operation, loop: str, first: int, stop: int) -> Operation:
    """Return a product restricted to the iterations first..stop of one of its loops."""
    i, rows = _product(operation)
    steps = [getattr(i, f"{operand}_factor_{loop}", 0) for operand in ("dst", "src", "wgt")]
    extent: dict[str, Any] = {f"iter_{loop}": stop - first}
    part = _with(operation, i.with_fields(**extent))
    part.micro_ops = rows + first * np.array(steps, np.int64) if first else rows
    return part


def _with(operation: Operation, instruction: Product) -> Operation:
    """Return a product with fewer steps, and with the accumulators that they touch."""
    part = replace(operation, instruction=instruction)
    reached = Touch("acc", distinct(part.steps("dst")), write=True)
    part.touches = (reached, *(t for t in operation.touches if t.space != "acc"))
    return part
