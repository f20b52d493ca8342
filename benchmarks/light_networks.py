"""Networks that nobody here wrote: the nine classic ones in the package onnx, whole, on VTA.

    python -m benchmarks light_networks [--only squeezenet] [--scales pow2] [--json light.json]
    python -m benchmarks light_networks --only resnet18 --only mobilenet_v2 --scales ort

Each is quantised three ways (powers of two; free scales; what ONNX Runtime's `quantize_static`
writes by default), compiled, run on fsim and compared bit for bit with the integer executor.
Weights are random with seeds. The JSON file is written after every network and those in it are not
measured again (with `--again` those of this commit), so an interrupted run goes on where it
stopped; `--write` puts the table into docs/networks_measured.md. Each network runs in a process of
its own; times are its CPU time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.options import ROOT, Again, Json, choice, read_json, write_between
from examples import networks
from trials.campaign import code

CONFIGS = {"pow2": "pynq", "free": "pynq_ext", "ort": "pynq_ext"}
"""Ways to quantise, and the configuration that each is compiled for."""

TITLES = {
    "pow2": "powers of two",
    "free": "free scales, per channel",
    "ort": "defaults of `quantize_static`",
}


def measure(name: str, scales: str, config: str) -> dict[str, Any]:
    """Quantise, compile, verify, run and compare one network."""
    from vtaops.frontends import import_model
    from vtaops.graph.executor import evaluate_all
    from vtaops.network import compile_model

    clock = Clock()
    full_name = f"light_{name}" if name in networks.LIGHT else name
    model, data = networks.network(full_name, count=4)
    if scales == "ort":
        quantized = by_onnxruntime(model, data)
    else:
        from vtaops import quantize

        quantized = quantize(model, data, scales=scales)  # type: ignore[arg-type]
    clock("quantize")
    exact, exact_scores = run_onnx(model, data)
    del model
    clock("float")
    graph = import_model(quantized)
    clock("import")
    compiled = compile_model(graph, config, verify=False)
    clock("compile")
    compiled.verify()
    clock("verify")
    images = next(iter(data.values()))
    results = []
    for image in images:
        (found,) = as_tuple(compiled.run(image[None]))
        results.append(found)
    clock("run")
    values = evaluate_all(graph, images[:1])
    clock("reference")
    report = compiled.report()
    on_vta = sum(row.where == "vta" for row in compiled.plan)
    outputs = np.concatenate(results).reshape(len(images), -1)
    exact = exact.reshape(outputs.shape)
    return {
        "network": name,
        "scales": scales,
        "config": config,
        "operators": len(compiled.plan),
        "on_vta": on_vta,
        "macs_on_vta": report.macs,
        "macs": sum(macs(node) for node in graph.nodes),
        "launches": report.launches,
        "cycles": report.cycles,
        "milliseconds": report.milliseconds,
        "frames_per_second": report.frames_per_second,
        "arena_nbytes": report.arena_nbytes,
        "weights_nbytes": report.weights_nbytes,
        "sqnr_db": sqnr(exact, outputs),
        "scores_sqnr_db": sqnr(exact_scores[:1], scores(graph, values)),
        "same_maximum": int((outputs.argmax(1) == exact.argmax(1)).sum()),
        "images": len(images),
        "equal": bool(np.array_equal(results[0], values[graph.outputs[0].name])),
        "host": host_part(compiled.plan),
        "cpu_s": clock.spent,
        "peak_rss_nbytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


class Clock:
    """CPU time of this process, step by step."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._last = time.process_time()

    def __call__(self, step: str) -> None:
        now = time.process_time()
        self.spent[step], self._last = round(now - self._last, 3), now
        print(f"  {step} {self.spent[step]:.1f} s", file=sys.stderr, flush=True)


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return results as a tuple, also a single one."""
    return value if isinstance(value, tuple) else (value,)


def host_part(plan: Any) -> list[list[Any]]:
    """Return what a plan leaves to the host: operator, reason, how often."""
    reasons = Counter((row.operator, row.reason) for row in plan if row.where == "host")
    return [[kind, reason, count] for (kind, reason), count in reasons.items()]


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


def scores(graph: Any, values: dict[str, Any]) -> Any:
    """Return what enters the softmax at the end; without one, the output."""
    for node in reversed(graph.nodes):
        if "softmax" in (node.op.kind, *getattr(node.op, "operators", ())):
            return values[node.inputs[0].name]
    return values[graph.outputs[0].name]


def run_onnx(model: Any, data: dict[str, Any]) -> tuple[Any, Any]:
    """Return the output of an ONNX model for each image, and what enters its last softmax."""
    from vtaops.graph.probe import Probe

    softmax = [node for node in model.graph.node if node.op_type == "Softmax"]
    output = model.graph.output[0].name
    names = [output, softmax[-1].input[0] if softmax else output]
    probe = Probe(model, list(dict.fromkeys(names)), exact=False)
    ((name, images),) = data.items()
    runs = [probe.run({name: image[None]}) for image in images]
    first, last = (np.concatenate([run[n].reshape(1, -1) for run in runs]) for n in names)
    return first, last


def by_onnxruntime(model: Any, data: dict[str, Any]) -> Any:
    """Return what `quantize_static` makes of a model with all of its defaults."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    from vtaops.graph import onnx_files

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """The images, one after the other."""

        def __init__(self) -> None:
            ((name, images),) = data.items()
            self._data = iter({name: image[None]} for image in images)

        def get_next(self) -> Any:
            return next(self._data, None)

    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("float.onnx", "quantized.onnx")]
        onnx.save(onnx_files.load(model), files[0])
        quantize_static(files[0], files[1], Reader())
        return onnx.load(files[1])


# ------------------------------------------------------------------------------ the table


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown: a table for each way to quantise, and the reasons."""
    parts = []
    for scales, title in TITLES.items():
        chosen = [row for row in rows if row["scales"] == scales]
        if not chosen:
            continue
        parts.append(
            f"**{title[0].upper()}{title[1:]}**, compiled for `{chosen[0]['config']}`:\n\n"
            "| network | on VTA | of the MACs | launches | M MACs | cycles | ms | frames/s "
            "| SQNR dB | of scores | images kB | compile s | verify s | peak MB | equal |\n"
            "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
            + "\n".join(_line(row) for row in sorted(chosen, key=lambda row: row["network"]))
            + f"\n\nMeasured on: {_codes(chosen)}.\n\n"
            + _reasons(chosen)
        )
    return "\n\n".join(parts)


def _line(row: dict[str, Any]) -> str:
    share = row["macs_on_vta"] / max(1, row["macs"])
    return (
        f"| {row['network']} | {row['on_vta']}/{row['operators']} | {100 * min(1, share):.1f} % "
        f"| {row['launches']} | {row['macs'] / 1e6:,.0f} | {row['cycles']:,} "
        f"| {row['milliseconds']:,.1f} | {row['frames_per_second']:,.1f} "
        f"| {_decibels(row['sqnr_db'])} | {_decibels(row['scores_sqnr_db'])} "
        f"| {row['arena_nbytes'] / 1e3:,.0f} | {row['cpu_s']['compile']:.1f} "
        f"| {row['cpu_s']['verify']:.1f} | {row['peak_rss_nbytes'] / 1e6:,.0f} "
        f"| {'yes' if row['equal'] else 'NO'} |"
    )


def _decibels(value: float | None) -> str:
    return "equal" if value is None else f"{value:.1f}"


def _codes(rows: list[dict[str, Any]]) -> str:
    """Return which commit each row was measured on."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.get("code", "older code"), []).append(row["network"])
    return "; ".join(f"{code} {', '.join(sorted(names))}" for code, names in found.items())


def _reasons(rows: list[dict[str, Any]]) -> str:
    """Return what stayed on the host, with the reason and the networks."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for kind, reason, count in row["host"]:
            if reason != "the quantize/dequantize boundary":
                found.setdefault((kind, reason), []).append(f"{row['network']} {count}")
    lines = [f"* `{k}`: {reason} ({', '.join(names)})" for (k, reason), names in found.items()]
    return "On the host, besides quantize and dequantize:\n\n" + "\n".join(lines)


def main(
    only: Annotated[list[str], typer.Option(help="Names of networks.")] = [],  # noqa: B006
    chosen: Annotated[list[str] | None, typer.Option("--scales", **choice(CONFIGS))] = None,
    config_name: Annotated[
        str | None, typer.Option("--config", help="Instead of that of the scales.")
    ] = None,
    json_file: Json = Path("light_networks.json"),
    again: Again = False,
    seconds: Annotated[float, typer.Option(help="Start no network after these.")] = 1e9,
    write_page: Annotated[
        bool, typer.Option("--write", help="Put the table into docs/networks_measured.md.")
    ] = False,
    one: Annotated[tuple[str, str, str] | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run from the command line."""
    if one:
        print(json.dumps(measure(*one)))
        return
    known = [*networks.LIGHT, *(n for n in networks.NAMES if not n.startswith("light_"))]
    if unknown := {*only} - {*known}:
        raise typer.BadParameter(f"{sorted(unknown)} are none of {known}")
    begin, today = time.monotonic(), code()
    rows = read_json(json_file, [])
    for scales in chosen or CONFIGS:
        for name in only or networks.LIGHT:
            config = config_name or CONFIGS[scales]
            key = (name, scales, config)
            old = [r for r in rows if (r["network"], r["scales"], r["config"]) == key]
            kept = [r for r in old if not again or r.get("code") == today]
            if kept or time.monotonic() - begin > seconds:
                continue
            print(*key, file=sys.stderr, flush=True)
            made = subprocess.run(
                [sys.executable, "-m", "benchmarks", "light_networks", "--one", *key],
                stdout=subprocess.PIPE,
                check=False,
            )
            if made.returncode:
                print(f"  failed with {made.returncode}", file=sys.stderr, flush=True)
                continue
            rows = [r for r in rows if r not in old]
            rows.append({**json.loads(made.stdout.splitlines()[-1]), "code": today})
            part = json_file.with_suffix(".part")
            part.write_text(json.dumps(rows, indent=1))
            part.replace(json_file)
    print(table(rows))
    if write_page:
        write_between(ROOT / "docs" / "networks_measured.md", "light networks", table(rows))
