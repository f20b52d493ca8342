"""Boxes as answers: those of a detector above a score, without those that overlap a better one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.shapes import Array

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
            found = np.array([kinds[row], *boxes[row], best[row]])
            if not any(one[0] == found[0] and overlap(one, found) > OVERLAP for one in kept):
                kept.append(found)
        return np.array(kept[:MOST]).reshape(-1, 6)

    def agreement(self, answer: Array, wanted: Array) -> float:
        """Return twice the boxes that are in both over all boxes (F1); 1 if there are none."""
        left, count = [*wanted], len(answer) + len(wanted)
        for box in answer:
            overlaps = [overlap(one, box) * (one[0] == box[0]) for one in left]
            if max(overlaps, default=0.0) >= OVERLAP:
                left.pop(int(np.argmax(overlaps)))
        return 2 * (len(wanted) - len(left)) / count if count else 1.0

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
    for boxes in rows:
        scores = _scores_of(boxes, outputs) if boxes.shape[-1] == 4 else None
        if scores is not None:
            return boxes, scores
    for array in rows:
        joined = array.T if len(array) < array.shape[-1] else array
        if joined.shape[-1] > 4:
            return joined[:, :4], joined[:, 4:]
    raise ModelError(
        f"outputs of shapes {[array.shape for array in outputs]} are no boxes: rows of four "
        "numbers with scores behind them, or in another output"
    )


def _scores_of(boxes: Array, outputs: Sequence[Array]) -> Array | None:
    for scores in outputs:
        if scores.size != boxes.size and scores.size % len(boxes) == 0:
            return scores.reshape(len(boxes), -1)
    return None
