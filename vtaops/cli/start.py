"""The command ``vtaops start``: half an hour with a network of one's own.

Owns the order of the steps, what each needs, and when to say no; `start_page` owns the page. Each
step is a command, which is printed and can be repeated by hand. See `vtaops.cli`.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from vtaops.base.errors import ArgumentError, ModelError, UnsupportedError
from vtaops.base.reasons import HINTS
from vtaops.cli import options
from vtaops.cli.evaluate import exact_runs, runs, task_of
from vtaops.cli.networks import compiled_model, random_input, rounded
from vtaops.cli.pages import render
from vtaops.cli.start_page import Findings, page
from vtaops.machine.config import NETWORK_CONFIG
from vtaops.report.files import write_bytes, write_text
from vtaops.runtime.arguments import as_tuple

if TYPE_CHECKING:
    from vtaops.graph.onnx_files import ModelProto
    from vtaops.model import Model
    from vtaops.network.plan import Plan
    from vtaops.program import Program
    from vtaops.quantization.datasets import Dataset
    from vtaops.quantization.samples import Sample

Shapes = Mapping[str, tuple[int, ...]]

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
            ".npz files."
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
    no_open: options.NoOpen = False,
) -> None:
    """Take a network of your own from its file to a page: quantised, proven, run and judged.

    The commands shown repeat each step; their files stay in the folder.

    Example: vtaops start net.onnx --data photos
    """
    from vtaops.quantization.datasets import load_dataset

    begin = time.perf_counter()
    files = _Files(model, output or Path(f"{model.stem}-start"))
    prepared = options.read_preparation(mean, std)
    words = _given("--mean", mean) + _given("--std", std)
    with redirect_stdout(sys.stderr) if options.as_json() else nullcontext():
        found = _planned(files, config, data, options.read_shapes(shapes))
        drawn = None if data else _drawn(found, asked=random_data)
        options.claim(files.folder, files.names, force)
        if drawn is not None:
            data, found.random = files.calibration, True
            options.write_arrays(data, np.savez_compressed, **drawn)
        cases = load_dataset(data, found.shapes, prepared) if data else None
        _quantize(found, files, cases)
        _compile(found, files)
        _run(found, files, cases)
        if data is not None and cases is not None:
            count = samples or _samples_in_time(found.run_seconds, len(cases.cases))
            _evaluate(found, files, data, cases.drawn(count), _given("--samples", count) + words)
    write_text(files.page, page(found, shlex.quote(str(files.compiled))))
    seconds = time.perf_counter() - begin
    options.show(
        {**found.as_dict(), "page": str(files.page), "seconds": round(seconds, 1)},
        f"\n{found.summary}\n{files.page} ({seconds:.0f} s in all)",
    )
    options.open_page(files.page, no_open or options.as_json())


class _Files:
    """The network, and the files that the steps leave."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.model, self.folder = model, folder
        self.quantized, self.compiled = (folder / f"{model.stem}{s}" for s in (".q.onnx", ".vtam"))
        self.calibration, self.sample = folder / "calibration.npz", folder / "sample.npz"
        self.page, self.worst = folder / f"{model.stem}.html", folder / "worst.html"
        self.names = [path.name for path in vars(self).values() if path.parent == folder]


# ------------------------------------------------------------------- what it is, and what it needs


def _read(model: Path, shapes: Shapes | None) -> ModelProto:
    """Return a network in the operators of ONNX.

    Raises
    ------
    UnsupportedError
        If it is another kind of file.
    """
    from vtaops.graph.onnx_files import read
    from vtaops.quantization.sources import from_relax

    if model.suffix == ".onnx":
        return read(model)
    if model.suffix == ".tflite":
        return from_relax(model, shapes)
    hint = {
        ".vtam": f"it is already compiled: vtaops report profile {model}",
        ".pt": "export it: torch.onnx.export(module, (example,), 'net.onnx')",
        ".pth": "build the module, load it, and export it: torch.onnx.export(...)",
        ".h5": "convert it: tf.lite.TFLiteConverter.from_keras_model(...)",
    }.get(model.suffix, "vtaops start reads .onnx and .tflite")
    raise UnsupportedError(f"cannot start with {str(model)!r}: {hint}")


def _facts(model: Path, source: ModelProto) -> dict[str, str]:
    """Return what a file is, by property."""
    from vtaops.graph.onnx_files import graph_inputs

    opset = max((entry.version for entry in source.opset_import if entry.domain == ""), default=0)
    writer = f", written by {source.producer_name}" if source.producer_name else ""
    kind = "TFLite" if model.suffix == ".tflite" else f"ONNX, opset {opset}{writer}"
    return {
        "file": f"{model}, {model.stat().st_size:,} bytes, {kind}",
        "inputs": ", ".join(map(_told, graph_inputs(source))),
        "outputs": ", ".join(map(_told, source.graph.output)),
        "operators": f"{len(source.graph.node)}: {_operators(source)}",
    }


def _operators(source: ModelProto) -> str:
    """Return the kinds of operators of a file, the most frequent ones by name."""
    counted = Counter(node.op_type for node in source.graph.node)
    kinds = [f"{count} {kind}" for kind, count in counted.most_common(8)]
    others = [f"{len(counted) - 8} other kinds"] if len(counted) > 8 else []
    return ", ".join([*kinds, *others])


def _told(value: Any) -> str:
    """Return an input or output as text: its name, type and shape."""
    from vtaops.graph.onnx_files import require, shape_text

    kind = require("onnx").TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
    return f"{value.name} {kind}{shape_text(value)}"


def _planned(files: _Files, config: str, data: Path | None, given: Shapes | None) -> Findings:
    """Tell what the file is; return that, and what of it would run where."""
    source = _read(files.model, given)
    shapes = _shapes(source, data, given)
    found = Findings(files.model, config, _facts(files.model, source), source, shapes)
    options.say("\n".join(f"{name}: {text}" for name, text in found.facts.items()))
    _plan(found, files.model)
    return found


def _shapes(source: ModelProto, data: Path | None, given: Shapes | None) -> Shapes:
    """Return the shape of each input: as given, as in the file, or as the data have it.

    Raises
    ------
    ArgumentError
        If nothing tells the shape of an input.
    """
    from vtaops.graph.onnx_files import input_shapes
    from vtaops.quantization.samples import first_shapes

    shapes = input_shapes(source)
    closed = {name: (shape[0] or 1, *shape[1:]) if shape else () for name, shape in shapes.items()}
    if data is not None:
        raw = {name: tuple(size or None for size in shape) for name, shape in shapes.items()}
        with suppress(ModelError):  # the data are read again, and the error told, when all is known
            closed.update(first_shapes(data, raw))
    closed.update(given or {})
    _require_closed(closed)
    return closed


def _require_closed(found: Shapes) -> None:
    """Refuse inputs whose shapes nothing tells."""
    if missing := next((name for name, shape in found.items() if 0 in shape), None):
        example = ",".join(str(size or 64) for size in found[missing])
        raise ArgumentError(
            f"the file leaves the shape of the input {missing!r} open: give it, as in "
            f"--shapes {missing}={example}"
        )


def _plan(found: Findings, source: Path) -> None:
    """Find what would run where."""
    with options.progress_bar("plan"):
        from vtaops.network import plan_model

        open_shapes = source == found.file and source.suffix == ".onnx"
        found.plan = plan_model(source, found.config, shapes=found.shapes if open_shapes else None)


def _wanted(shapes: Shapes) -> str:
    """Return which data a network needs."""
    extents = {name: ", ".join(map(str, ("N", *shape[1:]))) for name, shape in shapes.items()}
    arrays = ", ".join(f"{name!r} of shape ({each})" for name, each in extents.items())
    (first, *others) = shapes.values()
    pictures = not others and len(first) == 4 and {1, 3} & {first[1], first[3]}
    folder = "a folder of pictures, or with a folder of pictures for each class; or " * bool(
        pictures
    )
    return (
        f"Give {CALIBRATING} or more that are like those in use: --data with {folder}an .npz file "
        f"with {arrays}, and with 'labels' if there are any"
    )


def _drawn(found: Findings, *, asked: bool) -> dict[str, Any] | None:
    """Return random inputs if they are asked for, None if the network needs no inputs.

    Raises
    ------
    ArgumentError
        If it needs them and they are not asked for, or if one holds integers.
    """
    from vtaops.graph.onnx_files import input_dtypes

    if not asked and found.quantised:
        return None
    if not asked:
        raise ArgumentError(
            f"{found.file} is not quantised, which needs its inputs. {_wanted(found.shapes)}. To "
            "see its cycles alone: --random-data"
        )
    for name, kind in input_dtypes(found.source).items():
        if kind.kind != "f":
            raise ArgumentError(
                f"the input {name!r} holds {kind}: which integers make sense, only you know. "
                f"{_wanted(found.shapes)}"
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
    hint = HINTS[share.code or row.code]
    kinds = sorted({kind for row in plan.rows for kind in row.operator.split(", ")})[:12]
    raise UnsupportedError(
        f"nothing of {found.file} would run on VTA, which computes convolutions, matrix products "
        f"and what stands between them on int8. Its operators: {', '.join(kinds)}. {reason[:200]}. "
        f"What helps: {hint}"
    )


# ----------------------------------------------------------------------------------- the steps


def _quantize(found: Findings, files: _Files, cases: Dataset | None) -> None:
    """Quantise for the device, if it is not."""
    from vtaops.quantization import run_quantization

    if found.quantised or cases is None:
        files.quantized = files.model
        return
    if not found.random:
        samples = [case.read() for case in cases.drawn(_calibrating(found.plan)).cases]
        arrays = {name: np.stack([sample[name] for sample in samples]) for name in found.shapes}
        options.write_arrays(files.calibration, np.savez_compressed, **arrays)
    words = files.model, "--calibration", files.calibration, "-o", files.quantized
    searched = None if found.config == NETWORK_CONFIG else found.config  # the defaults are for it
    with options.step("quantize", *words, *_given("--config", searched)) as command:
        found.commands.append(command)
        done = run_quantization(files.model, files.calibration, config=searched)
        write_bytes(files.quantized, done.model.SerializeToString())
        found.quantization, found.quality, found.costs = done, done.quality(), done.costs(5)
    options.say(f"  {found.quality}")


def _calibrating(plan: Plan) -> int:
    """Return how many samples calibrate: fewer of those that hold much, such as long sounds."""
    values = sum(tensor.elements for tensor in plan.graph.tensors.values())
    return min(CALIBRATING, max(FEWEST, VALUES // values))


def _compile(found: Findings, files: _Files) -> None:
    """Plan again, now as it is quantised; compile and prove, if something would run on VTA."""
    config = "--config", found.config
    with options.step("plan", files.quantized, *config) as command:
        found.commands.append(command)
        _plan(found, files.quantized)
    _require_some_on_vta(found)
    with options.step("compile", files.quantized, "-o", files.compiled, *config) as command:
        found.commands.append(command)
        model = compiled_model(files.quantized, found.config)
        model.save(files.compiled)
    layers = found.quality.layers if found.quality else ()
    found.model = model
    found.report = model.report(quality={layer.tensor: layer.sqnr_db for layer in layers})


def _run(found: Findings, files: _Files, cases: Dataset | None) -> None:
    """Run one sample, compare it with the integer reference, and time the host's part."""
    model = found.model
    inputs = model.graph.inputs
    values = cases.cases[0].read() if cases else {t.name: random_input(t) for t in inputs}
    sample = {tensor.name: rounded(tensor, values[tensor.name]) for tensor in inputs}
    options.write_arrays(files.sample, np.savez_compressed, **sample)
    words = "run", files.compiled, "--input", files.sample, "--check"
    with options.step(*words) as command:
        found.commands.append(command)
        made = _timed(found, sample)
        wanted = as_tuple(model.reference(sample))
        found.equal = all(map(np.array_equal, made, wanted))


def _timed(found: Findings, sample: Sample) -> tuple[Any, ...]:
    """Run a sample twice; return its outputs and note the times of the second run."""
    timed = _TimedLaunches(found.model)
    for _ in range(2):
        timed.seconds, begin = 0.0, time.perf_counter()
        made = found.model.run(sample, session=SimpleNamespace(residents=timed))
        found.run_seconds = time.perf_counter() - begin
        found.host_seconds = found.run_seconds - timed.seconds
    return as_tuple(made)


def _samples_in_time(seconds: float, count: int) -> int:
    """Return how many of so many samples are judged, if a run takes so many seconds."""
    most = min(count, EVALUATED)
    fit = max(2, min(most, int(SIMULATING / max(seconds, 1e-3))))
    if fit < most:
        options.say(f"a run takes {seconds:.0f} s on the simulator: {fit} samples are judged")
    return min(fit, most)


class _TimedLaunches:
    """The launches of a model on fsim, with the time that they took."""

    def __init__(self, model: Model) -> None:
        from vtaops.runtime import NETWORK_TIMEOUT, ResidentPrograms, open_device

        self._residents = ResidentPrograms(open_device("fsim", model.config), NETWORK_TIMEOUT)
        self.device = self._residents.device
        self.seconds = 0.0

    def run(self, program: Program, *arguments: Any) -> tuple[Any, ...]:
        begin = time.perf_counter()
        made = self._residents.run(program, *arguments)
        self.seconds += time.perf_counter() - begin
        return made


def _evaluate(
    found: Findings, files: _Files, data: Path, cases: Dataset, stated: list[object]
) -> None:
    """Judge the answers to the data, beside those of the float model."""
    from vtaops.quantization.evaluation import evaluate

    against = None if found.quantization is None else files.model
    words = ["evaluate", files.compiled, "--data", data, *_given("--against", against), *stated]
    with options.step(*words, "-o", files.worst) as command:
        found.commands.append(command)
        exact = exact_runs(against, found.model)
        task = task_of(cases)
        found.accuracy = evaluate(runs(found.model), exact, cases, task)
        worst = render("worst.html", name=files.compiled.name, evaluation=found.accuracy)
        write_text(files.worst, worst)


def _given(option: str, value: object) -> list[object]:
    """Return an option with its value as words; nothing without a value."""
    return [] if value is None else [option, value]
