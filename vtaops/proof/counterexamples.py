"""Counterexamples: inputs on which fsim differs from the executor that defines the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vtaops.base.shapes import Array
from vtaops.machine.views import Plus
from vtaops.program import Program
from vtaops.proof.tasks import ProofTask
from vtaops.runtime import ResidentPrograms, open_device

TRIES = 40
"""Number of inputs to try."""


class Difference(NamedTuple):
    """Arrays by name, for which a program gives another result than the definition."""

    arrays: dict[str, Array]
    result: str
    element: tuple[int, ...]
    found: int
    wanted: int


class Examples:
    """Inputs of a task with the results of its executor, each computed once.

    Parameters
    ----------
    task : ProofTask
        The task; programs must have the buffers of its program.
    seed : int
        Seed of the inputs.
    """

    def __init__(self, task: ProofTask, seed: int) -> None:
        self._task, self._seed = task, seed
        self._known: dict[int, tuple[dict[str, Array], dict[str, Array]]] = {}

    def __getitem__(self, number: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return inputs and results, by name."""
        if number not in self._known:
            random = np.random.default_rng([self._seed, number])
            drawn = {name: draw(b, number, random) for name, b in self._task.tensors.items()}
            self._known[number] = drawn, self._task.executed(drawn)
        return self._known[number]

    def difference(self, program: Program, numbers: Iterable[int]) -> Difference | None:
        """Run a verified program on fsim with these inputs; return the first difference."""
        task = self._task
        with (
            closing(open_device("fsim", program.config)) as device,
            ResidentPrograms(device) as residents,
        ):
            for number in numbers:
                drawn, results = self[number]
                inputs = [argument(drawn[tensor]) for _, tensor, _, argument in task.inputs]
                made = residents.run(program, inputs, task.parameters)
                images = {
                    program.buffers.index(b): b.pack(a)
                    for b, a in zip(program.outputs, made, strict=True)
                }
                for name, wanted in results.items():
                    buffer, unpack = task.outputs[name]
                    result = unpack(images[buffer].reshape(-1))
                    differs = np.argwhere(wanted != result)
                    if len(differs):
                        at = tuple(differs[0].tolist())
                        return Difference(drawn, name, at, int(result[at]), int(wanted[at]))
        return None


def draw(buffer: Any, number: int, random: np.random.Generator) -> Array:
    """Return values for a buffer or tensor: all, extremes, few, or small ones."""
    limits = np.iinfo(buffer.dtype)
    shape, low, high = buffer.shape, int(limits.min), int(limits.max)
    if buffer.name.rpartition(":")[2] == "scales":
        scale = random.integers(1 << 15, 1 << 16, shape) | random.integers(14, 30, shape) << 16
        scales: Array = scale.astype(buffer.dtype)
        return scales
    view = getattr(buffer, "layout", None) and buffer.layout.view
    if isinstance(view, Plus):  # a bias that includes rounding must fit int32
        low, high = low - min(view.value, 0), high - max(view.value, 0)
    kinds: list[Callable[[], npt.NDArray[Any]]] = [
        lambda: random.integers(low, high + 1, shape),
        lambda: random.choice(np.array([low, high]), shape),
        lambda: random.integers(-3, 4, shape),
        lambda: random.choice(np.array([low, -1, 0, 1, high]), shape),
        lambda: random.integers(low, high + 1, shape) // 64,
        lambda: np.full(shape, random.choice(np.array([low, high, 1]))),
    ]
    drawn: Array = kinds[number % len(kinds)]().astype(buffer.dtype)
    return drawn
