"""Terms: integers of the machine as elements of prime fields, with their ranges.

This file owns the arithmetic shared by program and definition. A term represents one integer for
every input at once: ``clamp(N >> shift, low, high)``, where N is a polynomial in the inputs and in
results of uninterpreted functions, evaluated at a random point of each field. Nonlinear operations
are delayed: a shift until an operation other than a sum needs its result, a clamp until an
operation other than a clamp does. The laws of integers that compilers use therefore hold by
construction::

    (N >> a) + Y == (N + (Y << a)) >> a         (N >> a) >> b == N >> (a + b)
    min(max(clamp(N, l, h), c), d) is a clamp of N, in any order and number
    clamp(N, l, l) == l

`Fields.forced` converts it to a plain term: a hash of polynomial, shift and bounds. Besides
residues, a term has a range that its polynomial cannot leave, ``middle - radius`` to
``middle + radius``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._proof as _proof

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]

_HALF, _LOW, _BITS = np.uint64(32), np.uint64(2**32 - 1), np.uint64(2**31 - 1)
ZERO, NO_BITS = np.float64(0), np.int64(0)
LEAST, MOST = np.float64(-np.inf), np.float64(np.inf)
INT32 = 2.0**31
BYTE = (-0.5, 127.5)
"""Middle and radius of int8."""
WORD = (-0.5, 2.0**31 - 0.5)
"""Middle and radius of int32."""
NOTHING = np.uint64(2**64 - 1)
"""A value that is not a term's key."""
EXACT = 2.0**53
"""Integers of smaller magnitude are exact in float64."""
SMALL = 2.0**24
"""Upper bound on numbers that are recognised as constants."""
LONGEST_SHIFT = 62
"""Maximum length of a delayed shift."""
AT_ONCE = 1 << 19
"""Number of residues of a matrix product that are made at once."""
LONGEST_PRODUCT = 256
"""Number of products of halved residues whose sum is exact in float64."""


RANGES = "middle", "radius", "shift", "low", "high"
"""What terms have beside residues."""


@dataclass(frozen=True, eq=False)
class Terms:
    """An array of terms.

    Attributes
    ----------
    value : ndarray of float64, shape (planes, ...)
        Residues of the polynomials modulo each prime, centred at 0.
    middle, radius : ndarray of float64
        Ranges of the polynomials; they broadcast to the shape.
    shift : ndarray of int64
        Delayed right shift in bits; broadcasts to the shape.
    low, high : ndarray of float64
        Bounds of the delayed clamp; broadcast to the shape.
    degree : int
        Upper bound on the degree of the polynomials.
    """

    value: Floats
    middle: Any = ZERO
    radius: Any = ZERO
    shift: Any = NO_BITS
    low: Any = LEAST
    high: Any = MOST
    degree: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape[1:]

    @property
    def zero(self) -> bool:
        """Whether all are the number 0."""
        parts = self.radius, self.middle, self.value, self.bounded
        return not any(np.any(part) for part in parts)

    @property
    def bounded(self) -> Any:
        """Which terms have a delayed clamp."""
        return np.isfinite(self.low) | np.isfinite(self.high)

    @property
    def delayed(self) -> bool:
        """Whether a shift or a clamp of any is delayed."""
        return bool(np.any(self.shift) or np.any(self.bounded))

    @property
    def reach(self) -> Any:
        """The maximum magnitude of each polynomial."""
        return np.abs(self.middle) + self.radius

    @property
    def fits(self) -> Any:
        """Whether each polynomial is an int32 for all inputs; not so where float64 is too short."""
        return (self.middle - self.radius >= -INT32) & (self.middle + self.radius < INT32)

    def taken(self, rows: Any) -> Terms:
        """Return the terms of some rows of the first axis."""

        def part(values: Any) -> Any:
            return values.take(rows, axis=0) if np.ndim(values) else values

        return replace(self.ranged(part), value=self.value.take(rows, axis=1))

    def ranged(self, how: Callable[[Any], Any]) -> Terms:
        """Return the terms after a function of the arrays of ranges, shifts and clamps."""
        return replace(self, **{name: how(getattr(self, name)) for name in RANGES})

    def spread(self, shape: tuple[int, ...]) -> Terms:
        """Return plain terms broadcast to a shape."""
        return self.moved(lambda part: np.broadcast_to(part, shape))

    def moved(self, how: Any) -> Terms:
        """Return plain terms after a function that moves elements, such as a transposition."""
        shape = self.shape
        middle, radius = (how(np.broadcast_to(part, shape)) for part in (self.middle, self.radius))
        value = np.stack([how(plane) for plane in self.value])
        return Terms(value, middle, radius, degree=self.degree)


@dataclass(frozen=True, eq=False)
class Scale:
    """The scale of an epilogue, ``(x * factor + added[shift]) >> shift``.

    Attributes
    ----------
    factor : ndarray of float64
        Multipliers of 16 bits.
    shift : ndarray of int64
        Right shifts, 0..47; both broadcast.
    zero_point : int
        Added to the result.
    rounds : bool
        Whether half a step of the result is added to the product.
    """

    factor: Any
    shift: Any
    zero_point: int
    rounds: bool

    @property
    def power_of_two(self) -> bool:
        """Whether all terms are shifted alike and not multiplied."""
        return bool(self.shift.ndim == self.factor.ndim == 0 and self.factor == 1)

    @cached_property
    def shifts(self) -> npt.NDArray[np.int64]:
        """All shifts from 0 to the longest."""
        return np.arange(self.shift.max(initial=0) + 1)

    @cached_property
    def half(self) -> Floats:
        """Half a step of the result, or 0 if it does not round, for each of `shifts`."""
        return np.floor(np.ldexp(1.0, self.shifts) / 2) * self.rounds

    @cached_property
    def added(self) -> Floats:
        """The number that is added to the product, for each of `shifts`."""
        return self.half + np.ldexp(float(self.zero_point), self.shifts)


class Fields:
    """Prime fields drawn at random, and hash functions into them.

    Parameters
    ----------
    seed : int or None
        Seed of all random choices; by default it comes from the operating system.
    pairs : int
        Number of pairs of fields. The residues of a pair form one word of a key, and a hash of a
        key depends on all of its words.
    """

    def __init__(self, seed: int | None, pairs: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.primes: tuple[int, ...] = ()
        while len(self.primes) < 2 * pairs:
            drawn = int(self.random.integers(1 << 30, 1 << 31)) | 1
            if is_prime(drawn) and drawn not in self.primes:
                self.primes += (drawn,)
        self._secret = self.random.bytes(32)
        self.hashed = 0
        """Number of leaves created."""
        self.degree = 1
        """Maximum degree of a polynomial."""

    # ------------------------------------------------------------------------- making terms

    def symbols(self, shape: tuple[int, ...], dtype: str = "int8") -> Terms:
        """Return terms that represent arbitrary values of a dtype; none is drawn as zero."""
        planes = [self.random.integers(1, p, shape, np.uint32) for p in self.primes]
        middle, radius = BYTE if np.dtype(dtype).itemsize == 1 else WORD
        value = self.centred(np.array(planes, np.float64))
        return Terms(value, np.float64(middle), np.float64(radius))

    def numbers(self, values: npt.ArrayLike) -> Terms:
        """Return the terms of numbers of at most 48 bits."""
        exact = np.asarray(values, np.float64)
        value = self.centred(np.array([exact] * len(self.primes)))
        return Terms(value, exact, np.zeros_like(exact))

    # --------------------------------------------------------------------------- residues

    def centred(self, value: Floats) -> Floats:
        """Reduce integers below 2**53 in place to half a prime in magnitude; return them."""
        whole = np.ascontiguousarray(value)
        _proof.centre(whole.reshape(len(whole), -1), np.array(self.primes, np.float64))
        if whole is not value:
            value[...] = whole
        return value

    def product(self, x: Floats, y: Floats) -> Floats:
        """Return the product of residues with residues."""
        x, y = np.broadcast_arrays(x, y)
        made = np.empty(x.shape)
        _proof.multiply(x, y, made, np.array(self.primes, np.float64))
        return made

    def power(self, value: Floats, bits: Any) -> Floats:
        """Return residues times ``2**bits``; `bits` is an array that broadcasts."""
        bits = np.asarray(bits)
        if not bits.any():
            return value
        least, most = int(bits.min()), int(bits.max())
        powers = [[pow(2, k, prime) for k in range(least, most + 1)] for prime in self.primes]
        factors = np.array(powers, np.float64)[:, bits - least]
        return self.product(*aligned(value, self.centred(factors)))

    def keys(self, value: Floats) -> Keys:
        """Return residues as words of 62 bits, (pairs, ...), equal only for equal elements."""
        made = np.empty((len(value) // 2, *value.shape[1:]), np.uint64)
        tables = np.ascontiguousarray(value), made
        flat, words = (part.reshape(len(part), math.prod(part.shape[1:])) for part in tables)
        _proof.make_keys(flat, np.array(self.primes, np.float64), words)
        return made

    def residues(self, keys: Keys) -> Floats:
        halves = [half for word in keys for half in (word & _LOW, word >> _HALF)]
        return self.centred(np.array(halves, np.float64))

    def is_number(self, value: Floats) -> npt.NDArray[np.bool_]:
        """Return whether terms are small numbers for all inputs; needs two pairs of fields."""
        small: npt.NDArray[np.bool_] = (value == value[0]).all(axis=0) & (np.abs(value[0]) < SMALL)
        return small if len(self.primes) > 2 else np.zeros_like(small)

    # -------------------------------------------------------------- uninterpreted functions

    def tag(self, *name: Any) -> np.uint64:
        """Return the key of a named function."""
        digest = hashlib.blake2b(repr(name).encode(), key=self._secret, digest_size=8).digest()
        key: np.uint64 = np.uint64(int.from_bytes(digest, "little"))
        return key

    def scramble(self, keys: Keys, tag: Any) -> Keys:
        """Return a random permutation of keys for each tag; each word depends on all words."""
        made = np.array(keys, order="C")
        _proof.scramble(made.reshape(len(made), math.prod(made.shape[1:])), int(tag))
        return made

    def function(self, tag: Any, keys: Keys) -> Floats:
        """Return the values of an uninterpreted function."""
        self.hashed += keys[0].size
        words = self.scramble(keys, tag)
        halves = [half for word in words for half in (word & _BITS, word >> np.uint64(33))]
        return self.centred(np.array(halves, np.float64))

    def of(self, name: tuple[Any, ...], *terms: Terms) -> Floats:
        """Return a named uninterpreted function of forced terms."""
        keys = np.zeros(1, np.uint64)
        for number, term in enumerate(terms):
            own = self.keys(self.forced(term).value)
            keys = own + keys.reshape(len(keys), *[1] * (own.ndim - keys.ndim), *keys.shape[1:])
            if number + 1 < len(terms):
                keys = self.scramble(keys, self.tag("argument", number))
        return self.function(self.tag(*name), keys)

    # -------------------------------------------------------------------------- operations

    def forced(self, x: Terms, where: Any = True) -> Terms:
        """Return terms without delayed operations, or without those of the selected terms."""
        if not (where & ((x.shift > 0) | x.bounded)).any():
            return x
        changed, middle, radius = self._forced_ranges(x, where)
        value = self._hashed(x, changed) if changed.any() else x.value
        shift, low, high = (
            np.where(where, nothing, part)
            for nothing, part in ((NO_BITS, x.shift), (LEAST, x.low), (MOST, x.high))
        )
        degree = x.degree if (~changed & (x.radius > 0)).any() else 1
        return Terms(value, middle, radius, shift, low, high, degree)

    def _forced_ranges(self, x: Terms, where: Any) -> tuple[Any, Any, Any]:
        """Return which terms `forced` changes, and the ranges of all."""
        parts = np.broadcast_arrays(where, x.middle, x.radius, x.shift, x.low, x.high)
        made: Any = [np.empty(parts[0].shape, kind) for kind in (bool, float, float)]
        _proof.settle_ranges(*parts, *made)
        return tuple(made)

    def _hashed(self, x: Terms, changed: Any) -> Floats:
        """Return the values of forced terms, those of `changed` without shift and clamp.

        Of these, numbers stay numbers: small ones, and small numbers of halves of the last step
        that is shifted out. Where nothing is left of the inputs, a zero point and the half that
        rounds it are still there.
        """
        self.hashed += x.value[0].size
        value, shape = np.ascontiguousarray(x.value), x.shape
        made = np.empty_like(value)
        parts = changed, self._clamps(x), np.asarray(x.shift), x.low, x.high
        spread = (np.broadcast_to(part, shape) for part in parts)
        _proof.settle(value, made, *spread, np.array(self.primes, np.float64), self._halves, SMALL)
        return made

    @cached_property
    def _halves(self) -> npt.NDArray[np.int64]:
        """Halves of halves of 1 in each field, for each shift: ``2**-k`` for k from 0 on."""
        powers = [[pow(2, -k, prime) for k in range(LONGEST_SHIFT)] for prime in self.primes]
        return self.centred(np.array(powers, np.float64)).astype(np.int64)

    def _clamps(self, x: Terms) -> Any:
        """Return the keys of shift and clamp, for each combination of their values."""
        infinite = 1 << 40
        low, high = (
            np.nan_to_num(b, posinf=infinite, neginf=-infinite).astype(np.int64)
            for b in (x.low, x.high)
        )
        shift = np.asarray(x.shift)
        alike = low.ndim == high.ndim == 0  # then there are few combinations
        bits = np.arange(1 + shift.max(initial=0)) if alike else shift
        name: Any = np.uint64(0)
        with np.errstate(over="ignore"):
            for part, what in ((bits, "shift"), (low, "low"), (high, "high")):
                name = _permuted(name + part.astype(np.uint64), self.tag(what))
        return name[shift] if alike else name

    def fitting(self, x: Terms) -> Terms:
        """Return plain terms that fit int32; terms that may not fit become their low 32 bits."""
        return self._held(self.forced(x))

    def _held(self, x: Terms) -> Terms:
        """Return terms whose polynomials fit int32 unless an operation is delayed."""
        wide = (x.shift == 0) & ~x.bounded & ~x.fits
        if not wide.any():
            return x
        value = np.where(wide, self.of(("wrap",), Terms(x.value)), x.value)
        middle, radius = np.where(wide, WORD[0], x.middle), np.where(wide, WORD[1], x.radius)
        return replace(x, value=value, middle=middle, radius=radius)

    def sum(self, x: Terms, y: Terms) -> Terms:
        """Return the sums; if one term is shifted, its shift stays delayed."""
        for nothing, other in (x, y), (y, x):  # a copy: 0 + other, with all that it delays
            if nothing.value.shape == other.value.shape and nothing.zero:
                return other
        both = (x.shift > 0) & (y.shift > 0)
        x, y = self.forced(x, both | x.bounded), self.forced(y, both | y.bounded)
        if np.any(x.shift) or np.any(y.shift):
            bottom, top = (a + b for a, b in zip(ends(x), ends(y), strict=True))
            wraps = ~((bottom >= -INT32) & (top < INT32))
            x, y = self.forced(x, wraps), self.forced(y, wraps)
        first, second = aligned(self.power(x.value, y.shift), self.power(y.value, x.shift))
        value = self.centred(first + second)
        x, y = _scaled(x, y.shift), _scaled(y, x.shift)
        middle, radius = x.middle + y.middle, x.radius + y.radius
        return Terms(value, middle, radius, x.shift + y.shift, degree=max(x.degree, y.degree))

    def product_of(self, x: Terms, y: Terms) -> Terms:
        x, y = self.forced(x), self.forced(y)
        value = self.product(*aligned(x.value, y.value))
        with np.errstate(over="ignore", invalid="ignore"):  # consecutive MULs
            middle = x.middle * y.middle
            radius = x.radius * np.abs(y.middle) + y.radius * np.abs(x.middle)
            radius = radius + x.radius * y.radius
        degree = x.degree + y.degree
        self.degree = max(self.degree, degree)
        return Terms(value, middle, radius, degree=degree)

    def times(self, x: Terms, number: Any) -> Terms:
        """Return plain terms times numbers of at most 16 bits, which broadcast."""
        number = np.asarray(number, np.float64)
        value = self.centred(x.value * number)
        return Terms(value, x.middle * number, x.radius * np.abs(number), degree=x.degree)

    def shifted(self, x: Terms, bits: int) -> Terms:
        """Return the terms shifted right, or left (wrapping) for negative `bits`."""
        if bits <= 0:
            left_shift = min(-bits, 32)
            x = self.forced(x) if left_shift else x
            for part in (left_shift // 2, left_shift - left_shift // 2):
                x = self.times(x, 1 << part) if part else x
            return x
        bits = min(bits, 31)
        x = self._held(self.forced(x, x.bounded | (x.shift + bits > LONGEST_SHIFT)))
        return replace(x, shift=x.shift + bits)

    def opaque(self, name: str, x: Terms, y: Terms) -> Terms:
        """Return an operation of int32 of which no law is known."""
        value = self.of((name,), self.fitting(x), self.fitting(y).spread(x.shape))
        return Terms(value, *map(np.float64, WORD))

    def clamped(self, x: Terms, low: float, high: float) -> Terms:
        """Return the delayed ``min(max(x, low), high)``; bounds may be infinite."""
        x = self._held(x)
        below, above = np.maximum(x.low, low), np.maximum(x.high, low)
        return replace(x, low=np.minimum(below, high), high=np.minimum(above, high))

    def byte(self, x: Terms) -> Terms:
        """Return the low 8 bits as int8."""
        x = self.forced(x)
        inside = (x.middle - x.radius >= -128) & (x.middle + x.radius <= 127)
        value = x.value
        if not inside.all():
            value = np.where(inside, value, self.of(("low byte",), x))
            number = self.is_number(x.value)
            value = np.where(number, (x.value[0] + 128) % 256 - 128, value)
        middle, radius = map(np.float64, BYTE)
        return Terms(value, middle, radius, degree=x.degree if inside.any() else 1)

    def requantized(
        self,
        x: Terms,
        multiplier: Any,
        shift: Any,
        zero_point: int,
        clip: tuple[float, float],
        rounds: bool = True,
        bias: Terms | npt.NDArray[Any] | None = None,
    ) -> Terms:
        """Return the int8 ``clip(((sum * multiplier + half) >> shift) + zero_point)``, exactly.

        The sum is int32: `x`, plus a bias that broadcasts to it, terms or numbers.
        Multipliers of 16 bits and shifts 0..47 are numbers that broadcast; half is half a step of
        the result if it rounds. Alternatively, the multiplier is terms that contain both, and there
        is no shift; for fine scales it contains the kind, -1..-3. If no int32 gives a product of
        half a step, the result is zero.
        """
        scale = None
        if not isinstance(multiplier, Terms):
            scale = Scale(np.asarray(multiplier, np.float64), np.asarray(shift), zero_point, rounds)
            made = self._requantized_at_once(x, scale, clip, bias)
            if made is not None:
                return made
        if bias is not None:
            x = self.sum(x, bias if isinstance(bias, Terms) else self.numbers(bias))
        if scale is None:
            x = self.fitting(x)
            value = self.of(("scale", rounds, -shift), x, multiplier.spread(x.shape))
            value = self.centred(value + zero_point)
            scaled = Terms(value, np.float64(0), np.float64(EXACT))
        else:
            scaled = self._scaled(x, scale)
        low, high = map(np.float64, clip)
        return self.byte(replace(scaled, low=low, high=high))

    def _requantized_at_once(
        self, x: Terms, scale: Scale, clip: tuple[float, float], bias: Any
    ) -> Terms | None:
        """Return `requantized` by one loop; None where it is not for these terms."""
        if isinstance(bias, Terms):
            return None
        numbers = ZERO if bias is None else np.asarray(bias, np.float64)
        parts = x.middle, x.radius, numbers, scale.factor, scale.shift
        spread = np.broadcast_shapes(x.shape, *map(np.shape, parts)) != x.shape
        if spread or x.delayed or not x.value.size:
            return None
        low, high = map(np.float64, clip)
        tags = self._clamps(Terms(ZERO[None], ZERO, ZERO, scale.shifts, low, high))
        value, primes = np.ascontiguousarray(x.value), np.array(self.primes, np.float64)
        made = np.empty_like(value)
        outcome = _proof.requantize(
            value,
            made,
            *(np.broadcast_to(part, x.shape) for part in parts),
            scale.added,
            scale.half,
            self._offsets(scale),
            tags,
            low,
            high,
            primes,
            self._halves,
            SMALL,
        )
        if not outcome:
            return None
        self.hashed += x.value[0].size
        middle, radius = map(np.float64, BYTE)
        return Terms(made, middle, radius, degree=x.degree if outcome > 1 else 1)

    def _offsets(self, scale: Scale) -> Floats:
        """Return what is added to a product in each field, (planes, shifts)."""
        ones = np.ones((len(self.primes), len(scale.shifts)))
        offsets = self.power(ones * scale.zero_point, scale.shifts)
        halves = self.power(ones, np.maximum(scale.shifts - 1, 0))
        return self.centred(offsets + halves * (scale.rounds & (scale.shifts > 0)))

    def _scaled(self, x: Terms, scale: Scale) -> Terms:
        """Return terms scaled, without their clip."""
        if scale.power_of_two and np.any(x.shift) and not np.any(x.bounded):
            bits = int(scale.shift)  # the shift of x stays delayed
            x = self.sum(x, self.numbers((1 << bits >> 1) * scale.rounds))
            return self.sum(self.shifted(x, bits), self.numbers(scale.zero_point))
        x = self.fitting(x)
        nothing = scale.factor * INT32 <= scale.half[scale.shift]
        offsets = self._offsets(scale).take(scale.shift, axis=1)
        value = self.centred(np.add(*aligned(x.value * scale.factor, offsets)))
        middle = x.middle * scale.factor + scale.added[scale.shift]
        radius = x.radius * np.abs(scale.factor)
        value, middle = (np.where(nothing, scale.zero_point, part) for part in (value, middle))
        radius = np.where(nothing, 0, radius)
        return Terms(value, middle, radius, np.where(nothing, 0, scale.shift), degree=x.degree)

    def mapped(self, x: Terms, table: npt.NDArray[Any]) -> Terms:
        """Return entries ``x + 128`` of a table of 256 int8 numbers, for int8 `x`."""
        x = self.forced(x)
        number = self.is_number(x.value)
        entry = table[np.where(number, x.value[0] + 128, 0).astype(np.int64)]
        value = np.where(number, entry, self.of(("table", table.tobytes()), x))
        return Terms(value, *map(np.float64, BYTE))

    # ------------------------------------------------------------------- maxima and minima

    def union(self, members: Keys, inside: Any, sign: int) -> Keys:
        """Return sets of keys, (pairs, members, ...), without duplicates; NOTHING comes last.

        If all members of a maximum (`sign` 1) are at least -128, that number is not a member unless
        it is the only one; the same holds for minima and 127.
        """
        least = self.keys(
            self.numbers(np.full(members.shape[2:], -128.0 * sign - (sign < 0))).value
        )
        nothing = members[0] == NOTHING
        lowest = (members == least[:, None]).all(axis=0) & inside
        nothing |= lowest & ~(nothing | lowest).all(axis=0)
        members = self.sets(np.where(nothing, NOTHING, members))
        held = (members[0] != NOTHING).any(axis=(*range(1, members.ndim - 1),))
        return members[:, : max(1, int(held.sum()))]

    def sets(self, members: Keys) -> Keys:
        """Return sets of keys, sorted and without duplicates, which become NOTHING."""
        _proof.sort_sets(members.reshape(*members.shape[:2], -1), NOTHING)
        return members

    def extremum(self, members: Keys, sign: int) -> Floats:
        """Return the value of a maximum (`sign` 1) or minimum; that of one member is the member."""
        if members.shape[1] == 1:
            return self.residues(members[:, 0])
        name = "maximum" if sign > 0 else "minimum"
        each = self.scramble(members, self.tag(name, "member"))
        total = np.where(members[0] == NOTHING, np.uint64(0), each).sum(axis=1, dtype=np.uint64)
        several = self.function(self.tag(name), total)
        alone = members[0, 1] == NOTHING
        return np.where(alone, self.residues(members[:, 0]), several) if alone.any() else several

    def extremum_of(self, terms: list[Terms], sign: int) -> Terms:
        """Return maxima (`sign` 1) or minima of terms of one shape."""
        shape = terms[0].shape
        terms = [self.fitting(term) for term in terms]
        keys = [self.keys(np.broadcast_to(t.value, (len(t.value), *shape))) for t in terms]
        members = np.stack(keys, axis=1)
        middle, radius, inside = hull(terms, sign)
        value = self.extremum(self.union(members, inside, sign), sign)
        return Terms(value, middle, radius)

    # ------------------------------------------------------------------------ sums of products

    def matmul(self, x: Floats, y: Floats) -> Floats:
        """Return the products, centred, of residues (planes, ..., M, K) and (planes, ..., K, N)."""
        self.degree = max(self.degree, 2)
        rows, columns = np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), y.shape[-1]
        total = np.empty((*rows, x.shape[-2], columns))
        step = max(1, AT_ONCE * columns // max(1, y.size, total.size))
        for first in range(0, columns, step):
            part = slice(first, first + step)
            total[..., part] = self._product(x, y[..., part])
        return total

    def _product(self, x: Floats, y: Floats) -> Floats:
        total: Any = 0.0
        for first in range(0, x.shape[-1], LONGEST_PRODUCT):
            left, right = (
                x[..., first : first + LONGEST_PRODUCT],
                y[..., first : first + LONGEST_PRODUCT, :],
            )
            high = np.rint(right * 2.0**-15)
            made = self.centred(np.matmul(left, high)) * 2.0**15
            made += np.matmul(left, right - high * 2.0**15)
            total = self.centred(made + total)
        return total  # type: ignore[no-any-return]


def _permuted(word: Keys, tag: Any) -> Keys:
    """Return a random permutation of 64 bits for each tag."""
    with np.errstate(over="ignore"):
        h: Keys = word + tag
        h ^= h >> _HALF
        h *= np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(29)
        h ^= tag
        h *= np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> _HALF
    return h


def _scaled(x: Terms, bits: Any) -> Terms:
    """Return terms with the ranges of ``2**bits`` times as much."""
    if not np.any(bits):
        return x
    scale = np.ldexp(1.0, bits)
    return replace(x, middle=scale * x.middle, radius=scale * x.radius)


def aligned(x: Any, y: Any) -> tuple[Any, Any]:
    """Return residues whose arrays broadcast, inserting axes of 1 after the axis of planes."""
    rank = max(x.ndim, y.ndim)
    first, second = (
        part.reshape(len(part), *[1] * (rank - part.ndim), *part.shape[1:]) for part in (x, y)
    )
    return first, second


def ends(x: Terms) -> tuple[Any, Any]:
    """Return the minimum and maximum of terms after their shift, before their clamp."""
    scale = np.ldexp(1.0, -np.asarray(x.shift))
    return np.floor((x.middle - x.radius) * scale), np.floor((x.middle + x.radius) * scale)


def hull(terms: list[Terms], sign: int) -> tuple[Any, Any, Any]:
    """Return the middle and radius of an extremum, and whether all terms are int8."""
    choose = np.maximum if sign > 0 else np.minimum
    bottom, top = terms[0].middle - terms[0].radius, terms[0].middle + terms[0].radius
    inside = (bottom >= -128) & (top <= 127)
    for term in terms[1:]:
        low, high = term.middle - term.radius, term.middle + term.radius
        inside = inside & (low >= -128) & (high <= 127)
        bottom, top = choose(bottom, low), choose(top, high)
    return (bottom + top) / 2, (top - bottom) / 2, inside


def is_prime(number: int) -> bool:
    """Return whether an odd number below 2**31 is prime."""
    return bool((number % np.arange(3, math.isqrt(number) + 1, 2)).all())
