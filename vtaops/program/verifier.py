"""The verifier: a proof, for one program, that every correct device runs it to the same result.

Owns the rules that make a program safe (`Rule`) and their proof. It works on the encoded words
alone, through `vtaops.isa`, and shares no code with the compiler that it checks.

A *correct device* has three units. Each executes its own instructions in program order, and each
instruction as the ISA defines it, as if its iterations ran one after the other. An instruction
takes its tokens before it starts and sends them after it has completed. Nothing else is promised:
units run at any speed; the stream is dispatched in program order into one command queue a unit, of
any depth; token queues hold at least `TOKEN_CAPACITY` tokens; SRAM, OUTPUT and SCRATCH buffers hold
anything at the start; the store unit reads either the accumulators or an output memory of its own
that only the ALU and accumulating GEMMs write.

**Theorem.** If `verify` returns, then on every correct device and under every interleaving the
program terminates, accesses nothing out of bounds, overflows no token queue, and leaves OUTPUT
buffers whose every byte is a function of the INPUT and PARAMETER buffers alone.

Proof sketch.

1. *Happens-before.* The k-th pop of a queue takes the token of the k-th push: each queue has one
   sender and one receiver, both in order. So "i happens before k" is the transitive closure of
   program order within a unit and of the pairs push - pop. It is the same under every
   interleaving, and a vector clock for each instruction states it exactly.
2. *Termination.* Every pop's push comes earlier in program order, so program order is a linear
   extension of happens-before. Suppose the device stands still; let i be the first instruction in
   program order that has not completed. All before it have, so no command queue is full when
   dispatch comes to i, whatever the depth of the queues: i was dispatched and is the next of its
   unit. The tokens that it waits for were sent by earlier instructions, and no token queue is ever
   too full to take them (3). So i runs: a contradiction. FINISH is last, so it is reached; it
   happens after every other instruction, so nothing still runs when it completes.
3. *Capacity.* Just after its k-th push a queue holds at most k tokens less the pops that happen
   before that push; an interleaving that delays everything else attains it.
4. *Determinism.* Every element has one writing unit (inputs and weights: load; accumulators:
   compute; DRAM: store). Take two instructions of different units that touch an element, one
   writing it, i earlier in program order. Then i happens before k. It suffices to compare k with
   the last writer of the element (when k reads) and with the last reader of each other unit (when
   k writes): the earlier ones of that unit precede it in program order. So every read sees the
   same write under every interleaving, and by induction along program order the same value. No
   read sees an element that nobody wrote, and every OUTPUT byte is written.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from vtaops.capabilities import FULL, Capabilities, Feature
from vtaops.config import MICRO_OP_BYTES, HardwareConfig, Memory
from vtaops.errors import EncodingError, VerificationError
from vtaops.isa import (
    Alu,
    AluOp,
    Encoding,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    Unit,
    array_to_words,
    disassemble,
    tokens_text,
)
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program, Role

TOKEN_CAPACITY = 255
"""Tokens that a queue holds on every known device: Chisel counts in 8 bits (reference 2.5)."""

PORTABLE_SHIFT = 15
"""Longest shift of one instruction where the ALU reads 5 signed bits of the immediate."""

DRAM_BYTES = 1 << 32
"""Bytes of DRAM that a device can address."""


class Rule(Enum):
    """What a program must obey; a `VerificationError` names the rule by its value."""

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
    """GEMM and ALU run at least one iteration of at least one micro-op."""
    RELOCATION = "relocation"
    """What moves data names a buffer it may access; nothing else names one."""
    DRAM_BOUNDS = "dram-bounds"
    """Every row lies inside its buffer, and all buffers fit the addresses of a device."""
    SRAM_BOUNDS = "sram-bounds"
    """Every element, padding included, lies inside its scratchpad."""
    UNDEFINED_SRAM = "undefined-sram"
    """No instruction reads a scratchpad element that no instruction wrote."""
    UNDEFINED_DRAM = "undefined-dram"
    """No LOAD reads an OUTPUT or SCRATCH element that was not stored before."""
    STALE_OUTPUT = "stale-output"
    """A stored element was last written by the ALU or by a GEMM that accumulates."""
    INCOMPLETE_OUTPUT = "incomplete-output"
    """Every byte of an OUTPUT buffer is stored."""
    TOKEN_ORDER = "token-order"
    """The token that an instruction waits for is sent by an earlier instruction."""
    TOKEN_BALANCE = "token-balance"
    """Every token that is sent is also taken."""
    TOKEN_CAPACITY = "token-capacity"
    """No interleaving leaves more tokens in a queue than it holds."""
    RACE = "race"
    """Conflicting accesses of different units are ordered by tokens."""
    CAPABILITY = "capability"
    """The device has every feature that the program uses."""
    COMPLETION = "completion"
    """FINISH happens after every other instruction."""


def verify(
    program: Program,
    *,
    token_capacity: int = TOKEN_CAPACITY,
    capabilities: Capabilities = FULL,
) -> None:
    """Prove that `program` is safe and deterministic (see the theorem at the top of this file).

    Parameters
    ----------
    program : Program
        The program; only its words, relocations, micro-ops and buffers count.
    token_capacity : int
        Tokens that each queue of the device can hold.
    capabilities : Capabilities
        What the device can execute.

    Raises
    ------
    VerificationError
        Naming an instruction that breaks a rule, its disassembly, and the `Rule`.
    """
    steps = _decode(program)
    for step in steps:
        _check_format(step)
        _check_capability(step, program.config, capabilities)
    _check_finish(steps)
    clocks = _happens_before(steps, token_capacity)
    machine = _Machine(program)
    for step, clock in zip(steps, clocks, strict=True):
        machine.execute(step, clock)
    machine.check_outputs()
    _check_completion(steps, clocks)


# ------------------------------------------------------------- one instruction: decode, format


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction under proof, with its place in the program."""

    index: int
    instruction: Instruction
    relocation: int
    unit: Unit

    @property
    def time(self) -> int:
        """Its place counted from 1, so that 0 can mean "never"."""
        return self.index + 1

    def pops(self) -> list[tuple[Unit, Unit]]:
        """Queues (sender, receiver) that it takes a token from."""
        i, unit = self.instruction, self.unit
        return [(n, unit) for n in _neighbours(unit, i.pop_prev, i.pop_next)]

    def pushes(self) -> list[tuple[Unit, Unit]]:
        """Queues (sender, receiver) that it sends a token to."""
        i, unit = self.instruction, self.unit
        return [(unit, n) for n in _neighbours(unit, i.push_prev, i.push_next)]

    def reject(self, rule: Rule, reason: str) -> NoReturn:
        """Raise the error that says why this instruction breaks `rule`."""
        text = " ".join([*disassemble(self.instruction).split(), tokens_text(self.instruction)])
        raise VerificationError(
            f"instruction {self.index} ({text.strip()}) breaks the rule {rule.value!r}: {reason}"
        )


def _neighbours(unit: Unit, previous: int, following: int) -> list[Unit]:
    chosen = []
    if previous:
        chosen.append(Unit(unit - 1))
    if following:
        chosen.append(Unit(unit + 1))
    return chosen


def _reject(rule: Rule, subject: str, reason: str) -> NoReturn:
    raise VerificationError(f"{subject} breaks the rule {rule.value!r}: {reason}")


def _decode(program: Program) -> list[_Step]:
    encoding = Encoding.of(program.config)
    steps = []
    relocations = program.relocations.tolist()
    for index, word in enumerate(array_to_words(program.instructions)):
        try:
            instruction = encoding.decode(word)
        except EncodingError as error:
            _reject(Rule.ENCODING, f"instruction {index}", str(error))
        step = _Step(index, instruction, relocations[index], instruction.unit)
        reserved = word ^ encoding.encode(instruction)
        if reserved:
            step.reject(Rule.ENCODING, f"word {word:032x} has reserved bits {reserved:#x} set")
        steps.append(step)
    _check_micro_ops(program.micro_ops, encoding)
    return steps


def _check_micro_ops(words: npt.NDArray[np.uint32], encoding: Encoding) -> None:
    canonical = encoding.encode_micro_ops(encoding.decode_micro_ops(words))
    bad = np.flatnonzero(canonical != words)
    if bad.size:
        word = int(words[bad[0]])
        _reject(Rule.ENCODING, f"micro-op {bad[0]}", f"word {word:08x} has reserved bits set")


def _check_finish(steps: list[_Step]) -> None:
    if not steps or not isinstance(steps[-1].instruction, Finish):
        last = f"it ends with {disassemble(steps[-1].instruction)!r}" if steps else "it is empty"
        _reject(Rule.FINISH, "the program", f"{last}; the last instruction must be FINISH")
    for step in steps[:-1]:
        if isinstance(step.instruction, Finish):
            step.reject(Rule.FINISH, f"only instruction {steps[-1].index}, the last, may be FINISH")


def _check_format(step: _Step) -> None:
    i = step.instruction
    if step.unit is Unit.LOAD and (i.pop_prev or i.push_prev):
        step.reject(Rule.NEIGHBOUR, "the load unit has no previous unit")
    if step.unit is Unit.STORE and (i.pop_next or i.push_next):
        step.reject(Rule.NEIGHBOUR, "the store unit has no next unit")
    if isinstance(i, Load | Store):
        if isinstance(i, Load) and i.memory == Memory.OUT:
            step.reject(Rule.MEMORY, "OUT cannot be loaded")
        if isinstance(i, Store) and i.memory != Memory.OUT:
            step.reject(Rule.MEMORY, f"only OUT can be stored, not {Memory(i.memory).name}")
        if i.is_nop:
            _check_nop(step, i)
        else:
            _check_shape(step, i)
    elif isinstance(i, Gemm | Alu):
        _check_loops(step, i)


def _check_nop(step: _Step, i: Load | Store) -> None:
    tokens_only = replace(
        type(i)(memory=i.memory),
        **{f.name: getattr(i, f.name) for f in fields(Instruction)},
    )
    if i != tokens_only:
        step.reject(Rule.NOP, "x_size is 0, so every field but memory and tokens must be 0")


def _check_shape(step: _Step, i: Load | Store) -> None:
    pads = (i.y_pad_top, i.y_pad_bottom, i.x_pad_left, i.x_pad_right)
    if i.sram_size == 0:
        step.reject(Rule.MEMORY, "it has no row; y_size must be at least 1")
    if isinstance(i, Store):
        if any(pads):
            step.reject(Rule.MEMORY, "a STORE cannot pad")
        if i.y_size > 1 and i.x_stride < i.x_size:
            step.reject(
                Rule.MEMORY,
                f"rows of {i.x_size} elements overlap in DRAM; x_stride is {i.x_stride}",
            )
    elif i.memory == Memory.UOP and (i.y_size != 1 or any(pads)):
        step.reject(Rule.MEMORY, "micro-ops are loaded in one row without padding")


def _check_loops(step: _Step, i: Gemm | Alu) -> None:
    if not (i.iter_out and i.iter_in):
        step.reject(Rule.LOOPS, "a hardware loop has 0 iterations; give at least 1")
    if i.uop_begin >= i.uop_end:
        step.reject(Rule.LOOPS, "the micro-op range is empty; uop_begin must be below uop_end")
    if isinstance(i, Alu) and i.reset:
        step.reject(Rule.ENCODING, "the reset bit has no meaning for the ALU; it must be 0")


def _check_capability(step: _Step, config: HardwareConfig, capabilities: Capabilities) -> None:
    i = step.instruction
    for feature in _features(i, config):
        if not capabilities.has(feature):
            step.reject(Rule.CAPABILITY, f"{capabilities.name} lacks {feature.value!r}")
    depth = capabilities.micro_op_depth(config)
    if isinstance(i, Gemm | Alu) and config.uop.depth >= i.uop_end > depth:
        step.reject(
            Rule.CAPABILITY, f"{capabilities.name} holds {depth} micro-ops; it ends at {i.uop_end}"
        )


def _features(i: Instruction, config: HardwareConfig) -> Iterator[Feature]:
    """Iterate over the features that an instruction needs."""
    if isinstance(i, Load):
        pads = (i.y_pad_top, i.y_pad_bottom, i.x_pad_left, i.x_pad_right)
        if i.memory == Memory.WGT and any(pads):
            yield Feature.WEIGHT_PADDING
        if i.memory == Memory.ACC and any(pads):
            yield Feature.ACC_PADDING
        if i.memory == Memory.ACC_8BIT:
            yield Feature.ACC_8BIT
    if isinstance(i, Alu):
        if config.batch > 1:
            yield Feature.ALU_BATCH
        if i.alu_op == AluOp.MUL:
            yield Feature.MUL
        if i.alu_op == AluOp.SHR and not i.use_imm:
            yield Feature.TENSOR_SHIFT
        if i.alu_op == AluOp.SHR and i.use_imm and abs(i.imm) > PORTABLE_SHIFT:
            yield Feature.LONG_SHIFT


# ------------------------------------------------------------------ tokens: happens-before


Clock = tuple[int, int, int]
"""For each unit the `_Step.time` of its last instruction that has completed for certain."""


class _TokenQueue:
    """The tokens from one unit to a neighbour, in program order."""

    def __init__(self, sender: Unit, receiver: Unit) -> None:
        self.name = f"{sender.name.lower()} -> {receiver.name.lower()}"
        self.receiver = receiver
        self.pushes: list[_Step] = []
        self.pop_times: list[int] = []

    def pop(self, step: _Step) -> _Step:
        """Take a token; return the instruction that sends it."""
        place = len(self.pop_times)
        if place == len(self.pushes):
            step.reject(
                Rule.TOKEN_ORDER,
                f"it takes token {place + 1} of the queue {self.name}, "
                f"but earlier instructions send {place}",
            )
        self.pop_times.append(step.time)
        return self.pushes[place]

    def push(self, step: _Step, clock: Clock, capacity: int) -> None:
        """Send a token; `clock` is that of the sender."""
        self.pushes.append(step)
        taken = bisect_right(self.pop_times, clock[self.receiver])
        outstanding = len(self.pushes) - taken
        if outstanding > capacity:
            step.reject(
                Rule.TOKEN_CAPACITY,
                f"the queue {self.name} can hold {outstanding} tokens after it; "
                f"its capacity is {capacity}",
            )

    def check_empty(self) -> None:
        left = self.pushes[len(self.pop_times) :]
        if left:
            left[0].reject(
                Rule.TOKEN_BALANCE,
                f"{len(left)} tokens of the queue {self.name} are never taken; this is the first",
            )


def _happens_before(steps: list[_Step], capacity: int) -> list[Clock]:
    """Return the clock of every instruction at its start, after checking the token rules."""
    queues = {
        (sender, receiver): _TokenQueue(sender, receiver)
        for sender, receiver in (
            (Unit.LOAD, Unit.COMPUTE),
            (Unit.COMPUTE, Unit.LOAD),
            (Unit.COMPUTE, Unit.STORE),
            (Unit.STORE, Unit.COMPUTE),
        )
    }
    clocks: list[Clock] = []
    known: dict[Unit, Clock] = dict.fromkeys(Unit, (0, 0, 0))  # at the completion of its last one
    for step in steps:
        clock = known[step.unit]
        for queue in step.pops():
            sender = queues[queue].pop(step)
            clock = _join(clock, _advance(clocks[sender.index], sender))
        clocks.append(clock)
        for queue in step.pushes():
            queues[queue].push(step, clock, capacity)
        known[step.unit] = _advance(clock, step)
    for pending in queues.values():
        pending.check_empty()
    return clocks


def _join(a: Clock, b: Clock) -> Clock:
    return (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


def _advance(clock: Clock, step: _Step) -> Clock:
    """Return the clock when `step` has completed, given the clock at its start."""
    times = [*clock]
    times[step.unit] = step.time
    return (times[0], times[1], times[2])


def _check_completion(steps: list[_Step], clocks: list[Clock]) -> None:
    finish, clock = steps[-1], clocks[-1]
    for step in reversed(steps[:-1]):
        if step.time > clock[step.unit]:
            finish.reject(
                Rule.COMPLETION,
                f"it does not wait for instruction {step.index} of the "
                f"{step.unit.name.lower()} unit",
            )


# ---------------------------------------------------------------- memories: bounds and races


Elements = slice | npt.NDArray[np.intp]
"""A non-empty set of elements of a memory: a range, or their indices in ascending order."""

Times = npt.NDArray[np.int32]


class _History:
    """For each element of one memory: when it was last written, and last read by each other unit.

    Only one unit writes a memory; what that unit reads itself needs no entry. Untouched pages of
    the arrays cost nothing (the operating system provides zeros on first use).
    """

    def __init__(self, name: str, size: int, writer: Unit, readers: tuple[Unit, ...]) -> None:
        self.name = name
        self.writer = writer
        self.written: Times = np.zeros(size, np.int32)
        self.read_by: dict[Unit, Times] = {unit: np.zeros(size, np.int32) for unit in readers}

    def read(self, step: _Step, clock: Clock, elements: Elements, undefined: Rule) -> None:
        written = self.written[elements]
        if not written.all():
            element = _element(elements, int(np.argmin(written)))
            step.reject(undefined, f"element {element} of {self.name} was never written")
        if step.unit is not self.writer:
            self._check_order(step, clock, elements, self.writer, written, "writes")
            self.read_by[step.unit][elements] = step.time

    def write(self, step: _Step, clock: Clock, elements: Elements) -> None:
        for unit, times in self.read_by.items():
            self._check_order(step, clock, elements, unit, times[elements], "reads")
        self.written[elements] = step.time

    def _check_order(
        self, step: _Step, clock: Clock, elements: Elements, unit: Unit, times: Times, verb: str
    ) -> None:
        place = int(times.argmax())
        latest = int(times[place])
        if latest > clock[unit]:
            step.reject(
                Rule.RACE,
                f"instruction {latest - 1} of the {unit.name.lower()} unit {verb} element "
                f"{_element(elements, place)} of {self.name}, and no token orders the two",
            )


def _element(elements: Elements, place: int) -> int:
    return elements.start + place if isinstance(elements, slice) else int(elements[place])


@dataclass(frozen=True, slots=True)
class _Operands:
    """Elements that a GEMM or ALU instruction touches."""

    dst: Elements
    src: Elements | None
    wgt: Elements | None


class _Machine:
    """Memories of a device, as far as the rules need them; executes instructions abstractly."""

    def __init__(self, program: Program) -> None:
        config = program.config
        if program.dram_nbytes > DRAM_BYTES:
            _reject(
                Rule.DRAM_BOUNDS,
                "the program",
                f"it needs {program.dram_nbytes} bytes of DRAM; a device addresses {DRAM_BYTES}",
            )
        self.program = program
        self.config: HardwareConfig = config
        self.encoding = Encoding.of(config)
        compute, store = Unit.COMPUTE, Unit.STORE
        self.inp = _History("INP", config.inp.depth, Unit.LOAD, (compute,))
        self.wgt = _History("WGT", config.wgt.depth, Unit.LOAD, (compute,))
        self.acc = _History("ACC", config.acc.depth, compute, (store,))
        self.output_is_current = np.zeros(config.acc.depth, np.bool_)
        self.uop_sram = np.full(config.uop.depth, -1, np.int64)  # -1: never written
        self.operands: dict[tuple[object, ...], _Operands] = {}
        self.granule = min(config.dram_element_bytes(m) for m in Memory if m != Memory.UOP)
        self.dram = {
            index: _History(
                f"buffer {buffer.name!r} (elements of {self.granule} bytes)",
                -(-buffer.nbytes // self.granule),
                store,
                (Unit.LOAD, compute),
            )
            for index, buffer in enumerate(program.buffers)
            if buffer.role in (Role.OUTPUT, Role.SCRATCH)
        }

    def execute(self, step: _Step, clock: Clock) -> None:
        """Check all accesses of one instruction and record them."""
        i = step.instruction
        moves_data = isinstance(i, Load | Store) and not i.is_nop
        if not moves_data and step.relocation != NO_BUFFER:
            step.reject(Rule.RELOCATION, "it moves no data, so it must not name a buffer")
        if isinstance(i, Load) and moves_data:
            self._load(step, clock, i)
        elif isinstance(i, Store) and moves_data:
            self._store(step, clock, i)
        elif isinstance(i, Gemm):
            self._gemm(step, clock, i)
        elif isinstance(i, Alu):
            self._alu(step, clock, i)

    def check_outputs(self) -> None:
        """Check that every OUTPUT buffer is stored as a whole."""
        for index, history in self.dram.items():
            buffer = self.program.buffers[index]
            missing = np.flatnonzero(history.written == 0)
            if buffer.role is Role.OUTPUT and missing.size:
                _reject(
                    Rule.INCOMPLETE_OUTPUT,
                    "the program",
                    f"{missing.size} elements of {history.name} are never stored, "
                    f"the first is {missing[0]}",
                )

    # ------------------------------------------------------------ LOAD and STORE

    def _load(self, step: _Step, clock: Clock, i: Load) -> None:
        sram = self._sram_range(step, i)
        source = self._dram_source(step, i)
        if source is not None and i.y_size:
            elements = self._dram_elements(i)
            source.read(step, clock, elements, Rule.UNDEFINED_DRAM)
        if i.memory == Memory.UOP:
            self.uop_sram[sram] = self.program.micro_ops[i.dram_base : i.dram_base + i.x_size]
        elif i.memory == Memory.INP:
            self.inp.write(step, clock, sram)
        elif i.memory == Memory.WGT:
            self.wgt.write(step, clock, sram)
        else:
            self.acc.write(step, clock, sram)
            self.output_is_current[sram] = False

    def _store(self, step: _Step, clock: Clock, i: Store) -> None:
        sram = self._sram_range(step, i)
        target = self._dram_target(step, i)
        self.acc.read(step, clock, sram, Rule.UNDEFINED_SRAM)
        current = self.output_is_current[sram]
        if not current.all():
            element = _element(sram, int(np.argmin(current)))
            step.reject(
                Rule.STALE_OUTPUT,
                f"element {element} was last written by a LOAD or a reset; only the ALU and "
                f"accumulating GEMMs write the output memory",
            )
        target.write(step, clock, self._dram_elements(i))

    def _sram_range(self, step: _Step, i: Load | Store) -> slice:
        pad = self.config.scratchpad(Memory(i.memory))
        end = i.sram_base + i.sram_size
        if end > pad.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it touches elements {i.sram_base}..{end - 1} of {pad.memory.name}, "
                f"which has {pad.depth}",
            )
        return slice(i.sram_base, end)

    def _dram_source(self, step: _Step, i: Load) -> _History | None:
        """Check where a LOAD reads; return the history of the buffer, if instructions write it."""
        if (i.memory == Memory.UOP) != (step.relocation == MICRO_OPS):
            step.reject(Rule.RELOCATION, "LOAD UOP, and no other, reads the micro-op table")
        if step.relocation == MICRO_OPS:
            table = len(self.program.micro_ops) * MICRO_OP_BYTES
            self._check_dram_bounds(step, i, "the micro-op table", table)
            return None
        self._check_buffer(step, i)
        return self.dram.get(step.relocation)

    def _dram_target(self, step: _Step, i: Store) -> _History:
        if step.relocation == MICRO_OPS:
            step.reject(Rule.RELOCATION, "the micro-op table is read-only")
        self._check_buffer(step, i)
        if step.relocation not in self.dram:
            buffer = self.program.buffers[step.relocation]
            step.reject(
                Rule.RELOCATION,
                f"it stores to {buffer.name!r}, which is {buffer.role.name}; "
                f"only OUTPUT and SCRATCH buffers are written",
            )
        return self.dram[step.relocation]

    def _check_buffer(self, step: _Step, i: Load | Store) -> None:
        if step.relocation == NO_BUFFER:
            if i.y_size == 0:
                return  # writes padding only
            step.reject(Rule.RELOCATION, "it moves data, so it must name a buffer")
        buffer = self.program.buffers[step.relocation]
        self._check_dram_bounds(step, i, f"buffer {buffer.name!r}", buffer.nbytes)

    def _check_dram_bounds(self, step: _Step, i: Load | Store, name: str, nbytes: int) -> None:
        end = i.dram_base  # of a LOAD of padding alone: its address must still be one of the buffer
        if i.y_size:
            end += (i.y_size - 1) * i.x_stride + i.x_size
        end *= self.config.dram_element_bytes(Memory(i.memory))
        if end > nbytes:
            step.reject(
                Rule.DRAM_BOUNDS, f"it reaches byte {end - 1} of {name}, which has {nbytes}"
            )

    def _dram_elements(self, i: Load | Store) -> Elements:
        """Return the granules of DRAM that a LOAD or STORE touches."""
        scale = self.config.dram_element_bytes(Memory(i.memory)) // self.granule
        first, row, stride = i.dram_base * scale, i.x_size * scale, i.x_stride * scale
        if i.y_size == 1 or stride == row:
            return slice(first, first + i.y_size * row)
        starts = first + np.arange(i.y_size, dtype=np.intp) * stride
        return (starts[:, np.newaxis] + np.arange(row, dtype=np.intp)).reshape(-1)

    # -------------------------------------------------------------- GEMM and ALU

    def _gemm(self, step: _Step, clock: Clock, i: Gemm) -> None:
        operands = self._operands(step, i)
        if operands.src is not None and operands.wgt is not None:
            self.inp.read(step, clock, operands.src, Rule.UNDEFINED_SRAM)
            self.wgt.read(step, clock, operands.wgt, Rule.UNDEFINED_SRAM)
            self.acc.read(step, clock, operands.dst, Rule.UNDEFINED_SRAM)
        self.acc.write(step, clock, operands.dst)
        self.output_is_current[operands.dst] = not i.reset

    def _alu(self, step: _Step, clock: Clock, i: Alu) -> None:
        operands = self._operands(step, i)
        if operands.src is not None:
            self.acc.read(step, clock, operands.src, Rule.UNDEFINED_SRAM)
        self.acc.read(step, clock, operands.dst, Rule.UNDEFINED_SRAM)
        self.acc.write(step, clock, operands.dst)
        self.output_is_current[operands.dst] = True

    def _operands(self, step: _Step, i: Gemm | Alu) -> _Operands:
        """Return the elements that an instruction touches; computed once for equal loops."""
        if i.uop_end > self.config.uop.depth:
            step.reject(
                Rule.SRAM_BOUNDS,
                f"it executes micro-op {i.uop_end - 1}; UOP has {self.config.uop.depth} elements",
            )
        words = self.uop_sram[i.uop_begin : i.uop_end]
        if words.min() < 0:
            element = i.uop_begin + int(np.argmin(words))
            step.reject(Rule.UNDEFINED_SRAM, f"element {element} of UOP was never written")
        key = (_without_tokens(i), words.tobytes())
        if key not in self.operands:
            self.operands[key] = self._compute_operands(step, i, words)
        return self.operands[key]

    def _compute_operands(
        self, step: _Step, i: Gemm | Alu, words: npt.NDArray[np.int64]
    ) -> _Operands:
        dst, src, wgt = self.encoding.decode_micro_ops(words).T
        loops = _Loops(step, i.iter_out, i.iter_in)
        config = self.config
        touched = loops.touched("ACC", config.acc.depth, dst, i.dst_factor_out, i.dst_factor_in)
        if isinstance(i, Alu):
            if i.use_imm:
                return _Operands(touched, None, None)
            source = loops.touched("ACC", config.acc.depth, src, i.src_factor_out, i.src_factor_in)
            return _Operands(touched, source, None)
        if i.reset:
            return _Operands(touched, None, None)
        return _Operands(
            touched,
            loops.touched("INP", config.inp.depth, src, i.src_factor_out, i.src_factor_in),
            loops.touched("WGT", config.wgt.depth, wgt, i.wgt_factor_out, i.wgt_factor_in),
        )


def _without_tokens(i: Gemm | Alu) -> Gemm | Alu:
    return replace(i, pop_prev=0, pop_next=0, push_prev=0, push_next=0)


@dataclass(frozen=True, slots=True)
class _Loops:
    """The two hardware loops of a GEMM or ALU instruction."""

    step: _Step
    iter_out: int
    iter_in: int

    def touched(
        self,
        name: str,
        depth: int,
        column: npt.NDArray[np.int64],
        factor_out: int,
        factor_in: int,
    ) -> Elements:
        """Return the elements that one micro-op column reaches in all iterations.

        The greatest index is that of the greatest micro-op in the last iterations, so bounds are
        checked before any set is built; the set then costs O(depth log iterations), however long
        the loops are.
        """
        greatest = (
            int(column.max()) + (self.iter_out - 1) * factor_out + (self.iter_in - 1) * factor_in
        )
        if greatest >= depth:
            self.step.reject(
                Rule.SRAM_BOUNDS, f"it touches element {greatest} of {name}, which has {depth}"
            )
        mask = np.zeros(depth, np.bool_)
        mask[column] = True
        _repeat(mask, self.iter_in, factor_in)
        _repeat(mask, self.iter_out, factor_out)
        elements = np.flatnonzero(mask)
        first, last = int(elements[0]), int(elements[-1])
        return slice(first, last + 1) if last - first + 1 == len(elements) else elements


def _repeat(mask: npt.NDArray[np.bool_], count: int, distance: int) -> None:
    """Unite `mask` in place with its copies shifted by 1..count-1 times `distance`.

    Each pass doubles the number of copies.
    """
    copies = 1
    while distance and copies < count:
        added = min(copies, count - copies)
        shift = added * distance
        mask[shift:] |= mask[:-shift].copy()
        copies += added
