"""Quantisation for a device: try combinations of options and keep the best.

A combination is scored by its SQNR on held-out calibration data and by the estimated time of a run.
Doubling the time must gain at least one bit, 6 dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.progress import tracked
from vtaops.quantization.devices import Figures, QuantizationTarget
from vtaops.quantization.quality import outputs, sqnrs
from vtaops.quantization.samples import Sample

HELD_OUT = 4
"""Every fourth sample judges; the others calibrate."""

MOST_DB = 80.0
"""Cap on the SQNR: above it, the few held-out samples no longer tell combinations apart."""

DB_PER_DOUBLING = 20 * math.log10(2)
"""One bit, the SQNR that must be gained for each doubling of the time."""


@dataclass(frozen=True)
class Recipe:
    """A combination of the options of `quantize`."""

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
class RecipeTrial:
    """A combination that was tried, its mean SQNR on held-out samples, and its cost."""

    recipe: Recipe
    sqnr_db: float
    figures: Figures

    @property
    def score(self) -> float:
        """The SQNR, reduced by one bit for each doubling of the time."""
        return self.sqnr_db - DB_PER_DOUBLING * math.log2(max(self.figures.time, 1.0))


def split(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Split samples into those for calibration and those held out.

    Raises
    ------
    ModelError
        If fewer than two samples are given.
    """
    if len(samples) < 2:
        raise ModelError(
            "one sample is given; a device's quantisation is judged on samples that did not "
            "calibrate: give at least two, better 32"
        )
    judges = [*samples[HELD_OUT - 1 :: HELD_OUT]] or [samples[-1]]
    kept = [s for s in samples if not any(s is judge for judge in judges)]
    return kept, judges


def search_recipes(
    quantized: Callable[[Recipe], Any],
    device: QuantizationTarget,
    judges: Sequence[Sample],
    start: Recipe,
    changes: Sequence[str],
) -> tuple[Any, list[RecipeTrial]]:
    """Return the best `Quantization`, and all trials, the best one first.

    Parameters
    ----------
    quantized
        Returns the `Quantization` of a recipe.
    device
        What the model is for.
    judges
        Samples that did not calibrate.
    start
        The first recipe.
    changes
        Options that are tried one after the other, each as a change of the best recipe so far.
    """
    exact: list[Sample] = []

    def tried(recipe: Recipe) -> tuple[RecipeTrial, Any]:
        result = quantized(recipe)
        if not exact:
            exact.extend(outputs(result.prepared, judges, exact=False))
        decibels = sqnrs(exact, outputs(result.model, judges))
        sqnr = float(np.minimum(decibels, MOST_DB).mean())
        return RecipeTrial(recipe, sqnr, device.figures(result.model)), result

    best, taken = tried(start)
    trials = [best]
    for change in tracked("try a recipe", changes):
        trial, result = tried(replace(best.recipe, **{change: not getattr(best.recipe, change)}))
        trials.append(trial)
        if trial.score > best.score:
            best, taken = trial, result
    return taken, sorted(trials, key=lambda trial: -trial.score)
