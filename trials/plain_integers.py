"""The definitions of a proof on integers: what they mean, to be held against the executors."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.fixed_point import fine_parts, nudged
from vtaops.proof.terms import Fields, Floats, Terms


class Integers(Fields):
    """Numbers instead of terms: operations are interpreted, and nothing is delayed.

    Values are exact in float64; both planes hold the same numbers.
    """

    def centred(self, value: Floats) -> Floats:
        return value

    def product(self, x: Floats, y: Any) -> Floats:
        return wrapped(wrapped(x).astype(np.int64) * wrapped(np.asarray(y)).astype(np.int64))

    def forced(self, x: Terms, where: Any = True) -> Terms:
        return x

    def fitting(self, x: Terms) -> Terms:
        return Terms(wrapped(x.value))

    def sum(self, x: Terms, y: Terms) -> Terms:
        first, second = np.broadcast_arrays(x.value, _like(y.value, x.value))
        return Terms(first + second)

    def product_of(self, x: Terms, y: Terms) -> Terms:
        return Terms(self.product(x.value, _like(y.value, x.value)))

    def shifted(self, x: Terms, bits: int) -> Terms:
        return Terms(wrapped(np.floor(np.ldexp(wrapped(x.value), -bits))))

    def opaque(self, name: str, x: Terms, y: Terms) -> Terms:
        first, second = np.broadcast_arrays(wrapped(x.value), _like(wrapped(y.value), x.value))
        return Terms(wrapped(np.floor(np.ldexp(first, -second.astype(np.int64)))))

    def clamped(self, x: Terms, low: float, high: float) -> Terms:
        return Terms(np.clip(wrapped(x.value), low, high))

    def byte(self, x: Terms) -> Terms:
        return Terms((x.value + 128) % 256 - 128)

    def requantized(
        self,
        x: Terms,
        multiplier: Any,
        shift: Any,
        zero_point: int,
        clip: tuple[float, float],
        rounds: bool = True,
        bias: Terms | npt.NDArray[Any] | None = None,
        check: Callable[[Terms], None] = lambda sums: None,
    ) -> Terms:
        if bias is not None:
            x = self.sum(x, bias if isinstance(bias, Terms) else self.numbers(bias))
        kind, nudge = 0, np.int64(0)
        if isinstance(multiplier, Terms):
            scale = multiplier.value[0].astype(np.int64)
            kind = -shift
            multiplier, shift = scale & 0xFFFF, scale >> 16
            if kind:
                multiplier, shift, nudge = fine_parts(scale)
        shift, acc = np.asarray(shift, np.int64), wrapped(x.value).astype(np.int64)
        half = ((np.int64(1) << shift) >> 1) * rounds + np.where(acc < 0, -1, 1) * nudged(
            kind, nudge
        )
        scaled = ((acc * np.asarray(multiplier, np.int64) + half) >> shift) + zero_point
        return Terms(np.clip(scaled.astype(np.float64), *clip))

    def mapped(self, x: Terms, table: npt.NDArray[Any]) -> Terms:
        return Terms(table[x.value.astype(np.int64) + 128].astype(np.float64))

    def extremum_of(self, terms: list[Terms], sign: int) -> Terms:
        choose = np.maximum if sign > 0 else np.minimum
        return Terms(reduce(choose, [wrapped(term.value) for term in terms]))

    def matmul(self, x: Floats, w: Floats) -> Floats:
        product: Floats = np.matmul(x, w)
        return product


def wrapped(value: Any) -> Floats:
    """Return integers wrapped to int32."""
    exact = np.asarray(value).astype(np.int64)
    kept: Floats = ((exact + (1 << 31)) % (1 << 32) - (1 << 31)).astype(np.float64)
    return kept


def _like(value: Floats, other: Floats) -> Floats:
    rank = max(value.ndim, other.ndim)
    spread: Floats = value.reshape(len(value), *[1] * (rank - value.ndim), *value.shape[1:])
    return spread
