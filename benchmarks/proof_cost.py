"""What a proof adds to compiling: CPU time and memory of each measured network, with and without.

    python -m benchmarks proof_cost --minutes 60 --write      # again until nothing is left

The networks are those of docs/networks_measured.md and MLPerf Tiny's models, each compiled in a
process of its own, with one thread. "compile" is `compile_model` without a proof, from a graph in
memory, but with verification; "proof" is what the judge behind the compiler takes instead of that
verification. Peaks are of resident memory during either, less what was resident when the process
had imported the graph. Networks that have to be quantised are kept in `--models`, where the next
run finds them. Needs torch, torchvision and timm for the architectures, and the files of
`vtaops fetch mlperf-tiny` for MLPerf Tiny; networks that cannot be built are listed. Exit
code: 1 if something is not proven, 2 if networks are left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import architectures, networks
from benchmarks.light_networks import CONFIGS, by_onnxruntime
from benchmarks.mlperf_tiny import CONFIGS as TINY_CONFIGS
from benchmarks.options import RESULTS, ROOT, Again, Json, Minutes, State, write_between, write_json
from examples.networks import LIGHT, network
from trials.campaign import by_code, resume
from vtaops.cli.models import COLLECTIONS

CLASSIC = ("resnet18", "resnet20", "mobilenet_v1", "mobilenet_v2")
TINY = tuple(model.name for model in COLLECTIONS["mlperf-tiny"][1])
CASES = (
    *(f"classic/{name}/{config}" for config in ("pynq", "pynq_ext") for name in CLASSIC),
    *(f"tiny/{name}/{TINY_CONFIGS[0]}" for name in TINY),
    *(f"light/{name}/{scales}" for scales in CONFIGS for name in LIGHT),
    *(f"architecture/{name}/free" for name in architectures.NAMES),
)
LIMIT = {"classic/resnet18": 6.0, "tiny": 3.0}
"""CPU seconds that compiling and proving may take together, by the beginning of a case."""


def limit(case: str) -> float:
    """Return the CPU seconds that a case may take."""
    return next((most for start, most in LIMIT.items() if case.startswith(start)), 20.0)


def graph_of(case: str, models: Path) -> tuple[Any, str]:
    """Return the graph of a case, and the configuration that it is compiled for."""
    import onnx

    from vtaops import quantize
    from vtaops.frontends import import_model

    build: Any = network
    kind, _, rest = case.partition("/")
    name, _, way = rest.rpartition("/")
    if kind == "classic":
        return getattr(networks, name)(free=way == "pynq_ext"), way
    if kind == "tiny":
        return import_model(models / name), way
    path = models / f"{case.replace('/', '-')}.onnx"
    if not path.exists():
        if kind == "light":
            model, data = build(f"light_{name}", count=4)
        else:
            model, images = architectures.built(name)
            data = images[:4]
        scales: Any = way
        made = by_onnxruntime(model, data) if way == "ort" else quantize(model, data, scales=scales)
        onnx.save(made, path)
    return import_model(path), CONFIGS[way]


class Peak:
    """Resident memory of this process in MB: the most since the last question (Linux)."""

    def __init__(self) -> None:
        self._base = self._high()

    def _high(self) -> float:
        status = Path("/proc/self/status").read_text()
        (line,) = (text for text in status.splitlines() if text.startswith("VmHWM"))
        Path("/proc/self/clear_refs").write_text("5")  # the mark begins anew
        return int(line.split()[1]) / 1e3

    def __call__(self) -> float:
        """Return how much more than at the beginning was resident."""
        return round(max(0.0, self._high() - self._base))


def measure(case: str, models: Path) -> dict[str, Any]:
    """Compile and prove one network."""
    from vtaops.base.garbage import collection_paused
    from vtaops.network import compile_model

    graph, config = graph_of(case, models)
    Peak()
    peak = Peak()
    begin = time.process_time()
    compiled = compile_model(graph, config, prove=False, verify=False)
    middle = time.process_time()
    with collection_paused():  # as in `compile_model`
        compiled.verify()
        verified = time.process_time()
        compile_mb = peak()
        proof = compiled.prove()
    both = time.process_time() - verified
    return {
        "config": config,
        "compile_s": round(verified - begin, 2),
        "compile_mb": compile_mb,
        "proof_s": round(both - (verified - middle), 2),
        "proof_mb": peak(),
        "launches": len(compiled.programs),
        "products": proof.products,
        "leaves": proof.leaves,
        "error": proof.error,
        "unproven": proof.unproven,
    }


def trial(case: str, models: Path) -> dict[str, Any]:
    """Measure one network in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "proof_cost", "--one", case]
    made = subprocess.run(
        [*command, "--models", str(models)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    if made.returncode:
        return {
            "failed": (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
        }
    return {"failed": "", **json.loads(made.stdout.splitlines()[-1])}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| network | for | launches | M products | compile s | with proof s | limit s "
        "| compile MB | proof MB | proven |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for case, row in results.items():
        name = case.rpartition("/")[0] if case[:5] in ("class", "tiny/") else case
        if row["failed"]:
            lines.append(f"| {name} | not measured: {row['failed']}" + " |" * 9)
            continue
        whole, most = row["compile_s"] + row["proof_s"], limit(case)
        lines.append(
            f"| {name} | {row['config']} | {row['launches']} | {row['products'] / 1e6:,.0f} "
            f"| {row['compile_s']:.1f} | {whole:.1f}{' **above**' if whole > most else ''} "
            f"| {most:.0f} | {row['compile_mb']:,.0f} | {row['proof_mb']:,.0f} "
            f"| {'; '.join(row['unproven']) or 'all'} |"
        )
    return "\n".join([*lines, "", f"Measured: {by_code(results)}."])


def main(
    only: Annotated[list[str], typer.Option(help="Beginnings of cases, as classic/.")] = [],  # noqa: B006
    models: Annotated[Path, typer.Option(help="Folder of quantised networks.")] = Path("models"),
    minutes: Minutes = 9.0,
    again: Again = False,
    state_file: State = Path("proof_cost.jsonl"),
    json_file: Json = RESULTS / "proof_cost.json",
    write_page: Annotated[
        bool, typer.Option("--write", help="Put the table into docs/networks_measured.md.")
    ] = False,
    one: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> int:
    """Run from the command line."""
    models.mkdir(parents=True, exist_ok=True)
    if one:
        print(json.dumps(measure(one, models)))
        return 0
    cases = [case for case in CASES if not only or case.startswith(tuple(only))]
    results = resume(state_file, cases, lambda c: trial(c, models), minutes, again=again)
    print(table(results))
    write_json(json_file, results)
    if write_page:
        write_between(ROOT / "docs" / "networks_measured.md", "proof cost", table(results))
    if any(row.get("unproven") for row in results.values()):
        return 1
    return 0 if len(results) == len(cases) else 2


if __name__ == "__main__":
    typer.run(main)
