"""Passes of the ALU fall away: what they do happens on the way to the output (extension ``post``).

Shift, rounding and clip are passes over the accumulators of a tile just before it is stored. Where
what wrote the accumulators last can be told to post-process (GEMM, or another ALU instruction), the
passes are dropped; where it cannot, they become one. The accumulators then keep their sums, so they
must not be read again before they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vtaops.isa import Alu, AluOp, Gemm, Post, Store
from vtaops.lowering.operation import Elements, Operation, Touch

MAX_SHIFT = 31
"""Longest shift that passes over 32-bit accumulators do."""


# The setting counts as memory, so that nothing changes its place across a POST.
_SETTING_WRITTEN = Touch("setting", np.zeros(1, np.int64), write=True)
_SETTING_READ = replace(_SETTING_WRITTEN, write=False)


@dataclass(frozen=True)
class _Chain:
    """Consecutive passes over one set of accumulators: their places, and what does the same."""

    places: tuple[int, ...]
    elements: Elements
    post: Post


def post_process_outputs(operations: list[Operation], acc_depth: int) -> list[Operation]:
    """Return the operations with as few passes before the stores as possible.

    Parameters
    ----------
    operations : list of Operation
        In program order, micro-ops not yet placed.
    acc_depth : int
        Accumulator tiles of the device.
    """
    fold = _Fold(operations, acc_depth)
    place = 0
    while place < len(operations):
        chain = fold.chain(place)
        if chain is not None and fold.is_stored_only(chain):
            fold.take(chain)
        place += 1
    return fold.result()


class _Fold:
    """Decides which instructions post-process (`posts`, by place) and which are `dropped`."""

    def __init__(self, operations: list[Operation], acc_depth: int) -> None:
        self.operations = operations
        self.acc_depth = acc_depth
        self.posts: dict[int, Post] = {}
        self.dropped: set[int] = set()
        self.touched = [_accumulators(operation) for operation in operations]

    def chain(self, place: int) -> _Chain | None:
        """Return the longest chain of passes that begins at `place`, if POST can do the same."""
        if place in self.dropped or _pass_of(self.operations[place]) is None:
            return None
        elements = _written(self.operations[place])
        passes, places = [], []
        for k in self._touching(elements, place):
            found = _pass_of(self.operations[k])
            if found is None or not np.array_equal(_written(self.operations[k]), elements):
                break
            passes.append(found)
            places.append(k)
        post = _post_of(passes)
        return None if post is None else _Chain(tuple(places), elements, post)

    def is_stored_only(self, chain: _Chain) -> bool:
        """Whether the accumulators of a chain are only stored until they are written anew."""
        left = self._mask(chain.elements)
        for k in self._touching(chain.elements, chain.places[-1] + 1):
            operation = self.operations[k]
            reads, writes = _reads(operation), _writes(operation)
            if any(left[e].any() for e in reads) and not isinstance(operation.instruction, Store):
                return False
            for elements in writes:
                left[elements] = False
            if not left.any():
                return True
        return True

    def take(self, chain: _Chain) -> None:
        """Let what wrote the accumulators post-process, or else one pass."""
        writers = self._last_writers(chain)
        first, *others = chain.places
        if writers is None:
            if not others:
                return
            alu = self.operations[first].instruction
            assert isinstance(alu, Alu)
            nothing = replace(alu, alu_op=AluOp.ADD, imm=0)
            self.operations[first] = replace(self.operations[first], instruction=nothing)
            writers = [first]
        else:
            self.dropped.add(first)
        self.dropped.update(others)
        self.posts.update(dict.fromkeys(writers, chain.post))

    def _last_writers(self, chain: _Chain) -> list[int] | None:
        """Return the places of what writes the accumulators of a chain last; None: something else.

        What lies between and writes them too is included, so that the setting changes seldom.
        """
        left = self._mask(chain.elements)
        inside = left.copy()
        found: list[int] = []
        for k in range(chain.places[0] - 1, -1, -1):
            if k in self.dropped or not any(inside[e].any() for e in self.touched[k]):
                continue
            i = self.operations[k].instruction
            if k in self.posts or not isinstance(i, Gemm | Alu) or i.reset:
                return None
            written = _written(self.operations[k])
            if not inside[written].all():
                return None
            found.append(k)
            left[written] = False
            if not left.any():
                return found
        return None

    def result(self) -> list[Operation]:
        """Return the operations that are left, with POST where its setting must change.

        Nothing is set at the beginning and at the end, where other operators follow.
        """
        stored = self._stored_from()
        result: list[Operation] = []
        now = Post()
        for place, operation in enumerate(self.operations):
            if place in self.dropped:
                continue
            wanted = self.posts.get(place, Post() if place in stored else now)
            if wanted != now:
                result.append(Operation(wanted, touches=(_SETTING_WRITTEN,)))
                now = wanted
            if isinstance(operation.instruction, Gemm | Alu):
                operation = replace(operation, touches=(*operation.touches, _SETTING_READ))
            result.append(operation)
        if now != Post():
            result.append(Operation(Post(), touches=(_SETTING_WRITTEN,)))
        return result

    def _stored_from(self) -> set[int]:
        """Return the places of all that writes what is stored, without post-processing."""
        last = np.full(self.acc_depth, -1)
        found: set[int] = set()
        for place, operation in enumerate(self.operations):
            if place in self.dropped:
                continue
            for elements in _writes(operation):
                last[elements] = place
            if isinstance(operation.instruction, Store):
                for elements in _reads(operation):
                    found.update(np.unique(last[elements]).tolist())
        return found - {*self.posts}

    def _touching(self, elements: Elements, start: int) -> Iterator[int]:
        """Iterate over the places, from `start`, of what touches some accumulators."""
        mask = self._mask(elements)
        for k in range(start, len(self.operations)):
            if k not in self.dropped and any(mask[e].any() for e in self.touched[k]):
                yield k

    def _mask(self, elements: Elements) -> npt.NDArray[np.bool_]:
        mask = np.zeros(self.acc_depth, np.bool_)
        mask[elements] = True
        return mask


# ------------------------------------------------------------------- what operations touch


def _accumulators(operation: Operation) -> list[Elements]:
    return [touch.elements for touch in operation.touches if touch.space == "acc"]


def _writes(operation: Operation) -> list[Elements]:
    return [touch.elements for touch in operation.touches if touch.space == "acc" and touch.write]


def _written(operation: Operation) -> Elements:
    return _writes(operation)[0]


def _reads(operation: Operation) -> list[Elements]:
    """Return the accumulators whose values an operation uses; a STORE those that it stores."""
    i = operation.instruction
    in_place = isinstance(i, Alu) or (isinstance(i, Gemm) and not (i.reset or i.overwrite))
    return [
        touch.elements
        for touch in operation.touches
        if touch.space == "acc" and (in_place or not touch.write)
    ]


# ------------------------------------------------------------------------ passes and POST


def _pass_of(operation: Operation) -> tuple[AluOp, int] | None:
    """Return operation and operand of a pass with an immediate."""
    i = operation.instruction
    return (AluOp(i.alu_op), i.imm) if isinstance(i, Alu) and i.use_imm else None


def _post_of(passes: list[tuple[AluOp, int]]) -> Post | None:
    """Return the POST that does what passes do: a right shift that may round, then a clip.

    Rounding is ``(x + half) >> shift``, or ``((x >> (shift - 1)) + 1) >> 1``
    (`vtaops.ops.postprocess.shift_stages`). The sum with half wraps in the ALU where it exceeds
    32 bits, and does not here.
    """
    if [op for op, _ in passes[-2:]] != [AluOp.MAX, AluOp.MIN]:
        return None
    (*shifts, (_, low), (_, high)) = passes
    if not -128 <= low <= high <= 127:
        return None
    shift = half = 0
    for op, imm in shifts:
        if op is AluOp.SHR and imm >= 0:
            shift += imm
        elif op is AluOp.ADD and not half and imm > 0:
            half = imm << shift
        else:
            return None
    if half not in (0, (1 << shift) >> 1) or shift > MAX_SHIFT:
        return None
    return Post(enable=1, round_half=int(half > 0), multiplier=1, shift=shift, low=low, high=high)
