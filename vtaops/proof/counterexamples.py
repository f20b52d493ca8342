"""Counterexamples: inputs on which fsim differs from the definition on integers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from vtaops.base.shapes import Array
from vtaops.machine.views import Plus
from vtaops.proof.integers import Integers
from vtaops.proof.tasks import ProofTask
from vtaops.proof.terms import Terms
from vtaops.runtime import ResidentPrograms, open_device

TRIES = 40
"""Number of inputs to try."""


def search(task: ProofTask, seed: int) -> tuple[dict[str, Array], str, tuple[int, ...]] | None:
    """Return arrays by name, the result and its first differing element; None if none is found."""
    random, fields, program = np.random.default_rng(seed), Integers(seed), task.program
    with (
        closing(open_device("fsim", program.config)) as device,
        ResidentPrograms(device) as residents,
    ):
        for number in range(TRIES):
            drawn = {name: draw(b, number, random) for name, b in task.tensors.items()}
            given = [argument(drawn[tensor]) for _, tensor, _, argument in task.inputs]
            made = residents.run(program, given, task.parameters)
            images = {
                program.buffers.index(b): b.pack(a)
                for b, a in zip(program.outputs, made, strict=True)
            }
            terms = {name: Terms(np.stack([a, a]).astype(float)) for name, a in drawn.items()}
            for name, wanted in task.define(fields, terms).items():
                buffer, unpack = task.outputs[name]
                differs = np.argwhere(wanted.value[0] != unpack(images[buffer].reshape(-1)))
                if len(differs):
                    return drawn, name, tuple(differs[0].tolist())
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
