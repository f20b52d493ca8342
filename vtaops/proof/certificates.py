"""Certificates: what a file states about the proof of its programs, and whether it still holds.

Each proven program has a certificate in its metadata under ``proof``: the version of the checker,
SHA-256 of the program, the weights and the definition, the primes, and the bound on the probability
of error. Nobody needs to trust it: `rechecked` repeats the proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vtaops.base.errors import ProgramError
from vtaops.base.proof import CERTIFICATE, Proof
from vtaops.program import Program
from vtaops.proof.prover import CHECKER, prove
from vtaops.proof.tasks import CompiledNetwork

COMPARED = ("program", "weights", "definition")


def certified(program: Program, proof: Proof) -> Program:
    """Return a program of one operator with the certificate of its proof.

    Raises
    ------
    ProgramError
        If something is unproven.
    """
    proof.require()
    (part,) = proof.certificate["parts"]
    return replace(program, metadata={**program.metadata, **certificate(part)})


def certificate(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metadata of one program of a proof says; nothing if it is not proven."""
    return {CERTIFICATE: {"checker": CHECKER, **part}} if part else {}


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
    stated = [program.metadata.get(CERTIFICATE) for program in programs]
    if not any(stated):
        return None
    proof = prove(subject)
    for stored, part in zip(stated, proof.certificate["parts"], strict=True):
        if stored is not None:
            _require_same(stored, part, proof)
    return proof


def _require_same(said: Any, part: Mapping[str, Any], proof: Proof) -> None:
    """Refuse a certificate that a proof does not repeat in this part."""
    if not part:
        raise ProgramError(f"a certificate cannot be proven again: {'; '.join(proof.unproven)}")
    for name in COMPARED:
        if not isinstance(said, Mapping) or said.get(name) != part[name]:
            raise ProgramError(f"the certificate is not for this {name}: it was changed since")
