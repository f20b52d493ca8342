"""Verdicts: what an answer is worth, decided by proof.

The questions are asked in order, and the first *no* ends them: is it a program for this task
(*parsed*), is it safe on every device (*verified*), does it compute the task for every input
(*proven*), and in how many cycles, which the timing model knows exactly.

An answer is proven if its form is that of a program that was proven before
(`vtaops.proof.congruence`): most candidates of a search differ in order and places only. Otherwise
it runs on a few inputs, which refute most wrong ones, and then `vtaops.proof` decides.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

from vtaops.base.errors import ProgramError, VTAError
from vtaops.base.heap import collection_paused, keep_freed_memory
from vtaops.base.shapes import Array
from vtaops.explore.judge.answers import Answer, kind_of, program_of
from vtaops.explore.judge.tasks import KernelTask, find_task
from vtaops.program import Program
from vtaops.proof.congruence import Forms
from vtaops.proof.counterexamples import Examples
from vtaops.proof.prover import proven
from vtaops.runtime import LoadedProgram
from vtaops.runtime.tsim import Tsim

Stage = Literal["parsed", "verified", "proven", ""]
SAMPLES = range(3)
"""The inputs that an answer runs on before it is proven."""
LIMITS = {"instructions": (16, 1 << 10), "executions": (16, 1 << 20), "bytes moved": (16, 1 << 20)}
"""An answer may have so many times what the compiler's has, and so many more."""
KEPT = 1 << 8
"""Verdicts that a judge keeps."""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one answer.

    Attributes
    ----------
    task, kind : str
        The task, and what the answer is: a tiling, a schedule, a stream or a program.
    accepted : bool
        Whether it computes the task, for every input.
    failed : "parsed", "verified", "proven" or ""
        The first question whose answer is no.
    reason : str
        Why; if accepted, how it was proven.
    cycles : int
        Cycles of an accepted answer.
    compiler, bound : int
        Cycles of the compiler's program, and the lower bound of the task.
    rtl : int
        Cycles of the RTL, if that was asked for; otherwise 0.
    counterexample : mapping of str to ndarray
        Inputs on which a wrong answer was seen to be wrong; empty if none were found.
    error : Exception or None
        What was raised.
    """

    task: str
    kind: str
    accepted: bool
    failed: Stage
    reason: str
    cycles: int = 0
    compiler: int = 0
    bound: int = 0
    rtl: int = 0
    counterexample: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    error: Exception | None = field(default=None, repr=False, compare=False)

    @property
    def gain(self) -> float:
        """By how much it is faster than the compiler's program: 0.03 is 3 %; 0 if refused."""
        return self.compiler / self.cycles - 1 if self.accepted else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON, without arrays."""
        hidden = "counterexample", "error"
        return {key: value for key, value in vars(self).items() if key not in hidden}

    def __str__(self) -> str:
        """Return a line or two."""
        if not self.accepted:
            return f"{self.task}: not {self.failed}: {self.reason}"
        rtl = f", {self.rtl:,} on the RTL" if self.rtl else ""
        return (
            f"{self.task}: accepted ({self.reason})\n{self.cycles:,} cycles{rtl}; the compiler's "
            f"program has {self.compiler:,} ({self.gain:+.1%}), the bound is {self.bound:,}"
        )


class Judge:
    """Judges answers to one task; equal answers get equal verdicts, texts and tilings from a cache.

    Parameters
    ----------
    task : KernelTask or str
        The task, or its name.

    Examples
    --------
    >>> from vtaops.explore.judge import Judge
    >>> judge = Judge("tiny/gemm")
    >>> judge(judge.task.compiled.disassemble()).accepted
    True
    """

    def __init__(self, task: KernelTask | str) -> None:
        self.task = find_task(task) if isinstance(task, str) else task
        keep_freed_memory()
        self._forms = Forms(secrets.token_bytes(64))  # whoever answers must not know it
        self._proven: set[bytes] = set()
        self._cached = lru_cache(KEPT)(self._judged)

    def __call__(self, answer: Answer, *, rtl: bool = False) -> Verdict:
        """Return the verdict on an answer; never raises for what an answer holds.

        Parameters
        ----------
        answer : Tiling, Schedule, Program or str
            The answer; str is the text of an instruction stream.
        rtl : bool
            Whether to run an accepted answer on the RTL, too.
        """
        judged = self._judged if isinstance(answer, Program) else self._cached
        with collection_paused():  # otherwise a fifth of the time of a verdict
            return judged(answer, rtl)

    def _judged(self, answer: Answer, rtl: bool) -> Verdict:
        task = self.task
        stage: Stage = "parsed"
        found: dict[str, Any] = {"compiler": task.cycles, "bound": task.bound}
        try:
            program = program_of(task, answer)
            self._check_size(program)
            stage = "verified"
            program.verify()
            stage = "proven"
            reason = self._prove(program)
            found |= {"cycles": program.cycles(), "rtl": self._on_rtl(program) if rtl else 0}
            stage = ""
        except VTAError as error:
            reason = str(error)
            found |= {"counterexample": getattr(error, "counterexample", None) or {}}
            found |= {"error": error}
        return Verdict(task.name, kind_of(answer), not stage, stage, reason, **found)

    def _check_size(self, program: Program) -> None:
        for (name, size), most in zip(_sizes(program), self._most, strict=True):
            if size > most:
                raise ProgramError(f"it has {size:,} {name}; up to {most:,} are judged")

    @cached_property
    def _most(self) -> list[int]:
        sizes = dict(_sizes(self.task.compiled))
        return [factor * sizes[name] + more for name, (factor, more) in LIMITS.items()]

    @cached_property
    def _examples(self) -> Examples:
        return Examples(self.task.obligation(self.task.compiled), 0)

    def _prove(self, program: Program) -> str:
        """Return how a verified program is proven; raises VTAError if it is not."""
        form = self._forms.of(program)
        if form in self._proven:
            return "it does to the same tiles what a proven program does"
        different = self._examples.difference(program, SAMPLES)
        if different is not None:
            raise _Different(different)
        proof = proven(self.task.obligation(program))
        proof.require()
        self._proven.add(form)
        return "proven for every input"

    def _on_rtl(self, program: Program) -> int:
        """Run a program on the RTL with the first inputs; return its cycles."""
        task = self.task.obligation(program)
        inputs = [argument(self._examples[0][0][tensor]) for _, tensor, _, argument in task.inputs]
        with (
            closing(Tsim(program.config)) as device,
            LoadedProgram(program, device, task.parameters) as loaded,
        ):
            loaded.run(*inputs)
            return int(device.performance().cycles)


class _Different(VTAError):
    """An answer that gives another result on some inputs."""

    def __init__(self, found: Any) -> None:
        place = "".join(f"[{index}]" for index in found.element)
        super().__init__(
            f"{found.result}{place} is {found.found} and should be {found.wanted}, for the inputs "
            "in the counterexample"
        )
        self.counterexample = found.arrays


def _sizes(program: Program) -> Iterator[tuple[str, int]]:
    """Yield the sizes of a program in the order of `LIMITS`; counting needs few instructions."""
    yield "instructions", len(program)
    counts = program.stats().as_dict()
    yield "executions", counts["gemm_counter"] + counts["alu_counter"]
    yield "bytes moved", sum(count for name, count in counts.items() if name.endswith("nbytes"))
