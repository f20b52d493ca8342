"""Speed of the calls of `vtaops.cpu` beside PyTorch's calls, on layers of real networks.

Both sides are what a user calls, with arrays as they lie in a program: nothing is converted before.
PyTorch is shown twice: *eager*, the better of its layouts NCHW and channels_last, and *prepacked*,
its oneDNN layers with weights and data in oneDNN's own layout (`to_mkldnn`). One thread, CPU time,
turns alternate, and a ratio is the median of the ratios of neighbouring turns. PyTorch is needed
(``pip install torch``); it is no dependency of vtaops.
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
    ],
    "MobileNet-v2": [
        (3, 32, 224, 3, 2, 1),
        (96, 96, 112, 3, 2, 96),
        (144, 144, 56, 3, 1, 144),
        (24, 144, 56, 1, 1, 1),
        (384, 384, 14, 3, 1, 384),
        (960, 320, 7, 1, 1, 1),
    ],
    "YOLOv8n": [(16, 32, 160, 3, 2, 1), (32, 32, 80, 3, 1, 1), (128, 64, 40, 1, 1, 1)],
    "awkward": [(37, 41, 29, 3, 1, 1), (131, 67, 7, 1, 1, 1)],
}
"""Inputs, outputs, size of the image, window, stride, groups."""

PRODUCTS = {
    "BERT-base": [(128, 768, 768), (128, 768, 3072), (1, 768, 768)],
    "ResNet-50": [(1, 2048, 1000), (16, 2048, 1000)],
    "awkward": [(31, 127, 61)],
}
"""Rows, length of the sum, columns of a dense layer."""


@dataclass(frozen=True)
class Row:
    """One layer: seconds of a call, and ratios to PyTorch's times."""

    operator: str
    layer: str
    vtaops: float
    eager: float
    ratio: float
    prepacked_ratio: float | None


class Layers:
    """The calls to compare, layer by layer."""

    def __init__(self) -> None:
        import numpy as np
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.torch, self.functional = torch, torch.nn.functional
        self.random = np.random.default_rng(0)

    def array(self, *shape: int) -> Any:
        """Return normal float32 values."""
        return self.random.standard_normal(shape).astype("float32")

    def cases(self) -> Iterator[tuple[str, str, dict[str, Call]]]:
        """Yield operator, layer, and calls by name: "vtaops", "eager ..." and "prepacked"."""
        for network, layers in CONVOLUTIONS.items():
            for layer in layers:
                yield self.convolution(network, *layer)
        for network, products in PRODUCTS.items():
            for m, k, n in products:
                yield self.dense(network, m, k, n)
        yield from self.others()

    def convolution(
        self, network: str, ins: int, outs: int, size: int, window: int, stride: int, groups: int
    ) -> tuple[str, str, dict[str, Call]]:
        """Return a convolution without bias, with the padding that keeps the size."""
        from torch.utils import mkldnn

        from vtaops import cpu

        torch, conv, pad = self.torch, self.functional.conv2d, window // 2
        x, w = self.array(1, ins, size, size), self.array(outs, ins // groups, window, window)
        tx, tw = torch.from_numpy(x), torch.from_numpy(w)
        xl, wl = (t.to(memory_format=torch.channels_last) for t in (tx, tw))
        module = torch.nn.Conv2d(ins, outs, window, stride, pad, groups=groups, bias=False)
        module.weight.data = tw
        packed, xm = mkldnn.to_mkldnn(module.eval()), tx.to_mkldnn()
        calls = {
            "vtaops": lambda: cpu.conv2d(x, w, strides=stride, padding=pad, groups=groups),
            "eager nchw": lambda: conv(tx, tw, None, stride, pad, 1, groups),
            "eager channels_last": lambda: conv(xl, wl, None, stride, pad, 1, groups),
            "prepacked": lambda: packed(xm),
        }
        kind = "depthwise" if groups > 1 else "conv2d 1x1" if window == 1 else "conv2d"
        kind += " strided" if stride > 1 else ""
        return kind, f"{network}: {ins} to {outs}, {size}x{size}, {window}x{window}", calls

    def dense(self, network: str, m: int, k: int, n: int) -> tuple[str, str, dict[str, Call]]:
        """Return a dense layer without bias."""
        from vtaops import cpu

        x, w = self.array(m, k), self.array(n, k)
        tx, tw = self.torch.from_numpy(x), self.torch.from_numpy(w)
        calls = {
            "vtaops": lambda: cpu.dense(x, w),
            "eager": lambda: self.functional.linear(tx, tw),
        }
        return "dense", f"{network}: {m} x {k} by {n}", calls

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
        x, y = self.array(128, 3072), self.array(128, 3072)
        t, u = torch.from_numpy(x), torch.from_numpy(y)
        calls = {"vtaops": lambda: cpu.activation(x, "gelu"), "eager": lambda: f.gelu(t)}
        yield "gelu", "BERT-base: 128 x 3072", calls
        calls = {"vtaops": lambda: cpu.add(x, y), "eager": lambda: t + u}
        yield "add", "BERT-base: 128 x 3072", calls
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
    ours = times["vtaops"]

    def ratio(name: str) -> float:
        return median(a / b for a, b in zip(ours, times[name], strict=True))

    eager = max((name for name in times if name.startswith("eager")), key=ratio)
    packed = ratio("prepacked") if "prepacked" in times else None
    return Row(operator, layer, median(ours), median(times[eager]), ratio(eager), packed)


def instruction_sets() -> dict[str, str]:
    """Return what each library says that it uses on this processor."""
    from vtaops.cpu.target import CpuTarget

    program = "import torch; a = torch.ones(64, 64); torch.mm(a, a); "
    program += "torch.conv2d(torch.ones(1, 16, 8, 8), torch.ones(16, 16, 3, 3))"
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


def markdown(rows: list[Row], sets: dict[str, str]) -> str:
    """Return the tables: means by operator, then all layers."""
    lines = [
        f"Measured on {date.today()}: {processor()}, one thread, CPU time. Instructions: "
        + "; ".join(f"{name} {isa}" for name, isa in sets.items())
        + ".",
        "",
        "| operator | layers | geometric mean of time / eager | worst |",
        "|---|--:|--:|--:|",
    ]
    for operator in sorted({row.operator for row in rows}):
        ratios = [row.ratio for row in rows if row.operator == operator]
        mean, worst = geometric_mean(ratios), max(ratios)
        lines.append(f"| {operator} | {len(ratios)} | {mean:.2f} | {worst:.2f} |")
    lines += [
        "",
        "| operator | layer | vtaops us | PyTorch eager us | ratio | ratio to prepacked |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        packed = "" if row.prepacked_ratio is None else f"{row.prepacked_ratio:.2f}"
        lines.append(
            f"| {row.operator} | {row.layer} | {row.vtaops * 1e6:.1f} | {row.eager * 1e6:.1f} "
            f"| {row.ratio:.2f} | {packed} |"
        )
    return "\n".join(lines) + "\n"


def main(
    only: Annotated[str, typer.Option(help="Operators whose name contains this.")] = "",
    turns: Annotated[int, typer.Option(min=1, help="Alternating turns of a layer.")] = 15,
    budget: Annotated[float, typer.Option(help="Seconds for each call of a layer.")] = 0.5,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables here.")
    ] = None,
) -> None:
    """Time the calls of vtaops.cpu beside PyTorch's.

    Example: python benchmarks/cpu_operators.py --only dense --json dense.json
    """
    os.environ["TVM_NUM_THREADS"] = "1"
    rows = []
    for operator, layer, calls in Layers().cases():
        if only in operator:
            rows.append(row_of(operator, layer, measure(calls, turns, budget)))
            found = rows[-1]
            print(f"{operator:20} {layer:45} {found.ratio:.2f}", file=sys.stderr, flush=True)
    sets = instruction_sets()
    text = markdown(rows, sets)
    print(text)
    if json_file:
        about = {"processor": processor(), "instructions": sets, "threads": 1}
        json_file.write_text(json.dumps(about | {"rows": [asdict(row) for row in rows]}, indent=1))
    if markdown_file:
        markdown_file.write_text(text)


if __name__ == "__main__":
    typer.run(main)
