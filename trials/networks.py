"""Networks of usual shapes, built by hand with seeded random weights; some with activation curves.

`CLASSIC` are symmetric networks of convolutions; scales are powers of two, or free (a multiplier
and a shift for each channel, as quantisers write). `CURVES` have activations that are
tables: hard-swish, SiLU and GELU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vtaops.graph import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Dense,
    Dequantize,
    Graph,
    GraphOperator,
    Matmul,
    MaxPool,
    Requantization,
    Requantize,
    Reshape,
    Slice,
    Tensor,
    Transpose,
    operators,
)

RELU = (0, 127)
LINEAR = (-128, 127)


class Builder:
    """Grows a network of convolutions with random weights."""

    def __init__(
        self, name: str, size: int, free: bool = False, batch: int = 1, seed: int = 0
    ) -> None:
        self.free = free
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(name)
        self.x = self.graph.input("image", (batch, 3, size, size))

    def convolve(
        self,
        channels: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        clip: tuple[int, int] = RELU,
        depthwise: bool = False,
        source: Tensor | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Apply a convolution to `source`, by default the last value; it becomes the last."""
        x = self.x if source is None else source
        inputs = 1 if depthwise else x.shape[1]
        shape = (channels, inputs, kernel, kernel)
        weight = np.clip(self.rng.normal(0, 24, shape), -127, 127).astype(np.int8)
        bias = self.rng.integers(-20000, 20000, channels).astype(np.int32)
        shift = round(np.log2(24 * np.sqrt(inputs * kernel * kernel)))
        op = Convolution(
            weight,
            bias,
            self.scaling(shift, channels, clip),
            strides=(stride, stride),
            padding=(kernel // 2,) * 4,
            groups=channels if depthwise else 1,
            residual_factor=None if residual is None else self.factor(shift, channels),
        )
        self.x = self.graph.add(op, x, *([] if residual is None else [residual]))
        return self.x

    def scaling(self, shift: int, channels: int, clip: tuple[int, int]) -> Requantization:
        """Return what makes int8 values of sums of about ``2**shift``."""
        if not self.free:
            return Requantization(1, shift, 0, clip)
        multipliers = self.rng.integers(1 << 15, 1 << 16, channels)
        return Requantization(multipliers, shift + 16, 0, clip)

    def factor(self, shift: int, channels: int) -> Any:
        """Return the factor of a residual beside sums of about ``2**shift``."""
        return self.rng.integers(1 << shift, 2 << shift, channels) if self.free else 1 << shift

    def apply(self, op: GraphOperator) -> None:
        """Apply any operator to the last value."""
        self.x = self.graph.add(op, self.x)

    def finish(self, classes: int) -> Graph:
        """Add the global average and the classifier."""
        batch, channels, height, width = self.x.shape
        ratio = 0.7 if self.free else 1.0
        pool = AveragePool.from_ratio(ratio, height * width, shifts_only=not self.free)
        self.apply(pool)
        self.apply(Reshape((batch, channels)))
        weight = np.clip(self.rng.normal(0, 24, (classes, channels)), -127, 127)
        bias = self.rng.integers(-20000, 20000, classes).astype(np.int32)
        self.apply(Dense(weight.astype(np.int8), bias, self.scaling(10, classes, LINEAR)))
        self.graph.output(self.x)
        return self.graph


def resnet18(free: bool = False, batch: int = 1) -> Graph:
    """ResNet-18 at 224 (arXiv 1512.03385)."""
    net = Builder("resnet18", 224, free, batch)
    net.convolve(64, 7, 2)
    net.apply(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)))
    for channels in (64, 128, 256, 512):
        _stage(net, channels, 2, 1 if channels == 64 else 2)
    return net.finish(1000)


def resnet20(free: bool = False, batch: int = 1) -> Graph:
    """ResNet-20 for CIFAR-10 (the same paper, with projections)."""
    net = Builder("resnet20", 32, free, batch)
    net.convolve(16)
    for channels in (16, 32, 64):
        _stage(net, channels, 3, 1 if channels == 16 else 2)
    return net.finish(10)


def _stage(net: Builder, channels: int, blocks: int, stride: int) -> None:
    for block in range(blocks):
        x, step = net.x, stride if block == 0 else 1
        short = x if step == 1 else net.convolve(channels, 1, step, clip=LINEAR)
        net.convolve(channels, 3, step, source=x)
        net.convolve(channels, residual=short)


def mobilenet_v1(free: bool = False, batch: int = 1) -> Graph:
    """MobileNet 1.0 at 224 (arXiv 1704.04861)."""
    net = Builder("mobilenet_v1", 224, free, batch)
    net.convolve(32, 3, 2)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for channels, stride in (*plan, (1024, 2), (1024, 1)):
        net.convolve(net.x.shape[1], 3, stride, depthwise=True)
        net.convolve(channels, 1)
    return net.finish(1000)


def mobilenet_v2(free: bool = False, batch: int = 1) -> Graph:
    """MobileNetV2 at 224 (arXiv 1801.04381)."""
    net = Builder("mobilenet_v2", 224, free, batch)
    net.convolve(32, 3, 2)
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1)]
    for expansion, channels, count, stride in (*stages, (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(count):
            x, step = net.x, stride if block == 0 else 1
            if expansion > 1:
                net.convolve(x.shape[1] * expansion, 1)
            net.convolve(net.x.shape[1], 3, step, depthwise=True)
            same = step == 1 and x.shape[1] == channels
            net.convolve(channels, 1, clip=LINEAR, residual=x if same else None)
    net.convolve(1280, 1)
    return net.finish(1000)


CLASSIC = {f.__name__: f for f in (resnet18, resnet20, mobilenet_v1, mobilenet_v2)}


# --------------------------------------------------------------------------- with curves

Curve = Callable[[Any], Any]


def growing(length: int = 12, width: int = 8, *, read: bool = False) -> Graph:
    """Return two heads of a cache to which each run adds a key, which the host may read too."""
    graph = Graph("growing")
    past = graph.input("past", (2, width, length), scale=0.5, zero_point=3)
    key, query = graph.input("key", (2, width, 1)), graph.input("query", (2, 1, width))
    own = graph.add(Requantize(Requantization(1, 0, zero_point=3)), key, name="own", scale=0.5)
    scores = graph.add(Matmul(Requantization.from_ratio(1 / 64)), query, past, name="scores")
    graph.output(scores, own)
    if read:
        graph.output(graph.add(Dequantize(), past, name="seen"))
    graph.carry({"past": "own"})
    return graph


def cache(length: int = 32, width: int = 16) -> Graph:
    """Return a cache of keys, each written at its place, and the scores of a query with all."""
    graph = Graph("cache")
    past = graph.input("past", (1, 1, length, width))
    key, query = (graph.input(name, (1, 1, 1, width)) for name in ("key", "query"))
    place = graph.input("place", (1, 1, length, 1))
    present = graph.add(Add(), past, graph.add(Matmul(), place, key), name="present")
    turned = graph.add(Transpose((0, 1, 3, 2)), present)
    scores = graph.add(Matmul(Requantization.from_ratio(1 / 256)), query, turned, name="scores")
    graph.output(scores, present)
    graph.carry({"past": "present"})
    return graph


def window() -> Graph:
    """Return the sum of three images that come one after the other."""
    graph = Graph("window")
    past, new = graph.input("past", (1, 32, 4, 4), zero_point=5), graph.input("new", (1, 16, 4, 4))
    own = graph.add(Requantize(Requantization(1, 0, zero_point=5)), new)
    joined = graph.add(Concat(1), past, own)
    first, second, third = (graph.add(Slice(1, n, n + 16), joined) for n in (0, 16, 32))
    total = graph.add(Add(), graph.add(Add(), first, second), third, name="total")
    graph.output(total, graph.add(Slice(1, 16, 48), joined, name="present"))
    graph.carry({"past": "present"})
    return graph


def hard_swish(x: Any) -> Any:
    """Return ``x * relu6(x + 3) / 6``."""
    return x * np.clip(x + 3, 0, 6) / 6


def silu(x: Any) -> Any:
    """Return ``x * sigmoid(x)``."""
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    """Return GELU, nearly: ``x * sigmoid(1.702 * x)``."""
    return x / (1 + np.exp(-1.702 * x))


class CurveBuilder:
    """A graph that grows, with random weights."""

    def __init__(self, name: str, *shape: int) -> None:
        self.graph, self.rng = Graph(name), np.random.default_rng(0)
        self.x = self.graph.input("x", shape)

    def curve(self, x: Tensor, function: Curve) -> Tensor:
        """Apply a function to steps of 1/32."""
        values = np.rint(32 * function(np.arange(-128, 128) / 32))
        table = np.clip(values, -128, 127).astype(np.int8)
        return self.graph.add(operators.LookupTable(table, 0, function.__name__), x)

    def weights(self, *shape: int) -> Any:
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def convolution(
        self,
        x: Tensor,
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        function: Curve | None = None,
        relu: bool = False,
    ) -> Tensor:
        weight = self.weights(channels, x.shape[1] // groups, kernel, kernel)
        shift = int(23 + np.log2(weight[0].size) / 2)
        scaling = Requantization(40_000, shift, 0, (0, 127) if relu else (-128, 127))
        window: dict[str, Any] = {"strides": (stride, stride), "padding": (kernel // 2,) * 4}
        y = self.graph.add(operators.Convolution(weight, None, scaling, groups=groups, **window), x)
        return self.curve(y, function) if function else y

    def sum(self, a: Tensor, b: Tensor) -> Tensor:
        return self.graph.add(operators.Add((1, 1), Requantization(1, 0)), a, b)


def mobilenet_v3_small() -> Graph:
    """Return its inverted residuals and last convolution; image of 224 x 224."""
    b = CurveBuilder("MobileNet-v3 small", 1, 16, 112, 112)
    x = b.x
    for kernel, inner, outer, curved, stride in (
        *((3, 16, 16, 0, 2), (3, 72, 24, 0, 2), (3, 88, 24, 0, 1), (5, 96, 40, 1, 2)),
        *((5, 240, 40, 1, 1), (5, 240, 40, 1, 1), (5, 120, 48, 1, 1), (5, 144, 48, 1, 1)),
        *((5, 288, 96, 1, 2), (5, 576, 96, 1, 1), (5, 576, 96, 1, 1)),
    ):
        act: dict[str, Any] = {"function": hard_swish} if curved else {"relu": True}
        y = x if inner == x.shape[1] else b.convolution(x, inner, **act)
        y = b.convolution(y, inner, kernel, stride, groups=inner, **act)
        y = b.convolution(y, outer)
        x = b.sum(y, x) if stride == 1 and outer == x.shape[1] else y
    b.graph.output(b.convolution(x, 576, function=hard_swish))
    return b.graph


def yolov8n() -> Graph:
    """Return its four stages of C2f; image of 320 x 320."""
    b = CurveBuilder("YOLOv8n backbone", 1, 16, 160, 160)
    x = b.x
    for channels, count in ((32, 1), (64, 2), (128, 2), (256, 1)):
        x = b.convolution(x, channels, 3, 2, function=silu)
        x, half = b.convolution(x, channels, function=silu), channels // 2
        parts = [b.graph.add(operators.Slice(1, k * half, (k + 1) * half), x) for k in (0, 1)]
        for _ in range(count):
            y = b.convolution(parts[-1], half, 3, function=silu)
            parts.append(b.sum(b.convolution(y, half, 3, function=silu), parts[-1]))
        x = b.convolution(b.graph.add(operators.Concat(), *parts), channels, function=silu)
    b.graph.output(x)
    return b.graph


def vit_tiny() -> Graph:
    """Return two pairs of dense layers with GELU."""
    b = CurveBuilder("ViT-Tiny, two pairs of dense layers", 197, 192)
    x = b.x
    for _ in range(2):
        for size in (768, 192):
            weight = b.weights(size, x.shape[1])
            x = b.graph.add(operators.Dense(weight, None, Requantization(40_000, 27)), x)
            x = b.curve(x, gelu) if size == 768 else x
    b.graph.output(x)
    return b.graph


CURVES = {f.__name__: f for f in (mobilenet_v3_small, yolov8n, vit_tiny)}
