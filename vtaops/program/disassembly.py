"""Programs as text: a summary, the buffers, the instructions, the micro-ops.

Owns the layout only; `vtaops.machine.text` formats single instructions, and
`vtaops.program.assembly` reads what is written here: the text holds everything but the certificate
of a proof. Lines fit a terminal of 120 columns unless names or token lists are unusually long.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vtaops.base.errors import EncodingError
from vtaops.base.proof import CERTIFICATE
from vtaops.base.shapes import Ints
from vtaops.machine import isa, text
from vtaops.machine.config import HardwareConfig
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Buffer, Program

_TEXT_COLUMNS = 84
"""Maximum text width that moves the token column; longer lines push their own tokens."""


def disassemble(program: Program) -> str:
    """Return the whole program as text.

    An invalid word is shown in hexadecimal with the reason: a disassembled program need not be
    valid.
    """
    parts = [_summary(program)]
    if program.buffers:
        parts.append("buffers\n" + _buffers(program))
    parts.append("instructions\n" + "\n".join(_instructions(program)))
    if len(program.micro_ops):
        parts.append("micro-ops (first element, and step from one to the next)\n" + _table(program))
    return "\n\n".join(parts) + "\n"


def _summary(program: Program) -> str:
    config = program.config
    lines = [
        f"program for {config.bitstream_id} ({config.name}), fingerprint {config.fingerprint}",
        f"{len(program)} instructions, {len(program.micro_ops)} micro-ops, "
        f"{program.dram_nbytes} bytes of DRAM",
    ]
    if config.name not in HardwareConfig.names() or HardwareConfig.load(config.name) != config:
        lines.append(f"configuration {_json(config.to_dict())}")
    for key, value in sorted(program.metadata.items()):
        if key != CERTIFICATE:  # hashes
            lines.append(f"{key}: {_json(value)}")
    lines += [f"operator {_json(vars(operator))}" for operator in program.operators]
    return "\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


COLUMNS = "name", "role", "shape", "dtype", "layout", "shape in DRAM", "bytes"


def _buffers(program: Program) -> str:
    rows = [COLUMNS, *map(buffer_row, program.buffers)]
    return _columns([(*row, "")[:8] for row in rows], right={6})


def buffer_row(buffer: Buffer) -> tuple[str, ...]:
    """Return the row of a buffer in the table; what few buffers have is last, as a dictionary."""
    layout = buffer.layout
    more = {
        "view": layout.view and layout.view.to_dict(),
        "value": list(buffer.value) or None,
        "offset": buffer.offset,
        "fill": buffer.fill,
        "logical": layout.logical or None,
    }
    more = {key: value for key, value in more.items() if value is not None}
    shapes = buffer.shape, buffer.packed_shape
    shape, packed = ("x".join(map(str, extents)) or "scalar" for extents in shapes)
    row = quoted(buffer.name), buffer.role.value, shape, buffer.dtype, layout.text, packed
    return (*row, str(buffer.nbytes), _json(more) if more else "")


def quoted(name: str) -> str:
    """Return the name of a buffer, in quotes unless it is one plain word."""
    plain = re.fullmatch(r"[^\s+;\"'{\\]+", name) and name not in ("micro-ops", "name")
    return name if plain else _json(name)


# ---------------------------------------------------------------------------- instructions


def instruction_rows(program: Program) -> Iterator[tuple[str, str, str]]:
    """Yield the unit, text (with the buffer's name) and tokens of each instruction.

    An invalid word has the unit ``"?"`` and the reason as its text.
    """
    encoding = isa.Encoding.of(program.config)
    words = isa.array_to_words(program.instructions)
    for word, relocation in zip(words, program.relocations.tolist(), strict=True):
        try:
            i = encoding.decode(word)
        except EncodingError as error:
            yield "?", str(error), ""
        else:
            line = _instruction_text(program, i, relocation)
            yield i.unit.name.lower(), line, text.tokens_text(i)


def _instructions(program: Program) -> list[str]:
    rows = list(instruction_rows(program))
    width = min(_TEXT_COLUMNS, max((len(line) for _, line, _ in rows), default=0))
    digits = max(4, len(str(len(rows))))
    return [
        f"{index:>{digits}}  {unit:<7}  {line:<{width}}  {tokens}".rstrip()
        for index, (unit, line, tokens) in enumerate(rows)
    ]


def _instruction_text(program: Program, instruction: isa.Instruction, relocation: int) -> str:
    line = text.disassemble(instruction)
    if relocation == NO_BUFFER or not isinstance(instruction, isa.MemoryInstruction):
        return line
    name = "micro-ops" if relocation == MICRO_OPS else quoted(program.buffers[relocation].name)
    base = instruction.dram_base
    return line.replace(f" dram {base} ", f" {name}+{base} ", 1)


# ------------------------------------------------------------------------------- micro-ops


def _table(program: Program) -> str:
    table = isa.Encoding.of(program.config).decode_micro_ops(program.micro_ops)
    rows = [("range", "dst", "src", "wgt")]
    for begin, end in _even_runs(table):
        first = table[begin].tolist()
        step = (table[begin + 1] - table[begin]).tolist() if end - begin > 1 else [0, 0, 0]
        dst, src, wgt = (
            f"{start} {change:+}" if change else f"{start}"
            for start, change in zip(first, step, strict=True)
        )
        rows.append((f"{begin}..{end}", dst, src, wgt))
    return _columns(rows, right={0})


def _even_runs(table: Ints) -> Iterator[tuple[int, int]]:
    """Split rows into ranges (begin, end): single rows, or 3 or more evenly spaced."""
    steps = np.diff(table, axis=0)
    breaks = np.flatnonzero((steps[1:] != steps[:-1]).any(axis=1)) + 1  # step i differs from i - 1
    begin = 0
    while begin < len(table):
        place = int(np.searchsorted(breaks, begin + 1))
        end = int(breaks[place]) + 1 if place < len(breaks) else len(table)
        if end - begin == 2:
            end -= 1
        yield begin, end
        begin = end


def _columns(rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """Align the columns of a table; those in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    return "\n".join(lines)
