"""Index: a position as a sum of loop variables; spans of positions; tensors that they index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from vtaops.base.shapes import ceil_div
from vtaops.lowering.tree.expressions import Expression
from vtaops.lowering.tree.nodes import Loop, TileBuffer, TileOperand


@dataclass(frozen=True)
class _Term:
    """A loop variable, or a quotient or remainder, with values ``0 ... extent - 1``."""

    source: str
    names: frozenset[str]
    extent: int


@dataclass(frozen=True)
class Index:
    """A linear combination of terms, plus a constant."""

    steps: Mapping[_Term, int] = field(default_factory=dict)
    constant: int = 0

    @staticmethod
    def of(loop: Loop) -> Index:
        """Return a loop's variable, or 0 for a single iteration."""
        if loop.extent == 1:
            return ZERO
        return Index({_Term(loop.name, frozenset([loop.name]), loop.extent): 1})

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.steps, self.constant + other)
        steps = dict(self.steps)
        for term, step in other.steps.items():
            steps[term] = steps.get(term, 0) + step
        steps = {term: step for term, step in steps.items() if step}
        return Index(steps, self.constant + other.constant)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        steps = {term: step * factor for term, step in self.steps.items()}
        return Index(steps, self.constant * factor)

    def __floordiv__(self, divisor: int) -> Index:
        whole, rest = self._split(divisor)
        steps = {term: step // divisor for term, step in whole.items()}
        quotient = Index(steps, self.constant // divisor)
        if rest.lowest >= 0 and rest.highest < divisor:
            return quotient
        assert rest.lowest >= 0, f"({rest}) // {divisor}"
        term = _Term(f"(({rest}) // {divisor})", rest.names, rest.highest // divisor + 1)
        return quotient + Index({term: 1})

    def __mod__(self, divisor: int) -> Index:
        _, rest = self._split(divisor)
        if rest.lowest >= 0 and rest.highest < divisor:
            return rest
        return Index({_Term(f"(({rest}) % {divisor})", rest.names, divisor): 1})

    def _split(self, divisor: int) -> tuple[dict[_Term, int], Index]:
        """Return the terms that are multiples of a divisor, and the remainder's."""
        whole = {term: step for term, step in self.steps.items() if step % divisor == 0}
        rest = {term: step for term, step in self.steps.items() if step % divisor}
        return whole, Index(rest, self.constant % divisor)

    @property
    def names(self) -> frozenset[str]:
        """The loop variables."""
        return frozenset[str]().union(*(term.names for term in self.steps))

    @property
    def lowest(self) -> int:
        """A lower bound: the minimum if the terms are independent."""
        least = (min(step, 0) * (term.extent - 1) for term, step in self.steps.items())
        return self.constant + sum(least)

    @property
    def highest(self) -> int:
        """An upper bound, as `lowest`."""
        most = (max(step, 0) * (term.extent - 1) for term, step in self.steps.items())
        return self.constant + sum(most)

    def __str__(self) -> str:
        terms = [f"{term.source} * {step}" for term, step in self.steps.items()]
        return " + ".join([*terms, str(self.constant)])

    @property
    def expression(self) -> Expression:
        """The value, compiled."""
        variables = all({term.source} == term.names for term in self.steps)
        return Expression(str(self), self.names, variables)

    def below(self, limit: int) -> list[Expression]:
        """Return the condition that the value is below a limit, if it can be violated."""
        if self.highest < limit:
            return []
        return [Expression(f"{self} < {limit}", self.names, False)]


ZERO = Index()
ONCE = Loop("", 1)


def within(positions: Iterable[tuple[Index, int]]) -> Expression | None:
    """Return the condition that each position lies in ``0 ... limit - 1``, if one may not."""
    terms, names = [], set[str]()
    for index, limit in positions:
        bounds = [f"(0 <= {index})"] * (index.lowest < 0) + [f"({index} < {limit})"] * (
            index.highest >= limit
        )
        terms += bounds
        names |= index.names if bounds else set()
    return Expression(" & ".join(terms), names, False) if terms else None


@dataclass(frozen=True)
class Span:
    """Consecutive positions along an axis: `extent` of them from `begin` on, all below `limit`."""

    name: str
    extent: int
    begin: Index = ZERO
    limit: int = 1 << 31

    @property
    def loop(self) -> Loop:
        """The loop over them."""
        return Loop(self.name, self.extent)

    @property
    def inside(self) -> Index:
        """The position, counted from the first."""
        return Index.of(self.loop)

    @property
    def position(self) -> Index:
        """The position along the axis."""
        return self.begin + self.inside

    @property
    def guards(self) -> list[Expression]:
        """The condition that the position exists, if the last tile overhangs."""
        return self.position.below(self.limit)


@dataclass(frozen=True)
class TiledAxis(Span):
    """An axis cut into tiles: the positions of one tile, the loop over tiles, the tile's number."""

    tiles: Loop = ONCE
    tile: Index = ZERO

    @staticmethod
    def cut(name: str, limit: int, size: int, threads: int = 1, thread: Index = ZERO) -> TiledAxis:
        """Cut an axis into tiles; virtual threads take neighbouring ones."""
        size = min(size, limit)
        tiles = Loop(f"{name}_tile", ceil_div(limit, size * threads))
        tile = Index.of(tiles) * threads + thread
        return TiledAxis(name, size, tile * size, limit, tiles, tile)


@dataclass(frozen=True)
class TileTensor:
    """A tensor on chip or in DRAM (scratchpad "").

    Attributes
    ----------
    name, scratchpad, dtype : str
        As of a `TileBuffer`.
    spans : tuple of Span
        What a tile of it spans; in DRAM, all.
    """

    name: str
    scratchpad: str
    dtype: str
    spans: tuple[Span, ...]

    @property
    def buffer(self) -> TileBuffer:
        """The buffer of the tree."""
        tiles = prod(span.extent for span in self.spans)
        return TileBuffer(self.name, self.scratchpad, tiles, self.dtype)

    @property
    def here(self) -> TileOperand:
        """The operand at the loops over its own spans."""
        return self.at(*(span.inside for span in self.spans))

    def at(self, *positions: Index) -> TileOperand:
        """Return the operand at a position, row-major; omitted axes are at 0."""
        place, step = ZERO, prod(span.extent for span in self.spans)
        for position, span in zip(positions, self.spans, strict=False):
            step //= span.extent
            place = place + position * step
        return TileOperand(self.buffer, place.expression)


def loops_of(spans: Sequence[Span]) -> tuple[Loop, ...]:
    """Return the loops over spans of more than one position."""
    return tuple(span.loop for span in spans if span.extent > 1)


def guards_of(spans: Sequence[Span]) -> tuple[Expression, ...]:
    """Return the conditions that all positions exist."""
    return tuple(guard for span in spans for guard in span.guards)
