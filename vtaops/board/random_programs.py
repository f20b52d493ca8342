"""Random valid programs: a stress test for anything that executes VTA programs.

An instruction is drawn until it is legal: the device supports it, and what it accesses lies in a
window of each memory, and is defined. It waits for the instructions of other units whose accesses
conflict with its own, and for no others, so that the three units run concurrently. Between segments
all units wait for each other; each segment loads results that the previous one stored. At the end
every byte of every accumulator in use is stored. Post-processing may still be enabled at the end:
the next program starts with it disabled.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from vtaops.base.errors import UnsupportedError
from vtaops.base.shapes import Int8Array, Int32Array, Ints
from vtaops.machine.accesses import (
    OFF,
    OPERANDS,
    accesses,
    accumulates,
    operands,
    parameters,
    steps,
)
from vtaops.machine.capabilities import FSIM, FULL, Capabilities, Feature
from vtaops.machine.config import POST_ROWS, TABLES, WINDOW_TILES, Extension, HardwareConfig, Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    LoopInstruction,
    MemoryInstruction,
    Pool,
    Post,
    Store,
    Unit,
)
from vtaops.program.builder import ProgramBuilder, one_row
from vtaops.program.features import needs
from vtaops.program.program import NO_BUFFER, Program, Role

PIPELINE_STEPS = 8
"""Minimum steps between a write of an accumulator and its next use, if the device lacks a feature:
such hardware need not forward a result in flight (upstream's HLS design does not, and takes some
cycles). Other devices must forward, so programs for them have no minimum distance."""

_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
_SHARES: dict[type[Instruction], int] = {Load: 6, Store: 3, Gemm: 3, Alu: 2, Finish: 0}
"""How often instructions are drawn; others once."""
_RANGES = {
    **{"y_size": (1, 4), "x_size": (1, 8), "x_stride": (0, 10), "tiles": (1, WINDOW_TILES)},
    **{"multiplier": (0, 65535), "shift": (0, 47), "fine": (0, 3), "zero_point": (-128, 127)},
    **{"row": (0, POST_ROWS // 2), "table_index": (0, TABLES - 1)},
}
"""Least and greatest value of fields; others have one bit."""
_AREA_TILES = 48  # reachable by the stores of a segment
_SOURCE_TILES = 64  # of each input
_LIMITS = (8,) * 20 + (4,) * 5 + (2,) * 5 + (1,)
"""How large the draws of an instruction may be, one after the other."""


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
        Number of segments, and of rounds of eight draws in each; at least 1.

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
    target, before = range(_AREA_TILES), range(_AREA_TILES, 2 * _AREA_TILES)
    for _ in range(segments):
        for _ in range(8 * rounds):
            writer.draw(target, before)
        writer.barrier(Load(memory=Memory.UOP))
        target, before = before, target
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
    """Writes one program."""

    def __init__(
        self, config: HardwareConfig, rng: np.random.Generator, capabilities: Capabilities
    ) -> None:
        self.config, self.rng, self.capabilities = config, rng, capabilities
        self.builder = b = ProgramBuilder(config)
        self.windows = {
            Memory.INP: self._window(config.inp.depth, 24),
            Memory.WGT: self._window(config.wgt.depth, 8),
            Memory.ACC: self._window(config.acc.depth, _AREA_TILES),
            Memory.POST: range(2 * POST_ROWS),
            Memory.TABLE: range(TABLES),
        }
        self.acc = self.windows[Memory.ACC_8BIT] = self.windows[Memory.ACC]
        self.sources = {
            memory: b.tiles(memory.name.lower(), Role.INPUT, _SOURCE_TILES, memory)
            for memory in self.windows
            if memory in config.memories
        }
        self.out = b.tiles("out", Role.OUTPUT, 2 * _AREA_TILES + 4 * len(self.acc))
        self.post = OFF
        # Accumulators whose last writer is the ALU or an accumulating GEMM: STORE may read them.
        self.current = np.zeros(config.acc.depth, np.bool_)
        # By unit and memory, the place of each element's last access (True) and write (False).
        depths = {memory: window.stop for memory, window in self.windows.items()}
        self.last: dict[tuple[Unit, int, bool], Ints] = {
            (unit, memory, any_access): np.full(depth, -1)
            for unit, (memory, depth), any_access in product(Unit, depths.items(), (False, True))
        }
        self.waited = dict.fromkeys(product(Unit, Unit), -1)
        self.behind = -1  # the last barrier
        full = {*FSIM.features} <= {*capabilities.features}
        self.distance = 1 if full else PIPELINE_STEPS

    # ------------------------------------------------------------------------- structure

    def begin(self) -> None:
        """Initialize everything that is read later: windows and output areas."""
        for memory in self.sources.keys() - {Memory.ACC_8BIT}:
            window = self.windows[memory]
            i = one_row(Load, memory, window.start, 0, len(window))
            self._add(i, self.sources[memory])
        self._alu(AluOp.MAX, self._integer(-128, 127))
        for base in range(0, 2 * _AREA_TILES, len(self.acc)):
            self._store(base, min(len(self.acc), 2 * _AREA_TILES - base))
        self.barrier(Load(memory=Memory.UOP))

    def draw(self, target: range, before: range) -> None:
        """Add an instruction: stores to an area of the output, loads also from another one."""
        known = Encoding.of(self.config).instructions
        kinds = [kind for kind in known for _ in range(_SHARES.get(kind, 1))]
        kind = kinds[self.rng.integers(len(kinds))]
        if kind is Load:
            often = Memory.INP, Memory.INP, Memory.WGT, Memory.WGT
            self._load(Memory(self.rng.choice([*self.sources, *often])), before)
        elif kind is Store:
            self._move(Store(memory=Memory.OUT), self.out, target)
        elif kind is Post:
            self._set_post()
        else:
            self._compute(kind)

    def barrier(self, i: Instruction) -> None:
        """Let the compute unit wait for the others, and these for it."""
        place, instructions = self.builder.add(i), self.builder.instructions
        for unit in (Unit.LOAD, Unit.STORE):
            self._wait(place, unit, max(p for p, j in enumerate(instructions) if j.unit == unit))
        self.behind = place

    def end(self) -> None:
        """Store all accumulators, one byte at a time."""
        for byte in range(4):
            self._alu(AluOp.SHR, 8 if byte else 0)
            self._store(2 * _AREA_TILES + byte * len(self.acc), len(self.acc))
        if self.config.has(Extension.POST):
            self._set_post()
        self.barrier(Finish())

    # ------------------------------------------------------------------ legal instructions

    def _is_legal(self, i: Instruction, rows: Ints | None = None) -> bool:
        """Whether the device has what an instruction needs, whose accesses are in the windows."""
        for access in accesses(i, rows):
            window = self.windows[Memory(access.memory)]
            if access.first < window.start or access.end > window.stop:
                return False
            moved = isinstance(i, MemoryInstruction) and access.reads
            if moved and not self.current[access.elements].all():
                return False
        words = Encoding.of(self.config).encode_all([i])
        needed = {feature for feature, where in needs(self.config, words) if where.size}
        return needed <= {*self.capabilities.features}

    def _add(self, i: Instruction, buffer: int = NO_BUFFER, rows: Ints | None = None) -> None:
        """Add an instruction, which waits for those whose accesses conflict with its own."""
        place = self.builder.add(i, buffer)
        found = [*accesses(i, rows), *parameters(i, self.post)]
        for unit in Unit:
            if abs(unit - i.unit) == 1:
                conflicts = [self.last[unit, a.memory, a.writes][a.elements].max() for a in found]
                self._wait(place, unit, max(conflicts, default=-1))
        if isinstance(i, Post):
            self.post = i
        for access in found:
            self.last[i.unit, access.memory, True][access.elements] = place
            if access.writes:
                self.last[i.unit, access.memory, False][access.elements] = place
            if access.writes and access.memory == Memory.ACC:
                self.current[access.elements] = isinstance(i, LoopInstruction) and not i.reset

    def _wait(self, place: int, unit: Unit, before: int) -> None:
        """Let an instruction, or one right before it, wait for another unit's at a place before."""
        instructions = self.builder.instructions
        own = instructions[place].unit
        if unit == Unit.COMPUTE:
            before = max(before, self.behind)
        if before > self.waited[unit, own]:
            self.waited[unit, own] = before
            push, pop = ("push_next", "pop_prev") if unit < own else ("push_prev", "pop_next")
            earlier = instructions[place - 1]  # mostly a LOAD of its micro-ops
            free = before < place - 1 and earlier.unit == own and not getattr(earlier, pop)
            place -= free and self._chance(0.2)
            instructions[before] = replace(instructions[before], **{push: 1})
            instructions[place] = replace(instructions[place], **{pop: 1})

    # --------------------------------------------------------------------- LOAD and STORE

    def _load(self, memory: Memory, before: range) -> None:
        """Load from an input, from an area of the output, or from the accumulators."""
        same_size = self.config.dram_element_bytes(memory) == self.config.out.element_bytes
        if memory == Memory.INP and self.config.has(Extension.FORWARD) and self._chance(0.4):
            self._move(Load(forward=1, memory=memory), NO_BUFFER, self.acc)
        elif same_size and self._chance(0.5):
            self._move(Load(memory=memory), self.out, before)
        else:
            self._move(Load(memory=memory), self.sources[memory], range(_SOURCE_TILES))

    def _store(self, base: int, count: int) -> None:
        self._add(one_row(Store, Memory.OUT, self.acc.start, base, count), self.out)

    def _move(self, kind: MemoryInstruction, buffer: int, far: range) -> None:
        """Add a LOAD or STORE from or to some elements of a buffer, if a legal one is found."""
        for most in _LIMITS:
            i = self._drawn_block(kind, most)
            room = len(far) - (i.y_size - 1) * i.x_stride - i.x_size
            i = replace(i, dram_base=far.start + self._integer(0, max(0, room)))
            if room >= 0 and self._is_legal(i):
                self._add(i, buffer)
                break

    def _drawn_block(self, kind: MemoryInstruction, most: int) -> MemoryInstruction:
        sizes = self._fields("y_size", "x_size").items()
        fields: dict[str, Any] = {name: min(size, most) for name, size in sizes}
        fields |= self._fields("x_stride")
        memory = Memory.ACC if isinstance(kind, Store) else Memory(kind.memory)
        if isinstance(kind, Store):
            fields["x_stride"] = max(fields["x_stride"], fields["x_size"])  # no two to one place
        elif memory != Memory.TABLE and self._chance(0.5):
            longest = 15 if self._chance(0.2) else 3
            fields |= {name: self._integer(0, longest) for name in _PADS}
        if memory == Memory.WGT and self.config.has(Extension.NIBBLES):
            fields |= self._fields("nibbles")
        window = self.windows[memory]
        return replace(kind, sram_base=self._integer(window[0], window[-1]), **fields)

    # ---------------------------------------------------------------------- GEMM and ALU

    def _compute(self, kind: type[Any]) -> None:
        """Add an instruction with loops, if a legal one is found."""
        for most in _LIMITS:
            i, rows = self._drawn_loops(kind(**self._options(kind)), most)
            if self._is_legal(i, rows) and not self._repeats(i, rows):
                self._execute(i, rows)
                break

    def _options(self, kind: type[Any]) -> dict[str, int]:
        """Draw the fields of an instruction that say what it computes."""
        if kind is Alu:
            op = AluOp(self.rng.choice([*AluOp]))
            # The values of a tile reach beyond what some hardware shifts by.
            shifts = op is not AluOp.SHR or self.capabilities.has(Feature.FAR_SHIFT)
            if shifts and self._chance(0.5):
                return {"alu_op": op}
            return {"alu_op": op, "use_imm": 1, "imm": self._immediate(op)}
        if kind is Pool:
            return self._fields("tiles", "overwrite")
        if kind is Gemm and self._chance(0.1):
            return {"reset": 1}
        return self._fields("overwrite") if self.config.has(Extension.OVERWRITE) else {}

    def _immediate(self, op: AluOp) -> int:
        """Draw an immediate; few destroy the operands."""
        if op is AluOp.SHR:
            most = 40 if self.capabilities.has(Feature.FAR_SHIFT) else 31
            most = 3 if self._chance(0.8) else most
            return self._integer(-most, most)
        value = self._integer(-(1 << 15), (1 << 15) - 1)
        return {AluOp.MIN: max(value, ~value), AluOp.MAX: min(value, ~value)}.get(op, value)

    def _drawn_loops(self, i: LoopInstruction, most: int) -> tuple[LoopInstruction, Ints]:
        """Draw loops and micro-ops whose operands stay within the windows."""
        count = self._integer(1, min(most, self.capabilities.micro_op_depth(self.config)))
        extents = {"out": self._integer(1, most), "in": self._integer(1, most)}
        drawn: dict[str, Any] = {f"iter_{loop}": extent for loop, extent in extents.items()}
        rows = np.zeros((count, len(OPERANDS)), np.int64)
        for operand, memory in operands(i).items():
            room = len(window := self.windows[memory])
            for loop, extent in extents.items():
                furthest = room // extent if extent > 1 and self._chance(0.7) else 0
                drawn[f"{operand}_factor_{loop}"] = factor = self._integer(0, furthest)
                room -= factor * (extent - 1)
            rows[:, OPERANDS.index(operand)] = window.start + self.rng.integers(0, room, count)
        if self.config.has(Extension.PAIRS) and self._chance(0.5):
            lengths = self.rng.integers(1, 5, count)  # of runs of one accumulator
            rows[:, 0] = np.repeat(rows[:, 0], lengths)[:count]
        return replace(i, uop_end=count, **drawn), rows

    def _repeats(self, i: LoopInstruction, rows: Ints) -> bool:
        """Whether a step reads the result of a step shortly before it."""
        read = [name for name, memory in operands(i).items() if memory == Memory.ACC]
        written, *others = (steps(i, name, rows).ravel() for name in read)
        if accumulates(i):
            others.append(written)
        return any(
            bool((written[:-d] == operand[d:]).any())
            for d in range(1, min(self.distance, len(written)))
            for operand in others
        )

    def _execute(self, i: LoopInstruction, rows: Ints) -> None:
        """Add an instruction, behind a LOAD of its micro-ops."""
        place = self._integer(0, self.capabilities.micro_op_depth(self.config) - len(rows))
        first = self.builder.micro_ops(*map(tuple, rows.tolist()))
        self.builder.load_micro_ops(first, len(rows), place)
        self._add(replace(i, uop_begin=place, uop_end=place + len(rows)), rows=rows)

    def _alu(self, op: AluOp, imm: int) -> None:
        """Apply an immediate to all accumulators without post-processing."""
        if self.post.enable:
            self._add(OFF)
        i = Alu(alu_op=op, use_imm=1, imm=imm, iter_out=1, iter_in=len(self.acc), dst_factor_in=1)
        self._execute(replace(i, uop_end=1), np.array([[self.acc.start, 0, 0]]))

    def _set_post(self) -> None:
        """Enable post-processing, or disable it."""
        if self._chance(0.2):
            self._add(OFF)
            return
        low, high = sorted(self._integer(-128, 127) for _ in range(2))
        drawn = self._fields("use_bias", "use_scale", "round_half", "zero_point")
        drawn |= {"low": low, "high": high} if self._chance(0.5) else {"low": -128, "high": 127}
        if not drawn["use_scale"]:
            drawn |= self._fields("multiplier", "shift")
        elif self.config.has(Extension.EXACT):
            drawn |= self._fields("fine")
        if drawn["use_bias"] or drawn["use_scale"]:  # up to 8 iterations of each loop
            drawn |= self._fields("row", "row_factor_out", "row_factor_in")
        if self.config.has(Extension.TABLE) and self._chance(0.5):
            drawn |= {"use_table": 1} | self._fields("table_index")
        self._add(Post(enable=1, **drawn))

    # ----------------------------------------------------------------------------- random

    def _window(self, depth: int, most: int) -> range:
        size = self._integer(min(8, depth), min(most, depth))
        first = self._integer(0, depth - size)
        return range(first, first + size)

    def _fields(self, *names: str) -> dict[str, int]:
        return {name: self._integer(*_RANGES.get(name, (0, 1))) for name in names}

    def _integer(self, low: int, high: int) -> int:
        """Return an integer in low..high, inclusive; often one of the limits."""
        return int(self.rng.choice([low, high, *self.rng.integers(low, high + 1, 3)]))

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)
