"""Small float networks whose tasks were lost to int8 where no device asked for it.

Each returns a float ONNX model and calibration data by the names of its inputs: attention under a
mask of -10000 and of the least float, a residual stream of tokens of magnitude 1 to 30 before RMS
norms, boxes and scores in one Concat, a power spectrum before its logarithm, a filter bank of
octaves, none of which brings the output back alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trials.onnx_models import Builder

Case = tuple[Any, dict[str, np.ndarray[Any, Any]]]
SAMPLES, TOKENS, FEATURES, HEADS, LAYERS = 16, 12, 32, 4, 2


class _Layers(Builder):
    """A builder with the layers of transformers."""

    def number(self, value: float) -> str:
        return str(self.constant(np.float32(value)))

    def weight(self, rows: int, columns: int) -> str:
        value = self.rng.standard_normal((rows, columns)) / np.sqrt(rows)
        return str(self.constant(value.astype(np.float32)))

    def linear(self, x: str, rows: int, columns: int, *, bias: bool = True) -> str:
        y = str(self.add("MatMul", x, self.weight(rows, columns)))
        if not bias:
            return y
        return str(self.add("Add", y, self.constant(self.rng.normal(0, 0.1, columns).astype("f"))))

    def shaped(self, x: str, *shape: int) -> str:
        return str(self.add("Reshape", x, self.constant(np.array(shape))))

    def heads(self, x: str, perm: list[int]) -> str:
        split = self.shaped(x, 1, TOKENS, HEADS, FEATURES // HEADS)
        return str(self.add("Transpose", split, perm=perm))

    def attention(self, x: str, mask: str, *, bias: bool) -> str:
        query, key, value = (
            self.heads(self.linear(x, FEATURES, FEATURES, bias=bias), perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = self.add("MatMul", query, key)
        scores = self.add("Mul", scores, self.number((FEATURES // HEADS) ** -0.5))
        scores = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", scores, value), perm=[0, 2, 1, 3])
        joined = self.shaped(mixed, 1, TOKENS, FEATURES)
        return self.linear(joined, FEATURES, FEATURES, bias=bias)

    def layer_norm(self, x: str) -> str:
        weight, bias = self.rng.uniform(0.5, 2, FEATURES), self.rng.normal(0, 0.2, FEATURES)
        parts = [self.constant(v.astype(np.float32)) for v in (weight, bias)]
        return str(self.add("LayerNormalization", x, *parts, axis=-1))

    def rms_norm(self, x: str) -> str:
        square = self.add("Pow", x, self.number(2))
        mean = self.add("ReduceMean", square, axes=[-1], keepdims=1)
        root = self.add("Sqrt", self.add("Add", mean, self.number(1e-6)))
        weight = self.constant(self.rng.uniform(0.5, 1.5, FEATURES).astype(np.float32))
        return str(self.add("Mul", weight, self.add("Mul", x, self.add("Reciprocal", root))))

    def gelu(self, x: str) -> str:
        curve = self.add("Erf", self.add("Div", x, self.number(2**0.5)))
        product = self.add("Mul", x, self.add("Add", curve, self.number(1)))
        return str(self.add("Mul", product, self.number(0.5)))


def encoder(layers: int = LAYERS) -> Case:
    """A BERT of some layers; the mask of the inputs becomes -10000."""
    b, rng = _Layers(0), np.random.default_rng(9)
    x, mask = (
        b.input([1, TOKENS, FEATURES]),
        b.shaped(b.input([1, TOKENS], "mask"), 1, 1, 1, TOKENS),
    )
    mask = b.add("Mul", b.add("Sub", b.number(1), mask), b.number(-10000))
    x = b.layer_norm(x)
    for _ in range(layers):
        x = b.layer_norm(b.add("Add", b.attention(x, mask, bias=True), x))
        wide = b.gelu(b.linear(x, FEATURES, 4 * FEATURES))
        x = b.layer_norm(b.add("Add", b.linear(wide, 4 * FEATURES, FEATURES), x))
    b.output(b.linear(x, FEATURES, 5))
    lengths = rng.integers(TOKENS // 2, TOKENS + 1, (SAMPLES, 1))
    masks = (np.arange(TOKENS) < lengths).astype(np.float32)
    return b.model(), {"x": _normal(rng, TOKENS, FEATURES), "mask": masks}


def decoder(layers: int = LAYERS) -> Case:
    """Some layers of a llama, whose tokens have magnitudes of 1 to 32."""
    b, rng = _Layers(1), np.random.default_rng(3)
    hidden = np.triu(np.ones((1, 1, TOKENS, TOKENS), bool), 1)
    mask = b.constant(np.where(hidden, np.finfo(np.float32).min, np.float32(0)))
    x = b.input([1, TOKENS, FEATURES])
    for _ in range(layers):
        x = b.add("Add", x, b.attention(b.rms_norm(x), mask, bias=False))
        y = b.rms_norm(x)
        gate, up = (b.linear(y, FEATURES, 3 * FEATURES, bias=False) for _ in range(2))
        wide = b.add("Mul", b.add("Mul", gate, b.add("Sigmoid", gate)), up)
        x = b.add("Add", x, b.linear(wide, 3 * FEATURES, FEATURES, bias=False))
    b.output(b.linear(b.rms_norm(x), FEATURES, 20, bias=False))
    sizes = 2.0 ** rng.uniform(0, 5, (1, TOKENS, 1))
    return b.model(), {"x": (_normal(rng, TOKENS, FEATURES) * sizes).astype(np.float32)}


def detector() -> Case:
    """Boxes of hundreds of pixels and scores below 1 as rows of one output."""
    b, rng = _Layers(2), np.random.default_rng(4)
    y = b.conv(b.input([1, 3, 16, 16]), 3, 16, relu=True, strides=[2, 2])
    y = b.conv(y, 16, 16, relu=True)
    boxes = b.add("Mul", b.conv(y, 16, 4, kernel=1), b.number(40))
    scores = b.add("Sigmoid", b.conv(y, 16, 1, kernel=1))
    parts = [b.shaped(boxes, 1, 4, 64), b.shaped(scores, 1, 1, 64)]
    b.output(b.add("Concat", *parts, axis=1))
    return b.model(), {"x": _normal(rng, 3, 16, 16)}


def spectrum() -> Case:
    """A judge of sounds: real and imaginary parts, their power, its logarithm, convolutions."""
    b, rng = _Layers(5), np.random.default_rng(6)
    x = b.input([1, 1, 1, 256])
    weights = [b.constant(b.rng.standard_normal((16, 1, 1, 32)).astype("f")) for _ in range(2)]
    real, imaginary = (b.add("Conv", x, weight, strides=[1, 16]) for weight in weights)
    power = b.add("Add", *(b.add("Mul", part, part) for part in (real, imaginary)))
    y = b.add("Transpose", b.add("Log", b.add("Add", power, b.number(1e-3))), perm=[0, 2, 1, 3])
    y = b.conv(b.conv(y, 1, 8, relu=True), 8, 8, relu=True)
    b.output(b.gemm(b.add("Flatten", b.add("GlobalAveragePool", y)), 8, 3))
    loud = 2.0 ** rng.uniform(-3, 2, (SAMPLES, 1, 1, 1))
    return b.model(), {"x": (_normal(rng, 1, 1, 256) * loud).astype(np.float32)}


def octaves() -> Case:
    """A filter bank: each octave is a lower half of the band before, its bands by logarithm."""
    b, rng = _Layers(7), np.random.default_rng(8)
    angles = np.pi * np.outer(2.0 ** -np.linspace(0.1, 1, 8), np.arange(16))
    waves = [np.float32(wave(angles) / 16)[:, None] for wave in (np.cos, np.sin)]
    half = np.float32(np.hanning(17)[None, None, 1:] / 8)
    x, bands = b.input([1, 1, 1008]), []
    for octave in range(5):
        parts = [b.add("Conv", x, b.constant(wave), strides=[32 >> octave]) for wave in waves]
        power = b.add("Add", *(b.add("Mul", part, part) for part in parts))
        ends = [b.constant(np.array(end)) for end in ([0], [16], [2])]
        bands.append(b.add("Slice", power, *ends))
        x = b.add("Conv", x, b.constant(half), strides=[2], pads=[8, 8])
    y = b.add("Log", b.add("Add", b.add("Concat", *bands, axis=1), b.number(1e-9)))
    y = b.conv(b.add("Unsqueeze", y, b.constant(np.array([1]))), 1, 32, relu=True)
    b.output(b.conv(b.conv(y, 32, 32, relu=True), 32, 2))
    waves = np.cumsum(rng.standard_normal((SAMPLES, 1, 1008)), axis=2)
    return b.model(), {"x": (waves - waves.mean(axis=2, keepdims=True)).astype(np.float32)}


def faces() -> Case:
    """Scores of a detector, compared with 0: most near it, those of some places far below."""
    b, rng = _Layers(9), np.random.default_rng(10)
    y = b.conv(b.conv(b.input([1, 3, 16, 16]), 3, 24, relu=True), 24, 24, relu=True)
    weights = b.rng.standard_normal((1, 24, 1, 1)).astype(np.float32) / 24
    score = b.add("Conv", y, b.constant(weights))
    rare = b.add("Relu", b.add("Sub", b.conv(y, 24, 1, kernel=1), b.number(2)))
    both = b.add("Concat", score, rare, axis=1)
    far = np.float32([[[[1]], [[-40]]]])
    b.output(b.add("Conv", both, b.constant(far)))
    return b.model(), {"x": _normal(rng, 3, 16, 16)}


def _normal(rng: Any, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal((SAMPLES, *shape)).astype(np.float32)


CASES = {
    "encoder": encoder,
    "decoder": decoder,
    "detector": detector,
    "spectrum": spectrum,
    "octaves": octaves,
    "faces": faces,
}
