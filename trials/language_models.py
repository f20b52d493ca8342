"""Float language models of Llama's family with random weights, as exporters write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trials.onnx_models import Builder


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: `heads` of queries share `shared` ones of keys and values."""

    layers: int = 2
    tokens: int = 16
    width: int = 32
    heads: int = 4
    shared: int = 2
    hidden: int = 64
    vocabulary: int = 20


class Llama(Builder):
    """A decoder: it reads embedded tokens, and writes the logits behind the last one.

    Parameters
    ----------
    shape : Shape
        Its sizes.
    opset : int
        From 23 on, norms are RMSNormalization, otherwise single operators.
    pairs : bool
        Whether positions rotate adjacent channels, as in llama2.c, and not halves of a head.
    """

    def __init__(
        self, shape: Shape, seed: int = 0, opset: int = 17, *, pairs: bool = False
    ) -> None:
        super().__init__(seed)
        self.shape, self.opset, self.each = shape, opset, shape.width // shape.heads
        self.pairs = pairs
        self.mask = self.floats(np.triu(np.full((1, 1, shape.tokens, shape.tokens), -3e38), 1))
        steps = 10000.0 ** -(np.arange(0, self.each, 2) / self.each)
        angles = np.outer(np.arange(shape.tokens), steps)
        angles = angles[None, :, None] if pairs else np.tile(angles, 2)[None, None]
        self.turns = self.floats(np.cos(angles)), self.floats(np.sin(angles))
        x = self.input([1, shape.tokens, shape.width])
        for _ in range(shape.layers):
            x = self.add("Add", x, self.attention(self.norm(x)))
            x = self.add("Add", x, self.gated(self.norm(x)))
        x = self.sliced(self.norm(x), 1, shape.tokens - 1, shape.tokens)
        self.output(self.linear(x, shape.width, shape.vocabulary))

    def build(self) -> Any:
        """Return the ONNX model."""
        return self.model(self.opset)

    def data(self, count: int = 8) -> np.ndarray[Any, Any]:
        """Return embedded tokens."""
        size = count, self.shape.tokens, self.shape.width
        return np.random.default_rng(1).standard_normal(size).astype(np.float32)

    def floats(self, value: Any) -> str:
        return str(self.constant(np.asarray(value, np.float32)))

    def linear(self, x: str, rows: int, columns: int) -> str:
        weight = self.rng.standard_normal((rows, columns)) / np.sqrt(rows)
        return str(self.add("MatMul", x, self.floats(weight)))

    def shaped(self, x: str, *shape: int) -> str:
        return str(self.add("Reshape", x, self.constant(np.array(shape))))

    def sliced(self, x: str, axis: int, first: int, behind: int) -> str:
        bounds = (self.constant(np.array([value])) for value in (first, behind, axis))
        return str(self.add("Slice", x, *bounds))

    def norm(self, x: str) -> str:
        """Return an RMS norm."""
        weight = self.floats(self.rng.uniform(0.5, 1.5, self.shape.width))
        if self.opset >= 23:
            return str(self.add("RMSNormalization", x, weight, axis=-1, epsilon=1e-6))
        square = self.add("Pow", x, self.floats(2))
        axes = {} if self.opset >= 18 else {"axes": [-1]}
        last = [self.constant(np.array([-1]))] if self.opset >= 18 else []
        mean = self.add("ReduceMean", square, *last, keepdims=1, **axes)
        root = self.add("Sqrt", self.add("Add", mean, self.floats(1e-6)))
        return str(self.add("Mul", weight, self.add("Mul", x, self.add("Reciprocal", root))))

    def split(self, x: str, heads: int, *, placed: bool = True) -> str:
        """Return heads, rotated by their positions if they are placed."""
        shape = 1, self.shape.tokens, heads, self.each
        parts = self.shaped(self.linear(x, self.shape.width, heads * self.each), *shape)
        parts = self.rotated_pairs(parts, heads) if placed and self.pairs else parts
        parts = str(self.add("Transpose", parts, perm=[0, 2, 1, 3]))
        return self.rotated(parts) if placed and not self.pairs else parts

    def rotated_pairs(self, x: str, heads: int) -> str:
        """Return heads whose adjacent channels are rotated."""
        tokens, last = self.shape.tokens, self.constant(np.array([4]))
        pairs = self.shaped(x, 1, tokens, heads, self.each // 2, 2)
        even, odd = (self.add("Squeeze", self.sliced(pairs, 4, at, at + 1), last) for at in (0, 1))
        (a, b), (c, d) = (
            [self.add("Mul", part, turn) for turn in self.turns] for part in (even, odd)
        )
        found = self.add("Sub", a, d), self.add("Add", b, c)
        joined = self.add("Concat", *(self.add("Unsqueeze", t, last) for t in found), axis=4)
        return self.shaped(joined, 1, tokens, heads, self.each)

    def rotated(self, x: str) -> str:
        """Return heads whose halves are rotated by their positions."""
        half = self.each // 2
        back = self.add("Neg", self.sliced(x, 3, half, self.each))
        turned = self.add("Concat", back, self.sliced(x, 3, 0, half), axis=-1)
        cosine, sine = (
            self.add("Mul", *pair) for pair in zip((x, turned), self.turns, strict=True)
        )
        return str(self.add("Add", cosine, sine))

    def repeated(self, x: str) -> str:
        """Return keys or values for all heads of queries."""
        shape = self.shape
        x = self.shaped(x, 1, shape.shared, 1, shape.tokens, self.each)
        size = 1, shape.shared, shape.heads // shape.shared, shape.tokens, self.each
        x = str(self.add("Expand", x, self.constant(np.array(size))))
        return self.shaped(x, 1, shape.heads, shape.tokens, self.each)

    def attention(self, x: str) -> str:
        shape = self.shape
        query = self.split(x, shape.heads)
        key = self.repeated(self.split(x, shape.shared))
        value = self.repeated(self.split(x, shape.shared, placed=False))
        scores = self.add("MatMul", query, self.add("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.add("Add", self.add("Mul", scores, self.floats(self.each**-0.5)), self.mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        mixed = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.linear(self.shaped(mixed, 1, -1, shape.width), shape.width, shape.width)

    def gated(self, x: str) -> str:
        """Return a layer with a gate."""
        width, hidden = self.shape.width, self.shape.hidden
        gate, up = (self.linear(x, width, hidden) for _ in range(2))
        gate = self.add("Mul", gate, self.add("Sigmoid", gate))
        return self.linear(self.add("Mul", gate, up), hidden, width)
