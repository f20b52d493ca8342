"""The rules that programs must obey, and instructions under proof: one, or columns of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

import numpy as np

from vtaops.base.errors import VerificationError
from vtaops.base.shapes import Array, Flags, Indices, Ints
from vtaops.machine.isa import Encoding, Unit
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


class Table:
    """Some instructions of a program: their places in it, and a column for each field.

    What the configuration or the instruction lacks is 0.
    """

    def __init__(self, program: Program, places: Indices, columns: Mapping[str, Ints]) -> None:
        self.program = program
        self.places = places
        self._columns = columns
        self._zeros: Ints = np.zeros(len(places), np.int64)

    def __getitem__(self, field: str) -> Ints:
        return self._columns.get(field, self._zeros)

    def where(self, chosen: Flags) -> Table:
        """Return those of the instructions for which a flag is set."""
        columns = {name: column[chosen] for name, column in self._columns.items()}
        return Table(self.program, self.places[chosen], columns)

    def having(self, **columns: Ints) -> Table:
        """Return them with further columns."""
        return Table(self.program, self.places, {**self._columns, **columns})

    def refuse(self, bad: Flags, rule: Rule, reason: str, **more: Sequence[object] | Array) -> None:
        """Reject the first instruction for which a flag is set.

        `reason` can name fields, and `more` columns, in braces.
        """
        row = int(bad.argmax()) if bad.size else 0
        if not bad.size or not bad[row]:
            return
        values = {name: column[row] for name, column in (*self._columns.items(), *more.items())}
        reject(self.program, int(self.places[row]), rule, reason.format_map(values))


@dataclass(slots=True, eq=False)
class CheckedInstruction:
    """An instruction under proof, with its position in the program."""

    program: Program
    index: int
    time: int
    """Its index counted from 1, so that 0 can mean "never"."""
    unit: Unit
    clock: Clock

    def reject(self, rule: Rule, reason: str) -> NoReturn:
        """Raise the error that says why this instruction breaks `rule`."""
        reject(self.program, self.index, rule, reason)


def reject(program: Program, index: int, rule: Rule, reason: str) -> NoReturn:
    """Raise the error that says why an instruction breaks `rule`."""
    (instruction,) = Encoding.of(program.config).decode_all(program.instructions[[index]])
    text = " ".join([*disassemble(instruction).split(), tokens_text(instruction)]).strip()
    refuse(rule, f"instruction {index} ({text})", reason)


def refuse(rule: Rule, subject: str, reason: str) -> NoReturn:
    """Raise the error that says why `subject` breaks `rule`."""
    raise VerificationError(f"{subject} breaks the rule {rule.value!r}: {reason}")
