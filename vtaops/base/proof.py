"""Proof: the result of `vtaops.prove`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vtaops.base.errors import ProgramError

CERTIFICATE = "proof"
"""Key in a program's metadata: what is stated of its proof (`vtaops.proof.certificates`)."""
TRIED = "tried"
"""Key there: why its launch is not proven, and on how many inputs it was run (`model.judge`)."""


@dataclass(frozen=True)
class Proof:
    """The outcome of a proof.

    Attributes
    ----------
    claims : tuple of str
        Results proven equal to their definition, for every input.
    unproven : tuple of str
        Results without a proof, and the reason.
    leaves : int
        Distinct results of uninterpreted functions.
    primes : tuple of int
        Primes of the fields, of all rounds.
    error : float
        Upper bound of the probability that a difference was missed.
    seconds : float
        CPU time.
    certificate : dict
        Versions and hashes of everything compared. JSON-like.
    """

    claims: tuple[str, ...]
    unproven: tuple[str, ...] = ()
    leaves: int = 0
    primes: tuple[int, ...] = ()
    error: float = 1.0
    seconds: float = 0.0
    certificate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether everything was proven."""
        return bool(self.claims) and not self.unproven

    def require(self) -> None:
        """Refuse what is not proven as a whole.

        Raises
        ------
        ProgramError
            With what is unproven, and why.
        """
        if not self.complete:
            raise ProgramError(f"not proven: {'; '.join(self.unproven) or 'nothing was claimed'}")

    def __repr__(self) -> str:
        return f"<Proof: {len(self.claims)} results proven, {len(self.unproven)} not>"

    def __str__(self) -> str:
        """Return a summary of a few lines."""
        lines = [
            *(f"proven: {claim}" for claim in self.claims),
            *(f"not proven: {reason}" for reason in self.unproven),
            f"{self.leaves:,} leaves; probability of error "
            f"below 2^{math.ceil(math.log2(max(self.error, 1e-300)))}; {self.seconds:.2f} s",
        ]
        return "\n".join(lines)
