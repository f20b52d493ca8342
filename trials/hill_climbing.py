"""Hill climbing over instruction streams, with the proof as judge.

    python -m trials hill_climbing --only tiny/gemm

A case is a task and a seed. It starts from the best program that is known: the compiler's, those of
a few tilings, and the stream in `FOLDER`, where a better one is written (``python -m docs records
--add`` takes it from there). A step changes the order of instructions (one, or a window of them),
splits or joins loads, stores and loops, swaps loops and micro-ops, moves tiles to other places of a
scratchpad, or loads micro-ops later; one to three such edits at once. Tokens are found anew for
each candidate, as the compiler finds them. What is not slower is judged (`vtaops.explore.judge`),
and accepted only if it is proven; now and then something slower is accepted, too.

Told are the cycles of the compiler, of the best tiling and of the best stream, and how many
candidates were timed, judged and proven.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trials.campaign import Campaign, Result, result
from vtaops.base.errors import VTAError
from vtaops.explore.judge import Judge, task_names
from vtaops.explore.judge.answers import program_of as program_of_answer
from vtaops.explore.judge.streams import (
    Stream,
    dropped,
    operations_of,
    program_of,
    rows_behind,
    split,
)
from vtaops.lowering.operation import Operation
from vtaops.machine.config import Memory
from vtaops.machine.isa import Alu, Gemm, Load, LoopInstruction, MemoryInstruction, Pool, Store
from vtaops.ops import Operator
from vtaops.program import Program, assemble
from vtaops.schedule.candidates import TilingList

TILINGS = 24
"""Tilings that are timed before the climbing."""

SECONDS = 60
"""Of a case."""

FOLDER = Path("build/hill_climbing")
"""The best streams by task."""

# ----------------------------------------------------------------------------------- edits

Edit = Callable[[Stream, random.Random], Stream | None]
"""Returns a changed copy, or None if it found nothing to change."""

Join = Callable[[Operation, Operation], Operation | None]
"""Returns one operation for two, or None if they cannot be one."""


def _near(rng: random.Random) -> int:
    return rng.choice((-1, 1)) * min(60, 1 + int(rng.expovariate(0.25)))


def shifted(stream: Stream, rng: random.Random) -> Stream | None:
    """Move an instruction, or a window, to another place."""
    width = rng.choice((1, 1, 1, 2, 3, rng.randint(1, 12)))
    at = rng.randrange(len(stream))
    window, rest = stream[at : at + width], stream[:at] + stream[at + width :]
    to = min(max(0, at + _near(rng)), len(rest))
    return rest[:to] + window + rest[to:]


def swapped(stream: Stream, rng: random.Random) -> Stream | None:
    """Swap two instructions."""
    first, second = rng.randrange(len(stream)), rng.randrange(len(stream))
    found = [*stream]
    found[first], found[second] = found[second], found[first]
    return found


def split_anywhere(stream: Stream, rng: random.Random) -> Stream | None:
    """Split a LOAD, a STORE or a loop."""
    at = _any(stream, rng, (Load, Store, LoopInstruction))
    if at is None:
        return None
    i = stream[at].instruction
    if isinstance(i, LoopInstruction):
        count = i.iter_out if i.iter_out > 1 else i.iter_in
    else:
        count = i.y_size if i.y_size > 1 else i.x_size
    by = rng.choice((1, count // 2, count - 1, rng.randint(1, max(1, count - 1))))
    return split(stream, at, by)


def rows_split(stream: Stream, rng: random.Random) -> Stream | None:
    """Split the micro-ops of an instruction, or its inner loop."""
    at = _any(stream, rng, LoopInstruction)
    if at is None:
        return None
    one, i = stream[at], stream[at].instruction
    if i.iter_in > 1 and rng.random() < 0.5:
        k = rng.randint(1, i.iter_in - 1)
        second = rows_behind(one, "in", k)
        parts = [
            (replace(i, iter_in=k), one.micro_ops),
            (replace(i, iter_in=i.iter_in - k), second),
        ]
    elif len(one.micro_ops) > 1:
        k = rng.randint(1, len(one.micro_ops) - 1)
        halves = one.micro_ops[:k], one.micro_ops[k:]
        parts = [(replace(i, uop_end=len(rows)), rows.copy()) for rows in halves]
    else:
        return None
    made = [replace(one, instruction=part, micro_ops=rows) for part, rows in parts]
    return [*stream[:at], *made, *stream[at + 1 :]]


def _any(stream: Stream, rng: random.Random, kinds: Any) -> int | None:
    found = [n for n, o in enumerate(stream) if isinstance(o.instruction, kinds)]
    return rng.choice(found) if found else None


def _two_joined(
    stream: Stream, rng: random.Random, kinds: Any, reach: int, join: Join
) -> Stream | None:
    """Join any instruction of some kinds with the next one of its kind that it can be joined with.

    Within `reach` operations; the joined one stands at the place of either.
    """
    at = _any(stream, rng, kinds)
    if at is None:
        return None
    one = stream[at]
    for other in range(at + 1, min(len(stream), at + reach)):
        two = stream[other]
        if type(two.instruction) is not type(one.instruction):
            continue
        joined = join(one, two)
        if joined is not None:
            found = [*stream]
            keep, drop = (at, other) if rng.random() < 0.5 else (other, at)
            found[keep] = joined
            del found[drop]
            return found
    return None


def transfers_joined(stream: Stream, rng: random.Random) -> Stream | None:
    """Join a LOAD or STORE with a later one that goes on where it ends."""
    return _two_joined(stream, rng, (Load, Store), 40, _joined)


def _joined(one: Operation, two: Operation) -> Operation | None:
    a, b = one.instruction, two.instruction
    if (one.relocation, a.memory) != (two.relocation, b.memory) or getattr(a, "forward", 0):
        return None
    pads = a.y_pad_top, a.y_pad_bottom, a.x_pad_left, a.x_pad_right, b.y_pad_top, b.y_pad_bottom
    if any((*pads, b.x_pad_left, b.x_pad_right)) or a.sram_base + a.sram_size != b.sram_base:
        return None
    if a.y_size == b.y_size == 1 and a.dram_base + a.x_size == b.dram_base:
        size = a.x_size + b.x_size
        return replace(one, instruction=replace(a, x_size=size, x_stride=size))
    if a.x_size != b.x_size:
        return None
    stride = a.x_stride if a.y_size > 1 else b.dram_base - a.dram_base
    fits = b.dram_base == a.dram_base + a.y_size * stride and stride >= a.x_size
    if not fits or (b.y_size > 1 and b.x_stride != stride):
        return None
    joined = replace(a, y_size=a.y_size + b.y_size, x_stride=stride)
    return replace(one, instruction=joined)


def loops_joined(stream: Stream, rng: random.Random) -> Stream | None:
    """Join an instruction with a later one: as micro-ops of one, or as steps of a loop."""
    return _two_joined(stream, rng, LoopInstruction, 30, partial(_loops_together, rng=rng))


def _loops_together(one: Operation, two: Operation, rng: random.Random) -> Operation | None:
    a, b = one.instruction, two.instruction
    if replace(a, uop_end=0) == replace(b, uop_end=0) and rng.random() < 0.5:
        rows = np.concatenate([one.micro_ops, two.micro_ops])
        return replace(one, instruction=replace(a, uop_end=len(rows)), micro_ops=rows)
    for side in ("out", "in"):
        name = f"iter_{side}"
        count = getattr(a, name)
        if count == 1 and one.micro_ops.shape == two.micro_ops.shape:
            steps = (two.micro_ops - one.micro_ops)[0]
            if (steps >= 0).all() and (two.micro_ops == one.micro_ops + steps).all():
                factors = {f"dst_factor_{side}": int(steps[0]), f"src_factor_{side}": int(steps[1])}
                if isinstance(a, Gemm):
                    factors[f"wgt_factor_{side}"] = int(steps[2])
                if replace(a, **factors) == replace(b, **factors):
                    joined = replace(a, **factors, **{name: 2})
                    return replace(one, instruction=joined)
        if replace(a, **{name: 0}) != replace(b, **{name: 0}):
            continue
        if np.array_equal(two.micro_ops, rows_behind(one, side, count)):
            joined = replace(a, **{name: count + getattr(b, name)})
            return replace(one, instruction=joined)
    return None


def loops_swapped(stream: Stream, rng: random.Random) -> Stream | None:
    """Swap the loops of an instruction, or two of its micro-ops, or reverse these."""
    at = _any(stream, rng, LoopInstruction)
    if at is None:
        return None
    one, found = stream[at], [*stream]
    i, rows = one.instruction, one.micro_ops
    if len(rows) > 1 and rng.random() < 0.5:
        order = [*range(len(rows))]
        if rng.random() < 0.5:
            order.reverse()
        else:
            a, b = rng.sample(order, 2)
            order[a], order[b] = b, a
        found[at] = replace(one, micro_ops=rows[order].copy())
        return found
    names = [f.removesuffix("_out") for f in type(i).__dataclass_fields__ if f.endswith("_out")]
    values = {f"{n}_out": getattr(i, f"{n}_in") for n in names}
    values |= {f"{n}_in": getattr(i, f"{n}_out") for n in names}
    found[at] = replace(one, instruction=replace(i, **values))
    return found


def loops_unrolled(stream: Stream, rng: random.Random) -> Stream | None:
    """Turn a loop into micro-ops."""
    at = _any(stream, rng, LoopInstruction)
    if at is None:
        return None
    one, side = stream[at], rng.choice(("out", "in"))
    count = getattr(one.instruction, f"iter_{side}")
    if not 1 < count * len(one.micro_ops) <= 64:
        return None
    rows = np.concatenate([rows_behind(one, side, k) for k in range(count)])
    unrolled = replace(one.instruction, **{f"iter_{side}": 1}, uop_end=len(rows))
    unrolled = replace(one, instruction=unrolled, micro_ops=rows)
    return [*stream[:at], unrolled, *stream[at + 1 :]]


def renamed(stream: Stream, rng: random.Random) -> Stream | None:
    """Move what a LOAD fills, or what a reset begins, to another place of its scratchpad."""
    at = _any(stream, rng, (Load, Gemm, Alu, Pool))
    if at is None:
        return None
    one = stream[at]
    writes = [a for a in one.scratchpads if a.writes]
    if not writes:
        return None
    memory, region = writes[0].memory, writes[0].elements
    low, high = int(region.min()), int(region.max()) + 1
    delta = rng.choice((-1, 1)) * rng.choice((high - low, rng.randint(1, 64), 2 * (high - low)))
    if low + delta < 0:
        return None
    found = [*stream]
    for place in range(at, len(stream)):
        operation = stream[place]
        inside = [a for a in operation.scratchpads if a.memory == memory]
        own = [((a.elements >= low) & (a.elements < high)) for a in inside]
        if not any(part.any() for part in own):
            continue
        if place > at and isinstance(operation.instruction, Load):
            return found  # filled anew
        moved = _moved(operation, memory, delta, inside, own)
        if moved is None:
            return None
        found[place] = moved
    return found


def _moved(
    operation: Operation, memory: int, delta: int, inside: Any, own: Any
) -> Operation | None:
    i = operation.instruction
    if not all(part.all() for part in own):
        return None
    if isinstance(i, MemoryInstruction):
        if i.sram_base + delta < 0 or getattr(i, "forward", 0):
            return None
        return replace(operation, instruction=replace(i, sram_base=i.sram_base + delta))
    if not isinstance(i, LoopInstruction):
        return None
    columns = {Memory.ACC: [0, 1] if isinstance(i, Alu) else [0], Memory.INP: [1], Memory.WGT: [2]}
    rows = operation.micro_ops.copy()
    rows[:, columns.get(Memory(memory), [])] += delta
    return replace(operation, micro_ops=rows) if rows.min() >= 0 else None


def left_out(stream: Stream, rng: random.Random) -> Stream | None:
    """Leave an instruction out."""
    return dropped(stream, rng.randrange(len(stream)), 0)


EDITS: Sequence[tuple[Edit, int]] = (
    (shifted, 10), (swapped, 1), (split_anywhere, 5), (transfers_joined, 3), (rows_split, 2),
    (loops_joined, 3), (loops_swapped, 3), (loops_unrolled, 1), (renamed, 3),
    (left_out, 1),
)  # fmt: skip


def varied(stream: Stream, rng: random.Random) -> Stream | None:
    """Apply one to three edits."""
    edits, weights = zip(*EDITS, strict=True)
    for edit in rng.choices(edits, weights, k=rng.choice((1, 1, 1, 2, 2, 3))):
        found = edit(stream, rng)
        if not found:
            return None
        stream = found
    return stream


# -------------------------------------------------------------------------------- climbing


def best_tiling(judge: Judge) -> tuple[int, Program]:
    """Return the fewest cycles of the best tilings by the estimate, and their program."""
    task = judge.task
    best = task.cycles, task.compiled
    if isinstance(task.definition, Operator):
        own = task.definition
        listed = TilingList(own, task.config)
        for tiling in listed.of_each_size(task.config, TILINGS):
            verdict = judge(tiling)
            if verdict.accepted and verdict.cycles < best[0]:
                best = verdict.cycles, program_of_answer(judge.task, tiling)
    return best


def climb(judge: Judge, start: Program, seconds: float, seed: int, tell: Any) -> dict[str, int]:
    """Climb from a program; `tell` is called with each new best one."""
    rng = random.Random(seed)
    current = operations_of(start)
    begun = program_of(current, start)
    best = start.cycles()
    now = begun.cycles() if begun is not None and judge(begun).accepted else None
    counts = {"timed": 0, "judged": 0, "proven": 0}
    if now is None:
        return counts
    if now < best:
        best = now
        tell(begun, best)
    end = time.monotonic() + seconds
    kept, kept_cycles = current, now
    while time.monotonic() < end:
        if rng.random() < 0.0005:
            current, now = kept, kept_cycles
        stream = varied(current, rng)
        program = program_of(stream, start) if stream else None
        if program is None:
            continue
        counts["timed"] += 1
        try:
            cycles = program.cycles()
        except VTAError:
            continue
        worse = rng.expovariate(1) * 0.002 * best if rng.random() < 0.02 else 0
        if cycles > now + worse:
            continue
        counts["judged"] += 1
        if not judge(program).accepted:
            continue
        counts["proven"] += 1
        current, now = stream, cycles
        if cycles < kept_cycles:
            kept, kept_cycles = stream, cycles
        if cycles < best:
            best = cycles
            tell(program, cycles)
    return counts


def trial(case: str) -> Result:
    """Climb on a task for `SECONDS`, from the best that is known: ``tiny/gemm/7``."""
    name, _, seed = case.rpartition("/")
    judge = Judge(name)
    judge(judge.task.compiled)
    tiled, start = best_tiling(judge)
    place, best = FOLDER / f"{name.replace('/', '_')}.txt", tiled
    if place.exists():
        known = judge(place.read_text())
        if known.accepted and known.cycles < best:
            best = known.cycles
            start = assemble(place.read_text(), judge.task.config, judge.task.buffers)
    reached = [best]

    def tell(program: Program, cycles: int) -> None:
        reached.append(cycles)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(program.disassemble())

    counts = climb(judge, start, SECONDS, int(seed), tell)
    return result(case, compiler=judge.task.cycles, tiling=tiled, stream=reached[-1], **counts)


CAMPAIGN = Campaign(
    lambda count: [f"{name}/{seed}" for seed in range(count) for name in task_names()],
    trial,
    count=1,
)
