"""Random networks for the tests: branches, residuals, concatenations, slices, batches; by seed.

Scales are powers of two unless asked otherwise, so that plain VTA can execute nearly all of it;
zero points are anything. Free scales have a multiplier and a shift, half of them for each channel.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops import HardwareConfig
from vtaops.base.shapes import ceil_div
from vtaops.base.window import Window
from vtaops.errors import ShapeError
from vtaops.graph import (
    Add,
    AveragePool,
    Concat,
    Constant,
    Convolution,
    Dense,
    Dequantize,
    Expand,
    Extremum,
    Graph,
    LookupTable,
    Matmul,
    MaxPool,
    Multiply,
    Pad,
    Quantize,
    Requantization,
    Requantize,
    Reshape,
    Slice,
    Tensor,
    Transpose,
    TransposedConvolution,
    Upsample,
)
from vtaops.graph.executor import evaluate_runs
from vtaops.machine.config import Extension
from vtaops.model import Model
from vtaops.model.artefact import dumps, loads
from vtaops.network.functions import functions_as_tables
from vtaops.runtime import Fsim
from vtaops.runtime.arguments import as_tuple

LARGEST = 4096
"""Scalars of an image: larger ones are not grown further."""


def shuffled(graph: Graph, x: Tensor, groups: int) -> Tensor:
    """Return an image whose channel ``i * groups + g`` is channel ``g * (C // groups) + i``."""
    n, channels, *size = x.shape
    apart = graph.add(Reshape((n, groups, channels // groups, *size)), x)
    return graph.add(Reshape(x.shape), graph.add(Transpose((0, 2, 1, 3, 4)), apart))


class RandomGraph:
    """Grows a graph operator by operator; `values` are the images so far."""

    narrow = False
    """Whether all weights have four bits."""

    def __init__(
        self,
        seed: int,
        *,
        operators: int = 10,
        free: bool = False,
        wide: bool = False,
        batch: int = 0,
        views: bool = False,
    ) -> None:
        self.free = free
        self.wide = wide
        self.views = views
        self.rng = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.narrow = free and random.Random(f"narrow {seed}").random() < 0.3
        self.batch = batch or random.Random(f"batch {seed}").randint(1, 4)
        self.graph = Graph(f"random_{seed}")
        self.values = []
        size = self.rng.randint(4, 10), self.rng.randint(4, 10)
        for number in range(self.rng.randint(1, 3)):
            shape = (self.batch, self.rng.choice([3, 16, self.rng.randint(1, 40)]), *size)
            if self.rng.random() < 0.3:
                x = self.graph.input(f"x{number}", shape, "float32")
                x = self.graph.add(Quantize(0.25, self.zero_point()), x)
            else:
                x = self.graph.input(f"x{number}", shape, zero_point=self.zero_point())
            self.values.append(x)
        while len(self.graph.nodes) < operators:
            self.grow()
        self.finish()

    def zero_point(self) -> int:
        return self.rng.choice([0, 0, 0, -128, self.rng.randint(-128, 127)])

    def scaling(self, shift: int | None = None, channels: int = 1) -> Requantization:
        """Draw scales that shift sums by about `shift` bits; free ones may be of `channels`."""
        zero = self.zero_point()
        shift = self.rng.randint(0, 9) if shift is None else shift
        low = self.rng.choice([-128, zero])
        high = self.rng.choice([127, 127, self.rng.randint(low, 127), low])
        if not self.free:
            return Requantization(1, shift, zero, (low, high))
        size = self.rng.choice([(), (channels,)] if channels > 1 else [()])
        multiplier = self.np.integers(1 << 15, 1 << 16, size)
        shifts = shift + 15 + self.np.integers(-1, 2, size)
        if self.rng.random() < 0.1:  # anything that there is
            multiplier, shifts = self.np.integers(0, 1 << 16, size), self.np.integers(0, 48, size)
        return Requantization(multiplier, shifts, zero, (low, high))

    def weights(self, *shape: int) -> np.ndarray:
        return self.np.integers(-128, 128, shape).astype(np.int8) >> 4 * self.narrow

    def bias(self, channels: int) -> np.ndarray | None:
        if self.rng.random() < 0.3:
            return None
        return self.np.integers(-20000, 20000, channels).astype(np.int32)

    def pick(self, predicate=lambda tensor: True):
        found = [value for value in self.values if predicate(value)]
        return self.rng.choice(found) if found else None

    def grow(self) -> None:
        kinds = [
            self.convolution,
            self.convolution,
            self.depthwise,
            self.residual,
            self.add,
            self.concat,
            self.concat,
            self.pool,
            self.slice,
            self.move,
            self.elementwise,
            self.transposed,
            self.product,
        ]
        if self.batch > 1:
            kinds += [self.split, self.concat]
        if self.views:
            kinds += [self.line, self.last, self.rows, self.repeated, self.border] * 3
            kinds += [self.odd_pool, self.stacked, self.rolled] * 4
        if self.wide:
            kinds += [self.prelu, self.gate, self.large_pool, self.pixels, self.transposed] * 2
        try:
            made = self.rng.choice(kinds)()
        except ShapeError:
            return  # it does not fit what there is
        if made is not None:
            self.values.append(made)

    def sides(self) -> tuple[int, int, int, int]:
        return tuple(self.rng.choice([0, 1, self.rng.randint(0, 2)]) for _ in range(4))

    def convolution(self):
        x = self.pick()
        kernel = self.rng.randint(1, 3), self.rng.randint(1, 3)
        groups = self.rng.choice([1, 1, 1, 2])
        channels = self.rng.choice([16, 32, self.rng.randint(1, 24)]) * groups
        if x.shape[1] % groups:
            return None
        op = Convolution(
            self.weights(channels, x.shape[1] // groups, *kernel),
            self.bias(channels),
            self.scaling(self.rng.randint(6, 14), channels),
            strides=self.rng.choice([(1, 1), (1, 1), (2, 2), (2, 1)]),
            padding=self.sides(),
            dilation=self.rng.choice([(1, 1), (1, 1), (2, 1)]),
            groups=groups,
        )
        return self.graph.add(op, x)

    def depthwise(self):
        x = self.pick()
        op = Convolution(
            self.weights(x.shape[1], 1, 3, 3),
            self.bias(x.shape[1]),
            self.scaling(self.rng.randint(6, 10), x.shape[1]),
            padding=self.sides(),
            groups=x.shape[1],
        )
        return self.graph.add(op, x)

    def residual(self):
        r = self.pick()
        x = self.pick(lambda t: t.shape[2:] == r.shape[2:])
        shift = self.rng.randint(6, 12)
        factor = self.rng.choice([1 << self.rng.randint(0, shift), 3 << self.rng.randint(0, shift)])
        if self.free:
            size = self.rng.choice([(), (r.shape[1],)])
            factor = self.np.integers(1, self.rng.choice([100, 5000, 32640]), size)
        op = Convolution(
            self.weights(r.shape[1], x.shape[1], 3, 3),
            self.bias(r.shape[1]),
            self.scaling(shift, r.shape[1]),
            padding=(1, 1, 1, 1),
            residual_factor=factor,
        )
        return self.graph.add(op, x, r)

    def add(self):
        a = self.pick()
        b = self.pick(lambda t: t.shape == a.shape)
        shift = self.rng.randint(0, 4)
        factors = self.rng.choice([(1, 1), (1, 2), (4, 1), (3, -1), (1, 1 << shift)])
        if self.free and self.rng.random() < 0.7:
            greatest = self.rng.choice([127, 32639])
            factors = [self.rng.choice([1, -1]) * self.rng.randint(1, greatest) for _ in "ab"]
            shift = 10
        return self.graph.add(Add(factors, self.scaling(shift)), a, b)

    def concat(self):
        first = self.pick()
        same = [
            t
            for t in self.values
            if t.shape[2:] == first.shape[2:] and t.zero_point == first.zero_point
        ]
        count = self.rng.randint(1, 3)
        tensors = [first, *(self.rng.choice(same) for _ in range(count))]
        if sum(t.elements for t in tensors) > LARGEST:
            return None
        return self.graph.add(Concat(1), *tensors)

    def pool(self):
        x = self.pick()
        kernel = self.rng.randint(1, 3), self.rng.randint(1, 3)
        window = {
            "kernel": kernel,
            "strides": self.rng.choice([(1, 1), (2, 2)]),
            "padding": tuple(self.rng.randint(0, kernel[i % 2] - 1) for i in range(4)),
        }
        if self.rng.random() < 0.5:
            return self.graph.add(MaxPool(**window), x)
        if kernel == (1, 1):
            window, kernel = {}, x.shape[2:]  # the whole image
        pool = AveragePool.from_ratio(
            self.rng.choice([0.37, 1.4] if self.free else [0.5, 1.0]),
            kernel[0] * kernel[1],
            shifts_only=not self.free,
            zero_point=self.zero_point(),
            exclude_padding=bool(window) and self.rng.random() < 0.5,
            **window,
        )
        return self.graph.add(pool, x)

    def slice(self):
        x = self.pick(lambda t: t.shape[1] > 1)
        if x is None:
            return None
        start = self.rng.randint(0, x.shape[1] - 1)
        stop = self.rng.randint(start + 1, x.shape[1])
        return self.graph.add(Slice(1, start, stop, self.rng.choice([1, 1, 2])), x)

    def split(self):
        """Cut an image in two, at any channel or at the edge of a tile."""
        x = self.pick(lambda t: t.shape[1] > 1)
        if x is None:
            return None
        channels = x.shape[1]
        edges = [*range(8, channels, 8)]
        cut = self.rng.choice([self.rng.randint(1, channels - 1), *edges[:1], *edges[1:2]])
        self.values.append(self.graph.add(Slice(1, 0, cut), x))
        return self.graph.add(Slice(1, cut, channels), x)

    def move(self):
        x = self.pick()
        groups = [d for d in range(2, x.shape[1]) if x.shape[1] % d == 0]
        if groups and self.rng.random() < 0.6:
            return shuffled(self.graph, x, self.rng.choice(groups))
        if self.rng.random() < 0.5 and x.elements * 4 <= LARGEST:
            return self.graph.add(Upsample((2, self.rng.randint(1, 2))), x)
        return self.graph.add(Pad(self.sides()), x)

    def elementwise(self):
        x = self.pick()
        kind = self.rng.randint(0, 4)
        if kind == 0:
            return self.sloped(x, 8, 1, Requantization(1, 3))
        if kind == 1:
            other = self.pick(lambda t: t.shape == x.shape)
            return self.graph.add(Multiply(self.scaling(6)), x, other)
        if kind == 4:
            other = self.pick(lambda t: t.shape == x.shape and t.zero_point == x.zero_point)
            return self.graph.add(Extremum(self.rng.choice(["maximum", "minimum"])), x, other)
        if kind == 2 and self.rng.random() < 0.3:
            return self.graph.add(LookupTable(self.weights(256), self.zero_point()), x)
        return self.graph.add(Requantize(self.scaling(self.rng.randint(0, 2))), x)

    def prelu(self):
        x = self.pick()
        factors = self.np.integers(-60, 65, self.rng.choice([(), (x.shape[1],)]))
        return self.sloped(x, 64, factors, self.scaling(6))

    def sloped(self, x, positive, negative, scaling):
        """Add a leaky ReLU, as the table that importers make of it."""
        steps = np.arange(-128, 128) - x.zero_point
        products = steps * np.where(steps >= 0, positive, np.asarray(negative)[..., None])
        return self.graph.add(LookupTable(scaling.apply(products), scaling.zero_point), x)

    def gate(self):
        x = self.pick()
        pool = AveragePool.from_ratio(1.0, x.shape[2] * x.shape[3], shifts_only=not self.free)
        weights = self.weights(x.shape[1], x.shape[1], 1, 1)
        squeezed = self.graph.add(pool, x)
        excite = Convolution(weights, self.bias(x.shape[1]), self.scaling(8, x.shape[1]))
        return self.graph.add(Multiply(self.scaling(7)), x, self.graph.add(excite, squeezed))

    def large_pool(self):
        """Make an image that is larger than its scratchpad, and the mean of it."""
        x = self.pick(lambda t: t.shape[1] <= 32)
        if x is None:
            return None
        factors = (ceil_div(self.rng.randint(40, 70), x.shape[2]),) * 2
        if x.elements * factors[0] ** 2 > 200_000:
            return None
        large = self.graph.add(Upsample(factors), x)
        count = large.shape[2] * large.shape[3]
        return self.graph.add(
            AveragePool.from_ratio(
                self.rng.choice([0.37, 1.4] if self.free else [0.5, 1.0]),
                count,
                shifts_only=not self.free,
                zero_point=self.zero_point(),
            ),
            large,
        )

    def pixels(self):
        """Channels to pixels, or pixels to channels."""
        x = self.pick()
        _, c, h, w = x.shape
        size = self.rng.choice([2, 2, 3])
        unchanged = Requantization(1, 0, x.zero_point)
        if self.rng.random() < 0.5 and c % size**2 == 0:
            order = self.rng.choice([(0, 1, 2), (2, 0, 1)])
            parts = np.arange(c).reshape(
                (-1, size, size) if order == (0, 1, 2) else (size, size, -1)
            )
            weight = np.zeros((c, c // size**2, size, size), np.int8)
            np.put_along_axis(weight, parts.transpose(order)[None], 1, axis=0)
            return self.graph.add(
                TransposedConvolution(weight, None, unchanged, strides=(size, size)), x
            )
        if h % size or w % size or c * size**2 > 64:
            return None
        weight = np.eye(c * size**2, dtype=np.int8).reshape(-1, c, size, size)
        return self.graph.add(Convolution(weight, None, unchanged, strides=(size, size)), x)

    def transposed(self):
        x = self.pick()
        channels = self.rng.choice([16, self.rng.randint(1, 20)])
        if x.elements > LARGEST // 4:
            return None
        if self.views:
            return self.grouped_transposed(x)
        op = TransposedConvolution(
            self.weights(x.shape[1], channels, self.rng.randint(1, 4), self.rng.randint(2, 3)),
            self.bias(channels),
            self.scaling(self.rng.randint(6, 14), channels),
            strides=(self.rng.randint(1, 2), 2),
            padding=(self.rng.randint(0, 1), 0, 0, self.rng.randint(0, 1)),
        )
        return self.graph.add(op, x)

    def grouped_transposed(self, x):
        inputs = x.shape[1]
        groups = self.rng.choice([d for d in range(1, inputs + 1) if inputs % d == 0])
        outputs = self.rng.randint(1, 3) if groups > 4 else self.rng.randint(1, 8)
        strides = self.rng.randint(1, 3), self.rng.randint(1, 2)
        op = TransposedConvolution(
            self.weights(inputs, outputs, self.rng.randint(1, 3), self.rng.randint(1, 3)),
            self.bias(outputs * groups),
            self.scaling(self.rng.randint(6, 14), outputs * groups),
            strides=strides,
            padding=self.sides(),
            output_padding=(self.rng.randint(0, strides[0] - 1), 0),
            dilation=self.rng.choice([(1, 1), (1, 2), (2, 1)]),
            groups=groups,
        )
        return self.graph.add(op, x)

    def product(self):
        """Multiply an image by another one, or by itself, as attention does: by heads."""
        a = self.pick()
        b = self.pick(lambda t: t.shape[1] == a.shape[1])
        heads = self.rng.choice([d for d in range(1, a.shape[1] + 1) if a.shape[1] % d == 0])
        rows, columns = (self.matrices(x, heads) for x in (a, b))
        if self.rng.random() < 0.5:  # as scores: channels are summed; else as mixtures: pixels
            product = self.graph.add(
                Matmul(self.scaling(self.rng.randint(6, 12))), self.turned(rows), columns
            )
        elif a.shape == b.shape:
            scores = self.graph.add(
                Matmul(self.scaling(self.rng.randint(6, 12))), rows, self.turned(columns)
            )
            product = self.graph.add(Matmul(self.scaling(self.rng.randint(4, 10))), scores, rows)
        else:
            return None
        if product.elements > LARGEST:
            return None
        return self.graph.add(Reshape((self.batch, -1, *product.shape[-2:])), product)

    def matrices(self, image, heads: int):
        """Return an image as matrices (1, heads, channels, pixels), or (heads, ...)."""
        n, channels, height, width = image.shape
        matrices = heads, channels // heads, height * width
        joined = n * heads, *matrices[1:]
        return self.graph.add(Reshape(self.rng.choice([(n, *matrices), joined])), image)

    def turned(self, matrices):
        *leading, rows, columns = range(len(matrices.shape))
        return self.graph.add(Transpose((*leading, columns, rows)), matrices)

    def line(self):
        """Images as lines (N, C, L), on which something may happen, and as images again."""
        x = self.pick()
        n, channels, height, width = x.shape
        line = self.graph.add(Reshape((n, channels, height * width)), x)
        kind = self.rng.randint(0, 3)
        if kind == 1:
            line = self.graph.add(Requantize(self.scaling(1, channels)), line)
        elif kind == 2:
            line = self.graph.add(Concat(self.rng.choice([1, 1, 2])), line, line)
        elif kind == 3 and channels > 1:
            line = self.graph.add(Slice(1, self.rng.randint(0, channels - 1), channels), line)
        n, channels, length = line.shape
        if math.prod(line.shape) > LARGEST:
            return None
        size = self.rng.choice([(height, length // height), (1, length), (length, 1)])
        return self.graph.add(Reshape((n, channels, *size)), line)

    def dense(self, x, outputs: int):
        op = Dense(
            self.weights(outputs, x.shape[-1]),
            self.bias(outputs),
            self.scaling(self.rng.randint(5, 10), outputs),
        )
        return self.graph.add(op, x)

    def last(self):
        """Products with channels last: by axes, or as rows."""
        x = self.pick()
        n, channels, height, width = x.shape
        outputs = self.rng.choice([channels, 16, self.rng.randint(1, 20)])
        if n * outputs * height * width > LARGEST:
            return None
        as_rows = self.rng.random() < 0.4
        if as_rows:
            x = self.graph.add(Reshape((n, channels, height * width)), x)
        y = self.dense(
            self.graph.add(Transpose((0, 2, 1) if as_rows else (0, 2, 3, 1)), x), outputs
        )
        if self.rng.random() < 0.5:
            y = self.graph.add(Requantize(self.scaling(1)), y)
        y = self.graph.add(Transpose((0, 2, 1) if as_rows else (0, 3, 1, 2)), y)
        return self.graph.add(Reshape((n, outputs, height, width)), y) if as_rows else y

    def rows(self):
        """A product with the last axis of an image, in some rank."""
        x = self.pick()
        n, channels, height, width = x.shape
        shape = self.rng.choice(
            [x.shape, (n, channels, 1, height, width), (n * channels, height, width)]
        )
        y = self.graph.add(Reshape(shape), x) if shape != x.shape else x
        y = self.dense(y, self.rng.randint(1, 20))
        if self.rng.random() < 0.5:
            y = self.graph.add(Add((1, 1), self.scaling(1)), y, y)
        if y.elements > LARGEST:
            return None
        return self.graph.add(Reshape((n, channels, height, y.shape[-1])), y)

    def repeated(self):
        """The sum of an image and a smaller one, or a constant."""
        x = self.pick()
        n, channels, height, width = x.shape
        if self.rng.random() < 0.4:
            shape = tuple(self.rng.choice([1, extent]) for extent in x.shape)
            small = self.graph.add(Constant(self.weights(*shape), self.zero_point()))
        else:
            kernel = self.rng.choice([height, 1]), self.rng.choice([width, 1])
            small = self.graph.add(MaxPool(kernel, kernel), self.pick(lambda t: t.shape == x.shape))
            if self.rng.random() < 0.5:
                weights = self.weights(1, channels, 1, 1)
                small = self.graph.add(Convolution(weights, None, self.scaling(7)), small)
        if small.shape != (n, channels, 1, 1) or self.rng.random() < 0.5:
            small = self.graph.add(Expand(x.shape), small)
        op = Add((self.rng.choice([1, 2, -1]), 1), self.scaling(1))
        return self.graph.add(op, x, small)

    def border(self):
        x = self.pick()
        return self.graph.add(Pad(self.sides(), self.rng.choice(["edge", "reflect"])), x)

    def stacked(self):
        """Groups of channels on an axis of their own: swapped, cut, joined."""
        x = self.pick()
        n, channels, height, width = x.shape
        groups = self.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])
        y = self.graph.add(Reshape((n, groups, channels // groups, height, width)), x)
        if self.rng.random() < 0.5:
            y = self.graph.add(Transpose((0, 2, 1, 3, 4)), y)
        axis = self.rng.choice([1, 2, -4, -3])
        if self.rng.random() < 0.5:
            start = self.rng.randint(0, y.shape[axis] - 1)
            part = self.graph.add(Slice(axis, start, y.shape[axis]), y)
            y = self.graph.add(Concat(axis), y, part) if self.rng.random() < 0.5 else part
        n, groups, each, *_ = y.shape
        if y.elements > LARGEST:
            return None
        return self.graph.add(Reshape((n, groups * each, height, width)), y)

    def rolled(self):
        """Rows or columns that are cut, and joined again in another order."""
        x = self.pick(lambda t: max(t.shape[2:]) > 1)
        if x is None:
            return None
        axis = 2 + (x.shape[3] > 1)
        cut = self.rng.randint(1, x.shape[axis] - 1)
        step = self.rng.choice([1, 1, 1, 2])
        end = self.graph.add(Slice(axis - self.rng.choice([0, 4]), cut, x.shape[axis], step), x)
        if self.rng.random() < 0.5 or 2 * x.elements > LARGEST:
            return end
        return self.graph.add(Concat(axis), end, x, end)

    def odd_pool(self):
        """Sizes that are rounded up, and windows that skip pixels."""
        x = self.pick()
        kernel = self.rng.randint(1, 3), self.rng.randint(1, 3)
        window = {
            "kernel": kernel,
            "strides": self.rng.choice([(1, 1), (2, 2), (3, 2)]),
            "padding": tuple(self.rng.randint(0, kernel[i % 2] // 2) for i in range(4)),
        }
        ceil, dilation = self.rng.random() < 0.7, self.rng.choice([(1, 1), (1, 1), (2, 1), (1, 3)])
        top, left, bottom, right = sides = window["padding"]
        down, across = Window(*window.values(), dilation, ceil).beyond(*x.shape[2:])
        window["padding"] = top, left, bottom + down, right + across
        if self.rng.random() < 0.3:
            return self.graph.add(MaxPool(**window, dilation=dilation), x)
        beyond = any((down, across))
        if any(sides):  # a mean does not count both its padding and less than it
            beyond, window["padding"] = False, sides
        pool = AveragePool.from_ratio(
            self.rng.choice([0.37, 1.4] if self.free else [0.5, 1.0]),
            kernel[0] * kernel[1],
            shifts_only=not self.free,
            zero_point=self.zero_point(),
            exclude_padding=self.rng.random() < 0.4 or beyond,
            dilation=dilation,
            **window,
        )
        return self.graph.add(pool, x)

    def finish(self) -> None:
        # A product that came to nothing may have read the last of them.
        unread = [t for t in self.values if not self.graph.consumers(t)] or self.values[-1:]
        if self.rng.random() < 0.5:
            image = unread[-1]
            pixels = image.elements // self.batch
            rows = self.graph.add(Reshape((self.batch, pixels)), image)
            weights = self.weights(10, pixels)
            dense = Dense(weights, self.bias(10), self.scaling(12, 10))
            scores = self.graph.add(dense, rows)
            self.graph.output(self.graph.add(Dequantize(), scores))
        for tensor in unread[:4]:
            self.graph.output(tensor)


def random_graph(
    seed: int,
    *,
    operators: int = 10,
    free: bool = False,
    wide: bool = False,
    batch: int = 0,
    views: bool = False,
) -> Graph:
    """Return the random network of a seed; a wide one has gates, PReLUs, moved pixels as well.

    With `views`, tensors of other ranks lie between images, and channels come last.

    Without a `batch`, the seed draws one of 1 to 4.
    """
    return RandomGraph(
        seed, operators=operators, free=free, wide=wide, batch=batch, views=views
    ).graph


def with_state(graph: Graph, seed: int) -> Graph:
    """Let inputs of a random network be what the run before made of a tensor like them.

    All of it, or its first rows, which each run writes behind those of the runs before.
    """
    rng = random.Random(f"state {seed}")
    made = [tensor for node in graph.nodes for tensor in node.outputs]
    for past in [tensor for tensor in graph.inputs if tensor.dtype == "int8"]:
        alike = [t for t in made if (t.shape, t.dtype) == (past.shape, past.dtype)]
        scaling = Requantization(1, rng.randint(0, 2), past.zero_point)
        source = rng.choice([*alike, past])
        present = graph.add(Requantize(scaling), source, scale=past.scale)
        if rng.random() < 0.4:
            present = graph.add(Slice(rng.choice([2, 3]), 0, 1), present)
        graph.output(present)
        graph.carry({past.name: present.name})
    return graph


def random_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Return random arrays for the inputs of a graph: the full range of int8."""
    rng = np.random.default_rng(seed)
    return [
        rng.normal(0, 12, t.shape).astype(np.float32)
        if t.dtype == "float32"
        else rng.integers(-128, 128, t.shape).astype(np.int8)
        for t in graph.arguments
    ]


def check(graph: Graph, seed: int, config: str | HardwareConfig, *, pinned: bool = False) -> Model:
    """Compile a network, compare what its file computes with the executor, and return it.

    Where plain hardware has the scales in its weights and factors, which the plan tells, the graph
    is that of the model. With `pinned`, weights stay on the chip between three runs; of a network
    with state there are three, too.
    """
    model = vtaops.compile_model(graph, config, pin_weights=pinned)
    near = any(" but for " in row.reason for row in model.plan)
    meant, read = model.graph if near else graph, loads(dumps(model))
    runs = [random_inputs(graph, seed + run) for run in range(3 if pinned or graph.state else 1)]
    with Fsim(model.config) as device, vtaops.Session(device) as session:
        for run, (arrays, expected) in enumerate(
            zip(runs, evaluate_runs(meant, runs), strict=True)
        ):
            found = as_tuple(read.run(*arrays, session=session))
            assert len(found) == len(expected)
            for tensor, a, b in zip(graph.results, found, expected, strict=True):
                assert a.dtype == b.dtype
                assert np.array_equal(a, b), (tensor.name, run)
    if model.config.has(Extension.TABLE):
        graph = functions_as_tables(graph)  # what a table holds is no operator of its own
    rows = dict.fromkeys(row.name.split(":")[0] for row in model.plan)
    assert list(rows) == [node.name for node in graph.nodes if node.name in rows]
    gone = (node.op for node in graph.nodes if node.name not in rows)  # views before one that moves
    assert all(isinstance(op, Reshape | Transpose) for op in gone)
    on_host = {
        name for stage in model.stages if not hasattr(stage, "program") for name in stage.nodes
    }
    assert on_host == {row.name for row in model.plan if row.where == "host"}
    assert all(row.reason for row in model.plan if row.where == "host")
    return model


def trial(case: str) -> Result:
    """Compile, verify, run and compare one network: ``free pynq/7``.

    With free scales the configuration has all extensions that its geometry allows, but none in
    ``digits``, where weights hold the scales; wide networks
    have gates, PReLUs and moved pixels, too; of pinned ones weights stay on the chip; those with
    state run three times.
    """
    row, seed = case.split("/")
    kind, name = row.split()
    config = HardwareConfig.load(name)
    free = kind in ("free", "pinned") or (kind == "state" and int(seed) % 2 == 1)
    if free:
        config = replace(config, extensions=tuple(Extension))
    graph = random_graph(int(seed), free=free or kind == "digits", wide=kind == "wide")
    if kind == "state":
        graph = with_state(graph, int(seed))
    counts = {"networks": 1, "operators": len(graph.nodes)}
    model = check(graph, int(seed), config, pinned=kind == "pinned")
    on_vta = sum(step.where == "vta" for step in model.plan)
    loads = sum(program.pinned for program in model.programs)
    return result(row, **counts, on_vta=on_vta, pinned_loads=loads)


CONFIGS = ("pynq", "tiny", "4x8_i8w8a32_15_16_16_18")
CAMPAIGN = Campaign(
    lambda count: [
        f"{kind} {config}/{seed}"
        for seed in range(count)
        for kind in ("plain", "digits", "free", "wide", "pinned", "state")
        for config in CONFIGS
    ],
    trial,
    count=200,
)
