"""Acceptance test of a device: compares its results with NumPy's, and measures its speed.

Works on any `Device`; meant for a newly set-up board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from vtaops.base.errors import UnsupportedError, VTAError
from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.board.measure import measure
from vtaops.board.random_programs import random_inputs, random_program
from vtaops.machine.config import Memory
from vtaops.machine.isa import AluOp
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Program, ProgramBuilder, Role
from vtaops.program.interpreter import interpret
from vtaops.runtime import Device
from vtaops.runtime.device import capabilities_of
from vtaops.schedule.workloads import WORKLOADS, find
from vtaops.session import Session

PUBLISHED_MS = {
    "resnet18.C2": 5.699,
    "resnet18.C3": 2.966,
    "resnet18.C4": 1.349,
    "resnet18.C5": 5.183,
    "resnet18.C6": 2.669,
    "resnet18.C7": 1.029,
    "resnet18.C8": 4.934,
    "resnet18.C9": 3.994,
    "resnet18.C10": 1.081,
    "resnet18.C11": 7.348,
}
"""Milliseconds on a Pynq-Z1 at 100 MHz, from TVM's published tophub logs for VTA."""

MEMORY_BYTES = (1, 4096, 1 << 20, (3 << 20) + 5)
"""Sizes of the memory test."""

SMALL_MEMORY_BYTES = (1, 4096, (16 << 10) + 5)
"""The same for a board that is simulated at pin level (attribute ``simulated``)."""


PlannedCheck = tuple[str, Callable[[], str]]
"""Name and function of a check; the function returns an error text, or an empty string."""


@dataclass(frozen=True)
class Check:
    """Outcome of one check.

    Attributes
    ----------
    name : str
        Name of the check.
    passed : bool or None
        None: the device does not support it, and says so.
    detail : str
        The error, or a remark.
    """

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Throughput:
    """Measured speed of a layer.

    Attributes
    ----------
    layer : str
        Its name.
    milliseconds : float
        Median launch time, measured on the host.
    gops : float
        Billions of multiplications and additions per second.
    published_ms, published_gops : float
        The same from TVM's logs for a Pynq-Z1.
    cycles : int or None
        Cycles from launch to FINISH, if the logic counts them.
    utilization : float or None
        Fraction of them in which the compute unit issued micro-ops.
    """

    layer: str
    milliseconds: float
    gops: float
    published_ms: float
    published_gops: float
    cycles: int | None = None
    utilization: float | None = None


def planned_checks(
    device: Device,
    *,
    operators: int,
    programs: int,
    seed: int,
    layers: bool,
) -> list[PlannedCheck]:
    """Return the checks of a device in the order in which to `make` them.

    Parameters
    ----------
    device : Device
        The device.
    operators, programs : int
        Number of operators of random shape, and of random programs: arbitrary instructions, checked
        against `vtaops.program.interpreter`.
    seed : int
        Seed of all random numbers.
    layers : bool
        Whether to include the layers of ResNet-18 and of the tutorials.
    """
    rng = np.random.default_rng(seed)
    session = Session(device)  # not closed: the caller owns the device
    sizes = SMALL_MEMORY_BYTES if getattr(device, "simulated", False) else MEMORY_BYTES
    planned: list[PlannedCheck] = [
        (f"memory, {nbytes} bytes", partial(_memory, device, nbytes, rng)) for nbytes in sizes
    ]
    for op, immediate in product(AluOp, (True, False)):
        name = f"ALU {op.name} with {'an immediate' if immediate else 'a tile'}"
        planned.append((name, partial(_alu, device, op, immediate, rng)))
    planned += [
        (name, partial(_operator, session, operator, rng))
        for name, operator in _named_operators(operators, rng, layers)
    ]
    for index in range(programs):
        name = f"random program {index} of seed {seed}"
        planned.append((name, partial(_random_program, device, seed, index)))
    return planned


def _named_operators(
    count: int, rng: np.random.Generator, layers: bool
) -> Iterator[tuple[str, Operator]]:
    """Yield the operators to check: two products, layers, and random shapes."""
    for gemm in (Gemm(m=16, n=64, k=64, shift=4), Gemm(m=3, n=17, k=40)):
        yield gemm.summary, gemm
    for name, workload in WORKLOADS.items():
        if layers and (name in PUBLISHED_MS or name.startswith("tutorial.")):
            yield name, workload.op
    for number in range(count):
        op = _random_operator(rng)
        yield f"random operator {number}: {op.summary}", op


def make(planned: PlannedCheck) -> Check:
    """Run one check."""
    name, call = planned
    try:
        problem = call()
    except UnsupportedError as error:
        return Check(name, None, str(error))
    except VTAError as error:
        return Check(name, False, f"{type(error).__name__}: {error}")
    return Check(name, not problem, problem)


def measure_layers(device: Device) -> Iterator[Throughput]:
    """Run the layers of ResNet-18 that VTA runs; yield each layer's figures.

    A launch is timed from the host, so a remote device includes the network.
    """
    session = Session(device)
    for name in tracked("layers", [*PUBLISHED_MS]):
        op = find(name).op
        found = measure(session.program(op), device)
        counted, operations = found.performance, 2 * op.macs
        yield Throughput(
            name,
            1e3 * found.seconds,
            operations / found.seconds / 1e9,
            PUBLISHED_MS[name],
            operations / PUBLISHED_MS[name] / 1e6,
            counted.cycles if counted else None,
            counted.compute_utilization if counted else None,
        )


# ------------------------------------------------------------------------------ details


def _memory(device: Device, nbytes: int, rng: np.random.Generator) -> str:
    data = rng.integers(0, 256, nbytes, dtype=np.uint8)
    buffer = device.alloc(nbytes)
    try:
        if device.read(buffer, nbytes).any():
            return "new memory is not zero"
        device.write(buffer, data)
        return _difference(device.read(buffer, nbytes), data)
    finally:
        device.free(buffer)


def _random_program(device: Device, seed: int, index: int) -> str:
    rng = np.random.default_rng([seed, index])
    program = random_program(device.config, rng, capabilities_of(device))
    return _executed(device, program, random_inputs(program, rng))


def _executed(device: Device, program: Program, arrays: Sequence[Array]) -> str:
    return _difference(program.run(device, *arrays), interpret(program, *arrays))


def _operator(session: Session, op: Operator, rng: np.random.Generator) -> str:
    arrays = random_arguments(op, rng)
    return _difference(session.run(op, *arrays), evaluate(op, arrays))


def _difference(result: Array, expected: Array) -> str:
    """Describe how a result differs; empty if equal."""
    wrong = np.argwhere(result != expected)
    if not len(wrong):
        return ""
    place = tuple(map(int, wrong[0]))
    return (
        f"{len(wrong)} of {expected.size} values differ from NumPy, the first at {[*place]}: "
        f"{result[place]} in place of {expected[place]}"
    )


def _random_operator(rng: np.random.Generator) -> Operator:
    m, n, k, shift = rng.integers(1, [48, 48, 48, 12]).tolist()
    if rng.integers(2):
        return Gemm(m=m, n=n, k=k, shift=shift, clip=(0, 127))
    names = "kernel", "strides", "padding", "height", "width"
    drawn = rng.integers([1, 1, 0, 3, 3], [4, 3, 2, 20, 20]).tolist()
    window = dict(zip(names, drawn, strict=True))
    return Conv2d(in_channels=k, out_channels=n, shift=shift, clip=(0, 127), **window)


_TILES = 8  # that one ALU check works on


def _alu(device: Device, op: AluOp, immediate: bool, rng: np.random.Generator) -> str:
    """Apply one operation to accumulators; compare the low 8 bits that are stored."""
    shape = (_TILES, *device.config.acc.shape)
    second = (1, 16) if op is AluOp.SHR else (-100, 100)  # shifts that all hardware supports
    ranges = (-(1 << 20), 1 << 20), second
    left, right = (rng.integers(*ends, shape).astype(np.int32) for ends in ranges)
    b = ProgramBuilder(device.config)
    operands = [b.tiles(name, Role.INPUT, _TILES, Memory.ACC) for name in ("left", "right")]
    out = b.tiles("out", Role.OUTPUT, _TILES)
    uop = b.micro_ops((0, _TILES, 0))
    b.load_micro_ops(uop, 1)
    for number, operand in enumerate(operands):
        b.load(Memory.ACC, operand, number * _TILES, 0, _TILES)
    b.alu(op, 0, _TILES, int(right.flat[0]) if immediate else None, push_next=1)
    b.store(out, 0, 0, _TILES, pop_prev=1, push_prev=1)
    b.finish(pop_next=1)
    program = b.build()
    program.verify()
    return _executed(device, program, (left, right))
