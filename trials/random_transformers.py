"""Random transformers on three configurations: each compiled, proven, run beside the executor."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops.graph import (
    Convolution,
    Dense,
    Graph,
    LookupTable,
    Matmul,
    Requantization,
    Reshape,
    Tensor,
    Transpose,
)
from vtaops.graph import operators as ops

CONFIGS = ("pynq_ext", "pynq_512", "ulx3s_ext")
LEAST = np.finfo(np.float32).min
"""What masks add where nothing counts."""


class RandomTransformer:
    """A transformer of one or two layers, on tokens or on patches of an image.

    Parameters
    ----------
    seed : object
        Decides everything.

    Attributes
    ----------
    graph : Graph
        The network.
    """

    def __init__(self, seed: object) -> None:
        self.rng = random.Random(str(seed))
        self.random = np.random.default_rng(self.rng.getrandbits(32))
        self.heads = self.rng.choice([1, 1, 2, 3, 4])
        self.each = self.rng.choice([4, 8, 16, self.rng.randint(2, 20)])
        self.tokens = self.rng.choice([1, 16, self.rng.randint(2, 40)])
        self.width = self.heads * self.each
        self.shared = self.rng.choice([n for n in range(1, self.heads + 1) if self.heads % n == 0])
        self.before, self.centered, self.gated = (self.rng.random() < 0.5 for _ in range(3))
        self.rotary = self.each % 2 == 0 and self.rng.random() < 0.5
        self.head_norms = self.each > 1 and self.rng.random() < 0.3
        self.talking = self.heads > 1 and self.rng.random() < 0.3
        self.sides = 1, self.tokens
        self.graph = Graph("transformer")
        x = self.rng.choice([self.given, self.patches])()
        for _ in range(self.rng.choice([1, 1, 2])):
            layers = [self.attention, self.attention, self.mixed, self.grouped]
            x = self.residual(x, self.rng.choice(layers))
            x = self.residual(x, self.mlp)
        x = self.rng.choice([self.whole, self.mean, self.first])(self.norm(x) if self.before else x)
        self.graph.output(self.dense(x, self.rng.randint(1, 20)))

    def given(self) -> Tensor:
        """Return tokens from outside."""
        shape = 1, self.tokens, self.width
        return self.graph.input("x", shape, scale=0.05, zero_point=self.zero())

    def patches(self) -> Tensor:
        """Return patches of an image as tokens, with their positions, and perhaps one more."""
        height, width = self.rng.choice([(4, 4), (1, 7), (self.rng.randint(1, 6),) * 2, (5, 3)])
        size, channels = self.rng.choice([1, 2, 4]), self.rng.choice([3, 16])
        image = 1, channels, height * size, width * size
        weight = self.numbers(self.width, channels, size, size)
        scaling = self.scaling(8)
        found = self.graph.add(
            Convolution(weight, None, scaling, (size, size)),
            self.graph.input("x", image, scale=0.05, zero_point=self.zero()),
            scale=0.05,
        )
        found = self.group_norm(found) if self.rng.random() < 0.4 else found
        self.sides = height, width
        found = self.graph.add(Reshape((1, self.width, height * width)), found)
        found = self.graph.add(Transpose((0, 2, 1)), found)
        if self.rng.random() < 0.5:
            token = self.constant((1, 1, self.width), found.zero_point)
            found = self.graph.add(ops.Concat(1), token, found)
            self.sides = 1, found.shape[1]
        self.tokens = found.shape[1]
        place = self.constant(found.shape, self.zero())
        return self.graph.add(ops.Add((1, 1), Requantization(1, 1, self.zero())), found, place)

    def numbers(self, *shape: int) -> Any:
        """Return random numbers of int8."""
        return self.random.integers(-128, 128, shape).astype(np.int8)

    def constant(self, shape: tuple[int, ...], zero_point: int) -> Tensor:
        """Return random numbers as a constant of the file."""
        return self.graph.add(ops.Constant(self.numbers(*shape), zero_point), scale=0.05)

    def whole(self, x: Tensor) -> Tensor:
        """Return all tokens."""
        return x

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over the tokens."""
        image = self.graph.add(Transpose((0, 2, 1)), x)
        image = self.graph.add(Reshape((1, self.width, 1, self.tokens)), image)
        pool = ops.AveragePool.from_ratio(1.0, self.tokens, shifts_only=False)
        return self.graph.add(Reshape((1, self.width)), self.graph.add(pool, image, scale=0.05))

    def first(self, x: Tensor) -> Tensor:
        """Return the first token."""
        return self.graph.add(Reshape((1, self.width)), self.graph.add(ops.Slice(1, 0, 1), x))

    def zero(self) -> int:
        """Return a zero point."""
        return self.rng.choice([0, 0, -128, self.rng.randint(-20, 20)])

    def scaling(self, shift: int) -> Requantization:
        """Return a requantization by about a shift."""
        return Requantization(self.rng.randint(1 << 15, 65535), shift + 15, self.zero())

    def dense(self, x: Tensor, outputs: int) -> Tensor:
        """Multiply by random weights."""
        weight = self.numbers(outputs, x.shape[-1])
        bias = self.random.integers(-999, 999, outputs).astype(np.int32)
        return self.graph.add(Dense(weight, bias, self.scaling(8)), x, scale=0.05)

    def residual(self, x: Tensor, layer: Any) -> Tensor:
        """Add what a layer makes of a tensor, with a norm before it or behind the sum."""
        y = layer(self.norm(x) if self.before else x)
        total = ops.Add((1, 1), Requantization(1, self.rng.choice([0, 1]), self.zero()))
        found = self.graph.add(total, *self.rng.sample((x, y), 2), scale=0.05)
        return found if self.before else self.norm(found)

    def norm(self, x: Tensor) -> Tensor:
        """Normalise the rows of a tensor, in floats as a file states it."""
        weight, bias = (self.random.normal(m, 0.3, x.shape[-1]) for m in (1, 0))
        real = self.graph.add(ops.Dequantize(), x)
        terms = weight.astype(np.float32), bias.astype(np.float32)
        epsilon = self.rng.choice([1e-5, 1e-6, 1e-3])
        normal = self.graph.add(ops.LayerNorm(*terms, epsilon, self.centered), real)
        return self.graph.add(ops.Quantize(self.rng.uniform(0.01, 0.05), self.zero()), normal)

    def split(self, x: Tensor, heads: int, order: tuple[int, ...]) -> Tensor:
        """Return the heads of a tensor, in an order of axes."""
        parts = self.graph.add(Reshape((1, self.tokens, heads, x.shape[-1] // heads)), x)
        return self.graph.add(Transpose(order), parts)

    def attention(self, x: Tensor) -> Tensor:
        """Multiply queries by keys, and the result by values."""
        q, k, v = self.rng.choice([self.apart, self.apart, self.together])(x)
        q, k = (self.head_norm(t) if self.head_norms else t for t in (q, k))
        queries, values = (self.split(t, self.heads_of(t), (0, 2, 1, 3)) for t in (q, v))
        if self.rotary:
            cosines, sines = (self.numbers(1, 1, self.tokens, self.each) for _ in range(2))
            turned = (self.split(k, self.heads_of(k), (0, 2, 1, 3)), queries)
            keys, queries = (self.rotated(t, cosines, sines) for t in turned)
            keys = self.graph.add(Transpose((0, 1, 3, 2)), self.for_all(keys))
        else:
            keys = self.for_all(self.split(k, self.heads_of(k), (0, 2, 3, 1)))
        scores = self.talk(self.placed(self.graph.add(Matmul(self.scaling(6)), queries, keys)))
        values = self.for_all(values)
        shares = self.talk(self.rng.choice([self.softmax, self.softmax, self.function])(scores))
        mixed = self.graph.add(Matmul(self.scaling(8)), shares, values)
        joined = self.graph.add(Transpose((0, 2, 1, 3)), mixed)
        return self.dense(self.graph.add(Reshape((1, self.tokens, self.width)), joined), self.width)

    def talk(self, scores: Tensor) -> Tensor:
        """Return scores or shares whose heads are mixed, if heads talk."""
        if not self.talking:
            return scores
        weight = self.numbers(self.heads, self.heads, 1, 1)
        return self.graph.add(Convolution(weight, None, self.scaling(8)), scores, scale=0.05)

    def group_norm(self, image: Tensor) -> Tensor:
        """Normalise groups of channels with all their pixels."""
        groups = self.rng.choice([1, 1, self.heads])
        rows = self.graph.add(Reshape((1, groups, image.elements // groups)), image)
        return self.graph.add(Reshape(image.shape), self.norm(rows))

    def grouped(self, x: Tensor) -> Tensor:
        """Attention of the pixels of windows, or of every so many pixels."""
        sides = [(n, [k for k in range(1, n + 1) if n % k == 0]) for n in self.sides]
        (rows, height), (columns, width) = (
            (k, n // k) for n, ks in sides for k in [self.rng.choice(ks)]
        )
        order = self.rng.choice([(0, 1, 3, 2, 4, 5), (0, 2, 4, 1, 3, 5)])
        parts = self.graph.add(Reshape((1, rows, height, columns, width, self.width)), x)
        parts = self.graph.add(Transpose(order), parts)
        count = parts.shape[1] * parts.shape[2]
        each = self.graph.add(Reshape((count, self.tokens // count, self.width)), parts)
        found = self.graph.add(Reshape(parts.shape), self.sequences(each))
        back = tuple(map(order.index, range(len(order))))
        return self.graph.add(Reshape(x.shape), self.graph.add(Transpose(back), found))

    def sequences(self, x: Tensor) -> Tensor:
        """Return the attention of several sequences, each by itself."""
        count, tokens, _ = x.shape
        whole = self.dense(x, 3 * self.width)
        parts = self.graph.add(Reshape((count, tokens, 3, self.heads, self.each)), whole)
        parts = self.graph.add(Transpose((2, 0, 3, 1, 4)), parts)
        found = (self.graph.add(ops.Slice(0, at, at + 1), parts) for at in range(3))
        shape = count, self.heads, tokens, self.each
        queries, keys, values = (self.graph.add(Reshape(shape), part) for part in found)
        keys = self.graph.add(Transpose((0, 1, 3, 2)), keys)
        shares = self.softmax(self.graph.add(Matmul(self.scaling(6)), queries, keys))
        mixed = self.graph.add(Matmul(self.scaling(8)), shares, values)
        joined = self.graph.add(Transpose((0, 2, 1, 3)), mixed)
        return self.dense(self.graph.add(Reshape(x.shape), joined), self.width)

    def mixed(self, x: Tensor) -> Tensor:
        """Mix the tokens of each channel by dense layers."""
        rows = self.graph.add(Transpose((0, 2, 1)), x)
        rows = self.graph.add(Reshape((self.width, self.tokens)), rows)
        rows = self.dense(self.function(self.dense(rows, 16)), self.tokens)
        turned = self.graph.add(Reshape((1, self.width, self.tokens)), rows)
        return self.graph.add(Transpose((0, 2, 1)), turned)

    def placed(self, scores: Tensor) -> Tensor:
        """Return scores, perhaps with a term for each pair of places."""
        if self.rng.random() < 0.7:
            return scores
        total = ops.Add((1, self.rng.randint(1, 3)), Requantization(1, 1, self.zero()))
        return self.graph.add(total, scores, self.constant(scores.shape, 0), scale=0.05)

    def heads_of(self, x: Tensor) -> int:
        """Return the number of heads whose channels a tensor has."""
        return int(x.shape[-1] // self.each)

    def head_norm(self, x: Tensor) -> Tensor:
        """Normalise each head of each token."""
        heads = self.graph.add(Reshape((1, self.tokens, self.heads_of(x), self.each)), x)
        return self.graph.add(Reshape(x.shape), self.norm(heads))

    def for_all(self, x: Tensor) -> Tensor:
        """Return keys or values for all queries, of which some share a head."""
        _, heads, *rest = x.shape
        if heads == self.heads:
            return x
        x = self.graph.add(Reshape((1, heads, 1, *rest)), x)
        x = self.graph.add(ops.Expand((1, heads, self.heads // heads, *rest)), x)
        return self.graph.add(Reshape((1, self.heads, *rest)), x)

    def rotated(self, x: Tensor, cosines: Any, sines: Any) -> Tensor:
        """Return heads whose halves are rotated by their positions, in integers."""
        half, zero = self.each // 2, self.zero()
        parts = [self.graph.add(ops.Slice(3, at, at + half), x) for at in (half, 0)]
        turned, products = self.graph.add(ops.Concat(3), *parts), []
        for data, factors in ((x, cosines), (turned, sines)):
            constant = ops.Constant(np.broadcast_to(factors, x.shape).copy(), 0)
            given = data, self.graph.add(constant, scale=1 / 128)
            products.append(self.graph.add(ops.Multiply(self.scaling(6)), *given, scale=0.05))
        return self.graph.add(ops.Add((1, 1), Requantization(1, 1, zero)), *products, scale=0.05)

    def apart(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values, each by its own weights."""
        widths = self.width, *[self.shared * self.each] * 2
        return [self.dense(x, width) for width in widths]

    def together(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values of one product, whose first axis tells them apart."""
        rows = self.graph.add(Reshape((self.tokens, self.width)), x)
        whole = self.dense(rows, 3 * self.width)
        parts = self.graph.add(Reshape((1, self.tokens, 1, 3, self.width)), whole)
        parts = self.graph.add(Transpose((3, 1, 2, 0, 4)), parts)
        if self.rng.random() < 0.5:
            parts = self.graph.add(ops.Requantize(self.scaling(0)), parts, scale=0.05)
        found = (self.graph.add(ops.Slice(0, at, at + 1), parts) for at in range(3))
        return [self.graph.add(Reshape((1, self.tokens, self.width)), part) for part in found]

    def softmax(self, x: Tensor) -> Tensor:
        """Return the softmax of rows, in floats as a file states it."""
        real, masks, kind = self.graph.add(ops.Dequantize(), x), [], self.rng.random()
        if kind < 0.4:
            real = self.graph.add(ops.AddTerm(self.mask(*x.shape[-2:])), real)
        elif kind < 0.6:
            masks = [self.given_mask(x.shape)]
        real = self.graph.add(ops.Softmax(), real, *masks)
        step, zero = self.rng.choice([(1 / 256, -128), (self.rng.uniform(1e-3, 1e-2), self.zero())])
        return self.graph.add(ops.Quantize(step, zero), real)

    def given_mask(self, shape: tuple[int, ...]) -> Tensor:
        """Return a mask from outside, for all rows, or for each, of all heads, or of each."""
        *before, rows, columns = shape
        name = f"mask{len(self.graph.inputs)}"
        extents = *(self.rng.choice([1, n]) for n in before), self.rng.choice([1, rows]), columns
        return self.graph.input(name, extents, "float32")

    def mask(self, rows: int, columns: int) -> Any:
        """Return terms that leave out later tokens, or some at the end."""
        left = self.rng.randint(1, columns)
        kept = self.rng.choice([np.tri(rows, columns), np.arange(columns) < left])
        return np.where(kept, 0, LEAST).astype(np.float32)

    def function(self, x: Tensor) -> Tensor:
        """Map a tensor by a table."""
        table = self.random.integers(-128, 128, 256).astype(np.int8)
        return self.graph.add(LookupTable(table, self.zero()), x, scale=0.05)

    def mlp(self, x: Tensor) -> Tensor:
        """Two dense layers with a function between them, and perhaps a third one that it gates."""
        width = self.rng.randint(1, 3) * 16
        inner = self.function(self.dense(x, width))
        if self.gated:
            product = ops.Multiply(self.scaling(6))
            inner = self.graph.add(product, inner, self.dense(x, width), scale=0.05)
        return self.dense(inner, self.width)


def check(seed: object, config: str) -> tuple[list[str], int]:
    """Compile and run a transformer; return what is wrong, and its launches."""
    graph = RandomTransformer(seed).graph
    model = vtaops.compile_model(graph, config)
    faults = [] if model.prove().complete else ["not proven"]
    rng = np.random.default_rng(0)
    first, *masks = graph.inputs
    for values in (rng.integers(-128, 128, first.shape), rng.integers(-2, 3, first.shape)):
        arrays = [values.astype(np.int8)]
        arrays += [np.where(rng.random(m.shape) < 0.7, 0, LEAST).astype("f") for m in masks]
        if not np.array_equal(model.run(*arrays), model.reference(*arrays)):
            faults.append("the device differs from the executor")
    return faults, len(model.regions)


def trial(case: str) -> Result:
    """Check one transformer on one configuration: ``pynq_ext/7``."""
    config, seed = case.split("/")
    faults, launches = check(seed, config)
    return result(config, faults, networks=1, launches=launches, right=not faults)


CAMPAIGN = Campaign(
    lambda count: [f"{config}/{seed}" for seed in range(count) for config in CONFIGS],
    trial,
    count=100,
)
