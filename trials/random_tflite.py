"""Random int8 networks as TFLite files, and LiteRT's reference kernels as their judge.

Convolutions (also depthwise, per tensor or per channel), pools, sums, differences, products, means,
concatenations, fully connected layers and a softmax, on batches of one to four, with scales and
zero points over wide ranges: ratios from well below one to above it, results that saturate and
results that hardly move. On request there are transposed convolutions, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from trials.tflite_models import Writer

ACTIVATIONS = (0, 0, 1, 3)  # none, ReLU, ReLU6


def reference(content: bytes | Path) -> Callable[..., list[np.ndarray]]:
    """Return what runs a model with LiteRT's reference kernels; needs ``ai-edge-litert``."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    given = (
        {"model_path": str(content)} if isinstance(content, Path) else {"model_content": content}
    )
    interpreter = Interpreter(
        **given, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
    )
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        for detail, array in zip(inputs, arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in outputs]

    return run


def random_tflite(seed: int, transposed: bool = False) -> bytes:
    """Return a file of a random network with one input and one output."""
    return _Network(seed).content(transposed)


class _Network:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.writer = Writer(seed)
        self.spread: dict[int, float] = {}
        """About how far real values of a tensor reach."""
        size = *self.rng.integers(3, 13, 2).tolist(), int(self.rng.choice([1, 3, 8, 16, 20]))
        scale = float(2.0 ** self.rng.uniform(-8, 1))
        batch = int(np.random.default_rng([seed, 1]).integers(1, 5))
        self.input = self.writer.tensor((batch, *size), "int8", scale, self._zero())
        self.spread[self.input] = 100 * scale
        self.images = [self.input]
        self.rounded: set[int] = set()
        """What a scale made, or is made of that."""

    def content(self, transposed: bool) -> bytes:
        """Add operators; return the file."""
        kinds = [self.convolution] * 3 + [self.depthwise] * 2
        kinds += [self.combine] * 3 + [self.pool, self.concatenation]
        kinds += [self.transposed] * 4 if transposed else []
        for _ in range(int(self.rng.integers(2, 8))):
            kinds[self.rng.integers(len(kinds))]()
        if self.images[-1] not in self.rounded:
            self.images = self.images[-1:]
            self.convolution()  # else nothing before the output rounds
        outputs = [self.images[-1]]
        if self.rng.random() < 0.7:
            outputs = [self.classifier()]
        return self.writer.finish([self.input], outputs)

    def _zero(self) -> int:
        return int(self.rng.choice([-128, 0, self.rng.integers(-128, 128)]))

    def _result(self, shape: tuple[int, ...], reach: float) -> int:
        """Return a tensor whose grid covers `reach` more or less."""
        scale = reach / 100 * float(2.0 ** self.rng.uniform(-2, 1.5))
        tensor = self.writer.tensor(shape, "int8", scale, self._zero())
        self.spread[tensor] = 100 * scale
        return tensor

    def _image(self) -> int:
        return self.images[int(self.rng.integers(max(0, len(self.images) - 3), len(self.images)))]

    def _activation(self) -> int:
        return int(self.rng.choice(ACTIVATIONS))

    # ----------------------------------------------------------------------- operators

    def convolution(self) -> None:
        """A convolution: any window, SAME or VALID, a scale for each channel or for all."""
        x = self._image()
        _, h, w, c = self.writer.shapes[x]
        filters = int(self.rng.choice([4, 8, 16, 17, 32]))
        kernel = tuple(int(self.rng.integers(1, min(5, e) + 1)) for e in (h, w))
        self._products(x, (filters, *kernel, c), 0, kernel, "CONV_2D")

    def depthwise(self) -> None:
        """A depthwise convolution."""
        x = self._image()
        _, h, w, c = self.writer.shapes[x]
        if c == 1:
            return
        kernel = tuple(int(self.rng.integers(1, min(5, e) + 1)) for e in (h, w))
        self._products(x, (1, *kernel, c), 3, kernel, "DEPTHWISE_CONV_2D", DepthMultiplier=1)

    def _parameters(self, x: int, shape: Any, axis: int) -> tuple[int, int, float]:
        """Return weights and biases for sums of `x`, and how far these reach."""
        rng, writer = self.rng, self.writer
        outputs, taps = shape[axis], int(np.prod(shape)) // shape[axis]
        data = rng.integers(-127, 128, shape).astype(np.int8)
        if rng.random() < 0.2:
            data = np.moveaxis(data, axis, 0).copy()
            data[int(rng.integers(outputs))] = 0  # a channel that is dead
            data = np.moveaxis(data, 0, axis)
        channels = outputs if rng.random() < 0.8 else 1
        scales = 2.0 ** rng.uniform(-12, -4) * rng.uniform(0.2, 1, channels)
        weight = writer.tensor(
            shape,
            "int8",
            scales if channels > 1 else scales[0],
            data=data,
            axis=axis if channels > 1 else 0,
        )
        reach = float(self.spread[x] * np.mean(scales) * 60 * np.sqrt(taps))
        steps = np.broadcast_to(writer.grids[x][0] * scales, (outputs,)).astype(np.float32)
        values = np.clip(np.rint(rng.normal(0, reach / 2, outputs) / steps), -1e8, 1e8)
        bias = writer.tensor((outputs,), "int32", steps, data=values.astype(np.int32))
        return weight, bias, reach

    def _products(self, x: int, shape: Any, axis: int, kernel: Any, kind: str, **more: int) -> None:
        rng, writer = self.rng, self.writer
        n, h, w, _ = writer.shapes[x]
        weight, bias, reach = self._parameters(x, shape, axis)
        strides = [int(s) for s in rng.integers(1, 3, 2)]
        if kind != "CONV_2D":
            strides[1] = strides[0]
        same = rng.random() < 0.6
        size = [
            -(-(extent if same else extent - k + 1) // s)
            for extent, k, s in zip((h, w), kernel, strides, strict=True)
        ]
        y = self._result((n, *size, shape[axis]), reach)
        self.rounded.add(y)
        writer.operator(
            kind,
            [x, weight, bias],
            [y],
            Padding=tflite.Padding.SAME if same else tflite.Padding.VALID,
            StrideH=strides[0],
            StrideW=strides[1],
            DilationHFactor=1,
            DilationWFactor=1,
            FusedActivationFunction=self._activation(),
            **more,
        )
        self.images.append(y)

    def transposed(self) -> None:
        """A transposed convolution of a small image, SAME or VALID."""
        x, stride = self._image(), int(self.rng.integers(1, 3))
        n, h, w, c = self.writer.shapes[x]
        kernel = [int(k) for k in self.rng.integers(stride, 4, 2)]
        if max(h, w) > 16:
            return
        filters = int(self.rng.choice([4, 8, 17]))
        weight, bias, reach = self._parameters(x, (filters, *kernel, c), 0)
        same = self.rng.random() < 0.5
        size = [
            extent * stride if same else (extent - 1) * stride + k
            for extent, k in zip((h, w), kernel, strict=True)
        ]
        y = self._result((n, *size, filters), reach)
        self.rounded.add(y)
        self.writer.operator(
            "TRANSPOSE_CONV",
            [self.writer.constant([n, *size, filters]), weight, x, bias],
            [y],
            Padding=tflite.Padding.SAME if same else tflite.Padding.VALID,
            StrideH=stride,
            StrideW=stride,
            FusedActivationFunction=0,
        )
        self.images.append(y)

    def combine(self) -> None:
        """A sum, a difference or a product of two tensors of one shape."""
        x = self._image()
        shape = self.writer.shapes[x]
        alike = [t for t in self.images if self.writer.shapes[t] == shape]
        other = int(self.rng.choice(alike))
        kind = str(self.rng.choice(["ADD", "ADD", "SUB", "MUL"]))
        a, b = self.spread[x], self.spread[other]
        y = self._result(shape, a * b if kind == "MUL" else a + b)
        pair = [x, other] if self.rng.random() < 0.5 else [other, x]
        self.writer.operator(kind, pair, [y], FusedActivationFunction=self._activation())
        self.rounded.add(y)
        self.images.append(y)

    def pool(self) -> None:
        """A pool, on the grid of its input: SAME windows at the border have fewer pixels."""
        x = self._image()
        n, h, w, c = self.writer.shapes[x]
        if min(h, w) < 2:
            return
        kernel = [int(self.rng.integers(1, min(4, e) + 1)) for e in (h, w)]
        strides = [int(s) for s in self.rng.integers(1, 3, 2)]
        same = self.rng.random() < 0.5
        size = [
            -(-(extent if same else extent - k + 1) // s)
            for extent, k, s in zip((h, w), kernel, strides, strict=True)
        ]
        y = self.writer.tensor((n, *size, c), "int8", *self.writer.grids[x])
        self.spread[y] = self.spread[x]
        self.rounded |= {y} if x in self.rounded else set()
        self.writer.operator(
            str(self.rng.choice(["AVERAGE_POOL_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"])),
            [x],
            [y],
            Padding=tflite.Padding.SAME if same else tflite.Padding.VALID,
            StrideH=strides[0],
            StrideW=strides[1],
            FilterHeight=kernel[0],
            FilterWidth=kernel[1],
            FusedActivationFunction=0,
        )
        self.images.append(y)

    def concatenation(self) -> None:
        """Two images of one grid, channels behind channels."""
        x = self._image()
        shape, grid = self.writer.shapes[x], self.writer.grids[x]
        alike = [
            t
            for t in self.images
            if self.writer.grids[t] == grid and self.writer.shapes[t][:3] == shape[:3]
        ]
        parts = [x, int(self.rng.choice(alike))]
        joined = (*shape[:3], sum(self.writer.shapes[t][3] for t in parts))
        y = self.writer.tensor(joined, "int8", *grid)
        self.spread[y] = self.spread[x]
        self.rounded |= {y} if self.rounded.intersection(parts) else set()
        self.writer.operator("CONCATENATION", parts, [y], Axis=3, FusedActivationFunction=0)
        self.images.append(y)

    def classifier(self) -> int:
        """A mean or a reshape, a fully connected layer, and mostly a softmax."""
        rng, writer, x = self.rng, self.writer, self.images[-1]
        n, h, w, c = writer.shapes[x]
        if rng.random() < 0.6:
            flat = self._result((n, c), self.spread[x])
            axes = writer.constant([1, 2])
            writer.operator("MEAN", [x, axes], [flat], KeepDims=False)
        else:
            flat = writer.tensor((n, h * w * c), "int8", *writer.grids[x])
            self.spread[flat] = self.spread[x]
            writer.operator("RESHAPE", [x, writer.constant([n, h * w * c])], [flat])
        inputs, outputs = writer.shapes[flat][1], int(rng.integers(2, 40))
        data = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
        scale = float(2.0 ** rng.uniform(-12, -4))
        weight = writer.tensor((outputs, inputs), "int8", scale, data=data)
        step = np.float32(writer.grids[flat][0]) * np.float32(scale)
        reach = self.spread[flat] * scale * 60 * float(np.sqrt(inputs))
        values = np.clip(np.rint(rng.normal(0, reach / 2, outputs) / step), -1e8, 1e8)
        bias = writer.tensor((outputs,), "int32", step, data=values.astype(np.int32))
        scores = self._result((n, outputs), reach)
        writer.operator(
            "FULLY_CONNECTED", [flat, weight, bias], [scores], FusedActivationFunction=0
        )
        if rng.random() < 0.4:
            return scores
        result = writer.tensor((n, outputs), "int8", 1 / 256, -128)
        writer.operator("SOFTMAX", [scores], [result], Beta=1.0)
        return result
