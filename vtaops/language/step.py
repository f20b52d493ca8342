"""One token of a language model as a graph on integers, whose cache is state.

Inputs of the host are the token's row of the embedding, the cosines and sines of its place, and
rows with 0 for the places before it and for itself, -128 for the others. Keys and values of the
places before are state that grows: the token's own are results beside them, which attention sees as
one place more. So all places are alike to VTA, and one program computes every token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.shapes import ceil_div
from vtaops.graph import (
    Add,
    Concat,
    Convolution,
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
    Slice,
    Tensor,
    Transpose,
)
from vtaops.language.files import DecoderWeights, Floats
from vtaops.language.floats import on_grid, rounded, silu

HIDDEN = -128
"""What the mask adds to scores of places that are not there yet: they become the least int8."""
MIDDLE = 32
"""The zero point of scores: what is hidden lies 160 steps below 0."""
TILE = 16
"""Places of a cache are a multiple, so that the token's own begins a block of channels."""
FINEST = 0.125
"""Steps of scores are at least so large that 96 of them leave nothing of an exponential."""


Cached = tuple[Tensor, Tensor]
"""Keys or values of the places so far, and of the token."""


def token_step(weights: DecoderWeights, reach: Mapping[str, float], *, bits: int = 8) -> Graph:
    """Return the graph of a token.

    Parameters
    ----------
    weights : DecoderWeights
        The model, its norms alike for all channels (`DecoderWeights.folded`).
    reach : mapping of str to float
        The largest value of each tensor (`FloatModel.reach`).
    bits : int
        Of weights: 8 or 4.
    """
    return _Step(weights, reach, bits).graph


class _Step:
    def __init__(self, weights: DecoderWeights, reach: Mapping[str, float], bits: int) -> None:
        self.graph, self._weights, self._reach = Graph("language_model"), weights, reach
        self._bits = bits
        width = weights.embedding.shape[1]
        self._places = ceil_div(weights.length, TILE) * TILE
        inputs = self.graph.input
        x = inputs("token", (1, 1, width), scale=self._scale("x"))
        keys = width // weights.heads * weights.shared
        self._turns = [inputs(name, (1, 1, keys), scale=1 / 127) for name in ("cos", "sin")]
        alone = weights.heads == weights.shared  # then each head has a matrix of one row
        rows = (weights.heads, 1) if alone else (1, weights.heads)
        self._mask = inputs("mask", (*rows, self._places + 1))
        state: dict[str, str] = {}
        for number, layer in enumerate(weights.layers):
            x, carried = self._layer(str(number), layer, x)
            state |= carried
        y = self._norm("last", x)
        tensors = [self._dense("scores", weights.scores, y)]
        self.graph.output(*tensors, *(self.graph.tensors[name] for name in state.values()))
        self.graph.carry(state)

    def _scale(self, name: str) -> float:
        return max(self._reach[name], 1e-6) / 127

    def _layer(
        self, number: str, layer: Mapping[str, Floats], x: Tensor
    ) -> tuple[Tensor, dict[str, str]]:
        """Add a layer; return its result, and its state."""
        y = self._norm(f"na{number}", x)
        k = self._turned(f"k{number}", layer["k"], y)
        keys = self._cached(f"k{number}", k, (1, 2, 0))
        shared = self._weights.shared
        heads = np.arange(x.elements).reshape(shared, -1, k.elements // shared)
        rows = heads.swapaxes(0, 1).reshape(heads.shape[1], -1)  # a head of each key at once
        queries = [
            self._turned(f"q{number}", layer["q"][own], y, f"_{n}") for n, own in enumerate(rows)
        ]
        parts = self._parts(number, self._joined(1, queries), keys)
        # Behind the softmax, while which its weights are loaded.
        values = self._cached(f"v{number}", self._dense(f"v{number}", layer["v"], y), (1, 0, 2))
        mixed = self._mixed(number, parts, values)
        cuts = [Slice(1, n, n + 1) for n in range(len(rows))] if len(rows) > 1 else []
        joined = self._joined(2, [self.graph.add(cut, mixed) for cut in cuts] or [mixed])
        o = self._dense(f"o{number}", layer["o"][:, rows.reshape(-1)], joined)
        x = self._sum(f"middle{number}", x, o)
        y = self._norm(f"nf{number}", x)
        gate, up = (
            self._dense(f"{name}{number}", layer[weight], y)
            for name, weight in (("gate", "w1"), ("up", "w3"))
        )
        gate = self._silu(f"silu{number}", gate)
        product = self._product(f"product{number}", gate, up)
        x = self._sum(f"x{number}", x, self._dense(f"down{number}", layer["w2"], product))
        return x, {past.name: new.name for past, new in (keys, values)}

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """Add an RMS norm, whose weights those of its readers hold."""
        result = Tensor(name, x.shape, scale=self._scale(name))
        ones = np.ones(x.shape[-1], np.float32)
        norm = LayerNorm(ones, 0 * ones, self._weights.epsilon, centered=False)
        op = RowNorm.of(norm, x, result)
        if op is None:
            raise ModelError(
                f"the norm {name} is out of the range of integers: epsilon is {norm.epsilon:g}, "
                f"a step of its input {x.scale:g}; it must be less, or the values larger"
            )
        op = replace(op, bias=0 * op.bias)  # some thousandths of a step: so it needs no vectors
        return self.graph.add(op, x, name=name, scale=result.scale)

    def _dense(self, name: str, weight: Floats, x: Tensor, scale: float = 0.0) -> Tensor:
        scale = scale or self._scale(name)
        numbers, own = on_grid(weight, self._bits)
        op = Dense(numbers, None, Requantization.from_ratio(own * x.scale / scale))
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
        add, scale = self.graph.add, self._scale(name)
        flat = self._dense(f"flat_{name}{suffix}", weight, x, self._scale(f"flat_{name}"))
        pairs = flat.elements // 2
        quarter = np.tile([[0, -1], [1, 0]], (pairs, 1)).astype(np.int8)[:, :, None, None]
        turn = Convolution(quarter, None, Requantization(), groups=pairs)
        image = add(Reshape((1, flat.elements, 1, 1)), flat)
        crossed = add(Reshape(flat.shape), add(turn, image, scale=flat.scale))
        made = [
            self._product(f"{angle.name}_{name}{suffix}", part, angle, scale)
            for angle, part in zip(self._turns, (flat, crossed), strict=True)
        ]
        return add(Add(), *made, name=name + suffix, scale=scale)

    def _cached(self, name: str, x: Tensor, axes: tuple[int, int, int]) -> Cached:
        """Add a cache of keys or values, with those of the token; tokens, heads, channels turn."""
        shared = self._weights.shared
        sizes = self._places, shared, x.elements // shared
        heads = self.graph.add(Reshape((1, *sizes[1:])), x)
        new = self.graph.add(Transpose(axes), heads, name=f"new_{name}")
        shape = tuple(sizes[axis] for axis in axes)
        return self.graph.input(f"past_{name}", shape, scale=x.scale), new

    def _joined(self, axis: int, tensors: list[Tensor]) -> Tensor:
        """Add what joins tensors, if they are several."""
        return self.graph.add(Concat(axis), *tensors) if len(tensors) > 1 else tensors[0]

    def _parts(self, number: str, q: Tensor, keys: Cached) -> Tensor:
        """Add what each head takes of the places so far, and of its own: rows of one image.

        `q` has a row for each of the heads that share a key.
        """
        add, shared, (_, group, size) = self.graph.add, self._weights.shared, q.shape
        width = size // shared
        heads = add(Transpose((1, 0, 2)), add(Reshape((group, shared, width)), q))
        scale = max(FINEST, self._reach[f"dots{number}"] / (127 - MIDDLE))
        ratio = q.scale * keys[0].scale / np.sqrt(width) / scale
        product = Matmul(Requantization.from_ratio(float(ratio), MIDDLE))
        dots = [
            add(product, heads, key, name=f"{which}_dots{number}", scale=scale)
            for which, key in zip(("past", "own"), keys, strict=True)
        ]
        if group > 1:
            dots = [add(Reshape((1, shared * group, each.shape[2])), each) for each in dots]
        hidden = Add(requantization=Requantization(zero_point=MIDDLE))
        masked = add(hidden, add(Concat(2), *dots), self._mask, name=f"masked{number}", scale=scale)
        part = Tensor("-", masked.shape, scale=1 / 255, zero_point=-128)
        return add(RowSoftmax.of(masked, part), masked, name=f"parts{number}", scale=part.scale)

    def _mixed(self, number: str, parts: Tensor, values: Cached) -> Tensor:
        """Add the sums of values by their parts, a row for each of the heads that share a value."""
        add, places, shared = self.graph.add, self._places, self._weights.shared
        group, scale = self._weights.heads // shared, self._scale(f"mix{number}")
        product = Matmul(Requantization.from_ratio(values[0].scale / 255 / scale))
        cuts = ("past", Slice(2, 0, places)), ("own", Slice(2, places, places + 1))
        mixes = []
        for (which, cut), value in zip(cuts, values, strict=True):
            heads = add(cut, parts)
            if group > 1:
                heads = add(Reshape((shared, group, heads.shape[2])), heads)
            mixes.append(add(product, heads, value, name=f"{which}_mix{number}", scale=scale))
        mixed = add(Add(), *mixes, name=f"mix{number}", scale=scale)
        turned = add(Transpose((1, 0, 2)), mixed)
        return add(Reshape((1, group, mixed.elements // group)), turned)

    def _silu(self, name: str, x: Tensor) -> Tensor:
        scale = self._scale(name)
        table = silu(np.arange(-128, 128, dtype=np.float32) * np.float32(x.scale))
        return self.graph.add(
            LookupTable(rounded(table / scale), function="silu"), x, name=name, scale=scale
        )
