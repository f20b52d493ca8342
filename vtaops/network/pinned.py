"""Weights that stay on the chip between the runs of a program.

A fragment loads its weights tile by tile, into places that it uses again. `staying` gives every
tile a place of its own instead: one LOAD at the begin of the program fills them all, and later runs
leave it out (`Program.pinned`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vtaops.lowering.operation import Elements, Fragment, Operation
from vtaops.machine.config import Memory
from vtaops.machine.isa import Encoding, Gemm, Load
from vtaops.program import NO_BUFFER, Role


@dataclass(frozen=True)
class Weights:
    """The weights of a fragment as it loads them.

    Attributes
    ----------
    relocation : int
        Their buffer.
    first, size : int
        The tiles of it that are loaded.
    loaded : int
        Tiles that one run loads; more than `size` if some are loaded again.
    nibbles : int
        1 if an element of DRAM holds two tiles.
    """

    relocation: int
    first: int
    size: int
    loaded: int
    nibbles: int


def weights_of(fragment: Fragment) -> Weights | None:
    """Return what a fragment loads of its weights; None if it loads none, or padding too.

    What a run hands over, as both operands of a product of two tensors, are no weights.
    """
    found = [(load, o.relocation) for o in fragment.operations if (load := _weight_load(o))]
    loads, places = [load for load, _ in found], {relocation for _, relocation in found}
    if (
        len(places) != 1
        or NO_BUFFER in places
        or any(load.sram_size != load.y_size * load.sram_columns for load in loads)
    ):
        return None
    if fragment.buffers[min(places)].role not in (Role.PARAMETER, Role.CONSTANT):
        return None
    tiles = np.concatenate([*map(_tiles, loads)])
    first = int(tiles.min())
    size = int(tiles.max()) + 1 - first
    return Weights(places.pop(), first, size, tiles.size, loads[0].nibbles)


def staying(fragment: Fragment, weights: Weights, base: int) -> tuple[Fragment, Operation] | None:
    """Return a fragment that finds its weights from element `base` on, and the LOAD of these.

    None if an instruction reads tiles at distances that no loop has.
    """
    # The final place of the tile that each element holds.
    holds = np.full(fragment.extents[Memory.WGT], -1, np.int64)
    operations: list[Operation] = []
    for operation in fragment.operations:
        if load := _weight_load(operation):
            begin = load.sram_base
            holds[begin : begin + load.sram_size] = _tiles(load) - weights.first + base
        elif operation.of(Memory.WGT):
            moved = _moved(operation, holds, Encoding.of(fragment.config))
            if moved is None:
                return None
            operations.append(moved)
        else:
            operations.append(operation)
    size = weights.size
    load = Load(
        memory=Memory.WGT,
        sram_base=base,
        dram_base=weights.first >> weights.nibbles,
        y_size=1,
        x_size=size >> weights.nibbles,
        x_stride=size >> weights.nibbles,
        nibbles=weights.nibbles,
    )
    once = Operation(load, relocation=weights.relocation)
    offsets = {**fragment.offsets, Memory.WGT: 0}
    return replace(fragment, operations=tuple(operations), offsets=offsets), once


def without_weights(fragment: Fragment) -> Fragment:
    """Return a fragment that finds its weights on the chip: it loads none."""
    rest = tuple(o for o in fragment.operations if not _weight_load(o))
    return replace(fragment, operations=rest)


def _weight_load(operation: Operation) -> Load | None:
    i = operation.instruction
    return i if isinstance(i, Load) and i.memory == Memory.WGT and not i.is_nop else None


def _tiles(load: Load) -> Elements:
    """Return the tiles of its buffer that a LOAD without padding moves, in their order."""
    rows = load.dram_base + np.arange(load.y_size) * load.x_stride
    found: Elements = np.add.outer(rows << load.nibbles, np.arange(load.sram_columns))
    return found.ravel()


def _moved(operation: Operation, holds: Elements, encoding: Encoding) -> Operation | None:
    """Return an operation that reads each weight tile in its final place."""
    i, rows = operation.instruction, operation.rows
    assert isinstance(i, Gemm)
    assert rows is not None
    wanted = holds[operation.steps("wgt")]
    factors = [int(f) for f in (np.diff(wanted[:2, 0, 0]).sum(), np.diff(wanted[0, :2, 0]).sum())]
    loops = np.add.outer(np.arange(i.iter_out) * factors[0], np.arange(i.iter_in) * factors[1])
    names = ("wgt_factor_out", "wgt_factor_in")
    widths = {slot.name: slot.width for slot in encoding.slots[type(i)]}
    fits = all(0 <= f < 1 << widths[n] for f, n in zip(factors, names, strict=True))
    if not fits or (wanted < 0).any() or (wanted != np.add.outer(loops, wanted[0, 0])).any():
        return None
    by_out, by_in = factors
    moved = replace(i, uop_begin=0, uop_end=len(rows), wgt_factor_out=by_out, wgt_factor_in=by_in)
    placed = np.column_stack([rows[:, :2], wanted[0, 0]])
    return replace(operation, instruction=moved, micro_ops=placed)


def choose_staying(fragments: Sequence[Fragment], depth: int) -> list[int]:
    """Return the fragments whose weights may stay, by number: those that load most come first.

    The others share what is left of the `depth` elements: room for the largest.
    """
    extents = [fragment.extents[Memory.WGT] for fragment in fragments]
    found = {number: w for number, f in enumerate(fragments) if (w := weights_of(f))}
    chosen = sorted(found, key=lambda n: (found[n].loaded / found[n].size, found[n].size))[::-1]

    def room() -> int:
        most = max((extents[n] for n in {*range(len(fragments))} - {*chosen}), default=0)
        return sum(found[number].size for number in chosen) + most

    while chosen and room() > depth:
        chosen.pop()
    return sorted(chosen)
