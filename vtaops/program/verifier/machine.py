"""Machine: abstract execution in program order; the rules on bounds and buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vtaops.machine import isa
from vtaops.machine.config import DRAM_BYTES, POST_ROWS, WINDOW_TILES, Memory
from vtaops.machine.isa import Unit
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.verifier.dram import Elements, WrittenBuffer, block, written_memory
from vtaops.program.verifier.history import History
from vtaops.program.verifier.operands import (
    Column,
    column_of,
    first_of,
    repeated,
    span,
    touched,
)
from vtaops.program.verifier.rules import CheckedInstruction, Rule, reject

Factors = tuple[int, int]
"""Elements per step of the outer and of the inner loop."""


class Machine:
    """The memories of a device, as far as the rules need them; executes abstractly."""

    _LASTING = (Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE)
    """What the load unit alone writes."""

    def __init__(self, program: Program) -> None:
        config = program.config
        if program.dram_nbytes > DRAM_BYTES:
            reject(
                Rule.DRAM_BOUNDS,
                "the program",
                f"it needs {program.dram_nbytes} bytes of DRAM; a device addresses {DRAM_BYTES}",
            )
        self.program = program
        self.depths = [config.scratchpad(memory).depth for memory in Memory]
        self.acc = History("ACC", Unit.COMPUTE, (Unit.LOAD, Unit.STORE))
        self.current = 0  # accumulators that the output memory has
        self.sram: dict[int, History] = {Memory.ACC: self.acc, Memory.ACC_8BIT: self.acc}
        for m in self._LASTING:
            self.sram[m] = History(m.name, Unit.LOAD, (Unit.COMPUTE,))
        self.pinned = dict.fromkeys(map(int, Memory), 0)
        self.micro_ops = _MicroOps(program)
        self.operands: dict[tuple[bytes, bytes], list[_Operand]] = {}
        self.post = isa.Post()
        self.parameters: dict[Factors, int] = {}  # rows by extents of loops, while `post` stays
        self.dram_bytes = [config.dram_element_bytes(memory) for memory in Memory]
        self.granule = min(self.dram_bytes[m] for m in Memory if m != Memory.UOP)
        self.dram = written_memory(program, self.granule)
        buffers = enumerate(program.buffers)
        self.places = {n: (f"buffer {b.name!r}", b.nbytes, b.offset or 0) for n, b in buffers}
        self.places[MICRO_OPS] = "the micro-op table", program.micro_ops.nbytes, 0

    def execute(self, step: CheckedInstruction) -> None:
        """Check all accesses of one instruction and record them."""
        i = step.instruction
        if step.index < self.program.pinned:
            self._check_pinned(step)
        if isinstance(i, isa.Load) and i.x_size:
            self._load(step, i)
        elif isinstance(i, isa.Store) and i.x_size:
            self._store(step, i)
        elif step.relocation != NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves no data, so it must not name a buffer")
        elif isinstance(i, isa.LoopInstruction):
            self._loop(step, i)
        elif isinstance(i, isa.Post):
            self.post = i
            self.parameters.clear()

    def check_outputs(self) -> None:
        """Check that every OUTPUT buffer is stored completely."""
        for index, memory in self.dram.items():
            missing = memory.never_written()
            if self.program.buffers[index].role is Role.OUTPUT and missing.size:
                reject(
                    Rule.INCOMPLETE_OUTPUT,
                    "the program",
                    f"{missing.size} elements of {memory.name} are never stored, "
                    f"the first is {missing[0]}",
                )

    # ------------------------------------------------------------ LOAD and STORE

    def _check_pinned(self, step: CheckedInstruction) -> None:
        """Check that the elements of an instruction are the same for all runs."""
        i = step.instruction
        lasting = isinstance(i, isa.Load) and i.x_size and i.memory in self._LASTING
        if not lasting or i.pop_prev or i.pop_next or i.push_prev or i.push_next:
            step.reject(
                Rule.PINNED,
                "a pinned instruction is a LOAD to INP, WGT, POST or TABLE without tokens",
            )
        buffers = self.program.buffers
        role = buffers[step.relocation].role if step.relocation >= 0 else None
        if role not in (Role.PARAMETER, Role.CONSTANT):
            step.reject(Rule.PINNED, "a pinned LOAD reads a PARAMETER or CONSTANT buffer")

    def _keep(self, step: CheckedInstruction, memory: int, elements: int) -> None:
        """Note what a pinned LOAD writes; reject another one that writes it."""
        pinned = self.pinned[memory]
        if step.index < self.program.pinned:
            self.pinned[memory] |= elements
        elif pinned & elements:
            reason = f"element {first_of(pinned & elements)} of what it writes is pinned"
            step.reject(Rule.PINNED, reason)

    def _load(self, step: CheckedInstruction, i: isa.Load) -> None:
        sram = self._sram_range(step, i)
        if self.program.pinned:
            self._keep(step, i.memory, sram)
        if i.forward:
            if step.relocation != NO_BUFFER:
                step.reject(Rule.RELOCATION, "it reads no DRAM, so it must not name a buffer")
            self._output(step, self._forwarded(step, i))
            self.sram[Memory.INP].write(step, sram)
            return
        source = self._dram(step, i)
        if source is not None and i.y_size:
            source.read(step, self._dram_elements(i))
        if i.memory == Memory.UOP:
            self.micro_ops.load(i)
            return
        self.sram[i.memory].write(step, sram)
        if i.memory in (Memory.ACC, Memory.ACC_8BIT):
            self.current &= ~sram

    def _store(self, step: CheckedInstruction, i: isa.Store) -> None:
        sram = self._sram_range(step, i)
        written = self._dram(step, i)
        if written is None:
            buffer = self.program.buffers[step.relocation]
            step.reject(
                Rule.RELOCATION,
                f"it stores to {buffer.name!r}, which is {buffer.role.name}; "
                f"only OUTPUT and SCRATCH buffers are written",
            )
        self._output(step, sram)
        written.write(step, self._dram_elements(i))

    def _output(self, step: CheckedInstruction, elements: int) -> None:
        """Check and record that an instruction reads the output memory."""
        self.acc.read(step, elements)
        stale = elements & ~self.current
        if stale:
            step.reject(
                Rule.STALE_OUTPUT,
                f"element {first_of(stale)} was last written by a LOAD or a reset; only the ALU "
                f"and accumulating GEMMs write the output memory",
            )

    def _forwarded(self, step: CheckedInstruction, i: isa.Load) -> int:
        """Return the elements of the output memory that a LOAD takes."""
        last = i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size - 1
        depth = self.depths[Memory.OUT]
        if last >= depth:
            step.reject(Rule.SRAM_BOUNDS, f"it takes element {last} of OUT, which has {depth}")
        return repeated(span(i.dram_base, i.x_size), ((i.y_size, i.x_stride),))

    def _sram_range(self, step: CheckedInstruction, i: isa.MemoryInstruction) -> int:
        size = i.sram_size
        if i.sram_base + size > self.depths[i.memory]:
            pad = self.program.config.scratchpad(Memory(i.memory))
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it touches elements {i.sram_base}..{i.sram_base + size - 1} of "
                f"{pad.memory.name}, which has {pad.depth}",
            )
        return span(i.sram_base, size)

    def _dram(self, step: CheckedInstruction, i: isa.MemoryInstruction) -> WrittenBuffer | None:
        """Check an access to DRAM; return the history of the buffer if the program writes it."""
        if isinstance(i, isa.Store) and step.relocation == MICRO_OPS:
            step.reject(Rule.RELOCATION, "the micro-op table is read-only")
        if (i.memory == Memory.UOP) != (step.relocation == MICRO_OPS):
            step.reject(Rule.RELOCATION, "LOAD UOP, and no other, reads the micro-op table")
        if step.relocation == NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves data, so it must name a buffer")
        element = self.dram_bytes[i.memory]
        name, nbytes, offset = self.places[step.relocation]
        if offset % element:
            step.reject(
                Rule.RELOCATION,
                f"{name} lies at byte {offset} of the arena, which is not "
                f"a multiple of {element}-byte elements",
            )
        end = i.dram_base  # of a LOAD of padding alone: its address must still be one of the buffer
        if i.y_size:
            end += (i.y_size - 1) * i.x_stride + i.x_size
        if end * element > nbytes:
            step.reject(
                Rule.DRAM_BOUNDS,
                f"it reaches byte {end * element - 1} of {name}, which has {nbytes}",
            )
        return self.dram.get(step.relocation)

    def _dram_elements(self, i: isa.MemoryInstruction) -> Elements:
        """Return the granules of DRAM that a LOAD or STORE touches."""
        scale = self.dram_bytes[i.memory] // self.granule
        return block(i.dram_base * scale, i.y_size, i.x_size * scale, i.x_stride * scale)

    # -------------------------------------------------------------- GEMM and ALU

    def _loop(self, step: CheckedInstruction, i: isa.LoopInstruction) -> None:
        first, steps = self.micro_ops.named(step, i)
        form = steps, step.form  # equal loops with equal steps touch the same, further on
        operands = self.operands.get(form)
        if operands is None:
            operands = self.operands[form] = [*self._operands_of(i, steps)]
        written = 0
        for memory, depth, field, reached, reads in operands:  # last what it writes
            written = reached.moved(step, first[field], memory.name, depth)
            if reads:
                memory.read(step, written)
        if i.reset:
            self.current &= ~written
        else:
            if self.post.enable:
                self._read_parameters(step, i)
            self.current |= written
        self.acc.write(step, written)

    def _operands_of(self, i: isa.LoopInstruction, steps: bytes) -> Iterator[_Operand]:
        """Yield what an instruction touches, counted from its first micro-op; last what it writes.

        Its micro-ops are given as their distances from the first one.
        """
        columns = np.frombuffer(steps, np.int64).reshape(-1, 3).T

        def operand(
            memory: Memory, field: int, factors: Factors, tiles: int = 1, *, reads: bool = True
        ) -> _Operand:
            loops = (i.iter_out, factors[0]), (i.iter_in, factors[1]), (tiles, 1)
            depth = self.depths[memory]
            reached = touched(column_of(columns[field]), loops, depth)
            return _Operand(self.sram[memory], depth, field, reached, reads)

        source, begins = (i.src_factor_out, i.src_factor_in), False
        if isinstance(i, isa.Alu):
            if not i.use_imm:
                yield operand(Memory.ACC, 1, source)
        else:
            begins = bool(i.reset or i.overwrite)
            if not i.reset:
                window = WINDOW_TILES if isinstance(i, isa.Depthwise) else 1
                tiles = i.tiles if isinstance(i, isa.Pool) else window
                yield operand(Memory.INP, 1, source, tiles)
            if isinstance(i, isa.Gemm) and not i.reset:
                yield operand(Memory.WGT, 2, (i.wgt_factor_out, i.wgt_factor_in))
        yield operand(Memory.ACC, 0, (i.dst_factor_out, i.dst_factor_in), reads=not begins)

    def _read_parameters(self, step: CheckedInstruction, i: isa.LoopInstruction) -> None:
        """Check the parameters that the post-processing of an instruction reads."""
        post, extents = self.post, (i.iter_out, i.iter_in)
        if post.use_table:
            self.sram[Memory.TABLE].read(step, span(post.table_index, 1))
        if not post.reads_row:
            return
        if extents not in self.parameters:
            loops = (i.iter_out, post.row_factor_out), (i.iter_in, post.row_factor_in)
            its = touched(Column(post.row, post.row, 1), loops, POST_ROWS)
            self.parameters[extents] = its.moved(step, 0, "the rows of POST", POST_ROWS)
        biases = self.parameters[extents]
        for used, elements in (post.use_bias, biases), (post.use_scale, biases << POST_ROWS):
            if used:
                self.sram[Memory.POST].read(step, elements)


class _Operand(NamedTuple):
    """What an instruction touches of a memory, counted from the element of its first micro-op."""

    memory: History
    depth: int
    field: int
    """Of a micro-op: 0 dst, 1 src, 2 wgt."""
    reached: Column
    reads: bool


class _MicroOps:
    """The micro-op memory."""

    def __init__(self, program: Program) -> None:
        self._depth = program.config.uop.depth
        encoding = isa.Encoding.of(program.config)
        self._table = encoding.decode_micro_ops(program.micro_ops)
        self._held = np.zeros((self._depth, 3), np.int64)
        self._written = 0
        self._known: dict[tuple[int, int], tuple[list[int], bytes]] = {}  # as long as it stays

    def load(self, i: isa.Load) -> None:
        source = self._table[i.dram_base : i.dram_base + i.x_size]
        self._held[i.sram_base : i.sram_base + i.x_size] = source
        self._written |= span(i.sram_base, i.x_size)
        self._known.clear()

    def named(self, step: CheckedInstruction, i: isa.LoopInstruction) -> tuple[list[int], bytes]:
        """Return the first micro-op of an instruction, and the distances of all from it."""
        own = i.uop_begin, i.uop_end
        if own not in self._known:
            self._known[own] = self._read(step, *own)
        return self._known[own]

    def _read(self, step: CheckedInstruction, begin: int, end: int) -> tuple[list[int], bytes]:
        if begin >= end:
            reason = "the micro-op range is empty; uop_begin must be below uop_end"
            step.reject(Rule.LOOPS, reason)
        if end > self._depth:
            reason = f"it executes micro-op {end - 1}; UOP has {self._depth} elements"
            step.reject(Rule.SRAM_BOUNDS, reason)
        missing = span(begin, end - begin) & ~self._written
        if missing:
            reason = f"element {first_of(missing)} of UOP was never written"
            step.reject(Rule.UNDEFINED_SRAM, reason)
        micro_ops = self._held[begin:end]
        return micro_ops[0].tolist(), (micro_ops - micro_ops[0]).tobytes()
