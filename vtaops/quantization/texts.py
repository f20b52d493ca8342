"""Texts as answers: those of a recogniser that scores each character, or none, at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.shapes import Array


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

    def overall(self, answers: Sequence[Array], labels: Sequence[Array]) -> Mapping[str, float]:
        """Return the edits from answers to labels over the characters of these."""
        edits = sum(distance(str(a), str(b)) for a, b in zip(answers, labels, strict=True))
        return {"character_error_rate": edits / max(1, sum(len(str(label)) for label in labels))}


def distance(one: str, other: str) -> int:
    """Return the fewest characters that are inserted, deleted or replaced (Levenshtein)."""
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        before, row[0] = row[0], place
        for at, against in enumerate(other, 1):
            edited = min(row[at] + 1, row[at - 1] + 1, before + (letter != against))
            before, row[at] = row[at], edited
    return row[-1]
