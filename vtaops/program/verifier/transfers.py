"""The rules of LOAD and STORE: bounds, the buffers that they name, and what is pinned."""

from __future__ import annotations

from vtaops.machine.config import DRAM_BYTES, Memory
from vtaops.machine.isa import Load, MemoryInstruction, Store, Unit
from vtaops.machine.text import TOKENS
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role
from vtaops.program.verifier.rules import CheckedInstruction, Rule, refuse


class Transfers:
    """The bounds of a program's scratchpads and buffers."""

    def __init__(self, program: Program) -> None:
        if program.dram_nbytes > DRAM_BYTES:
            needed = f"it needs {program.dram_nbytes} bytes of DRAM"
            refuse(Rule.DRAM_BOUNDS, "the program", f"{needed}; a device addresses {DRAM_BYTES}")
        self._program, config = program, program.config
        self._pads = [config.scratchpad(memory) for memory in Memory]
        self._elements = [config.dram_element_bytes(memory) for memory in Memory]

    def check(self, step: CheckedInstruction, relocation: int) -> None:
        """Check all accesses of an instruction to DRAM, and those of a transfer to scratchpads."""
        i = step.instruction
        if step.index < self._program.pinned:
            self._check_pinned(step, relocation)
        names = relocation != NO_BUFFER
        if not isinstance(i, MemoryInstruction) or i.x_size == 0:
            reason = "it moves no data, so it must not name a buffer"
            step.require((names, Rule.RELOCATION, reason))
            return
        pad, last = self._pads[i.memory], i.sram_base + i.sram_size - 1
        if last >= pad.depth:
            touched = f"it touches elements {i.sram_base}..{last} of {pad.memory.name}"
            step.reject(Rule.SRAM_BOUNDS, f"{touched}, which has {pad.depth}")
        end = i.dram_base + max(0, (i.y_size - 1) * i.x_stride + i.x_size)
        if isinstance(i, Load) and i.forward:
            depth = self._program.config.acc.depth
            reason = f"it takes element {end - 1} of OUT, which has {depth}"
            step.require(
                (end > depth, Rule.SRAM_BOUNDS, reason),
                (names, Rule.RELOCATION, "it reads no DRAM, so it must not name a buffer"),
            )
            return
        self._check_dram(step, i, end if i.y_size else i.dram_base, relocation)

    def _check_dram(
        self, step: CheckedInstruction, i: MemoryInstruction, end: int, relocation: int
    ) -> None:
        """Check the buffer that a transfer names, and its bounds.

        Of a LOAD of padding alone its address must still be one of the buffer.
        """
        program, stores = self._program, isinstance(i, Store)
        of_table, of_uop = relocation == MICRO_OPS, i.memory == Memory.UOP
        step.require(
            (stores and of_table, Rule.RELOCATION, "the micro-op table is read-only"),
            (
                of_uop != of_table,
                Rule.RELOCATION,
                "LOAD UOP, and no other, reads the micro-op table",
            ),
            (relocation == NO_BUFFER, Rule.RELOCATION, "it moves data, so it must name a buffer"),
        )
        name, offset, nbytes, element = "the micro-op table", 0, program.micro_ops.nbytes, 4
        if not of_table:
            buffer = program.buffers[relocation]
            name, offset, nbytes = f"buffer {buffer.name!r}", buffer.offset or 0, buffer.nbytes
            element = self._elements[i.memory]
            written = buffer.role in (Role.OUTPUT, Role.SCRATCH)
            if stores and not written:
                stored = f"it stores to {name}, which is {buffer.role.name}"
                step.reject(
                    Rule.RELOCATION, f"{stored}; only OUTPUT and SCRATCH buffers are written"
                )
        if offset % element:
            lies = f"{name} lies at byte {offset} of the arena"
            step.reject(
                Rule.RELOCATION, f"{lies}, which is not a multiple of {element}-byte elements"
            )
        if end * element > nbytes:
            reached = f"it reaches byte {end * element - 1} of {name}"
            step.reject(Rule.DRAM_BOUNDS, f"{reached}, which has {nbytes}")

    def _check_pinned(self, step: CheckedInstruction, relocation: int) -> None:
        """Check that the elements of a pinned instruction are the same for all runs."""
        i, buffers = step.instruction, self._program.buffers
        loads = isinstance(i, Load) and i.x_size > 0 and step.unit == Unit.LOAD
        waits = any(getattr(i, token) for token in TOKENS)
        kept = relocation >= 0 and buffers[relocation].role in (Role.PARAMETER, Role.CONSTANT)
        reason = "a pinned instruction is a LOAD to INP, WGT, POST or TABLE without tokens"
        step.require(
            (waits or not loads, Rule.PINNED, reason),
            (not kept, Rule.PINNED, "a pinned LOAD reads a PARAMETER or CONSTANT buffer"),
        )
