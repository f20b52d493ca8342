"""Fuse ALU passes into post-processing on the way to the output (extension ``post``).

Shift, rounding and clip are passes over the accumulators of a tile just before it is stored.
If the last writers of the accumulators (GEMM, or another ALU instruction) can post-process, the
passes are dropped; otherwise they stay. The accumulators keep their sums, so
they must not be read again before they are overwritten.

A requantization per channel, with its bias, was never a pass: a placeholder stands for it
(`Operation.post`), whose rows are in the parameter memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

import vtaops._uses as _uses
from vtaops.base.errors import ScheduleError
from vtaops.base.fixed_point import MAX_SHIFT
from vtaops.lowering.operation import Elements, Operation
from vtaops.lowering.passes.uses import Flags, Followed, mask_of
from vtaops.machine.accesses import OFF
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Alu, AluOp, LoopInstruction, Post, Store


@dataclass(frozen=True)
class _Chain:
    """Consecutive passes over one set of accumulators: their places, and the equivalent POST.

    One with scales is a placeholder, which only POST can execute.
    """

    places: tuple[int, ...]
    elements: Elements
    post: Post


def post_process_outputs(operations: list[Operation], config: HardwareConfig) -> list[Operation]:
    """Remove as many passes before the stores as possible."""
    return _Fold(operations, config.acc.depth).result()


class _Fold:
    """Decides which operations post-process (`parts`, by place) and which are `dropped`."""

    def __init__(self, operations: list[Operation], depth: int) -> None:
        self.operations = operations
        self.parts: dict[int, list[Operation]] = {}
        self.dropped = np.zeros(len(operations), np.bool_)
        self.uses = _uses.Uses(operations)
        self.depth = depth
        self.known: dict[tuple[object, ...], list[Operation] | None] = {}
        """What `_parts` returns for templates, by its arguments: equal tiles share work."""
        followed = np.where(_stores(operations), int(Followed.NEVER), int(Followed.ALWAYS))
        self.read = self.uses.read_later(followed)
        """Whether anything but a store reads a result."""

    def result(self) -> list[Operation]:
        """Return the remaining operations, with POST."""
        for place, operation in enumerate(self.operations):
            chain = self._chain(place) if isinstance(operation.instruction, Alu) else None
            if chain is not None and not self.read[chain.places[-1]]:
                self._take(chain)
            elif chain is not None and chain.post.use_scale:
                raise ScheduleError("a per-channel result can only be stored")
        return self._assembled()

    # ------------------------------------------------------------------------ the passes

    def _chain(self, place: int) -> _Chain | None:
        """Return the longest chain of passes that begins at `place` and that POST can replace."""
        scaled = self.operations[place].post
        if scaled.enable:
            elements = self.operations[place].written
            return _Chain((place,), elements, scaled)
        if self.dropped[place] or _pass_of(self.operations[place]) is None:
            return None
        elements = self.operations[place].written
        passes = self._passes(elements, place)
        post = _post_of([*passes.values()])
        if post is None or (post.round_half and self._is_product(elements, place)):
            return None
        return _Chain((*passes,), elements, post)

    def _passes(self, elements: Elements, start: int) -> dict[int, tuple[AluOp, int]]:
        """Return the passes over all of some accumulators that follow each other, by place."""
        passes = {}
        for place in self._touching(elements, start, len(self.operations)):
            found = _pass_of(self.operations[place])
            if found is None or not np.array_equal(self.operations[place].written, elements):
                break
            passes[place] = found
        return passes

    def _is_product(self, elements: Elements, end: int) -> bool:
        """Whether a MUL wrote accumulators last: any int32, so adding half may overflow.

        The sum wraps in the ALU, but not in POST; other sums are far from the limit.
        """
        _, last = self._writers(mask_of(elements, self.depth), end)
        i = self.operations[last].instruction
        return last >= 0 and isinstance(i, Alu) and i.alu_op == AluOp.MUL

    def _take(self, chain: _Chain) -> None:
        """Make the last writers of the accumulators post-process, or else a placeholder itself."""
        writers = self._last_writers(chain)
        parts = None if writers is None else self._processing(chain, writers)
        if parts is None and chain.post.use_scale:  # its own rows are affine in its loops
            parts = self._processing(chain, [*chain.places])
        if parts is not None:
            self.parts.update(parts)
            self.dropped[[*({*chain.places} - parts.keys())]] = True

    def _last_writers(self, chain: _Chain) -> list[int] | None:
        """Return the places of the last writers of a chain's accumulators; None if unsuitable.

        Includes writers in between, so that the setting changes rarely.
        """
        inside = mask_of(chain.elements, self.depth)
        first, _ = self._writers(inside, chain.places[0])
        if first < 0:
            return None
        found = [*self._touching(chain.elements, first, chain.places[0])]
        return found if all(self._may_process(k, inside) for k in found) else None

    def _may_process(self, place: int, inside: Flags) -> bool:
        """Whether an operation can post-process all its results, which must be `inside`."""
        operation, i = self.operations[place], self.operations[place].instruction
        free = place not in self.parts and isinstance(i, LoopInstruction) and not i.reset
        return free and bool(inside[operation.written].all())

    def _processing(self, chain: _Chain, writers: list[int]) -> dict[int, list[Operation]] | None:
        """Return last writers with post-processing; None if they cannot reach its rows."""
        if not chain.post.use_scale:
            return {k: [self.operations[k].having(post=chain.post)] for k in writers}
        vector, found = self.operations[chain.places[0]], {}
        for k in writers:
            parts = self._parts(self.operations[k], vector, chain.post)
            if parts is None:
                return None
            found[k] = parts
        return found

    def _parts(self, writer: Operation, vector: Operation, post: Post) -> list[Operation] | None:
        """Return the parts of a writer that read the rows of a vector."""
        own, others = writer.template or writer, vector.template or vector
        first = vector.shift[1]
        given = own, others, writer.shift[0] - vector.shift[0], first, post
        if given not in self.known:
            self.known[given] = _parts(own, others, given[2], first, post)
        found, (dst, *_) = self.known[given], writer.shift
        by = (dst, dst, 0) if writer.post.enable else writer.shift
        return found and [part.moved(by) for part in found]

    def _assembled(self) -> list[Operation]:
        """Return the remaining operations, with POST inserted where its setting changes.

        POST is off at the beginning and at the end, next to other operators.
        """
        places = np.flatnonzero(~self.dropped).tolist()
        kept = [self.operations[place] for place in places]
        stored = _uses.Uses(kept).last_writers(_stores(kept).astype(np.int64))
        result: list[Operation] = []
        now = OFF
        for place, operation, is_stored in zip(places, kept, stored.tolist(), strict=True):
            # Unstored results may be anything, but should read no row.
            matters = place in self.parts or is_stored or now.reads_row
            for part in self.parts.get(place, [operation]):
                loops = matters and isinstance(part.instruction, LoopInstruction)
                if loops and part.post != now:
                    now = part.post
                    result.append(Operation(now))
                result.append(part)
        return result if now == OFF else [*result, Operation(OFF)]

    def _writers(self, accumulators: Flags, end: int) -> tuple[int, int]:
        """Return the first and last place of the last writers before `end`; -1 if one has none."""
        found: tuple[int, int] = self.uses.writers(int(Memory.ACC), accumulators, end, self.dropped)
        return found

    def _touching(self, elements: Elements, k: int, end: int) -> Iterator[int]:
        """Yield the places ``k .. end - 1`` of operations that touch some accumulators."""
        mask = mask_of(elements, self.depth)
        while (k := self.uses.touching(int(Memory.ACC), mask, k, end)) < end:
            if not self.dropped[k]:
                yield k
            k += 1


# -------------------------------------------------------------------------------- rows


def _stores(operations: list[Operation]) -> Flags:
    return np.array([isinstance(o.instruction, Store) for o in operations], np.bool_)


def _parts(
    writer: Operation, vector: Operation, ahead: int, first: int, post: Post
) -> list[Operation] | None:
    """Return the parts of a writer that read the rows of a vector, from `first` on.

    The writer's accumulators lie `ahead` behind those of the vector.
    """
    ours, theirs = writer.steps("dst") + max(ahead, 0), vector.steps("dst") + max(-ahead, 0)
    row_of = np.zeros(max(int(ours.max()), int(theirs.max())) + 1, np.int64)
    row_of[theirs] = vector.steps("src") + first
    return _by_rows(_adding_nothing(writer) if writer.post.enable else writer, row_of[ours], post)


def _by_rows(operation: Operation, grid: Elements, post: Post) -> list[Operation] | None:
    """Split an operation into parts that each read the rows of their accumulators.

    `grid` has the row of each step.

    The row of a step is affine in the hardware loops, so micro-ops of different rows need separate
    parts. None if it is not affine.
    """
    i, table = operation.instruction, operation.micro_ops
    assert isinstance(i, LoopInstruction)
    assert table is not None
    out = int(grid[1, 0, 0] - grid[0, 0, 0]) if i.iter_out > 1 else 0
    inner = int(grid[0, 1, 0] - grid[0, 0, 0]) if i.iter_in > 1 else 0
    steps = np.arange(i.iter_out)[:, None] * out + np.arange(i.iter_in) * inner
    if min(out, inner) < 0 or (grid != grid[0, 0] + steps[:, :, None]).any():
        return None
    order = np.argsort(grid[0, 0], kind="stable")
    in_order = not (np.diff(order) < 0).any()
    end, table = (i.uop_begin, table) if in_order else (0, table[i.uop_begin : i.uop_end][order])
    parts = []
    for row, count in sorted(Counter(grid[0, 0].tolist()).items()):
        begin, end = end, end + count
        instruction = replace(i, uop_begin=begin, uop_end=end)
        own = replace(post, row=row, row_factor_out=out, row_factor_in=inner)
        parts.append(replace(operation, instruction=instruction, micro_ops=table, post=own))
    return parts


# ------------------------------------------------------------------------ passes and POST


def _adding_nothing(operation: Operation) -> Operation:
    """Return a pass that changes no accumulator, so that its results can be post-processed."""
    alu, table = operation.instruction, operation.micro_ops
    assert isinstance(alu, Alu)
    assert table is not None
    steps = {"src_factor_out": alu.dst_factor_out, "src_factor_in": alu.dst_factor_in}
    nothing = replace(alu, alu_op=AluOp.ADD, use_imm=1, imm=0, **steps)
    in_place = table[:, [0, 0, 2]] * np.array([1, 1, 0])
    return replace(operation, instruction=nothing, micro_ops=in_place, post=OFF)


def _pass_of(operation: Operation) -> tuple[AluOp, int] | None:
    """Return (operation, immediate) of a pass with an immediate, or None."""
    i = operation.instruction
    return (AluOp(i.alu_op), i.imm) if isinstance(i, Alu) and i.use_imm else None


def _post_of(passes: list[tuple[AluOp, int]]) -> Post | None:
    """Return the POST equivalent to passes: a right shift that may round, then a clip; or None.

    Rounding is ``(x + half) >> shift``, or ``((x >> (shift - 1)) + 1) >> 1``
    (`vtaops.ops.epilogue.shift_stages`).
    """
    if [op for op, _ in passes[-2:]] != [AluOp.MAX, AluOp.MIN]:
        return None
    (*shifts, (_, low), (_, high)) = passes
    found = _shift_of(shifts)
    if found is None or not -128 <= low <= high <= 127:
        return None
    shift, half = found
    if half not in (0, (1 << shift) >> 1) or shift > MAX_SHIFT:
        return None
    return Post(enable=1, round_half=int(half > 0), multiplier=1, shift=shift, low=low, high=high)


def _shift_of(passes: list[tuple[AluOp, int]]) -> tuple[int, int] | None:
    """Return the right shift of passes, and what they add before it; None if they do more."""
    shift = half = 0
    for op, imm in passes:
        if op is AluOp.SHR and imm >= 0:
            shift += imm
        elif op is AluOp.ADD and not half and imm > 0:
            half = imm << shift
        else:
            return None
    return shift, half
