"""A language model in float32: what it computes, and over which ranges."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from vtaops.language.files import START, DecoderWeights, Floats


class FloatModel:
    """A language model token by token, with its cache; notes the largest value of each tensor."""

    def __init__(self, weights: DecoderWeights) -> None:
        self.weights = weights
        self.reach: dict[str, float] = defaultdict(float)
        self._seen("x", weights.embedding)
        self.turns = turns(weights)
        self.reset()

    def reset(self) -> None:
        """Begin a text."""
        self._caches: list[tuple[list[Floats], list[Floats]]] = [
            ([], []) for _ in self.weights.layers
        ]

    def step(self, token: int) -> Floats:
        """Return the scores of the tokens behind a token."""
        x = self.weights.embedding[token]
        for number, layer in enumerate(self.weights.layers):
            x = self._layer(number, layer, x)
        return self._seen("scores", self.weights.scores @ self._norm("last", x, self.weights.norm))

    def _layer(self, number: int, layer: dict[str, Floats], x: Floats) -> Floats:
        def seen(name: str, value: Floats) -> Floats:
            return self._seen(f"{name}{number}", value)

        keys, values = self._caches[number]
        place = len(keys)
        y = self._norm(f"na{number}", x, layer["na"])
        q, k = (seen(n, self._turned(seen(f"flat_{n}", layer[n] @ y), place)) for n in "qk")
        keys.append(k)
        values.append(seen("v", layer["v"] @ y))
        shared, width = self.weights.shared, len(x) // self.weights.heads
        heads = q.reshape(shared, -1, width)
        known = np.reshape([keys, values], (2, place + 1, shared, width))
        scores = seen("dots", np.einsum("sgw,tsw->sgt", heads, known[0]) / np.sqrt(width))
        parts = np.exp(scores - scores.max(-1, keepdims=True))
        parts /= parts.sum(-1, keepdims=True)
        mixed = seen("mix", np.einsum("sgt,tsw->sgw", parts, known[1]).reshape(-1))
        x = seen("middle", x + seen("o", layer["o"] @ mixed))
        y = self._norm(f"nf{number}", x, layer["nf"])
        gate = seen("gate", layer["w1"] @ y)
        product = seen("silu", silu(gate)) * seen("up", layer["w3"] @ y)
        return seen("x", x + seen("down", layer["w2"] @ seen("product", product)))

    def _norm(self, name: str, x: Floats, weight: Floats) -> Floats:
        root = np.sqrt(np.mean(x * x) + self.weights.epsilon)
        return self._seen(name, x / root * weight)

    def _turned(self, x: Floats, place: int) -> Floats:
        cos, sin = (turn[place, : len(x)] for turn in self.turns)
        return x * cos + turned_weights(x) * sin

    def _seen(self, name: str, value: Floats) -> Floats:
        rounded: Floats = value.astype(np.float32)
        self.reach[name] = max(self.reach[name], float(np.abs(rounded).max()))
        return rounded

    def write(self, rng: np.random.Generator, tokens: int = 512, start: int = START) -> None:
        """Write texts of the model's own, which shows the ranges of its tensors."""
        for _ in range(0, tokens, self.weights.length):
            self.reset()
            token = start
            for _ in range(min(tokens, self.weights.length)):
                scores = self.step(token)
                parts = np.exp(scores - scores.max())
                token = int(rng.choice(len(scores), p=parts / parts.sum()))


def silu(x: Floats) -> Floats:
    """Return ``x * sigmoid(x)``."""
    result: Floats = x / (1 + np.exp(-x))
    return result


def rounded(values: Floats) -> npt.NDArray[np.int8]:
    """Return the nearest int8."""
    return np.clip(np.rint(values), -128, 127).astype(np.int8)


def turns(weights: DecoderWeights) -> tuple[Floats, Floats]:
    """Return the cosine and sine of each place and channel of all heads."""
    width = weights.embedding.shape[1] // weights.heads
    rates = weights.theta ** (-np.arange(0, width, 2) / width)
    angles = np.outer(np.arange(weights.length), np.tile(np.repeat(rates, 2), weights.heads))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def turned_weights(rows: Floats) -> Floats:
    """Return rows, or numbers, whose pairs are turned by a quarter: (a, b) to (-b, a)."""
    turned = np.empty_like(rows)
    turned[0::2], turned[1::2] = -rows[1::2], rows[0::2]
    return turned


def on_grid(weight: Floats, bits: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Return weights as integers of so many bits, and the step of each output."""
    steps = np.maximum(np.abs(weight).max(axis=1), 1e-9) / ((1 << bits - 1) - 1)
    return rounded(weight / steps[:, None]), steps
