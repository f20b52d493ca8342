"""Random int8 networks as TFLite files, and LiteRT's reference kernels as their judge.

Convolutions (also depthwise, per tensor or per channel), pools, sums, differences, products, means,
concatenations, fully connected layers and a softmax, on batches of one to four, with scales and
zero points over wide ranges: ratios from well below one to above it, results that saturate and
results that hardly move. On request there are transposed convolutions, too, or all operators that
keep a network one of images, of int8 or uint8.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tflite

import vtaops
from trials.campaign import Campaign, Result, result
from trials.tflite_models import Writer
from trials.tiny_inputs import sample
from vtaops.frontends import import_model
from vtaops.graph import evaluate

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
    network = _Network(seed)
    return network.content([network.transposed] * 4 if transposed else [])


def random_wide_tflite(seed: int) -> bytes:
    """Return a file of a random network of all operators; those of odd seeds are uint8."""
    network = _Network(seed, ("int8", "uint8")[seed % 2])
    return network.content([network.transposed, *network.wide()])


class _Network:
    def __init__(self, seed: int, kind: str = "int8") -> None:
        self.kind = kind
        self.least = np.iinfo(kind).min
        self.rng = np.random.default_rng(seed)
        self.writer = Writer(seed)
        self.spread: dict[int, float] = {}
        """About how far real values of a tensor reach."""
        size = *self.rng.integers(3, 13, 2).tolist(), int(self.rng.choice([1, 3, 8, 16, 20]))
        scale = float(2.0 ** self.rng.uniform(-8, 1))
        batch = int(np.random.default_rng([seed, 1]).integers(1, 5))
        self.input = self.writer.tensor((batch, *size), kind, scale, self._zero())
        self.spread[self.input] = 100 * scale
        self.images = [self.input]
        self.rounded: set[int] = set()
        """What a scale made, or is made of that."""

    def content(self, more: list[Callable[[], None]]) -> bytes:
        """Add operators; return the file."""
        kinds = [self.convolution] * 3 + [self.depthwise] * 2
        kinds += [self.combine] * 3 + [self.pool, self.concatenation]
        kinds += more
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
        zero = int(self.rng.choice([-128, 0, self.rng.integers(-128, 128)]))
        return zero + self.least + 128

    def _result(self, shape: tuple[int, ...], reach: float) -> int:
        """Return a tensor whose grid covers `reach` more or less."""
        scale = reach / 100 * float(2.0 ** self.rng.uniform(-2, 1.5))
        tensor = self.writer.tensor(shape, self.kind, scale, self._zero())
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
        data = rng.integers(-127, 128, shape)
        if rng.random() < 0.2:
            data = np.moveaxis(data, axis, 0).copy()
            data[int(rng.integers(outputs))] = 0  # a channel that is dead
            data = np.moveaxis(data, 0, axis)
        channels = outputs if rng.random() < 0.8 and self.kind == "int8" else 1
        scales = 2.0 ** rng.uniform(-12, -4) * rng.uniform(0.2, 1, channels)
        weight = writer.tensor(
            shape,
            self.kind,
            scales if channels > 1 else scales[0],
            self.least + 128,
            data=(data + self.least + 128).astype(self.kind),
            axis=axis if channels > 1 else 0,
        )
        reach = float(self.spread[x] * np.mean(scales) * 60 * np.sqrt(taps))
        steps = np.broadcast_to(writer.grids[x][0] * scales, (outputs,)).astype(np.float32)
        values = np.clip(np.rint(rng.normal(0, reach / 2, outputs) / steps), -1e8, 1e8)
        own = steps if self.kind == "int8" else steps[0]
        bias = writer.tensor((outputs,), "int32", own, data=values.astype(np.int32))
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
        y = self.writer.tensor((n, *size, c), self.kind, *self.writer.grids[x])
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
        y = self.writer.tensor(joined, self.kind, *grid)
        self.spread[y] = self.spread[x]
        self.rounded |= {y} if self.rounded.intersection(parts) else set()
        self.writer.operator("CONCATENATION", parts, [y], Axis=3, FusedActivationFunction=0)
        self.images.append(y)

    def wide(self) -> list[Callable[[], None]]:
        """Return operators that are drawn on request."""
        return [
            *(self.pad, self.resize, self.turn, self.split, self.blocks, self.function, self.cut),
            *(self.with_constant, self.mean, self.gate, self.dilated, self.join),
        ]

    def _moved(self, kind: str, x: int, shape: Any, *more: int, **options: Any) -> int:
        """Add an operator whose result has the grid of its operand."""
        y = self.writer.tensor(tuple(shape), self.kind, *self.writer.grids[x])
        self.spread[y] = self.spread[x]
        self.rounded |= {y} if x in self.rounded else set()
        self.writer.operator(kind, [x, *more], [y], **options)
        self.images.append(y)
        return y

    def _ints(self, *numbers: Any) -> int:
        return self.writer.constant(np.array(numbers))

    def pad(self) -> None:
        """Zeros or mirrored pixels around an image."""
        x = self._image()
        n, h, w, c = self.writer.shapes[x]
        (top, bottom), (left, right) = (self.rng.integers(0, 3, 2).tolist() for _ in range(2))
        shape, rows = (n, h + top + bottom, w + left + right, c), [[top, bottom], [left, right]]
        amounts = self.writer.constant([[0, 0], *rows, [0, 0]])
        if min(h, w) > 2 and self.rng.random() < 0.3:
            self._moved("MIRROR_PAD", x, shape, amounts, Mode=int(self.rng.integers(2)))
        else:
            self._moved("PAD", x, shape, amounts)

    def resize(self) -> None:
        """A resize, to the nearest or bilinear, in one of three modes."""
        x = self._image()
        n, h, w, c = self.writer.shapes[x]
        factors = self.rng.choice([0.5, 1.5, 2, 2, 3], 2)
        size = [max(1, min(24, int(e * f))) for e, f in zip((h, w), factors, strict=True)]
        modes = {"AlignCorners": False, "HalfPixelCenters": False}
        modes |= [{}, {"AlignCorners": True}, {"HalfPixelCenters": True}][self.rng.integers(3)]
        kind = str(self.rng.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"]))
        self._moved(kind, x, (n, *size, c), self._ints(*size), **modes)

    def turn(self) -> None:
        """A transpose."""
        x = self._image()
        axes = [0, *self.rng.permutation([1, 2, 3]).tolist()]
        shape = [self.writer.shapes[x][axis] for axis in axes]
        self._moved("TRANSPOSE", x, shape, self._ints(*axes))

    def split(self) -> None:
        """Two halves of an image along an axis."""
        x = self._image()
        shape = list(self.writer.shapes[x])
        axis = int(self.rng.integers(1, 4))
        if shape[axis] < 2:
            return
        sizes = [1, shape[axis] - 1]
        parts = [[*shape[:axis], size, *shape[axis + 1 :]] for size in sizes]
        ys = [self.writer.tensor(part, self.kind, *self.writer.grids[x]) for part in parts]
        self.writer.operator(
            "SPLIT_V", [x, self._ints(*sizes), self.writer.constant(axis)], ys, NumSplits=2
        )
        for y in ys:
            self.spread[y] = self.spread[x]
            self.rounded |= {y} if x in self.rounded else set()
            self.images.append(y)

    def blocks(self) -> None:
        """Pixels moved to channels, or back."""
        x = self._image()
        n, h, w, c = self.writer.shapes[x]
        if c % 4 == 0 and self.rng.random() < 0.5:
            self._moved("DEPTH_TO_SPACE", x, (n, 2 * h, 2 * w, c // 4), BlockSize=2)
        elif h % 2 == w % 2 == 0:
            self._moved("SPACE_TO_DEPTH", x, (n, h // 2, w // 2, 4 * c), BlockSize=2)

    def cut(self) -> None:
        """A slice with steps."""
        x = self._image()
        shape = self.writer.shapes[x]
        begin = [0, *(int(self.rng.integers(e)) for e in shape[1:])]
        steps = [1, *self.rng.integers(1, 3, 3).tolist()]
        size = [-(-(e - b) // s) for e, b, s in zip(shape, begin, steps, strict=True)]
        self._moved("STRIDED_SLICE", x, size, *(self._ints(*v) for v in (begin, shape, steps)))

    def join(self) -> None:
        """An image beside itself, along any axis but the first."""
        x = self._image()
        shape, axis = list(self.writer.shapes[x]), int(self.rng.integers(1, 4))
        if shape[axis] <= 16:
            shape[axis] *= 2
            y = self._moved("CONCATENATION", x, shape, x, Axis=axis, FusedActivationFunction=0)
            assert y in self.images

    def function(self) -> None:
        """A function of each element."""
        x = self._image()
        shape = self.writer.shapes[x]
        kind = str(
            self.rng.choice(["LOGISTIC", "TANH", "HARD_SWISH", "LEAKY_RELU", "RELU", "RELU6"])
        )
        options = {"Alpha": float(self.rng.uniform(-0.5, 1.2))} if kind == "LEAKY_RELU" else {}
        y = self._result(shape, self.spread[x])
        if kind in ("LOGISTIC", "TANH"):
            whole, zero = (256, 0) if kind == "LOGISTIC" else (128, 128)
            y = self.writer.tensor(shape, self.kind, 1 / whole, zero + self.least)
            self.spread[y] = 1.0
        self.writer.operator(kind, [x], [y], **options)
        self.rounded.add(y)
        self.images.append(y)

    def with_constant(self) -> None:
        """A sum, a difference, a product or a PReLU with numbers of the file."""
        x, rng = self._image(), self.rng
        shape = self.writer.shapes[x]
        kind = str(rng.choice(["ADD", "SUB", "MUL", "PRELU"]))
        sizes = [(1, 1, shape[3])] if kind == "PRELU" else [(), (shape[3],), (1, 1, 1, shape[3])]
        size = sizes[rng.integers(len(sizes))]
        data = (rng.integers(-128, 128, size) + self.least + 128).astype(self.kind)
        scale = float(self.spread[x] / 100 * 2.0 ** rng.uniform(-2, 2))
        scale = scale if kind in ("ADD", "SUB") else float(2.0 ** rng.uniform(-9, -6))
        constant = self.writer.tensor(size, self.kind, scale, self._zero(), data=data)
        reach = self.spread[x] + 100 * scale if kind in ("ADD", "SUB") else self.spread[x]
        pair = [x, constant] if kind == "PRELU" or rng.random() < 0.5 else [constant, x]
        options = {} if kind == "PRELU" else {"FusedActivationFunction": self._activation()}
        y = self._result(shape, reach)
        self.writer.operator(kind, pair, [y], **options)
        self.rounded.add(y)
        self.images.append(y)

    def mean(self) -> None:
        """A mean over one or two axes, which stay."""
        x = self._image()
        axes = self.rng.choice([1, 2, 3], int(self.rng.integers(1, 3)), replace=False).tolist()
        shape = [1 if a in axes else e for a, e in enumerate(self.writer.shapes[x])]
        y = self._result(tuple(shape), self.spread[x])
        self.writer.operator("MEAN", [x, self._ints(*axes)], [y], KeepDims=True)
        self.rounded.add(y)
        self.images.append(y)

    def gate(self) -> None:
        """A product or a sum with means over all pixels."""
        x = self._image()
        n, _, _, c = shape = self.writer.shapes[x]
        mean, y = self._result((n, 1, 1, c), self.spread[x]), self._result(shape, self.spread[x])
        self.writer.operator("MEAN", [x, self._ints(1, 2)], [mean], KeepDims=True)
        kind = str(self.rng.choice(["ADD", "MUL"]))
        self.writer.operator(kind, [x, mean], [y], FusedActivationFunction=0)
        self.rounded |= {mean, y}
        self.images.append(y)

    def dilated(self) -> None:
        """A convolution with dilation as TensorFlow writes it: on pixels moved to the batch."""
        x = self._image()
        n, h, w, c = self.writer.shapes[x]
        if max(h, w) > 12:
            return
        pads = [[2, 2 + h % 2], [2, 2 + w % 2]]
        size = (h + 4 + h % 2) // 2, (w + 4 + w % 2) // 2
        block = self._ints(2, 2)
        far = self._moved(
            "SPACE_TO_BATCH_ND", x, (4 * n, *size, c), block, self.writer.constant(pads)
        )
        weight, bias, reach = self._parameters(far, (8, 3, 3, c), 0)
        y = self._result((4 * n, size[0] - 2, size[1] - 2, 8), reach)
        window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
        self.writer.operator(
            "CONV_2D",
            [far, weight, bias],
            [y],
            Padding=tflite.Padding.VALID,
            FusedActivationFunction=0,
            **window,
        )
        self.rounded.add(y)
        crops = self.writer.constant([[0, h % 2], [0, w % 2]])
        self.images.remove(far)
        self._moved("BATCH_TO_SPACE_ND", y, (n, h, w, 8), block, crops)

    def classifier(self) -> int:
        """A mean or a reshape, a fully connected layer, and mostly a softmax."""
        rng, writer, x = self.rng, self.writer, self.images[-1]
        n, h, w, c = writer.shapes[x]
        if rng.random() < 0.6:
            flat = self._result((n, c), self.spread[x])
            axes = writer.constant([1, 2])
            writer.operator("MEAN", [x, axes], [flat], KeepDims=False)
        else:
            flat = writer.tensor((n, h * w * c), self.kind, *writer.grids[x])
            self.spread[flat] = self.spread[x]
            writer.operator("RESHAPE", [x, writer.constant([n, h * w * c])], [flat])
        inputs, outputs = writer.shapes[flat][1], int(rng.integers(2, 40))
        data = (rng.integers(-127, 128, (outputs, inputs)) + self.least + 128).astype(self.kind)
        scale = float(2.0 ** rng.uniform(-12, -4))
        weight = writer.tensor((outputs, inputs), self.kind, scale, self.least + 128, data=data)
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
        result = writer.tensor((n, outputs), self.kind, 1 / 256, self.least)
        writer.operator("SOFTMAX", [scores], [result], Beta=1.0)
        return result


def trial(case: str) -> Result:
    """Compare the network of a seed with LiteRT: its graph, and what exact hardware computes."""
    content = random_tflite(int(case))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.tflite"
        path.write_bytes(content)
        run, graph = reference(content), import_model(path)
    model = vtaops.compile_model(graph, "pynq_512")
    counts = {"networks": 1, "values": 0, "graph differs": 0, "hardware differs": 0}
    for number in range(4):
        array = sample(graph.inputs[0].shape, number)
        (theirs,), (meant,) = run(array), evaluate(graph, array)
        counts["values"] += theirs.size
        counts["graph differs"] += int(np.count_nonzero(theirs != meant))
        counts["hardware differs"] += int(np.count_nonzero(theirs != model.run(array)))
    failed = "the hardware differs from LiteRT" if counts["hardware differs"] else ""
    return result("networks", failed, **counts)


CAMPAIGN = Campaign(lambda count: [str(seed) for seed in range(count)], trial, count=300)
