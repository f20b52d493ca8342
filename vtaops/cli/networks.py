"""The commands of `vtaops` for whole networks: quantize, plan, compile, prove, export, run.

Contains only argument parsing and printing; see `vtaops.cli`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from typer import Argument, Option

from vtaops.base.errors import ModelError, UnsupportedError
from vtaops.base.shapes import Array
from vtaops.cli.options import (
    ConfigOrOwn,
    Configs,
    Device,
    Force,
    Mean,
    ModelFile,
    Shapes,
    Std,
    complete_layers,
    progress_bar,
    read_fixed,
    read_npy,
    read_preparation,
    read_shapes,
    read_state,
    say,
    show,
    to_write,
    write_arrays,
)
from vtaops.cli.reports import report_app
from vtaops.cli.run import read_workload, run_app
from vtaops.machine.config import NETWORK_CONFIG, HardwareConfig
from vtaops.program import Program
from vtaops.report.files import write_bytes
from vtaops.report.style import list_table

if TYPE_CHECKING:
    from vtaops.graph import Graph, Tensor
    from vtaops.model import Model
    from vtaops.network.plan import Plan
    from vtaops.quantization.pictures import Preparation
    from vtaops.quantization.samples import Sample


def compile(
    model: ModelFile,
    *,
    output: Annotated[Path, to_write("The compiled network: .vtam.", ".vtam")],
    config: ConfigOrOwn = None,
    host: Annotated[
        bool,
        Option(
            "--host", help="Also compile a model that is not quantised; all of it runs on the host."
        ),
    ] = False,
    no_prove: Annotated[
        bool,
        Option(
            "--no-prove",
            help="Do not prove that it computes its graph for every input; the file has no "
            "certificate.",
        ),
    ] = False,
    no_check: Annotated[
        bool,
        Option(
            "--no-check",
            help="Do not compare its graph with the file, tensor by tensor, in ONNX Runtime or "
            "LiteRT.",
        ),
    ] = False,
    pin_weights: Annotated[
        bool,
        Option(
            "--pin-weights", help="Weights that fit stay on the chip: later runs do not load them."
        ),
    ] = False,
    shapes: Shapes = None,
    state: Annotated[
        list[str] | None,
        Option(
            help="An input that is an output of the run before, and that output: "
            "PAST=PRESENT. Give one option for each."
        ),
    ] = None,
) -> None:
    """Compile a network to one file that runs without the compiler.

    Example: vtaops compile network.q.onnx -o network.vtam
    """
    from vtaops.model.tables import summary

    if model.suffix == ".vtam":
        raise UnsupportedError(f"{model} is already compiled")
    compiled = compiled_model(
        model,
        config,
        host=host,
        prove=not no_prove,
        check=not no_check,
        pin_weights=pin_weights,
        shapes=read_shapes(shapes),
        state=read_state(state),
    )
    compiled.save(output)
    report, size = compiled.report(), output.stat().st_size
    data = report.as_dict() | {"file": str(output), "bytes": size}
    show(data, summary(report), f"written to {output}, {size:,} bytes")


def prove(
    subject: Annotated[
        str,
        Argument(
            help="A program (.vta), a compiled network (.vtam), a network to compile (.onnx, "
            ".tflite), or an operator as for vtaops run op.",
            autocompletion=complete_layers,
        ),
    ],
    *,
    config: ConfigOrOwn = None,
) -> None:
    """Prove that a program or a network computes what it declares, for every input.

    Example: vtaops prove network.vtam

    Example: vtaops prove resnet18.C2 --config pynq_ext
    """
    from vtaops.compiler import compile
    from vtaops.proof import prove

    path = Path(subject)
    declared: Program | Model
    if path.suffix == ".vta":
        declared = Program.load(path)
    elif path.suffix in (".vtam", ".onnx", ".tflite"):
        declared = compiled_model(path, config)
    else:
        declared = compile(read_workload(subject).op, config or "pynq")
    with progress_bar(f"prove {subject}"):
        proof = prove(declared)
    show({"name": subject, **asdict(proof)}, f"{subject}\n{proof}", good=not proof.unproven)


def export(
    model: ModelFile,
    *,
    output: Annotated[Path, to_write("Folder for the blob, the runtime, main.c and a Makefile.")],
    force: Force = False,
    config: ConfigOrOwn = None,
) -> None:
    """Write a network as C99, which needs neither Python nor an operating system.

    Example: vtaops export network.vtam -o network
    """
    bundle = compiled_model(model, config).export_c(output, force=force)
    figures = {**vars(bundle), "folder": str(bundle.folder)}
    show(
        figures,
        f"written to {output}: {bundle.blob_nbytes:,} bytes of constants, "
        f"{bundle.launches} launches of VTA",
        f"memory: {bundle.arena_nbytes:,} bytes on the processor, "
        f"{bundle.device_nbytes:,} bytes on the device",
        f"next: make -C {output}",
    )


def plan(model: ModelFile, *, config: ConfigOrOwn = None, shapes: Shapes = None) -> None:
    """Show which operators of a network would run where, and why, without compiling it.

    Example: vtaops plan network.q.onnx --config ultra96
    """
    from vtaops.model.placement import placement
    from vtaops.model.tables import plan_table

    if model.suffix == ".vtam":
        compiled = compiled_model(model, config)
        rows, name, launches = compiled.plan, compiled.config.name, len(compiled.regions)
        graph = compiled.graph
    else:
        name = config or NETWORK_CONFIG
        found = planned(model, name, read_shapes(shapes))
        rows, graph, launches = found.rows, found.graph, len(found.lowered)
    on_vta = sum(row.where == "vta" for row in rows)
    show(
        [*map(vars, rows)],
        plan_table(rows, f"{model.name} on {name}"),
        f"{on_vta} of {len(rows)} operators on VTA, launches of it: {launches}",
        str(placement(graph, rows)),
    )


def planned(path: Path, config: str, shapes: Mapping[str, Sequence[int]] | None) -> Plan:
    """Return the plan of a model file."""
    with progress_bar(f"plan {path.name}"):
        from vtaops.network import plan_model

        return plan_model(path, config, shapes=shapes)


@report_app.command("profile")
def profile(
    model: ModelFile,
    *,
    config: Configs = None,
    output: Annotated[
        Path | None, to_write("A page with the timeline of the network: .html.", ".html")
    ] = None,
) -> None:
    """Show the cycles and bytes of a network, layer by layer.

    Example: vtaops report profile network.vtam -o network.html
    """
    from vtaops.model import tables
    from vtaops.report import write_text
    from vtaops.report.network_pictures import network_page

    models = [compiled_model(model, name) for name in config or [""]]
    reports = [each.report() for each in models]
    parts = [view(r) for r in reports for view in (tables.network_table, tables.summary)]
    data = [each.as_dict() for each in reports]
    show(data if len(data) > 1 else data[0], *parts)
    if output is not None:
        write_text(output, network_page(*models))
        say(f"written to {output}", err=True)


@run_app.command("model")
def run_model(
    model: ModelFile,
    *,
    inputs: Annotated[
        list[Path] | None,
        Option(
            "--input",
            help="An input: .npy, or a picture; repeat .npy for several inputs. Or one .npz with "
            "an array for each name of an input, as for `vtaops quantize`. Each sample is run.",
        ),
    ] = None,
    mean: Mean = None,
    std: Std = None,
    config: ConfigOrOwn = None,
    device: Device = "fsim",
    output: Annotated[Path | None, to_write("The results: .npz.", ".npz")] = None,
    check: Annotated[
        bool, Option("--check", help="Compare with the integer reference, bit for bit.")
    ] = False,
) -> None:
    """Run a network on inputs.

    Pictures are scaled to the size of the network's input and to -1..1, or as --mean and
    --std say, like in `vtaops quantize`. Without --input, the inputs are random.

    Example: vtaops run network.vtam --input picture.png --mean 0.485,0.456,0.406
    --std 0.229,0.224,0.225

    Example: vtaops run network.vtam --input images.npz -o scores.npz
    """
    from vtaops.runtime import NETWORK_TIMEOUT
    from vtaops.runtime.arguments import as_tuple
    from vtaops.session import Session

    preparation = read_preparation(mean, std)
    compiled = compiled_model(model, config)
    samples = _samples(inputs or [], preparation, compiled.graph.arguments)
    with (
        Session(device, compiled.config, timeout=NETWORK_TIMEOUT) as session,
        progress_bar(f"run {model.name}"),
    ):
        results = [as_tuple(compiled.run(one, session=session)) for one in samples]
        counters = session.stats.as_dict()
    equal = _equals_reference(compiled.graph, samples, results) if check else None
    _show_results(compiled.graph, results, counters, equal, output)


def _show_results(
    graph: Graph,
    results: list[tuple[Array, ...]],
    counters: dict[str, int],
    equal: bool | None,
    output: Path | None,
) -> None:
    """Write and print the outputs, and whether they equal the reference, if asked."""
    names = [tensor.name for tensor in graph.results]
    joined = (np.concatenate([*map(np.atleast_1d, each)]) for each in zip(*results, strict=True))
    arrays = dict(zip(names, joined, strict=True))
    if output is not None:
        write_arrays(output, np.savez, **{n.replace("/", "_"): a for n, a in arrays.items()})
    lines = [
        f"{name} {a.dtype}{list(a.shape)}: {top(a)}"
        for one in results
        for name, a in zip(names, one, strict=True)
    ]
    outputs = {name: a.tolist() for name, a in arrays.items()}
    data: dict[str, Any] = {"outputs": outputs, "counters": counters}
    if equal is not None:
        data["equals_reference"] = equal
        lines.append(f"{'equal to' if equal else 'the results DIFFER FROM'} the reference")
    show(data, *lines, good=equal is not False)


def quantize(
    model: Annotated[Path, Argument(help="A float model: .onnx or .tflite.")],
    *,
    calibration: Annotated[
        Path,
        Option(
            help="Representative inputs: an .npz file with an array for each input (the first "
            "axis counts images), or a folder of .npz or .npy files or of pictures, which "
            "are scaled to the size of the input."
        ),
    ],
    output: Annotated[Path, to_write("The QDQ model: .onnx.", ".onnx")],
    config: Annotated[
        str | None,
        Option(
            help="The device, a name or a JSON file. Zero points, equalization, learned "
            "rounding and bias correction are tried, and judged on every fourth sample."
        ),
    ] = None,
    scales: Annotated[
        Literal["pow2", "free"] | None,
        Option(
            help="free: fixed-point multipliers. pow2: shifts only, for every VTA, as pynq. "
            "Default: what the device supports; without --config free."
        ),
    ] = None,
    weight_bits: Annotated[
        int,
        Option(help="8, or 4 for products on hardware with nibbles; their rounding is learned."),
    ] = 8,
    mean: Mean = None,
    std: Std = None,
    float_nodes: Annotated[
        list[str] | None,
        Option(
            "--float", help="A node, or a tensor that it writes, that stays float; may be repeated."
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=NUMBER",
            help="An input that becomes a constant, such as a sample rate, and decides an If; may "
            "be repeated.",
        ),
    ] = None,
    worst: Annotated[
        bool,
        Option(
            "--worst",
            help="Also list the ten tensors whose rounding costs the outputs most, and what would "
            "help.",
        ),
    ] = False,
) -> None:
    """Quantise a float model to int8 with calibration data, and report the loss.

    Example: vtaops quantize model.onnx --calibration images.npz -o model.q.onnx

    Example: vtaops quantize model.onnx --calibration photos -o model.q.onnx
    --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
    """
    from vtaops.quantization import run_quantization

    preparation = read_preparation(mean, std)
    with progress_bar(f"quantise {model.name}"):
        done = run_quantization(
            model,
            calibration,
            config=config,
            scales=scales,
            preparation=preparation,
            float_nodes=float_nodes or None,
            fixed=read_fixed(fix),
            weight_bits=weight_bits,
        )
        quality = done.quality()
        costly = done.costs() if worst else []
    write_bytes(output, done.model.SerializeToString())
    data = quality.as_dict() | {
        "file": str(output),
        "samples": len(done.samples),
        "equalized": done.equalized,
        "recipe": str(done.recipe),
        "worst": [asdict(cost) for cost in costly],
    }
    columns = {"tensor": "", "operator": "", "costs dB": ".1f", "steps": ".0f", "would help": ""}
    title = "Tensors whose rounding costs the outputs most"
    table = list_table(title, columns, map(astuple, costly))
    made = f"{output}: QDQ model, {len(done.samples)} samples of calibration; {done.recipe}"
    warnings = [f"WARNING: {warning}; see --worst" for warning in quality.warnings]
    show(data, *[table] * worst, made, *warnings, str(quality))


# ------------------------------------------------------------------------------ details


def _samples(
    paths: list[Path], preparation: Preparation | None, tensors: Sequence[Tensor]
) -> list[Sample]:
    """Return the inputs of each run: from files, or random ones if there are no files."""
    from vtaops.quantization.pictures import is_picture
    from vtaops.quantization.samples import load_samples

    if not paths:
        return [{tensor.name: random_input(tensor) for tensor in tensors}]
    source = paths[0] if len(paths) == 1 else _arrays(paths, tensors)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    dtypes = {tensor.name: np.dtype(tensor.dtype) for tensor in tensors}
    samples = load_samples(source, shapes, {} if is_picture(paths[0]) else dtypes, preparation)
    return [{t.name: rounded(t, sample[t.name]) for t in tensors} for sample in samples]


def _arrays(paths: list[Path], tensors: Sequence[Tensor]) -> Sample:
    """Return an array for each input."""
    if len(paths) != len(tensors):
        raise ModelError(f"{len(paths)} inputs are given; the network takes {len(tensors)}")
    return {t.name: read_npy(path) for t, path in zip(tensors, paths, strict=True)}


def _equals_reference(
    graph: Graph, samples: Sequence[Sample], results: Sequence[tuple[Array, ...]]
) -> bool:
    """Return whether the results of runs, one after the other, are those of the executor."""
    from vtaops.graph.executor import evaluate_runs

    inputs = [[sample[tensor.name] for tensor in graph.arguments] for sample in samples]
    pairs = zip(results, evaluate_runs(graph, inputs), strict=True)
    return all(all(map(np.array_equal, made, wanted)) for made, wanted in pairs)


def rounded(tensor: Tensor, array: Array) -> Array:
    """Return real numbers as the integers of an input, if it has any."""
    if array.dtype.kind != "f" or tensor.dtype == "float32":
        return array
    if tensor.dtype not in ("int8", "uint8"):
        whole = array.astype(tensor.dtype)
        if not np.array_equal(whole, array):
            raise ModelError(f"{tensor.name} takes {tensor.dtype}; the data are not whole numbers")
        return whole
    ends = np.iinfo(tensor.dtype)
    steps = np.rint(array / tensor.scale) + tensor.zero_point
    return np.asarray(np.clip(steps, ends.min, ends.max)).astype(tensor.dtype)


def random_input(tensor: Tensor) -> Array:
    """Return random numbers for an input, the same at every call."""
    rng = np.random.default_rng(0)
    if tensor.dtype == "float32":
        return rng.uniform(-1, 1, tensor.shape).astype(np.float32)
    return rng.integers(-128, 128, tensor.shape).astype(tensor.dtype)


def top(array: Array) -> str:
    """Return the largest values of an array with their positions."""
    flat = array.reshape(-1)
    order = np.argsort(-flat.astype(np.float64), kind="stable")[:5]
    return ", ".join(f"[{i}] {flat[i]:.4g}" for i in order)


def compiled_model(path: Path, config: str | None, **settings: Any) -> Model:
    """Return a model, reading it from its file or compiling it with settings of `compile_model`.

    Raises
    ------
    UnsupportedError
        If the file was compiled for another configuration than the requested one.
    """
    if path.suffix != ".vtam":
        with progress_bar(f"compile {path.name}"):
            from vtaops.network import compile_model

            return compile_model(path, config or NETWORK_CONFIG, **settings)
    from vtaops.model import load_model

    model = load_model(path)
    if config and HardwareConfig.load(config).fingerprint != model.config.fingerprint:
        raise UnsupportedError(
            f"{path} is compiled for {model.config.name}, not for {config}; another configuration "
            "needs the model that it was compiled from"
        )
    return model
