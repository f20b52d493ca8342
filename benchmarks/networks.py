"""Networks x configurations: cycles, exactness, memory, time to compile and to prove.

    python -m benchmarks networks --minutes 60            # again until nothing is left
    python -m benchmarks networks --only classic/ --rtl
    python -m benchmarks networks --only light/ --only architecture/timm/levit_128s/free

A case is ``source/NAME/WAY``: the four classic networks and three with activation curves, built by
hand (trials/networks.py), the nine classic ones of the package onnx and ViT-Tiny (``light``),
those of torchvision and timm (``architecture``), and MLPerf Tiny's models (``tiny``, in
``--models``). The way is a configuration, without an extension if one stands behind a minus, or how
a float network is quantised: ``pow2``, ``free`` (with a configuration too), or ``ort`` as
`quantize_static` does by default.

Each is compiled, verified, run on fsim and compared bit for bit with the integer executor and, if
there is one, with the float network; proven; and timed for DRAMs of several bandwidths. Weights are
random with seeds; batch norms of torch have the statistics of random images. With ``--rtl`` it runs
on the simulated hardware, too. Times are CPU time of one thread, each case in a process of its
own; read them as ratios. Results are kept in ``--json``, a line a case, of which docs/measured.md
is made (``python -m docs measured``). Exit code: 1 if something differs, is not proven or breaks, 2
if cases are left.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import (
    RESULTS,
    Again,
    Case,
    Kept,
    Minutes,
    Only,
    Row,
    Rtl,
    chosen,
    measured_apart,
)
from examples import networks as examples
from trials.networks import CLASSIC, CURVES
from trials.random_float import by_runtime
from trials.torch_networks import ARCHITECTURES, built
from vtaops import HardwareConfig, Session, VTAError
from vtaops.cli.lists import MLPERF_TINY
from vtaops.frontends import import_model
from vtaops.graph import Graph, onnx_files
from vtaops.graph.executor import evaluate_all
from vtaops.network import compile_model
from vtaops.program.timing import TimingParameters
from vtaops.quantization.quality import decibels, powers
from vtaops.runtime import Tsim
from vtaops.runtime.arguments import as_tuple

WAYS = {"pow2": "pynq", "free": "pynq_ext", "ort": "pynq_ext"}
"""Ways to quantise, and the configuration that each is compiled for."""

CASES = (
    *(f"classic/{n}/{way}" for way in ("pynq", "pynq_ext", "pynq_ext-forward") for n in CLASSIC),
    *(f"classic/{n}/zcu104_2048" for n in ("resnet18", "mobilenet_v1", "mobilenet_v2")),
    *(f"classic/{n}/kv260_2048" for n in ("resnet18", "mobilenet_v2")),
    "light/resnet50/zcu104_2048",
    "light/vit_tiny/pynq_512",
    *(f"curves/{n}/{way}" for way in ("pynq_ext", "pynq_ext-table") for n in CURVES),
    *(f"light/{n}/{way}" for way in WAYS for n in (*examples.LIGHT, "vit_tiny")),
    *(f"architecture/{n}/free" for n in ARCHITECTURES),
    *(f"tiny/{model.name}/pynq_512" for model in MLPERF_TINY),
)
BANDWIDTHS: tuple[float | None, ...] = (2.0, 4.0, 8.0, None)
"""Bytes a cycle of the DRAM, reads and writes together; its latency is then 100 cycles."""


@dataclass
class Subject:
    """A network as integers, where it is compiled for, and what it is compared with."""

    graph: Graph
    config: HardwareConfig
    images: list[Any]
    exact: Any = None  # of the float network, a row an image
    exact_scores: Any = None  # what enters its last softmax
    float_macs: int | None = None


class Clock:
    """CPU time of this process, step by step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.process_time()

    def __call__(self, step: str) -> None:
        """Note the time since the last step."""
        now = time.process_time()
        self.spent[step], self._last = round(now - self._last, 3), now


class Peak:
    """Resident memory of this process in MB: the most since the last question (Linux)."""

    def __init__(self) -> None:
        self._high()
        self._base = self._high()

    def _high(self) -> float:
        status = Path("/proc/self/status").read_text()
        (line,) = (text for text in status.splitlines() if text.startswith("VmHWM"))
        Path("/proc/self/clear_refs").write_text("5")  # the mark begins anew
        return int(line.split()[1]) / 1e3

    def __call__(self) -> float:
        """Return how much more than at the beginning was resident."""
        return round(max(0.0, self._high() - self._base))


# ------------------------------------------------------------------------------- subjects


def configuration(way: str) -> HardwareConfig:
    """Return the hardware of a way: ``pynq_ext-forward`` is `pynq_ext` without `forward`."""
    name, _, left_out = WAYS.get(way, way).partition("-")
    config = HardwareConfig.load(name)
    return replace(config, extensions=tuple(e for e in config.extensions if e != left_out))


def subject(case: str, models: Path, clock: Clock) -> Subject:
    """Return the network of a case."""
    source, _, rest = case.partition("/")
    name, _, way = rest.rpartition("/")
    config = configuration(way)
    if source == "classic":
        graph = CLASSIC[name](free=config.extensions != ())
    elif source == "curves":
        graph = CURVES[name]()
    elif source == "tiny":
        graph = import_model(models / name)
    elif source == "light":
        return of_onnx(name, way, config, clock)
    else:
        return of_torch(name, way, config, clock)
    rng = np.random.default_rng(1)
    given = [drawn(tensor, rng) for tensor in graph.inputs]
    clock("build")
    return Subject(graph, config, [given])


def drawn(tensor: Any, rng: np.random.Generator) -> Any:
    """Return a random input."""
    if tensor.dtype == "float32":
        return rng.normal(0, 1, tensor.shape).astype(np.float32)
    return rng.integers(-64, 64, tensor.shape).astype(tensor.dtype)


def of_onnx(name: str, way: str, config: HardwareConfig, clock: Clock) -> Subject:
    """Return a float ONNX network, quantised on four images, which it is compared on."""
    from vtaops.graph.probe import Probe

    full = f"light_{name}" if name in examples.LIGHT else name
    model, data = examples.network(full, count=4)
    scales = way if way in WAYS else "free"
    quantized = by_onnxruntime(model, data) if way == "ort" else rounded(model, data, scales)
    clock("quantize")
    softmax = [node for node in model.graph.node if node.op_type == "Softmax"]
    output = model.graph.output[0].name
    names = [output, softmax[-1].input[0] if softmax else output]
    probe = Probe(model, list(dict.fromkeys(names)), exact=False)
    ((key, images),) = data.items()
    runs = [probe.run({key: image[None]}) for image in images]
    exact, scores = (np.concatenate([run[n].reshape(1, -1) for run in runs]) for n in names)
    clock("float")
    graph = import_model(quantized)
    clock("import")
    given = [[image[None]] for image in images]
    return Subject(graph, config, given, exact, scores[:1])


def of_torch(name: str, way: str, config: HardwareConfig, clock: Clock) -> Subject:
    """Return a module of torch, quantised on four images, and a fifth one."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    module, images = built(name)
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        exact = module(torch.from_numpy(images[4:])).numpy()
    clock("float")
    quantized = rounded(module, images[:4], way)
    clock("quantize")
    graph = import_model(quantized)
    clock("import")
    macs = flops.get_total_flops() // 2
    return Subject(graph, config, [[images[4:]]], exact.reshape(1, -1), None, macs)


def rounded(model: Any, data: Any, scales: Any) -> Any:
    """Return a model with all products in integers, whatever its random weights leave of it."""
    from vtaops import quantize

    return quantize(model, data, scales=scales, equalization=False, float_nodes=())


def by_onnxruntime(model: Any, data: dict[str, Any]) -> Any:
    """Return what `quantize_static` makes of a model with all of its defaults."""
    ((name, images),) = data.items()
    return by_runtime(
        onnx_files.load(model), [{name: image[None]} for image in images], per_channel=False
    )


# ---------------------------------------------------------------------------- measurement


def measure(case: str, models: Path, *, rtl: bool) -> dict[str, Any]:
    """Compile, verify, run, compare, prove and time one network."""
    clock = Clock()
    network = subject(case, models, clock)
    graph, config = network.graph, network.config
    peak = Peak()
    compiled = compile_model(graph, config, prove=False, verify=False)
    clock("compile")
    compiled.verify()
    clock("verify")
    compile_mb = peak()
    results = [as_tuple(compiled.run(*arrays)) for arrays in network.images]
    clock("run")
    values = evaluate_all(graph, *network.images[0])
    clock("reference")
    expected = as_tuple(compiled.reference(*network.images[0]))  # with the roundings of its plan
    equal = all(map(np.array_equal, results[0], expected))
    found = {**figures(network, compiled), "equal": bool(equal), "rtl_cycles": None}
    if network.exact is not None:
        outputs = np.concatenate([first.reshape(1, -1) for first, *_ in results])
        found["sqnr_db"] = sqnr(network.exact, outputs)
    if network.exact_scores is not None:
        found["scores_sqnr_db"] = sqnr(network.exact_scores, scores(graph, values))
    if rtl:
        with Tsim(config) as device, Session(device, timeout=3600) as session:
            (run,) = [as_tuple(compiled.run(*network.images[0], session=session))]
            found["equal"] = bool(found["equal"] and all(map(np.array_equal, run, expected)))
            found["rtl_cycles"] = device.performance().cycles
    peak()
    clock("rtl")
    proof = compiled.prove()
    clock("proof")
    found["proof"] = {
        "unproven": list(proof.unproven),
        "compile_mb": compile_mb,
        "proof_mb": peak(),
    }
    return {**found, "cpu_s": clock.spent}


def figures(network: Subject, compiled: Any) -> dict[str, Any]:
    """Return the counts of a compiled network, and its cycles for each DRAM."""
    from vtaops.model.placement import placement

    report = compiled.report()
    rows = list(zip(compiled.graph.nodes, compiled.plan, strict=True))
    on_vta = [node for node, row in rows if row.where == "vta"]
    products = placement(compiled.graph, compiled.plan)
    slow = [TimingParameters(dram_latency=100, bandwidth=b) for b in BANDWIDTHS]
    reasons = Counter((row.operator, row.reason) for _, row in rows if row.where == "host")
    return {
        "config": network.config.name,
        "size": "x".join(map(str, network.graph.inputs[0].shape[2:])),
        "operators": len(rows),
        "on_vta": len(on_vta),
        "products": products.products,
        "products_on_vta": products.on_vta,
        "macs": network.float_macs or sum(macs(node) for node in network.graph.nodes),
        "macs_on_vta": sum(macs(node) for node in on_vta),
        "launches": report.launches,
        "cycles": report.cycles,
        "slow_cycles": [sum(p.cycles(dram) for p in compiled.programs) for dram in slow],
        "dram_nbytes": report.counters.dram_nbytes,
        "arena_nbytes": report.arena_nbytes,
        "host": [[kind, reason, count] for (kind, reason), count in reasons.items()],
    }


def macs(node: Any) -> int:
    """Return the multiply-accumulates of a convolution, a dense layer or a product."""
    shape = node.outputs[0].shape
    if node.op.kind == "matmul":
        return int(np.prod(shape)) * int(node.inputs[0].shape[-1])
    weight = getattr(node.op, "weight", None)
    if weight is None:
        return 0
    pixels = (shape[0], *shape[2:]) if weight.ndim == 4 else shape[:-1]
    return int(weight.size) * int(np.prod(pixels))


def sqnr(exact: Any, rounded: Any) -> float | None:
    """Return the ratio of signal to quantisation noise in dB; None if there is no noise."""
    exact = exact.astype(np.float64)
    if np.array_equal(exact, rounded.reshape(exact.shape)):
        return None
    noise = np.square(exact - rounded.reshape(exact.shape)).sum()
    return float(10 * np.log10(np.square(exact).sum() / noise))


def least_decibels(exact: list[Any], found: list[Any]) -> float:
    """Return the least dB of the outputs of some runs, each by its name; at most 99."""
    sums = {name: np.zeros(2) for name in exact[0]}
    for one, other in zip(exact, found, strict=True):
        for name in sums:
            sums[name] += powers(one[name].astype(np.float64), other[name].reshape(one[name].shape))
    return round(min(99.0, *(decibels(*both) for both in sums.values()), 99.0), 1)


def scores(graph: Any, values: dict[str, Any]) -> Any:
    """Return what enters the softmax at the end; without one, the output."""
    for node in reversed(graph.nodes):
        names = (node.op.kind, *getattr(node.op, "operators", ()))
        if "softmax" in map(str.lower, names):
            return values[node.inputs[0].name]
    return values[graph.outputs[0].name]


def refused_or(measured: Callable[[], Row]) -> Row:
    """Return what is measured, or why vtaops refuses it; all else that is raised is a bug."""
    warnings.simplefilter("ignore")
    try:
        return measured()
    except VTAError as error:
        return {"refused": f"{type(error).__name__}: {error}"}


def main(
    only: Only = [],  # noqa: B006
    models: Annotated[Path, typer.Option(help="Folder of MLPerf Tiny.")] = Path("mlperf-tiny"),
    minutes: Minutes = 9.0,
    rtl: Rtl = False,
    again: Again = False,
    json_file: Kept = RESULTS / "networks.json",
    case: Case = None,
) -> int:
    """Measure what is not measured, print a line for each, write the file."""
    if case:
        row = refused_or(lambda: measure(case, models, rtl=rtl))
        print(json.dumps({"refused": "", "error": "", **row}))
        return 0
    cases = chosen(CASES, only)
    options = ["--models", str(models), *(["--rtl"] if rtl else [])]
    rows, errors = measured_apart(
        "networks",
        cases,
        json_file,
        minutes,
        again=again,
        stale=lambda row: rtl and not row.get("rtl_cycles"),
        options=options,
    )
    for name, row in rows.items():
        said = row["refused"] or f"{row['cycles']:,} cycles"
        print(f"{name}: {said}{'' if right(row) else '  WRONG'}")
    wrong = errors or any(not right(row) for row in rows.values())
    return 1 if wrong else 2 * any(name not in rows for name in cases)


def right(row: Row) -> bool:
    """Whether a result is as it must be: refused with a reason, or equal and proven."""
    return bool(row["refused"] or (row["equal"] and not row.get("proof", {}).get("unproven")))
