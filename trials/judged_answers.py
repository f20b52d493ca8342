"""Answers for the judge: hostile ones by twenty strategies, of which none may pass; and right ones.

A hostile answer differs from the task for some input, or is unsafe, or is no answer at all, and is
made to look right: on zeros, on samples, in its records, in what it prints. A right one is a tiling
that fits, a schedule in Python or a stream: the compiler's in another order, in other places, with
other loops.

A strategy cannot know whether what it changes matters; of what is accepted, the NumPy reference
beside fsim decides on many inputs.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import cache

import numpy as np

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops.base.errors import VTAError
from vtaops.explore.judge import Judge, Schedule, task_names
from vtaops.explore.judge.answers import Answer
from vtaops.explore.judge.answers import program_of as answered
from vtaops.explore.judge.streams import EDITS, Stream, operations_of, program_of
from vtaops.machine.alu import AluOp
from vtaops.machine.isa import (
    Alu,
    Encoding,
    Gemm,
    Load,
    LoopInstruction,
    MemoryInstruction,
    Post,
    Store,
)
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.program import Program, Role
from vtaops.proof.counterexamples import Examples, draw
from vtaops.runtime import open_device
from vtaops.schedule.candidates import TilingList

TASKS = [name for name in task_names() if "resnet18" not in name]
"""Large tasks differ in size only."""


@cache
def judge(name: str) -> Judge:
    """Return the judge of a task, which has accepted the compiler's answer."""
    found = Judge(name)
    assert found(found.task.compiled).accepted
    return found


# ---------------------------------------------------------------------------------- hostile

Strategy = Callable[[Judge, random.Random], Answer | None]
"""Makes a hostile answer; None if the task has nothing that it could attack."""


def _edited(program: Program, rng: random.Random, kinds: object, change: object) -> Program | None:
    """Change one decoded instruction of some kinds; `change` returns the new one, or None."""
    decoded = program.decode()
    places = [n for n, i in enumerate(decoded) if isinstance(i, kinds)]  # type: ignore[arg-type]
    rng.shuffle(places)
    for place in places:
        changed = change(decoded[place])  # type: ignore[operator]
        if changed is not None:
            decoded[place] = changed
            try:
                words = Encoding.of(program.config).encode_all(decoded)
            except VTAError:
                return None
            return replace(program, instructions=words)
    return None


def work_skipped(judge: Judge, rng: random.Random) -> Answer | None:
    """Fewer iterations of a product: cycles that are not spent."""

    def fewer(i: Gemm) -> Gemm | None:
        if i.reset:
            return None
        for name in rng.sample(["iter_out", "iter_in"], 2):
            if getattr(i, name) > 1:
                return replace(i, **{name: getattr(i, name) - 1})
        return None

    return _edited(judge.task.compiled, rng, Gemm, fewer)


def epilogue_skipped(judge: Judge, rng: random.Random) -> Answer | None:
    """An ALU operation does nothing: right wherever it would change nothing."""

    def nothing(i: Alu) -> Alu | None:
        if not i.use_imm or (i.alu_op, i.imm) == (AluOp.ADD, 0):
            return None
        return replace(i, alu_op=AluOp.ADD, imm=0)

    return _edited(judge.task.compiled, rng, Alu, nothing)


def another_buffer(judge: Judge, rng: random.Random) -> Answer | None:
    """A LOAD reads another buffer of the task."""
    program = judge.task.compiled
    loads = [n for n, i in enumerate(program.decode()) if isinstance(i, Load)]
    places = [n for n in loads if program.relocations[n] >= 0]
    if not places or len(program.buffers) < 2:
        return None
    relocations, place = program.relocations.copy(), rng.choice(places)
    others = [n for n in range(len(program.buffers)) if n != relocations[place]]
    relocations[place] = rng.choice(others)
    return replace(program, relocations=relocations)


def another_place(judge: Judge, rng: random.Random) -> Answer | None:
    """A LOAD or a STORE touches what lies beside its data."""

    def beside(i: MemoryInstruction) -> MemoryInstruction | None:
        return None if i.is_nop else replace(i, dram_base=i.dram_base + rng.choice((1, 2, 16)))

    return _edited(judge.task.compiled, rng, (Load, Store), beside)


def overlapping(judge: Judge, rng: random.Random) -> Answer | None:
    """A LOAD writes to places that hold something that is still needed."""

    def over(i: Load) -> Load | None:
        far = [d for d in (-2, -1, 1, 2) if i.sram_base + d >= 0]
        return None if i.is_nop else replace(i, sram_base=i.sram_base + rng.choice(far))

    return _edited(judge.task.compiled, rng, Load, over)


def races(judge: Judge, rng: random.Random) -> Answer | None:
    """A token is missing: on most devices, on most days, the order is right anyway."""

    def silent(i: LoopInstruction | MemoryInstruction) -> object:
        flags = [n for n in ("pop_prev", "pop_next", "push_prev", "push_next") if getattr(i, n)]
        return replace(i, **{rng.choice(flags): 0}) if flags else None

    return _edited(judge.task.compiled, rng, (LoopInstruction, Load, Store), silent)


def swapped_tokens(judge: Judge, rng: random.Random) -> Answer | None:
    """Two instructions send each other's tokens: the counts are right, the order is not."""
    decoded = judge.task.compiled.decode()
    senders = [n for n, i in enumerate(decoded) if i.push_next]
    silent = [n for n, i in enumerate(decoded) if not i.push_next and n < max(senders, default=0)]
    same = [(a, b) for a in senders for b in silent if decoded[a].unit is decoded[b].unit and b < a]
    if not same:
        return None
    a, b = rng.choice(same)
    decoded[a], decoded[b] = replace(decoded[a], push_next=0), replace(decoded[b], push_next=1)
    words = Encoding.of(judge.task.config).encode_all(decoded)
    return replace(judge.task.compiled, instructions=words)


def kept_results(judge: Judge, rng: random.Random) -> Answer | None:
    """It reads what an earlier run left: of the accumulators, or in the result's buffer."""

    def kept(i: Gemm) -> Gemm | None:
        return replace(i, uop_end=i.uop_begin, reset=1) if i.reset else None

    found = _edited(judge.task.compiled, rng, Gemm, kept)
    if found is None or rng.random() < 0.5:
        program = judge.task.compiled
        output = next(n for n, b in enumerate(program.buffers) if b.role is Role.OUTPUT)
        loads = [n for n, i in enumerate(program.decode()) if isinstance(i, Load) and not i.is_nop]
        relocations, place = program.relocations.copy(), rng.choice(loads)
        relocations[place] = output
        return replace(program, relocations=relocations)
    return found


def right_on_zeros(judge: Judge, rng: random.Random) -> Answer | None:
    """It computes nothing: it stores the accumulators after a reset."""
    decoded = judge.task.compiled.decode()
    products = [n for n, i in enumerate(decoded) if isinstance(i, Gemm) and not i.reset]
    if not products:
        return None
    for place in products:
        decoded[place] = replace(decoded[place], reset=1, overwrite=0)
    words = Encoding.of(judge.task.config).encode_all(decoded)
    return replace(judge.task.compiled, instructions=words)


def right_on_samples(judge: Judge, rng: random.Random) -> Answer | None:
    """A bound or an immediate is off by little: right for nearly all inputs."""

    def near(i: Alu) -> Alu | None:
        if not i.use_imm:
            return None
        step = rng.choice((-1, 1))
        return replace(i, imm=i.imm + step) if abs(i.imm + step) < 1 << 15 else None

    return _edited(judge.task.compiled, rng, Alu, near)


def rare_bounds(judge: Judge, rng: random.Random) -> Answer | None:
    """A clamp before the last shift: right but for sums that samples hardly reach."""
    program = judge.task.compiled
    stream = operations_of(program)
    shifts = [n for n, o in enumerate(stream) if isinstance(o.instruction, Alu)
              and o.instruction.alu_op == AluOp.SHR]  # fmt: skip
    if not shifts:
        return None
    at = rng.choice(shifts)
    op, bound = rng.choice(((AluOp.MIN, rng.randint(3, 900)), (AluOp.MAX, rng.randint(-900, -3))))
    clamp = replace(stream[at].instruction, alu_op=op, use_imm=1, imm=bound)
    stream.insert(at, replace(stream[at], instruction=clamp))
    return program_of(stream, program)


def wrong_micro_op(judge: Judge, rng: random.Random) -> Answer | None:
    """A micro-op reads or writes another tile."""
    encoding, program = Encoding.of(judge.task.config), judge.task.compiled
    table = encoding.decode_micro_ops(program.micro_ops)
    table[rng.randrange(len(table)), rng.randrange(3)] += rng.choice((1, 2, 4))
    try:
        return replace(program, micro_ops=encoding.encode_micro_ops(table))
    except VTAError:
        return None


def own_definition(judge: Judge, rng: random.Random) -> Answer | None:
    """A right, proven and certified program, of another operator with the same arguments."""
    op = judge.task.definition
    if not isinstance(op, Operator):
        return None
    changes = {
        "shift": lambda: op.shift + rng.choice((-1, 1, 2)),
        "clip": lambda: rng.choice([(-128, 126), (-7, 127), (0, 100), (-127, 127)]),
        "rounding": lambda: "half_up" if op.rounding == "truncate" else "truncate",
        "dilation": lambda: 1,
    }
    name = rng.choice([name for name in changes if hasattr(op, name)] or [""])
    try:
        other = replace(op, **{name: changes[name]()}) if name else None
        if other is None or other == op:
            return None
        return vtaops.compile(other, judge.task.config)
    except VTAError:
        return None


def own_records(judge: Judge, rng: random.Random) -> Answer | None:
    """A wrong program with the record and the certificate of a right one."""
    wrong = rng.choice([work_skipped, right_on_samples, wrong_micro_op])(judge, rng)
    op = judge.task.definition
    if wrong is None or not isinstance(op, Operator):
        return None
    right = vtaops.compile(op, judge.task.config, prove=True)
    return replace(wrong, metadata={**right.metadata, "accepted": True}, operators=right.operators)


def own_buffers(judge: Judge, rng: random.Random) -> Answer | None:
    """Buffers that say something else: a role, a layout, constants of its own."""
    text = judge.task.compiled.disassemble()
    buffer = rng.choice([b for b in judge.task.buffers if b.role is not Role.OUTPUT])
    line = next(x for x in text.splitlines() if x.startswith(f"  {buffer.name} "))
    changed = rng.choice([
        line.replace(buffer.role.value, "output"),
        line.replace(buffer.role.value, "scratch"),
        re.sub(r"(\d+)x(\d+)", lambda m: f"{m[2]}x{m[1]}0", line, count=1),
        line.replace(buffer.name, buffer.name + "_", 1),
        line.replace(buffer.layout.text, "L1l"),
    ])  # fmt: skip
    return text.replace(line, changed) if changed != line else None


def own_configuration(judge: Judge, rng: random.Random) -> Answer | None:
    """The same work on hardware that is larger, or has another extension."""
    others = [name for name in vtaops.HardwareConfig.names() if name != judge.task.config.name]
    op, config = judge.task.definition, rng.choice(others)
    other = vtaops.HardwareConfig.load(config)
    if not isinstance(op, Operator) or other.fingerprint == judge.task.config.fingerprint:
        return None
    try:
        return vtaops.compile(op, config, verify=False, prove=False)
    except VTAError:
        return None


def broken_text(judge: Judge, rng: random.Random) -> Answer | None:
    """A text whose words are dropped, doubled or mixed."""
    words = re.split(r"(\s+)", judge.task.compiled.disassemble())
    for _ in range(rng.choice((2, 4, 8))):
        words[rng.randrange(len(words))] = rng.choice(("", "-1", "99999", "x", rng.choice(words)))
    return "".join(words)


def bombs(judge: Judge, rng: random.Random) -> Answer | None:
    """It is huge: many instructions, iterations, micro-ops or digits."""
    text = judge.task.compiled.disassemble()
    return rng.choice([
        text.replace("instructions\n", "instructions\n" + "FINISH\n" * rng.choice((1, 20_000)), 1),
        re.sub(r"loops \d+x\d+", f"loops {rng.randint(9000, 16383)}x16383", text),
        text + "9..99999999 0 0 0\n",
        text.replace("sram 0", "sram " + "9" * rng.choice((6, 17, 400)), 1),
        "(" * 100_000,
        "program for x (" + "{" * 100_000,
        "\x00" * rng.randint(1, 9),
    ])  # fmt: skip


SOURCES = (
    "def program(): print('accepted'); return {task!r}",
    "import os\nos._exit(0)",
    "import os\nos.fork()\ndef program(): return 'accepted'",
    "import sys\nsys.exit('accepted')",
    "import vtaops.proof.prover as p\np.proven = lambda *a, **k: None\n"
    "def program(): raise SystemExit",
    "import vtaops.explore.judge as j\nj.Judge.__call__ = lambda *a, **k: True\n"
    "def program(): return j.find_task({task!r})",
    "import pathlib\ndef program(): return pathlib.Path('/proc/self/environ').read_text()",
    "import os, pathlib\nfor p in pathlib.Path('/proc').glob('[0-9]*/mem'):\n"
    "    try: open(p, 'r+b').write(b'accepted')\n    except OSError: pass\n"
    "def program(): return None",
    "import sys, pathlib\nfolder = pathlib.Path(sys.argv[2])\n"
    "(folder / 'program.vta').write_bytes(b'VTAPROG\\0' + bytes({number}))\nimport os\nos._exit(0)",
    "import sys, pathlib, os\nfolder = pathlib.Path(sys.argv[2])\n"
    "os.symlink('/etc/passwd', folder / 'program.vta')\nos._exit(0)",
    "class Program: pass\ndef program(): return Program()",
    "import builtins\nbuiltins.isinstance = lambda *a: True\ndef program(): return 'accepted'",
    "def program():\n    raise SystemError('accepted')",
    "import vtaops\nfrom dataclasses import replace\nfrom vtaops.explore.judge import find_task\n"
    "def program():\n    p = find_task({task!r}).compiled\n"
    "    return replace(p, instructions=p.instructions[{number}:], "
    "relocations=p.relocations[{number}:])",
)


def source(judge: Judge, rng: random.Random) -> Answer | None:
    """Source that prints, exits, forks, patches, or reads and writes what the judge has."""
    text = rng.choice(SOURCES).replace("{task!r}", repr(judge.task.name))
    return Schedule(text.replace("{number}", str(rng.randint(1, 9))), seconds=20)


def false_tilings(judge: Judge, rng: random.Random) -> Answer | None:
    """Tilings that fit nowhere, or JSON that is none."""
    from vtaops.explore.judge.answers import tiling_of

    values = {n: rng.choice((0, -1, 7, 1 << 40, "16", None, 3.5)) for n in ("oc", "ic", "h", "w")}
    try:
        return tiling_of(json.dumps(values))
    except VTAError:
        return json.dumps(values)  # refused where it is read; as a stream it is none either


STRATEGIES: dict[str, Strategy] = {
    f.__name__: f
    for f in (work_skipped, epilogue_skipped, another_buffer, another_place, overlapping, races,
              swapped_tokens, kept_results, right_on_zeros, right_on_samples, rare_bounds,
              wrong_micro_op, own_definition, own_records, own_buffers, own_configuration,
              broken_text, bombs, source, false_tilings)
}  # fmt: skip


def hostile(strategy: str, number: int) -> tuple[str, Answer]:
    """Return a task and a hostile answer to it."""
    rng = random.Random(f"{strategy} {number}")
    while True:
        name = rng.choice(TASKS)
        answer = STRATEGIES[strategy](judge(name), rng)
        if answer is not None and not _same(judge(name), answer):
            return name, answer


def _same(judge: Judge, answer: Answer) -> bool:
    """Whether an answer is the compiler's own."""
    compiled = judge.task.compiled
    if not isinstance(answer, Program):
        return answer == compiled.disassemble()
    return all(
        np.array_equal(getattr(answer, part), getattr(compiled, part))
        for part in ("instructions", "relocations", "micro_ops")
    )


def is_right(name: str, answer: Answer, count: int = 40) -> bool:
    """Whether an answer gives the results of the NumPy reference on many inputs.

    A strategy changes a program without knowing whether that matters: a bound that a later clip
    hides, a tile of zeros that moved. What the judge accepts of such changes must be right.
    """
    task = judge(name).task
    program = answered(task, answer)
    if not isinstance(task.definition, Operator):
        return Examples(task.obligation(program), 61).difference(program, range(count)) is None
    with closing(open_device("fsim", program.config)) as device:
        for number in range(count):
            rng = np.random.default_rng([61, number])
            given = [draw(b, number, rng) for b in program.inputs]
            if not np.array_equal(program.run(device, *given), evaluate(task.definition, given)):
                return False
    return True


# ------------------------------------------------------------------------------------ right


def right_tiling(judge: Judge, rng: random.Random) -> Answer | None:
    """A tiling that fits, good or bad."""
    task = judge.task
    if not isinstance(task.definition, Operator):
        return None
    listed = TilingList(task.definition, task.config)
    return rng.choice(listed.of_each_size(task.config, 40))


def right_schedule(judge: Judge, rng: random.Random) -> Answer | None:
    """Source that compiles a tiling."""
    tiling = right_tiling(judge, rng)
    if tiling is None:
        return None
    return Schedule(
        "import vtaops\nfrom vtaops import *\n"
        f"def program():\n    return vtaops.compile({judge.task.definition!r}, "
        f"{judge.task.config.name!r}, vtaops.Tiling(**{asdict(tiling)!r}), prove=False)\n"
    )


def right_stream(judge: Judge, rng: random.Random) -> Answer | None:
    """The text of a stream in another order or with other loops, whose dependences hold."""
    program = judge.task.compiled
    stream = operations_of(program)
    for _ in range(rng.randint(1, 12)):
        edit = EDITS[rng.choice(("split", "move"))]
        at, by = rng.randrange(len(stream)), rng.choice((-2, -1, 1, 2, 3))
        if edit is EDITS["move"]:
            edited = _moved_past_strangers(stream, at, by)
        else:
            edited = edit(stream, at, by)
        if edited:
            stream = edited
    found = program_of(stream, program)
    return None if found is None else found.disassemble()


def _moved_past_strangers(stream: Stream, at: int, by: int) -> Stream | None:
    """Move an operation by one place if its neighbour touches nothing that it touches."""
    other = at + (1 if by > 0 else -1)
    if not 0 <= other < len(stream):
        return None
    pair = stream[at], stream[other]
    if any(isinstance(o.instruction, Post) or o.relocation in _written(stream) for o in pair):
        return None
    touched = [[(a.memory, a.writes, {*a.elements.tolist()}) for a in o.scratchpads] for o in pair]
    for memory, writes, elements in touched[0]:
        for other_memory, others_write, others in touched[1]:
            if memory == other_memory and (writes or others_write) and elements & others:
                return None
    return EDITS["move"](stream, at, other - at)


def _written(stream: Stream) -> set[int]:
    """Buffers that are stored to, whose order with LOADs matters."""
    return {o.relocation for o in stream if isinstance(o.instruction, Store)}


RIGHT: dict[str, Strategy] = {f.__name__: f for f in (right_tiling, right_schedule, right_stream)}


def right(kind: str, number: int) -> tuple[str, Answer]:
    """Return a task and a right answer of a kind."""
    rng = random.Random(f"{kind} {number}")
    while True:
        name = rng.choice(TASKS)
        answer = RIGHT[kind](judge(name), rng)
        if answer is not None:
            return name, answer


# --------------------------------------------------------------------------------- campaign

PORTION, SCHEDULES = 50, 10
"""Answers of a case; of schedules, each of which needs seconds."""


def cases(count: int) -> list[str]:
    """Return portions of all strategies and kinds, so many of each."""
    return [f"{name}/{n}" for n in range(count) for name in (*RIGHT, *STRATEGIES)]


def trial(case: str) -> Result:
    """Judge a portion of answers: right ones are accepted, and hostile ones only if right."""
    name, _, portion = case.partition("/")
    counts, failed = dict.fromkeys(("answers", "accepted", "unchanged"), 0), []
    size = SCHEDULES if name == "right_schedule" else PORTION
    for number in range(size * int(portion), size * int(portion) + size):
        fault = judged(name, number, counts)
        if fault:
            failed.append(f"{name} {number}: {fault}")
    return result(name, failed, **counts)


def judged(name: str, number: int, counts: dict[str, int]) -> str:
    """Judge one answer; return what is wrong with the verdict, or nothing."""
    task, answer = (right if name in RIGHT else hostile)(name, number)
    verdict = judge(task)(answer)
    counts["answers"] += 1
    if name in RIGHT:
        counts["accepted"] += verdict.accepted
        return "" if verdict.accepted else f"a right answer is refused: {verdict}"
    if verdict.accepted and is_right(task, answer):
        counts["unchanged"] += 1  # what it changed has no effect
        return ""
    counts["accepted"] += verdict.accepted
    return f"a hostile answer is accepted: {verdict}" if verdict.accepted else ""


CAMPAIGN = Campaign(cases, trial, count=10)
