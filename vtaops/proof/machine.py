"""Compute the terms of names: the results of a program's steps, by kind and depth.

The level of a step is one above that of its operands. Steps of a level with the same operation form
a group whose tiles are computed together; a group is freed after the last level that reads it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

import vtaops._proof as _proof
from vtaops.base.progress import tracked
from vtaops.base.shapes import Ints
from vtaops.machine.accesses import distinct
from vtaops.machine.alu import AluOp
from vtaops.machine.config import WINDOW_TILES
from vtaops.machine.isa import Post
from vtaops.machine.layout import expanded
from vtaops.program import Buffer
from vtaops.proof.names import MOST, NIBBLE, NameMachine, alike
from vtaops.proof.records import Unknown
from vtaops.proof.sums import LONGEST
from vtaops.proof.terms import (
    BYTE,
    NOTHING,
    RANGES,
    WORD,
    Fields,
    Floats,
    Keys,
    Terms,
    hull,
)

Numbers = npt.NDArray[np.integer[Any]]
"""Tiles of numbers, (tiles, scalars)."""
Image = npt.NDArray[np.generic] | Terms
"""Content of a buffer: numbers, or a term per scalar, flat."""
Operation = tuple[Any, ...]

TOGETHER = 1 << 13
"""Number of tiles that are computed together: the next ones reuse the memory of what is made on the
way, since new pages take longer to come than what is computed in them."""


class TermMachine:
    """Compute the terms of a program's results.

    Parameters
    ----------
    names : NameMachine
        The machine that executed the program.
    fields : Fields
        The fields.
    images : dict of str to ndarray or Terms
        Packed images that the host writes to the buffers.
    """

    def __init__(
        self,
        names: NameMachine,
        fields: Fields,
        images: Mapping[str, Image],
    ) -> None:
        self.names, self.fields, self.config = names, fields, names.config
        self._images = images
        self._contents: list[Terms | Numbers | None] = []
        self._sets: dict[int, tuple[int, Keys]] = {}
        """Of groups of maxima (1) or minima (-1): the keys of their members."""
        self._group, self._row, self._place = np.zeros((3, len(names.step_of)), np.int32)
        """For each name: its group, its place there, and its place among those that are read."""

    def run(self) -> None:
        steps, levels = self.names.steps, self.names.levels
        order, last = np.argsort(levels, kind="stable"), self.names.last_levels()
        forgotten: dict[int, list[int]] = defaultdict(list)
        every = np.split(order, np.cumsum(np.bincount(levels))[:-1])
        for level, level_numbers in enumerate(tracked("prove level", every)):
            for numbers in self._alike(level_numbers):
                made = self._made(steps.operations[steps.what[numbers[0]]], numbers)
                forgotten[int(last[numbers].max())].append(len(self._contents))
                self._keep(numbers, made)
            for group in forgotten.pop(level, ()):
                self._contents[group] = None
                self._sets.pop(group, None)

    def _alike(self, numbers: Ints) -> Iterator[Ints]:
        """Yield steps of a level that are computed together: the same operation on one group."""
        steps = self.names.steps
        what, arity = steps.what[numbers], steps.arity[numbers]
        first = steps.operands.take(steps.begin[numbers], mode="clip")
        of = np.where(arity > 0, self._group[first], -1 - numbers)
        for places in alike(what, arity, of):
            part = numbers[places]
            yield from _in_parts(part, steps.count[part])

    def _keep(self, numbers: Ints, made: Terms | Numbers) -> None:
        names = self.names.steps.names_of(numbers)
        self._group[names], self._row[names] = len(self._contents), np.arange(len(names))
        is_input = self.names.steps.arity[numbers[0]] == 0
        if is_input and isinstance(made, Terms):  # what packing left empty
            empty = names[~made.value.any(axis=(0, 2))]
            self._group[empty] = self._row[empty] = 0
        self._contents.append(made)

    def terms_of(self, buffer: int) -> Floats:
        """Return the content of a buffer that the program wrote."""
        lanes = self.config.out.lanes
        value = self._terms(self.names.held[buffer], (lanes,)).value
        return value.reshape(len(value), -1)

    def written_by(self, buffer: int) -> Ints:
        """Return the instruction that stored each scalar of a buffer."""
        return self.names.writers[buffer].repeat(math.prod(self.config.out.shape))

    # ------------------------------------------------------------------------ tiles by name

    def _terms(self, names: Ints, shape: tuple[int, ...]) -> Terms:
        rows: Any = self._row[names]
        groups = self._group[names]
        if (groups == groups[0]).all():
            return self._of_group(int(groups[0]), rows, shape)
        present, terms = np.flatnonzero(np.bincount(groups)), []
        number = np.zeros(present[-1] + 1, np.int32)
        number[present] = np.arange(len(present))
        which: Any = number[groups]
        for own, group in enumerate(present.tolist()):
            content = self._contents[group]
            if isinstance(content, np.ndarray):
                chosen = np.flatnonzero(which == own)
                content = self._of_group(group, rows[chosen], shape)
                rows[chosen] = np.arange(len(chosen))
            terms.append(content)
        planes, size = len(self.fields.primes), math.prod(shape)
        value = np.empty((planes, len(names), size))
        _proof.gather([t.value.reshape(planes, -1, size) for t in terms], which, rows, value)
        middle, radius, shift, low, high = (
            _merged([getattr(part, name) for part in terms], which, rows, shape) for name in RANGES
        )
        value = value.reshape(planes, len(names), *shape)
        degree = max(part.degree for part in terms)
        return Terms(value, middle, radius, shift, low, high, degree)

    def _of_group(self, group: int, rows: Any, shape: tuple[int, ...]) -> Terms:
        content = self._contents[group]
        if isinstance(content, np.ndarray):
            tiles = content[rows] if group else np.zeros((len(rows), *shape))
            return self.fields.numbers(tiles.reshape(len(rows), *shape))
        assert content is not None
        terms = content.taken(rows)
        value = terms.value.reshape(len(terms.value), len(rows), *shape)
        middle, radius = (
            part.reshape(len(rows), *shape) if np.ndim(part) else part
            for part in (terms.middle, terms.radius)
        )
        return replace(terms, value=value, middle=middle, radius=radius)

    def _groups(self, names: Ints) -> Iterator[tuple[int, Any, npt.NDArray[np.bool_]]]:
        """Yield the groups of names with their contents, and which names are theirs."""
        groups = self._group[names]
        for group in np.flatnonzero(np.bincount(groups.reshape(-1))).tolist():
            yield group, self._contents[group], groups == group

    def _numbers(self, names: Ints, shape: tuple[int, ...]) -> Numbers | None:
        """Return tiles as (*names.shape, *shape) if all of them are numbers, else None."""
        least, most = int(names.min(initial=MOST)), int(names.max(initial=0))
        near = most - least < 4 * names.size  # then each is looked up once
        used = distinct(names.reshape(-1)) if near else names
        rows = self._row[used]
        tiles = np.zeros((*used.shape, *shape), np.int32)
        for group, content, chosen in self._groups(used):
            if not isinstance(content, np.ndarray):
                return None
            if group:
                tiles[chosen] = content[rows[chosen]].reshape(-1, *shape)
        if not near:
            return tiles
        places = np.zeros(most + 1 - least, np.int64)
        places[used - least] = np.arange(len(used))
        return tiles.take(places[names - least], axis=0)

    # ---------------------------------------------------------------------------- operations

    def _made(self, what: Operation, numbers: Ints) -> Any:
        match what:
            case ("zeros",):
                return np.zeros((1, 1), np.int8)
            case "given", buffer, nbytes, scalar:
                return self._given(self.names.program.buffers[buffer], nbytes, scalar)
            case "fill", value, unit:
                return np.full((1, unit), value, np.int8)
            case ("sum",):
                made = self._sums(numbers)
            case _:
                made = self._operation(what, self.names.steps.operands_of(numbers))
        tiles = made.value.shape[1]

        def spread(part: Any) -> Any:
            part = np.asarray(part)
            fits = part.ndim == 0 or part.shape[:1] == (tiles,)
            return part if fits else np.broadcast_to(part, made.shape)

        return made.ranged(spread)

    def _operation(self, what: Operation, operands: list[Ints]) -> Any:
        match what:
            case "cast", part, nbytes, scalar:
                return self._cast(operands[0], part, nbytes, scalar)
            case "extremum", sign:
                return self._extremum(sign, operands)
            case "post", post:
                return self._post(post, *operands)
        _, op, imm = what
        return self._alu(op, imm, *(self._terms(o, self.config.acc.shape) for o in operands))

    def _given(self, buffer: Any, nbytes: int, scalar: float) -> Terms | Numbers:
        """Return a host-written buffer's elements, each split into scalars of `scalar` bytes."""
        image = self._images.get(buffer.name)
        if not isinstance(image, Terms):
            return _elements_of(buffer, image, nbytes, scalar)
        size = NIBBLE if buffer.layout.nibbles else np.dtype(buffer.dtype).itemsize
        return self._elements(image.value, size, nbytes, scalar)

    def _elements(self, value: Floats, given: float, nbytes: int, scalar: float) -> Terms:
        """Return elements of scalars that were given in this size."""
        if given != scalar:
            raise Unknown(f"it loads scalars of {given} bytes as such of {scalar}")
        count = int(nbytes / scalar)
        value = value[:, : value.shape[1] // count * count].reshape(len(value), -1, count)
        return Terms(value, *map(np.float64, WORD if scalar == 4 else BYTE))

    def _cast(self, tiles: Ints, part: int, nbytes: int, scalar: int) -> Terms:
        """Return elements whose size differs from that of the stored ones."""
        value = self._terms(tiles.reshape(-1), (self.config.out.lanes,)).value
        value = value.reshape(len(value), len(tiles), -1)[..., part * nbytes : (part + 1) * nbytes]
        return self._elements(value.reshape(len(value), -1), 1, nbytes, scalar)

    # ------------------------------------------------------------------------------ ALU, POST

    def _alu(self, op: AluOp, imm: Any, x: Terms, y: Terms | None = None) -> Terms:
        """Return the result of an operation on tiles and an immediate, or on two tiles."""
        fields = self.fields
        other = fields.numbers(imm) if y is None else y
        match op, y is None:
            case AluOp.MIN, _:
                return fields.clamped(x, -np.inf, imm)
            case AluOp.MAX, _:
                return fields.clamped(x, imm, np.inf)
            case AluOp.ADD, _:
                return fields.sum(x, other)
            case AluOp.SHR, True:
                return fields.shifted(x, imm)
            case AluOp.MUL, _:
                return fields.product_of(x, other)
        return fields.opaque(op.name, x, other)

    def _extremum(self, sign: int, operands: list[Ints]) -> Terms:
        sets = [self._members(names, sign) for names in operands]
        middle, radius, inside = hull([terms for _, terms in sets], sign)
        members = np.concatenate([members for members, _ in sets], axis=1)
        members = self.fields.union(members, inside, sign)
        self._sets[len(self._contents)] = sign, members
        return Terms(self.fields.extremum(members, sign), middle, radius)

    def _members(self, names: Ints, sign: int) -> tuple[Keys, Terms]:
        """Return tiles as sets of members, and as terms."""
        terms = self.fields.fitting(self._terms(names, self.config.acc.shape))
        known = {group: own for group, (of, own) in self._sets.items() if of == sign}
        groups = [found for found in self._groups(names) if found[0] in known]
        most = max([known[group].shape[1] for group, *_ in groups], default=1)
        keys = self.fields.keys(terms.value)[:, None]
        members = np.full((len(keys), most, *terms.shape), NOTHING)
        members[:, :1] = keys
        for group, _, chosen in groups:
            own: Any = known[group][:, :, self._row[names[chosen]]]
            members[:, : own.shape[1], chosen] = own
        return members, terms

    def _post(self, post: Post, acc: Ints, bias: Ints, scale: Ints, table: Ints) -> Terms:
        x, row = self._terms(acc, self.config.acc.shape), self.config.post.shape
        if not post.enable:
            return self.fields.byte(x)
        multiplier: Any = post.multiplier
        shift: Any = post.shift
        if post.use_scale:
            words = self._terms(scale, row) if post.fine else self._content(scale, row)
            multiplier, shift = words, -post.fine
            if not isinstance(words, Terms):
                multiplier, shift = words & 0xFFFF, words >> 16 & 0x3F
        x = self.fields.requantized(
            x,
            multiplier,
            shift,
            post.zero_point,
            (post.low, post.high),
            bool(post.round_half),
            self._content(bias, row) if post.use_bias else None,
        )
        return self._mapped(x, table) if post.use_table else x

    def _content(self, names: Ints, shape: tuple[int, ...]) -> Terms | Numbers:
        numbers = self._numbers(names, shape)
        return self._terms(names, shape) if numbers is None else numbers

    def _mapped(self, x: Terms, tables: Ints) -> Terms:
        value = np.empty(x.value.shape)
        for name in np.unique(tables).tolist():
            chosen = np.flatnonzero(tables == name)
            table = self._numbers(np.array([name]), self.config.table.shape[-1:])
            if table is None:
                raise Unknown("it computes a table")
            part = Terms(x.value[:, chosen], *BYTE)
            value[:, chosen] = self.fields.mapped(part, table[0].astype(np.int8)).value
        return Terms(value, *map(np.float64, BYTE))

    # --------------------------------------------------------------------- sums of products

    def _sums(self, numbers: Ints) -> Terms:
        """Return sums of products; those of the same inputs and weights are matrix products."""
        products = self.names.products_of(numbers)
        used = distinct(products[1])
        self._place[used] = np.arange(len(used))
        count, shape = int(self.names.steps.count[numbers].sum()), self.config.acc.shape
        inputs = np.zeros((1, 0, *self.config.inp.shape))
        if len(used):
            inputs = self._terms(used, self.config.inp.shape).value
        value = np.zeros((len(self.fields.primes), count, *shape))
        middle, radius = np.zeros((2, count, *shape))
        for tiles, place, rows, columns in matrices(*products):
            values = self._weights(columns)
            long = values.ndim > 4 or rows.shape[1] * shape[1] > LONGEST
            matmul = self.fields.matmul if long else np.matmul
            made = self._matrix(inputs.take(self._place[rows], axis=1), values, matmul)
            value[:, tiles] += self.fields.centred(made.take(place, axis=1))
            for whole, part in zip(
                (middle, radius), self._ranges(rows, values, place), strict=True
            ):
                whole[tiles] += part
        terms = Terms(self.fields.centred(value), middle, radius, degree=2)
        (base,) = self.names.steps.operands_of(numbers)
        if base.any():
            terms = self.fields.sum(self._terms(base, self.config.acc.shape), terms)
        return terms

    def _weights(self, codes: Ints) -> Floats:
        """Return weights (columns, terms, lanes out, lanes in); terms follow the axis of planes."""
        shape, names, tiles = self.config.wgt.shape, codes >> 2, codes & 3
        weights: Any = self._numbers(names, shape)
        if weights is None:
            value = self._terms(names.reshape(-1), shape).value
            weights = value.reshape(len(value), *names.shape, *shape)
        values: Floats = weights.astype(np.float64, copy=False)
        channels, (outputs, _) = self.config.window_channels, shape
        output, channel = np.ogrid[:outputs, :channels]
        lane = output // channels * channels + channel
        for tile in range(1, WINDOW_TILES + 1):
            chosen = tiles == tile
            if chosen.any():
                rows = values[..., chosen, :, :]
                dense = np.zeros_like(rows)
                dense[..., output, lane] = rows[..., output, (tile - 1) * channels + channel]
                values[..., chosen, :, :] = dense
        return values

    def _matrix(self, inputs: Floats, weights: Floats, matmul: Any = np.matmul) -> Floats:
        """Return sums of products, (planes, rows * columns, ...)."""
        batch, lanes = self.config.inp.shape
        *planes, columns, terms, outputs, _ = weights.shape
        matrix = weights.swapaxes(-3, -2).reshape(*planes, columns * outputs, terms * lanes)
        rows = inputs.swapaxes(2, 3).reshape(len(inputs), -1, terms * lanes)
        made = matmul(rows, matrix.swapaxes(-1, -2))
        made = made.reshape(len(made), -1, batch, columns, outputs).swapaxes(2, 3)
        return made.reshape(len(made), -1, batch, outputs)  # type: ignore[no-any-return]

    def _ranges(self, sources: Ints, weights: Floats, place: Ints) -> tuple[Floats, Floats]:
        """Return middles and radii of sums of products: of int8 tiles, or of numbers."""
        known = np.full(sources.shape, -1)
        for group, content, chosen in self._groups(sources):
            if isinstance(content, np.ndarray):
                known[chosen] = sources[chosen] if group else 0
        patterns, which = unique_rows(known)
        free: Any = (patterns < 0)[..., None, None]
        numbers: Any = self._numbers(np.maximum(patterns, 0), self.config.inp.shape)
        middle, radius = (
            np.where(free, part, other)[None]
            for part, other in zip(BYTE, (numbers, 0 * numbers), strict=True)
        )
        centres: Any = weights
        widths: Any = np.abs(weights)
        if weights.ndim > 4:  # terms, of which some are 0
            used = weights.any(axis=0)
            centres, widths = BYTE[0] * used, 128.0 * used
            radius += np.abs(middle) * (BYTE[1] / 128)
        row, column = divmod(place, len(centres))
        place = which.take(row, mode="clip") * len(centres) + column
        made = self._matrix(middle, centres), self._matrix(radius, widths)
        return made[0][0].take(place, axis=0), made[1][0].take(place, axis=0)


def _merged(parts: list[Any], which: Ints, rows: Ints, shape: tuple[int, ...]) -> Any:
    """Return the rows of the parts that `which` says; one number if all have the same."""
    if not any(map(np.ndim, parts)) and (np.array(parts) == parts[0]).all():
        return parts[0]
    whole = np.empty((len(rows), *shape), np.result_type(*parts))
    for own, part in enumerate(parts):
        chosen = which == own
        if np.ndim(part):
            part = part.take(rows[chosen], axis=0)
            part = part.reshape(len(part), *(shape if part[0].size > 1 else [1] * len(shape)))
        whole[chosen] = part
    return whole


def _in_parts(numbers: Ints, counts: Ints) -> Iterator[Ints]:
    """Yield steps, together as many as have `TOGETHER` tiles or few more."""
    ends, begin = np.cumsum(counts), 0
    while begin < len(numbers):
        before = ends[begin] - counts[begin]
        end = 1 + int(np.searchsorted(ends, before + TOGETHER))
        yield numbers[begin:end]
        begin = end


def _elements_of(buffer: Buffer, image: Any, nbytes: int, scalar: float) -> Numbers:
    """Return the elements of a buffer of numbers, by default its own."""
    flat = np.ascontiguousarray(buffer.constant_image() if image is None else image)
    flat = flat.reshape(-1).view(np.uint8)
    rows = flat[: len(flat) // nbytes * nbytes].reshape(-1, nbytes)
    if scalar == NIBBLE:
        return expanded(rows)
    return rows.view("<i4" if scalar == 4 else "i1")


TILES_AT_ONCE = 1 << 12
"""Number of weight tiles of one matrix product: 8 MB, which a cache holds."""


def matrices(sums: Ints, sources: Ints, weights: Ints) -> Iterator[tuple[Any, ...]]:
    """Yield products as matrix products: sums, the place of each, sources and weights.

    Each sum is an element of a matrix, in the row of its sources, (rows, terms), and
    the column of its weights, (columns, terms). Rows that need the same columns are grouped.
    """
    order = np.sort(sums.astype(np.int64) << 32 | np.arange(len(sums))) & (1 << 32) - 1
    sources, weights = sources[order], weights[order]
    counts = np.bincount(sums)
    begins = np.cumsum(counts) - counts
    for count in np.unique(counts[counts > 0]).tolist():
        alike = np.flatnonzero(counts == count)
        terms = begins[alike, None] + np.arange(count)
        (rows, row), (columns, column) = (unique_rows(part[terms]) for part in (sources, weights))
        needed = np.zeros(len(rows), np.int64)
        np.add.at(
            needed, row, np.random.default_rng(0).integers(1 << 40, size=len(columns))[column]
        )
        needs = np.unique(needed, return_inverse=True)[1][row]
        order = np.argsort(needs, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(needs[order])) + 1):
            by_column = part[np.argsort(column[part], kind="stable")]
            wanted = len(np.unique(column[part]))
            pieces = min(wanted, 1 + wanted * count // TILES_AT_ONCE)
            for piece in np.array_split(by_column, pieces):
                (own, x), (others, y) = (
                    np.unique(which[piece], return_inverse=True) for which in (row, column)
                )
                yield alike[piece], x * len(others) + y, rows[own], columns[others]


def unique_rows(rows: Ints) -> tuple[Ints, Ints]:
    """Return the distinct rows, and the index of each row among them."""
    factors = np.random.default_rng(0).integers(1, 1 << 40, rows.shape[1])
    _, first, inverse = np.unique(rows @ factors, return_index=True, return_inverse=True)
    unique: Ints = rows[first]
    if (unique[inverse] != rows).any():  # two rows had the same hash
        unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    return unique, inverse.reshape(-1)
