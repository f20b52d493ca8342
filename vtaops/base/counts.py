"""Counts: per-run figures that add up field by field."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add, sub
from typing import Any, TypeVar

Own = TypeVar("Own", bound="Counts")


@dataclass(frozen=True)
class Counts:
    """A dataclass of numbers."""

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return dict(vars(self))

    def __add__(self: Own, other: Own) -> Own:
        return type(self)(*map(add, vars(self).values(), vars(other).values()))

    def __sub__(self: Own, other: Own) -> Own:
        return type(self)(*map(sub, vars(self).values(), vars(other).values()))

    def __rmul__(self: Own, times: int) -> Own:
        return type(self)(*(times * value for value in vars(self).values()))
