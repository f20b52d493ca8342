"""Whole networks: cycles, frames, memory, time to compile and to simulate.

    python -m benchmarks networks [--config pynq] [--scales pow2] [--only resnet18] [--rtl]

Networks of usual shapes with seeded random weights, symmetric; scales are powers of two, or free
(a multiplier and a shift for each channel, as ONNX Runtime's quantisers write). Every result is
compared with the integer executor; with ``--rtl`` (needs Verilator) each network also runs on the
simulated hardware. Times are CPU time of this process; read them as ratios.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import Config, Json, Rtl, choice, write_json
from vtaops import Session
from vtaops.graph import (
    AveragePool,
    Convolution,
    Dense,
    Graph,
    GraphOperator,
    MaxPool,
    Requantization,
    Reshape,
    Tensor,
)
from vtaops.network import compile_model
from vtaops.runtime.tsim import Tsim

RELU = (0, 127)
LINEAR = (-128, 127)

PUBLISHED = {
    "resnet18": "1232 ms, float32 on the Pynq's two cores (wiki of TVM, Benchmark)",
    "resnet20": "14 ms, Tensil's model of a 12x12 array at 150 MHz (tensil.ai)",
    "mobilenet_v1": "721 ms, float32 on the Pynq's two cores (wiki of TVM, Benchmark)",
}


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


def measure(name: str, graph: Graph, config: str, rtl: bool) -> dict[str, Any]:
    """Compile, verify, run and compare one network."""
    begin = time.process_time()
    model = compile_model(graph, config, verify=False)
    compiled = time.process_time()
    model.verify()
    verified = time.process_time()
    report = model.report()
    rng = np.random.default_rng(1)
    arrays = [
        rng.normal(0, 1, t.shape).astype(np.float32)
        if t.dtype == "float32"
        else rng.integers(-64, 64, t.shape).astype(np.int8)
        for t in graph.inputs
    ]
    found = model.run(*arrays)
    times = []
    for _ in range(5):
        start = time.process_time()
        model.run(*arrays)
        times.append(time.process_time() - start)
    expected = model.reference(*arrays)
    equal, rtl_cycles = _equal(found, expected), None
    if rtl:
        with Tsim(config) as device, Session(device, timeout=3600) as session:
            equal = equal and _equal(model.run(*arrays, session=session), expected)
            rtl_cycles = device.performance().cycles
    on_vta = [row for row in model.plan if row.where == "vta"]
    return {
        "network": name,
        "config": config,
        "operators": len(model.plan),
        "on_vta": len(on_vta),
        "launches": report.launches,
        "macs": report.macs,
        "cycles": report.cycles,
        "rtl_cycles": rtl_cycles,
        "milliseconds": report.milliseconds,
        "frames_per_second": report.frames_per_second,
        "dram_nbytes": report.counters.dram_nbytes,
        "arena_nbytes": report.arena_nbytes,
        "instructions": sum(map(len, model.programs)),
        "compile_cpu_s": compiled - begin,
        "verify_cpu_s": verified - compiled,
        "fsim_cpu_ms": 1e3 * sorted(times)[len(times) // 2],
        "equal": equal,
        "published": PUBLISHED.get(name, ""),
    }


def _equal(found: Any, expected: Any) -> bool:
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    return all(np.array_equal(a, b) for a, b in pairs)


def main(
    config_name: Config = "pynq",
    scales: Annotated[str, typer.Option(**choice(("pow2", "free")))] = "pow2",
    only: Annotated[list[str] | None, typer.Option(help="Names of networks.")] = None,
    rtl: Rtl = False,
    json_file: Json = None,
) -> None:
    """Run from the command line."""
    networks: list[tuple[str, Any]] = [
        (f.__name__, f) for f in (resnet18, resnet20, mobilenet_v1, mobilenet_v2)
    ]
    rows = []
    print("| network | on VTA | launches | M MACs | cycles | ms | frames/s | arena kB | compile s |"
          " verify s | fsim ms | equal | published |")  # fmt: skip
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|")
    for name, build in networks:
        if only and name not in only:
            continue
        row = measure(name, build(scales == "free"), config_name, rtl)
        rows.append(row)
        print(
            f"| {name} | {row['on_vta']}/{row['operators']} | {row['launches']} "
            f"| {row['macs'] / 1e6:,.0f} | {row['cycles']:,} | {row['milliseconds']:.1f} "
            f"| {row['frames_per_second']:.1f} | {row['arena_nbytes'] / 1e3:,.0f} "
            f"| {row['compile_cpu_s']:.1f} | {row['verify_cpu_s']:.1f} "
            f"| {row['fsim_cpu_ms']:.0f} | {row['equal']} | {row['published']} |",
            flush=True,
        )
        if rtl:
            print(f"  on the RTL {row['rtl_cycles']:,} cycles", flush=True)
    write_json(json_file, rows)
