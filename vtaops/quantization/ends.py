"""Results that few steps of a grid would leave to most of an output's values.

Logits of a detector from -400 to 3 have steps of 1.6, and what decides, their sign, lies within
two. Where half of the values that a last product writes would take fewer than `FEW` values, and
last products do little work, the host computes them from the integers before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vtaops.graph.onnx_files import Connections, initializers, producers
from vtaops.graph.probe import Probe
from vtaops.quantization.pairs import images
from vtaops.quantization.quality import FEW
from vtaops.quantization.relief import multiplications
from vtaops.quantization.scales import PRODUCTS, only_moved

if TYPE_CHECKING:
    from vtaops.quantization.pipeline import Quantization

MOST_WORK = 1 / 20
"""Largest part of all multiplications that last products may have."""

LEAST_VALUES = 64
"""Values of a sample from which half of them say something of most."""


def coarse_ends(done: Quantization) -> list[str]:
    """Return the last products half of whose values would take fewer than `FEW` values."""
    steps = _steps(done)
    coarse = [
        name for name, size in _middles(done, [*steps]).items() if size < FEW / 2 * steps[name]
    ]
    writers = producers(done.prepared)
    nodes = [writers[name].name for name in coarse]
    products = [n.name for n in done.prepared.graph.node if n.op_type in PRODUCTS]
    work = multiplications(done.prepared, products)
    small = sum(map(work.__getitem__, nodes)) <= MOST_WORK * sum(work.values())
    return nodes if small else []


def _steps(done: Quantization) -> dict[str, float]:
    """Return the scale of what last products write: outputs, or what is only moved to them."""
    found, written = images(done.prepared, done.model), producers(done.model)
    tensors, moved = Connections(done.prepared), only_moved(done.prepared)
    constants = initializers(done.model)

    def is_end(name: str) -> bool:
        behind = {reader.output[0] for reader in tensors.readers.get(name, [])}
        return name in tensors.outputs or (bool(behind) and behind <= moved.keys())

    products = [n.output[0] for n in done.prepared.graph.node if n.op_type in PRODUCTS]
    return {
        name: float(constants[written[found[name]].input[1]].max())
        for name in products
        if name in found and is_end(name)
    }


def _middles(done: Quantization, names: Sequence[str]) -> dict[str, float]:
    """Return the median magnitude of tensors on the calibration data."""
    runs = [*map(Probe(done.prepared, names, exact=False).run, done.samples)]
    values = {name: np.abs(np.stack([run[name] for run in runs])) for name in names}
    many = {name: each for name, each in values.items() if each[0].size >= LEAST_VALUES}
    return {name: float(np.median(each)) for name, each in many.items()}
