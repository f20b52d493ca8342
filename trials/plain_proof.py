"""The loops of the proof in C++ (`sim/proof`) with NumPy: the walk on names, arithmetic of terms.

`PlainNames` and `PlainFields` take the places of the classes that they extend; tests hold both to
equal names, residues and ranges.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops import HardwareConfig, Program
from vtaops.base.shapes import Ints
from vtaops.machine.accesses import distinct
from vtaops.machine.alu import AluOp
from vtaops.machine.config import POST_ROWS, WINDOW_TILES, Extension, Memory
from vtaops.machine.isa import (
    Alu,
    Depthwise,
    Encoding,
    Gemm,
    Load,
    LoopInstruction,
    Pool,
    Post,
    Store,
)
from vtaops.program import Role
from vtaops.proof.names import MOST, NIBBLE, PLACES, NameMachine, Names
from vtaops.proof.records import Unknown
from vtaops.proof.terms import NOTHING, ZERO, Fields, Floats, Keys, Terms, _permuted, ends

# ------------------------------------------------------------------------------------- terms


class PlainFields(Fields):
    """Prime fields whose loops are those of NumPy."""

    def centred(self, value: Floats) -> Floats:
        for number, prime in enumerate(self.primes):
            plane = value[number : number + 1]
            plane -= np.rint(plane * (1.0 / prime)) * prime
        return value

    def product(self, x: Floats, y: Floats) -> Floats:
        high = np.rint(y * 2.0**-15)
        made = self.centred(x * high) * 2.0**15
        made += x * (y - high * 2.0**15)
        return self.centred(made)

    def keys(self, value: Floats) -> Keys:
        words = []
        for number, prime in enumerate(self.primes):
            plane = value[number]
            words.append((plane + (plane < 0) * float(prime)).astype(np.uint64))
        keys: Keys = np.array(words[::2])
        for number, high in enumerate(words[1::2]):
            keys[number] |= high << np.uint64(32)
        return keys

    def scramble(self, keys: Keys, tag: Any) -> Keys:
        words = [*keys]
        for number in range(len(words)):
            words[number] = _permuted(words[number], tag + words[number - 1] * (number > 0))
        for number in range(len(words) - 2, -1, -1):
            words[number] = _permuted(words[number], tag + words[number + 1])
        return np.array(words)

    def _numbers(self, x: Terms) -> Iterator[tuple[Any, Any]]:
        """Yield which terms are numbers for all inputs, and these numbers after their shift."""
        shift = np.asarray(x.shift)
        yield self.is_number(x.value), np.floor(np.ldexp(x.value[0], -shift))
        if len(self.primes) > 2 and (shift > 1).any():
            halves = self.power(x.value, 1 - np.maximum(shift, 1))
            yield self.is_number(halves), np.floor(np.where(shift > 0, halves[0] / 2, halves[0]))

    def _hashed(self, x: Terms, changed: Any) -> Floats:
        hashed = self.function(self._clamps(x), self.keys(x.value))
        value = np.where(changed, hashed, x.value)
        for number, exact in self._numbers(x):
            value = np.where(changed & number, np.clip(exact, x.low, x.high), value)
        return np.where(changed & (x.low == x.high), x.low, value)

    def _forced_ranges(self, x: Terms, where: Any) -> tuple[Any, Any, Any]:
        low, high = x.low, x.high
        bottom, top = ends(Terms(ZERO[None], x.middle, x.radius, x.shift))
        changed = where & ((x.shift > 0) | ~((low <= bottom) & (high >= top)))
        first, last = np.clip(bottom, low, high), np.clip(top, low, high)
        middle = np.where(changed, (first + last) / 2, x.middle)
        return changed, middle, np.where(changed, (last - first) / 2, x.radius)

    def _requantized_at_once(self, *_: Any) -> None:
        """Leave it to the steps of which a requantization consists."""

    def sets(self, members: Keys) -> Keys:
        members = _sorted(members)
        again = (members[:, 1:] == members[:, :-1]).all(axis=0)
        np.copyto(members[:, 1:], NOTHING, where=again)
        return _sorted(members)


def _sorted(members: Keys) -> Keys:
    """Return sets of keys sorted by their first words."""
    order = np.argsort(members[0], axis=0)
    return np.array([np.take_along_axis(word, order, axis=0) for word in members])


# ------------------------------------------------------------------------------------- names


class PlainNames(NameMachine):
    """A VTA that computes on names, one instruction after the other."""

    def __init__(self, program: Program) -> None:
        self.program, self.config = program, program.config
        self._loops = PlainMachine(program)

    def _operations(self) -> list[tuple[Any, ...]]:
        return self._loops.operations()


@dataclass(eq=False, slots=True)
class TileStep:
    """Tiles created by one operation.

    Attributes
    ----------
    what : tuple
        The operation and its parameters. TileSteps with equal values can be computed together.
    operands : list of ndarray of int64
        Names of the operands, (tiles, ...).
    first : int
        Name of its first tile; the others are consecutive.
    count : int
        Number of tiles.
    instruction : int
        Instruction that created them; for sums, the first that added to them.
    """

    what: tuple[Any, ...]
    operands: list[Names]
    first: int
    count: int
    instruction: int


class Dram:
    """The names in buffers: of any elements of host-written buffers, and of OUT elements in others.

    Attributes
    ----------
    names, writers : dict of int to ndarray of int64
        For buffers that the program writes: the name of each element of the output memory, and
        the instruction that stored it.
    """

    def __init__(self, machine: PlainMachine) -> None:
        program, self._machine = machine.program, weakref.proxy(machine)
        self._unit = unit = program.config.dram_element_bytes(Memory.OUT)
        arena = np.zeros((2, -(-program.arena_nbytes // unit)), np.int64)
        self.names: dict[int, Ints] = {}
        self.writers: dict[int, Ints] = {}
        self._given: dict[tuple[Any, ...], int] = {}
        for number, buffer in enumerate(program.buffers):
            if buffer.role not in (Role.OUTPUT, Role.SCRATCH):
                continue
            size = -(-buffer.nbytes // unit)
            own = np.zeros((2, size), np.int64)
            if buffer.fill is not None:
                own[0] = machine.make(("fill", buffer.fill, unit), 1)[0]
            elif buffer.offset is not None and buffer.offset % unit == 0:
                own = arena[:, buffer.offset // unit : buffer.offset // unit + size]
            self.names[number], self.writers[number] = own

    def read(self, buffer: int, index: Ints, nbytes: int, scalar: float) -> Ints:
        """Return the names of elements of `nbytes` bytes, in scalars of so many bytes."""
        if buffer not in self.names:
            return self._first(buffer, nbytes, scalar) + index
        if scalar == NIBBLE:
            raise Unknown("it loads as weights of four bits what it stored before")
        if (nbytes, scalar) == (self._unit, 1):
            return self.names[buffer][index]
        count = max(1, nbytes // self._unit)
        start = index * nbytes
        tiles = self.names[buffer][(start // self._unit)[:, None] + np.arange(count)]
        parts = start % self._unit // nbytes if nbytes < self._unit else np.zeros_like(index)
        made = np.empty_like(index)
        for part in np.unique(parts).tolist():
            chosen = np.flatnonzero(parts == part)
            what = "cast", part, nbytes, scalar
            made[chosen] = self._machine.make(what, len(chosen), tiles[chosen])
        return made

    def _first(self, buffer: int, nbytes: int, scalar: float) -> int:
        """Return the name of the first element of a host-written buffer."""
        key = "given", buffer, nbytes, scalar
        if key not in self._given:
            count = self._machine.program.buffers[buffer].nbytes // nbytes
            self._given[key] = int(self._machine.make(key, count)[0])
        return self._given[key]


class PlainMachine:
    """The walk of `_proof.Names`; keeps all products, 12 bytes each."""

    def __init__(self, program: Program) -> None:
        config = program.config
        self.program, self.config = program, config
        self._made: list[TileStep] = []
        self._levels = np.zeros(1024, np.int64)
        """Level of each step: one above the levels of its operands."""
        self._open = np.zeros(1024, np.bool_)
        """Which steps are unused sums, to which products may still be added."""
        self._step_of = np.zeros(1 << 16, np.int32)
        self._count = 0
        """Number of names."""
        self._multiplied: dict[int, list[tuple[Names, Sequence[Names]]]] = defaultdict(list)
        """For steps that are sums: what GEMMs that add to them read, and their products."""
        self._index = -1
        self.make(("zeros",), 1)
        self._dram = Dram(self)
        self.sram = {
            memory: np.zeros(config.scratchpad(memory).depth, np.int32)
            for memory in (Memory.INP, Memory.WGT, Memory.ACC, Memory.POST, Memory.TABLE)
        }
        self.uop = np.zeros((config.uop.depth, 3), np.int64)
        self._post, self._setting = Post(), 0
        """The current setting, and its number."""
        self._posts = {Post(): 0}
        """The different settings so far, without what says when and where they act."""
        self._kinds = [*self._posts]
        """The same by number."""
        self._settings = np.zeros((4, config.acc.depth), np.int64)
        """For each element of the output memory: its POST, and names of bias, scale and table."""

    def run(self) -> None:
        micro_ops = Encoding.of(self.config).decode_micro_ops(self.program.micro_ops)
        relocations = self.program.relocations.tolist()
        for index, instruction in enumerate(self.program.decode()):
            self._index = index
            match instruction:
                case Load(memory=Memory.UOP) if not instruction.is_nop:
                    first, size = instruction.dram_base, instruction.x_size
                    base = instruction.sram_base
                    self.uop[base : base + size] = micro_ops[first : first + size]
                case Load() if not instruction.is_nop:
                    self._load(instruction, relocations[index])
                case Store() if not instruction.is_nop:
                    tiles = instruction.sram_base + np.arange(instruction.sram_size)
                    names, places = self._outputs(tiles), _rows(instruction)
                    for what, stored in ((self._dram.names, names), (self._dram.writers, index)):
                        what[relocations[index]][places] = stored
                case Post():
                    self._post, key = instruction, replace(instruction, **PLACES)
                    self._setting = self._posts.setdefault(key, len(self._posts))
                    if self._setting == len(self._kinds):
                        self._kinds.append(key)
                case Gemm() | Alu() | Pool() if instruction.iterations:
                    self._loop(instruction)

    # -------------------------------------------------------------------------------- names

    def make(self, what: tuple[Any, ...], count: int, *operands: Names) -> Ints:
        number, first = len(self._made), self._count
        if number == len(self._levels):
            self._levels = np.concatenate([self._levels, np.zeros_like(self._levels)])
            self._open = np.concatenate([self._open, np.zeros_like(self._open)])
        if first + count > MOST:
            raise Unknown(f"it has more than {MOST} tiles")
        while first + count > len(self._step_of):
            self._step_of = np.concatenate([self._step_of, np.zeros_like(self._step_of)])
        self._count += count
        self._step_of[first : self._count] = number
        self._made.append(TileStep(what, [*operands], first, count, self._index))
        if operands:
            used = self._step_of[np.concatenate(operands, axis=None)]
            self._open[used] = False
            self._levels[number] = 1 + self._levels[used].max()
        return np.arange(first, self._count)

    def _outputs(self, index: Ints) -> Ints:
        """Return the names of elements of the output memory."""
        settings, acc = self._settings[:, index], self.sram[Memory.ACC][index]
        kinds = settings[0]
        made = np.empty_like(index)
        for number in distinct(kinds).tolist():
            chosen = np.flatnonzero(kinds == number)
            operands = acc[chosen], *settings[1:, chosen]
            made[chosen] = self.make(("post", self._kinds[number]), len(chosen), *operands)
        return made

    # --------------------------------------------------------------------------------- LOAD

    def _load(self, i: Load, buffer: int) -> None:
        memory = Memory(i.memory)
        names = self._outputs(_rows(i)) if i.forward else self._from_dram(i, buffer)
        first = i.sram_base + i.y_pad_top * i.sram_row + i.x_pad_left
        sram = self.sram[Memory.ACC if memory == Memory.ACC_8BIT else memory]
        sram[i.sram_base : i.sram_base + i.sram_size] = 0
        sram[first + _grid(i.y_size, i.x_size << i.nibbles, i.sram_row)] = names

    def _from_dram(self, i: Load, buffer: int) -> Ints:
        nbytes = self.config.dram_element_bytes(Memory(i.memory))
        if i.nibbles:
            rows = 2 * i.dram_base + _grid(i.y_size, 2 * i.x_size, 2 * i.x_stride)
            return self._dram.read(buffer, rows, nbytes // 2, NIBBLE)
        scalar = 4 if i.memory in (Memory.ACC, Memory.POST) else 1
        return self._dram.read(buffer, _rows(i), nbytes, scalar)

    # ----------------------------------------------------------------------- GEMM, ALU, POOL

    def _loop(self, i: LoopInstruction) -> None:
        micro_ops = self.uop[i.uop_begin : i.uop_end].copy()
        plan = Iterations(i, micro_ops, sharing(self.config, i, micro_ops))
        if i.reset:
            zeros = np.zeros_like(plan.written)
            self.sram[Memory.ACC][plan.written] = self._sums(zeros)
            return
        self._set_post(i, plan)
        match i:
            case Gemm():
                self._gemm(i, plan)
            case Alu():
                self._alu(i, plan)
            case Pool():
                self._pool(i, plan)

    def _set_post(self, i: LoopInstruction, plan: Iterations) -> None:
        post = self._post
        if len(self._posts) == 1:
            return
        kinds, biases, scales, tables = self._settings
        kinds[plan.written] = self._setting
        tables[plan.written] = self.sram[Memory.TABLE][post.table_index] if post.use_table else 0
        bias: Any = 0
        scale: Any = 0
        if post.reads_row:
            rows = post.row + plan.rows(post.row_factor_out, post.row_factor_in)
            parameters = self.sram[Memory.POST]
            bias = parameters[rows] if post.use_bias else 0
            scale = parameters[POST_ROWS + rows] if post.use_scale else 0
        biases[plan.written], scales[plan.written] = bias, scale

    def _sums(self, base: Names) -> Ints:
        """Return the names of new sums, to which products may be added."""
        names = self.make(("sum",), len(base), base)
        self._open[len(self._made) - 1] = True
        return names

    def _gemm(self, i: Gemm, plan: Iterations) -> None:
        acc, inputs, tiles = (self.sram[memory] for memory in (Memory.ACC, Memory.INP, Memory.WGT))
        sums = self._opened(acc, plan.written, bool(i.overwrite))
        read = np.concatenate([inputs[plan.inputs], tiles[plan.tiles]])
        level = 1 + self._levels[self._step_of[read]].max()
        products = plan.products(acc, inputs, tiles)
        for number in sums:
            self._levels[number] = max(self._levels[number], level)
            chosen = self._step_of[products[0]] == number
            self._multiplied[number].append((read, [part[chosen] for part in products]))

    def products(self, numbers: Ints) -> Sequence[Names]:
        """Return the products that steps add, as `NameMachine.products_of`."""
        found, begin = [(np.zeros(0, np.int32),) * 3], 0
        for number in numbers.tolist():
            step = self._made[number]
            for _, (sums, *factors) in self._multiplied.get(number, ()):
                found.append((sums - step.first + begin, *factors))
            begin += step.count
        return [np.concatenate(part) for part in zip(*found, strict=True)]

    def last_levels(self) -> Ints:
        """Return the last level that reads each step, or -1."""
        last = np.full(len(self._made), -1)
        for number, step in enumerate(self._made):
            read = [*step.operands, *(names for names, _ in self._multiplied.get(number, ()))]
            if read:
                steps = self._step_of[np.concatenate(read, axis=None)]
                last[steps] = np.maximum(last[steps], self._levels[number])
        return last

    def steps(self) -> Ints:
        """Return a row for each step, with the columns of `TileSteps` in their order."""
        sizes = [sum(map(np.size, step.operands)) for step in self._made]
        begins = np.cumsum([0, *sizes])[:-1]
        known = {what: number for number, what in enumerate(self.operations())}
        return np.array(
            [
                (known[s.what], len(s.operands), s.first, s.count, s.instruction, begin)
                for s, begin in zip(self._made, begins.tolist(), strict=True)
            ]
        )

    def operations(self) -> list[tuple[Any, ...]]:
        """Return the different operations of steps."""
        return [*dict.fromkeys(step.what for step in self._made)]

    def operands(self) -> Names:
        """Return the operands of all steps."""
        every = (names.reshape(-1) for step in self._made for names in step.operands)
        return np.concatenate([np.zeros(0, np.int32), *every])

    def levels(self) -> Ints:
        """Return the level of each step."""
        return self._levels[: len(self._made)]

    def step_of(self) -> Names:
        """Return the step of each name."""
        return self._step_of[: self._count]

    def written(self) -> dict[int, tuple[Names, Names]]:
        """Return the names in buffers, and the instructions that stored them."""
        return {k: (names, self._dram.writers[k]) for k, names in self._dram.names.items()}

    def _opened(self, acc: Names, places: Ints, overwrite: bool) -> list[int]:
        """Return the steps of the sums in accumulators; where none is open, begin new ones."""
        if overwrite:
            acc[places] = self._sums(np.zeros_like(places))
            return [len(self._made) - 1]
        names = acc[places]
        closed = ~self._open[self._step_of[names]]
        if closed.any():
            acc[places[closed]] = self._sums(names[closed])
        return [*distinct(self._step_of[acc[places]]).tolist()]

    def _alu(self, i: Alu, plan: Iterations) -> None:
        acc, op = self.sram[Memory.ACC], AluOp(i.alu_op)
        for dst, src in plan.batches:
            names = (acc[dst],) if i.use_imm else (acc[dst], acc[src])
            what: tuple[Any, ...] = "alu", op, i.imm if i.use_imm else None
            if op in (AluOp.MIN, AluOp.MAX) and not i.use_imm:
                what = "extremum", 1 if op == AluOp.MAX else -1
            acc[dst] = self.make(what, len(dst), *names)

    def _pool(self, i: Pool, plan: Iterations) -> None:
        acc = self.sram[Memory.ACC]
        for dst, src in plan.batches:
            tiles = (self.sram[Memory.INP][src + tile] for tile in range(i.tiles))
            others = () if i.overwrite else (acc[dst],)
            acc[dst] = self.make(("extremum", 1), len(dst), *tiles, *others)


def _rows(i: Load | Store) -> Ints:
    """Return the elements that a LOAD reads, or those that a STORE writes."""
    return i.dram_base + _grid(i.y_size, i.x_size, i.x_stride)


@lru_cache(maxsize=1024)
def _grid(count: int, length: int, stride: int) -> Ints:
    """Return the elements of rows, the first of which starts at element 0."""
    index: Ints = np.add.outer(np.arange(count) * stride, np.arange(length)).reshape(-1)
    return index


class Iterations:
    """The iterations of an instruction.

    Attributes
    ----------
    written, inputs, tiles : ndarray of int64
        The different accumulators that it writes, its sources, and tiles of weights.
    own : bool
        Whether sources are accumulators.
    """

    def __init__(self, i: LoopInstruction, micro_ops: Ints, shares: npt.NDArray[np.bool_]) -> None:
        self._instruction, self._micro_ops, self._shares = i, micro_ops, shares
        self.own = isinstance(i, Alu) and not _is_immediate(i)
        self.written = distinct(elements(i, "dst", micro_ops[:, 0]))
        if isinstance(i, Gemm):
            self.inputs = distinct(elements(i, "src", micro_ops[:, 1]))
            self.tiles = distinct(elements(i, "wgt", micro_ops[:, 2]))
        if isinstance(i, Depthwise):
            self.inputs = distinct(np.add.outer(self.inputs, np.arange(WINDOW_TILES)).reshape(-1))

    @cached_property
    def dst(self) -> Ints:
        """The accumulator of each iteration."""
        return elements(self._instruction, "dst", self._micro_ops[:, 0])

    @cached_property
    def src(self) -> Ints:
        i = self._instruction
        alone = i.reset or _is_immediate(i)
        return self.dst if alone else elements(i, "src", self._micro_ops[:, 1])

    @cached_property
    def last(self) -> Ints:
        """The last iteration that writes each accumulator."""
        last = np.zeros(self.written[-1] + 1, np.int64)
        last[self.dst] = np.arange(len(self.dst))  # of several values the last one stays
        return last[self.written]

    def rows(self, outer: int, inner: int) -> Ints:
        """Return the row of parameters of each accumulator, for these steps of the two loops."""
        i = self._instruction
        rows = np.add.outer(np.arange(i.iter_out) * outer, np.arange(i.iter_in) * inner)
        found: Ints = rows.reshape(-1).repeat(i.uop_end - i.uop_begin)[self.last]
        return found

    def products(self, acc: Names, inputs: Names, tiles: Names) -> Sequence[Names]:
        """Return the names that a GEMM reads in each step: sums, inputs and weights, times four."""
        dst, src, wgt = self._places
        weights = 4 * tiles[wgt]
        if isinstance(self._instruction, Depthwise):
            window = np.arange(WINDOW_TILES, dtype=np.int32)
            pairs = (dst, 0 * window), (src, window), (weights, 1 + window)
            dst, src, weights = (np.add.outer(part, more).reshape(-1) for part, more in pairs)
        return acc[dst], inputs[src], weights

    @cached_property
    def _places(self) -> tuple[Ints, Ints, Ints]:
        """The elements that a GEMM reads in the steps that count: sums, inputs and weights."""
        i = self._instruction
        assert isinstance(i, Gemm)
        steps = self._last_steps if i.overwrite else slice(None)
        wgt = elements(i, "wgt", self._micro_ops[:, 2])
        return self.dst[steps], self.src[steps], wgt[steps]

    @property
    def _last_steps(self) -> Ints:
        """The steps of the last sum of each accumulator."""
        joined = np.tile(self._shares, self._instruction.iter_out * self._instruction.iter_in)
        sums = np.cumsum(~joined)
        return np.flatnonzero(np.isin(sums, sums[self.last]))

    @cached_property
    def batches(self) -> list[tuple[Ints, Ints]]:
        """Iterations (dst, src) that read nothing written before in the same batch."""
        if len(self.written) == len(self.dst) and not self.own:
            return [(self.dst, self.src)]
        wrote: dict[int, int] = {}
        read: dict[int, int] = {}
        levels = np.empty(len(self.dst), np.int64)
        for step, (dst, src) in enumerate(zip(self.dst.tolist(), self.src.tolist(), strict=True)):
            level = wrote.get(dst, 0)
            if self.own:
                level = max(level, wrote.get(src, 0), read.get(dst, 0))
                read[src] = max(read.get(src, 0), level)
            wrote[dst] = level + 1
            levels[step] = level
        order = np.argsort(levels, kind="stable")
        cuts = np.flatnonzero(np.diff(levels[order])) + 1
        return [(self.dst[steps], self.src[steps]) for steps in np.split(order, cuts)]


def elements(i: LoopInstruction, operand: str, column: Ints) -> Ints:
    """Return the elements of one operand in all steps of an instruction, in order."""
    outer, inner = (
        np.arange(getattr(i, f"iter_{loop}")) * getattr(i, f"{operand}_factor_{loop}")
        for loop in ("out", "in")
    )
    every: Ints = np.add.outer(np.add.outer(outer, inner), column).reshape(-1)
    return every


def sharing(config: HardwareConfig, i: LoopInstruction, micro_ops: Ints) -> npt.NDArray[np.bool_]:
    """Return which micro-ops add to their predecessor's sum: those of the same accumulator."""
    shares = np.zeros(len(micro_ops), np.bool_)
    if config.has(Extension.PAIRS) and isinstance(i, Gemm):
        shares[1:] = np.diff(micro_ops[:, 0]) == 0
    return shares


def _is_immediate(i: LoopInstruction) -> bool:
    return isinstance(i, Alu) and bool(i.use_imm)
