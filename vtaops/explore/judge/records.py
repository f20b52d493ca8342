"""Records: the best known answers, each with the certificate of its proof.

The folder ``records`` holds ``records.json`` and the streams that it names. Nobody needs to trust
it: `rechecked` assembles, verifies and proves a row from nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtaops.base.data import data_directory
from vtaops.base.errors import ProgramError, raising
from vtaops.base.files import read_file
from vtaops.explore.judge.answers import Answer, program_of, tiling_of
from vtaops.explore.judge.tasks import KernelTask, find_task
from vtaops.proof.certificates import COMPARED
from vtaops.proof.prover import CHECKER, proven

INDEX = "records.json"


@dataclass(frozen=True)
class BestAnswer:
    """An answer that was accepted.

    Attributes
    ----------
    task, by : str
        The task, and who or what found the answer.
    answer : str or mapping
        The name of a file with a stream, or the fields of a tiling.
    cycles : int
        Its cycles by the timing model.
    certificate : mapping
        What its proof says (`vtaops.proof.certificates`).
    """

    task: str
    by: str
    answer: str | Mapping[str, Any]
    cycles: int
    certificate: Mapping[str, Any] = field(default_factory=dict)


def read_records(folder: Path | None = None) -> list[BestAnswer]:
    """Return all records, by default those that vtaops ships.

    Raises
    ------
    ProgramError
        If the file of records cannot be read.
    """
    path = (folder or data_directory("records")) / INDEX
    wrong = OSError, ValueError, TypeError, RecursionError
    with raising(ProgramError, f"cannot read {path}", *wrong):
        return [BestAnswer(**row) for row in json.loads(read_file(path))]


def answer_of(record: BestAnswer, folder: Path | None = None) -> Answer:
    """Return the answer of a record.

    Raises
    ------
    ProgramError, ScheduleError
        If its file cannot be read, or is in another folder; if it is no tiling.
    """
    if not isinstance(record.answer, str):
        return tiling_of(json.dumps(record.answer))
    if Path(record.answer).name != record.answer:
        raise ProgramError(f"the answer {record.answer!r} is not a file in the folder of records")
    path = (folder or data_directory("records")) / record.answer
    with raising(ProgramError, f"cannot read {path}", OSError, ValueError):
        return read_file(path).decode()


def certified_cycles(task: KernelTask, answer: Answer) -> tuple[int, dict[str, Any]]:
    """Verify and prove an answer from nothing; return its cycles and its certificate.

    Raises
    ------
    VTAError
        If it is refused; the message says why.
    """
    program = program_of(task, answer)
    program.verify()
    proof = proven(task.obligation(program))
    proof.require()
    return program.cycles(), {"checker": CHECKER, **proof.certificate}


def rechecked(record: BestAnswer, folder: Path | None = None) -> None:
    """Prove a record again, and compare its cycles and its certificate.

    Raises
    ------
    ProgramError
        If it says something else than what is proven now; if its answer is refused.
    """
    cycles, certificate = certified_cycles(find_task(record.task), answer_of(record, folder))
    if cycles != record.cycles:
        raise ProgramError(f"{record.task}: {cycles} cycles; the record says {record.cycles}")
    for name in COMPARED:
        if certificate[name] != record.certificate.get(name):
            raise ProgramError(f"{record.task}: the certificate is not for this {name}")
