"""Accuracy as a person sees it: how often answers are right, and how often they are float's.

The greatest score names the class: of a sample, or of each position of a sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.quantization.datasets import Case, Dataset
from vtaops.quantization.quality import decibels, powers
from vtaops.quantization.samples import Sample

WORST = 10
"""Number of samples that are shown."""

Runs = Callable[[Sample], Sequence[Array]]
"""Returns the outputs of a model, as real numbers."""


class Classes:
    """The greatest score names the class: of a sample, or of each position of a sequence.

    A single score is a probability: the class is 1 above one half, else 0.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def answer(self, outputs: Sequence[Array]) -> Array:
        """Return the number of the class, or of one for each position."""
        scores = outputs[0]
        if scores.size == self._length:
            return np.ravel(scores > 0.5).astype(np.int64)
        if self._length == 1:
            return np.asarray(scores.argmax())
        if scores.size % self._length:
            raise ModelError(
                f"labels of {self._length} positions do not fit an output of shape {scores.shape}"
            )
        return np.asarray(scores.reshape(self._length, -1).argmax(axis=1))

    def agreement(self, answer: Array, wanted: Array) -> float:
        """Return the share of positions of one class."""
        return float(np.mean(answer == np.asarray(wanted).reshape(answer.shape)))

    def told(self, answer: Array, classes: Mapping[int, str]) -> str:
        """Return the names of classes."""
        return " ".join(classes.get(int(one), str(one)) for one in np.ravel(answer)[:32])


PAIRS = {
    "accuracy": ("answer", "label"),
    "float_accuracy": ("float", "label"),
    "agreement": ("answer", "float"),
}
"""Shares of samples, and what they compare."""


@dataclass(frozen=True)
class JudgedSample:
    """A sample: its shares and answers by name, as far as known, and the noise of its outputs."""

    case: Case
    shares: Mapping[str, float]
    texts: Mapping[str, str]
    sqnr_db: float | None

    @property
    def badness(self) -> tuple[float, ...]:
        """What orders samples: wrong where float is right, apart from float, wrong, noise."""
        right, wanted, alike = (self.shares.get(name, 1.0) for name in PAIRS)
        return max(wanted - right, 0.0), 1 - alike, 1 - right, -(self.sqnr_db or 0.0)


@dataclass(frozen=True)
class Accuracy:
    """Figures over all samples.

    Attributes
    ----------
    samples : int
        Number of samples.
    shares : mapping of str to float
        The means of `PAIRS`, as far as there are labels and a float model.
    float_wrong : int
        Samples that float itself answers wrong.
    sqnr_db : sequence of float
        Of each output against float.
    worst : sequence of JudgedSample
        The worst samples.
    """

    samples: int
    shares: Mapping[str, float]
    float_wrong: int
    sqnr_db: Sequence[float]
    worst: Sequence[JudgedSample]

    def __str__(self) -> str:
        figures = [f"{name.replace('_', ' ')} {share:.1%}" for name, share in self.shares.items()]
        figures += [f"{decibels:.1f} dB" for decibels in self.sqnr_db]
        figures += [f"float itself is wrong on {self.float_wrong}"] if self.float_wrong else []
        return ", ".join((f"{self.samples} samples", *figures))

    def as_dict(self) -> dict[str, Any]:
        """Return the content for JSON; shares that are not known are None."""
        rows = [
            {"sample": one.case.name, "sqnr_db": one.sqnr_db, **one.shares, **one.texts}
            for one in self.worst
        ]
        return {
            "schema": 1,
            "samples": self.samples,
            **{name: self.shares.get(name) for name in PAIRS},
            "float_wrong": self.float_wrong,
            "sqnr_db": [*self.sqnr_db],
            "worst": rows,
        }


def evaluate(runs: Runs, exact: Runs | None, data: Dataset, task: Classes) -> Accuracy:
    """Run a model, and its float model if there is one, on all samples.

    Parameters
    ----------
    runs, exact
        Return the outputs of the model and of the float model.
    data
        The samples.
    task
        What outputs mean.

    Raises
    ------
    ModelError
        If the outputs of the two differ in shape, or do not suit the task.
    """
    results: list[JudgedSample] = []
    noises: list[Array] = []
    for case in tracked("evaluate sample", data.cases, lambda case: case.name):
        sample = case.read()
        outputs = {"answer": runs(sample)}
        if exact is not None:
            outputs["float"] = exact(sample)
            noises.append(_noise(outputs["float"], outputs["answer"]))
        results.append(_result(case, outputs, noises[-1:], data.classes, task))
    known = results[0].shares if results else {}
    return Accuracy(
        len(results),
        {name: float(np.mean([each.shares[name] for each in results])) for name in known},
        sum(each.shares.get("float_accuracy", 1.0) < 1 for each in results),
        [decibels(*row) for row in np.sum(noises, axis=0)] if noises else [],
        heapq.nlargest(WORST, results, key=lambda each: each.badness),
    )


def _result(
    case: Case,
    outputs: Mapping[str, Sequence[Array]],
    noise: Sequence[Array],
    classes: Mapping[int, str],
    task: Classes,
) -> JudgedSample:
    """Return what is told of a sample."""
    answers = {name: task.answer(arrays) for name, arrays in outputs.items()}
    if case.label is not None:
        answers["label"] = np.asarray(case.label)
    shares = {
        name: task.agreement(answers[one], answers[other])
        for name, (one, other) in PAIRS.items()
        if {one, other} <= answers.keys()
    }
    texts = {name: task.told(answer, classes) for name, answer in answers.items()}
    sqnr = decibels(*noise[0].sum(axis=0)) if noise else None
    return JudgedSample(case, shares, texts, sqnr)


def _noise(wanted: Sequence[Array], found: Sequence[Array]) -> Array:
    """Return the powers of each output and of its error."""
    shapes = [[array.shape for array in outputs] for outputs in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ModelError(f"the model's outputs are {shapes[0]}, the float model's {shapes[1]}")
    return np.stack([powers(*pair) for pair in zip(wanted, found, strict=True)])
