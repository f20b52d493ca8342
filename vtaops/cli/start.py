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
from vtaops.cli.evaluate import evaluated
from vtaops.cli.networks import compiled_model, planned, random_input, rounded
from vtaops.cli.options import (
    Config,
    Force,
    Mean,
    Shapes,
    Std,
    as_json,
    claim,
    read_preparation,
    read_shapes,
    say,
    show,
    to_write,
    write_arrays,
)
from vtaops.cli.start_page import Findings, page
from vtaops.machine.config import NETWORK_CONFIG
from vtaops.report.files import write_bytes, write_text
from vtaops.runtime import NETWORK_TIMEOUT, ResidentPrograms, open_device
from vtaops.runtime.arguments import as_tuple

if TYPE_CHECKING:
    from vtaops.graph import Tensor
    from vtaops.network.plan import Plan
    from vtaops.quantization.datasets import Dataset

Words = list[object]
"""Words of a command line."""

CALIBRATING = 32
"""Samples that calibrate, if there are so many."""

FEWEST, VALUES = 8, 1 << 28
"""The fewest where all tensors of so many samples would have more than so many values.

As many are drawn at random where there are no data.
"""

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
        Path | None, to_write("Output folder, created if necessary. Default: MODEL-start.")
    ] = None,
    config: Config = NETWORK_CONFIG,
    shapes: Shapes = None,
    mean: Mean = None,
    std: Std = None,
    samples: Annotated[
        int | None,
        Option(
            help="Maximum number of samples, drawn evenly. Default: 100, or as many as "
            "the simulator runs in a minute.",
            min=1,
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Take a network of your own from its file to a page: quantised, proven, run and judged.

    The commands shown repeat each step; their files stay in the folder.

    Example: vtaops start net.onnx --data photos
    """
    from vtaops.quantization.datasets import load_dataset

    begin = time.perf_counter()
    if model.suffix not in (".onnx", ".tflite"):
        raise UnsupportedError(f"cannot start with {model}: vtaops start reads .onnx and .tflite")
    folder, stem = output or Path(f"{model.stem}-start"), model.stem
    names = f"{stem}.q.onnx", f"{stem}.vtam", f"{stem}.html", "calibration.npz", "sample.npz"
    quantized, compiled, told, calibration, sample = map(folder.joinpath, names)
    prepared, given = read_preparation(mean, std), read_shapes(shapes)
    words = _given("--mean", mean) + _given("--std", std)
    with redirect_stdout(sys.stderr) if as_json() else nullcontext():
        plan = planned(model, config, given)
        found = Findings(model, config, _facts(model, plan), plan)
        say("\n".join(map(": ".join, found.facts.items())))
        drawn = None if data else _drawn(found, asked=random_data)
        claim(folder, names, force)
        if drawn is not None:
            data, found.random = calibration, True
            write_arrays(data, np.savez_compressed, **drawn)
        dataset = load_dataset(data, found.shapes, prepared) if data else None
        network = _quantize(found, dataset, calibration, quantized)
        _compile(found, network, compiled, shapes)
        _run(found, dataset, compiled, sample)
        if data and dataset and not found.random:
            _evaluate(found, dataset, data, compiled, samples, words)
    write_text(told, page(found, shlex.quote(str(compiled))))
    seconds = time.perf_counter() - begin
    show(
        {**found.as_dict(), "page": str(told), "seconds": round(seconds, 1)},
        f"\n{found.summary}\n{told} ({seconds:.0f} s in all)",
    )


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
    say(f"warning: {warning}", err=True)
    chance = np.random.default_rng(0)
    return {
        name: chance.uniform(-1, 1, (FEWEST, *shape)).astype(np.float32)
        for name, shape in found.shapes.items()
    }


def _require_some_on_vta(found: Findings, plan: Plan) -> None:
    """Say where the operators would run.

    Raises
    ------
    UnsupportedError
        If nothing would run on VTA.
    """
    from vtaops.model.placement import placement

    share = placement(plan.graph, plan.rows)
    on_vta = sum(row.where == "vta" for row in plan.rows)
    if on_vta:
        say(f"plan: {on_vta} of {len(plan.rows)} operators on VTA; {share}")
        return
    row = next((row for row in plan.rows if row.code != "boundary"), plan.rows[0])
    reason = share.reason or f"{row.name[:80]}: {row.reason}"
    raise UnsupportedError(
        f"nothing of {found.file} would run on VTA, which computes convolutions, matrix products "
        f"and what stands between them on int8. Its operators: {found.facts['operators']}. "
        f"{reason[:200]}. What helps: {HINTS[share.code or row.code]}"
    )


# ----------------------------------------------------------------------------------- the steps


def _quantize(found: Findings, data: Dataset | None, calibration: Path, output: Path) -> Path:
    """Quantise for the device with some of the samples, if it is not; return the file."""
    from vtaops.quantization import run_quantization

    if found.quantised or data is None:
        return found.file
    if not found.random:
        values = sum(tensor.elements for tensor in found.plan.graph.tensors.values())
        count = min(CALIBRATING, max(FEWEST, VALUES // values))  # fewer where they hold much
        samples = [case.read() for case in data.drawn(count).cases]
        arrays = {name: np.stack([sample[name] for sample in samples]) for name in found.shapes}
        write_arrays(calibration, np.savez_compressed, **arrays)
    searched = None if found.config == NETWORK_CONFIG else found.config  # the defaults are for it
    words = "--calibration", calibration, "-o", output, *_given("--config", searched)
    with found.step("quantize", found.file, *words):
        done = run_quantization(found.file, calibration, config=searched)
        write_bytes(output, done.model.SerializeToString())
        found.quantization, found.quality, found.costs = done, done.quality(), done.costs(5)
    say(f"  {found.quality}")
    return output


def _compile(found: Findings, network: Path, output: Path, shapes: list[str] | None) -> None:
    """Plan again, now as it is quantised; compile and prove, if something would run on VTA."""
    given = read_shapes(shapes)
    words = ["--config", found.config]
    for text in shapes or ():
        words += ["--shapes", text]
    with found.step("plan", network, *words):
        plan = planned(network, found.config, given)
    _require_some_on_vta(found, plan)
    with found.step("compile", network, "-o", output, *words):
        found.model = compiled_model(network, found.config, shapes=given)
        found.model.save(output)
    layers = found.quality.layers if found.quality else ()
    found.report = found.model.report(quality={layer.tensor: layer.sqnr_db for layer in layers})


def _run(found: Findings, data: Dataset | None, compiled: Path, output: Path) -> None:
    """Run one sample twice, compare it with the reference, and time the host's part."""
    model, inputs = found.model, found.model.graph.inputs
    values = data.cases[0].read() if data else {t.name: random_input(t) for t in inputs}
    sample = {tensor.name: rounded(tensor, values[tensor.name]) for tensor in inputs}
    write_arrays(output, np.savez_compressed, **sample)
    with (
        found.step("run", compiled, "--input", output, "--check"),
        closing(open_device("fsim", model.config)) as device,
        _TimedLaunches(device, NETWORK_TIMEOUT) as timed,
    ):
        for _ in range(2):
            timed.seconds, begin = 0.0, time.perf_counter()
            made = model.run(sample, session=SimpleNamespace(residents=timed))
            found.run_seconds = time.perf_counter() - begin
        found.host_seconds = found.run_seconds - timed.seconds
        pairs = as_tuple(made), as_tuple(model.reference(sample))
        found.equal = all(map(np.array_equal, *pairs))


class _TimedLaunches(ResidentPrograms):
    """The launches of a model, with the time that they took."""

    seconds = 0.0

    def run(self, *words: Any) -> tuple[Any, ...]:
        begin = time.perf_counter()
        made = super().run(*words)
        self.seconds += time.perf_counter() - begin
        return made


def _evaluate(
    found: Findings, data: Dataset, source: Path, compiled: Path, most: int | None, stated: Words
) -> None:
    """Judge the answers to the data, beside those of the float model."""
    against = found.file if found.quantization else None
    in_time = min(EVALUATED, int(SIMULATING / max(found.run_seconds, 1e-3)))
    samples = data.drawn(most or max(2, in_time))
    words = *_given("--against", against), "--samples", len(samples.cases), *stated
    with found.step("evaluate", compiled, "--data", source, *words):
        found.accuracy = evaluated(found.model, samples, source, against)


def _given(option: str, value: object) -> Words:
    """Return an option with its value as words; nothing without a value."""
    return [] if value is None else [option, value]
