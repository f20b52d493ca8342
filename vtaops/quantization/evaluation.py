"""Accuracy as a person sees it: how often answers are right, and how often they are float's.

A task says what the answer to a sample is, and how well it agrees with another one or a label.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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


class Text:
    """The likeliest path of connectionist temporal classification (Graves et al., 2006).

    Of each step counts the class with the greatest score; equal neighbours are one character, and
    class 0 is none.

    Parameters
    ----------
    alphabet
        The characters of the classes 1, 2 ...
    """

    def __init__(self, alphabet: Sequence[str]) -> None:
        self._alphabet = alphabet

    def answer(self, outputs: Sequence[Array]) -> Array:
        """Return a text as an array of no axes."""
        scores = outputs[0].reshape(-1, outputs[0].shape[-1])
        if scores.shape[1] != len(self._alphabet) + 1:
            raise ModelError(
                f"the output has {scores.shape[1]} classes; {len(self._alphabet)} characters and "
                f"none are {len(self._alphabet) + 1}"
            )
        steps = scores.argmax(axis=1)
        begins = np.diff(steps, prepend=-1) != 0
        return np.asarray("".join(self._alphabet[n - 1] for n in steps[begins] if n))

    def agreement(self, answer: Array, wanted: Array) -> float:
        """Return 1 for equal texts, else 0."""
        return float(str(answer) == str(wanted))

    def told(self, answer: Array, classes: Mapping[int, str]) -> str:
        """Return the text."""
        return str(answer)


OVERLAP = 0.5
"""Intersection over union from which two boxes are one."""

CANDIDATES, MOST = 300, 100
"""Rows with the best scores that are looked at, and boxes of a picture that are kept."""


class Boxes:
    """A box for each row of an output, with a score for each class in another, or behind it.

    Parameters
    ----------
    size
        Width and height of the picture that the model takes.
    corners
        Whether boxes are left, top, right and bottom; else center, width and height.
    least
        Score from which a box counts.
    """

    def __init__(self, size: tuple[int, int], *, corners: bool = True, least: float = 0.5) -> None:
        self._size, self._corners, self._least = size, corners, least

    def answer(self, outputs: Sequence[Array]) -> Array:
        """Return rows of (class, left, top, right, bottom, score), best first.

        Sides are in shares of the picture.
        """
        boxes, scores = _boxes_and_scores(outputs)
        if np.abs(boxes).max(initial=0) > 2:  # pixels
            boxes = boxes / (self._size * 2)
        if not self._corners:
            half = boxes[:, 2:] / 2
            boxes = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
        best, kinds = scores.max(axis=1), scores.argmax(axis=1)
        order = np.argsort(-best, kind="stable")[:CANDIDATES]
        kept: list[Array] = []
        for row in order[best[order] >= self._least]:
            box = np.array([kinds[row], *boxes[row], best[row]])
            if not any(one[0] == box[0] and overlap(one, box) > OVERLAP for one in kept):
                kept.append(box)
        return np.array(kept[:MOST]).reshape(-1, 6)

    def agreement(self, answer: Array, wanted: Array) -> float:
        """Return twice the boxes that are in both over all boxes (F1); 1 if there are none."""
        unmatched, count = [*wanted], len(answer) + len(wanted)
        for box in answer:
            overlaps = [overlap(one, box) * (one[0] == box[0]) for one in unmatched]
            if max(overlaps, default=0.0) >= OVERLAP:
                unmatched.pop(int(np.argmax(overlaps)))
        return 2 * (len(wanted) - len(unmatched)) / count if count else 1.0

    def told(self, answer: Array, classes: Mapping[int, str]) -> str:
        """Return how many boxes there are of each class."""
        counts = Counter(int(kind) for kind in answer[:, 0])
        return ", ".join(f"{count} {classes.get(k, k)}" for k, count in counts.items()) or "no box"


def overlap(one: Array, other: Array) -> float:
    """Return the intersection over union of two boxes, given as rows of (class, corners)."""
    low, high = np.maximum(one[1:3], other[1:3]), np.minimum(one[3:5], other[3:5])
    both = np.prod(np.maximum(high - low, 0))
    whole = sum(np.prod(np.maximum(box[3:5] - box[1:3], 0)) for box in (one, other)) - both
    return float(both / whole) if whole > 0 else 0.0


def _boxes_and_scores(outputs: Sequence[Array]) -> tuple[Array, Array]:
    """Return boxes, (n, 4), and scores, (n, classes), of one picture."""
    rows = [array.reshape(-1, array.shape[-1]) for array in outputs if array.ndim > 1]
    for boxes, scores in product(rows, outputs):
        behind = scores.size != boxes.size and scores.size % len(boxes) == 0
        if boxes.shape[-1] == 4 and behind:
            return boxes, scores.reshape(len(boxes), -1)
    for array in rows:
        joined = max(array, array.T, key=len)
        if joined.shape[-1] > 4:
            return joined[:, :4], joined[:, 4:]
    raise ModelError(
        f"outputs of shapes {[array.shape for array in outputs]} are no boxes: rows of four "
        "numbers with scores behind them, or in another output"
    )


Task = Classes | Text | Boxes
"""What outputs mean."""

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


def evaluate(runs: Runs, exact: Runs | None, data: Dataset, task: Task) -> Accuracy:
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
        sample, sqnr = case.read(), None
        outputs = {"answer": runs(sample)}
        if exact is not None:
            outputs["float"] = exact(sample)
            noises.append(_noise(outputs["float"], outputs["answer"]))
            sqnr = decibels(*noises[-1].sum(axis=0))
        answers = {name: task.answer(arrays) for name, arrays in outputs.items()}
        if case.label is not None:
            answers["label"] = np.asarray(case.label)
        shares = {
            name: task.agreement(answers[one], answers[other])
            for name, (one, other) in PAIRS.items()
            if {one, other} <= answers.keys()
        }
        texts = {name: task.told(answer, data.classes) for name, answer in answers.items()}
        results.append(JudgedSample(case, shares, texts, sqnr))
    return _accuracy(results, noises)


def _accuracy(results: Sequence[JudgedSample], noises: Sequence[Array]) -> Accuracy:
    """Return the figures over all samples, by the noise of each sample's outputs."""
    known = results[0].shares if results else {}
    return Accuracy(
        len(results),
        {name: float(np.mean([each.shares[name] for each in results])) for name in known},
        sum(each.shares.get("float_accuracy", 1.0) < 1 for each in results),
        [decibels(*row) for row in np.sum(noises, axis=0)] if noises else [],
        heapq.nlargest(WORST, results, key=lambda each: each.badness),
    )


def _noise(wanted: Sequence[Array], found: Sequence[Array]) -> Array:
    """Return the powers of each output and of its error."""
    shapes = [[array.shape for array in outputs] for outputs in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ModelError(f"the model's outputs are {shapes[0]}, the float model's {shapes[1]}")
    return np.stack([powers(*pair) for pair in zip(wanted, found, strict=True)])
