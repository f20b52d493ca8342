"""The VTA instruction set as one table: the fields of the dataclasses below.

Each class is an instruction (or the micro-op); each of its attributes is a field, in bit order,
with its width and meaning. Encoder, decoder, disassembler, documentation and the simulators'
constants are computed from these classes; no other file states a bit position.

Packing rule: fields are packed from bit 0, as C bitfields in upstream's headers; a field that would
cross a 64-bit word boundary starts at that boundary. Widths that depend on the configuration are
named after the logarithm of a scratchpad depth: U (micro-ops), I (input), W (weight),
A (accumulator). Fields of an extension (`vtaops.machine.config.Extension`) exist only if the
configuration names it, at their own position.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import EncodingError
from vtaops.base.frozen import frozen
from vtaops.base.shapes import Indices, Ints, Words, Words32
from vtaops.machine.alu import AluOp as AluOp  # of the table of operations
from vtaops.machine.config import POST_ROWS, TABLES, Extension, HardwareConfig, Memory

WORD_BITS = 64
INSTRUCTION_WORDS = 2
MICRO_OP_BITS = 32


class Opcode(IntEnum):
    """Operation codes (3 bits); POST and above belong to the extensions of the same names."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4
    POST = 5
    DEPTHWISE = 6
    POOL = 7


class Unit(IntEnum):
    """The three units that execute instructions concurrently, each in program order."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


Width = int | str


def bits(
    width: Width,
    doc: str,
    *,
    signed: bool = False,
    extension: Extension | None = None,
    at: int | None = None,
) -> Any:
    """Declare a field of `width` bits: a number, or a name of `field_widths`.

    A field of an `extension` exists only in configurations with that extension. It follows all
    other fields of its class, or starts at bit `at` if given.
    """
    metadata = {"width": width, "doc": doc, "signed": signed, "extension": extension, "at": at}
    return field(default=0, metadata=metadata)


# --------------------------------------------------------------------------- the table


@frozen(frozen=True, slots=True)
class Instruction:
    """Fields common to all instructions; bits 0..2 hold the opcode.

    "Previous" and "next" are the neighbours in the chain load - compute - store.
    """

    opcode: ClassVar[Opcode]

    pop_prev: int = bits(1, "wait for a token of the previous unit before executing")
    pop_next: int = bits(1, "wait for a token of the next unit before executing")
    push_prev: int = bits(1, "send a token to the previous unit after completion")
    push_next: int = bits(1, "send a token to the next unit after completion")

    @property
    def unit(self) -> Unit:
        """The unit that executes this instruction."""
        return Unit.COMPUTE


@frozen(frozen=True, slots=True)
class _MemoryInstruction(Instruction):
    memory: int = bits(
        3,
        "memory identifier: UOP 0, WGT 1, INP 2, ACC 3, OUT 4, ACC_8BIT 5; extensions: POST 6, "
        "TABLE 7",
    )
    sram_base: int = bits(16, "first SRAM element")
    dram_base: int = bits(32, "first DRAM element: byte address / element bytes")
    y_size: int = bits(16, "rows")
    x_size: int = bits(16, "elements of a row; 0 makes a no-operation that only carries tokens")
    x_stride: int = bits(16, "DRAM elements from one row to the next")
    y_pad_top: int = bits(4, "rows of zeros before the first row")
    y_pad_bottom: int = bits(4, "rows of zeros after the last row")
    x_pad_left: int = bits(4, "zero elements before each row")
    x_pad_right: int = bits(4, "zero elements after each row")

    @property
    def is_nop(self) -> bool:
        """Whether this instruction moves nothing and only carries tokens."""
        return self.x_size == 0

    @property
    def sram_row(self) -> int:
        """SRAM elements of one row, padding included."""
        return self.x_pad_left + self.sram_columns + self.x_pad_right

    @property
    def sram_columns(self) -> int:
        """SRAM elements that the data of one row fill, or come from."""
        return self.x_size

    @property
    def sram_size(self) -> int:
        """SRAM elements that are written (LOAD) or read (STORE), padding included."""
        if self.is_nop:
            return 0
        return (self.y_pad_top + self.y_size + self.y_pad_bottom) * self.sram_row


_OF_LOAD_UNIT = frozenset({Memory.INP, Memory.WGT, Memory.POST, Memory.TABLE})


@frozen(frozen=True, slots=True)
class Load(_MemoryInstruction):
    """Copy a 2-D block from DRAM to consecutive SRAM elements, surrounding it with zeros.

    INP, WGT, POST and TABLE run on the load unit; UOP, ACC and ACC_8BIT on the compute unit.
    """

    opcode: ClassVar[Opcode] = Opcode.LOAD

    nibbles: int = bits(
        1,
        "WGT: the weights in DRAM have four bits, so each of its elements fills two tiles",
        extension=Extension.NIBBLES,
        at=62,
    )
    forward: int = bits(
        1,
        "INP: the source is the output memory; dram_base and x_stride count its elements",
        extension=Extension.FORWARD,
        at=63,
    )

    @property
    def sram_columns(self) -> int:
        return self.x_size << self.nibbles

    @property
    def unit(self) -> Unit:
        return Unit.LOAD if self.memory in _OF_LOAD_UNIT else Unit.COMPUTE


@frozen(frozen=True, slots=True)
class Store(_MemoryInstruction):
    """Copy consecutive elements of the output memory to a 2-D block in DRAM; pads must be 0."""

    opcode: ClassVar[Opcode] = Opcode.STORE

    @property
    def unit(self) -> Unit:
        return Unit.STORE


@frozen(frozen=True, slots=True)
class _LoopInstruction(Instruction):
    reset: int = bits(1, "GEMM: write zeros instead of accumulating; others: 0")
    uop_begin: int = bits("U", "first micro-op")
    uop_end: int = bits("U+1", "one past the last micro-op")
    iter_out: int = bits(14, "extent of the outer hardware loop")
    iter_in: int = bits(14, "extent of the inner hardware loop")
    dst_factor_out: int = bits("A", "destination elements per step of the outer loop")
    dst_factor_in: int = bits("A", "destination elements per step of the inner loop")

    @property
    def iterations(self) -> int:
        """Micro-op executions of the whole instruction (what the counters count)."""
        return self.iter_out * self.iter_in * max(0, self.uop_end - self.uop_begin)


@frozen(frozen=True, slots=True)
class Gemm(_LoopInstruction):
    """For each iteration and micro-op: ``acc[dst] += inp[src] @ wgt[wgt].T``, int32 with wrap.

    With `reset` it writes zeros; with `overwrite` it writes the product instead of accumulating.
    """

    opcode: ClassVar[Opcode] = Opcode.GEMM

    src_factor_out: int = bits("I", "input elements per step of the outer loop")
    src_factor_in: int = bits("I", "input elements per step of the inner loop")
    wgt_factor_out: int = bits("W", "weight elements per step of the outer loop")
    wgt_factor_in: int = bits("W", "weight elements per step of the inner loop")
    overwrite: int = bits(
        1,
        "write the product instead of adding it; not together with reset",
        extension=Extension.OVERWRITE,
        at=63,
    )


@frozen(frozen=True, slots=True)
class Depthwise(Gemm):
    """A GEMM on windows: channels mix within their group, in three tiles from ``inp[src]`` on.

    ``acc[dst][b][j] += sum over t, c of inp[src + t][b][g + c] * wgt[wgt][j][t * G + c]``, where t
    is 0..2, G a quarter of the channels of a tile, g the first channel of j's group of G, and c is
    0..G-1. The last quarter of a weight row is unused. The fields are those of GEMM.
    """

    opcode: ClassVar[Opcode] = Opcode.DEPTHWISE


@frozen(frozen=True, slots=True)
class Alu(_LoopInstruction):
    """For each iteration and micro-op: ``acc[dst] = op(acc[dst], acc[src] or imm)``, lane-wise."""

    opcode: ClassVar[Opcode] = Opcode.ALU

    src_factor_out: int = bits("A", "source elements per step of the outer loop")
    src_factor_in: int = bits("A", "source elements per step of the inner loop")
    alu_op: int = bits(3, "operation: " + ", ".join(f"{op.name} {op.value}" for op in AluOp))
    use_imm: int = bits(1, "the second operand is the immediate, not acc[src]")
    imm: int = bits(16, "immediate operand, sign-extended to 32 bits", signed=True)


@frozen(frozen=True, slots=True)
class Pool(_LoopInstruction):
    """For each iteration and micro-op: ``acc[dst] = max(acc[dst], inp[src], inp[src + 1], ...)``.

    Lane-wise over `tiles` neighbouring input tiles; int8 to int32. With `overwrite` it writes the
    maximum of the tiles, ignoring the accumulator. Micro-ops are those of GEMM.
    """

    opcode: ClassVar[Opcode] = Opcode.POOL

    src_factor_out: int = bits("I", "input elements per step of the outer loop")
    src_factor_in: int = bits("I", "input elements per step of the inner loop")
    tiles: int = bits(2, "input tiles per step: 1..3")
    overwrite: int = bits(1, "ignore the old accumulator")


MemoryInstruction = Load | Store
"""The instructions that move data."""


def values_of(cls: type[Instruction], name: str) -> range:
    """Return the values of a field whose width depends on no configuration."""
    (metadata,) = (f.metadata for f in fields(cls) if f.name == name)
    return Slot(name, 0, metadata["width"], metadata["signed"], metadata["doc"]).range


LoopInstruction = Gemm | Alu | Pool
"""The instructions that execute micro-ops in two hardware loops."""


@frozen(frozen=True, slots=True)
class Finish(Instruction):
    """Tell the host that the program is complete; runs on the compute unit."""

    opcode: ClassVar[Opcode] = Opcode.FINISH


@frozen(frozen=True, slots=True)
class Post(Instruction):
    """Set what happens to all that later GEMM and ALU instructions write to the output memory.

    While enabled, each lane is ``clip((((acc + bias) * multiplier + half) >> shift) +
    zero_point, low, high)``; half is ``1 << (shift - 1)`` if it rounds and shifts, else 0. The sum
    wraps at 32 bits, the product is exact; the accumulators themselves do not change. Iteration
    (o, i) uses parameter row ``row + o * row_factor_out + i * row_factor_in``. A program starts
    with post-processing disabled; then the low bits of the accumulators are written. With
    `use_table` the result is not the clipped value v, but entry ``v + 128`` of a table.

    With `fine` a scale has a 24-bit multiplier, a shift and a nudge: nudge plus the base of the
    kind are added to half for non-negative sums and subtracted for negative ones
    (`vtaops.base.fixed_point`).
    """

    opcode: ClassVar[Opcode] = Opcode.POST

    enable: int = bits(1, "post-process; 0: write the low bits, all other fields are 0")
    use_bias: int = bits(1, "add the row's biases, one per channel; else 0")
    use_scale: int = bits(1, "use the row's multipliers and shifts, one per channel")
    round_half: int = bits(1, "add half an output step before the shift")
    multiplier: int = bits(16, "factor of all channels, without use_scale; unsigned")
    shift: int = bits(6, "arithmetic right shift of all channels, without use_scale")
    zero_point: int = bits(8, "added after the shift", signed=True)
    low: int = bits(8, "lower bound of the result", signed=True)
    high: int = bits(8, "upper bound of the result", signed=True)
    row: int = bits("P", "first row of the parameters")
    row_factor_out: int = bits("P", "rows per step of the outer loop")
    row_factor_in: int = bits("P", "rows per step of the inner loop")
    use_table: int = bits(
        1, "replace the result by its entry in a table", extension=Extension.TABLE
    )
    table_index: int = bits("T", "the table", extension=Extension.TABLE)
    fine: int = bits(
        2,
        "the scales of the row are fine, with the base 0 (1), 2**23 (2) or 2**24 (3); 0: coarse",
        extension=Extension.EXACT,
    )

    @property
    def reads_row(self) -> bool:
        """Whether it reads parameters from the POST memory."""
        return bool(self.enable and (self.use_bias or self.use_scale))


@frozen(frozen=True, slots=True)
class MicroOp:
    """One step of a GEMM or ALU instruction: the elements it touches before the loop offsets."""

    dst: int = bits("A", "accumulator element")
    src: int = bits("S", "input element (GEMM, POOL) or accumulator element (ALU)")
    wgt: int = bits("W", "weight element (GEMM only)")


INSTRUCTIONS: tuple[type[Instruction], ...] = (Load, Store, Gemm, Finish, Alu)
"""Upstream's instructions."""

EXTENSION_INSTRUCTIONS: dict[Extension, type[Instruction]] = {
    Extension.POST: Post,
    Extension.DEPTHWISE: Depthwise,
    Extension.POOL: Pool,
}
"""Instructions by the extension that adds them."""


OPCODE_BITS = 3


def field_widths(config: HardwareConfig) -> dict[str, int]:
    """Return the named field widths of a configuration, in bits."""
    u, i, w, a = (m.log_depth for m in (config.uop, config.inp, config.wgt, config.acc))
    p, t = POST_ROWS.bit_length() - 1, TABLES.bit_length() - 1
    return {"U": u, "U+1": u + 1, "I": i, "W": w, "A": a, "S": max(a, i), "P": p, "T": t}


# ------------------------------------------------------------- computed from the table


@dataclass(frozen=True, slots=True)
class Slot:
    """Position of a field: `width` bits from bit `offset` (bit 0 is the least significant)."""

    name: str
    offset: int
    width: int
    signed: bool
    doc: str

    @property
    def range(self) -> range:
        if self.signed:
            return range(-(1 << (self.width - 1)), 1 << (self.width - 1))
        return range(1 << self.width)

    @property
    def span(self) -> str:
        """The bit range as text, for example ``"7..9"``."""
        last = self.offset + self.width - 1
        return f"{self.offset}..{last}" if self.width > 1 else f"{self.offset}"


def slots_of(cls: type[Instruction] | type[MicroOp], config: HardwareConfig) -> Iterator[Slot]:
    """Yield the slots of a class, even of an instruction that `config` lacks."""
    unit_bits = WORD_BITS if issubclass(cls, Instruction) else MICRO_OP_BITS
    widths = field_widths(config)
    offset = OPCODE_BITS if issubclass(cls, Instruction) else 0
    for f in fields(cls):
        if f.metadata["extension"] not in (None, *config.extensions):
            continue
        named = f.metadata["width"]
        width = widths[named] if isinstance(named, str) else named
        offset = f.metadata["at"] or offset
        if offset // unit_bits != (offset + width - 1) // unit_bits:
            offset += unit_bits - offset % unit_bits
        yield Slot(f.name, offset, width, f.metadata["signed"], f.metadata["doc"])
        offset += width


class _Places:
    """The slots of a class as arrays, one entry a slot."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.least = np.array([slot.range.start for slot in slots])
        self.most = np.array([slot.range.stop - 1 for slot in slots])
        self.masks = np.array([(1 << slot.width) - 1 for slot in slots])
        self.halves, shifts = np.divmod([slot.offset for slot in slots], WORD_BITS)
        self.shifts = shifts.astype(np.uint64)


class Encoding:
    """Bit layout of all instructions and of the micro-op for one configuration.

    Use `Encoding.of`, which shares one object per configuration.

    Attributes
    ----------
    slots : dict
        Instruction class (or `MicroOp`) -> its fields in bit order.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        added = (cls for own, cls in EXTENSION_INSTRUCTIONS.items() if config.has(own))
        self.instructions = (*INSTRUCTIONS, *added)
        self._by_opcode = {int(cls.opcode): cls for cls in self.instructions}
        self.slots: dict[type, tuple[Slot, ...]] = {
            cls: tuple(slots_of(cls, config)) for cls in (*self.instructions, MicroOp)
        }
        self._places = {cls: _Places(slots) for cls, slots in self.slots.items()}
        self._named: dict[str, list[IntEnum]] = {
            "memory": [*config.memories],
            "alu_op": [*AluOp],
        }
        """Fields with named values."""

    @staticmethod
    @lru_cache(maxsize=64)
    def of(config: HardwareConfig) -> Encoding:
        """Return the encoding of `config`."""
        return Encoding(config)

    def encode(self, instruction: Instruction) -> int:
        """Return the 128-bit word of an instruction; raises as `encode_all`."""
        return array_to_words(self.encode_all([instruction]))[0]

    def decode(self, word: int) -> Instruction:
        """Return the instruction of a 128-bit word; raises as `decode_all`."""
        return self.decode_all(words_to_array([word]))[0]

    def encode_all(self, instructions: Sequence[Instruction]) -> Words:
        """Return the words of many instructions, shape (n, 2): low half, high half.

        Raises
        ------
        EncodingError
            If a field is out of range; the message names it, its value and its range.
        """
        words = np.zeros((len(instructions), INSTRUCTION_WORDS), np.uint64)
        rows_of_class: dict[type[Instruction], list[int]] = {}
        for row, instruction in enumerate(instructions):
            rows_of_class.setdefault(type(instruction), []).append(row)
        for cls, rows in rows_of_class.items():
            own, slots = [instructions[row] for row in rows], self.slots.get(cls, ())
            self._refuse_absent(own, cls)
            values = [*map(attrgetter(*(s.name for s in slots)), own)]
            words[rows] = self._packed(cls, _integers(cls, slots, values))
            words[rows, 0] |= np.uint64(cls.opcode)
        return words

    def _packed(self, cls: type[Instruction] | type[MicroOp], values: Ints) -> Words:
        """Return words, shape (n, 2), with the values of a class's fields, one a column."""
        places = self._places[cls]
        bad = (values < places.least) | (values > places.most)
        if bad.any():
            row, k = np.argwhere(bad)[0].tolist()
            raise EncodingError(_out_of_range(cls, self.slots[cls][k], int(values[row, k])))
        bits = (values & places.masks).astype(np.uint64) << places.shifts
        words = [np.bitwise_or.reduce(bits[:, places.halves == half], axis=1) for half in (0, 1)]
        return np.stack(words, axis=1)

    def _refuse_absent(self, instructions: list[Instruction], cls: type[Instruction]) -> None:
        """Reject instructions and non-zero fields whose extension the configuration lacks."""
        if cls not in self.instructions:
            raise EncodingError(
                f"{cls.__name__.upper()} is not an instruction of the configuration "
                f"{self.config.name!r}, whose extensions are {self.config.extensions}"
            )
        for f in fields(cls):
            extension = f.metadata["extension"]
            if extension in (None, *self.config.extensions):
                continue
            if any(getattr(i, f.name) for i in instructions):
                raise EncodingError(
                    f"{cls.__name__.upper()} field {f.name} is not 0; the configuration "
                    f"{self.config.name!r} lacks the extension {extension!r}"
                )

    def _class_of(self, opcode: int, word: Words) -> type[Instruction]:
        """Return the class of an opcode, which stands in a word."""
        if opcode not in self._by_opcode:
            valid = ", ".join(map(str, sorted(self._by_opcode)))
            raise EncodingError(f"word {_text(word)} has opcode {opcode}; valid are {valid}")
        return self._by_opcode[opcode]

    def decode_all(self, words: Words) -> list[Instruction]:
        """Return the instructions of words, shape (n, 2); bits outside their fields are ignored.

        Raises
        ------
        EncodingError
            If an opcode, memory identifier or ALU operation is invalid.
        """
        decoded: dict[int, Instruction] = {}
        opcodes = words[:, 0] & np.uint64((1 << OPCODE_BITS) - 1)
        for opcode in np.unique(opcodes).tolist():
            rows = np.flatnonzero(opcodes == opcode)
            cls = self._class_of(opcode, words[rows[0]])
            columns = self.columns(words[rows], cls)
            for name in self._named.keys() & columns.keys():
                bad = np.flatnonzero(columns[name] >= len(self._named[name]))
                if bad.size:
                    raise EncodingError(
                        f"word {_text(words[rows[bad[0]]])} has {name} {columns[name][bad[0]]}; "
                        f"valid values are "
                        + ", ".join(f"{m.name} {m.value}" for m in self._named[name])
                    )
            absent = np.zeros(len(rows), np.int64)
            values = (columns.get(f.name, absent).tolist() for f in fields(cls))
            decoded.update(zip(rows.tolist(), map(cls, *values), strict=True))
        return [decoded[row] for row in range(len(words))]

    def reserved_bits(self, cls: type[Instruction]) -> int:
        """Return a mask of the bits that belong to no field."""
        used = (1 << OPCODE_BITS) - 1
        for slot in self.slots[cls]:
            used |= ((1 << slot.width) - 1) << slot.offset
        return ((1 << INSTRUCTION_WORDS * WORD_BITS) - 1) & ~used

    def columns(self, words: Words, cls: type[Instruction] | type[MicroOp]) -> dict[str, Ints]:
        """Decode many words of one instruction class at once.

        Parameters
        ----------
        words : ndarray of uint64, shape (n, 2)
            Low and high half of each instruction; all must be instructions of `cls`.
        cls : type
            The instruction class, or `MicroOp`.

        Returns
        -------
        dict
            Field name -> int64 array of n values.
        """
        slots, places = self.slots[cls], self._places[cls]
        values = ((words.T[places.halves].T >> places.shifts).view(np.int64) & places.masks).T
        for slot, column in zip(slots, values, strict=True):
            if slot.signed:
                column -= (column >> (slot.width - 1)) << slot.width
        return dict(zip((slot.name for slot in slots), values, strict=True))

    def of_class(self, words: Words, cls: type[Instruction]) -> tuple[Indices, dict[str, Ints]]:
        """Return the rows of a class, and their fields by name (`rows_of`, `columns`)."""
        rows = rows_of(words, cls)
        return rows, self.columns(words[rows], cls)

    def encode_micro_ops(self, table: npt.ArrayLike) -> Words32:
        """Encode rows of (dst, src, wgt).

        Raises
        ------
        EncodingError
            If an index does not fit its field.
        """
        rows = np.asarray(table, np.int64).reshape(-1, len(self.slots[MicroOp]))
        return self._packed(MicroOp, rows)[:, 0].astype(np.uint32)

    def decode_micro_ops(self, words: npt.ArrayLike) -> Ints:
        """Decode uint32 words to rows of (dst, src, wgt); the inverse of `encode_micro_ops`."""
        columns = self.columns(np.asarray(words, np.uint64).reshape(-1, 1), MicroOp)
        return np.stack([*columns.values()], axis=1)


def _out_of_range(cls: type, slot: Slot, value: int) -> str:
    owner = "micro-op" if cls is MicroOp else cls.__name__.upper()
    return (
        f"{owner} field {slot.name} is {value}; its {slot.width} bits hold "
        f"{slot.range.start}..{slot.range.stop - 1}"
    )


def _integers(cls: type[Instruction], slots: tuple[Slot, ...], rows: list[tuple[Any, ...]]) -> Ints:
    """Return field values as integers, after checking any that may be none, or do not fit int64."""
    try:
        values = np.array(rows)
    except ValueError:  # a sequence in place of a number
        values = np.array(None)
    if values.dtype.kind not in "bi":
        for slot, value in (pair for row in rows for pair in zip(slots, row, strict=True)):
            if value not in slot.range:
                raise EncodingError(_out_of_range(cls, slot, value))
    return values.astype(np.int64)


def _text(word: Words) -> str:
    return f"{array_to_words(word[None])[0]:032x}"


def rows_of(words: Words, cls: type[Instruction]) -> Indices:
    """Return the rows of an instruction array, shape (n, 2), that hold instructions of `cls`."""
    opcodes = words[:, 0] & np.uint64((1 << OPCODE_BITS) - 1)
    return np.flatnonzero(opcodes == np.uint64(cls.opcode))


def words_to_array(words: list[int]) -> Words:
    """Return 128-bit integers as an array of shape (n, 2): low half, high half."""
    raw = b"".join(word.to_bytes(16, "little") for word in words)
    return np.frombuffer(raw, dtype="<u8").reshape(-1, INSTRUCTION_WORDS).astype(np.uint64)


def array_to_words(array: Words) -> list[int]:
    """Return the 128-bit integers of an array of shape (n, 2); the inverse of `words_to_array`."""
    return [int(low) | int(high) << WORD_BITS for low, high in array.tolist()]
