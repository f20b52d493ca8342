"""One token of a language model as a graph on integers, whose cache is state.

Inputs of the host are the token's row of the embedding, the cosines and sines of its place, a
column with 1 at its place, and a row with 0 for the places so far and -128 for the others. Keys and
values are written by a product with that column, which is added to the cache: its places are 0
until then. So all places are alike to VTA, and one program computes every token.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.graph import (
    Add,
    Concat,
    Dense,
    Graph,
    LayerNorm,
    LookupTable,
    Matmul,
    Multiply,
    Requantization,
    Reshape,
    RowNorm,
    RowSoftmax,
    Tensor,
    Transpose,
)
from vtaops.language.files import DecoderWeights, Floats
from vtaops.language.floats import EPSILON, rounded, silu, turned_weights

HIDDEN = -128
"""What the mask adds to scores of places that are not there yet: they become the least int8."""
MIDDLE = 32
"""The zero point of scores: what is hidden lies 160 steps below 0."""
FINEST = 0.125
"""Steps of scores are at least so large that 96 of them leave nothing of an exponential."""


def token_step(weights: DecoderWeights, reach: Mapping[str, float]) -> Graph:
    """Return the graph of a token.

    Parameters
    ----------
    weights : DecoderWeights
        The model.
    reach : mapping of str to float
        The largest value of each tensor (`FloatModel.reach`).
    """
    return _Step(weights, reach).graph


class _Step:
    def __init__(self, weights: DecoderWeights, reach: Mapping[str, float]) -> None:
        self.graph, self._weights, self._reach = Graph("language_model"), weights, reach
        width, length = weights.embedding.shape[1], weights.length
        inputs = self.graph.input
        x = inputs("token", (1, 1, width), scale=self._scale("x"))
        keys = width // weights.heads * weights.shared
        self._turns = [inputs(name, (1, 1, keys), scale=1 / 127) for name in ("cos", "sin")]
        self._place = inputs("place", (1, length, 1))
        self._mask = inputs("mask", (weights.shared, 1, length))
        state: dict[str, str] = {}
        for number, layer in enumerate(weights.layers):
            x, carried = self._layer(str(number), layer, x)
            state |= carried
        y = self._norm("last", x, weights.norm)
        tensors = [self._dense("scores", weights.scores, y)]
        self.graph.output(*tensors, *(self.graph.tensors[name] for name in state.values()))
        self.graph.carry(state)

    def _scale(self, name: str) -> float:
        return max(self._reach[name], 1e-6) / 127

    def _layer(
        self, number: str, layer: Mapping[str, Floats], x: Tensor
    ) -> tuple[Tensor, dict[str, str]]:
        """Add a layer; return its result, and its state."""
        y = self._norm(f"na{number}", x, layer["na"])
        k = self._turned(f"k{number}", layer["k"], y)
        v = self._dense(f"v{number}", layer["v"], y)
        keys, values = (self._cached(tensor) for tensor in (k, v))
        heads = np.arange(x.elements).reshape(
            self._weights.shared, -1, x.elements // self._weights.heads
        )
        rows = heads.swapaxes(0, 1).reshape(heads.shape[1], -1)  # a head of each key at once
        mixed = [
            self._attention(
                f"{number}_{n}",
                self._turned(f"q{number}", layer["q"][own], y, f"_{n}"),
                keys,
                values,
            )
            for n, own in enumerate(rows)
        ]
        joined = mixed[0] if len(mixed) == 1 else self.graph.add(Concat(2), *mixed)
        o = self._dense(f"o{number}", layer["o"][:, rows.reshape(-1)], joined)
        x = self._sum(f"middle{number}", x, o)
        y = self._norm(f"nf{number}", x, layer["nf"])
        gate, up = (
            self._dense(f"{name}{number}", layer[weight], y)
            for name, weight in (("gate", "w1"), ("up", "w3"))
        )
        gate = self._silu(f"silu{number}", gate)
        product = self._product(f"product{number}", gate, up)
        x = self._sum(f"x{number}", x, self._dense(f"down{number}", layer["w2"], product))
        return x, {f"past_{name}{number}": f"new_{name}{number}" for name in "kv"}

    def _norm(self, name: str, x: Tensor, weight: Floats) -> Tensor:
        result = Tensor(name, x.shape, scale=self._scale(name))
        norm = LayerNorm(weight, np.zeros_like(weight), EPSILON, centered=False)
        op = RowNorm.of(norm, x, result)
        if op is None:
            raise ModelError(f"the norm {name} is out of the range of integers")
        return self.graph.add(op, x, name=name, scale=result.scale)

    def _dense(self, name: str, weight: Floats, x: Tensor, scale: float = 0.0) -> Tensor:
        scale = scale or self._scale(name)
        own = np.maximum(np.abs(weight).max(axis=1), 1e-9) / 127
        scaling = Requantization.from_ratio(own * x.scale / scale)
        op = Dense(rounded(weight / own[:, None]), None, scaling)
        return self.graph.add(op, x, name=name, scale=scale)

    def _product(self, name: str, a: Tensor, b: Tensor, scale: float = 0.0) -> Tensor:
        scale = scale or self._scale(name)
        op = Multiply(Requantization.from_ratio(a.scale * b.scale / scale))
        return self.graph.add(op, a, b, name=name, scale=scale)

    def _sum(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        scale = self._scale(name)
        op = Add.from_ratios(a.scale / scale, b.scale / scale)
        return self.graph.add(op, a, b, name=name, scale=scale)

    def _turned(self, name: str, weight: Floats, x: Tensor, suffix: str = "") -> Tensor:
        """Add a product whose pairs of channels turn with the place."""
        scale, made = self._scale(name), []
        for turn, rows in zip(self._turns, (weight, turned_weights(weight)), strict=True):
            own = f"{turn.name}_{name}{suffix}"
            flat = self._dense(own, rows, x, self._scale(f"flat_{name}"))
            made.append(self._product(f"turned_{own}", flat, turn, scale))
        return self.graph.add(Add(), *made, name=name + suffix, scale=scale)

    def _cached(self, new: Tensor) -> Tensor:
        """Add a key or value to its cache: where the column has a 1, and the cache zeros."""
        past = self.graph.input(
            f"past_{new.name}", (1, self._weights.length, new.shape[2]), scale=new.scale
        )
        column = self.graph.add(Matmul(), self._place, new, scale=new.scale)
        return self.graph.add(Add(), past, column, name=f"new_{new.name}", scale=new.scale)

    def _attention(self, name: str, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Add the attention of a head for each key."""
        add, (shared, _, length) = self.graph.add, self._mask.shape
        layer, _, _ = name.partition("_")
        width = keys.shape[2] // shared
        cut = [add(Reshape((length, shared, width)), cache) for cache in (keys, values)]
        heads = add(Reshape((shared, 1, width)), q)
        scale = max(FINEST, self._reach[f"dots{layer}"] / (127 - MIDDLE))
        ratio = q.scale * keys.scale / np.sqrt(width) / scale
        turned = add(Transpose((1, 2, 0)), cut[0])
        kept = add(Transpose((1, 0, 2)), cut[1])
        product = Matmul(Requantization.from_ratio(float(ratio), MIDDLE))
        dots = add(product, heads, turned, name=f"dots{name}", scale=scale)
        hidden = Add(requantization=Requantization(zero_point=MIDDLE))
        dots = add(hidden, dots, self._mask, name=f"masked{name}", scale=scale)
        part = Tensor("-", dots.shape, scale=1 / 255, zero_point=-128)
        parts = add(RowSoftmax.of(dots, part), dots, name=f"parts{name}", scale=part.scale)
        mixed = self._scale(f"mix{layer}")
        product = Matmul(Requantization.from_ratio(values.scale / 255 / mixed))
        return add(Reshape(q.shape), add(product, parts, kept, name=f"mix{name}", scale=mixed))

    def _silu(self, name: str, x: Tensor) -> Tensor:
        scale = self._scale(name)
        found = silu(np.arange(-128, 128, dtype=np.float32) * np.float32(x.scale))
        return self.graph.add(
            LookupTable(rounded(found / scale), function="silu"), x, name=name, scale=scale
        )
