"""Instructions as text, and back.

Owns the form of a line: `disassemble` writes it, `parse` reads it, and each instruction has one
text, which gives all of its fields. `vtaops.program.disassembly` and `vtaops.program.assembly` put
such lines together.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NoReturn

from vtaops.base.errors import ProgramError
from vtaops.machine.alu import AluOp
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    Depthwise,
    Finish,
    Gemm,
    Instruction,
    Load,
    Pool,
    Post,
    Store,
)

TOKENS = "pop_prev", "pop_next", "push_prev", "push_next"


def tokens_text(instruction: Instruction) -> str:
    """Return the set token flags, for example ``"pop_prev push_next"``."""
    return " ".join(name for name in TOKENS if getattr(instruction, name))


def disassemble(instruction: Instruction) -> str:
    """Disassemble an instruction to one line of text, without its tokens.

    Fields that its form does not show, but that are not 0, follow behind ``with``.
    """
    text = _text(instruction)
    shown = parse(Words(text, 0))[0]
    hidden = [
        f"{f.name}={int(getattr(instruction, f.name))}"
        for f in fields(instruction)
        if f.name not in TOKENS and getattr(instruction, f.name) != getattr(shown, f.name)
    ]
    return " ".join([text, "with", *hidden]) if hidden else text


def _text(i: Instruction) -> str:
    kind = _kind(i)
    values = {f.name: int(getattr(i, f.name)) for f in fields(i)}
    idle = values.get("x_size") == 0 or values.get("enable") == 0
    shown = (f"{c.words} {c.form}".strip() for c in _KINDS[kind][2] if c.shown(i))
    text = _IDLE[type(i)] if idle else " ".join(shown).format(**values)
    return f"{kind + ' ':<10}{text}".rstrip()


def _kind(i: Instruction) -> str:
    """Return the name of an instruction, by which its line begins."""
    name = type(i).__name__.upper()
    match i:
        case Alu():
            return AluOp(i.alu_op).name
        case Load() | Store():
            return f"{name} {Memory(i.memory).name}"
    return "RESET" if type(i) is Gemm and i.reset else name


FieldValues = dict[str, Any]
"""Fields by name; a LOAD or STORE has ``buffer`` beside them."""


@dataclass
class Words:
    """The words of a line, read one by one; errors name line and column.

    Attributes
    ----------
    line : str
        The line; what follows ``;`` is a comment.
    number : int
        Its number; 0: the message names no place.
    labels : mapping of str to range
        Names for numbers (the first of the range) and for ranges.
    buffers : collection of str, optional
        The names that buffers may have; by default any.
    """

    line: str
    number: int
    labels: Mapping[str, range] = field(default_factory=dict)
    buffers: Collection[str] | None = None

    def __post_init__(self) -> None:
        words = re.finditer(r'"(?:[^"\\]|\\.)*"[^\s;]*|[^\s;"]+|"|(;.*)', self.line)
        self._words = [(w[0], w.start() + 1) for w in words if w[1] is None]
        self._next = 0

    @property
    def rest(self) -> list[str]:
        """The words that are not read yet."""
        return [word for word, _ in self._words[self._next :]]

    def fail(self, reason: str, back: int = 0) -> NoReturn:
        """Refuse the next word, or one of those before it."""
        at = self._next - back
        column = self._words[at][1] if at < len(self._words) else len(self.line.rstrip()) + 1
        place = f"line {self.number}, column {column}: " if self.number else ""
        raise ProgramError(place + reason)

    def take(self, what: str) -> str:
        """Read a word."""
        if not self.rest:
            self.fail(f"the line ends; here follows {what}")
        self._next += 1
        return self._words[self._next - 1][0]

    def skip(self, *words: str) -> bool:
        """Read these words if they are the next; return whether they were."""
        matches = self.rest[: len(words)] == [*words]
        self._next += len(words) * matches
        return matches

    def match(self, pattern: str, what: str) -> tuple[str, ...]:
        """Read a word of this pattern; return its groups."""
        word = self.take(what)
        match = re.fullmatch(pattern, word)
        if match is None:
            self.fail(f"{word!r} is not {what}", 1)
        return tuple(part or "" for part in match.groups())

    def value(self, text: str) -> int:
        """Return the number that the last word holds as digits or as a label."""
        if text in self.labels:
            return self.labels[text].start
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None:
            known = f"; labels are {', '.join(self.labels)}" if self.labels else ""
            self.fail(f"{text!r} is not a number{known}", 1)
        return int(text)

    def read(self, form: str) -> FieldValues:
        """Read words of a form such as ``{y_size}x{x_size}``; return its fields."""
        numbers: FieldValues = {}
        for what, pattern, names in _parts(form):
            label = self.labels.get(self.rest[0]) if self.rest and ".." in what else None
            if label is not None:
                self.take(what)
                values = [label.start, label.stop]
            else:
                values = [*map(self.value, self.match(pattern, what))]
            numbers.update(zip(names, values, strict=True))
        return numbers

    def end(self) -> None:
        """Refuse words that nothing reads."""
        if self.rest:
            self.fail(f"{self.rest[0]!r} does not belong here")


@cache
def _parts(form: str) -> list[tuple[str, str, list[str]]]:
    """Return the words of a form as messages show them, each with its pattern and its fields."""
    pattern, name = r"([^,\s]+?)", r"{(\w+)}"
    return [
        (
            re.sub(name, r"<\1>", part),
            pattern.join(re.split(r"{\w+}", part.replace("+", r"\+").replace(".", r"\."))),
            re.findall(name, part),
        )
        for part in form.split()
    ]


@dataclass(frozen=True)
class Clause:
    """A part of a line: words, then fields.

    Attributes
    ----------
    words : str
        What it begins with.
    form : str
        How its fields stand behind them.
    flag : str
        A field that is 1 where the clause stands.
    unless : str
        A flag with which it does not stand.
    needed : bool
        Whether it cannot be left out.
    where : callable
        In which instructions it is shown.
    """

    words: str = ""
    form: str = ""
    flag: str = ""
    unless: str = ""
    needed: bool = False
    where: Callable[[Any], Any] = lambda i: True

    def shown(self, i: Instruction) -> bool:
        """Whether it stands in the text of an instruction."""
        flagged = not self.flag or getattr(i, self.flag, False)
        return bool(
            flagged and not (self.unless and getattr(i, self.unless, False)) and self.where(i)
        )

    def read(self, words: Words, values: FieldValues) -> bool:
        """Read it into fields, if it stands here; return whether it does."""
        if values.get(self.unless):
            return False
        if not words.skip(*self.words.split()):
            if self.needed:
                words.fail(f"here follows {self.words!r}")
            return False
        if self.flag:
            values[self.flag] = 1
        values |= words.read(self.form)
        return True


class Place(Clause):
    """Where in DRAM: a number, or a buffer and an element of it."""

    def read(self, words: Words, values: FieldValues) -> bool:
        if not values.get(self.unless) and not super().read(words, values):
            place = words.match(r'(".*"|[^\s"+]+)\+(\S+)', "a buffer and an element: data+0")
            values |= {"buffer": place[0], "dram_base": words.value(place[1])}
            if words.buffers is not None and place[0] not in words.buffers:
                known = ", ".join(words.buffers)
                words.fail(f"there is no buffer {place[0]!r}; there are {known}", 1)
        return True


Parsed = tuple[Instruction, str]
"""An instruction, and the name of the buffer that it accesses; empty: none."""


def parse(words: Words) -> Parsed:
    """Return the instruction of a line, and the buffer that it names; the inverse of `disassemble`.

    Tokens may follow. ``stride``, ``loops`` and factors may be left out: consecutive elements, one
    iteration, and 0. A micro-op label stands for its range.

    Raises
    ------
    ProgramError
        If the line is no instruction; the message begins with line and column.
    """
    kind = words.take("an instruction")
    if kind in ("LOAD", "STORE"):
        kind += f" {words.take('a memory')}"
    if kind not in _KINDS:
        words.fail(f"{kind!r} is no instruction; those are {', '.join(_KINDS)}", 1)
    cls, preset, clauses = _KINDS[kind]
    values = FieldValues(preset)
    if not (cls in _IDLE and words.skip(_IDLE[cls])):
        for clause in clauses:
            clause.read(words, values)
    if "x_size" in values:
        values.setdefault("x_stride", values["x_size"])
    if words.skip("with"):
        values |= _hidden_fields(words, cls)
    while words.rest and words.rest[0] in TOKENS:
        values[words.take("a token")] = 1
    words.end()
    buffer: str = values.pop("buffer", "")
    return cls(**values), buffer


def _hidden_fields(words: Words, cls: type[Instruction]) -> FieldValues:
    known, values = {f.name for f in fields(cls)} - {*TOKENS}, {}
    while words.rest and "=" in words.rest[0]:
        name, number = words.match(r"(\w+)=(.*)", "a field and its value")
        if name not in known:
            words.fail(f"{cls.__name__.upper()} has no field {name!r}", 1)
        values[name] = words.value(number)
    return values


def _steps(operand: str, where: Callable[[Any], Any] = lambda i: True) -> Clause:
    form = f"+{{{operand}_factor_out}},+{{{operand}_factor_in}}"
    return Clause(operand, form, where=where)


_SRAM = Clause("sram", "{sram_base}", needed=True)
_OUT = Clause("out", "{dram_base}", "forward")
_DRAM = Place("dram", "{dram_base}", unless="forward")
_PADS = {"top": "y_pad_top", "bottom": "y_pad_bottom", "left": "x_pad_left", "right": "x_pad_right"}
_BLOCK = Clause(form="{y_size}x{x_size}"), Clause("stride", "{x_stride}")
_PADDING = (
    Clause("pad", where=lambda i: any(getattr(i, name) for name in _PADS.values())),
    *(Clause(side, f"{{{name}}}", where=attrgetter(name)) for side, name in _PADS.items()),
)

_LOOPS = (
    Clause("uop", "{uop_begin}..{uop_end}", needed=True),
    Clause("loops", "{iter_out}x{iter_in}"),
    _steps("dst"),
)
_ONCE = {"iter_out": 1, "iter_in": 1}
_OVERWRITE = Clause("overwrite", flag="overwrite")
_PRODUCT = (*_LOOPS, _steps("src"), _steps("wgt"), _OVERWRITE)
_ALU = (
    *_LOOPS,
    _steps("src", lambda i: not i.use_imm or i.src_factor_out or i.src_factor_in),
    Clause("imm", "{imm}", "use_imm"),
)
_POST = (
    Clause("+ bias", flag="use_bias"),
    Clause("*", flag="enable", needed=True),
    Clause("fine", "{fine}", where=attrgetter("fine")),
    Clause("scale", flag="use_scale"),
    Clause(form="{multiplier} >> {shift}", unless="use_scale"),
    Clause("rounded", flag="round_half"),
    Clause("+", "{zero_point}", needed=True),
    Clause("clip", "{low}..{high}", needed=True),
    Clause("row", "{row} +{row_factor_out},+{row_factor_in}", where=attrgetter("reads_row")),
    Clause("table", "{table_index}", "use_table"),
)

_IDLE: dict[type, str] = {Load: "nop", Store: "nop", Post: "off"}
"""What stands in place of the clauses of instructions that do nothing."""

_LOAD = (_SRAM, _OUT, _DRAM, *_BLOCK, Clause("nibbles", flag="nibbles"), *_PADDING)
_STORE = (_SRAM, _DRAM, *_BLOCK, *_PADDING)

_KINDS: Mapping[str, tuple[type[Instruction], FieldValues, tuple[Clause, ...]]] = MappingProxyType(
    {
        **{f"LOAD {m.name}": (Load, {"memory": m}, _LOAD) for m in Memory},
        **{f"STORE {m.name}": (Store, {"memory": m}, _STORE) for m in Memory},
        "GEMM": (Gemm, _ONCE, _PRODUCT),
        "RESET": (Gemm, {**_ONCE, "reset": 1}, (*_LOOPS, _OVERWRITE)),
        "DEPTHWISE": (Depthwise, _ONCE, _PRODUCT),
        "POOL": (
            Pool,
            _ONCE,
            (
                *_LOOPS,
                _steps("src"),
                Clause("tiles", "{tiles}", needed=True),
                _OVERWRITE,
            ),
        ),
        **{op.name: (Alu, {**_ONCE, "alu_op": op}, _ALU) for op in AluOp},
        "POST": (Post, {}, _POST),
        "FINISH": (Finish, {}, ()),
    }
)
"""Instructions: their class, fields that a line need not state, and its clauses."""
