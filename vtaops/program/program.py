"""Program: compiled operators as data, for any device.

Owns the representation only. Instructions address DRAM relative to the buffers that the program
declares; `vtaops.runtime` places those buffers and adds their addresses. Operations on programs are
in separate files, which import this one; the methods import them when they are called.

Imports no TVM: a board installs this room.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vtaops.base.errors import ProgramError, ShapeError, raising
from vtaops.base.names import checked_call
from vtaops.base.proof import Proof
from vtaops.base.quoting import NAME_RULE, is_name
from vtaops.base.shapes import Array, Bytes, Int32Array, ReprMixin, Words, Words32
from vtaops.machine.capabilities import FULL, Capabilities, find
from vtaops.machine.config import DRAM_BYTES, MICRO_OP_BYTES, HardwareConfig
from vtaops.machine.isa import Encoding, Instruction
from vtaops.machine.layout import Layout
from vtaops.program.statistics import Statistics, count_instructions

if TYPE_CHECKING:
    from vtaops.program.timing.parameters import TimingParameters
    from vtaops.program.timing.timeline import Timeline
    from vtaops.runtime.device import Device

DTYPES = "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"
"""Types of the scalars of a buffer."""

NO_BUFFER = -1
"""Relocation of an instruction that does not address DRAM."""

MICRO_OPS = -2
"""Relocation of a LOAD UOP: its ``dram_base`` is relative to the program's micro-op table."""


class Role(Enum):
    """The purpose of a program's DRAM buffer."""

    INPUT = "input"
    """Written by the host before each run."""
    PARAMETER = "parameter"
    """Written by the host; usually constant over many runs (weights, bias)."""
    OUTPUT = "output"
    """Read by the host after each run; undefined before."""
    SCRATCH = "scratch"
    """Used only by the program; undefined at the start of each run."""
    CONSTANT = "constant"
    """Part of the program: written once, when the program is loaded."""


@dataclass(frozen=True, repr=False)
class Buffer(ReprMixin):
    """One DRAM buffer that a program reads or writes.

    Attributes
    ----------
    name : str
        Name of the operator's argument, for example ``"data"``.
    role : Role
        Its purpose: determines its reader and writer.
    shape : tuple of int
        Shape of the logical tensor, on the host.
    dtype : str
        NumPy dtype of its scalars.
    layout : Layout
        Layout on the device.
    value : tuple of int
        The scalars of a `CONSTANT`, in C order; empty for other roles.
    offset : int, optional
        First byte of a `SCRATCH` buffer in the program's arena, an allocation in which buffers that
        are not live at the same time may overlap. None: a separate allocation, as for other roles.
    fill : int, optional
        Scalar that fills a `SCRATCH` buffer when the program is loaded. The program never writes
        elements that it reads before writing, such as a border around an image. A filled buffer has
        a separate allocation.

    Raises
    ------
    ProgramError
        If the layout does not fit the shape, or dtype or an extent is invalid, or DRAM has no
        room for it; if a constant's number of
        scalars does not match its shape, or another buffer has a value; if a non-scratch buffer has
        an offset or a fill, or a buffer has both; if a fill is not int8, or a result has a view of
        arguments.
    """

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    layout: Layout
    value: tuple[int, ...] = ()
    offset: int | None = None
    fill: int | None = None

    def __post_init__(self) -> None:
        try:
            _ = self.nbytes
        except (ShapeError, TypeError) as error:
            raise ProgramError(f"buffer {self.name}: {error}") from error
        expected = math.prod(self.shape) if self.role is Role.CONSTANT else 0
        extra = (self.offset, self.fill) != (None, None)
        view, integers = self.layout.view, self.value if np.dtype(self.dtype).kind in "iu" else ()
        for right, reason in (
            (self.dtype in DTYPES, f"dtypes are {', '.join(DTYPES)}"),
            (min(self.shape, default=1) > 0, "extents are from 1 on"),
            (
                self.nbytes + (self.offset or 0) <= DRAM_BYTES,
                f"it has {self.nbytes} bytes; DRAM ends at {DRAM_BYTES}",
            ),
            (self.role is Role.SCRATCH or not extra, "only scratch has an offset or a fill"),
            (None in (self.offset, self.fill), "what has a fill lies outside of the arena"),
            ((self.offset or 0) >= 0, f"its offset {self.offset} is negative"),
            (
                self.fill is None or (self.dtype == "int8" and -128 <= self.fill <= 127),
                "a fill is an int8",
            ),
            (
                self.role is not Role.OUTPUT or view is None or view.invertible,
                f"it is a result; the view {view} is one of arguments",
            ),
            (
                len(self.value) == expected,
                f"its value has {len(self.value)} scalars; it must have {expected}",
            ),
            (_hold(integers, self.dtype), f"it has a value that no {self.dtype} is"),
        ):
            if not right:
                stated = f"{self.dtype}{list(self.shape)}, {self.role.value}"
                raise ProgramError(f"buffer {self.name} ({stated}): {reason}")

    @cached_property
    def packed_shape(self) -> tuple[int, ...]:
        """Shape in DRAM."""
        return self.layout.packed_shape(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Size in DRAM, in bytes."""
        return math.prod(self.packed_shape) * np.dtype(self.dtype).itemsize

    def constant_image(self) -> Array:
        """Return the DRAM image of a `CONSTANT`."""
        return self.pack(np.array(self.value, self.dtype).reshape(self.shape))

    def fill_image(self) -> Array:
        """Return the DRAM image of a filled buffer when the program is loaded."""
        return np.full(self.packed_shape, self.fill, self.dtype)

    def checked(self, array: npt.ArrayLike) -> Array:
        """Return a logical tensor as an array.

        Raises
        ------
        ShapeError
            If shape or dtype do not match the buffer.
        """
        with raising(ShapeError, f"{self.name} is not an array", ValueError):
            data: Array = np.asarray(array)
        if data.shape != self.shape or data.dtype != np.dtype(self.dtype):
            raise ShapeError(
                f"{self.name} has shape {data.shape} and dtype {data.dtype}; the program was "
                f"compiled for shape {self.shape} and dtype {self.dtype}"
            )
        return data

    def pack(self, array: npt.ArrayLike) -> Array:
        """Return the DRAM image of a logical tensor.

        Raises
        ------
        ShapeError
            If shape or dtype do not match the buffer.
        """
        return self.layout.pack(self.checked(array))

    def unpack(self, image: Bytes) -> Array:
        """Return the logical tensor of a DRAM image (its bytes)."""
        packed = image.view(self.dtype).reshape(self.packed_shape)
        return self.layout.unpack(packed, self.shape)


def _hold(scalars: tuple[int, ...], dtype: str) -> bool:
    numbers = np.iinfo(dtype) if scalars else None
    return numbers is None or (numbers.min <= min(scalars) and max(scalars) <= numbers.max)


@dataclass(frozen=True)
class OperatorRecord:
    """Metadata of one operator of a program, for display and reports.

    Attributes
    ----------
    name : str
        Its name in the program; may be empty.
    kind : str
        Class of the operator, for example ``"Conv2d"``.
    parameters, tiling : mapping
        JSON-like: the fields of the operator and of its tiling.
    macs : int
        Multiply-accumulates on logical shapes.
    spans : tuple of (int, int)
        Ranges (first, last + 1) of its instructions, ascending and disjoint, including auxiliary
        ones (loads of its micro-ops, relayed tokens).
    """

    name: str = ""
    kind: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tiling: Mapping[str, Any] = field(default_factory=dict)
    macs: int = 0
    spans: tuple[tuple[int, int], ...] = ()

    def check(self, count: int) -> None:
        """Check the spans against a program of `count` instructions.

        Raises
        ------
        ProgramError
            If a span is invalid; the message names the operator.
        """
        edges = [edge for span in self.spans for edge in span]
        if edges != sorted(set(edges)) or not all(0 <= edge <= count for edge in edges):
            raise ProgramError(
                f"operator {self.name!r} has the instructions {self.spans}; spans are "
                f"ascending, disjoint, and end at {count}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A complete instruction stream with everything needed to run it.

    Attributes
    ----------
    config : HardwareConfig
        The configuration it was compiled for; devices compare the fingerprint.
    instructions : ndarray of uint64, shape (n, 2)
        128-bit instructions, low half first.
    relocations : ndarray of int32, shape (n,)
        For each instruction the index in `buffers` that its ``dram_base`` is relative to, or
        `NO_BUFFER`, or `MICRO_OPS`.
    micro_ops : ndarray of uint32, shape (m,)
        The micro-op table in DRAM.
    buffers : tuple of Buffer
        All other DRAM buffers; inputs, parameters and outputs are the arguments of `run`, in order.
    metadata : mapping
        JSON-like description for display: capabilities, network.
    operators : tuple of OperatorRecord
        The operators that it computes, with the instructions of each.
    pinned : int
        Leading LOADs whose elements no other instruction writes: a run that follows another one on
        the same device, with the same parameters, may start behind them.
    left_out : int
        Instructions of which `steady` is the rest: it begins so far behind an aligned address,
        which matters to the timing model alone.

    Raises
    ------
    ProgramError
        If arrays have wrong types or shapes, two buffers have the same name, one has none, or a
        relocation or an operator's span is out of range.
    """

    config: HardwareConfig
    instructions: Words
    relocations: Int32Array
    micro_ops: Words32
    buffers: tuple[Buffer, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    operators: tuple[OperatorRecord, ...] = ()
    pinned: int = 0
    left_out: int = field(default=0, metadata={"saved": False})

    def __post_init__(self) -> None:
        count = len(self.instructions)
        if not 0 <= self.pinned <= count:
            raise ProgramError(
                f"{self.pinned} loads are pinned; the program has {count} instructions"
            )
        for name, dtype, shape in (
            ("instructions", np.uint64, (count, 2)),
            ("relocations", np.int32, (count,)),
            ("micro_ops", np.uint32, (len(self.micro_ops),)),
        ):
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != shape:
                raise ProgramError(
                    f"{name} is {array.dtype}{list(array.shape)}; "
                    f"a program of {count} instructions needs {np.dtype(dtype)}{list(shape)}"
                )
            array.setflags(write=False)
        names = [buffer.name for buffer in self.buffers]
        if len(set(names)) < len(names):
            raise ProgramError(f"two buffers have the same name: {', '.join(sorted(names))}")
        for name in filterfalse(is_name, names):
            raise ProgramError(f"a buffer is named {name!r:.80}; {NAME_RULE}")
        bad = np.flatnonzero(
            (self.relocations < MICRO_OPS) | (self.relocations >= len(self.buffers))
        )
        if bad.size:
            raise ProgramError(
                f"instruction {bad[0]} refers to buffer {self.relocations[bad[0]]}; "
                f"the program has {len(self.buffers)} buffers"
            )
        for operator in self.operators:
            operator.check(count)

    # ------------------------------------------------------------------- access

    def __repr__(self) -> str:
        names = ", ".join(record.name or record.kind for record in self.operators[:3])
        more = f" and {len(self.operators) - 3} more" if len(self.operators) > 3 else ""
        return (
            f"<Program{' of ' if names else ''}{names}{more} for {self.config.name}: {len(self)} "
            f"instructions, {len(self.micro_ops)} micro-ops, {self.dram_nbytes:,} bytes of DRAM>"
        )

    def __len__(self) -> int:
        return len(self.instructions)

    def __iter__(self) -> Iterator[Instruction]:
        """Iterate over the decoded instructions."""
        return iter(self.decode())

    def decode(self) -> list[Instruction]:
        """Return all instructions decoded.

        Raises
        ------
        EncodingError
            If a word is not an instruction.
        """
        return Encoding.of(self.config).decode_all(self.instructions)

    @property
    def arguments(self) -> tuple[Buffer, ...]:
        """The buffers that the host passes or receives, in order."""
        return tuple(b for b in self.buffers if b.role not in (Role.SCRATCH, Role.CONSTANT))

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """The buffers that the host writes before a run, in order."""
        return tuple(b for b in self.buffers if b.role in (Role.INPUT, Role.PARAMETER))

    @property
    def constants(self) -> tuple[Buffer, ...]:
        """The buffers that are written when the program is loaded."""
        return tuple(buffer for buffer in self.buffers if buffer.role is Role.CONSTANT)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The buffers that the host reads after a run, in order."""
        return tuple(buffer for buffer in self.buffers if buffer.role is Role.OUTPUT)

    @cached_property
    def arena_nbytes(self) -> int:
        """Bytes of the arena: up to the end of the last buffer in it."""
        ends = [b.offset + b.nbytes for b in self.buffers if b.offset is not None]
        return max(ends, default=0)

    @property
    def dram_nbytes(self) -> int:
        """Bytes of DRAM that the program occupies: instructions, micro-ops, buffers, the arena."""
        own = self.instructions.nbytes + len(self.micro_ops) * MICRO_OP_BYTES
        alone = sum(buffer.nbytes for buffer in self.buffers if buffer.offset is None)
        return own + alone + self.arena_nbytes

    @cached_property
    def steady(self) -> Program:
        """What a run executes whose weights are still on the chip, to count and to time it."""
        if not self.pinned:
            return self
        n = self.pinned
        operators = tuple(
            replace(o, spans=tuple((max(0, a - n), b - n) for a, b in o.spans if b > n))
            for o in self.operators
        )
        words, relocations = self.instructions[n:], self.relocations[n:]
        return replace(
            self,
            instructions=words,
            relocations=relocations,
            operators=operators,
            pinned=0,
            left_out=n,
        )

    # -------------------------------------- operations on programs; each in a separate file

    def disassemble(self) -> str:
        """Return the program as text, one instruction per line."""
        from vtaops.program.disassembly import disassemble

        return disassemble(self)

    def stats(self) -> Statistics:
        """Return the predicted counters of a run, without running.

        Raises
        ------
        ProgramError
            If a word is not an instruction.
        """
        self.decode()
        return count_instructions(self.config, self.instructions)

    @checked_call
    def cycles(self, timing: TimingParameters | None = None) -> int:
        """Return the cycles of a run as predicted by the timing model.

        Parameters
        ----------
        timing : TimingParameters, optional
            The machine; by default that of ``tsim``.

        Raises
        ------
        DeadlockError
            If the units deadlock.
        ProgramError
            If a word is not an instruction.
        """
        from vtaops.program.timing import simulate

        self.decode()
        return simulate(self, timing, events=False).cycles

    @checked_call
    def timeline(self, timing: TimingParameters | None = None) -> Timeline:
        """Return the activity of each unit over time, as predicted by the timing model."""
        from vtaops.program.timing import simulate

        self.decode()
        return simulate(self, timing)

    @checked_call
    def verify(self, capabilities: Capabilities | str | None = None) -> None:
        """Prove that the program is safe and deterministic on every device of its configuration.

        Parameters
        ----------
        capabilities : Capabilities or str, optional
            What the device can execute, or the name of it; by default everything.

        Raises
        ------
        VerificationError
            Naming the instruction and the rule that it breaks.
        ConfigError
            If there are no capabilities of that name.
        """
        from vtaops.program.verifier import verify

        verify(self, capabilities=find(capabilities or FULL))

    @checked_call
    def prove(
        self,
        *,
        against: Any = None,
        capabilities: Capabilities | str | None = None,
        seed: int | None = None,
    ) -> Proof:
        """Prove that the program computes its operator for all data and weights (`vtaops.prove`).

        Parameters
        ----------
        against : Operator, optional
            The specification; by default the operator in its record.
        capabilities : Capabilities or str, optional
            What the device can execute, for its verification; by default everything.
        seed : int, optional
            Seed of the random numbers.

        Raises
        ------
        NotEquivalent
            If it computes something else; includes a counterexample if one was found.
        VerificationError
            If it is not safe and deterministic.
        """
        from vtaops.proof import prove

        return prove(self, against=against, capabilities=capabilities, seed=seed)

    @checked_call
    def certified(self, proof: Proof) -> Program:
        """Return the program with the certificate of a proof in its metadata, under ``proof``.

        Raises
        ------
        ProgramError
            If something is unproven.
        """
        from vtaops.proof import certified

        return certified(self, proof)

    def _repr_html_(self) -> str:
        from vtaops.program.html import program_html

        return program_html(self)

    @checked_call
    def save(self, path: str | Path) -> None:
        """Write the program to a file."""
        from vtaops.program.file_format import save

        save(self, path)

    @staticmethod
    @checked_call
    def load(path: str | Path) -> Program:
        """Read a program from a file.

        Raises
        ------
        ProgramError
            If the file is not a program, or is of another version, truncated or corrupted.
        """
        from vtaops.program.file_format import load

        return load(path)

    @checked_call
    def run(self, device: Device | str, *arrays: npt.ArrayLike) -> Array | Any:
        """Run the program once and return its output, or a tuple if it has several.

        Parameters
        ----------
        device : Device or str
            Any device of the same configuration fingerprint, or the name of one (`open_device`).
        arrays : array_like
            One logical tensor for each of `inputs`, in order.

        Raises
        ------
        ShapeError
            If the arrays do not fit.
        ConfigError
            If the device has another configuration.
        DeviceError
            If the device fails.
        """
        from vtaops.runtime import LoadedProgram, open_device

        if isinstance(device, str):
            with closing(open_device(device, self.config)) as opened:
                return self.run(opened, *arrays)
        with LoadedProgram(self, device) as loaded:
            return loaded.run(*arrays)
