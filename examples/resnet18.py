"""ResNet-18 with synthetic int8 weights, end to end, with a report of every layer.

python examples/resnet18.py --size 224 --config pynq

The network is one function of `OperatorMethods`: a session runs it, and so does NumPy, with equal
scores.
A shortcut is added inside the convolution that it bypasses; what VTA cannot run, the CPU does.
"""

import argparse
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from vtaops import HardwareConfig, Session, Tiling
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.session import Placement
from vtaops.session.operators import OperatorMethods

Int8Array = npt.NDArray[np.int8]

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""(channels, stride of the first block) of the four stages, of two blocks each."""


def resnet18(
    ops: OperatorMethods, image: Int8Array, seed: int = 0, classes: int = 1000
) -> Int8Array:
    """Return the scores of an image (1, 3, H, W); weights are drawn from `seed`."""
    rng = np.random.default_rng(seed)

    def convolve(x: Int8Array, channels: int, kernel: int, **parameters: Any) -> Int8Array:
        weights = rng.integers(-64, 64, (channels, x.shape[1], kernel, kernel)).astype(np.int8)
        bias = rng.integers(-2000, 2000, channels).astype(np.int32)
        # Sums of independent products grow with the root of their number; the shift takes it back.
        shift = round(math.log2(37 * math.sqrt(weights[0].size)))
        ending = {"shift": shift, "clip": (0, 127), "rounding": "half_up"}
        parameters = {"padding": kernel // 2, **ending, **parameters}
        return ops.conv2d(x, weights, bias=bias, **parameters)

    x = convolve(image, 64, 7, strides=2)
    x = ops.max_pool2d(x, 3, strides=2, padding=1)
    for channels, first_stride in STAGES:
        for stride in (first_stride, 1):
            shortcut = x
            if stride > 1:
                shortcut = convolve(x, channels, 1, strides=stride, clip=(-128, 127))
            x = convolve(x, channels, 3, strides=stride)
            x = convolve(x, channels, 3, residual=shortcut, residual_shift=1)
    x = ops.global_avg_pool2d(x)
    weights = rng.integers(-64, 64, (classes, x.shape[1])).astype(np.int8)
    return ops.gemm(x.reshape(len(x), -1), weights, shift=8, clip=(-128, 127))


class NumPy(OperatorMethods):
    """The operators in plain NumPy."""

    config = HardwareConfig()

    def run(self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None) -> Int8Array:
        return evaluate(op, [np.asarray(array) for array in arrays])


@dataclass
class Layer:
    """What one layer took; no products and cycles where it ran on the CPU."""

    placement: Placement
    macs: int
    products: int
    cycles: int
    seconds: float


class Recorder(OperatorMethods):
    """A session that notes what every layer takes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.layers: list[Layer] = []

    @property
    def config(self) -> HardwareConfig:
        return self.session.config

    def run(self, op: Operator, *arrays: npt.ArrayLike, tiling: Tiling | None = None) -> Int8Array:
        self.session.reset_stats()
        self.session.run(op, *arrays, tiling=tiling)  # compiles
        products = self.session.stats.gemm_counter
        start = time.perf_counter()
        result = self.session.run(op, *arrays, tiling=tiling)
        seconds = time.perf_counter() - start
        (placement,) = self.session.placements
        on_vta = placement.where == "vta"
        cycles = self.session.program(op, tiling).cycles() if on_vta else 0
        self.layers.append(Layer(placement, op.macs, products, cycles, seconds))
        return result


def cells(layer: Layer) -> tuple[str, ...]:
    """Return the numbers of a layer as text."""
    on_vta = ("", "", "")
    if layer.cycles:
        busy = layer.products / layer.cycles
        on_vta = f"{layer.products:,}", f"{layer.cycles:,}", f"{busy:.0%}"
    return f"{layer.macs / 1e6:,.1f}", *on_vta, f"{layer.seconds * 1e3:.2f}"


def report(layers: list[Layer], config: HardwareConfig) -> Table:
    """Return the table of all layers."""
    table = Table(title=f"ResNet-18 on {config.name} ({config.bitstream_id})")
    table.add_column("operator")
    table.add_column("where")
    for column in ("M MACs", "tile products", "cycles", "array busy", "simulated, ms"):
        table.add_column(column, justify="right")
    for layer in layers:
        table.add_row(layer.placement.operator, layer.placement.where, *cells(layer))
    table.add_section()
    total = Layer(
        Placement("", "vta", "", 0),
        sum(layer.macs for layer in layers),
        sum(layer.products for layer in layers),
        sum(layer.cycles for layer in layers),
        sum(layer.seconds for layer in layers),
    )
    table.add_row("total", "", *cells(total))
    return table


def main() -> None:
    """Run the network and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=224, help="rows and columns of the image")
    parser.add_argument("--config", default="pynq", help="hardware configuration")
    parser.add_argument("--device", default="fsim", help="fsim, tsim, or pynq://host:port")
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    image = rng.integers(-128, 128, (1, 3, arguments.size, arguments.size)).astype(np.int8)
    with Session(arguments.device, arguments.config, fallback="cpu") as session:
        recorder = Recorder(session)
        scores = resnet18(recorder, image)
        Console().print(report(recorder.layers, session.config))
    for layer in recorder.layers:
        if layer.placement.reason:
            print(f"{layer.placement.operator} did not run on VTA: {layer.placement.reason}")
    equal = np.array_equal(scores, resnet18(NumPy(), image))
    print(f"class {scores.argmax()} of {scores.size}; {'equal' if equal else 'NOT EQUAL'} to NumPy")
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
