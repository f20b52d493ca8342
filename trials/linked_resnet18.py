"""ResNet-18 as one Program: its operators emitted one by one, and linked.

The network of ``examples/resnet18.py`` runs in NumPy, and every operator is noted with the arrays
that it took and gave. Each becomes a part of the program; arrays between two operators share the
arena as those of compiled networks do (`vtaops.model.memory`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from examples import resnet18
from trials.campaign import Campaign, Result, result
from vtaops import HardwareConfig, Program, Tiling
from vtaops.compiler.driver import emit_operator
from vtaops.lowering import Fragment, PlacedFragment, link, whole
from vtaops.machine.capabilities import of_target
from vtaops.model.memory import Lifetime, place
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.program import Buffer, Role
from vtaops.runtime.fsim import Fsim
from vtaops.session.operators import OperatorMethods

Array = npt.NDArray[Any]

ALIGNMENT = 256
"""Bytes of the largest tile."""


@dataclass
class Step:
    """One operator of a network, with the arrays that it takes and the one that it gives."""

    op: Operator
    arrays: list[Array]
    result: Array


class Recorder(OperatorMethods):
    """The operators in NumPy, which notes each of them.

    Parameters
    ----------
    config : HardwareConfig
        For which hardware the network is to be linked.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self._config = config
        self.steps: list[Step] = []

    @property
    def config(self) -> HardwareConfig:
        return self._config

    def run(self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None) -> Array:
        given = [np.asarray(array) for array in arrays]
        result = evaluate(op, given)
        self.steps.append(Step(op, given, result))
        return result


class Linker:
    """Joins recorded operators to one program.

    Parameters
    ----------
    steps : list of Step
        The operators in order.
    config : HardwareConfig
        For which hardware.

    Attributes
    ----------
    arguments : list of ndarray
        The arrays that the program takes, in order.
    fragments : dict
        What each distinct operator emits.
    parts, buffers : list
        What `link` takes.
    """

    def __init__(self, steps: list[Step], config: HardwareConfig) -> None:
        self.steps = steps
        self.arguments: list[Array] = []
        self.fragments: dict[Operator, Fragment] = {}
        for step in steps:
            if step.op not in self.fragments:
                self.fragments[step.op] = emit_operator(step.op, config)
        self.buffers: list[Buffer] = []
        self._made: dict[int, int] = {}  # address of an array's data -> buffer
        self._last_use = {_address(a): n for n, step in enumerate(steps) for a in step.arrays}
        self._lifetimes: dict[str, Lifetime] = {}  # of the buffers in the arena
        self.parts = [self._part(number, step) for number, step in enumerate(steps)]
        offsets = place(self._lifetimes, ALIGNMENT)
        self.buffers = [
            replace(buffer, offset=offsets.get(buffer.name, buffer.offset))
            for buffer in self.buffers
        ]

    def _part(self, number: int, step: Step) -> PlacedFragment:
        fragment = self.fragments[step.op]
        given = iter(step.arrays)
        places = []
        for buffer in fragment.buffers:
            named = replace(buffer, name=f"{number}.{buffer.name}")
            if buffer.role is Role.CONSTANT:
                places.append(self._add(named))
            elif buffer.role is Role.OUTPUT:
                places.append(self._result(number, named, step.result))
            else:
                places.append(self._argument(named, next(given)))
        return PlacedFragment(fragment, tuple(places), f"{number}: {step.op.summary}")

    def _add(self, buffer: Buffer) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def _argument(self, buffer: Buffer, array: Array) -> int:
        if _address(array) in self._made:
            return self._made[_address(array)]
        self.arguments.append(array)
        return self._add(buffer)

    def _result(self, number: int, buffer: Buffer, array: Array) -> int:
        last = self._last_use.get(_address(array))
        if last is not None:
            self._lifetimes[buffer.name] = Lifetime(number, last, buffer.nbytes)
            buffer = replace(buffer, role=Role.SCRATCH, offset=0)  # placed when all are known
        self._made[_address(array)] = self._add(buffer)
        return self._made[_address(array)]


def _address(array: Array) -> int:
    """Return what an array and a reshaped view of it have in common."""
    return int(array.__array_interface__["data"][0])


def linked_resnet18(
    size: int, config: HardwareConfig, classes: int = 1000, first: int = 0, last: int | None = None
) -> tuple[Program, list[Array], Array, Linker]:
    """Return ResNet-18, or the steps `first` to `last` of it, as one program.

    Returns
    -------
    program : Program
        Not verified yet.
    arguments : list of ndarray
        What it takes.
    expected : ndarray
        What it gives, by NumPy.
    linker : Linker
        The fragments.
    """
    recorder = Recorder(config)
    image = np.random.default_rng(size).integers(-128, 128, (1, 3, size, size)).astype(np.int8)
    resnet18.resnet18(recorder, image, seed=size, classes=classes)
    steps = recorder.steps[first:last]
    linker = Linker(steps, config)
    metadata = {"network": "resnet18", "capabilities": of_target(config).name}
    return link(linker.parts, linker.buffers, metadata), linker.arguments, steps[-1].result, linker


SIZES = (32, 64, 96, 128, 160, 192, 224)


def trial(case: str) -> Result:
    """Link, verify and run ResNet-18 of images of one size; its cycles beside its operators'."""
    config = HardwareConfig.load("pynq")
    start = time.process_time()
    program, arrays, expected, linker = linked_resnet18(int(case), config)
    linked = time.process_time()
    program.verify(of_target(config))
    verified = time.process_time()
    alone = {op: link([whole(f)], f.buffers).cycles() for op, f in linker.fragments.items()}
    with Fsim(config) as device:
        equal = np.array_equal(program.run(device, *arrays), expected)
    return result(
        f"{case} x {case}",
        "" if equal else "differs from NumPy",
        operators=len(linker.parts),
        instructions=len(program),
        micro_ops=len(program.micro_ops),
        emit_link_s=round(linked - start, 2),
        verify_s=round(verified - linked, 2),
        arena_bytes=program.arena_nbytes,
        cycles=program.cycles(),
        cycles_alone=sum(alone[step.op] for step in linker.steps),
    )


CAMPAIGN = Campaign(lambda count: [str(size) for size in SIZES[-count:]], trial, count=1)
