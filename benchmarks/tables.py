"""What the extension ``table`` saves: networks whose activations are curves, with it and without.

    python -m benchmarks tables [--only mobilenet_v3_small] [--json tables.json]

The convolutions and activations of MobileNet-v3 small (224 x 224, without squeeze-and-excite and
the first convolution), a YOLOv8n backbone at 320 x 320 without its first convolution, and the two
dense layers of an encoder of ViT-Tiny, twice; weights are random with a seed. Without the extension
a function of one value is a table on the host. Cycles are those of the timing model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import vtaops
from benchmarks.options import Config, Json, choice, write_json
from vtaops import HardwareConfig
from vtaops.graph import Graph, Requantization, Tensor
from vtaops.graph import operators as ops

Curve = Callable[[Any], Any]


def hard_swish(x: Any) -> Any:
    """Return ``x * relu6(x + 3) / 6``."""
    return x * np.clip(x + 3, 0, 6) / 6


def silu(x: Any) -> Any:
    """Return ``x * sigmoid(x)``."""
    return x / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    """Return GELU, nearly: ``x * sigmoid(1.702 * x)``."""
    return x / (1 + np.exp(-1.702 * x))


class Builder:
    """A graph that grows, with random weights."""

    def __init__(self, name: str, *shape: int) -> None:
        self.graph, self.rng = Graph(name), np.random.default_rng(0)
        self.x = self.graph.input("x", shape)

    def curve(self, x: Tensor, function: Curve) -> Tensor:
        """Apply a function to steps of 1/32."""
        values = np.rint(32 * function(np.arange(-128, 128) / 32))
        table = np.clip(values, -128, 127).astype(np.int8)
        return self.graph.add(ops.LookupTable(table, 0, function.__name__), x)

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
        y = self.graph.add(ops.Convolution(weight, None, scaling, groups=groups, **window), x)
        return self.curve(y, function) if function else y

    def sum(self, a: Tensor, b: Tensor) -> Tensor:
        return self.graph.add(ops.Add((1, 1), Requantization(1, 0)), a, b)


def mobilenet_v3_small() -> Graph:
    """Return its inverted residuals and last convolution; image of 224 x 224."""
    b = Builder("MobileNet-v3 small", 1, 16, 112, 112)
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
    b = Builder("YOLOv8n backbone", 1, 16, 160, 160)
    x = b.x
    for channels, count in ((32, 1), (64, 2), (128, 2), (256, 1)):
        x = b.convolution(x, channels, 3, 2, function=silu)
        x, half = b.convolution(x, channels, function=silu), channels // 2
        parts = [b.graph.add(ops.Slice(1, k * half, (k + 1) * half), x) for k in (0, 1)]
        for _ in range(count):
            y = b.convolution(parts[-1], half, 3, function=silu)
            parts.append(b.sum(b.convolution(y, half, 3, function=silu), parts[-1]))
        x = b.convolution(b.graph.add(ops.Concat(), *parts), channels, function=silu)
    b.graph.output(x)
    return b.graph


def vit_tiny() -> Graph:
    """Return two pairs of dense layers with GELU."""
    b = Builder("ViT-Tiny, two pairs of dense layers", 197, 192)
    x = b.x
    for _ in range(2):
        for size in (768, 192):
            weight = b.weights(size, x.shape[1])
            x = b.graph.add(ops.Dense(weight, None, Requantization(40_000, 27)), x)
            x = b.curve(x, gelu) if size == 768 else x
    b.graph.output(x)
    return b.graph


NETWORKS = {f.__name__: f for f in (mobilenet_v3_small, yolov8n, vit_tiny)}


def measure(graph: Graph, config: HardwareConfig) -> dict[str, Any]:
    """Compile a network; return its cycles, launches, and what the host computes."""
    model = vtaops.compile_model(graph, config)
    report = model.report()
    on_host = sum(row.where == "host" for row in model.plan)
    return {"cycles": report.cycles, "launches": report.launches, "on_host": on_host}


def main(
    only: Annotated[
        list[str] | None, typer.Option(**choice(NETWORKS), help="Some of the networks.")
    ] = None,
    config_name: Config = "pynq_ext",
    json_file: Json = None,
) -> None:
    """Print the table."""
    given = HardwareConfig.load(config_name)
    tables = replace(given, extensions=tuple({*given.extensions, "post", "table"}))
    without = replace(given, extensions=tuple({*tables.extensions} - {"table"}))
    rows = []
    shown = Table("network", "values", "table", "cycles", "launches", "operators on the host")
    for name in only or NETWORKS:
        graph = NETWORKS[name]()
        curved = [n for n in graph.nodes if isinstance(n.op, ops.LookupTable)]
        values = sum(node.outputs[0].elements for node in curved)
        for label, config in (("", without), ("yes", tables)):
            found = measure(graph, config)
            rows.append({"network": graph.name, "values": values, "table": bool(label), **found})
            counts = (found[key] for key in ("cycles", "launches", "on_host"))
            shown.add_row(graph.name, f"{values:,}", label, *(f"{count:,}" for count in counts))
    Console().print(shown)
    write_json(json_file, rows)
