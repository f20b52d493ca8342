"""Answers to tasks: a tiling, a schedule as Python source, or an instruction stream as text.

Each becomes a program for the DRAM of the task. Nothing else of an answer counts: neither its
records nor its buffers. Source is executed in a confined process (`confined.py`), which
hands over a program as data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from vtaops.base.errors import ProgramError, ScheduleError, raising
from vtaops.base.files import read_file
from vtaops.explore.judge.confined import run_exercise
from vtaops.explore.judge.tasks import KernelTask
from vtaops.program import MICRO_OPS, NO_BUFFER, Buffer, Program, Role, assemble
from vtaops.schedule import Tiling

SECONDS = 60.0
"""Time limit of a schedule."""
LONGEST = 1 << 23
"""Most characters of an answer."""


@dataclass(frozen=True)
class Schedule:
    """Python source with a function ``program``, which returns a Program.

    Attributes
    ----------
    source : str
        The source.
    seconds : float
        Its time limit.
    """

    source: str
    seconds: float = SECONDS


Answer = Tiling | Schedule | Program | str
"""A tiling, a schedule, a program, or the text of an instruction stream."""


def read_answer(path: Path) -> Answer:
    """Read an answer from a file: ``.json`` a tiling, ``.py`` a schedule, else a stream as text.

    Raises
    ------
    ProgramError
        If the file cannot be read.
    ScheduleError
        If it is not a tiling.
    """
    with raising(ProgramError, f"cannot read {path}", OSError, ValueError):
        text = read_file(path).decode()
    if path.suffix == ".json":
        return tiling_of(text)
    return Schedule(text) if path.suffix == ".py" else text


def tiling_of(text: str) -> Tiling:
    """Return the tiling that JSON holds: an object with the fields of `Tiling`.

    Raises
    ------
    ScheduleError
        If it is none.
    """
    with raising(ScheduleError, "this is no tiling in JSON", ValueError, TypeError, RecursionError):
        values = json.loads(text)
        known = [f.name for f in fields(Tiling)]
        if not isinstance(values, dict) or values.keys() - {*known}:
            raise ScheduleError(f"a tiling is an object with the keys {', '.join(known)}")
        return Tiling(**values)


def kind_of(answer: Answer) -> str:
    """Return what an answer is, in a word."""
    return "stream" if isinstance(answer, str) else type(answer).__name__.lower()


def program_of(task: KernelTask, answer: Answer) -> Program:
    """Return the program of an answer, for the configuration and the buffers of a task.

    Raises
    ------
    VTAError
        If the answer cannot be read as one.
    """
    if isinstance(answer, str):
        if len(answer) > LONGEST:
            raise ProgramError(f"it has {len(answer)} characters; {LONGEST} are read")
        return replace(assemble(answer, task.config, task.buffers), metadata={}, operators=())
    if isinstance(answer, Schedule):
        submission = run_exercise(answer.source, "schedule.py", answer.seconds)
        if submission.program is None:
            raise ProgramError(
                f"{submission.error}: {submission.text}" if submission.error else submission.text
            )
        return imposed(task, submission.program)
    return imposed(task, task.tiled(answer) if isinstance(answer, Tiling) else answer)


def imposed(task: KernelTask, program: Program) -> Program:
    """Return a program on the buffers of a task, its arguments in order, without its records.

    Raises
    ------
    ProgramError
        If it is for another configuration, or needs other buffers.
    """
    if program.config.fingerprint != task.config.fingerprint:
        raise ProgramError(
            f"it is for {program.config.bitstream_id}; {task.name} is for "
            f"{task.config.bitstream_id}"
        )
    numbers = [*_places(task, program), MICRO_OPS, NO_BUFFER]
    return Program(
        config=task.config,
        instructions=program.instructions,
        relocations=np.array(numbers, np.int32)[program.relocations],
        micro_ops=program.micro_ops,
        buffers=task.buffers,
    )


def _places(task: KernelTask, program: Program) -> list[int]:
    """Return the buffer of the task for each buffer of a program."""
    wanted, own = task.compiled.arguments, program.arguments
    if list(map(_image, own)) != list(map(_image, wanted)):
        wanted_buffers = ", ".join(f"{b.name} ({b.role.value}, {b.nbytes} bytes)" for b in wanted)
        raise ProgramError(f"its arguments are not those of {task.name} in DRAM: {wanted_buffers}")
    known = {buffer: number for number, buffer in enumerate(task.buffers)}
    known |= {b: known[other] for b, other in zip(own, wanted, strict=True)}
    if foreign := [buffer for buffer in program.buffers if buffer not in known]:
        raise ProgramError(
            f"{foreign[0].name} is a buffer of its own ({foreign[0].role.value}); the DRAM of "
            f"{task.name} has {', '.join(b.name for b in task.buffers)}"
        )
    return [known[buffer] for buffer in program.buffers]


def _image(buffer: Buffer) -> tuple[bool, str, int]:
    return buffer.role is Role.OUTPUT, buffer.dtype, buffer.nbytes
