"""Models as C: code and memory, equality on emulated processors, the time of host stages.

    python -m benchmarks model_as_c --json model_as_c.json

Needs cross compilers and qemu-user for other processors than this one (Debian:
gcc-arm-linux-gnueabihf, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu, qemu-user), and torch for
Tiny YOLO and ViT-Tiny; what is not installed is left out. Every bundle is built by gcc and by
clang, which takes the libraries of those gcc, as strictly as its Makefile says, and once more with
sanitizers.
`trials/random_bundles.py` is the campaign for random networks.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import typer

from benchmarks.options import Json, Row, Rows, show, write_rows
from examples import networks
from trials import c_bundles
from trials.networks import Builder, mobilenet_v2, resnet20
from trials.random_graphs import random_inputs
from vtaops import compile_model, quantize
from vtaops.graph import Graph, LookupTable, Multiply, Requantization, Upsample
from vtaops.model import Model
from vtaops.model.export import stages
from vtaops.runtime.arguments import as_tuple
from vtaops.runtime.fsim import Fsim

PROCESSORS = {
    "x86-64": ("", ""),
    "armv7": ("arm-linux-gnueabihf", "qemu-arm"),
    "aarch64": ("aarch64-linux-gnu", "qemu-aarch64"),
    "riscv64": ("riscv64-linux-gnu", "qemu-riscv64"),
    "x86-64, sanitized": ("", ""),
}
"""By name: the target of a compiler, and what emulates it."""
SANITIZERS = {
    "gcc": "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all",
    "clang": "-O1 -g -fsanitize=undefined -fsanitize-trap=undefined",  # needs no library of its own
}
HEAP = frozenset({"malloc", "calloc", "realloc", "free", "mmap", "brk", "sbrk"})
MAPPED = "vta_linux.o"
"""The only file that maps memory: the registers and the device's DRAM, when a device is opened."""
COMMON = "vta.o", "vta_steps.o", "vta_products.o"
"""The same for all models, built once."""
RUNTIME = *COMMON, "vta_mapped.o", "vta_linux.o", "model.o"
MLPERF_TINY = Path("mlperf-tiny")
"""Where ``vtaops fetch mlperf-tiny`` writes, from where this runs."""


def pyramid(free: bool = False) -> Graph:
    """Return a detector's neck: it upsamples, gates and maps on the host of a plain VTA."""
    net = Builder("pyramid", 160, free)
    sizes = [net.convolve(channels, 3, 2) for channels in (16, 32, 64, 64)]
    swish = np.clip(np.arange(-128, 128) * 0.7, -128, 127).astype(np.int8)
    for below in reversed(sizes[:-1]):
        net.apply(LookupTable(swish))
        net.apply(Upsample())
        net.convolve(below.shape[1], 1)
        gate = net.graph.add(LookupTable(swish), below)
        net.x = net.graph.add(Multiply(Requantization(1, 7)), net.x, gate)
    net.graph.output(net.x)
    return net.graph


def trained(name: str, config: str) -> Model:
    """Return a torch network of `examples/networks.py`, quantised for a configuration."""
    model, data = networks.network(name)
    quantized = quantize(model, data, scales="pow2" if config == "pynq" else "free")
    return compile_model(quantized, config)


def models() -> dict[str, Callable[[], Model]]:
    """Return what compiles each model, by a name for people."""
    found: dict[str, Callable[[], Model]] = {}
    for name, build in (
        ("ResNet-20", resnet20),
        ("MobileNet-v2", mobilenet_v2),
        ("pyramid", pyramid),
    ):
        for config in ("pynq", "pynq_ext"):
            graph = build, config
            found[f"{name}, {config}"] = lambda g=graph: compile_model(g[0](g[1] != "pynq"), g[1])
    for path in sorted(MLPERF_TINY.glob("*.tflite")):
        for config in ("pynq", "pynq_ext"):
            found[f"{path.stem}, {config}"] = lambda p=path, c=config: compile_model(p, c)
    if find_spec("torch"):
        for title, name in (
            ("Tiny YOLO", "tiny_yolo"),
            ("ViT-Tiny", "vit_tiny"),
            ("encoder", "encoder"),
            ("decoder", "decoder"),
        ):
            for config in ("pynq", "pynq_ext", "pynq_512"):
                found[f"{title}, {config}"] = lambda n=name, c=config: trained(n, c)
    return found


class Recorded:
    """Programs that have been run: what is left of a run is the host's part in NumPy."""

    def __init__(self, model: Model) -> None:
        self.residents, self._images = self, {}
        self._model = model

    def run(
        self, program: Any, arrays: Any, parameters: Any = None, held: Any = None
    ) -> tuple[Any, ...]:
        """Pack the inputs, and unpack results that are zeros; no device holds any."""
        given = [b for b in program.inputs if b.name not in (parameters or {})]
        for buffer, array in zip(given, arrays, strict=True):
            buffer.pack(array)
        return tuple(b.unpack(np.zeros(b.nbytes, np.uint8)) for b in program.outputs)


def milliseconds(runs: dict[str, Callable[[], object]], seconds: float = 3.0) -> dict[str, float]:
    """Return the processor times of runs: the least of many in turn, because machines are busy."""
    least, spent = dict.fromkeys(runs, float("inf")), 0.0
    while spent < seconds:
        for name, run in runs.items():
            start = time.process_time()
            run()
            taken = time.process_time() - start
            least[name], spent = min(least[name], taken), spent + taken
    return {name: round(1e3 * taken, 3) for name, taken in least.items()}


def host_times(model: Model, arrays: list[Any]) -> dict[str, float]:
    """Return what the host's part of a run takes: in NumPy, in `Model.run`, and in a bundle."""
    bundle, files = c_bundles.bundle_files(model, Path())
    device = c_bundles.NoDevice(Fsim(model.config))
    fast = c_bundles.library(flags=("-O3",))
    loaded = c_bundles.Loaded(model, files["model.bin"], bundle.arena_nbytes, device, fast)
    recorded = Recorded(model)
    plain = Model(model.graph, model.config, model.capabilities, model.plan, model.stages)
    with patch.object(stages, "Steps", None):
        plain.run(*arrays, session=recorded)
    runs = {
        "host_numpy_ms": lambda: plain.run(*arrays, session=recorded),
        "host_run_ms": lambda: model.run(*arrays, session=recorded),
        "host_c_ms": lambda: loaded.run(*arrays),
    }
    return milliseconds(runs)


def commands(compiler: str, target: str) -> tuple[str, str]:
    """Return a compiler for a target as it is called, and the start of the names of its tools."""
    tools = f"{target}-" if target else ""
    if compiler == "clang":
        return f"clang --target={target}" if target else "clang", tools
    return f"{tools}gcc", tools


Objects = dict[tuple[str, str], dict[str, bytes]]


def emulated(
    model: Model, arrays: list[Any], folder: Path, compiler: str, objects: Objects
) -> Iterator[Row]:
    """Yield for each processor the bytes of code, and whether the results are equal there."""
    wanted = as_tuple(model.reference(*arrays))
    bundle = model.export_c(folder)
    names = [f"in{number}" for number in range(len(arrays))]
    for name, array in zip(names, arrays, strict=True):
        array.tofile(folder / name)
    for processor, (target, emulator) in PROCESSORS.items():
        command, tools = commands(compiler, target)
        needed = [command.split()[0], f"{tools}gcc", *filter(None, [emulator])]
        if not all(map(shutil.which, needed)):
            continue
        plain = "sanitized" not in processor
        flags = {"CC": command, "CFLAGS": "-Os", "LDFLAGS": "-static"}
        if not plain:
            flags |= {"CFLAGS": SANITIZERS[compiler], "LDFLAGS": ""}
        build(folder, flags, objects.setdefault((compiler, processor), {}))
        listed = output(folder, f"{tools}size", *RUNTIME)
        symbols = output(folder, f"{tools}nm", "-u", *(name for name in RUNTIME if name != MAPPED))
        run = [*filter(None, [emulator]), "./network-linux", *names, "--output", "out"]
        nbytes = max(1 << 24, bundle.device_nbytes + (1 << 22) & -4096)
        with c_bundles.FileBoard(model, folder, "hls", nbytes=nbytes) as board:
            done = subprocess.run([*run, *board.options], cwd=folder, capture_output=True)
        yield {
            "build": f"{compiler} {processor}",
            "plain": plain,
            "code_nbytes": sum(int(line.split()[0]) for line in listed.splitlines()[1:]),
            "heap": HEAP & set(symbols.split()),
            "equal": done.returncode == 0
            and all(
                (folder / f"out{n}.bin").read_bytes() == np.ascontiguousarray(a).tobytes()
                for n, a in enumerate(wanted)
            ),
        }


def build(folder: Path, flags: dict[str, str], common: dict[str, bytes]) -> None:
    """Build a bundle for Linux, and keep what is the same for all models, or take it from there."""
    subprocess.run(["make", "-C", str(folder), "clean"], check=True, capture_output=True)
    for name in (path.name for path in folder.glob("out*.bin")):
        (folder / name).unlink()
    for name, content in common.items():
        (folder / name).write_bytes(content)
    c_bundles.make(folder, "network-linux", **flags)
    common |= {name: (folder / name).read_bytes() for name in COMMON}


def output(folder: Path, *command: str) -> str:
    """Return what a program prints."""
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def main(
    only: Annotated[str, typer.Option(help="Part of the names of models.")] = "",
    json_file: Json = None,
) -> None:
    """Export, build and run every model, and print the figures."""
    rows: Rows = {}
    objects: Objects = {}
    for name, make in models().items():
        if only in name:
            rows[name] = measured(make(), objects)
            print(name, rows[name], flush=True)
            if json_file is not None:
                write_rows(json_file, rows)
    show("Models as C", rows, of="model")


def measured(model: Model, objects: Objects) -> Row:
    """Return the figures of a model."""
    arrays = random_inputs(model.graph, 0)
    builds: list[Row] = []
    for compiler in SANITIZERS:
        with tempfile.TemporaryDirectory() as folder:
            builds += emulated(model, arrays, Path(folder), compiler, objects)
            bundle = model.export_c(folder)
    code = {f"code_nbytes, {b['build']}": b["code_nbytes"] for b in builds if b["plain"]}
    return {
        "blob_nbytes": bundle.blob_nbytes,
        "arena_nbytes": bundle.arena_nbytes,
        "device_nbytes": bundle.device_nbytes,
        "launches": bundle.launches,
        **host_times(model, arrays),
        "builds": len(builds),
        "equal": sum(build["equal"] for build in builds),
        "heap": sorted({symbol for build in builds for symbol in build["heap"]}),
        **code,
    }
