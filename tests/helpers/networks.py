"""Networks built by hand with random weights: shifts only, symmetric; for tests and benchmarks."""

from __future__ import annotations

import numpy as np

from vtaops.graph import AveragePool, Convolution, Dense, Graph, MaxPool, Requantization, Reshape

RELU = (0, 127)


def resnet18(size: int = 224, seed: int = 0) -> Graph:
    """ResNet-18 on int8 images (1, 3, size, size), 1000 scores."""
    rng = np.random.default_rng(seed)
    graph = Graph("resnet18")

    def convolve(x, channels, kernel, stride, residual=None, relu=True):
        inputs = x.shape[1]
        weight = np.clip(rng.normal(0, 24, (channels, inputs, kernel, kernel)), -127, 127)
        bias = rng.integers(-20000, 20000, channels).astype(np.int32)
        # The spread of the sums: activations of about 32 times weights of about 24.
        shift = round(np.log2(24 * np.sqrt(inputs * kernel * kernel)))
        op = Convolution(
            weight.astype(np.int8),
            bias,
            Requantization(1, shift, 0, RELU if relu else (-128, 127)),
            strides=(stride, stride),
            padding=(kernel // 2,) * 4,
            residual_factor=None if residual is None else 1 << shift,
        )
        return graph.add(op, x, *([] if residual is None else [residual]))

    x = graph.input("image", (1, 3, size, size))
    x = convolve(x, 64, 7, 2)
    x = graph.add(MaxPool((3, 3), (2, 2), (1, 1, 1, 1)), x)
    for channels in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and channels > 64 else 1
            short = x if stride == 1 else convolve(x, channels, 1, stride, relu=False)
            x = convolve(convolve(x, channels, 3, stride), channels, 3, 1, residual=short)
    count = x.shape[2] * x.shape[3]
    x = graph.add(AveragePool.from_ratio(1.0, count, shifts_only=True), x)
    x = graph.add(Reshape((1, 512)), x)
    weight = np.clip(rng.normal(0, 24, (1000, 512)), -127, 127).astype(np.int8)
    bias = rng.integers(-20000, 20000, 1000).astype(np.int32)
    graph.output(graph.add(Dense(weight, bias, Requantization(1, 10)), x))
    return graph
