"""Certificates: what a file states about the proof of its programs, and whether it still holds.

Each proven program has a certificate in its metadata under ``proof``: the version of the checker,
SHA-256 of the program, the weights and the definition, the primes, and the bound on the probability
of error. Nobody needs to trust it: `rechecked` repeats the proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from vtaops.base.errors import ProgramError
from vtaops.base.proof import Proof
from vtaops.model import Model, Region, Stage
from vtaops.program import Program
from vtaops.proof.prover import CHECKER, prove

KEY = "proof"
"""Key in a program's metadata."""

Subject = TypeVar("Subject", Program, Model)

_COMPARED = ("program", "weights", "definition")


def certified(subject: Subject, proof: Proof) -> Subject:
    """Return a program or a model with the certificates of its proof.

    Raises
    ------
    ProgramError
        If something is unproven, because there are no partial certificates.
    """
    if not proof.complete:
        raise ProgramError(f"no certificate: {'; '.join(proof.unproven) or 'nothing is proven'}")
    parts = iter(proof.certificate["parts"])
    if isinstance(subject, Program):
        return _with(subject, next(parts))
    stages: list[Stage] = [
        replace(stage, program=_with(stage.program, next(parts)))
        if isinstance(stage, Region)
        else stage
        for stage in subject.stages
    ]
    return Model(subject.graph, subject.config, subject.capabilities, subject.plan, stages)


def _with(program: Program, part: Mapping[str, Any]) -> Program:
    certificate = {"checker": CHECKER, **part}
    return replace(program, metadata={**program.metadata, KEY: certificate})


def rechecked(subject: Program | Model) -> Proof | None:
    """Repeat the proof of a certificate; return None if there is none.

    Raises
    ------
    ProgramError
        If a certificate does not match its program, weights and definition, or the proof cannot be
        repeated.
    NotEquivalent
        If the program computes something else.
    """
    programs = [subject] if isinstance(subject, Program) else subject.programs
    stated = [program.metadata.get(KEY) for program in programs]
    if not any(stated):
        return None
    proof = prove(subject)
    if not proof.complete:
        raise ProgramError(f"a certificate cannot be proven again: {'; '.join(proof.unproven)}")
    for certificate, part in zip(stated, proof.certificate["parts"], strict=True):
        for name in _COMPARED if certificate is not None else ():
            if not isinstance(certificate, Mapping) or certificate.get(name) != part[name]:
                raise ProgramError(f"the certificate is not for this {name}: it was changed since")
    return proof
