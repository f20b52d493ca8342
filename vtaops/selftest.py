"""The acceptance test of a device: does it compute what NumPy computes, and how fast.

Works on any `Device`; meant for a board that has just been set up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig, Memory
from vtaops.errors import UnsupportedError, VTAError
from vtaops.isa import Alu, AluOp, Encoding, Finish, Instruction, Load, Store, words_to_array
from vtaops.layout import Layout
from vtaops.ops import Conv2d, Gemm, Operator
from vtaops.program import MICRO_OPS, NO_BUFFER, Buffer, Program, Role
from vtaops.reference import evaluate, random_arguments
from vtaops.runtime import Device, LoadedProgram
from vtaops.runtime.device import performance_of
from vtaops.session import Session
from vtaops.workloads import WORKLOADS, find

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
"""Milliseconds on a Pynq-Z1 at 100 MHz, of the logs that TVM's tophub published for VTA."""

MEMORY_BYTES = (1, 4096, 1 << 20, (3 << 20) + 5)
"""Sizes of the memory test."""


@dataclass(frozen=True)
class Check:
    """Outcome of one check.

    Attributes
    ----------
    name : str
        What was checked.
    passed : bool or None
        None: the device cannot do this, and says so.
    detail : str
        What went wrong, or a remark.
    """

    name: str
    passed: bool | None
    detail: str = ""


@dataclass(frozen=True)
class Throughput:
    """How fast a layer runs.

    Attributes
    ----------
    layer : str
        Its name.
    milliseconds : float
        Median of a launch, as the host sees it.
    gops : float
        Billions of multiplications and additions in a second.
    published_ms : float or None
        What TVM's logs say for a Pynq-Z1.
    cycles : int or None
        From launch to FINISH, where the logic counts them.
    utilization : float or None
        Share of them in which the compute unit issued micro-ops.
    """

    layer: str
    milliseconds: float
    gops: float
    published_ms: float | None
    cycles: int | None = None
    utilization: float | None = None


def run_checks(device: Device, *, random_programs: int = 20, seed: int = 0) -> Iterator[Check]:
    """Check a device against NumPy; yields outcomes as they come.

    Parameters
    ----------
    device : Device
        The device.
    random_programs : int
        Number of operators of random shape.
    seed : int
        Seed of all random numbers.
    """
    rng = np.random.default_rng(seed)
    session = Session(device)  # not closed: the device is the caller's
    for nbytes in MEMORY_BYTES:
        yield _check(f"memory, {nbytes} bytes", partial(_memory, device, nbytes, rng))
    for op in AluOp:
        for immediate in (True, False):
            name = f"ALU {op.name} with {'an immediate' if immediate else 'a tile'}"
            yield _check(name, partial(_alu, device, op, immediate, rng))
    plain = (Gemm(m=16, n=64, k=64, shift=4), Gemm(m=3, n=17, k=40))
    named: list[tuple[str, Operator]] = [(gemm.summary, gemm) for gemm in plain]
    named += [(w.name, w.op) for w in WORKLOADS.values() if _fits(w.name)]
    drawn = _random_operators(rng, random_programs)
    named += [(f"random {index}: {operator.summary}", operator) for index, operator in drawn]
    for name, operator in named:
        yield _check(name, partial(_operator, session, operator, rng))


def measure(device: Device, *, repeats: int = 5, seed: int = 0) -> Iterator[Throughput]:
    """Run the layers of ResNet-18 that VTA runs; yields figures as they come.

    A launch is timed from the host, so a remote device includes the network.
    """
    rng = np.random.default_rng(seed)
    session = Session(device)
    for name in PUBLISHED_MS:
        op = find(name).op
        program = session.program(op)
        with LoadedProgram(program, device) as loaded:
            loaded.run(*random_arguments(op, rng))
            device.reset_stats()
            loaded.launch()
            counted = performance_of(device)
            seconds = float(np.median([_timed(loaded.launch) for _ in range(repeats)]))
        gops = 2 * op.macs / seconds / 1e9
        yield Throughput(
            name,
            1e3 * seconds,
            gops,
            PUBLISHED_MS[name],
            counted.cycles if counted else None,
            counted.compute_utilization if counted else None,
        )


# ------------------------------------------------------------------------------ details


def _check(name: str, call: Callable[[], str]) -> Check:
    try:
        problem = call()
    except UnsupportedError as error:
        return Check(name, None, str(error))
    except VTAError as error:
        return Check(name, False, f"{type(error).__name__}: {error}")
    return Check(name, not problem, problem)


def _timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _fits(name: str) -> bool:
    return name in PUBLISHED_MS or name.startswith("tutorial.")


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


def _operator(session: Session, op: Operator, rng: np.random.Generator) -> str:
    arrays = random_arguments(op, rng)
    return _difference(session.run(op, *arrays), evaluate(op, arrays))


def _difference(found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> str:
    wrong = int(np.count_nonzero(found != expected))
    return f"{wrong} of {expected.size} values differ from NumPy" if wrong else ""


def _random_operators(rng: np.random.Generator, count: int) -> Iterator[tuple[int, Operator]]:
    for index in range(count):
        small = [int(v) for v in rng.integers(1, 48, 3)]
        shift = int(rng.integers(0, 12))
        if index % 2:
            yield index, Gemm(m=small[0], n=small[1], k=small[2], shift=shift)
            continue
        kernel = int(rng.integers(1, 4))
        yield (
            index,
            Conv2d(
                in_channels=small[0],
                out_channels=small[1],
                height=int(rng.integers(kernel, 20)),
                width=int(rng.integers(kernel, 20)),
                kernel=kernel,
                strides=int(rng.integers(1, 3)),
                padding=int(rng.integers(0, 2)),
                shift=shift,
            ),
        )


_TILES = 8  # that one ALU check works on


def _alu(device: Device, op: AluOp, immediate: bool, rng: np.random.Generator) -> str:
    """Apply one operation to accumulators; compare the low 8 bits that are stored."""
    config = device.config
    shape = (_TILES, *config.acc.shape)
    left = rng.integers(-(1 << 20), 1 << 20, shape).astype(np.int32)
    small = op is AluOp.SHR  # shifts that all hardware has
    right = rng.integers(0 if small else -100, 16 if small else 100, shape).astype(np.int32)
    value = 5 if small else -37
    if immediate:
        right = np.full(shape, value, np.int32)
    with LoadedProgram(_alu_program(config, op, value if immediate else None), device) as loaded:
        found = loaded.run(left, right)
    expected = {
        AluOp.MIN: np.minimum,
        AluOp.MAX: np.maximum,
        AluOp.ADD: np.add,
        AluOp.SHR: np.right_shift,
        AluOp.MUL: np.multiply,
    }[op](left, right)
    return _difference(found, expected.astype(np.int8))


def _alu_program(config: HardwareConfig, op: AluOp, immediate: int | None) -> Program:
    """Return ``out = op(left, right or immediate)`` on `_TILES` tiles."""
    rows, columns = config.acc.shape
    layout = Layout(f"TAB{rows}a{columns}b")
    shape = (_TILES, rows, columns)
    buffers = (
        Buffer("left", Role.INPUT, shape, "int32", layout),
        Buffer("right", Role.INPUT, shape, "int32", layout),
        Buffer("out", Role.OUTPUT, shape, "int8", layout),
    )
    block = {"y_size": 1, "x_size": _TILES, "x_stride": _TILES}
    operand = {"src_factor_in": 1} if immediate is None else {"use_imm": 1, "imm": immediate}
    steps: list[tuple[Instruction, int]] = [
        (Load(memory=Memory.UOP, y_size=1, x_size=1, x_stride=1), MICRO_OPS),
        (Load(memory=Memory.ACC, **block), 0),
        (Load(memory=Memory.ACC, sram_base=_TILES, **block), 1),
        (
            Alu(
                uop_end=1,
                iter_out=1,
                iter_in=_TILES,
                dst_factor_in=1,
                alu_op=op,
                push_next=1,
                **operand,
            ),
            NO_BUFFER,
        ),
        (Store(memory=Memory.OUT, pop_prev=1, push_prev=1, **block), 2),
        (Finish(pop_next=1), NO_BUFFER),
    ]
    encoding = Encoding.of(config)
    program = Program(
        config=config,
        instructions=words_to_array([encoding.encode(step) for step, _ in steps]),
        relocations=np.array([buffer for _, buffer in steps], np.int32),
        micro_ops=encoding.encode_micro_ops(np.array([[0, _TILES, 0]], np.int64)),
        buffers=buffers,
    )
    program.verify()
    return program
