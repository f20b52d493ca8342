"""How fast the functional simulator runs the convolutions of ResNet-18.

    python -m benchmarks fsim_speed --json fsim_speed.json

Figures are millions of tile products per second; one is the 256 int8 multiply-accumulates of a GEMM
micro-op on 1x16. "ms" and each kernel: a whole warm launch with all loads, ALU instructions and
stores. "numpy" and "C++": the matrix product of the same size alone, in int32 and in a loop
over int8. Last line: what the instructions of a kernel reach in registers. CPU time of one thread,
medians.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from benchmarks.options import Json, Repeat, Rows, choice, median_seconds, show, write_json
from vtaops import Conv2d, Program, _fsim, compile
from vtaops.runtime import Fsim, LoadedProgram
from vtaops.runtime.fsim import available_kernels
from vtaops.schedule.workloads import WORKLOADS

TILE_MACS = 256
LAYERS = [f"C{k}" for k in range(2, 12)]


class RecordingFsim(Fsim):
    """Remembers how it was launched, to do it again without the host's part."""

    def launch(self, insn_address: int, count: int, timeout: float) -> None:
        self.arguments = (insn_address, count, timeout)
        super().launch(insn_address, count, timeout)


def launch_seconds(program: Program, kernel: str, repeat: int) -> float:
    """Return the time of one launch of a program with random inputs."""
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, buffer.shape, buffer.dtype) for buffer in program.inputs]
    with (
        RecordingFsim(program.config, kernel=kernel) as device,
        LoadedProgram(program, device) as loaded,
    ):
        loaded.run(*inputs)
        return median_seconds(lambda: device.launch(*device.arguments), repeat)


def host_seconds(op: Conv2d, repeat: int) -> dict[str, float]:
    """Return the times of the matrix product that a convolution is, in NumPy and plain C++."""
    height, width = op.out_size
    kernel_height, kernel_width = op.window.kernel
    inner = op.in_channels * kernel_height * kernel_width
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (height * width, inner), np.int8)
    b = rng.integers(-128, 128, (op.out_channels, inner), np.int8)
    wide_a, wide_b = a.astype(np.int32), b.astype(np.int32)
    return {
        "numpy": median_seconds(lambda: wide_a @ wide_b.T, repeat),
        "C++": median_seconds(lambda: _fsim.plain_matmul(a, b), repeat),
    }


def register_rate(kernel: str, repeat: int) -> float:
    """Return the tile products per second that the instructions of a kernel reach in registers."""
    macs = _fsim.register_macs(kernel, 1 << 30)
    seconds = median_seconds(lambda: _fsim.register_macs(kernel, macs), repeat)
    return float(macs / TILE_MACS / seconds)


def measure(name: str, kernels: list[str], repeat: int) -> dict[str, Any]:
    """Return the figures of one layer."""
    op = WORKLOADS[f"resnet18.{name}"].op
    assert isinstance(op, Conv2d)
    program = compile(op, config="pynq")
    tiles = program.stats().gemm_counter
    seconds = {kernel: launch_seconds(program, kernel, repeat) for kernel in kernels}
    seconds |= host_seconds(op, min(repeat, 3))
    return {"tiles": tiles, "ms": {who: 1e3 * value for who, value in seconds.items()}}


def main(
    repeat: Repeat = 25,
    only: Annotated[list[str] | None, typer.Option("--layers", **choice(LAYERS))] = None,
    chosen: Annotated[list[str] | None, typer.Option("--kernels")] = None,
    json_file: Json = None,
) -> None:
    """Measure the layers, the host's own products and the peak."""
    kernels = chosen or available_kernels()

    layers = {
        name: measure(name, kernels, repeat)
        for name in track(only or LAYERS, description="running")
    }
    peaks = {k: register_rate(k, 5) for k in kernels if k != "generic"}

    rows: Rows = {}
    best = kernels[0]
    for name, row in layers.items():
        rows[name] = {"ms": row["ms"][best]}
        rows[name] |= {who: row["tiles"] / ms / 1e3 for who, ms in row["ms"].items()}
        rows[name] |= {"% of peak": 1e8 * rows[name][best] / peaks[best]} if best in peaks else {}
    rows["registers"] = {kernel: peak / 1e6 for kernel, peak in peaks.items()}
    show("Millions of tile products per second", rows, of="layer")
    write_json(json_file, {"layers": layers, "tiles_per_second_in_registers": peaks})
