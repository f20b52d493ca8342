"""The rules that programs must obey, and an instruction under proof."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from vtaops.base.errors import VerificationError
from vtaops.machine.isa import Encoding, Instruction, Unit
from vtaops.machine.text import disassemble, tokens_text
from vtaops.program.program import Program

Clock = tuple[int, int, int]
"""For each unit the `CheckedInstruction.time` of its last instruction that has certainly
completed."""

TOKEN_CAPACITY = 255
"""Tokens that a queue holds on every known device: Chisel counts in 8 bits (reference 2.5)."""


class Rule(Enum):
    """A rule that programs must obey; a `VerificationError` names it by its value."""

    ENCODING = "encoding"
    """Every word decodes, and encodes back to itself: reserved bits are zero."""
    FINISH = "finish"
    """FINISH appears once, as the last instruction."""
    NEIGHBOUR = "neighbour"
    """No token goes to, or comes from, a unit that does not exist."""
    NOP = "nop"
    """A LOAD or STORE with x_size 0 carries tokens and nothing else."""
    MEMORY = "memory"
    """LOAD fills any memory but OUT; STORE empties OUT, without padding or overlapping rows."""
    LOOPS = "loops"
    """GEMM, ALU and POOL run at least one iteration of at least one micro-op."""
    POST = "post"
    """POST has bounds that hold a value, and no field that has no effect is set."""
    RELOCATION = "relocation"
    """An instruction that moves data names a buffer it may access; others name none."""
    DRAM_BOUNDS = "dram-bounds"
    """Every row lies inside its buffer, and all buffers fit the addresses of a device."""
    SRAM_BOUNDS = "sram-bounds"
    """Every element, padding included, lies inside its scratchpad."""
    UNDEFINED_SRAM = "undefined-sram"
    """No instruction reads a scratchpad element that no instruction wrote."""
    UNDEFINED_DRAM = "undefined-dram"
    """No LOAD reads an OUTPUT or SCRATCH element unless it was stored before through the same
    buffer and not overwritten since through another one; except in filled buffers."""
    FILL = "fill"
    """An element that is read with its buffer's fill value is never stored."""
    STALE_OUTPUT = "stale-output"
    """Every stored element was last written by the ALU or by an accumulating GEMM."""
    INCOMPLETE_OUTPUT = "incomplete-output"
    """Every byte of an OUTPUT buffer is stored."""
    TOKEN_ORDER = "token-order"
    """The token that an instruction waits for is sent by an earlier instruction."""
    TOKEN_BALANCE = "token-balance"
    """Every token that is sent is also taken."""
    TOKEN_CAPACITY = "token-capacity"
    """No interleaving exceeds the capacity of a token queue."""
    RACE = "race"
    """Conflicting accesses of different units are ordered by tokens."""
    CAPABILITY = "capability"
    """The device has every feature that the program uses."""
    PINNED = "pinned"
    """A pinned LOAD takes no token and sends none, fills a memory that only the load unit writes,
    from a PARAMETER or CONSTANT buffer, and no later instruction writes its elements."""
    COMPLETION = "completion"
    """FINISH happens after every other instruction."""


@dataclass(slots=True, eq=False)
class CheckedInstruction:
    """An instruction under proof, with its position in the program."""

    program: Program
    index: int
    time: int
    """Its index counted from 1, so that 0 can mean "never"."""
    instruction: Instruction
    unit: Unit
    clock: Clock = (0, 0, 0)

    def reject(self, rule: Rule, reason: str) -> NoReturn:
        """Raise the error that says why this instruction breaks `rule`."""
        reject(self.program, self.index, rule, reason)

    def require(self, *rules: tuple[object, Rule, str]) -> None:
        """Raise the error of the first rule that it breaks: of which a fault is true."""
        for fault, rule, reason in rules:
            if fault:
                self.reject(rule, reason)


def reject(program: Program, index: int, rule: Rule, reason: str) -> NoReturn:
    """Raise the error that says why an instruction breaks `rule`."""
    (instruction,) = Encoding.of(program.config).decode_all(program.instructions[[index]])
    text = " ".join([*disassemble(instruction).split(), tokens_text(instruction)]).strip()
    refuse(rule, f"instruction {index} ({text})", reason)


def refuse(rule: Rule, subject: str, reason: str) -> NoReturn:
    """Raise the error that says why `subject` breaks `rule`."""
    raise VerificationError(f"{subject} breaks the rule {rule.value!r}: {reason}")
