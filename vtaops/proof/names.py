"""Execute a Program on names in program order: tiles are moved and created without their values.

A tile of any memory has a name, which is an integer; 0 is the zero tile that padding and resets
write. LOAD, STORE and FORWARD copy names; GEMM, ALU, POOL and POST create new ones. The computation
becomes a list of steps, each of which computes tiles from others, regardless of their places in
scratchpads or DRAM. `vtaops.proof.machine` computes the terms of the names.
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

try:
    import vtaops._proof as _proof
except ImportError:  # the wheel for boards has no native module
    _proof = None

from vtaops.base.shapes import Ints
from vtaops.machine.accesses import distinct
from vtaops.machine.alu import AluOp
from vtaops.machine.config import POST_ROWS, WINDOW_TILES, Extension, HardwareConfig, Memory
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
from vtaops.program import Program, Role
from vtaops.proof.records import Unknown

Names = npt.NDArray[np.integer[Any]]

NIBBLE = 0.5
"""The bytes of a weight of four bits."""
MOST = 1 << 29
"""Number of names up to which those of weights, times four, are int32."""


@dataclass(eq=False, slots=True)
class TileStep:
    """Tiles created by one operation.

    Attributes
    ----------
    what : tuple
        The operation and its parameters. Steps with equal values can be computed together.
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


@dataclass(eq=False, slots=True)
class Multiplied:
    """What a GEMM multiplies: far less to keep than its products.

    Attributes
    ----------
    plan : Iterations
        Its iterations.
    sums, inputs, tiles : ndarray of int32
        The names that its `written`, `inputs` and `tiles` had.
    shared : bool
        Whether it adds to several steps.
    """

    plan: Iterations
    sums: Names
    inputs: Names
    tiles: Names
    shared: bool


class Dram:
    """The names in buffers: of any elements of host-written buffers, and of OUT elements in others.

    Attributes
    ----------
    names, writers : dict of int to ndarray of int64
        For buffers that the program writes: the name of each element of the output memory, and
        the instruction that stored it.
    """

    def __init__(self, machine: NameMachine) -> None:
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


class NameMachine:
    """A VTA that computes on names.

    Parameters
    ----------
    program : Program
        A verified program; properties proven by the verifier are not checked again.

    Attributes
    ----------
    steps : list of TileStep
        Steps in program order; step 0 is the zeros.
    step_of : ndarray of int32
        The step of each name.
    dram : Dram
        The buffers.
    multiplied : dict of int to list of Multiplied
        For steps that are sums: the GEMMs that add to them.
    """

    def __init__(self, program: Program) -> None:
        config = program.config
        self.program, self.config = program, config
        self.steps: list[TileStep] = []
        self.levels = np.zeros(1024, np.int64)
        """Level of each step: one above the levels of its operands."""
        self._open = np.zeros(1024, np.bool_)
        """Which steps are unused sums, to which products may still be added."""
        self.step_of = np.zeros(1 << 16, np.int32)
        self.count = 0
        """Number of names."""
        self.multiplied: dict[int, list[Multiplied]] = defaultdict(list)
        self._adds_to: dict[bytes, list[int]] = {}
        """The sums in accumulators that GEMMs add to, as long as nothing else changes these."""
        self._index = -1
        self.make(("zeros",), 1)
        self.dram = Dram(self)
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
        self._flat = True
        """Whether inputs and weights so far are what the host wrote, at level 0."""
        self._plans: dict[tuple[bytes, bytes], Iterations] = {}
        self._current: dict[bytes, Iterations] = {}
        """The same by word, as long as `uop` stays."""
        self._words = [word.tobytes() for word in program.instructions & _WITHOUT_TOKENS]

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
                    self._current.clear()
                case Load() if not instruction.is_nop:
                    self._load(instruction, relocations[index])
                case Store() if not instruction.is_nop:
                    tiles = instruction.sram_base + np.arange(instruction.sram_size)
                    names, places = self._outputs(tiles), _rows(instruction)
                    for what, stored in ((self.dram.names, names), (self.dram.writers, index)):
                        what[relocations[index]][places] = stored
                case Post():
                    self._post, key = instruction, replace(instruction, **_PLACES)
                    self._setting = self._posts.setdefault(key, len(self._posts))
                    if self._setting == len(self._kinds):
                        self._kinds.append(key)
                case Gemm() | Alu() | Pool() if instruction.iterations:
                    self._loop(instruction)

    # -------------------------------------------------------------------------------- names

    def make(self, what: tuple[Any, ...], count: int, *operands: Names) -> Ints:
        self._adds_to.clear()
        number, first = len(self.steps), self.count
        if number == len(self.levels):
            self.levels = np.concatenate([self.levels, np.zeros_like(self.levels)])
            self._open = np.concatenate([self._open, np.zeros_like(self._open)])
        if first + count > MOST:
            raise Unknown(f"it has more than {MOST} tiles")
        while first + count > len(self.step_of):
            self.step_of = np.concatenate([self.step_of, np.zeros_like(self.step_of)])
        self.count += count
        self.step_of[first : self.count] = number
        self.steps.append(TileStep(what, [*operands], first, count, self._index))
        if operands:
            used = self.step_of[np.concatenate(operands, axis=None)]
            self._open[used] = False
            self.levels[number] = 1 + self.levels[used].max()
        return np.arange(first, self.count)

    def _outputs(self, index: Ints) -> Ints:
        """Return the names of elements of the output memory."""
        settings, acc = self._settings[:, index], self.sram[Memory.ACC][index]
        kinds = settings[0]
        if (kinds == kinds[0]).all():
            return self._posted(int(kinds[0]), acc, settings)
        made = np.empty_like(index)
        for number in distinct(kinds).tolist():
            chosen = np.flatnonzero(kinds == number)
            made[chosen] = self._posted(number, acc[chosen], settings[:, chosen])
        return made

    def _posted(self, number: int, acc: Names, settings: Ints) -> Ints:
        return self.make(("post", self._kinds[number]), len(acc), acc, *settings[1:])

    # --------------------------------------------------------------------------------- LOAD

    def _load(self, i: Load, buffer: int) -> None:
        memory = Memory(i.memory)
        names = self._outputs(_rows(i)) if i.forward else self._from_dram(i, buffer)
        first = i.sram_base + i.y_pad_top * i.sram_row + i.x_pad_left
        sram = self.sram[Memory.ACC if memory == Memory.ACC_8BIT else memory]
        sram[i.sram_base : i.sram_base + i.sram_size] = 0
        sram[first + _grid(i.y_size, i.x_size << i.nibbles, i.sram_row)] = names
        if sram is self.sram[Memory.ACC]:
            self._adds_to.clear()
        if self._flat and memory in (Memory.INP, Memory.WGT):
            self._flat = not self.levels[self.step_of[names]].any()

    def _from_dram(self, i: Load, buffer: int) -> Ints:
        nbytes = self.config.dram_element_bytes(Memory(i.memory))
        if i.nibbles:
            rows = 2 * i.dram_base + _grid(i.y_size, 2 * i.x_size, 2 * i.x_stride)
            return self.dram.read(buffer, rows, nbytes // 2, NIBBLE)
        scalar = 4 if i.memory in (Memory.ACC, Memory.POST) else 1
        return self.dram.read(buffer, _rows(i), nbytes, scalar)

    # ----------------------------------------------------------------------- GEMM, ALU, POOL

    def _loop(self, i: LoopInstruction) -> None:
        word = self._words[self._index]
        plan = self._current.get(word)
        if plan is None:
            micro_ops = self.uop[i.uop_begin : i.uop_end].copy()
            key = word, micro_ops.tobytes()
            plan = self._plans.get(key)
            if plan is None:
                shares = sharing(self.config, i, micro_ops)
                plan = self._plans[key] = Iterations(i, micro_ops, shares)
            self._current[word] = plan
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
        self._open[len(self.steps) - 1] = True
        return names

    def _gemm(self, i: Gemm, plan: Iterations) -> None:
        acc, inputs, tiles = (self.sram[memory] for memory in (Memory.ACC, Memory.INP, Memory.WGT))
        sums = None if i.overwrite else self._adds_to.get(plan.place)
        if sums is None:
            sums = self._opened(acc, plan.written, bool(i.overwrite))
            self._adds_to[plan.place] = sums
        names = acc[plan.written], inputs[plan.inputs], tiles[plan.tiles]
        made = Multiplied(plan, *names, len(sums) > 1)
        level = 1
        if not self._flat:
            level += self.levels[self.step_of[np.concatenate(names[1:])]].max()
        for number in sums:
            self.levels[number] = max(self.levels[number], level)
            self.multiplied[number].append(made)

    def products_of(self, number: int) -> Iterator[Sequence[Names]]:
        """Yield the products that a step adds: names of its sums, of inputs and of weights.

        Weights are four times their names, plus 1 to 3 for a tile of a window.
        """
        for made in self.multiplied.get(number, ()):
            plan, memories = made.plan, self._recalled
            places = plan.written, plan.inputs, plan.tiles
            names = made.sums, made.inputs, made.tiles
            for memory, at, own in zip(memories, places, names, strict=True):
                memory[at] = own
            products = plan.products(*memories)
            if made.shared:
                chosen = self.step_of[products[0]] == number
                products = [part[chosen] for part in products]
            yield products

    @cached_property
    def _recalled(self) -> list[Names]:
        """Memories into which the names that a GEMM read are written again."""
        return [np.zeros_like(self.sram[m]) for m in (Memory.ACC, Memory.INP, Memory.WGT)]

    def _opened(self, acc: Names, places: Ints, overwrite: bool) -> list[int]:
        """Return the steps of the sums in accumulators; where none is open, begin new ones."""
        if overwrite:
            acc[places] = self._sums(np.zeros_like(places))
            return [len(self.steps) - 1]
        names = acc[places]
        closed = ~self._open[self.step_of[names]]
        if closed.any():
            acc[places[closed]] = self._sums(names[closed])
        return [*distinct(self.step_of[acc[places]]).tolist()]

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


_PLACES = dict.fromkeys(
    ("pop_prev", "pop_next", "push_prev", "push_next", "row", "row_factor_out", "row_factor_in"), 0
)
"""Fields of a POST that determine when and where it acts, not its result."""

_OPERANDS = "dst", "src", "wgt"
_TOKENS = sum(1 << bit for bit in range(3, 7))
_WITHOUT_TOKENS = np.array([(1 << 64) - 1 - _TOKENS, (1 << 64) - 1], np.uint64)


class Iterations:
    """The iterations of an instruction.

    Attributes
    ----------
    written, inputs, tiles : ndarray of int64
        The different accumulators that it writes, its sources, and tiles of weights.
    place : bytes
        `written`, as a key.
    own : bool
        Whether sources are accumulators.
    """

    def __init__(self, i: LoopInstruction, micro_ops: Ints, shares: npt.NDArray[np.bool_]) -> None:
        self._instruction, self._micro_ops, self._shares = i, micro_ops, shares
        self._rows: dict[tuple[int, int], Ints] = {}
        self.own = isinstance(i, Alu) and not _is_immediate(i)
        self.written = reached(i, "dst", micro_ops[:, 0])
        self.place = self.written.tobytes()
        if isinstance(i, Gemm):
            self.inputs = reached(i, "src", micro_ops[:, 1])
            self.tiles = reached(i, "wgt", micro_ops[:, 2])
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
        if (outer, inner) not in self._rows:
            i = self._instruction
            rows = np.add.outer(np.arange(i.iter_out) * outer, np.arange(i.iter_in) * inner)
            count = i.uop_end - i.uop_begin
            self._rows[outer, inner] = rows.reshape(-1).repeat(count)[self.last]
        return self._rows[outer, inner]

    def products(self, acc: Names, inputs: Names, tiles: Names) -> Sequence[Names]:
        """Return the names that a GEMM reads in each step: sums, inputs and weights, times four."""
        i, micro_ops = self._instruction, self._micro_ops
        assert isinstance(i, Gemm)
        if _proof is None or i.overwrite or isinstance(i, Depthwise):
            return self.plain_products(acc, inputs, tiles)
        made = np.empty((3, i.iterations), np.int32)
        _proof.products(micro_ops, i.iter_out, i.iter_in, self._factors, acc, inputs, tiles, made)
        return [*made]

    @cached_property
    def _factors(self) -> Ints:
        """The steps of the outer and of the inner loop, for each operand."""
        i = self._instruction
        loops = [getattr(i, f"{o}_factor_{side}") for o in _OPERANDS for side in ("out", "in")]
        return np.array(loops, np.int64)

    def plain_products(self, acc: Names, inputs: Names, tiles: Names) -> Sequence[Names]:
        """Return the same as `products`, with NumPy alone."""
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
        """The last step of each accumulator, after one product or two."""
        joined = np.tile(self._shares, self._instruction.iter_out * self._instruction.iter_in)
        return np.concatenate([self.last, self.last[joined[self.last]] - 1])

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
    """Return which micro-ops share a step with their predecessor: the second of each equal pair."""
    shares = np.zeros(len(micro_ops), np.bool_)
    if config.has(Extension.PAIRS) and isinstance(i, Gemm):
        dst = micro_ops[:, 0]
        shares[1::2] = dst[1::2] == dst[: len(dst) // 2 * 2 : 2]
    return shares


def reached(i: LoopInstruction, operand: str, column: Ints) -> Ints:
    """Return the different `elements` of one operand of an instruction."""
    places = distinct(column)
    for loop in ("in", "out"):
        steps = np.arange(getattr(i, f"iter_{loop}")) * getattr(i, f"{operand}_factor_{loop}")
        if len(steps) > 1 and steps[1]:
            places = distinct(np.add.outer(steps, places).reshape(-1))
    return places


def _is_immediate(i: LoopInstruction) -> bool:
    return isinstance(i, Alu) and bool(i.use_imm)
