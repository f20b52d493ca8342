"""Proof: what `vtaops.prove` found out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vtaops.base.errors import ProgramError


@dataclass(frozen=True)
class Proof:
    """What was proven.

    Attributes
    ----------
    claims : tuple of str
        What equals its definition, for every input.
    unproven : tuple of str
        What nothing was proven of, and why.
    products : int
        Multiply-accumulates that were followed.
    leaves : int
        Results of functions without meaning that were told apart.
    primes : tuple of int
        The primes of the fields, of all rounds.
    error : float
        The probability is at most this that a difference was overlooked.
    overflow : str
        The first instruction whose sums could leave int32; empty: no sum can.
    seconds : float
        CPU time.
    certificate : dict
        Versions and hashes: what was compared with what. JSON-like.
    """

    claims: tuple[str, ...]
    unproven: tuple[str, ...] = ()
    products: int = 0
    leaves: int = 0
    primes: tuple[int, ...] = ()
    error: float = 1.0
    overflow: str = ""
    seconds: float = 0.0
    certificate: Mapping[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether nothing is unproven."""
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

    def __str__(self) -> str:
        """Return the proof in a few lines."""
        sums = f"sums could wrap first in {self.overflow}" if self.overflow else "no sum wraps"
        lines = [
            *(f"proven: {claim}" for claim in self.claims),
            *(f"not proven: {reason}" for reason in self.unproven),
            f"{self.products:,} products, {self.leaves:,} leaves; {sums}; probability of error "
            f"below 2^{math.ceil(math.log2(max(self.error, 1e-300)))}; {self.seconds:.2f} s",
        ]
        return "\n".join(lines)
