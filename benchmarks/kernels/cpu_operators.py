"""Speed of the calls of `vtaops.cpu` beside PyTorch's calls, on layers of real networks.

Three ratios for a layer. Of *calls*: `vtaops.cpu` with NCHW arrays as they lie in a program over
PyTorch's function with the same tensors, and over it in the better of its layouts (channels_last:
PyTorch's data are converted before). Of *layers*: `cpu.layers`, weights and data packed, over
the best that PyTorch has: its oneDNN layers (`to_mkldnn`), quantized layers, or functions.
One thread, CPU time; turns alternate, and a ratio is the median of those of neighbouring turns.
PyTorch is needed (``pip install torch``); it is no dependency of vtaops.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.options import Json, Markdown, write_json

Call = Callable[[], Any]

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


@dataclass(frozen=True)
class Row:
    """One layer: seconds of a call and of a layer, and ratios to PyTorch's times."""

    operator: str
    layer: str
    vtaops: float | None
    same_layout: float | None
    best_layout: float | None
    packed: float | None
    layers: float | None


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

    def cases(self) -> Iterator[tuple[str, str, dict[str, Call]]]:
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
    ) -> tuple[str, str, dict[str, Call]]:
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

    def dense(
        self, network: str, m: int, k: int, n: int, dtype: str = "float32"
    ) -> tuple[str, str, dict[str, Call]]:
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

    def matmul(self, network: str, m: int, k: int, n: int) -> tuple[str, str, dict[str, Call]]:
        """Return a product of two matrices."""
        from vtaops import cpu

        x, y = self.array(m, k), self.array(k, n)
        tx, ty = self.tensor(x), self.tensor(y)
        calls = {"vtaops": lambda: cpu.matmul(x, y), "eager": lambda: tx @ ty}
        return "matmul", f"{network}: {m} x {k} by {n}", calls

    def stack(
        self, network: str, count: int, m: int, k: int, n: int
    ) -> tuple[str, str, dict[str, Call]]:
        """Return a product of stacks of matrices."""
        from vtaops import cpu

        x, y = self.array(count, m, k), self.array(count, k, n)
        tx, ty = self.tensor(x), self.tensor(y)
        calls = {"vtaops": lambda: cpu.matmul(x, y), "eager": lambda: tx @ ty}
        return "matmul of stacks", f"{network}: {count} x {m} x {k} by {n}", calls

    def addition(
        self, dtype: str, *shapes: tuple[int, ...], network: str = "BERT-base"
    ) -> tuple[str, str, dict[str, Call]]:
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
    ) -> tuple[str, str, dict[str, Call]]:
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

    def int8_dense(self, m: int, k: int, n: int) -> tuple[str, str, dict[str, Call]]:
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

    def int8_sums(
        self, m: int, k: int, n: int, transposed: bool
    ) -> tuple[str, str, dict[str, Call]]:
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

    def others(self) -> Iterator[tuple[str, str, dict[str, Call]]]:
        """Yield pooling, softmax, activations, additions, 1-D convolution."""
        from vtaops import cpu

        torch, f = self.torch, self.functional
        x = self.array(1, 64, 112, 112)
        t = torch.from_numpy(x)
        calls = {
            "vtaops": lambda x=x: cpu.max_pool2d(x, 3, strides=2, padding=1),
            "eager": lambda t=t: f.max_pool2d(t, 3, 2, 1),
        }
        yield "max_pool", "ResNet-50: 64, 112x112, 3x3, stride 2", calls
        x = self.array(1, 2048, 7, 7)
        t = torch.from_numpy(x)
        calls = {
            "vtaops": lambda x=x: cpu.global_avg_pool2d(x),
            "eager": lambda t=t: f.adaptive_avg_pool2d(t, 1),
        }
        yield "global_avg_pool", "ResNet-50: 2048, 7x7", calls
        x = self.array(1536, 128)
        t = torch.from_numpy(x)
        calls = {"vtaops": lambda x=x: cpu.softmax(x), "eager": lambda t=t: torch.softmax(t, -1)}
        yield "softmax", "BERT-base: 1536 x 128", calls
        x = self.array(128, 3072)
        t = torch.from_numpy(x)
        calls = {"vtaops": lambda: cpu.activation(x, "gelu"), "eager": lambda: f.gelu(t)}
        yield "gelu", "BERT-base: 128 x 3072", calls
        x = self.array(16)
        t = torch.from_numpy(x)
        calls = {"vtaops": lambda: cpu.relu(x), "eager": lambda: torch.relu(t)}
        yield "relu", "awkward: 16", calls
        yield self.addition("float32")
        yield self.addition("float32", (64, 1, 33), (1, 127, 33), network="awkward")
        s, w = self.array(1, 80, 3000), self.array(384, 80, 3)
        ts, tw = torch.from_numpy(s), torch.from_numpy(w)
        calls = {
            "vtaops": lambda: cpu.conv1d(s, w, padding=1),
            "eager": lambda: f.conv1d(ts, tw, padding=1),
        }
        yield "conv1d", "Whisper tiny: 80 to 384, 3000, 3 taps", calls


def measure(calls: dict[str, Call], turns: int, budget: float) -> dict[str, list[float]]:
    """Return the CPU seconds per call of some alternating turns; a turn has several calls."""
    counts = {}
    for name, call in calls.items():
        call()
        start = time.thread_time()
        call()
        counts[name] = max(1, int(budget / turns / max(time.thread_time() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            start = time.thread_time()
            for _ in range(counts[name]):
                call()
            times[name].append((time.thread_time() - start) / counts[name])
    return times


def row_of(operator: str, layer: str, times: dict[str, list[float]]) -> Row:
    """Return the row of a layer that was timed."""
    eager = [name for name in times if name.startswith("eager")]

    def ratio(ours: str, names: list[str]) -> float | None:
        if ours not in times or not names:
            return None
        ratios = (
            median(a / b for a, b in zip(times[ours], times[name], strict=True)) for name in names
        )
        return max(ratios)

    others = [name for name in times if name not in ("vtaops", "packed")]
    seconds = {name: median(times[name]) for name in ("vtaops", "packed") if name in times}
    return Row(
        operator,
        layer,
        seconds.get("vtaops"),
        ratio("vtaops", eager[:1]),
        ratio("vtaops", eager),
        seconds.get("packed"),
        ratio("packed", others),
    )


def limit_to_avx2() -> None:
    """Let vtaops and PyTorch's libraries use AVX2 only, as on an older processor."""
    from vtaops.kernels.cpu.target import CpuTarget, thread_count

    target = CpuTarget("haswell", ("avx2", "fma", "f16c"), (), thread_count())
    CpuTarget.detect = classmethod(lambda cls: target)  # type: ignore[method-assign,assignment]
    os.environ |= {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "FBGEMM_ENABLE_INSTRUCTIONS": "AVX2",
    }


def instruction_sets() -> dict[str, str]:
    """Return what each library says that it uses on this processor."""
    from vtaops.kernels.cpu.target import CpuTarget

    program = "import torch; a = torch.ones(64, 64); torch.mm(a, a); "
    program += "torch.conv2d(torch.ones(1, 64, 56, 56), torch.ones(64, 64, 3, 3))"
    environment = {**os.environ, "ONEDNN_VERBOSE": "1", "MKL_VERBOSE": "1"}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    ).stdout
    onednn = re.search(r"cpu,isa:(.*)", said)
    mkl = re.search(
        r"^MKL_VERBOSE (?:Intel|oneMKL).*? for (.*?),? Lnx|^MKL_VERBOSE (.*)", said, re.M
    )
    target = CpuTarget.detect()
    return {
        "vtaops": f"{target.mcpu}: {', '.join(target.features)}",
        "oneDNN": onednn[1] if onednn else "not said",
        "MKL": (mkl[1] or mkl[2]) if mkl else "not said",
    }


def processor() -> str:
    """Return the name of this processor."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else "unknown"


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return exp(sum(map(log, values)) / len(values))


KINDS = ("same_layout", "best_layout", "layers")
"""The ratios of a row."""


def markdown(states: list[dict[str, Any]]) -> str:
    """Return the tables of the runs, side by side: means by operator, then all layers."""
    lines = []
    for state in states:
        sets = "; ".join(f"{name} {isa}" for name, isa in state["instructions"].items())
        lines += [f"- **{state['isa']}** ({state['processor']}), {state['date']}: {sets}.", ""]
    tables, heads = _side_by_side(states)
    lines += [operator_table(states), f"| operator | layer | us of a call, of a layer | {heads} |"]
    lines.append("|---|---|" + "--:|" * (len(KINDS) * len(states) + 1))
    for name, row in tables[0].items():
        times = ", ".join(f"{row[k] * 1e6:.0f}" for k in ("vtaops", "packed") if row[k])
        lines.append(f"| {name[0]} | {name[1]} | {times} | {_cells(tables, [name])} |")
    return "\n".join(lines) + "\n"


def operator_table(states: list[dict[str, Any]]) -> str:
    """Return the geometric mean of each operator's ratios, and the largest."""
    tables, heads = _side_by_side(states)
    lines = [f"| operator | layers | {heads} |"]
    lines.append("|---|" + "--:|" * (len(KINDS) * len(states) + 1))
    for operator in sorted({name[0] for name in tables[0]}):
        chosen = [name for name in tables[0] if name[0] == operator]
        lines.append(f"| {operator} | {len(chosen)} | {_cells(tables, chosen)} |")
    return "\n".join(lines) + "\n"


def _side_by_side(states: list[dict[str, Any]]) -> tuple[list[dict[Any, Any]], str]:
    """Return the rows of each run by operator and layer, and the headings of their ratios."""
    heads = [f"{state['isa']}: {kind.replace('_', ' ')}" for state in states for kind in KINDS]
    tables = [{(row["operator"], row["layer"]): row for row in s["rows"]} for s in states]
    return tables, " | ".join(heads)


def _cells(tables: list[dict[Any, Any]], names: list[Any]) -> str:
    """Return the ratios of some rows in each run as cells: their mean and the largest."""
    cells = []
    for table in tables:
        for kind in KINDS:
            ratios = [table[name][kind] for name in names if name in table and table[name][kind]]
            mean = f"{geometric_mean(ratios):.2f}" if ratios else ""
            cells.append(f"{mean}, {max(ratios):.2f}" if len(ratios) > 1 else mean)
    return " | ".join(cells)


def main(
    only: Annotated[str, typer.Option(help="Operators whose name contains this.")] = "",
    turns: Annotated[int, typer.Option(min=1, help="Alternating turns of a layer.")] = 15,
    budget: Annotated[float, typer.Option(help="Seconds for each call of a layer.")] = 0.5,
    avx2: Annotated[bool, typer.Option(help="Use AVX2 only, on both sides.")] = False,
    json_file: Json = None,
    name: Annotated[str, typer.Option(help="What the tables call these rows.")] = "",
    beside: Annotated[list[Path] | None, typer.Option(help="Rows to show beside these.")] = None,
    markdown_file: Markdown = None,
) -> None:
    """Time the calls of vtaops.cpu beside PyTorch's.

    Example: python -m benchmarks cpu_operators --only dense --json dense.json
    """
    os.environ["TVM_NUM_THREADS"] = "1"
    if avx2:
        limit_to_avx2()
    state: dict[str, Any] = {
        "isa": name or ("AVX2" if avx2 else "all instructions"),
        "date": str(date.today()),
        "processor": processor(),
        "instructions": instruction_sets(),
        "rows": [],
    }
    if json_file and json_file.exists():
        state["rows"] = json.loads(json_file.read_text())["rows"]
    for operator, layer, calls in Layers().cases():
        known = any((row["operator"], row["layer"]) == (operator, layer) for row in state["rows"])
        if only in operator and not known:
            found = row_of(operator, layer, measure(calls, turns, budget))
            state["rows"].append(asdict(found))
            ratios = (found.same_layout, found.best_layout, found.layers)
            shown = "  ".join("    " if r is None else f"{r:.2f}" for r in ratios)
            print(f"{operator:20} {layer:45} {shown}", file=sys.stderr, flush=True)
            write_json(json_file, state)
    text = markdown([state, *(json.loads(file.read_text()) for file in beside or [])])
    print(text)
    if markdown_file:
        markdown_file.write_text(text)
