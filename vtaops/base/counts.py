"""Counts: per-run figures that add up field by field."""

from __future__ import annotations

from collections.abc import Callable
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
        return self._combined(add, other)

    def __sub__(self: Own, other: Own) -> Own:
        return self._combined(sub, other)

    def __rmul__(self: Own, times: int) -> Own:
        return type(self)(**{name: times * value for name, value in vars(self).items()})

    def _combined(self: Own, operation: Callable[[Any, Any], Any], other: Own) -> Own:
        pairs = zip(vars(self).items(), vars(other).values(), strict=True)
        return type(self)(**{name: operation(one, two) for (name, one), two in pairs})
