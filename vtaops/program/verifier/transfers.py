"""The rules of LOAD and STORE: bounds, the buffers that they name, and what is pinned."""

from __future__ import annotations

from typing import NamedTuple

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
        self._depths = [config.scratchpad(memory).depth for memory in Memory]
        self._elements = [config.dram_element_bytes(memory) for memory in Memory]
        self._sides: dict[tuple[object, ...], _Side] = {}

    def check(self, step: CheckedInstruction, relocation: int) -> None:
        """Check all accesses of an instruction to DRAM, and those of a transfer to scratchpads."""
        i = step.instruction
        if step.index < self._program.pinned:
            self._check_pinned(step, relocation)
        if isinstance(i, MemoryInstruction):
            if i.x_size:
                self._check_move(step, i, relocation)
                return
            tokens = {name: getattr(i, name) for name in TOKENS}
            if i != type(i)(memory=i.memory, **tokens):
                step.reject(Rule.NOP, "x_size is 0, so every field but memory and tokens must be 0")
        if relocation != NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves no data, so it must not name a buffer")

    def _check_move(self, step: CheckedInstruction, i: MemoryInstruction, relocation: int) -> None:
        """Check the bounds of a transfer."""
        depth, last = self._depths[i.memory], i.sram_base + i.sram_size - 1
        if last >= depth:
            touched = f"it touches elements {i.sram_base}..{last} of {Memory(i.memory).name}"
            step.reject(Rule.SRAM_BOUNDS, f"{touched}, which has {depth}")
        end = i.dram_base + max(0, (i.y_size - 1) * i.x_stride + i.x_size)
        if isinstance(i, Load) and i.forward:
            depth = self._program.config.acc.depth
            reason = f"it takes element {end - 1} of OUT, which has {depth}"
            step.require(
                (end > depth, Rule.SRAM_BOUNDS, reason),
                (
                    relocation != NO_BUFFER,
                    Rule.RELOCATION,
                    "it reads no DRAM, so it must not name a buffer",
                ),
            )
            return
        kind = type(i), i.memory, relocation
        if kind not in self._sides:
            self._sides[kind] = self._side(step, i, relocation)
        side = self._sides[kind]
        # Of a LOAD of padding alone its address must still be one of the buffer.
        reached = (end if i.y_size else i.dram_base) * side.element
        if reached > side.nbytes:
            reason = f"it reaches byte {reached - 1} of {side.name}, which has {side.nbytes}"
            step.reject(Rule.DRAM_BOUNDS, reason)

    def _side(self, step: CheckedInstruction, i: MemoryInstruction, relocation: int) -> _Side:
        """Return what a transfer accesses in DRAM, after checking that it may."""
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
        if of_table:
            return _Side("the micro-op table", program.micro_ops.nbytes, 4)
        buffer, element = program.buffers[relocation], self._elements[i.memory]
        name, offset = f"buffer {buffer.name!r}", buffer.offset or 0
        stored = f"it stores to {name}, which is {buffer.role.name}"
        lies = f"{name} lies at byte {offset} of the arena"
        step.require(
            (
                stores and buffer.role not in (Role.OUTPUT, Role.SCRATCH),
                Rule.RELOCATION,
                f"{stored}; only OUTPUT and SCRATCH buffers are written",
            ),
            (
                offset % element,
                Rule.RELOCATION,
                f"{lies}, which is not a multiple of {element}-byte elements",
            ),
        )
        return _Side(name, buffer.nbytes, element)

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


class _Side(NamedTuple):
    """What a transfer accesses in DRAM: its name, and its bytes and those of an element."""

    name: str
    nbytes: int
    element: int
