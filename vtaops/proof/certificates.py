"""Certificates: what a file says about the proof of its programs, and whether it is still so.

A certificate stands in the metadata of each program that was proven, under ``proof``: the version
of the checker, SHA-256 of the program, the weights and the definition, the primes and the bound on
the probability of error. Nobody need believe it: `rechecked` proves again.
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
"""Of the metadata of a program."""

Subject = TypeVar("Subject", Program, Model)

_COMPARED = ("program", "weights", "definition")


def certified(subject: Subject, proof: Proof) -> Subject:
    """Return a program or a model with the certificates of its proof.

    Raises
    ------
    ProgramError
        If something is unproven: nothing is certified in part.
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
    """Prove again what is certified; None if nothing is.

    Raises
    ------
    ProgramError
        If a certificate is not that of the program, weights and definition beside it, or cannot be
        proven again.
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
