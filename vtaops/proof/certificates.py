"""Certificates: what a file states about the proof of its programs, and whether it still holds.

Each proven program has a certificate in its metadata under ``proof``: the version of the checker,
SHA-256 of the program, the weights and the definition, the primes, and the bound on the probability
of error. Nobody needs to trust it: `rechecked` repeats the proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vtaops.base.errors import ProgramError
from vtaops.base.proof import Proof
from vtaops.program import Program
from vtaops.proof.prover import CHECKER, prove
from vtaops.proof.tasks import CompiledNetwork

KEY = "proof"
"""Key in a program's metadata."""

_COMPARED = ("program", "weights", "definition")


def certified(program: Program, proof: Proof) -> Program:
    """Return a program with the certificate of its proof.

    Raises
    ------
    ProgramError
        If something is unproven, because there are no partial certificates.
    """
    return all_certified([program], proof)[0]


def all_certified(programs: Sequence[Program], proof: Proof) -> list[Program]:
    """Return the programs of a proof with their certificates; raises as `certified`."""
    if not proof.complete:
        raise ProgramError(f"no certificate: {'; '.join(proof.unproven) or 'nothing is proven'}")
    parts = proof.certificate["parts"]
    return [_with(program, part) for program, part in zip(programs, parts, strict=True)]


def _with(program: Program, part: Mapping[str, Any]) -> Program:
    certificate = {"checker": CHECKER, **part}
    return replace(program, metadata={**program.metadata, KEY: certificate})


def rechecked(subject: Program | CompiledNetwork) -> Proof | None:
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
