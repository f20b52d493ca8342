"""Quantisation for a device: the ways that may suit it are tried, and the best one is taken.

A way is judged on calibration data that were held out, and by the time of a run. What takes twice
the time must be a bit better, which is 6 dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.progress import tracked
from vtaops.quantization.onnx_files import ModelProto
from vtaops.quantization.quality import compare
from vtaops.quantization.samples import Sample

HELD_OUT = 4
"""Every fourth sample judges; the others calibrate."""

MOST_DB = 80.0
"""An SQNR above this says no more: nothing differs on the few samples that judge."""

DB_PER_DOUBLING = 20 * math.log10(2)
"""A bit: what a way must win for each doubling of the time."""

LAUNCH_CYCLES = 20_000
"""What a launch costs beside its cycles: 0.2 ms of the host at 100 MHz."""

HOST_MACS_PER_CYCLE = 10
"""Multiply-accumulates of the host in a cycle of the array: 1 G/s, as of the Pynq's processor."""


@dataclass(frozen=True)
class Figures:
    """What a run of a quantised model takes: cycles and launches of VTA, and what the host does."""

    cycles: int
    launches: int
    host_values: int
    host_macs: int

    @property
    def time(self) -> float:
        """Cycles with what launches and the host take; an estimate."""
        host = self.host_values + self.host_macs / HOST_MACS_PER_CYCLE
        return self.cycles + self.launches * LAUNCH_CYCLES + host


class QuantizationTarget(Protocol):
    """What quantisation must know of a device."""

    scales: Any
    tables: bool

    def figures(self, model: ModelProto) -> dict[str, int]:
        """Return the fields of `Figures` for a model."""


@dataclass(frozen=True)
class Way:
    """How a model may be quantised: the options of `quantize` that are not left to it."""

    zero_points: bool
    equalization: bool = False
    learned_rounding: bool = False
    bias_correction: bool = False

    def __str__(self) -> str:
        words = {
            "zero points": self.zero_points,
            "equalised": self.equalization,
            "learned rounding": self.learned_rounding,
            "biases corrected": self.bias_correction,
        }
        return ", ".join(word for word, taken in words.items() if taken) or "plain"


@dataclass(frozen=True)
class TriedWay:
    """A way that was tried, its SQNR on samples held out (mean of the outputs), and its cost."""

    way: Way
    sqnr_db: float
    figures: Figures

    @property
    def score(self) -> float:
        """What is compared: SQNR, less a bit for each doubling of the time."""
        return self.sqnr_db - DB_PER_DOUBLING * math.log2(max(self.figures.time, 1.0))


def split(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return the samples that calibrate and those that judge.

    Raises
    ------
    ModelError
        If there is one sample.
    """
    if len(samples) < 2:
        raise ModelError(
            "one sample is given; a device's quantisation is judged on samples that did not "
            "calibrate: give at least two, better 32"
        )
    judges = [*samples[HELD_OUT - 1 :: HELD_OUT]] or [samples[-1]]
    kept = [s for s in samples if not any(s is judge for judge in judges)]
    return kept, judges


def try_ways(
    quantized: Callable[[Way], Any],
    device: QuantizationTarget,
    judges: Sequence[Sample],
    start: Way,
    changes: Sequence[str],
) -> tuple[Any, list[TriedWay]]:
    """Return the best `Quantization`, and all trials, the best one first.

    Parameters
    ----------
    quantized
        Returns the `Quantization` of a way.
    device
        What the model is for.
    judges
        Samples that did not calibrate.
    start
        The first way.
    changes
        Options that are tried one after the other, each as a change of the best way so far.
    """

    def tried(way: Way) -> tuple[TriedWay, Any]:
        result = quantized(way)
        outputs = compare(result.prepared, result.model, judges).outputs
        noise = float(np.mean([min(output.sqnr_db, MOST_DB) for output in outputs]))
        return TriedWay(way, noise, Figures(**device.figures(result.model))), result

    best, taken = tried(start)
    trials = [best]
    for change in tracked("try a way to quantise", changes):
        trial, result = tried(replace(best.way, **{change: not getattr(best.way, change)}))
        trials.append(trial)
        if trial.score > best.score:
            best, taken = trial, result
    return taken, sorted(trials, key=lambda trial: -trial.score)
