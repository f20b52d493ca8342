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
from dataclasses import replace

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
_TRIES = 30  # draws before falling back to something simple


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


class _Writer:
    """Writes one program; each context has its own window in every memory."""

    def __init__(
        self, config: HardwareConfig, rng: np.random.Generator, capabilities: Capabilities
    ) -> None:
        self.config, self.rng, self.capabilities = config, rng, capabilities
        self.builder = b = ProgramBuilder(config)
        self.windows = {
            Memory.INP: self._halves(config.inp.depth, 48),
            Memory.WGT: self._halves(config.wgt.depth, 8),
            Memory.ACC: self._halves(config.acc.depth, 32),
            Memory.POST: _split(POST_ROWS),
            Memory.TABLE: _split(TABLES),
        }
        self.windows[Memory.ACC_8BIT] = self.acc = self.windows[Memory.ACC]
        inputs = {Memory.INP, Memory.ACC, Memory.ACC_8BIT}
        self.sources = {
            memory: b.tiles(
                memory.name.lower(),
                Role.INPUT if memory in inputs else Role.PARAMETER,
                _SOURCE_TILES,
                memory,
            )
            for memory in self.windows
            if memory in config.memories
        }
        self.post_set = False  # whether post-processing is enabled
        accumulators = sum(map(len, self.acc))
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
            for memory in self.sources.keys() - {Memory.ACC, Memory.ACC_8BIT}:
                for window in self.windows[memory]:
                    self._fill(memory, window)
            if Memory.POST in self.sources:
                self._fill(Memory.POST, range(POST_ROWS, 2 * POST_ROWS))
        with self._group(pop_prev=1, push_next=1):
            for window in self.acc:
                self._fill(Memory.ACC, window)
                self._alu_on(window, AluOp.MAX, self._integer(-128, 127))
        with self._group(pop_prev=1, push_prev=1):
            window = self.acc[0]
            for base in range(0, 2 * _AREA_TILES, len(window)):
                count = min(len(window), 2 * _AREA_TILES - base)
                self.builder.store(self.out, window.start, base, count)
        self.barrier(push_prev=1)

    def round(self, segment: int, number: int, rounds: int) -> None:
        """Load, compute and store in one context, which the round after the next reuses."""
        context, again, before = number % 2, int(number + 2 < rounds), int(number >= 2)
        with self._group(pop_next=int(before or number == 0), push_next=1):
            for _ in range(self._integer(1, 3)):
                self._random_load(segment, context)
            if multiplies := self._chance(0.5):
                self._load(Memory.WGT, context)
        with self._group(pop_prev=1, pop_next=before, push_prev=again, push_next=1):
            self._random_post(context, 1.0)  # the previous round's setting has other rows
            if multiplies:  # with the weights just loaded
                self._random_gemm(context)
            for _ in range(self._integer(1, 5)):
                self._random_post(context, 0.4)
                self._random_compute(segment, context)
            if not self._usable(context).size:
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
                    self.builder.store(self.out, window.start, place, len(window))
                    place += len(window)
        self._random_post(0, 1.0)
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
        if self._chance(0.8):
            first += [_is_alone(i) for i in instructions[first:]].index(False)
        for index, kind in ((first, "pop"), (-1, "push")):
            own = {name: flag for name, flag in flags.items() if name.startswith(kind)}
            instructions[index] = replace(instructions[index], **own)

    # --------------------------------------------------------------------- LOAD and STORE

    def _fill(self, memory: Memory, window: range) -> None:
        first = self._integer(0, _SOURCE_TILES - len(window))
        self.builder.load(memory, self.sources[memory], window.start, first, len(window))

    def _random_load(self, segment: int, context: int) -> None:
        memories = self.sources.keys() - {Memory.ACC, Memory.ACC_8BIT}
        memory = Memory(self.rng.choice([*sorted(memories), Memory.WGT]))
        if memory == Memory.INP and self.config.has(Extension.FORWARD) and self._chance(0.4):
            self._forward(context)
        else:
            self._load(memory, context, segment)

    def _forward(self, context: int) -> None:
        """Load a context's results from the output memory while the compute unit uses the other."""
        block = self._drawn_block(Load(forward=1, memory=Memory.INP), context, self.acc[context])
        rows = block.dram_base + block.x_stride * np.arange(block.y_size)[:, None]
        if self.current[rows + np.arange(block.x_size)].all():
            self.builder.add(block)
        else:
            self._load(Memory.INP, context)

    def _load(self, memory: Memory, context: int, segment: int | None = None) -> None:
        """Load from an input, or from the output of the segments before `segment`."""
        buffer, tiles = self.sources[memory], range(_SOURCE_TILES)
        same_size = self.config.dram_element_bytes(memory) == self.config.out.element_bytes
        if segment is not None and same_size and self._chance(0.5):
            buffer, tiles = self.out, _split(2 * _AREA_TILES)[(segment + 1) % 2]
        narrow = memory == Memory.WGT and self.config.has(Extension.NIBBLES)
        block = Load(memory=memory, nibbles=int(narrow and self._chance(0.5)))
        block = self._drawn_block(block, context, tiles)
        self.builder.add(block, buffer)
        if memory in (Memory.ACC, Memory.ACC_8BIT):
            self.current[block.sram_base : block.sram_base + block.sram_size] = False

    def _drawn_block(self, load: Load, context: int, source: range) -> Load:
        """Draw the sizes and places of a LOAD from a source to the window of a context."""
        memory = Memory(load.memory)
        window = self.windows[memory][context]
        if memory == Memory.POST and self._chance(0.5):
            window = range(window.start + POST_ROWS, window.stop + POST_ROWS)
        padded = self._may_pad(memory)
        for _ in range(_TRIES):
            block = replace(
                load,
                y_size=self._integer(1, 4),
                x_size=self._integer(1, 8),
                x_stride=self._integer(0, 10),
            )
            if padded and self._chance(0.5):
                sides = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
                most = 15 if self._chance(0.2) else 3
                block = replace(block, **{side: self._integer(0, most) for side in sides})
            if block.sram_size <= len(window) and _reach(block) <= len(source):
                break
        else:
            block = replace(load, nibbles=0, y_size=1, x_size=1, x_stride=1)
        return replace(
            block,
            sram_base=window.start + self._integer(0, len(window) - block.sram_size),
            dram_base=source.start + self._integer(0, len(source) - _reach(block)),
        )

    def _may_pad(self, memory: Memory) -> bool:
        lacks = {
            Memory.WGT: Feature.WEIGHT_PADDING,
            Memory.ACC: Feature.ACC_PADDING,
            Memory.ACC_8BIT: Feature.ACC_PADDING,
        }.get(memory)
        return memory != Memory.TABLE and (lacks is None or self.capabilities.has(lacks))

    def _usable(self, context: int) -> Ints:
        """Return the accumulators of a context that STORE may read."""
        window = self.acc[context]
        return window.start + np.flatnonzero(self.current[window.start : window.stop])

    def _random_store(self, segment: int, context: int) -> None:
        first = int(self.rng.choice(self._usable(context)))
        run = int(np.argmin([*self.current[first : self.acc[context].stop], False]))
        x_size = self._integer(1, min(run, 6))
        block = Store(
            memory=Memory.OUT,
            sram_base=first,
            x_size=x_size,
            y_size=self._integer(1, min(run // x_size, 4)),
            x_stride=self._integer(x_size, 10),
        )
        area = _split(2 * _AREA_TILES)[segment % 2]
        base = area.start + self._integer(0, len(area) - _reach(block))
        self.builder.add(replace(block, dram_base=base), self.out)

    # ---------------------------------------------------------------------- GEMM and ALU

    def _random_compute(self, segment: int, context: int) -> None:
        draw = self.rng.random()
        dst, inp = {"dst": self.acc[context]}, self.windows[Memory.INP][context]
        if draw < 0.2:
            wide = self.capabilities.has(Feature.ACC_8BIT) and self._chance(0.5)
            self._load(Memory.ACC_8BIT if wide else Memory.ACC, context, segment)
        elif draw < 0.27:
            self._compute(Gemm, dst, (), reset=1)
        elif self.config.has(Extension.POOL) and draw < 0.4:
            tiles = self._integer(1, WINDOW_TILES)
            reach = range(inp.start, inp.stop - tiles + 1)
            overwrite = self._integer(0, 1)
            self._compute(Pool, dst | {"src": reach}, tiles=tiles, overwrite=overwrite)
        elif draw < 0.65:
            self._random_gemm(context)
        else:
            self._random_alu(dst)

    def _random_gemm(self, context: int) -> None:
        names = {"dst": Memory.ACC, "src": Memory.INP, "wgt": Memory.WGT}
        windows = {name: self.windows[memory][context] for name, memory in names.items()}
        kind: type[Gemm] = Gemm
        if self.config.has(Extension.DEPTHWISE) and self._chance(0.5):
            kind, windows["src"] = Depthwise, windows["src"][: 1 - WINDOW_TILES]
        overwrite = self.config.has(Extension.OVERWRITE) and self._chance(0.4)
        self._compute(kind, windows, overwrite=int(overwrite))

    def _random_alu(self, windows: dict[str, range]) -> None:
        op = AluOp(self.rng.choice(self.operations))
        # The values of a tile reach beyond what some hardware shifts by.
        shifts = op is not AluOp.SHR or self.capabilities.has(Feature.FAR_SHIFT)
        if shifts and self._chance(0.5):
            reads = windows | {"src": windows["dst"]}
            self._compute(Alu, reads, ("dst", "src"), alu_op=op)
        else:
            self._compute(Alu, windows, alu_op=op, use_imm=1, imm=self._immediate(op))

    def _random_post(self, context: int, share: float) -> None:
        """Where there is post-processing, enable it for the rest of this round, or disable it."""
        if Memory.POST not in self.sources or not self._chance(share):
            return
        self.post_set = self._chance(0.8)
        if not self.post_set:
            self.builder.add(Post())
            return
        low, high = sorted(self._integer(-128, 127) for _ in range(2))
        fields = {
            "round_half": self._integer(0, 1),
            "zero_point": self._integer(-128, 127),
            "low": low if self._chance(0.5) else -128,
            "high": high if self._chance(0.5) else 127,
        }
        fields |= self._random_rows(context)
        if Memory.TABLE in self.sources and self._chance(0.5):
            fields |= {"use_table": 1, "table_index": int(self.rng.choice(_split(TABLES)[context]))}
        self.builder.add(Post(enable=1, **fields))

    def _random_rows(self, context: int) -> dict[str, int]:
        """Draw the scale that an instruction states, and the rows that it reads."""
        use_bias, use_scale = self._integer(0, 1), self._integer(0, 1)
        fields = {"use_bias": use_bias, "use_scale": use_scale}
        if not use_scale:
            fields |= {"multiplier": self._integer(0, 65535), "shift": self._integer(0, 47)}
        elif self.config.has(Extension.EXACT):
            fields["fine"] = self._integer(0, 3)
        if use_bias or use_scale:  # up to 8 iterations of each loop
            fields["row"] = _split(POST_ROWS)[context].start + self._integer(0, 1)
            fields |= {f"row_factor_{loop}": self._integer(0, 1) for loop in ("out", "in")}
        return fields

    def _immediate(self, op: AluOp) -> int:
        """Draw an immediate; values that destroy the operands are rare."""
        often = self._chance(0.8)
        if op is AluOp.SHR:
            limits = ((Feature.FAR_SHIFT, 40), (Feature.LONG_SHIFT, 31))
            longest = next((n for able, n in limits if self.capabilities.has(able)), 15)
            most = 3 if often else longest
            return self._integer(-most, most)
        value = self._integer(-(1 << 15), (1 << 15) - 1)
        if often and op in (AluOp.MIN, AluOp.MAX):
            positive = max(value, ~value)
            return positive if op is AluOp.MIN else ~positive
        return value

    def _alu_on(self, window: range, op: AluOp, imm: int) -> None:
        """Apply an immediate to a whole window without post-processing."""
        if self.post_set:
            self.builder.add(Post())
            self.post_set = False
        place = self._load_micro_ops([(window.start, 0, 0)])
        self.builder.alu(op, place, len(window), imm)
        self.current[window.start : window.stop] = True

    def _compute(
        self,
        kind: type[Gemm | Alu | Pool],
        windows: dict[str, range],
        accumulators_read: tuple[str, ...] = ("dst",),
        **fields: int,
    ) -> None:
        """Add an instruction whose loops and micro-ops stay within the windows of operands."""
        for most in (*(8,) * _TRIES, 1):
            loops, columns = self._draw_loops(windows, most)
            if most == 1 or not self._repeats(loops, columns, accumulators_read):
                break
        unused = np.zeros_like(columns["dst"])
        operands = [columns.get(name, unused).tolist() for name in ("dst", "src", "wgt")]
        rows = list(zip(*operands, strict=True))
        place = self._load_micro_ops(rows)
        written = np.add.outer(loop_steps(Gemm(**loops), "dst"), columns["dst"])
        self.current[written] = not fields.get("reset")
        ends = {"uop_begin": place, "uop_end": place + len(rows)}
        self.builder.add(kind(**fields, **loops, **ends))

    def _draw_loops(
        self, windows: dict[str, range], most: int
    ) -> tuple[dict[str, int], dict[str, Ints]]:
        """Return the loop fields, and each operand's elements in the micro-ops."""
        held = self.config.uop.depth
        count = self._integer(1, min(most, held))
        extents = {"out": self._integer(1, most), "in": self._integer(1, most)}
        fields = {f"iter_{loop}": extent for loop, extent in extents.items()}
        columns = {}
        for name, window in windows.items():
            room = len(window) - 1
            for loop, extent in extents.items():
                furthest = room // (extent - 1) if extent > 1 else 0
                factor = self._integer(0, furthest) if self._chance(0.7) else 0
                room -= factor * (extent - 1)
                fields[f"{name}_factor_{loop}"] = factor
            columns[name] = window.start + self.rng.integers(0, room + 1, count)
        if self.config.has(Extension.PAIRS) and self._chance(0.5):
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
        depth = self.config.uop.depth
        place = self._integer(0, depth - len(rows))
        self.builder.load_micro_ops(self.builder.micro_ops(*rows), len(rows), place)
        return place

    # ----------------------------------------------------------------------------- random

    def _halves(self, depth: int, most: int) -> tuple[range, range]:
        """Return a window in each half of a memory."""
        half = depth // 2
        sizes = [self._integer(min(4, half), min(most, half)) for _ in range(2)]
        bases = [self._integer(0, half - sizes[0]), self._integer(half, depth - sizes[1])]
        first, second = (range(b, b + n) for b, n in zip(bases, sizes, strict=True))
        return first, second

    def _integer(self, low: int, high: int) -> int:
        """Return an integer in low..high, inclusive; often one of the limits."""
        return int(self.rng.choice([low, high, *self.rng.integers(low, high + 1, 3)]))

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)


def _is_alone(i: Instruction) -> bool:
    """Whether an instruction depends on no other unit."""
    return isinstance(i, Post) or (isinstance(i, Load) and i.memory == Memory.UOP)


def _split(size: int) -> tuple[range, range]:
    """Return the halves of a memory, one for each context."""
    return range(size // 2), range(size // 2, size)


def _reach(block: MemoryInstruction) -> int:
    """Return the DRAM elements from the first to the last access, inclusive."""
    return (block.y_size - 1) * block.x_stride + block.x_size
