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
from vtaops.program.features import first_unsupported
from vtaops.program.program import NO_BUFFER, Program, Role

PIPELINE_STEPS = 8
"""Minimum steps between a write of an accumulator and its next use, if the device lacks a feature:
such hardware need not forward a result in flight (upstream's HLS design does not, and takes some
cycles). Other devices must forward, so programs for them have no minimum distance."""

_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")
_SHARES: dict[type[Instruction], int] = {Load: 6, Store: 3, Gemm: 3, Alu: 2, Finish: 0}
"""How often instructions are drawn; others once."""
_RANGES = {
    **{"tiles": (1, WINDOW_TILES), "multiplier": (0, 65535), "shift": (0, 47), "fine": (0, 3)},
    **{"zero_point": (-128, 127), "row": (0, POST_ROWS // 2), "table_index": (0, TABLES - 1)},
}
"""Least and greatest value of fields; others have one bit."""
_IMMEDIATES = {AluOp.MIN: (0, (1 << 15) - 1), AluOp.MAX: (-(1 << 15), -1)}
"""Those that destroy few operands; other operations take any."""
_AREA_TILES = 48  # reachable by the stores of a segment
_SOURCE_TILES = 64  # of each input
_LIMITS = (8,) * 20 + (4,) * 5 + (2,) * 5 + (1,)
"""How large the draws of an instruction may be, one after the other."""


def random_program(
    config: HardwareConfig,
    rng: np.random.Generator,
    capabilities: Capabilities = FULL,
    *,
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
    rounds : int
        Rounds of eight draws in each of the two segments; at least 1.

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
    first, second = range(_AREA_TILES), range(_AREA_TILES, 2 * _AREA_TILES)
    for target, before in ((first, second), (second, first)):
        for _ in range(8 * rounds):
            writer.draw(target, before)
        writer.barrier(Load(memory=Memory.UOP))
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
        self.acc = self._window(config.acc.depth, _AREA_TILES)
        self.windows = {
            Memory.INP: self._window(config.inp.depth, 24),
            Memory.WGT: self._window(config.wgt.depth, 8),
            Memory.POST: range(2 * POST_ROWS),
            Memory.TABLE: range(TABLES),
            **dict.fromkeys((Memory.ACC, Memory.ACC_8BIT, Memory.OUT), self.acc),
        }
        self.sources: dict[Memory, int] = {
            memory: b.tiles(memory.name.lower(), Role.INPUT, _SOURCE_TILES, memory)
            for memory in config.memories
            if memory not in (Memory.UOP, Memory.OUT)
        }
        self.out = b.tiles("out", Role.OUTPUT, 2 * _AREA_TILES + 4 * len(self.acc))
        self.post = OFF
        # Accumulators whose last writer is the ALU or an accumulating GEMM: STORE may read them.
        self.current = np.zeros(config.acc.depth, np.bool_)
        # By unit and memory, the place of each element's last write (0) and last access (1).
        depth = max(window.stop for window in self.windows.values())
        self.last = np.full((len(Unit), len(Memory), 2, depth), -1)
        self.waited = np.full((len(Unit), len(Unit)), -1)
        full = {*FSIM.features} <= {*capabilities.features}
        self.distance = 1 if full else PIPELINE_STEPS

    # ------------------------------------------------------------------------- structure

    def begin(self) -> None:
        """Initialize everything that is read later: windows and output areas."""
        for memory in self.sources.keys() - {Memory.ACC_8BIT}:
            window = self.windows[memory]
            self._add(one_row(Load, memory, window.start, 0, len(window)), self.sources[memory])
        self._alu(AluOp.MAX, self._integer(-128, 127))
        for base in range(0, 2 * _AREA_TILES, len(self.acc)):
            self._store(base, min(len(self.acc), 2 * _AREA_TILES - base))
        self.barrier(Load(memory=Memory.UOP))

    def draw(self, target: range, before: range) -> None:
        """Add an instruction: stores to an area of the output, loads also from another one."""
        known = Encoding.of(self.config).instructions
        kinds = [kind for kind in known for _ in range(_SHARES.get(kind, 1))]
        kind = kinds[self.rng.integers(len(kinds))]
        often = Memory.INP, Memory.INP, Memory.WGT, Memory.WGT
        loaded = Memory(self.rng.choice([*self.sources, *often]))
        for most in _LIMITS:
            buffer, rows = NO_BUFFER, None
            if issubclass(kind, LoopInstruction):
                i, rows = self._loops(kind, most)
            elif kind is Post:
                i = self._post()
            elif kind is Load:
                i, buffer = self._load(loaded, most, before)
            else:
                i, buffer = self._block(Store, Memory.OUT, most, target), self.out
            if self._is_legal(i, rows):
                self._add(i, buffer, rows)
                break

    def barrier(self, i: Instruction) -> None:
        """Let the compute unit wait for the others, and these for it."""
        place = self.builder.add(i)
        for unit in (Unit.LOAD, Unit.STORE):
            self._wait(place, unit, self.last[unit].max())
        self.last[Unit.COMPUTE] = place

    def end(self) -> None:
        """Store all accumulators, one byte at a time."""
        for byte in range(4):
            self._alu(AluOp.SHR, 8 if byte else 0)
            self._store(2 * _AREA_TILES + byte * len(self.acc), len(self.acc))
        if self.config.has(Extension.POST):
            self._add(self._post())
        self.barrier(Finish())

    def _alu(self, op: AluOp, imm: int) -> None:
        """Apply an immediate to all accumulators without post-processing."""
        if self.post.enable:
            self._add(OFF)
        i = Alu(alu_op=op, use_imm=1, imm=imm, iter_out=1, iter_in=len(self.acc), dst_factor_in=1)
        self._add(i, rows=np.array([[self.acc.start, 0, 0]]))

    def _store(self, base: int, count: int) -> None:
        self._add(one_row(Store, Memory.OUT, self.acc.start, base, count), self.out)

    # ------------------------------------------------------------------ legal instructions

    def _is_legal(self, i: Any, rows: Ints | None) -> bool:
        """Whether a device executes it as defined, and its accesses are in the windows."""
        for access in accesses(i, rows):
            window = self.windows[Memory(access.memory)]
            if access.first < window.start or access.end > window.stop:
                return False
            moved = isinstance(i, MemoryInstruction) and access.reads
            if moved and not self.current[access.elements].all():
                return False
        words = Encoding.of(self.config).encode_all([i])
        unsupported = first_unsupported(self.config, words, self.capabilities)
        return not (unsupported or (rows is not None and self._repeats(i, rows)))

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

    def _add(self, i: Any, buffer: int = NO_BUFFER, rows: Ints | None = None) -> None:
        """Add an instruction, which waits for those whose accesses conflict with its own.

        Its micro-ops are loaded before.
        """
        if rows is not None:
            at = self._integer(0, self.capabilities.micro_op_depth(self.config) - len(rows))
            first = self.builder.micro_ops(*map(tuple, rows.tolist()))
            self.builder.load_micro_ops(first, len(rows), at)
            i = replace(i, uop_begin=at, uop_end=at + len(rows))
        place = self.builder.add(i, buffer)
        found = [*accesses(i, rows), *parameters(i, self.post)]
        for unit in Unit:
            if abs(unit - i.unit) == 1:
                last = self.last[unit]
                conflicts = [last[a.memory, int(a.writes), a.elements].max() for a in found]
                self._wait(place, unit, max(conflicts, default=-1))
        if isinstance(i, Post):
            self.post = i
        for access in found:
            self.last[i.unit, access.memory, 1, access.elements] = place
            if access.writes:
                self.last[i.unit, access.memory, 0, access.elements] = place
                if access.memory == Memory.ACC:
                    self.current[access.elements] = isinstance(i, LoopInstruction) and not i.reset

    def _wait(self, place: int, unit: Unit, before: int) -> None:
        """Let an instruction, or one right before it, wait for another unit's at a place before."""
        instructions = self.builder.instructions
        own = instructions[place].unit
        if before > self.waited[unit, own]:
            self.waited[unit, own] = before
            push, pop = ("push_next", "pop_prev") if unit < own else ("push_prev", "pop_next")
            earlier = instructions[place - 1]  # mostly a LOAD of its micro-ops
            free = before < place - 1 and earlier.unit == own and not getattr(earlier, pop)
            place -= free and self._chance(0.2)
            instructions[before] = replace(instructions[before], **{push: 1})
            instructions[place] = replace(instructions[place], **{pop: 1})

    # --------------------------------------------------------------------- LOAD and STORE

    def _load(self, memory: Memory, most: int, area: range) -> tuple[Any, int]:
        """Draw a LOAD from an input, from an area of the output, or from the accumulators."""
        fields = self._pads() if memory != Memory.TABLE and self._chance(0.5) else {}
        if memory == Memory.WGT and self.config.has(Extension.NIBBLES):
            fields |= self._fields("nibbles")
        buffer, far = self.sources[memory], range(_SOURCE_TILES)
        same_size = self.config.dram_element_bytes(memory) == self.config.out.element_bytes
        if memory == Memory.INP and self.config.has(Extension.FORWARD) and self._chance(0.4):
            fields["forward"], buffer, far = 1, NO_BUFFER, self.acc
        elif same_size and self._chance(0.5):
            buffer, far = self.out, area
        return self._block(Load, memory, most, far, **fields), buffer

    def _pads(self) -> dict[str, int]:
        longest = 15 if self._chance(0.2) else 3
        return {name: self._integer(0, longest) for name in _PADS}

    def _block(self, kind: type[Any], memory: Memory, most: int, far: range, **fields: int) -> Any:
        """Draw a LOAD or STORE from or to some elements of a range."""
        y_size, x_size = self._integer(1, min(4, most)), self._integer(1, most)
        x_stride = self._integer(x_size if kind is Store else 0, 10)  # no two to one place
        room = len(far) - (y_size - 1) * x_stride - x_size
        dram_base = far.start + self._integer(0, max(0, room))
        window = self.windows[memory]
        sram_base = self._integer(window[0], window[-1])
        return kind(
            memory=memory,
            sram_base=sram_base,
            dram_base=dram_base,
            y_size=y_size,
            x_size=x_size,
            x_stride=x_stride,
            **fields,
        )

    # ---------------------------------------------------------------------- GEMM and ALU

    def _loops(self, kind: type[Any], most: int) -> tuple[Any, Ints]:
        """Draw loops and micro-ops whose operands stay within the windows."""
        i = kind(**self._options(kind))
        count = self._integer(1, min(most, self.capabilities.micro_op_depth(self.config)))
        extents = {"out": self._integer(1, most), "in": self._integer(1, most)}
        drawn = {f"iter_{loop}": extent for loop, extent in extents.items()}
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

    def _options(self, kind: type[Any]) -> dict[str, int]:
        """Draw the fields of an instruction that say what it computes."""
        if kind is Alu:
            op = AluOp(self.rng.choice([*AluOp]))
            # The values of a tile reach beyond what some hardware shifts by.
            tiles = op is not AluOp.SHR or self.capabilities.has(Feature.FAR_SHIFT)
            if tiles and self._chance(0.5):
                return {"alu_op": op}
            return {"alu_op": op, "use_imm": 1, "imm": self._immediate(op)}
        if kind is Pool:
            return self._fields("tiles", "overwrite")
        if kind is Gemm and self._chance(0.1):
            return {"reset": 1}
        return self._fields("overwrite") if self.config.has(Extension.OVERWRITE) else {}

    def _immediate(self, op: AluOp) -> int:
        if op is AluOp.SHR:
            most = 40 if self.capabilities.has(Feature.FAR_SHIFT) else 31
            most = 3 if self._chance(0.8) else most
            return self._integer(-most, most)
        return self._integer(*_IMMEDIATES.get(op, (-(1 << 15), (1 << 15) - 1)))

    def _post(self) -> Post:
        """Draw post-processing, or none."""
        if self._chance(0.2):
            return OFF
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
        return Post(enable=1, **drawn)

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
