"""Text to programs: the inverse of `vtaops.program.disassembly`, for people who write by hand.

A text has up to four parts: a summary, and sections with the headings ``buffers``,
``instructions`` and ``micro-ops``. Numbers of lines, names of units and what follows from other
columns are read over, and so is what follows a semicolon. `vtaops.machine.text` reads the
instructions.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from vtaops.base.errors import ProgramError, VTAError
from vtaops.base.records import MALFORMED, tuples
from vtaops.machine import views
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Encoding, Instruction, Unit
from vtaops.machine.layout import Layout
from vtaops.machine.text import Parsed, Words, parse
from vtaops.program.disassembly import COLUMNS, quoted
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Buffer, OperatorRecord, Program, Role

_HEADINGS = re.compile(r"(buffers|instructions|micro-ops)\b(?!\+)")
_UNITS = "|".join(unit.name.lower() for unit in Unit)
_NUMBERED = re.compile(rf"\s*(\d+(?=\s))?\s*(({_UNITS})(?=\s))?")

Lines = list[tuple[int, str]]
"""Lines with their numbers, from 1."""


def assemble(
    text: str,
    config: HardwareConfig | str | None = None,
    buffers: Sequence[Buffer] | None = None,
) -> Program:
    """Return the program of a text, encoded but not verified.

    ``assemble(program.disassemble())`` is `program`, without the certificate of its proof.

    Parameters
    ----------
    text : str
        The text, as `Program.disassemble` writes it or as a person does.
    config : HardwareConfig or str, optional
        The configuration of a text whose first line states none.
    buffers : sequence of Buffer, optional
        The buffers of a text that has no section of them.

    Raises
    ------
    ProgramError
        If the text is no program; the message begins with line and column. If configuration or
        buffers are stated twice and differ, or not at all.
    EncodingError
        If a field does not fit its bits.
    """
    parts = _parts(text)
    own, records = _summary(parts["summary"])
    hardware = _agreed("configuration", own, None if config is None else HardwareConfig.of(config))
    declared = tuple(_buffers(parts["buffers"])) if "buffers" in parts else None
    known = _agreed("buffers", declared, None if buffers is None else tuple(buffers))
    table, labels = _micro_ops(parts.get("micro-ops", []))
    places = {quoted(buffer.name): number for number, buffer in enumerate(known)}
    places |= {"": NO_BUFFER, "micro-ops": MICRO_OPS}
    known_labels = tuple(labels.items())
    instructions: dict[int, Instruction] = {}
    relocations = []
    for number, line in parts.get("instructions", []):
        cut = _NUMBERED.match(line)
        begin = cut.end() if cut else 0
        text = line[begin:].strip()
        if not text or text.startswith(";"):
            continue
        try:
            instructions[number], buffer = _parsed(text, known_labels)
            relocations.append(places[buffer])
        except (ProgramError, KeyError):
            parse(Words(" " * begin + line[begin:], number, labels, places))  # says where
            raise
    encoding = Encoding.of(hardware)
    return Program(
        config=hardware,
        instructions=_encoded(encoding, instructions),
        relocations=np.array(relocations, np.int32),
        micro_ops=encoding.encode_micro_ops(table),
        buffers=known,
        **records,
    )


@lru_cache(maxsize=1 << 15)
def _parsed(text: str, labels: tuple[tuple[str, range], ...]) -> Parsed:
    """Return the instruction of a line: most lines of most texts were read before."""
    return parse(Words(text, 0, dict(labels)))


def _parts(text: str) -> dict[str, Lines]:
    """Split a text into its summary and its sections."""
    parts: dict[str, Lines] = {"summary": []}
    current = "summary"
    for number, line in enumerate(text.splitlines(), 1):
        heading = _HEADINGS.match(line)
        if heading and not (current == "summary" and ":" in line):
            current = heading[1]
            if current in parts:
                raise ProgramError(f"line {number}, column 1: a second section {current!r}")
            parts[current] = []
        else:
            parts[current].append((number, line))
    return parts


def _agreed(what: str, own: Any, given: Any) -> Any:
    """Return what the text or the caller states; both must be equal."""
    if own is None and given is None:
        raise ProgramError(f"the text states no {what}, and none is given")
    if own is not None and given is not None and own != given:
        raise ProgramError(f"the text states another {what} than the one that is given")
    return given if own is None else own


def _encoded(encoding: Encoding, instructions: dict[int, Instruction]) -> Any:
    """Encode instructions by line; if one does not fit, name its line."""
    try:
        return encoding.encode_all([*instructions.values()])
    except VTAError:
        for number, instruction in instructions.items():
            with _at(number):
                encoding.encode(instruction)
        raise


def _unquoted(text: str) -> str:
    return str(json.loads(text)) if text.startswith('"') else text


# -------------------------------------------------------------------------------- summary


def _summary(lines: Lines) -> tuple[HardwareConfig | None, dict[str, Any]]:
    """Return the configuration of a summary, and the records of the program."""
    stated = [(n, line) for n, line in lines if line.partition(";")[0].strip()]
    if not stated:
        return None, {}
    (number, first), *others = stated
    head = re.fullmatch(r"program for \S+ \((.*)\)(, fingerprint \w+)?\s*(;.*)?", first)
    if head is None:
        _refuse(number, "this is neither a section nor 'program for BITSTREAM (CONFIGURATION)'")
    others = others[1:] if others and "instructions, " in others[0][1] else others
    name = head[1]
    records = _records(others, name)
    config = records.pop("configuration", None)
    if config is None and name in HardwareConfig.names():
        config = HardwareConfig.load(name)
    if config is None:
        _refuse(number, f"{name!r} is not shipped; a line 'configuration {{...}}' must state it")
    return config, records


def _records(lines: Lines, name: str) -> dict[str, Any]:
    """Return what the lines of a summary state, except that in numbers."""
    records: dict[str, Any] = {"metadata": {}, "operators": ()}
    for number, line in lines:
        kind, _, text = line.partition(" ")
        with _at(number):
            if kind == "configuration":
                records[kind] = HardwareConfig.from_dict(json.loads(text), name=name)
            elif kind == "operator":
                records["operators"] += (OperatorRecord(**tuples(json.loads(text))),)
            elif "instructions, " not in line:
                key, _, text = line.partition(": ")
                records["metadata"][key] = json.loads(text)
    return records


@contextmanager
def _at(number: int) -> Iterator[None]:
    """Refuse a line whose value is not what it must be."""
    try:
        yield
    except (VTAError, *MALFORMED) as error:
        _refuse(number, str(error))


def _refuse(number: int, reason: str) -> NoReturn:
    raise ProgramError(f"line {number}, column 1: {reason}")


# ------------------------------------------------------------------------------- sections


def _buffers(lines: Lines) -> Iterator[Buffer]:
    for number, line in lines:
        words = Words(line, number)
        if not words.rest or words.rest == " ".join(COLUMNS).split():
            continue
        name, role, shape, dtype, layout = (words.take(what) for what in COLUMNS[:5])
        optional = re.search(r' (\{".*\})', line)
        extents = [] if shape == "scalar" else [words.value(e) for e in shape.split("x")]
        with _at(number):
            more = json.loads(optional[1]) if optional else {}
            view = views.from_dict(more.pop("view")) if "view" in more else None
            made = Layout(layout, more.pop("logical", ""), view)
            stated = {**more, "value": tuple(more.get("value", ()))}
            yield Buffer(_unquoted(name), Role(role), tuple(extents), dtype, made, **stated)


def _label(words: Words, known: Container[str]) -> str:
    """Return the label that a line begins with, which no line before has; empty if none."""
    if not words.rest[0].endswith(":"):
        return ""
    (label,) = words.match(r"([A-Za-z_][\w-]*):", "a label, such as taps:")
    if label in known:
        words.fail(f"the label {label!r} is used twice", 1)
    return str(label)


def _micro_ops(lines: Lines) -> tuple[list[tuple[int, ...]], dict[str, range]]:
    """Return the rows of the table, and the labels with the rows that they name."""
    table: list[tuple[int, ...]] = []
    labels: dict[str, range] = {}
    for number, line in lines:
        words = Words(line, number)
        if not words.rest or words.rest == ["range", "dst", "src", "wgt"]:
            continue
        label = _label(words, labels)
        count = _rows(words, len(table))
        columns = [_column(words, operand) for operand in ("dst", "src", "wgt")]
        words.end()
        if label:
            labels[label] = range(len(table), len(table) + count)
        table += [tuple(first + n * step for first, step in columns) for n in range(count)]
    return table, labels


_MOST = 1 << 20
"""Rows of a table."""


def _rows(words: Words, begin: int) -> int:
    """Read how many rows a line gives: their range, ``x9``, or nothing for one."""
    if re.fullmatch(r"x\d{1,7}", words.rest[0] if words.rest else ""):
        count = int(words.take("")[1:])
    elif words.rest and ".." in words.rest[0]:
        rows = range(*words.read("{first}..{end}").values())
        if rows.start != begin:
            words.fail(f"the rows begin at {rows.start}; {begin} rows stand before them", 1)
        count = len(rows)
    else:
        return 1
    if not 0 < count <= _MOST - begin:
        words.fail(f"a line gives 1 row or more, and all together up to {_MOST}; not {count}", 1)
    return count


def _column(words: Words, operand: str) -> tuple[int, int]:
    first = words.read(f"{{{operand}}}")[operand]
    step = words.take("a step") if words.rest and words.rest[0][0] in "+-" else "0"
    return first, words.value(step)
