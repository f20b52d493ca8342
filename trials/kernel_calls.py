"""Calls of the CPU kernels beside PyTorch's: layers of real networks, random ones, the smallest.

PyTorch is needed (``pip install torch``); it is no dependency of vtaops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

Call = Callable[[], Any]
Timed = tuple[str, str, dict[str, Call]]
"""An operator, a layer, and the calls that are compared."""

CONVOLUTIONS = {
    "ResNet-50": [
        (3, 64, 224, 7, 2, 1),
        (64, 64, 56, 3, 1, 1),
        (64, 256, 56, 1, 1, 1),
        (128, 128, 56, 3, 2, 1),
        (256, 512, 56, 1, 2, 1),
        (256, 256, 14, 3, 1, 1),
        (1024, 256, 14, 1, 1, 1),
        (512, 512, 7, 3, 1, 1),
        (512, 512, 14, 3, 2, 1),
        (256, 64, 56, 1, 1, 1),
    ],
    "MobileNet-v2": [
        (3, 32, 224, 3, 2, 1),
        (96, 96, 112, 3, 2, 96),
        (144, 144, 56, 3, 1, 144),
        (24, 144, 56, 1, 1, 1),
        (384, 384, 14, 3, 1, 384),
        (960, 320, 7, 1, 1, 1),
        (32, 16, 112, 1, 1, 1),
    ],
    "YOLOv8n": [
        (3, 16, 640, 3, 2, 1),
        (16, 32, 320, 3, 2, 1),
        (16, 32, 160, 3, 2, 1),
        (64, 80, 80, 3, 1, 1),
        (32, 32, 80, 3, 1, 1),
        (64, 64, 40, 3, 1, 1),
        (128, 128, 20, 3, 1, 1),
        (192, 64, 80, 1, 1, 1),
        (128, 64, 40, 1, 1, 1),
        (384, 256, 20, 1, 1, 1),
    ],
    "DeepLab": [(256, 256, 33, 3, 1, 1, 1, 6)],
    "awkward": [(37, 41, 29, 3, 1, 1), (131, 67, 7, 1, 1, 1)],
    "ResNet-50, several": [
        (256, 256, 14, 3, 1, 1, 4),
        (1024, 256, 14, 1, 1, 1, 4),
        (1024, 256, 14, 1, 1, 1, 16),
        (512, 512, 7, 3, 1, 1, 16),
    ],
    "MobileNet-v2, several": [(384, 384, 14, 3, 1, 384, 16)],
}
"""Inputs, outputs, size of the image, window, stride, groups, images at once, dilation."""

INT8 = {
    "ResNet-50": [
        (64, 64, 56, 3, 1, 1),
        (256, 256, 14, 3, 1, 1),
        (1024, 256, 14, 1, 1, 1),
        (128, 128, 56, 3, 2, 1),
    ],
    "MobileNet-v2": [(96, 96, 112, 3, 2, 96), (144, 144, 56, 3, 1, 144), (384, 384, 14, 3, 1, 384)],
}
"""Quantized layers: inputs, outputs, size of the image, window, stride, groups."""

PRODUCTS = {
    "BERT-base": [(128, 768, 768), (128, 768, 3072), (1, 768, 768)],
    "ResNet-50": [(1, 2048, 1000), (16, 2048, 1000), (32, 2048, 1000)],
    "awkward": [(31, 127, 61)],
}
"""Rows, length of the sum, columns of a dense layer."""

MATRICES = {"BERT-base": [(128, 3072, 768), (384, 768, 768)], "awkward": [(7, 513, 1001)]}
"""Rows, length of the sum, columns of a product of matrices."""

INT8_PRODUCTS = [(32, 768, 768), (128, 768, 768), (384, 3072, 768)]
"""The same, of bytes with int32 sums."""

STACKS = {"BERT-base": [(12, 128, 64, 128), (12, 128, 128, 64)], "ViT": [(12, 197, 64, 197)]}
"""Products of attention: heads, rows, length of the sum, columns."""

STORED = ("float16", "bfloat16")
"""dtypes of 16 bits in which some layers are measured as well."""


class Layers:
    """The calls to compare, layer by layer."""

    def __init__(self) -> None:
        import numpy as np
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.torch, self.functional = torch, torch.nn.functional
        self.random = np.random.default_rng(0)

    def array(self, *shape: int, dtype: str = "float32") -> Any:
        """Return normal values."""
        import ml_dtypes

        kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
        return self.random.standard_normal(shape).astype(kind)

    def tensor(self, array: Any) -> Any:
        """Return PyTorch's tensor of an array."""
        if array.dtype.name == "bfloat16":
            return self.torch.from_numpy(array.view("uint16")).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def cases(self) -> Iterator[Timed]:
        """Yield operator, layer, and calls: "vtaops", "packed", "eager ..." and "prepacked"."""
        for network, layers in CONVOLUTIONS.items():
            for layer in layers:
                yield self.convolution(network, *layer)
        for network, products in PRODUCTS.items():
            for m, k, n in products:
                yield self.dense(network, m, k, n)
        for network, products in MATRICES.items():
            for m, k, n in products:
                yield self.matmul(network, m, k, n)
        for network, stacks in STACKS.items():
            for count, m, k, n in stacks:
                yield self.stack(network, count, m, k, n)
        yield from self.others()
        for network, layers in INT8.items():
            for layer in layers:
                yield self.int8_convolution(network, *layer)
        for m, k, n in PRODUCTS["BERT-base"]:
            yield self.int8_dense(m, k, n)
        for m, k, n in INT8_PRODUCTS:
            yield self.int8_sums(m, k, n, transposed=True)
            yield self.int8_sums(m, k, n, transposed=False)
        for dtype in STORED:
            yield self.convolution("ResNet-50", 256, 256, 14, 3, 1, 1, dtype=dtype)
            yield self.convolution("MobileNet-v2", 144, 144, 56, 3, 1, 144, dtype=dtype)
            yield self.dense("BERT-base", 128, 768, 768, dtype)
            yield self.dense("ResNet-50", 1, 2048, 1000, dtype)
            yield self.addition(dtype)

    def convolution(
        self,
        network: str,
        ins: int,
        outs: int,
        size: int,
        window: int,
        stride: int,
        groups: int,
        batch: int = 1,
        dilation: int = 1,
        dtype: str = "float32",
    ) -> Timed:
        """Return a convolution without bias, with the padding that keeps the size."""
        from torch.utils import mkldnn

        from vtaops import cpu
        from vtaops.kernels.cpu import layers

        torch, conv, pad = self.torch, self.functional.conv2d, window // 2 * dilation
        steps = {"strides": stride, "padding": pad, "dilation": dilation, "groups": groups}
        x = self.array(batch, ins, size, size, dtype=dtype)
        w = self.array(outs, ins // groups, window, window, dtype=dtype)
        tx, tw = self.tensor(x), self.tensor(w)
        xl, wl = (t.to(memory_format=torch.channels_last) for t in (tx, tw))
        ours = layers.PackedConv2d(w, **steps)
        xp = x if ins < layers.block() else layers.pack(x)
        calls = {
            "packed": lambda: ours(xp),
            "vtaops": lambda: cpu.conv2d(x, w, **steps),
            "eager nchw": lambda: conv(tx, tw, None, stride, pad, dilation, groups),
            "eager channels_last": lambda: conv(xl, wl, None, stride, pad, dilation, groups),
        }
        if dtype == "float32":
            sizes = ins, outs, window, stride, pad, dilation, groups
            module = torch.nn.Conv2d(*sizes, bias=False)
            module.weight.data = tw
            onednn, xm = mkldnn.to_mkldnn(module.eval()), tx.to_mkldnn()
            calls["prepacked"] = lambda: onednn(xm)
        kind = "depthwise" if groups > 1 else "conv2d 1x1" if window == 1 else "conv2d"
        kind += " strided" if stride > 1 else ""
        kind = kind if dtype == "float32" else f"{dtype} {kind}"
        several = f"{batch} x " if batch > 1 else ""
        layer = f"{network}: {several}{ins} to {outs}, {size}x{size}, {window}x{window}"
        layer += f", dilation {dilation}" if dilation > 1 else ""
        return kind, layer, calls

    def dense(self, network: str, m: int, k: int, n: int, dtype: str = "float32") -> Timed:
        """Return a dense layer without bias."""
        from torch.utils import mkldnn

        from vtaops import cpu
        from vtaops.kernels.cpu import layers

        x, w = self.array(m, k, dtype=dtype), self.array(n, k, dtype=dtype)
        tx, tw = self.tensor(x), self.tensor(w)
        ours = layers.PackedDense(w)
        calls = {
            "packed": lambda: ours(x),
            "vtaops": lambda: cpu.dense(x, w),
            "eager": lambda: self.functional.linear(tx, tw),
        }
        if dtype == "float32":
            module = self.torch.nn.Linear(k, n, bias=False)
            module.weight.data = tw
            onednn, xm = mkldnn.to_mkldnn(module.eval()), tx.to_mkldnn()
            calls["prepacked"] = lambda: onednn(xm)
        kind = "dense" if dtype == "float32" else f"{dtype} dense"
        return kind, f"{network}: {m} x {k} by {n}", calls

    def matmul(self, network: str, m: int, k: int, n: int) -> Timed:
        """Return a product of two matrices."""
        from vtaops import cpu

        x, y = self.array(m, k), self.array(k, n)
        tx, ty = self.tensor(x), self.tensor(y)
        calls = {"vtaops": lambda: cpu.matmul(x, y), "eager": lambda: tx @ ty}
        return "matmul", f"{network}: {m} x {k} by {n}", calls

    def stack(self, network: str, count: int, m: int, k: int, n: int) -> Timed:
        """Return a product of stacks of matrices."""
        from vtaops import cpu

        x, y = self.array(count, m, k), self.array(count, k, n)
        tx, ty = self.tensor(x), self.tensor(y)
        calls = {"vtaops": lambda: cpu.matmul(x, y), "eager": lambda: tx @ ty}
        return "matmul of stacks", f"{network}: {count} x {m} x {k} by {n}", calls

    def addition(self, dtype: str, *shapes: tuple[int, ...], network: str = "BERT-base") -> Timed:
        """Return a sum of two arrays, of two matrices unless `shapes` says otherwise."""
        from vtaops import cpu

        shapes = shapes or ((128, 3072), (128, 3072))
        x, y = (self.array(*shape, dtype=dtype) for shape in shapes)
        t, u = self.tensor(x), self.tensor(y)
        calls = {"vtaops": lambda: cpu.add(x, y), "eager": lambda: t + u}
        kind = "add" if dtype == "float32" else f"{dtype} add"
        named = [" x ".join(map(str, shape)) for shape in dict.fromkeys(shapes)]
        return kind, f"{network}: {' and '.join(named)}", calls

    def int8_convolution(
        self, network: str, ins: int, outs: int, size: int, window: int, stride: int, groups: int
    ) -> Timed:
        """Return a quantized convolution, bytes in and out, with ReLU."""
        from vtaops import cpu
        from vtaops.kernels.cpu import layers

        pad = window // 2
        x = self.random.integers(0, 256, (1, ins, size, size)).astype("uint8")
        w = self.random.integers(-128, 128, (outs, ins // groups, window, window)).astype("int8")
        steps = {"strides": stride, "padding": pad, "groups": groups}
        steps |= {"shift": 10, "clip": (0, 127)}
        ours, xp = layers.PackedConv2d(w, **steps), layers.pack(x)
        module = self.torch.ao.nn.intrinsic.quantized.ConvReLU2d(
            ins, outs, window, stride, pad, groups=groups
        )
        module.set_weight_bias(self.quantized(w, "qint8"), None)
        module.scale, module.zero_point = 1024.0, 0
        xq = self.quantized(x, "quint8").contiguous(memory_format=self.torch.channels_last)
        calls = {
            "vtaops": lambda: cpu.conv2d(x, w, **steps),
            "packed": lambda: ours(xp),
            "prepacked": lambda: module(xq),
        }
        kind = "int8 depthwise" if groups > 1 else "int8 conv2d"
        return kind, f"{network}: {ins} to {outs}, {size}x{size}, {window}x{window}", calls

    def int8_dense(self, m: int, k: int, n: int) -> Timed:
        """Return a quantized dense layer, bytes in and out."""
        from vtaops import cpu
        from vtaops.kernels.cpu import layers

        x = self.random.integers(0, 256, (m, k)).astype("uint8")
        w = self.random.integers(-128, 128, (n, k)).astype("int8")
        ends = {"shift": 10, "clip": (-128, 127)}
        ours, xq = layers.PackedDense(w, **ends), self.quantized(x, "quint8")
        module = self.torch.ao.nn.quantized.Linear(k, n)
        module.set_weight_bias(self.quantized(w, "qint8"), None)
        module.scale, module.zero_point = 1024.0, 128
        calls = {
            "vtaops": lambda: cpu.dense(x, w, **ends),
            "packed": lambda: ours(x),
            "prepacked": lambda: module(xq),
        }
        return "int8 dense", f"BERT-base: {m} x {k} by {n}", calls

    def int8_sums(self, m: int, k: int, n: int, transposed: bool) -> Timed:
        """Return a product of int8 matrices with int32 sums; `transposed`: a dense layer."""
        from vtaops import cpu

        x = self.random.integers(-128, 128, (m, k)).astype("int8")
        w = self.random.integers(-128, 128, (n, k) if transposed else (k, n)).astype("int8")
        tx, tw, ours = self.tensor(x), self.tensor(w), cpu.dense if transposed else cpu.matmul
        right = tw.t() if transposed else tw
        calls = {"vtaops": lambda: ours(x, w), "eager": lambda: self.torch._int_mm(tx, right)}
        kind = "dense" if transposed else "matmul"
        return f"int8 {kind}, int32 sums", f"BERT-base: {m} x {k} by {n}", calls

    def quantized(self, values: Any, dtype: str) -> Any:
        """Return bytes as PyTorch's quantized tensor of scale 1."""
        tensor = self.torch.from_numpy(values.astype("float32"))
        return self.torch.quantize_per_tensor(tensor, 1.0, 0, getattr(self.torch, dtype))

    def conv1d(
        self, network: str, ins: int, outs: int, length: int, taps: int, stride: int = 1
    ) -> Timed:
        """Return a convolution of a signal."""
        from vtaops import cpu

        x, w, pad = self.array(1, ins, length), self.array(outs, ins, taps), taps // 2
        tx, tw = self.tensor(x), self.tensor(w)
        calls = {
            "vtaops": lambda: cpu.conv1d(x, w, strides=stride, padding=pad),
            "eager": lambda: self.functional.conv1d(tx, tw, None, stride, pad),
        }
        layer = f"{network}: {ins} to {outs}, {length}, {taps} taps"
        return "conv1d", layer + (f", stride {stride}" if stride > 1 else ""), calls

    def pool(
        self,
        network: str,
        kind: str,
        channels: int,
        size: int,
        window: int,
        stride: int,
        pad: int,
        batch: int = 1,
    ) -> Timed:
        """Return a pooling: of ``max`` or ``avg``."""
        from vtaops import cpu

        x = self.array(batch, channels, size, size)
        tx = self.tensor(x)
        ours, theirs = (getattr(of, f"{kind}_pool2d") for of in (cpu, self.functional))
        calls = {
            "vtaops": lambda: ours(x, window, strides=stride, padding=pad),
            "eager": lambda: theirs(tx, window, stride, pad),
        }
        layer = f"{network}: {f'{batch} x ' if batch > 1 else ''}{channels}, {size}x{size}"
        return f"{kind}_pool", f"{layer}, {window}x{window}, stride {stride}", calls

    def activation(self, network: str, name: str, *shape: int) -> Timed:
        """Return an activation, or a softmax along rows."""
        from vtaops import cpu

        x = self.array(*shape)
        t, layer = self.tensor(x), f"{network}: {' x '.join(map(str, shape))}"
        if name == "softmax":
            calls = {"vtaops": lambda: cpu.softmax(x), "eager": lambda: self.torch.softmax(t, -1)}
            return name, layer, calls
        theirs = getattr(self.functional, {"hard_swish": "hardswish"}.get(name, name))
        return name, layer, {"vtaops": lambda: cpu.activation(x, name), "eager": lambda: theirs(t)}

    def others(self) -> Iterator[Timed]:
        """Yield pooling, softmax, activations, additions, 1-D convolution."""
        from vtaops import cpu

        yield self.pool("ResNet-50", "max", 64, 112, 3, 2, 1)
        x = self.array(1, 2048, 7, 7)
        t = self.tensor(x)
        calls = {
            "vtaops": lambda: cpu.global_avg_pool2d(x),
            "eager": lambda: self.functional.adaptive_avg_pool2d(t, 1),
        }
        yield "global_avg_pool", "ResNet-50: 2048, 7x7", calls
        yield self.activation("BERT-base", "softmax", 1536, 128)
        yield self.activation("BERT-base", "gelu", 128, 3072)
        yield self.activation("awkward", "relu", 16)
        yield self.addition("float32")
        yield self.addition("float32", (64, 1, 33), (1, 127, 33), network="awkward")
        yield self.conv1d("Whisper tiny", 80, 384, 3000, 3)


CHANNELS = (1, 3, 8, 12, 16, 24, 27, 32, 40, 56, 64, 80, 96, 112, 120, 128, 144, 160, 192, 240, 256)
CHANNELS += (320, 384, 480, 512, 640, 768, 960, 1024)
IMAGES = (*range(1, 9), 10, 12, 13, 14, 16, 19, 20, 24, 26, 28, 32, 36, 38, 40, 48, 52, 56)
IMAGES += (64, 75, 80, 96, 100, 112, 128, 160, 224)
ROWS = (1, 2, 3, 5, 7, 8, 10, 16, 17, 20, 24, 31, 32, 33, 48, 50, 64, 77, 100, 128, 196, 197, 256)
SUMS = (16, 27, 32, 48, 64, 100, 127, 128, 150, 192, 200, 256, 300, 384, 400, 512, 576, 640, 768)
SUMS += (1000, 1024, 1280, 1536, 2048, 3072)
COLUMNS = (*SUMS, 2, 5, 10, 21, 91, 1001)
LONGEST = 4e8
"""Operations of the largest call."""


class RandomLayers(Layers):
    """Layers drawn from a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.pick = random.Random(seed).choice

    def draw(self, kind: str) -> Timed | None:
        """Return a random layer of a kind; None if it has too many operations, or cannot be."""
        pick, of = self.pick, "random"
        m, k, n = pick(ROWS), pick(SUMS), pick(COLUMNS)
        batch, size = pick((1, 1, 2, 4)), pick(IMAGES)
        ins, outs, stride = pick(CHANNELS), pick(CHANNELS), pick((1, 1, 2))
        if kind == "conv2d":
            groups, dilation = pick((1, 1, 1, 2, 4, 16)), pick((1, 1, 2))
            window = pick((1, 3, 3, 5, 7))
            work = 2 * batch * ins * outs / groups * (window * size / stride) ** 2
            if ins % groups or outs % groups or not 2e5 < work < LONGEST:
                return None
            return self.convolution(of, ins, outs, size, window, stride, groups, batch, dilation)
        if kind == "conv1d":
            length, taps = pick((50, 200, 256, 1500)), pick((1, 3, 5, 9, 25))
            if 2 * ins * outs * length * taps > LONGEST:
                return None
            return self.conv1d(of, ins, outs, length, taps, stride)
        window, step, pad = pick(((2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2)))
        kinds: dict[str, Callable[[], Timed]] = {
            "depthwise": lambda: self.convolution(
                of, ins, ins, size, pick((3, 5, 7)), stride, ins, batch
            ),
            "dense": lambda: self.dense(of, m, k, n),
            "matmul": lambda: self.matmul(of, m, k, n),
            "stacks": lambda: self.stack(
                of, pick((2, 8, 12, 16)), m, pick((16, 64, m)), pick((32, 80))
            ),
            "pool": lambda: self.pool(
                of, pick(("max", "avg")), ins, max(5, size), window, step, pad, batch
            ),
            "activation": lambda: self.activation(of, pick(ACTIVATIONS), m, k),
        }
        return kinds[kind]()

    def cases(self, only: str = "") -> Iterator[Timed]:
        """Yield layers without end: calls only, and PyTorch's functions."""
        kinds = [kind for kind in KINDS_DRAWN if only in kind]
        while kinds:
            if case := self.draw(kind := self.pick(kinds)):
                calls = {n: call for n, call in case[2].items() if n[:5] in ("vtaop", "eager")}
                yield kind, case[1], calls


KINDS_DRAWN = "conv2d", "depthwise", "conv1d", "dense", "matmul", "stacks", "pool", "activation"
ACTIVATIONS = "relu", "sigmoid", "silu", "gelu", "tanh", "hard_swish", "softmax"


def smallest() -> dict[str, dict[str, Callable[[], Any]]]:
    """Return the calls to time: operator, way of calling, call."""
    import numpy as np
    import tvm_ffi

    from vtaops import cpu
    from vtaops.kernels.ops import BroadcastOp, MatmulOp

    a, b, c = (np.ones(32, "float32") for _ in "abc")
    m, n, o = (np.ones((16, 16), "float32") for _ in "mno")
    add, product = cpu.kernel(BroadcastOp("add", (32,), (32,))), cpu.kernel(MatmulOp(16, 16, 16))
    fast_add = [tvm_ffi.from_dlpack(x) for x in (a, b, c)]
    fast_product = [tvm_ffi.from_dlpack(x) for x in (m, n, o)]
    found: dict[str, dict[str, Callable[[], Any]]] = {
        "add, 32 elements": {
            "kernel, converted arrays": lambda: add.run(*fast_add),
            "kernel, NumPy arrays": lambda: add.run(a, b, c),
            "vtaops.cpu.add(out=)": lambda: cpu.add(a, b, out=c),
            "vtaops.cpu.add": lambda: cpu.add(a, b),
            "NumPy (out=)": lambda: np.add(a, b, out=c),
        },
        "matmul, 16 x 16": {
            "kernel, converted arrays": lambda: product.run(*fast_product),
            "kernel, NumPy arrays": lambda: product.run(m, n, o),
            "vtaops.cpu.matmul(out=)": lambda: cpu.matmul(m, n, out=o),
            "vtaops.cpu.matmul": lambda: cpu.matmul(m, n),
            "NumPy (out=)": lambda: np.matmul(m, n, out=o),
        },
    }
    x, w = np.ones((1, 4, 8, 8), "float32"), np.ones((4, 4, 3, 3), "float32")
    norm = tuple(np.ones(4, "float32") for _ in range(4))
    fused: dict[str, Any] = {"padding": 1, "batch_norm": norm, "activation": "relu"}
    found["conv2d, 4 channels, 8 x 8, batch norm, relu"] = {
        "vtaops.cpu.conv2d(batch_norm=, activation=)": lambda: cpu.conv2d(x, w, **fused)
    }
    try:
        import torch
    except ImportError:
        return found
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    ta, tb, tc, tm, tn, to = (torch.from_numpy(x) for x in (a, b, c, m, n, o))
    tx, tw, gamma, beta, mean, variance = (torch.from_numpy(v) for v in (x, w, *norm))
    net = torch.nn.functional
    adds, products, convolutions = found.values()
    adds["vtaops.cpu.add, PyTorch's tensors"] = lambda: cpu.add(ta, tb)
    adds["PyTorch (out=)"] = lambda: torch.add(ta, tb, out=tc)
    products["PyTorch (out=)"] = lambda: torch.mm(tm, tn, out=to)
    convolutions["PyTorch, three calls"] = lambda: net.relu_(
        net.batch_norm(net.conv2d(tx, tw, padding=1), mean, variance, gamma, beta)
    )
    return found
