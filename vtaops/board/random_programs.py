"""Random valid programs: a stress test for anything that executes VTA programs.

A program has segments; a segment has rounds. In each round the load unit fills one of two contexts,
the compute unit works on it, and the store unit empties it, so that the three units run
concurrently, as under double buffering. All units synchronize between segments; each segment loads
results stored by the previous one. At the end every byte of every accumulator in use is stored.
Post-processing may still be enabled at the end: the next program starts with it disabled.

Instructions, sizes, loops, padding, addresses and values are random, within the device's
capabilities; only the order of the tokens is fixed.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import Int8Array, Int32Array, Ints
from vtaops.machine.accesses import loop_steps
from vtaops.machine.capabilities import FSIM, FULL, Capabilities, Feature
from vtaops.machine.config import POST_ROWS, TABLES, WINDOW_TILES, Extension, HardwareConfig, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Depthwise,
    Gemm,
    Instruction,
    Load,
    MemoryInstruction,
    Pool,
    Post,
    Store,
)
from vtaops.program.builder import ProgramBuilder
from vtaops.program.program import Program, Role

PIPELINE_STEPS = 8
"""Minimum steps between a write of an accumulator and its next use, if the device lacks a feature:
such hardware need not forward a result in flight (upstream's HLS design does not, and takes some
cycles). Other devices must forward, so programs for them have no minimum distance."""

_AREA_TILES = 48  # reachable by the stores of a segment
_SOURCE_TILES = 64  # of each input
_SOURCE_TABLES = 3
_TRIES = 30  # draws before falling back to something simple


PLAIN = Load()


def random_program(
    config: HardwareConfig,
    rng: np.random.Generator,
    capabilities: Capabilities = FULL,
    *,
    segments: int = 2,
    rounds: int = 4,
) -> Program:
    """Return a random, verified program.

    Parameters
    ----------
    config : HardwareConfig
        Target configuration.
    rng : numpy.random.Generator
        Source of all choices; equal states give equal programs.
    capabilities : Capabilities
        Features of the device; the program needs no others.
    segments, rounds : int
        Number of segments, and of rounds in each; at least 1.

    Returns
    -------
    Program
        Its inputs accept any values; it has one output.

    Raises
    ------
    UnsupportedError
        If the device's ALU does not support the configuration's tiles.
    """
    if config.batch > 1 and not capabilities.has(Feature.ALU_BATCH):
        raise UnsupportedError(
            f"{capabilities.name} has no ALU for tiles of {config.batch} rows; random programs "
            f"need one"
        )
    writer = _Writer(config, rng, capabilities)
    writer.begin()
    for segment in range(segments):
        for number in range(rounds):
            writer.round(segment, number, rounds)
        writer.barrier(push_prev=int(segment < segments - 1))
    writer.end()
    program = writer.builder.build()
    program.verify(capabilities)
    return program


def random_inputs(program: Program, rng: np.random.Generator) -> list[Int8Array | Int32Array]:
    """Return random values for each input of a program, in order."""
    arrays = []
    for buffer in program.inputs:
        info = np.iinfo(buffer.dtype)
        arrays.append(rng.integers(info.min, info.max + 1, buffer.shape).astype(buffer.dtype))
    return arrays


@dataclass(frozen=True)
class _Window:
    base: int
    size: int

    @property
    def span(self) -> slice:
        return slice(self.base, self.base + self.size)


@dataclass(frozen=True)
class _Source:
    """The elements of a buffer that a LOAD may read."""

    buffer: int
    tiles: _Window


class _Writer:
    """Writes one program; each context has its own window in every memory."""

    def __init__(
        self, config: HardwareConfig, rng: np.random.Generator, capabilities: Capabilities
    ) -> None:
        self.config, self.rng, self.capabilities = config, rng, capabilities
        self.builder = b = ProgramBuilder(config)
        self.inp = self._windows(config.inp.depth, 48)
        self.wgt = self._windows(config.wgt.depth, 8)
        self.acc = self._windows(config.acc.depth, 32)
        self.sources = {
            memory: _Source(b.tiles(memory.name.lower(), role, size, memory), _Window(0, size))
            for memory, role, size in (
                (Memory.INP, Role.INPUT, _SOURCE_TILES),
                (Memory.WGT, Role.PARAMETER, _SOURCE_TILES),
                (Memory.ACC, Role.INPUT, _SOURCE_TILES),
                (Memory.ACC_8BIT, Role.INPUT, _SOURCE_TILES),
                (Memory.POST, Role.PARAMETER, _SOURCE_TILES),
                (Memory.TABLE, Role.PARAMETER, _SOURCE_TABLES),
            )
            if memory in config.memories
        }
        self.posts, self.tables = (m in self.sources for m in (Memory.POST, Memory.TABLE))
        self.post_set = False  # whether post-processing is enabled
        accumulators = sum(window.size for window in self.acc)
        self.out = b.tiles("out", Role.OUTPUT, 2 * _AREA_TILES + 4 * accumulators)
        # Accumulators whose last writer is the ALU or an accumulating GEMM: STORE may read them.
        self.current = np.zeros(config.acc.depth, np.bool_)
        self.operations = [op for op in AluOp if op.feature is None or capabilities.has(op.feature)]
        full = {*FSIM.features} <= {*capabilities.features}
        self.distance = 1 if full else PIPELINE_STEPS

    # ------------------------------------------------------------------------- structure

    def begin(self) -> None:
        """Initialize everything that is read later: both contexts and both output areas."""
        with self._group(push_next=1):
            for context in (0, 1):
                self._fill(Memory.INP, self.inp[context])
                self._fill(Memory.WGT, self.wgt[context])
            if self.posts:
                self._fill(Memory.POST, _Window(0, 2 * POST_ROWS))
            if self.tables:
                self._fill(Memory.TABLE, _Window(0, TABLES))
        with self._group(pop_prev=1, push_next=1):
            for window in self.acc:
                self._fill(Memory.ACC, window)
                self._alu_on(window, AluOp.MAX, self._integer(-128, 127))
        with self._group(pop_prev=1, push_prev=1):
            window = self.acc[0]
            for base in range(0, 2 * _AREA_TILES, window.size):
                count = min(window.size, 2 * _AREA_TILES - base)
                self.builder.store(self.out, window.base, base, count)
        self.barrier(push_prev=1)

    def round(self, segment: int, number: int, rounds: int) -> None:
        """Load, compute and store in one context, which the round after the next reuses."""
        context, again, before = number % 2, int(number + 2 < rounds), int(number >= 2)
        with self._group(pop_next=int(before or number == 0), push_next=1):
            for _ in range(self._integer(1, 3)):
                self._random_load(segment, context)
            if multiplies := self.rng.random() < 0.5:
                self._load(Memory.WGT, self.wgt[context])
        with self._group(pop_prev=1, pop_next=before, push_prev=again, push_next=1):
            if self.posts:
                self._random_post(context)  # the previous round's setting has other rows
            if multiplies:  # with the weights just loaded
                self._random_gemm(context)
            for _ in range(self._integer(1, 5)):
                if self.posts and self.rng.random() < 0.4:
                    self._random_post(context)
                self._random_compute(segment, context)
            if not self.current[self.acc[context].span].any():
                self._alu_on(self.acc[context], AluOp.ADD, self._integer(-5, 5))
        with self._group(pop_prev=1, push_prev=int(again or number == rounds - 1)):
            for _ in range(self._integer(1, 3)):
                self._random_store(segment, context)

    def barrier(self, push_prev: int) -> None:
        """Wait for the last store, and make the load unit wait for it, too."""
        self.builder.nop(Memory.UOP, pop_next=1, push_prev=push_prev)

    def end(self) -> None:
        """Store all accumulators, one byte at a time."""
        place = 2 * _AREA_TILES
        for byte in range(4):
            with self._group(pop_next=int(byte > 0), push_next=1):
                for window in self.acc:
                    self._alu_on(window, AluOp.SHR, 8 if byte else 0)
            with self._group(pop_prev=1, push_prev=1):
                for window in self.acc:
                    self.builder.store(self.out, window.base, place, window.size)
                    place += window.size
        if self.posts:
            self._random_post(0)
        self.builder.finish(pop_next=1)

    @contextmanager
    def _group(self, **flags: int) -> Iterator[None]:
        """Make an instruction added in the block pop tokens, and the last one push them.

        The first one pops, or mostly the first that depends on other units: then what it reads is
        in use soon after the token.
        """
        instructions = self.builder.instructions
        first = len(instructions)
        yield
        if self.rng.random() < 0.8:
            first += [_is_alone(i) for i in instructions[first:]].index(False)
        for index, kind in ((first, "pop"), (-1, "push")):
            own = {name: flag for name, flag in flags.items() if name.startswith(kind)}
            instructions[index] = replace(instructions[index], **own)

    # --------------------------------------------------------------------- LOAD and STORE

    def _fill(self, memory: Memory, window: _Window) -> None:
        source = self.sources[memory]
        first = self._integer(0, source.tiles.size - window.size)
        self.builder.load(memory, source.buffer, window.base, first, window.size)

    def _random_load(self, segment: int, context: int) -> None:
        memories = self.sources.keys() - {Memory.ACC, Memory.ACC_8BIT}
        memory = Memory(self.rng.choice([*sorted(memories), Memory.WGT]))
        if memory == Memory.INP and self.config.has(Extension.FORWARD) and self.rng.random() < 0.4:
            self._forward(context)
        elif memory == Memory.INP:
            self._load(memory, self.inp[context], self._byte_source(memory, segment))
        elif memory == Memory.WGT:
            self._load(memory, self.wgt[context])
        elif memory == Memory.TABLE:
            self._load(memory, _half(TABLES, context))
        else:
            rows = _half(POST_ROWS, context)
            half = int(self.rng.choice([0, POST_ROWS]))
            self._load(memory, replace(rows, base=half + rows.base))

    def _forward(self, context: int) -> None:
        """Load a context's results from the output memory while the compute unit uses the other."""
        window, whole = self.acc[context], self.inp[context]
        usable = window.base + np.flatnonzero(self.current[window.span])
        if not usable.size:
            self._load(Memory.INP, whole)
            return
        block = self._drawn_block(whole, window, padded=True)
        rows = block.dram_base + block.x_stride * np.arange(block.y_size)[:, None]
        if not self.current[rows + np.arange(block.x_size)].all():
            first = int(self.rng.choice(usable))
            block = replace(block, dram_base=first, y_size=1, x_size=1)
        self.builder.add(replace(block, memory=Memory.INP, forward=1))

    def _byte_source(self, memory: Memory, segment: int) -> _Source:
        """Return the input, or the output of earlier segments."""
        same_size = self.config.dram_element_bytes(memory) == self.config.out.element_bytes
        if same_size and self.rng.random() < 0.5:
            return _Source(self.out, self._area(segment + 1))
        return self.sources[memory]

    def _area(self, segment: int) -> _Window:
        return _Window(segment % 2 * _AREA_TILES, _AREA_TILES)

    def _load(self, memory: Memory, window: _Window, source: _Source | None = None) -> None:
        source = source or self.sources[memory]
        padded = {
            Memory.WGT: self.capabilities.has(Feature.WEIGHT_PADDING),
            Memory.ACC: self.capabilities.has(Feature.ACC_PADDING),
            Memory.ACC_8BIT: self.capabilities.has(Feature.ACC_PADDING),
            Memory.TABLE: False,
        }.get(memory, True)
        narrow = memory == Memory.WGT and self.config.has(Extension.NIBBLES) and window.size > 1
        block = Load(memory=memory, nibbles=int(narrow and self.rng.random() < 0.5))
        block = self._drawn_block(window, source.tiles, padded=padded, block=block)
        self.builder.add(block, source.buffer)
        if memory in (Memory.ACC, Memory.ACC_8BIT):
            self.current[block.sram_base : block.sram_base + block.sram_size] = False

    def _drawn_block(
        self, window: _Window, source: _Window, *, padded: bool, block: Load = PLAIN
    ) -> Load:
        """Draw the sizes and places of a LOAD from a source that fills a scratchpad window."""
        block = replace(block, y_size=1, x_size=1, x_stride=1)
        for _ in range(_TRIES):
            x_size, y_size = self._integer(1, 8), self._integer(1, 4)
            stride = self._integer(0, 10)
            drawn = replace(block, y_size=y_size, x_size=x_size, x_stride=stride)
            if padded and self.rng.random() < 0.5:
                sides = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
                most = 15 if self.rng.random() < 0.2 else 3
                drawn = replace(drawn, **{side: self._integer(0, most) for side in sides})
            if drawn.sram_size <= window.size and _reach(drawn) <= source.size:
                block = drawn
                break
        return replace(
            block,
            sram_base=window.base + self._integer(0, window.size - block.sram_size),
            dram_base=source.base + self._integer(0, source.size - _reach(block)),
        )

    def _random_store(self, segment: int, context: int) -> None:
        window, area = self.acc[context], self._area(segment)
        usable = window.base + np.flatnonzero(self.current[window.span])
        first = int(self.rng.choice(usable))
        run = int(np.argmin([*self.current[first : window.span.stop], False]))
        x_size = self._integer(1, min(run, 6))
        y_size = self._integer(1, min(run // x_size, 4))
        block = Store(
            memory=Memory.OUT,
            sram_base=first,
            x_size=x_size,
            y_size=y_size,
            x_stride=self._integer(x_size, 10),
        )
        base = area.base + self._integer(0, area.size - _reach(block))
        self.builder.add(replace(block, dram_base=base), self.out)

    # ---------------------------------------------------------------------- GEMM and ALU

    def _random_compute(self, segment: int, context: int) -> None:
        draw = self.rng.random()
        if draw < 0.2:
            self._random_acc_load(segment, context)
        elif draw < 0.27:
            self._random_reset(context)
        elif self.config.has(Extension.POOL) and draw < 0.4:
            self._random_pool(context)
        elif draw < 0.65:
            self._random_gemm(context)
        else:
            self._random_alu(context)

    def _random_post(self, context: int) -> None:
        """Enable post-processing for the rest of this round, or disable it."""
        rng = self.rng
        self.post_set = rng.random() >= 0.2
        if not self.post_set:
            self.builder.add(Post())
            return
        use_bias, use_scale = (int(rng.integers(2)) for _ in range(2))
        low, high = sorted(self._integer(-128, 127) for _ in range(2))
        fields = self._random_rows(context, use_bias, use_scale)
        if self.tables and rng.random() < 0.5:
            tables = _half(TABLES, context)
            index = self._integer(tables.base, tables.base + tables.size - 1)
            fields |= {"use_table": 1, "table_index": index}
        self.builder.add(
            Post(
                enable=1,
                use_bias=use_bias,
                use_scale=use_scale,
                round_half=int(rng.integers(2)),
                zero_point=self._integer(-128, 127),
                low=low if rng.random() < 0.5 else -128,
                high=high if rng.random() < 0.5 else 127,
                **fields,
            )
        )

    def _random_rows(self, context: int, use_bias: int, use_scale: int) -> dict[str, int]:
        """Draw the scale that an instruction states, and the rows that it reads."""
        fields: dict[str, int] = {}
        if not use_scale:
            fields |= {"multiplier": self._integer(0, 65535), "shift": self._integer(0, 47)}
        elif self.config.has(Extension.EXACT):
            fields |= {"fine": int(self.rng.integers(4))}
        if use_bias or use_scale:  # up to 8 iterations of each loop
            fields |= {"row": _half(POST_ROWS, context).base + self._integer(0, 1)}
            fields |= {f"row_factor_{loop}": self._integer(0, 1) for loop in ("out", "in")}
        return fields

    def _random_acc_load(self, segment: int, context: int) -> None:
        if self.capabilities.has(Feature.ACC_8BIT) and self.rng.random() < 0.5:
            source = self._byte_source(Memory.ACC_8BIT, segment)
            self._load(Memory.ACC_8BIT, self.acc[context], source)
        else:
            self._load(Memory.ACC, self.acc[context])

    def _random_gemm(self, context: int) -> None:
        kind: type[Gemm] = Gemm
        inp = self.inp[context]
        if self.config.has(Extension.DEPTHWISE) and self.rng.random() < 0.5:
            kind, inp = Depthwise, _Window(inp.base, inp.size - WINDOW_TILES + 1)
        fields = self._loops({"dst": self.acc[context], "src": inp, "wgt": self.wgt[context]})
        if self.config.has(Extension.OVERWRITE) and self.rng.random() < 0.4:
            fields["overwrite"] = 1
        self.builder.add(kind(**fields))

    def _random_pool(self, context: int) -> None:
        inp, tiles = self.inp[context], self._integer(1, WINDOW_TILES)
        reach = _Window(inp.base, inp.size - tiles + 1)
        fields = self._loops({"dst": self.acc[context], "src": reach})
        self.builder.add(Pool(tiles=tiles, overwrite=int(self.rng.integers(2)), **fields))

    def _random_reset(self, context: int) -> None:
        self.builder.add(
            Gemm(reset=1, **self._loops({"dst": self.acc[context]}, (), current=False))
        )

    def _random_alu(self, context: int) -> None:
        window = self.acc[context]
        op = AluOp(self.rng.choice(self.operations))
        tile = self.rng.random() < 0.5
        if op is AluOp.SHR and not self.capabilities.has(Feature.FAR_SHIFT):
            tile = False  # the values of a tile reach beyond what it shifts by
        reads = {"dst": window, "src": window} if tile else {"dst": window}
        fields = self._loops(reads, tuple(reads))
        operand = {} if tile else {"use_imm": 1, "imm": self._immediate(op)}
        self.builder.add(Alu(alu_op=op, **operand, **fields))

    def _immediate(self, op: AluOp) -> int:
        """Draw an immediate; values that destroy the operands are rare."""
        often = self.rng.random() < 0.8
        if op is AluOp.SHR:
            longest = (
                40
                if self.capabilities.has(Feature.FAR_SHIFT)
                else 31
                if self.capabilities.has(Feature.LONG_SHIFT)
                else 15
            )
            most = 3 if often else longest
            return self._integer(-most, most)
        value = self._integer(-(1 << 15), (1 << 15) - 1)
        if often and op in (AluOp.MIN, AluOp.MAX):
            positive = max(value, ~value)
            return positive if op is AluOp.MIN else ~positive
        return value

    def _alu_on(self, window: _Window, op: AluOp, imm: int) -> None:
        """Apply an immediate to a whole window without post-processing."""
        if self.post_set:
            self.builder.add(Post())
            self.post_set = False
        place = self._load_micro_ops([(window.base, 0, 0)])
        self.builder.alu(op, place, window.size, imm)
        self.current[window.span] = True

    def _loops(
        self,
        windows: dict[str, _Window],
        accumulators_read: tuple[str, ...] = ("dst",),
        *,
        current: bool = True,
    ) -> dict[str, int]:
        """Draw loops and micro-ops within the windows of operands, and load the micro-ops.

        Return the fields of the instruction; if `current`, STORE may read its results.
        """
        for _ in range(_TRIES):
            fields, columns = self._draw_loops(windows, most=8)
            if not self._repeats(fields, columns, accumulators_read):
                break
        else:
            fields, columns = self._draw_loops(windows, most=1)
        unused = np.zeros_like(columns["dst"])
        operands = [columns.get(name, unused).tolist() for name in ("dst", "src", "wgt")]
        rows = list(zip(*operands, strict=True))
        place = self._load_micro_ops(rows)
        written = np.add.outer(loop_steps(Gemm(**fields), "dst"), columns["dst"])
        self.current[written] = current
        return fields | {"uop_begin": place, "uop_end": place + len(rows)}

    def _draw_loops(
        self, windows: dict[str, _Window], most: int
    ) -> tuple[dict[str, int], dict[str, Ints]]:
        """Return the loop fields, and each operand's elements in the micro-ops."""
        held = self.capabilities.micro_op_depth(self.config)
        count = self._integer(1, min(most, held))
        extents = {"out": self._integer(1, most), "in": self._integer(1, most)}
        fields = {f"iter_{loop}": extent for loop, extent in extents.items()}
        columns = {}
        for name, window in windows.items():
            room = window.size - 1
            for loop, extent in extents.items():
                furthest = room // (extent - 1) if extent > 1 else 0
                factor = self._integer(0, furthest) if self.rng.random() < 0.7 else 0
                room -= factor * (extent - 1)
                fields[f"{name}_factor_{loop}"] = factor
            columns[name] = window.base + self.rng.integers(0, room + 1, count)
        if self.config.has(Extension.PAIRS) and self.rng.random() < 0.5:
            lengths = self.rng.integers(1, 5, count)  # of runs of one accumulator
            columns["dst"] = np.repeat(columns["dst"], lengths)[:count]
        return fields, columns

    def _repeats(
        self, fields: dict[str, int], columns: dict[str, Ints], reads: tuple[str, ...]
    ) -> bool:
        """Whether a step reads the result of a step shortly before it."""
        i = Gemm(**fields)
        written, *read = (
            np.add.outer(loop_steps(i, n), columns[n]).ravel() for n in ("dst", *reads)
        )
        return any(
            bool((written[:-d] == operand[d:]).any())
            for d in range(1, min(self.distance, len(written)))
            for operand in read
        )

    def _load_micro_ops(self, rows: list[tuple[int, int, int]]) -> int:
        depth = self.capabilities.micro_op_depth(self.config)
        place = self._integer(0, depth - len(rows))
        self.builder.load_micro_ops(self.builder.micro_ops(*rows), len(rows), place)
        return place

    # ----------------------------------------------------------------------------- random

    def _windows(self, depth: int, most: int) -> tuple[_Window, _Window]:
        """Return a window in each half of a memory."""
        half = depth // 2
        sizes = [self._integer(min(4, half), min(most, half)) for _ in range(2)]
        bases = [self._integer(0, half - sizes[0]), self._integer(half, depth - sizes[1])]
        return _Window(bases[0], sizes[0]), _Window(bases[1], sizes[1])

    def _integer(self, low: int, high: int) -> int:
        """Return an integer in low..high, inclusive; often one of the limits."""
        return int(self.rng.choice([low, high, *self.rng.integers(low, high + 1, 3)]))


def _is_alone(i: Instruction) -> bool:
    """Whether an instruction depends on no other unit."""
    return isinstance(i, Post) or (isinstance(i, Load) and i.memory == Memory.UOP)


def _half(size: int, context: int) -> _Window:
    """Return the half of a memory that a context uses."""
    return _Window(context * size // 2, size // 2)


def _reach(block: MemoryInstruction) -> int:
    """Return the DRAM elements from the first to the last access, inclusive."""
    return (block.y_size - 1) * block.x_stride + block.x_size
