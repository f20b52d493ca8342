"""Mutations of finished programs, and a jury: what the verifier accepts runs to one result.

Takes compiled programs, changes one thing in each copy (a token flag, an address, a size, a loop, a
micro-op, an opcode, ...), and puts every mutant before the verifier. A mutant that it accepts runs
on the functional simulator under many seeds: each interleaves the units differently and fills
scratchpads, outputs and scratch buffers with other garbage. A *failure* is an accepted mutant that
a seed brings to a device error or to another content of the output buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt

import vtaops
from trials.campaign import Campaign, Result
from trials.linked_resnet18 import linked_resnet18
from trials.random_cases import with_needs
from trials.random_graphs import random_graph
from vtaops.base.errors import VTAError
from vtaops.board.random_programs import random_program
from vtaops.compiler.driver import emit_operator
from vtaops.graph import Dense, Graph, LookupTable, Requantization
from vtaops.lowering import BufferSlice, PlacedFragment, Strides, link
from vtaops.machine.config import MICRO_OP_BYTES, Extension
from vtaops.machine.isa import Encoding, Instruction, MicroOp, Unit, array_to_words, words_to_array
from vtaops.network.placement import pack_side_by_side
from vtaops.program import MICRO_OPS, Buffer, Program, Role
from vtaops.runtime.executor import relocate
from vtaops.runtime.fsim import Fsim
from vtaops.schedule.grouping import fused_tilings

FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next")
FIELDS = {
    "token flag": FLAGS,
    "memory id": ("memory",),
    "SRAM address": ("sram_base",),
    "DRAM address": ("dram_base",),
    "size": ("x_size", "y_size"),
    "stride": ("x_stride",),
    "padding": ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right"),
    "loop factor": (
        "dst_factor_out", "dst_factor_in", "src_factor_out", "src_factor_in",
        "wgt_factor_out", "wgt_factor_in",
    ),
    "iterations": ("iter_out", "iter_in"),
    "micro-op range": ("uop_begin", "uop_end"),
    "operation": ("alu_op", "use_imm", "reset", "overwrite", "tiles", "forward", "nibbles"),
    "immediate": ("imm",),
    "post-processing": (
        "enable", "use_bias", "use_scale", "round_half", "multiplier", "shift", "zero_point", "low",
        "high", "row", "row_factor_out", "row_factor_in", "use_table", "table_index",
    ),
}  # fmt: skip
"""Kinds of mutations that change one field of an instruction."""

OTHER_KINDS = (
    "micro-op index", "relocation", "word bit", "removed", "repeated", "exchanged", "moved token",
)  # fmt: skip
KINDS = (*FIELDS, *OTHER_KINDS)

REJECTED, SAME, OTHER, FAILED = "rejected", "same result", "other result", "failed"
VERDICTS = (REJECTED, SAME, OTHER, FAILED)

LONGEST_RUN = 3_000_000
"""Micro-op executions beyond which a mutant runs under two seeds only."""


@dataclass(frozen=True)
class Mutant:
    """A program with one change."""

    kind: str
    change: str
    program: Program


# ------------------------------------------------------------------------------- mutations


def mutate(program: Program, kind: str, rng: np.random.Generator) -> Mutant | None:
    """Return a copy of `program` with one random change of `kind`; None if it has no place."""
    if kind in FIELDS:
        return _change_field(program, kind, rng)
    change = {
        "micro-op index": _change_micro_op,
        "relocation": _change_relocation,
        "word bit": _flip_bit,
        "removed": _remove,
        "repeated": _repeat,
        "exchanged": _exchange,
        "moved token": _move_token,
    }[kind]
    return change(program, rng)


def _change_field(program: Program, kind: str, rng: np.random.Generator) -> Mutant | None:
    encoding = Encoding.of(program.config)
    places = [
        (index, instruction, slot)
        for index, instruction in enumerate(program)
        for slot in encoding.slots[type(instruction)]
        if slot.name in FIELDS[kind]
    ]
    if not places:
        return None
    index, instruction, slot = places[rng.integers(len(places))]
    old = getattr(instruction, slot.name)
    new = _other_value(old, slot.range, rng)
    word = encoding.encode(replace(instruction, **{slot.name: new}))
    change = f"instruction {index}: {slot.name} {old} -> {new}"
    return Mutant(kind, change, with_words(program, {index: word}))


def _other_value(old: int, allowed: range, rng: np.random.Generator) -> int:
    """Return a near value most of the time, an extreme or arbitrary one sometimes."""
    near = [old - 1, old + 1, old - 2, old + 2, 2 * old, old // 2, 0, 1]
    far = [allowed[0], allowed[-1], int(rng.integers(allowed[0], allowed[-1], endpoint=True))]
    pool = near if rng.random() < 0.8 else far
    values = [value for value in pool if value in allowed and value != old]
    return values[rng.integers(len(values))] if values else allowed[0] + (old == allowed[0])


def _change_micro_op(program: Program, rng: np.random.Generator) -> Mutant | None:
    if not len(program.micro_ops):
        return None
    encoding = Encoding.of(program.config)
    index = int(rng.integers(len(program.micro_ops)))
    column = int(rng.integers(3))
    table = encoding.decode_micro_ops(program.micro_ops)
    slot = encoding.slots[MicroOp][column]
    old = int(table[index, column])
    table[index, column] = _other_value(old, slot.range, rng)
    change = f"micro-op {index}: {slot.name} {old} -> {table[index, column]}"
    mutant = replace(program, micro_ops=encoding.encode_micro_ops(table))
    return Mutant("micro-op index", change, mutant)


def _change_relocation(program: Program, rng: np.random.Generator) -> Mutant:
    index = int(rng.integers(len(program)))
    relocations = program.relocations.copy()
    old = int(relocations[index])
    choices = [r for r in range(MICRO_OPS, len(program.buffers)) if r != old]
    relocations[index] = choices[rng.integers(len(choices))]
    change = f"instruction {index}: buffer {old} -> {relocations[index]}"
    return Mutant("relocation", change, replace(program, relocations=relocations))


def _flip_bit(program: Program, rng: np.random.Generator) -> Mutant:
    index, bit = int(rng.integers(len(program))), int(rng.integers(128))
    (word,) = array_to_words(program.instructions[index : index + 1])
    change = f"instruction {index}: bit {bit} flipped"
    return Mutant("word bit", change, with_words(program, {index: word ^ 1 << bit}))


def _remove(program: Program, rng: np.random.Generator) -> Mutant:
    index = int(rng.integers(len(program)))
    order = np.delete(np.arange(len(program)), index)
    return Mutant("removed", f"instruction {index} removed", _rearranged(program, order))


def _repeat(program: Program, rng: np.random.Generator) -> Mutant:
    index = int(rng.integers(len(program)))
    order = np.insert(np.arange(len(program)), index, index)
    return Mutant("repeated", f"instruction {index} repeated", _rearranged(program, order))


def _exchange(program: Program, rng: np.random.Generator) -> Mutant | None:
    if len(program) < 2:
        return None
    index = int(rng.integers(len(program) - 1))
    order = np.arange(len(program))
    order[[index, index + 1]] = order[[index + 1, index]]
    change = f"instructions {index} and {index + 1} exchanged"
    return Mutant("exchanged", change, _rearranged(program, order))


def _move_token(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Move a flag to a neighbouring instruction of the same unit: counts stay balanced."""
    instructions = program.decode()
    places = [(n, flag) for n, i in enumerate(instructions) for flag in FLAGS if getattr(i, flag)]
    if not places:
        return None
    index, flag = places[rng.integers(len(places))]
    stream = [n for n, i in enumerate(instructions) if i.unit == instructions[index].unit]
    place = stream.index(index) + (1 if rng.random() < 0.5 else -1)
    if not 0 <= place < len(stream) or getattr(instructions[stream[place]], flag):
        return None
    target = stream[place]
    changes = {index: {flag: 0}, target: {flag: 1}}
    change = f"{flag} moved from instruction {index} to {target}"
    return Mutant("moved token", change, with_fields(program, instructions, changes))


def with_words(program: Program, words: dict[int, int]) -> Program:
    """Return a copy with some instructions replaced by other 128-bit words."""
    changed = program.instructions.copy()
    changed[[*words]] = words_to_array([*words.values()])
    return replace(program, instructions=changed)


def with_fields(
    program: Program, instructions: list[Instruction], changes: dict[int, dict[str, int]]
) -> Program:
    """Return a copy with fields of some instructions changed; `instructions` is the decoding."""
    encoding = Encoding.of(program.config)
    return with_words(
        program,
        {n: encoding.encode(replace(instructions[n], **fields)) for n, fields in changes.items()},
    )


def _rearranged(program: Program, order: npt.NDArray[np.intp]) -> Program:
    return replace(
        program,
        instructions=program.instructions[order],
        relocations=program.relocations[order],
        operators=(),  # their instructions are others now
    )


def without_each_token(program: Program) -> Iterator[Mutant]:
    """Yield the program without one token, its push and its pop, for every token."""
    for queue in tokens(program):
        for remove in queue:
            yield remove()


def tokens(program: Program) -> list[list[Callable[[], Mutant]]]:
    """Return for each queue what makes, for each of its tokens, the program without it."""
    instructions = program.decode()

    def without(push: str, pop: str, a: int, b: int) -> Mutant:
        changes = {a: {push: 0}, b: {pop: 0}}
        change = f"{push} of instruction {a} and {pop} of {b} removed"
        return Mutant("token", change, with_fields(program, instructions, changes))

    queues = []
    for sender, receiver in ((0, 1), (1, 0), (1, 2), (2, 1)):
        push = "push_next" if sender < receiver else "push_prev"
        pop = "pop_prev" if sender < receiver else "pop_next"
        pushes = _places(instructions, Unit(sender), push)
        pops = _places(instructions, Unit(receiver), pop)
        pairs = zip(pushes, pops, strict=True)
        queues.append([partial(without, push, pop, a, b) for a, b in pairs])
    return queues


def _places(instructions: list[Instruction], unit: Unit, flag: str) -> list[int]:
    return [n for n, i in enumerate(instructions) if i.unit == unit and getattr(i, flag)]


# --------------------------------------------------------------------------------- verdicts


class Jury:
    """Devices with different seeds that run the accepted mutants of one program.

    Parameters
    ----------
    program : Program
        The program that is mutated.
    seeds : int
        Number of random interleavings.
    seed : int
        Seed of the inputs.
    """

    def __init__(self, program: Program, seeds: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.devices = [Fsim(program.config, seed=s) for s in range(seeds)]
        self.images = {
            buffer.name: buffer.pack(_random_array(buffer.shape, buffer.dtype, rng))
            for buffer in program.inputs
        }
        self.expected = self.outputs(program, self.devices[0], rng)

    def judge(self, mutant: Mutant) -> tuple[str, str]:
        """Return the verdict on a mutant, and the reason."""
        try:
            mutant.program.verify()
        except VTAError as error:
            return REJECTED, str(error)
        work = mutant.program.stats()
        long = work.gemm_counter + work.alu_counter > LONGEST_RUN
        garbage = np.random.default_rng(0)
        results = []
        for device in self.devices[: 2 if long else None]:
            try:
                results.append(self.outputs(mutant.program, device, garbage))
            except VTAError as error:
                return FAILED, f"{device!r}: {error}"
        if len({*results}) > 1:
            return FAILED, "the output depends on the seed"
        return (SAME, "") if results[0] == self.expected else (OTHER, "")

    def outputs(self, program: Program, device: Fsim, garbage: np.random.Generator) -> bytes:
        """Run a program and return its output buffers; what is undefined holds garbage before.

        A program with a filled buffer runs twice: the second run finds what the first one left.
        """
        buffers = {b.name: device.alloc(b.nbytes) for b in program.buffers if b.offset is None}
        arena = device.alloc(max(1, program.arena_nbytes))
        micro_ops = device.alloc(max(1, len(program.micro_ops)) * MICRO_OP_BYTES)
        code = device.alloc(program.instructions.nbytes)
        try:
            for buffer in program.buffers:
                if buffer.offset is None:
                    device.write(buffers[buffer.name], self._image(buffer, garbage))
            device.write(arena, np.frombuffer(garbage.bytes(program.arena_nbytes), np.uint8))
            device.write(micro_ops, program.micro_ops)
            addresses = [
                buffers[b.name].address if b.offset is None else arena.address + b.offset
                for b in program.buffers
            ]
            device.write(code, relocate(program, addresses, micro_ops.address))
            runs = 2 if any(buffer.fill is not None for buffer in program.buffers) else 1
            found = []
            for _ in range(runs):
                device.launch(code.address, len(program), timeout=60.0)
                found += [
                    device.read(buffers[buffer.name], buffer.nbytes).tobytes()
                    for buffer in program.buffers
                    if buffer.role is not Role.SCRATCH
                ]
            half = len(found) // runs
            if found[:half] != found[-half:]:
                return b"the runs differ: " + garbage.bytes(8)
            return b"".join(found[:half])
        finally:
            for place in (*buffers.values(), arena, micro_ops, code):
                device.free(place)

    def _image(self, buffer: Buffer, garbage: np.random.Generator) -> npt.NDArray[np.generic]:
        """Return what a buffer holds before a run: garbage, where nothing is promised."""
        if buffer.role is Role.CONSTANT:
            return buffer.constant_image()
        if buffer.fill is not None:
            return buffer.fill_image()
        junk = np.frombuffer(garbage.bytes(buffer.nbytes), np.uint8)
        return self.images.get(buffer.name, junk)


def _random_array(
    shape: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> npt.NDArray[np.generic]:
    return rng.integers(-128, 128, shape).astype(dtype)


def judge_random(
    program: Program, count: int, seeds: int, rng: np.random.Generator
) -> Iterator[tuple[Mutant, str, str]]:
    """Judge `count` random mutants of a program, all kinds in turn."""
    jury = Jury(program, seeds)
    for number in range(count):
        mutant = mutate(program, KINDS[number % len(KINDS)], rng)
        if mutant is not None:
            yield mutant, *jury.judge(mutant)


# ----------------------------------------------------------------------- programs to mutate


def compiled_programs() -> dict[str, Program]:
    """Compile operators with padding, strides, bias, both kinds of threads, four configurations."""
    conv, gemm, tiling = vtaops.Conv2d, vtaops.Gemm, vtaops.Tiling
    image = {"in_channels": 16, "out_channels": 16, "height": 9, "width": 7, "kernel": 3}
    wide, batched = "1x32_i8w8a32_15_15_20_17", "4x8_i8w8a32_15_16_16_18"
    cases = {
        "conv, channel threads": (
            conv(in_channels=32, out_channels=64, height=10, width=10, kernel=3, padding=1),
            "pynq",
            tiling(oc=32, ic=16, h=5, w=10, oc_threads=2),
        ),
        "conv, row threads, bias": (
            conv(**image, padding=1, bias=True), "tiny", tiling(oc=16, ic=8, h=2, w=7, h_threads=2),
        ),
        "conv, stride 2": (
            conv(**image, padding=(1, 0, 1, 2), strides=2), "tiny", None,
        ),
        "conv 1x1": (
            conv(in_channels=16, out_channels=16, height=8, width=8, kernel=1, strides=2),
            wide,
            None,
        ),
        "gemm, threads, bias": (
            gemm(m=8, n=32, k=32, bias=True), batched, tiling(oc=8, ic=8, h=2, oc_threads=2),
        ),
        "gemm": (gemm(m=5, n=20, k=40), "tiny", None),
        "conv with extensions": (
            conv(in_channels=32, out_channels=64, height=10, width=10, kernel=3, padding=1),
            "pynq_ext",
            tiling(oc=32, ic=16, h=5, w=10, oc_threads=2, padding="skip"),
        ),
        "depthwise with extensions": (
            conv(in_channels=32, out_channels=32, height=9, width=9, kernel=3, padding=1, groups=32,
                 strides=2),
            "pynq_ext",
            tiling(oc=16, ic=16, h=3, w=5, inp_tiles=2, padding="skip"),
        ),
        "max pool with extensions": (
            vtaops.MaxPool2d(channels=32, height=9, width=11, kernel=3, strides=2, padding=1),
            "pynq_ext", None,
        ),
        "gemm with extensions, bias": (gemm(m=5, n=20, k=40, bias=True), "pynq_ext", None),
    }  # fmt: skip
    return {
        name: vtaops.compile(op, config=config, tiling=blocks)
        for name, (op, config, blocks) in cases.items()
    }


def network_programs(name: str) -> tuple[Program, ...]:
    """Return the programs of a random network of batch 2 or 3, ``CONFIGURATION SEED``."""
    config, seed = name.split()
    free, batch = config == NETWORK_CONFIGS[-1], 2 + int(seed) % 2
    graph = random_graph(int(seed), free=free, batch=batch)
    return vtaops.compile_model(graph, config, prove=False).programs


def linked_programs() -> dict[str, Program]:
    """Link operators: blocks of ResNet-18 in the slots of an arena, a border, parts of a buffer."""
    pynq, extended = map(vtaops.HardwareConfig.load, ("pynq", "pynq_ext"))
    return {
        "linked: two blocks": linked_resnet18(16, pynq, first=2, last=6)[0],
        "linked: block with stride": linked_resnet18(17, pynq, first=6, last=9)[0],
        "linked: with extensions": linked_resnet18(16, extended, first=2, last=4)[0],
        "linked: border and parts": _bordered_image(),
        "linked: hand in hand": _hand_in_hand(extended),
        "linked: two tables": _two_tables(extended),
    }


def extension_programs(extension: str, count: int, seed: int) -> dict[str, Program]:
    """Return a compiled program that uses an extension, and so many random ones."""
    config = replace(vtaops.HardwareConfig.load("tiny"), extensions=with_needs(extension))
    channels = {"in_channels": 16, "out_channels": 16, "kernel": 3, "padding": 1}
    conv = vtaops.Conv2d(**channels, height=7, width=6, bias=True)
    make: dict[str, Callable[[], Program]] = {
        "depthwise": lambda: vtaops.compile(replace(conv, groups=16), config),
        "pool": lambda: vtaops.compile(
            vtaops.MaxPool2d(channels=16, height=7, width=6, kernel=3, padding=1), config
        ),
        "forward": lambda: _hand_in_hand(config, scales=False),
        "table": lambda: _two_tables(config),
    }
    programs = {"compiled": make.get(extension, lambda: vtaops.compile(conv, config))()}
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        programs[f"random {number}"] = random_program(config, rng, rounds=3)
    return programs


def _two_tables(config: vtaops.HardwareConfig) -> Program:
    """Compile a network of two operators that map their results by tables."""
    config = replace(config, extensions=tuple({*config.extensions, "table"}))
    graph, rng = Graph(), np.random.default_rng(0)
    value = graph.input("x", (4, 40))
    for _ in range(2):
        weight = rng.integers(-128, 128, (40, 40)).astype(np.int8)
        value = graph.add(Dense(weight, None, Requantization(40_001, 24)), value)
        value = graph.add(LookupTable(rng.integers(-128, 128, 256).astype(np.int8)), value)
    graph.output(value)
    return vtaops.compile_model(graph, config).programs[0]


def _hand_in_hand(config: vtaops.HardwareConfig, *, scales: bool = True) -> Program:
    """Link a convolution and a depthwise one that takes its inputs from the output memory."""
    ending = {"bias": True, "scales": True, "shift": 0} if scales else {"shift": 8}
    scaled = {**ending, "out_channels": 32}
    image = {"height": 7, "width": 7}
    ops = [
        vtaops.Conv2d(in_channels=16, kernel=1, **image, **scaled),
        vtaops.Conv2d(in_channels=32, groups=32, kernel=3, strides=2, padding=1, **image, **scaled),
    ]
    tilings = next(fused_tilings(ops, config, limit=1e9)).tilings
    found = pack_side_by_side(
        [
            emit_operator(op, config, tiling, rows=16)
            for op, tiling in zip(ops, tilings, strict=True)
        ]
    )
    assert found is not None
    first, second = found
    buffers = [replace(b, name=f"1:{b.name}") for b in first.buffers]
    passed = next(n for n, b in enumerate(first.buffers) if b.name == "res")
    buffers[passed] = replace(buffers[passed], role=Role.SCRATCH)
    places = []
    for buffer in second.buffers:
        places.append(passed if buffer.name == "data" else len(buffers))
        if buffer.name != "data":
            buffers.append(buffer)
    parts = [
        PlacedFragment(first, tuple(range(len(first.buffers)))),
        PlacedFragment(second, tuple(places)),
    ]
    whole = {range(2): 0}
    return link(parts, buffers, interleave=whole)


def _bordered_image() -> Program:
    """Two convolutions store side by side in a bordered image, which a third one loads whole."""
    stored = vtaops.Conv2d(
        in_channels=8,
        out_channels=8,
        height=5,
        width=4,
        kernel=3,
        padding=1,
        shift=9,
        clip=(-128, 127),
    )
    loaded = vtaops.Conv2d(
        in_channels=16, out_channels=8, height=7, width=6, kernel=3, shift=9, clip=(-128, 127)
    )
    last = emit_operator(loaded, "tiny")
    strides = {"res": Strides.of((1, 2, 7, 6), top=1, left=1)}
    first = emit_operator(stored, "tiny", strides=strides)
    image = replace(last.buffers[0], name="image", role=Role.SCRATCH, fill=-3)
    buffers = (
        first.buffers[0],
        replace(first.buffers[1], name="kernel 1"),
        replace(first.buffers[1], name="kernel 2"),
        replace(last.buffers[1], name="kernel 3"),
        image,
        last.buffers[2],
    )
    parts = (
        PlacedFragment(first, (0, 1, BufferSlice(4))),
        PlacedFragment(first, (0, 2, BufferSlice(4, image.nbytes // 2))),
        PlacedFragment(last, (4, 3, 5)),
    )
    return link(parts, buffers)


# --------------------------------------------------------------------------------- campaign

PORTION = 100
"""Random mutants of a program in one case."""
SEEDS = 8
"""Interleavings of each mutant that is accepted."""
RANDOM_PROGRAMS = 4
NETWORKS = 50
"""Networks for each portion that is wanted of other programs; each has one."""
NETWORK_CONFIGS = ("pynq", "tiny", "pynq_ext")


@cache
def programs(source: str) -> dict[str, Program]:
    """Return the programs of a source: ``compiled``, or the name of an extension."""
    if source == "compiled":
        return compiled_programs() | linked_programs()
    return extension_programs(source, RANDOM_PROGRAMS, seed=0)


def cases(count: int) -> list[str]:
    """Return the names of the cases: so many portions of each program, and one of its tokens."""
    sources = ("compiled", *(extension.value for extension in Extension))
    networks = [f"{NETWORK_CONFIGS[n % 3]} {n // 3}" for n in range(NETWORKS * count)]
    return [
        *(
            f"{source}/{name}/{portion}"
            for portion in ["tokens", *range(count)]
            for source in sources
            for name in programs(source)
        ),
        *(f"networks/{name}/{portion}" for portion in (0, "tokens") for name in networks),
    ]


def trial(case: str) -> Result:
    """Judge a portion of mutants of a program, or the program without each of its tokens.

    The compiler inserts no token without need, so all of its programs without one are refused.
    """
    source, name, portion = case.split("/")
    network = source == "networks"
    counts: dict[str, Counter[str]] = {}
    failed = []
    needed = portion == "tokens" and not name.startswith("random")
    for program in network_programs(name) if network else [programs(source)[name]]:
        for mutant, verdict, reason in judged(program, portion):
            row = mutant.kind if source == "compiled" else source
            counts.setdefault(row, Counter()).update(["mutants", verdict])
            if verdict == FAILED or (needed and verdict != REJECTED):
                failed.append(f"{mutant.kind}: {mutant.change}: {verdict} {reason}")
    return {"counts": {row: {**counted} for row, counted in counts.items()}, "failed": failed}


def judged(program: Program, portion: str) -> Iterator[tuple[Mutant, str, str]]:
    """Judge a numbered portion of random mutants of a program, or it without each token."""
    if portion != "tokens":
        yield from judge_random(program, PORTION, SEEDS, np.random.default_rng([int(portion), 1]))
        return
    jury = Jury(program, SEEDS)
    yield from ((m, *jury.judge(m)) for m in without_each_token(program))


CAMPAIGN = Campaign(cases, trial, count=10)
