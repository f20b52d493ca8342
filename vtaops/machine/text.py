"""Instructions as text, and back.

Owns the form of a line: `disassemble` writes it, `parse` reads it, and each instruction has one
text, which gives all of its fields. `vtaops.program.disassembly` and `vtaops.program.assembly` put
such lines together.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import NoReturn

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
    LoopInstruction,
    MemoryInstruction,
    Pool,
    Post,
    Store,
)

TOKENS = "pop_prev", "pop_next", "push_prev", "push_next"


# -------------------------------------------------------------------------------- to text


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
    if isinstance(i, MemoryInstruction):
        return _memory_text(i)
    if isinstance(i, Post):
        return _post_text(i)
    if isinstance(i, LoopInstruction):
        kind = i.opcode.name
        if isinstance(i, Alu):
            kind = AluOp(i.alu_op).name
        elif i.reset and type(i) is Gemm:
            kind = "RESET"
        return f"{kind:<10}{_loops_text(i)}{_operands_text(i, kind)}"
    return "FINISH"


def _operands_text(i: LoopInstruction, kind: str) -> str:
    source = f" src +{i.src_factor_out},+{i.src_factor_in}"
    if isinstance(i, Alu):
        steps = not i.use_imm or i.src_factor_out or i.src_factor_in
        return (source if steps else "") + (f" imm {i.imm}" if i.use_imm else "")
    if isinstance(i, Pool):
        source += f" tiles {i.tiles}"
    elif kind == "RESET":
        source = ""
    else:
        source += f" wgt +{i.wgt_factor_out},+{i.wgt_factor_in}"
    return source + (" overwrite" if i.overwrite else "")


def _post_text(i: Post) -> str:
    if not i.enable:
        return f"{'POST':<10}off"
    scale = (
        f"* {f'fine {i.fine} ' if i.fine else ''}scale"
        if i.use_scale
        else f"* {i.multiplier} >> {i.shift}"
    )
    row = f" row {i.row} +{i.row_factor_out},+{i.row_factor_in}" if i.reads_row else ""
    return (
        f"{'POST':<10}{'+ bias ' if i.use_bias else ''}{scale}"
        f"{' rounded' if i.round_half else ''} + {i.zero_point} clip {i.low}..{i.high}{row}"
        f"{f' table {i.table_index}' if i.use_table else ''}"
    )


_PADS = {"top": "y_pad_top", "bottom": "y_pad_bottom", "left": "x_pad_left", "right": "x_pad_right"}


def _memory_text(i: MemoryInstruction) -> str:
    head = f"{i.opcode.name + ' ' + Memory(i.memory).name + ' ':<10}"
    if i.is_nop:
        return f"{head}nop"
    source = "out" if isinstance(i, Load) and i.forward else "dram"
    text = (
        f"{head}sram {i.sram_base} {source} {i.dram_base} {i.y_size}x{i.x_size} stride {i.x_stride}"
        f"{' nibbles' if isinstance(i, Load) and i.nibbles else ''}"
    )
    pads = [f"{side} {getattr(i, name)}" for side, name in _PADS.items() if getattr(i, name)]
    return text + (f" pad {' '.join(pads)}" if pads else "")


def _loops_text(i: LoopInstruction) -> str:
    return (
        f"uop {i.uop_begin}..{i.uop_end} loops {i.iter_out}x{i.iter_in} "
        f"dst +{i.dst_factor_out},+{i.dst_factor_in}"
    )


# ------------------------------------------------------------------------------- from text


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
    """

    line: str
    number: int
    labels: Mapping[str, range] = field(default_factory=dict)

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

    def back_to(self, text: str) -> None:
        """Go back to the first word that begins with a text."""
        self._next = next(n for n, (word, _) in enumerate(self._words) if word.startswith(text))

    def take(self, what: str) -> str:
        """Read a word."""
        if not self.rest:
            self.fail(f"the line ends; here follows {what}")
        self._next += 1
        return self._words[self._next - 1][0]

    def skip(self, *words: str) -> bool:
        """Read these words if they are the next; return whether they were."""
        found = self.rest[: len(words)] == [*words]
        self._next += len(words) * found
        return found

    def match(self, pattern: str, what: str) -> tuple[str, ...]:
        """Read a word of this form; return its groups."""
        word = self.take(what)
        found = re.fullmatch(pattern, word)
        if found is None:
            self.fail(f"{word!r} is not {what}", 1)
        return tuple(part or "" for part in found.groups())

    def value(self, text: str) -> int:
        """Return the number that the last word holds as digits or as a label."""
        if text in self.labels:
            return self.labels[text].start
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text) is None:
            known = f"; labels are {', '.join(self.labels)}" if self.labels else ""
            self.fail(f"{text!r} is not a number{known}", 1)
        return int(text)

    def count(self, what: str) -> int:
        """Read a number or a label."""
        return self.value(self.take(what))

    def span(self, what: str) -> range:
        """Read ``first..end``, or the label of a range."""
        word = self.take(what)
        if word in self.labels:
            return self.labels[word]
        first, dots, end = word.partition("..")
        if not dots:
            self.fail(f"{word!r} is not {what}, such as 0..2", 1)
        return range(self.value(first), self.value(end))

    def end(self) -> None:
        """Refuse words that nothing reads."""
        if self.rest:
            self.fail(f"{self.rest[0]!r} does not belong here")


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
    buffer = ""
    if kind in ("LOAD", "STORE"):
        found, buffer = _memory_fields(words)
        cls: type[Instruction] = Load if kind == "LOAD" else Store
        if cls is Store and found.keys() & {"forward", "nibbles"}:
            words.fail("STORE goes to DRAM, with 8 bits")
    elif kind in _KINDS:
        cls, read = _KINDS[kind]
        found = read(words)
    else:
        words.fail(f"{kind!r} is no instruction; those are LOAD, STORE, {', '.join(_KINDS)}", 1)
    if words.skip("with"):
        found |= _hidden_fields(words, cls)
    while words.rest and words.rest[0] in TOKENS:
        found[words.take("a token")] = 1
    words.end()
    return cls(**found), buffer


def _hidden_fields(words: Words, cls: type[Instruction]) -> Found:
    known, found = {f.name for f in fields(cls)} - {*TOKENS}, {}
    while words.rest and "=" in words.rest[0]:
        name, number = words.match(r"(\w+)=(.*)", "a field and its value")
        if name not in known:
            words.fail(f"{cls.__name__.upper()} has no field {name!r}", 1)
        found[name] = words.value(number)
    return found


Found = dict[str, int]
_RANGE, _FACTORS, _EXTENTS = "a range of micro-ops", "two factors, such as +1,+0", "4x16"


def _memory_fields(words: Words) -> tuple[Found, str]:
    name = words.take("a memory")
    if name not in Memory.__members__:
        words.fail(f"{name!r} is no memory; those are {', '.join(Memory.__members__)}", 1)
    found: Found = {"memory": Memory[name]}
    if words.skip("nop"):
        return found, ""
    _keyword(words, "sram")
    found["sram_base"] = words.count("an element of the scratchpad")
    buffer = ""
    if words.skip("out"):
        found["forward"] = 1
        found["dram_base"] = words.count("an element of the output memory")
    elif words.skip("dram"):
        found["dram_base"] = words.count("an element of DRAM")
    else:
        buffer, base = words.match(r'(".*"|[^\s"+]+)\+(\S+)', "a buffer and an element: data+0")
        found["dram_base"] = words.value(base)
    rows, columns = words.match(r"(\d{1,9})x(\d{1,9})", f"rows and elements of a row: {_EXTENTS}")
    found |= {"y_size": int(rows), "x_size": int(columns), "x_stride": int(columns)}
    if words.skip("stride"):
        found["x_stride"] = words.count("a stride")
    if words.skip("nibbles"):
        found["nibbles"] = 1
    if words.skip("pad"):
        while words.rest and words.rest[0] in _PADS:
            side = words.take("a side")
            found[_PADS[side]] = words.count("a number of elements")
    return found, buffer


def _keyword(words: Words, keyword: str) -> None:
    if not words.skip(keyword):
        words.fail(f"here follows {keyword!r}")


def _factors(words: Words, operand: str) -> Found:
    outer = inner = "0"
    if words.skip(operand):
        outer, inner = words.match(r"\+([^,\s]+),\+([^,\s]+)", _FACTORS)
    return {
        f"{operand}_factor_out": words.value(outer),
        f"{operand}_factor_in": words.value(inner),
    }


def _loop_fields(words: Words) -> Found:
    _keyword(words, "uop")
    uop = words.span(_RANGE)
    outer, inner = "1", "1"
    if words.skip("loops"):
        outer, inner = words.match(r"(\d{1,9})x(\d{1,9})", f"two iterations: {_EXTENTS}")
    loops = {"iter_out": int(outer), "iter_in": int(inner)}
    return {"uop_begin": uop.start, "uop_end": uop.stop} | loops | _factors(words, "dst")


def _gemm_fields(words: Words) -> Found:
    found = _loop_fields(words) | _factors(words, "src") | _factors(words, "wgt")
    return found | ({"overwrite": 1} if words.skip("overwrite") else {})


def _reset_fields(words: Words) -> Found:
    overwrites = {"overwrite": 1}
    return _loop_fields(words) | {"reset": 1} | (overwrites if words.skip("overwrite") else {})


def _pool_fields(words: Words) -> Found:
    found = _loop_fields(words) | _factors(words, "src")
    _keyword(words, "tiles")
    found["tiles"] = words.count("a number of tiles")
    return found | ({"overwrite": 1} if words.skip("overwrite") else {})


def _alu_fields(op: AluOp) -> Callable[[Words], Found]:
    def read(words: Words) -> Found:
        found = _loop_fields(words) | {"alu_op": op} | _factors(words, "src")
        if words.skip("imm"):
            found |= {"use_imm": 1, "imm": words.count("an immediate")}
        return found

    return read


def _post_fields(words: Words) -> Found:
    if words.skip("off"):
        return {}
    found: Found = {"enable": 1}
    if words.skip("+", "bias"):
        found["use_bias"] = 1
    _keyword(words, "*")
    if words.skip("fine"):
        found["fine"] = words.count("a kind of scales")
    if words.skip("scale"):
        found["use_scale"] = 1
    else:
        found["multiplier"] = words.count("a multiplier")
        _keyword(words, ">>")
        found["shift"] = words.count("a shift")
    if words.skip("rounded"):
        found["round_half"] = 1
    _keyword(words, "+")
    found["zero_point"] = words.count("a zero point")
    _keyword(words, "clip")
    clip = words.span("two bounds")
    found |= {"low": clip.start, "high": clip.stop}
    if words.skip("row"):
        found["row"] = words.count("a row")
        outer, inner = words.match(r"\+([^,\s]+),\+([^,\s]+)", _FACTORS)
        found |= {"row_factor_out": words.value(outer), "row_factor_in": words.value(inner)}
    if words.skip("table"):
        found |= {"use_table": 1, "table_index": words.count("a table")}
    return found


_KINDS: Mapping[str, tuple[type[Instruction], Callable[[Words], Found]]] = MappingProxyType(
    {
        "GEMM": (Gemm, _gemm_fields),
        "RESET": (Gemm, _reset_fields),
        "DEPTHWISE": (Depthwise, _gemm_fields),
        "POOL": (Pool, _pool_fields),
        **{op.name: (Alu, _alu_fields(op)) for op in AluOp},
        "POST": (Post, _post_fields),
        "FINISH": (Finish, lambda words: {}),
    }
)
"""Instructions that compute: their class, and a function that reads the rest of the line."""
