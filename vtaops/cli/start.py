"""The command ``vtaops start``: half an hour with a network of one's own.

Owns the order of the steps, what each needs, and when to say no; `start_page` owns the page. Each
step is a command, which is printed and can be repeated by hand. See `vtaops.cli`.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from vtaops.base.errors import ArgumentError, UnsupportedError
from vtaops.base.reasons import HINTS
from vtaops.cli import options
from vtaops.cli.evaluate import evaluated, task_of
from vtaops.cli.networks import compiled_model, planned, random_input, rounded
from vtaops.cli.start_page import Findings, page
from vtaops.machine.config import NETWORK_CONFIG
from vtaops.report.files import write_bytes, write_text
from vtaops.runtime import NETWORK_TIMEOUT, ResidentPrograms, open_device
from vtaops.runtime.arguments import as_tuple

if TYPE_CHECKING:
    from vtaops.graph import Tensor
    from vtaops.network.plan import Plan
    from vtaops.quantization.samples import Sample

CALIBRATING = 32
"""Samples that calibrate, if there are so many."""

FEWEST, VALUES = 8, 1 << 28
"""The fewest where all tensors of so many samples would have more than so many values."""

DRAWN = 8
"""Samples that are drawn where there are no data."""

EVALUATED = 100
"""Most samples that are judged, if nobody says how many."""

SIMULATING = 60
"""Seconds that the simulator may take for them; two are judged in any case."""


def start(
    model: Annotated[Path, Argument(help="Your network: .onnx or .tflite.")],
    *,
    data: Annotated[
        Path | None,
        Option(
            help="Its inputs: a folder with a folder of pictures for each class; an .npz file "
            "with an array for each input and, if known, `labels`; a folder of pictures, .npy or "
            ".npz files; a .json file in the format of COCO beside its pictures."
        ),
    ] = None,
    random_data: Annotated[
        bool,
        Option(
            "--random-data",
            help="Use random inputs: cycles are right, the accuracy is meaningless.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        options.to_write("Output folder, created if necessary. Default: MODEL-start."),
    ] = None,
    config: options.Config = NETWORK_CONFIG,
    shapes: options.Shapes = None,
    mean: options.Mean = None,
    std: options.Std = None,
    samples: Annotated[
        int | None,
        Option(
            help="Maximum number of samples, drawn evenly. Default: 100, or as many as "
            "the simulator runs in a minute.",
            min=1,
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Take a network of your own from its file to a page: quantised, proven, run and judged.

    The commands shown repeat each step; their files stay in the folder.

    Example: vtaops start net.onnx --data photos
    """
    from vtaops.quantization.datasets import load_dataset

    begin = time.perf_counter()
    if model.suffix not in (".onnx", ".tflite"):
        raise UnsupportedError(f"cannot start with {model}: vtaops start reads .onnx and .tflite")
    files = _Files(model, output or Path(f"{model.stem}-start"))
    prepared, given = options.read_preparation(mean, std), options.read_shapes(shapes)
    words = _given("--mean", mean) + _given("--std", std)
    with redirect_stdout(sys.stderr) if options.as_json() else nullcontext():
        plan = planned(model, config, given)
        found = Findings(model, config, _facts(model, plan), plan)
        options.say("\n".join(f"{name}: {text}" for name, text in found.facts.items()))
        drawn = None if data else _drawn(found, asked=random_data)
        options.claim(files.folder, files.names, force)
        if drawn is not None:
            data, found.random = files.calibration, True
            options.write_arrays(data, np.savez_compressed, **drawn)
        if data is not None:
            found.data, found.samples = data, load_dataset(data, found.shapes, prepared)
        _quantize(found, files)
        _compile(found, files, given, shapes or [])
        _run(found, files)
        _evaluate(found, files, samples, words)
    write_text(files.page, page(found, shlex.quote(str(files.compiled))))
    seconds = time.perf_counter() - begin
    options.show(
        {**found.as_dict(), "page": str(files.page), "seconds": round(seconds, 1)},
        f"\n{found.summary}\n{files.page} ({seconds:.0f} s in all)",
    )


class _Files:
    """The network, and the files that the steps leave."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.quantized, self.compiled = (folder / f"{model.stem}{s}" for s in (".q.onnx", ".vtam"))
        self.calibration, self.sample = folder / "calibration.npz", folder / "sample.npz"
        self.page = folder / f"{model.stem}.html"
        self.names = [path.name for path in vars(self).values() if path.parent == folder]


def _facts(model: Path, plan: Plan) -> dict[str, str]:
    """Return what a file is, by property."""
    kinds = dict.fromkeys(kind for row in plan.rows for kind in row.operator.split(", "))
    return {
        "file": f"{model}, {model.stat().st_size:,} bytes",
        "inputs": _told(plan.graph.inputs),
        "outputs": _told(plan.graph.outputs),
        "operators": ", ".join([*kinds][:12]),
    }


def _told(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"{tensor.name} {tensor.dtype}{tensor.shape}" for tensor in tensors)


def _drawn(found: Findings, *, asked: bool) -> dict[str, Any] | None:
    """Return random inputs if they are asked for, None if the network needs no inputs.

    Raises
    ------
    ArgumentError
        If it needs them and they are not asked for, or if one holds integers.
    """
    if not asked and found.quantised:
        return None
    extents = {name: ", ".join(map(str, ("N", *shape[1:]))) for name, shape in found.shapes.items()}
    arrays = ", ".join(f"{name!r} of shape ({each})" for name, each in extents.items())
    wanted = (
        f"Give {CALIBRATING} or more that are like those in use: --data with a folder of pictures, "
        f"or an .npz file with {arrays}, and with 'labels' if there are any"
    )
    if not asked:
        raise ArgumentError(
            f"{found.file} is not quantised, which needs its inputs. {wanted}. To see its cycles "
            "alone: --random-data"
        )
    for tensor in found.plan.graph.inputs:
        if tensor.dtype != "float32":
            raise ArgumentError(
                f"the input {tensor.name!r} holds {tensor.dtype}: which integers make sense, only "
                f"you know. {wanted}"
            )
    warning = "the inputs are random: ranges and accuracy are not those of your network"
    options.say(f"warning: {warning}", err=True)
    chance = np.random.default_rng(0)
    return {
        name: chance.uniform(-1, 1, (DRAWN, *shape)).astype(np.float32)
        for name, shape in found.shapes.items()
    }


def _require_some_on_vta(found: Findings) -> None:
    """Say where the operators would run.

    Raises
    ------
    UnsupportedError
        If nothing would run on VTA.
    """
    from vtaops.model.placement import placement

    plan = found.plan
    share = placement(plan.graph, plan.rows)
    on_vta = sum(row.where == "vta" for row in plan.rows)
    if on_vta:
        options.say(f"plan: {on_vta} of {len(plan.rows)} operators on VTA; {share}")
        return
    row = next((row for row in plan.rows if row.code != "boundary"), plan.rows[0])
    reason = share.reason or f"{row.name[:80]}: {row.reason}"
    raise UnsupportedError(
        f"nothing of {found.file} would run on VTA, which computes convolutions, matrix products "
        f"and what stands between them on int8. Its operators: {found.facts['operators']}. "
        f"{reason[:200]}. What helps: {HINTS[share.code or row.code]}"
    )


# ----------------------------------------------------------------------------------- the steps


def _quantize(found: Findings, files: _Files) -> None:
    """Quantise for the device, if it is not."""
    from vtaops.quantization import run_quantization

    if found.quantised or found.samples is None:
        files.quantized = files.model
        return
    if not found.random:
        values = sum(tensor.elements for tensor in found.plan.graph.tensors.values())
        count = min(CALIBRATING, max(FEWEST, VALUES // values))  # fewer where they hold much
        samples = [case.read() for case in found.samples.drawn(count).cases]
        arrays = {name: np.stack([sample[name] for sample in samples]) for name in found.shapes}
        options.write_arrays(files.calibration, np.savez_compressed, **arrays)
    words = files.model, "--calibration", files.calibration, "-o", files.quantized
    searched = None if found.config == NETWORK_CONFIG else found.config  # the defaults are for it
    with found.step("quantize", *words, *_given("--config", searched)):
        done = run_quantization(files.model, files.calibration, config=searched)
        write_bytes(files.quantized, done.model.SerializeToString())
        found.quantization, found.quality, found.costs = done, done.quality(), done.costs(5)
    options.say(f"  {found.quality}")


def _compile(found: Findings, files: _Files, shapes: Any, stated: list[str]) -> None:
    """Plan again, now as it is quantised; compile and prove, if something would run on VTA."""
    words = "--config", found.config, *(word for text in stated for word in ("--shapes", text))
    with found.step("plan", files.quantized, *words):
        found.plan = planned(files.quantized, found.config, shapes)
    _require_some_on_vta(found)
    with found.step("compile", files.quantized, "-o", files.compiled, *words):
        found.model = compiled_model(files.quantized, found.config, shapes=shapes)
        found.model.save(files.compiled)
    layers = found.quality.layers if found.quality else ()
    found.report = found.model.report(quality={layer.tensor: layer.sqnr_db for layer in layers})


def _run(found: Findings, files: _Files) -> None:
    """Run one sample, compare it with the integer reference, and time the host's part."""
    inputs, known = found.model.graph.inputs, found.samples
    values = known.cases[0].read() if known else {t.name: random_input(t) for t in inputs}
    sample = {tensor.name: rounded(tensor, values[tensor.name]) for tensor in inputs}
    options.write_arrays(files.sample, np.savez_compressed, **sample)
    with found.step("run", files.compiled, "--input", files.sample, "--check"):
        made = _timed(found, sample)
        found.equal = all(map(np.array_equal, made, as_tuple(found.model.reference(sample))))


def _timed(found: Findings, sample: Sample) -> tuple[Any, ...]:
    """Run a sample twice; return its outputs and note the times of the second run."""
    with (
        closing(open_device("fsim", found.model.config)) as device,
        _TimedLaunches(device, NETWORK_TIMEOUT) as timed,
    ):
        for _ in range(2):
            timed.seconds, begin = 0.0, time.perf_counter()
            made = found.model.run(sample, session=SimpleNamespace(residents=timed))
            found.run_seconds = time.perf_counter() - begin
    found.host_seconds = found.run_seconds - timed.seconds
    return as_tuple(made)


class _TimedLaunches(ResidentPrograms):
    """The launches of a model, with the time that they took."""

    seconds = 0.0

    def run(self, *words: Any) -> tuple[Any, ...]:
        begin = time.perf_counter()
        made = super().run(*words)
        self.seconds += time.perf_counter() - begin
        return made


def _samples_in_time(seconds: float, count: int) -> int:
    """Return how many of so many samples are judged, if a run takes so many seconds."""
    most = min(count, EVALUATED)
    fit = max(2, min(most, int(SIMULATING / max(seconds, 1e-3))))
    if fit < most:
        options.say(f"a run takes {seconds:.0f} s on the simulator: {fit} samples are judged")
    return min(fit, most)


def _evaluate(found: Findings, files: _Files, most: int | None, stated: list[object]) -> None:
    """Judge the answers to the data, if there are any, beside those of the float model."""
    if found.data is None or found.samples is None:
        return
    against = None if found.quantization is None else files.model
    count = most or _samples_in_time(found.run_seconds, len(found.samples.cases))
    words = "--data", found.data, *_given("--against", against), "--samples", count, *stated
    with found.step("evaluate", files.compiled, *words):
        samples = found.samples.drawn(count)
        task = task_of(found.model, samples, found.data)
        found.accuracy = evaluated(found.model, samples, task, against)


def _given(option: str, value: object) -> list[object]:
    """Return an option with its value as words; nothing without a value."""
    return [] if value is None else [option, value]
