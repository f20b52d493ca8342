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
from typing import Any

import numpy as np

import vtaops._uses as _uses
from vtaops.lowering.operation import Elements, Operation
from vtaops.lowering.passes.uses import Flags, mask_of
from vtaops.machine.accesses import distinct, in_runs, loop_steps
from vtaops.machine.config import LEAST, Extension, HardwareConfig, Memory
from vtaops.machine.isa import Alu, AluOp, Gemm, Pool

Parts = dict[int, list[Operation]]
"""Replacements of operations, by their place in the program."""

Division = tuple[list[Operation], list[Operation]]
"""The steps of a product that overwrite, and the others."""

Product = Gemm | Pool
"""Instructions that can overwrite; those of one kind commute."""


def overwrite_instead_of_reset(
    operations: list[Operation], config: HardwareConfig
) -> list[Operation]:
    """Remove as many resets as possible; none without the extensions."""
    if not any(map(config.has, (Extension.OVERWRITE, Extension.POOL))):
        return operations
    return _Resets(operations, config).removed()


class _Resets:
    """Replaces operations by `parts`, for one reset after the other.

    A product of an equal tile that was divided once need not be divided again.
    """

    def __init__(self, operations: list[Operation], config: HardwareConfig) -> None:
        self._operations, self._config = operations, config
        self._uses = _uses.Uses(operations)
        self._parts: Parts = {place: [operation] for place, operation in enumerate(operations)}
        self._ends = {kind: _ends(operations, kind) for kind in (Gemm, Pool)}
        self._divided: dict[Operation, Division] = {}

    def removed(self) -> list[Operation]:
        for place, operation in enumerate(self._operations):
            i = operation.instruction
            if isinstance(i, Gemm) and i.reset:
                self._parts.update(self._without_reset(place))
        return [part for parts in self._parts.values() for part in parts]

    def _without_reset(self, place: int) -> Parts:
        """Return the replacements of a reset and its products; empty if the reset stays."""
        pending = mask_of(self._operations[place].written, self._config.acc.depth)
        least = self._least_added(place, pending) if self._config.has(Extension.POOL) else None
        if least is None and not self._config.has(Extension.OVERWRITE):
            return {}
        dropped, kind = ([place], Gemm) if least is None else ([place, least], Pool)
        first = self._first_products(pending, dropped[-1] + 1, kind)
        return {} if first is None else {**first, **{own: [] for own in dropped}}

    def _least_added(self, reset: int, pending: Flags) -> int | None:
        """Return the place of the addition of a value at or below every int8 to `pending`."""
        place = self._touching(pending, reset + 1, len(self._operations))
        if place == len(self._operations):
            return None
        operation = self._operations[place]
        i, written = operation.instruction, self._operations[reset].written
        adds = isinstance(i, Alu) and i.alu_op == AluOp.ADD and i.use_imm and i.imm <= LEAST
        return place if adds and np.array_equal(operation.written, written) else None

    def _first_products(self, pending: Flags, begin: int, kind: type[Product]) -> Parts | None:
        """Return replacements for the products, from `begin`, that first reach `pending`.

        None if something else reaches one of the accumulators first, or nothing does.
        """
        replacements: Parts = {}
        place = begin
        while pending.any():
            place = self._touching(pending, place, len(self._operations))
            end, group = self._ends[kind][place], list[int]()
            while place < end:
                group.append(place)
                place = self._touching(pending, place + 1, end)
            # Something else comes first, or a product already split for another reset.
            if not group or any(len(self._parts[own]) > 1 for own in group):
                return None
            replacement = self._overwriting(group, pending)
            if replacement is None:
                return None
            replacements.update(replacement)
        return replacements

    def _overwriting(self, group: list[int], pending: Flags) -> Parts | None:
        """Reorder a group of products: steps that reach `pending` come first and overwrite.

        Removes them from `pending`.
        """
        heads: list[Operation] = []
        parts: Parts = {}
        for place in sorted(group, key=lambda p: -len(self._operations[p].written)):
            head, parts[place] = self._halves(place, pending)
            heads += head
            for operation in head:
                pending[operation.written] = False
        if any(self._touching(pending, own, own + 1) == own for own in group):
            return None
        parts[group[0]] = [*heads, *parts[group[0]]]
        return parts

    def _touching(self, accumulators: Flags, begin: int, end: int) -> int:
        """Return the place of the first of some operations that accesses one of these, or `end`."""
        place: int = self._uses.touching(int(Memory.ACC), accumulators, begin, end)
        return place

    def _halves(self, place: int, pending: Flags) -> Division:
        """Return the steps of a product that can overwrite, if all is `pending`, and the others."""
        operation = self._operations[place]
        if not pending[operation.written].all():
            return [], [operation]
        template = operation.template or operation
        if template not in self._divided:
            self._divided[template] = _split(template, self._config)
        heads, rest = self._divided[template]
        if template is operation:
            return heads, rest
        by = operation.shift
        return [o.moved(by) for o in heads], [o.moved(by) for o in rest]


def _ends(operations: list[Operation], kind: type[Product]) -> list[int]:
    """Return for each place, and the one behind, the first place from it without such a product."""
    ends = [len(operations)]
    for place, operation in reversed([*enumerate(operations)]):
        i = operation.instruction
        ends.append(ends[-1] if isinstance(i, kind) and not i.reset else place)
    return ends[::-1]


def _product(operation: Operation) -> tuple[Product, Elements]:
    assert isinstance(operation.instruction, Product)
    assert operation.micro_ops is not None
    return operation.instruction, operation.micro_ops


def _split(operation: Operation, config: HardwareConfig) -> Division:
    """Split a product into steps that can overwrite its accumulators, and the others."""
    i, rows = _product(operation)
    for loop, factor in (("out", i.dst_factor_out), ("in", i.dst_factor_in)):
        extent = getattr(i, f"iter_{loop}")
        if factor == 0 and extent > 1:  # a reduction loop: its first iteration overwrites
            head, rest = _split(_iterations(operation, loop, 0, 1), config)
            if not head:
                return [], [operation]
            return head, [*rest, _iterations(operation, loop, 1, extent)]
    stop = _end_of_fresh(i, rows, config)
    if stop == i.uop_begin:
        return [], [operation]
    fresh = [replace(operation, instruction=replace(i, uop_end=stop, overwrite=1))]
    if stop == i.uop_end:
        return fresh, []
    return fresh, [replace(operation, instruction=replace(i, uop_begin=stop))]


def _end_of_fresh(i: Product, rows: Elements, config: HardwareConfig) -> int:
    """Return the end of the first micro-ops that write each accumulator once."""
    steps = loop_steps(i, "dst").ravel()
    fresh = np.ones(int(steps.max() + rows[:, 0].max()) + 1, np.bool_)
    if len(distinct(steps)) < len(steps):  # reaches an accumulator twice
        return i.uop_begin
    shares = in_runs(config, i, rows[i.uop_begin : i.uop_end])
    for stop in range(i.uop_begin, i.uop_end):
        elements = rows[stop, 0] + steps
        if not shares[stop - i.uop_begin] and not fresh[elements].all():
            return stop
        fresh[elements] = False
    return i.uop_end


def _iterations(operation: Operation, loop: str, first: int, stop: int) -> Operation:
    """Return a product restricted to the iterations first..stop of one of its loops."""
    i, rows = _product(operation)
    steps = [getattr(i, f"{operand}_factor_{loop}", 0) for operand in ("dst", "src", "wgt")]
    extent: dict[str, Any] = {f"iter_{loop}": stop - first}
    own = rows + first * np.array(steps, np.int64) if first else rows
    return replace(operation, instruction=replace(i, **extent), micro_ops=own)
