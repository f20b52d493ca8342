"""Machine: abstract execution in program order; the rules on memories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from vtaops.machine import isa
from vtaops.machine.config import POST_ROWS, WINDOW_TILES, Memory
from vtaops.machine.isa import Load, Unit
from vtaops.machine.text import TOKENS
from vtaops.program.program import Program, Role
from vtaops.program.verifier.dram import block, written_memory
from vtaops.program.verifier.history import History
from vtaops.program.verifier.operands import (
    Column,
    Loops,
    column_of,
    first_of,
    rows,
    span,
    touched,
)
from vtaops.program.verifier.rules import CheckedInstruction, Rule, refuse
from vtaops.program.verifier.transfers import Transfers

Reads = list[tuple[History, int]]
"""What an instruction reads: memories and sets of elements."""

_UNTOUCHED = {*TOKENS, "uop_begin", "uop_end", "alu_op", "imm"}
_FORMS = {
    cls: attrgetter(*(f.name for f in fields(cls) if f.name not in _UNTOUCHED))
    for cls in (isa.Gemm, isa.Depthwise, isa.Alu, isa.Pool)
}
"""What of an instruction with loops says which elements it touches."""


class Machine:
    """The memories of a device, as far as the rules need them; executes abstractly."""

    def __init__(self, program: Program, steps: Sequence[CheckedInstruction]) -> None:
        self._steps = steps
        self._program = program
        self._config = program.config
        self._transfers = Transfers(program)
        forwards = any(isinstance(s.instruction, Load) and s.instruction.forward for s in steps)
        readers = (Unit.STORE, Unit.LOAD) if forwards else (Unit.STORE,)
        self._acc = History("ACC", Unit.COMPUTE, readers)
        self._current = 0  # accumulators that the output memory has
        self._sram: dict[int, History] = {Memory.ACC: self._acc, Memory.ACC_8BIT: self._acc}
        for memory in (Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE):
            self._sram[memory] = History(memory.name, Unit.LOAD, (Unit.COMPUTE,))
        self._pinned = dict.fromkeys(Memory, 0)
        self._micro_ops = _MicroOps(self._program)
        self._operands: dict[tuple[object, ...], list[_Operand]] = {}
        self._posts: dict[isa.Post, dict[tuple[int, int], Reads]] = {}
        """For each setting of the post-processing, the parameters that loops read."""
        self._set(isa.Post())
        element = [self._config.dram_element_bytes(memory) for memory in Memory]
        granule = min(element[m] for m in Memory if m != Memory.UOP)
        self._scales = [nbytes // granule for nbytes in element]
        self._dram = written_memory(self._program, granule)

    def run(self) -> None:
        """Check all accesses of all instructions, in program order."""
        for step, relocation in zip(self._steps, self._program.relocations.tolist(), strict=True):
            self._transfers.check(step, relocation)
            i = step.instruction
            if isinstance(i, isa.LoopInstruction):
                self._loop(step, i)
            elif isinstance(i, isa.Post):
                self._set(i)
            elif isinstance(i, isa.MemoryInstruction) and i.x_size:
                self._move(step, i, relocation)

    def _set(self, post: isa.Post) -> None:
        """Set the post-processing."""
        self._post, self._parameters = post, self._posts.setdefault(post, {})

    def check_outputs(self) -> None:
        """Check that every OUTPUT buffer is stored completely."""
        for memory in self._dram.values():
            missing = memory.never_written()
            if memory.role is Role.OUTPUT and missing.size:
                reason = (
                    f"{missing.size} elements of {memory.name} are never stored, "
                    f"the first is {missing[0]}"
                )
                refuse(Rule.INCOMPLETE_OUTPUT, "the program", reason)

    # ------------------------------------------------------------ LOAD and STORE

    def _move(self, step: CheckedInstruction, i: isa.MemoryInstruction, relocation: int) -> None:
        elements = span(i.sram_base, i.sram_size)
        if isinstance(i, isa.Store):
            self._output(step, elements)
            self._dram[relocation].write(step, self._granules(i))
            return
        if self._program.pinned:
            self._keep(step, i.memory, elements)
        if i.forward:
            self._output(step, rows(i.dram_base, i.y_size, i.x_size, i.x_stride))
        elif relocation in self._dram and i.y_size:
            self._dram[relocation].read(step, self._granules(i))
        if i.memory == Memory.UOP:
            self._micro_ops.load(i.sram_base, i.dram_base, i.x_size)
            return
        self._sram[i.memory].write(step, elements)
        if i.memory in (Memory.ACC, Memory.ACC_8BIT):
            self._current &= ~elements

    def _granules(self, i: isa.MemoryInstruction) -> Any:
        """Return the granules of DRAM that a LOAD or STORE touches."""
        scale = self._scales[i.memory]
        return block(i.dram_base * scale, i.y_size, i.x_size * scale, i.x_stride * scale)

    def _keep(self, step: CheckedInstruction, memory: int, elements: int) -> None:
        """Note what a pinned LOAD writes; reject another one that writes it."""
        pinned = self._pinned[Memory(memory)]
        if step.index < self._program.pinned:
            self._pinned[Memory(memory)] = pinned | elements
        elif pinned & elements:
            element = first_of(pinned & elements)
            name = self._sram[memory].name
            step.reject(Rule.PINNED, f"element {element} of {name}, which it writes, is pinned")

    def _output(self, step: CheckedInstruction, elements: int) -> None:
        """Check and record that an instruction reads the output memory."""
        self._acc.read(step, elements)
        if elements & self._current != elements:
            step.reject(
                Rule.STALE_OUTPUT,
                f"element {first_of(elements & ~self._current)} was last written by a LOAD or a "
                f"reset; only the ALU and accumulating GEMMs write the output memory",
            )

    # -------------------------------------------------------------- GEMM and ALU

    def _loop(self, step: CheckedInstruction, i: isa.LoopInstruction) -> None:
        first, steps = self._micro_ops.named(step, i.uop_begin, i.uop_end)
        # Equal loops with equal steps touch the same, further on.
        form = steps, type(i), _FORMS[type(i)](i)
        if form not in self._operands:
            self._operands[form] = [*self._operands_of(i, steps)]
        operands = self._operands[form]
        written = 0
        for memory, depth, field, reached, reads in operands:  # last what it writes
            written = reached.moved(step, first[field], memory.name, depth)
            if reads:
                memory.read(step, written)
        if i.reset:
            self._current &= ~written
        else:
            for memory, elements in self._posted(step, i):
                memory.read(step, elements)
            self._current |= written
        self._acc.write(step, written)

    def _operands_of(self, i: isa.LoopInstruction, steps: bytes) -> Iterator[_Operand]:
        """Yield what an instruction touches, counted from its first micro-op; last what it writes.

        Its micro-ops are given as their distances from the first one.
        """
        columns = np.frombuffer(steps, np.int64).reshape(-1, 3).T

        def operand(memory: Memory, field: int, tiles: int = 1, *, reads: bool = True) -> _Operand:
            factor = f"{('dst', 'src', 'wgt')[field]}_factor_"
            outer, inner = getattr(i, f"{factor}out"), getattr(i, f"{factor}in")
            loops = (i.iter_out, outer), (i.iter_in, inner), (tiles, 1)
            depth = self._config.scratchpad(memory).depth
            reached = touched(column_of(columns[field]), loops, depth)
            return _Operand(self._sram[memory], depth, field, reached, reads)

        if isinstance(i, isa.Alu):
            if not i.use_imm:
                yield operand(Memory.ACC, 1)
        elif isinstance(i, isa.Pool):
            yield operand(Memory.INP, 1, i.tiles)
        elif not i.reset:
            yield operand(Memory.INP, 1, WINDOW_TILES if isinstance(i, isa.Depthwise) else 1)
            yield operand(Memory.WGT, 2)
        fresh = i.reset or (not isinstance(i, isa.Alu) and i.overwrite)
        yield operand(Memory.ACC, 0, reads=not fresh)

    def _posted(self, step: CheckedInstruction, i: isa.LoopInstruction) -> Reads:
        """Return the parameters that the post-processing of an instruction reads."""
        post = self._post
        if not post.enable:
            return []
        key = i.iter_out, i.iter_in
        if key in self._parameters:
            return self._parameters[key]
        reads: Reads = []
        if post.use_table:
            reads.append((self._sram[Memory.TABLE], span(post.table_index, 1)))
        if post.use_bias or post.use_scale:
            loops: Loops = (i.iter_out, post.row_factor_out), (i.iter_in, post.row_factor_in)
            its = touched(Column(post.row, post.row, 1), loops, POST_ROWS)
            biases = its.moved(step, 0, "the rows of POST", POST_ROWS)
            if post.use_bias:
                reads.append((self._sram[Memory.POST], biases))
            if post.use_scale:
                reads.append((self._sram[Memory.POST], biases << POST_ROWS))
        self._parameters[key] = reads
        return reads


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

    def load(self, first: int, entry: int, size: int) -> None:
        self._held[first : first + size] = self._table[entry : entry + size]
        self._written |= span(first, size)
        self._known.clear()

    def named(self, step: CheckedInstruction, begin: int, end: int) -> tuple[list[int], bytes]:
        """Return the first micro-op of an instruction, and the distances of all from it."""
        if (begin, end) not in self._known:
            self._known[begin, end] = self._read(step, begin, end)
        return self._known[begin, end]

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
