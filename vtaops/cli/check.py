"""The judge of the exercises of the course: what is wrong with one, and what would help.

An exercise is a Python file, or the notebook that Jupyter makes of it, with an operator ``TASK``, a
function ``program`` that returns a Program, and ``LIMITS`` for its figures. This file owns the
order of the questions and the explanations.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vtaops.base import errors
from vtaops.base.files import read_file
from vtaops.cli.run import called
from vtaops.machine.config import HardwareConfig
from vtaops.ops.base import Operator
from vtaops.program import Buffer, Program
from vtaops.program.timing import WAITS

if TYPE_CHECKING:
    from vtaops.explore.judge import KernelTask, Verdict

RULES = {
    "race": "the first of the two must push a token that the other one pops, directly or through "
    "others",
    "token-order": "an earlier instruction of the other unit must push this token",
    "token-balance": "the instruction that waits for this one must pop the token",
    "completion": "FINISH must pop a token that the last STORE pushes",
    "undefined-sram": "a LOAD or a reset before it must write this element",
    "stale-output": "STORE reads the last result of GEMM or ALU; a reset or a load came in between",
    "incomplete-output": "count the tiles that the STOREs write",
    "sram-bounds": "the element is start + factors * iterations: which factor is too large?",
    "dram-bounds": "the last row starts at start + (rows - 1) * stride: which is too large?",
}
"""Advice for rules of the verifier; the other rules need none."""

TOO_MUCH = {
    "inp_load_nbytes": "inputs are read again for each block of output channels: larger blocks read"
    " them less often, and so does keeping inputs while the weights change",
    "wgt_load_nbytes": "weights are read again for each tile of the image: taller or wider tiles "
    "read them less often",
    "uop_load_nbytes": "the loops of an instruction repeat few micro-ops with other indices",
    "instructions": "an instruction has two loops around its micro-ops: use them",
    "alu_counter": "each stage of the vector ALU is a pass over all results: leave some out, or "
    "take hardware whose extension post does them on the way out",
    "gemm_counter": "products are repeated, or tiles overhang the operator",
}
"""Advice for figures beyond their limits."""

WAITING = {
    "load token": "the loads are not hidden: with two virtual threads (oc_threads=2, h_threads=2, "
    "vta.vthread), or places for two tiles (Capacity), the next tile is loaded meanwhile",
    "compute token": "scratchpads are freed late: smaller loads, or two places for each tile",
    "store token": "stores are not hidden: two places for accumulators",
}
"""Advice for stalls of the compute unit."""


class Finding(NamedTuple):
    """Answer to one question about an exercise, with advice if it is not good enough."""

    question: str
    answer: str
    advice: str = ""


def judged(
    exercise: Path, against: Path | None = None, seconds: float = 60
) -> tuple[list[Finding], str]:
    """Return the findings about an exercise, and what it printed.

    The exercise runs in a process of its own and leaves a program; what counts is judged here.
    The findings stop when the rest would be meaningless.

    Parameters
    ----------
    exercise : Path
        The file.
    against : Path, optional
        The file whose TASK, LIMITS and CONFIG count; by default `exercise`.
    seconds : float
        The time limit of the exercise.
    """
    from vtaops.explore.judge.confined import run_exercise

    try:
        asked = _asked(against or exercise)
        outcome = run_exercise(_source(exercise), str(exercise), seconds)
    except errors.VTAError as error:
        return [Finding("exercise", type(error).__name__, str(error))], ""
    if outcome.program is None:
        failed = Finding("builds", outcome.error or "Error", outcome.text or "it left no program")
        unsafe = outcome.error == errors.VerificationError.__name__
        return [_unsafe(outcome.text) if unsafe else failed], outcome.output
    findings: list[Finding] = []
    try:
        findings.extend(_judgement(outcome.program, *asked))
    except Exception as error:
        findings.append(Finding("judged", "no", f"{type(error).__name__}: {error}"))
    return findings, outcome.output


def _unsafe(text: str) -> Finding:
    rule = text.partition("breaks the rule '")[2].partition("'")[0]
    return Finding("safe", text, RULES.get(rule, "no device promises what then happens"))


def _judgement(
    program: Program, task: Operator, limits: Mapping[str, int], config: HardwareConfig
) -> Iterator[Finding]:
    """Yield the findings about a program."""
    from vtaops.explore.judge import Judge, KernelTask
    from vtaops.proof.counterexamples import TRIES, Examples

    own = replace(program.config, extensions=config.extensions)
    if config != (own if "extensions" in limits else program.config):
        reason = f"{config.name} is asked for, with its extensions unless LIMITS has 'extensions'"
        yield Finding("hardware", f"another configuration, {program.config.name}", reason)
        return
    kernel = KernelTask("the exercise", program.config, task)
    verdict = Judge(kernel)(program)
    if verdict.failed == "parsed":
        yield Finding("builds", "no program of the task", verdict.reason)
    elif verdict.failed == "verified":
        yield _unsafe(verdict.reason)
    elif verdict.failed:
        answer = f"it does not compute what it declares: {verdict.reason}"
        yield Finding("right", answer, _told_apart(kernel, program, verdict.counterexample))
    elif repacked := _repacked(kernel, program):
        answer = f"its {repacked.name} is packed into DRAM in another way than that of the task"
        small_first = 2, *range(TRIES)
        shown = Examples(kernel.obligation(kernel.compiled), 0).difference(program, small_first)
        yield Finding("right", answer, _told_apart(kernel, program, shown.arrays if shown else {}))
    else:
        yield Finding("safe", "no race, no deadlock, no access out of bounds")
        yield Finding("right", f"{type(task).__name__}: {verdict.reason}")
        yield from _within(program, limits, verdict)


def _repacked(kernel: KernelTask, program: Program) -> Buffer | None:
    """Return an argument that is that of the task, but lies in DRAM in another way."""
    pairs = zip(program.arguments, kernel.compiled.arguments, strict=True)
    return next((b for b, own in pairs if b.shape == own.shape and b.layout != own.layout), None)


def _source(exercise: Path) -> str:
    """Return the text of an exercise; of a notebook that of its cells."""
    wrong = OSError, ValueError, LookupError, TypeError, RecursionError
    with errors.raising(errors.ProgramError, f"cannot read {exercise}", *wrong):
        text = read_file(exercise).decode()
        if exercise.suffix == ".ipynb":
            cells = [c["source"] for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
            lines = "\n".join("".join(cell) for cell in cells).splitlines()
            text = "\n".join(line for line in lines if not line.startswith(("!", "%")))
            text.encode()  # fails on half a surrogate pair, which JSON allows
        return text


def _asked(path: Path) -> tuple[Operator, Mapping[str, int], HardwareConfig]:
    """Read TASK, LIMITS and CONFIG from an exercise without executing it."""
    wrong = ValueError, TypeError, SyntaxError, RecursionError, MemoryError
    with errors.raising(errors.ProgramError, f"cannot read {path}", *wrong):
        given = {
            target.id: statement.value
            for statement in ast.parse(_source(path)).body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name)
        }
        if missing := {"TASK", "LIMITS"} - given.keys():
            missed = ", ".join(sorted(missing))
            raise errors.ProgramError(f"{path} is not an exercise: it lacks {missed}")
        task = (
            f"TASK is {ast.unparse(given['TASK'])}; it must be an operator such as "
            "vtaops.Gemm(m=1, n=16, k=16), because it is read, not executed"
        )
        with errors.raising(errors.ProgramError, task, *wrong):
            kind, values = called(given["TASK"])
        limits = ast.literal_eval(given["LIMITS"])
        config = ast.literal_eval(given["CONFIG"]) if "CONFIG" in given else "pynq"
    if not isinstance(limits, dict) or not all(type(n) is int for n in limits.values()):
        raise errors.ProgramError(f"LIMITS is {limits!r}; it must map figures to whole numbers")
    return kind(**values), limits, HardwareConfig.of(config)


def _told_apart(kernel: KernelTask, program: Program, given: Mapping[str, Any]) -> str:
    """Explain what a refuted program computes instead, using its counterexample."""
    from vtaops.explore.judge.answers import imposed
    from vtaops.ops.reference import evaluate

    task, arrays = kernel.definition, [*given.values()]
    if not arrays or not isinstance(task, Operator):
        return "Its terms differ from those of the definition"
    shapes = [[b.shape for b in p.arguments] for p in (program, kernel.compiled)]
    own = program if shapes[0] == shapes[1] else imposed(kernel, program)
    result = np.asarray(own.run("fsim", *arrays))
    wanted = evaluate(task, arrays)
    wrong = np.argwhere(result != wanted)
    at = tuple(wrong[0].tolist())
    text = (
        f"for these inputs {len(wrong):,} of {wanted.size:,} values differ; the first, at "
        f"{list(at)}, is {result[at]} and should be {wanted[at]}"
    )
    for changed in _variants(task):
        if np.array_equal(result, evaluate(replace(task, **changed), arrays)):
            instead = " and ".join(
                f"{name}={value!r} instead of {getattr(task, name)!r}"
                for name, value in changed.items()
            )
            return f"{text}. They are those of {instead}"
    return text


def _variants(task: Any) -> Iterator[Mapping[str, Any]]:
    """Yield other values of commonly confused parameters, fewest changes first."""
    clips = None, (0, 127), (-128, 127), (-127, 127)
    choices = {"shift": range(32), "clip": clips, "rounding": ("truncate", "half_up")}
    known = {f.name: choices[f.name] for f in fields(task) if f.name in choices}
    changes = (
        {n: v for n, v in zip(known, values, strict=True) if v != getattr(task, n)}
        for values in product(*known.values())
    )
    yield from sorted(filter(None, changes), key=len)


def _within(program: Program, limits: Mapping[str, int], verdict: Verdict) -> Iterator[Finding]:
    """Yield figures with their limits, and cycles also with the lower bound."""
    counted = {"instructions": len(program), "extensions": len(program.config.extensions)}
    figures = {**program.stats().as_dict(), **counted, "cycles": verdict.cycles}
    if unknown := limits.keys() - figures:
        known = ", ".join(figures)
        raise errors.ProgramError(f"LIMITS has {', '.join(unknown)}; there are {known}")
    for name, limit in limits.items():
        value, more = figures[name], ""
        if name == "cycles":
            least = verdict.bound
            more = f"; {value / least:.2f} times the bound, {least:,}, of the array and the port"
        advice = _slow(program) if more else TOO_MUCH.get(name, f"use fewer {name}")
        yield Finding(name, f"{value:,}, at most {limit:,}{more}", advice if value > limit else "")


def _slow(program: Program) -> str:
    """Return the largest share of the compute unit's cycles that is not products."""
    unit = program.timeline().units["compute"]
    spent = {name: n for name, n in (unit.busy | unit.waiting).items() if name != "gemm"}
    name = max(spent, key=spent.__getitem__)
    what = f"waiting ({WAITS[name]})" if name in WAITS else f"work of the kind {name}"
    hints = {**WAITING, "alu": TOO_MUCH["alu_counter"]}
    share = f"the compute unit spends {spent[name] / program.cycles():.0%} of its cycles on {what}"
    return f"{share}; {hints.get(name, 'vtaops report program shows when')}"
