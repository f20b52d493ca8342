"""The commands for networks, on a small compiled model."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import vtaops
from trials.onnx_models import images, small_network
from trials.random_graphs import random_graph, random_inputs
from vtaops.cli import app
from vtaops.graph import Graph, MaxPool, executor
from vtaops.quantization import run_quantization
from vtaops.runtime.arguments import as_tuple

SEED = 35


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = vtaops.compile_model(random_graph(SEED), "tiny")
    model.save(folder / "m.vtam")
    names = []
    for number, array in enumerate(random_inputs(model.graph, SEED)):
        np.save(folder / f"x{number}.npy", array)
        names += ["--input", str(folder / f"x{number}.npy")]
    return model, str(folder / "m.vtam"), names


def vta(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_compiled_model_runs(compiled, tmp_path):
    model, path, inputs = compiled
    done = vta("run", path, *inputs, "--check", "-o", tmp_path / "y.npz")
    assert done.exit_code == 0, done.output
    assert "equal to the reference" in done.output
    with np.load(tmp_path / "y.npz") as found:
        expected = model.reference(*random_inputs(model.graph, SEED))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for tensor, array in zip(model.graph.outputs, expected, strict=True):
            assert np.array_equal(found[tensor.name], array)


def test_each_sample_of_an_npz_file_is_run(compiled, tmp_path):
    """The file that `quantize` takes: arrays by the inputs' names, images on the first axis."""
    model, path, _ = compiled
    runs = [random_inputs(model.graph, seed) for seed in range(3)]
    names = [tensor.name for tensor in model.graph.inputs]
    stacks = [np.concatenate(arrays) for arrays in zip(*runs, strict=True)]
    np.savez(tmp_path / "x.npz", **dict(zip(names, stacks, strict=True)))
    done = vta("run", path, "--input", tmp_path / "x.npz", "--check", "-o", tmp_path / "y.npz")
    assert done.exit_code == 0, done.output
    outputs = model.graph.outputs
    assert len(done.stdout.splitlines()) == 3 * len(outputs) + 1
    with np.load(tmp_path / "y.npz") as found:
        for number, arrays in enumerate(runs):
            results = as_tuple(model.run(dict(zip(names, arrays, strict=True))))
            for tensor, result in zip(outputs, results, strict=True):
                count = len(result)
                part = found[tensor.name][number * count : (number + 1) * count]
                assert np.array_equal(part, result)
    for wrong, text in (
        ({"nothing": stacks[0]}, "the model's inputs are"),
        ({name: stack[0] for name, stack in zip(names, stacks, strict=True)}, "the model takes"),
    ):
        np.savez(tmp_path / "x.npz", **wrong)
        done = vta("run", path, "--input", tmp_path / "x.npz")
        assert isinstance(done.exception, vtaops.errors.ModelError)
        assert text in str(done.exception)


def test_the_results_as_json(compiled):
    model, path, inputs = compiled
    data = json.loads(vta("run", path, *inputs, "--check", "--json").stdout)
    results = model.run(*random_inputs(model.graph, SEED))
    results = results if isinstance(results, tuple) else (results,)
    assert data == {
        "outputs": {t.name: a.tolist() for t, a in zip(model.graph.outputs, results, strict=True)},
        "counters": model.stats().as_dict(),
        "equals_reference": True,
    }


def test_a_wrong_result_ends_with_1(compiled, monkeypatch):
    model, path, inputs = compiled
    wrong = tuple(np.zeros(t.shape, t.dtype) + 99 for t in model.graph.outputs)
    monkeypatch.setattr(executor, "evaluate_runs", lambda _, runs: (wrong for _ in runs))
    done = vta("run", path, *inputs, "--check", "--json")
    assert (done.exit_code, json.loads(done.stdout)["equals_reference"]) == (1, False)


def test_the_plan_and_the_profile(compiled, tmp_path):
    model, path, _ = compiled
    rows = json.loads(vta("plan", path, "--json").output)
    assert [row["name"] for row in rows] == [row.name for row in model.plan]
    assert f"of {len(rows)} operators on VTA" in vta("plan", path).output
    data = json.loads(vta("report", "profile", path, "--json").output)
    assert data["cycles"] == model.cycles()
    for name, start in (("page.html", b"<!"),):
        assert vta("report", "profile", path, "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(start)


def test_a_page_with_both_configurations(tmp_path):
    onnx.save(vtaops.quantize(small_network(), {"x": images()}), tmp_path / "q.onnx")
    options = "--config", "pynq", "--config", "pynq_ext", "-o", tmp_path / "both.html"
    assert vta("report", "profile", tmp_path / "q.onnx", *options).exit_code == 0
    page = (tmp_path / "both.html").read_text()
    assert all(f"{name}: " in page for name in (" on pynq", " on pynq_ext"))


def test_mistakes_are_named(compiled, tmp_path):
    _, path, inputs = compiled
    for arguments, text in (
        (("run", path, *inputs, *inputs), "inputs are given"),
        (("run", tmp_path / "nothing.vtam"), "cannot read"),
        (("run", tmp_path / "nothing.onnx"), "does not exist"),
        (("plan", tmp_path / "nothing.onnx"), "does not exist"),
        (("report", "profile", path, "--config", "pynq"), "needs the model that it was"),
    ):
        done = vta(*arguments)
        assert done.exit_code == 1
        assert isinstance(done.exception, vtaops.VTAError)
        assert text in str(done.exception)


def test_a_compiled_model_is_told_of_without_tvm(compiled):
    """`plan`, `report profile` and `run` of a file need no compiler, so they start at once."""
    _, path, inputs = compiled
    for command in (("plan", path), ("report", "profile", path), ("run", path, *inputs)):
        code = f"""
import sys
sys.modules["tvm"] = sys.modules["tvm_ffi"] = sys.modules["torch"] = None
from vtaops.cli import app
from vtaops.graph import Graph, MaxPool
from vtaops.runtime.arguments import as_tuple
app({list(command)!r})
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [(), (("--mean", "0.485,0.456,0.406"), ("--std", ".2"))])
def test_pictures_are_prepared_alike_for_calibration_and_runs(options, tmp_path):
    """The calibrated model has the words of one that was calibrated with what `run` reads."""
    image = pytest.importorskip("PIL.Image")
    onnx.save(small_network(), tmp_path / "float.onnx")
    (tmp_path / "photos").mkdir()
    pixels = np.random.default_rng(7).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    for number, (array, suffix) in enumerate(zip(pixels, ("png", "bmp", "PNG"), strict=True)):
        image.fromarray(array).save(tmp_path / "photos" / f"{number}.{suffix}")
    mean, deviation = (0.485, 0.456, 0.406) if options else 0.5, 0.2 if options else 0.5
    expected = ((pixels / 255 - mean) / deviation).transpose(0, 3, 1, 2).astype(np.float32)
    flat = [text for pair in options for text in pair]
    model = tmp_path / "q.onnx"
    arguments = tmp_path / "float.onnx", "--calibration", tmp_path / "photos", "-o", model
    assert vta("quantize", *arguments, *flat).exit_code == 0
    wanted = vtaops.quantize(small_network(), {"x": expected})
    assert model.read_bytes() == wanted.SerializeToString()
    compiled = vtaops.compile_model(model, "tiny")
    compiled.save(tmp_path / "m.vtam")
    options = "--input", tmp_path / "photos" / "1.bmp", "-o", tmp_path / "y.npz"
    done = vta("run", tmp_path / "m.vtam", *options, *flat)
    assert done.exit_code == 0, done.exception
    with np.load(tmp_path / "y.npz") as found:
        assert np.array_equal(next(iter(found.values())), compiled.run(expected[1:2]))


def test_pictures_that_do_not_suit(compiled, tmp_path):
    _, path, inputs = compiled
    onnx.save(small_network(), tmp_path / "float.onnx")
    np.save(tmp_path / "x.npy", images())
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "0.png").write_bytes(b"no picture")
    quantized = "quantize", tmp_path / "float.onnx", "-o", tmp_path / "q.onnx", "--calibration"
    for arguments, text in (
        ((*quantized, tmp_path / "photos"), "cannot read"),
        ((*quantized, tmp_path / "photos", "--mean", "gray"), "--mean is 'gray'"),
        ((*quantized, tmp_path / "photos", "--mean", "nan"), "mean is one number, or three"),
        ((*quantized, tmp_path / "photos", "--mean", "1,2"), "mean is one number, or three"),
        ((*quantized, tmp_path / "photos", "--std", "1,0,1"), "greater than 0"),
        ((*quantized, tmp_path / "x.npy", "--mean", "0"), "hold none"),
        (("run", path, *inputs, "--mean", "0"), "hold none"),
    ):
        done = vta(*arguments)
        assert isinstance(done.exception, vtaops.errors.ModelError), done.output
        assert text in str(done.exception)
    assert not (tmp_path / "q.onnx").exists()


def test_the_noise_of_every_layer():
    done = run_quantization(small_network(), {"x": images()})
    quality = {layer.tensor: layer.sqnr_db for layer in done.quality().layers}
    report = vtaops.compile_model(done.model, prove=False).report(quality=quality)
    known = {row.name: row.sqnr for row in report.layers if row.sqnr is not None}
    assert len(known) > 4
    assert known == {name: quality[name] for name in known}


def test_a_file_is_for_one_configuration(compiled, tmp_path):
    _, path, inputs = compiled
    for command in (("run", path, *inputs), ("report", "profile", path), ("plan", path)):
        done = vta(*command, "--config", "pynq")
        assert done.exit_code == 1
        assert "is compiled for tiny, not for pynq" in str(done.exception)
        assert vta(*command, "--config", "tiny").exit_code == 0
    assert "on tiny" in vta("plan", path).output
    done = vta("compile", path, "-o", tmp_path / "again.vtam")
    assert done.exit_code == 1
    assert "is already compiled" in str(done.exception)


def test_compile_says_how_the_network_compares_with_its_file(tmp_path):
    onnx.save(vtaops.quantize(small_network(), {"x": images(4)}), tmp_path / "q.onnx")
    asked = "compile", tmp_path / "q.onnx", "-o", tmp_path / "q.vtam", "--no-prove"
    assert "says what its file says to ONNX Runtime" in vta(*asked).output.replace("\n", " ")
    assert vtaops.load_model(tmp_path / "q.vtam").agreement.inputs == 2
    assert "not compared with its file" in vta(*asked, "--no-check").output


@pytest.mark.parametrize("command", ["plan", "report profile", "run", "prove"])
def test_markup_in_names_is_text(tmp_path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    names = "[red]net[/red]", "[link=https://example.com]pool[/link]", "end[/]"
    graph, pool = Graph(names[0]), MaxPool((2, 2), (2, 2))
    small = graph.add(pool, graph.input("x[/]", (1, 16, 8, 8)), name=names[1])
    graph.output(graph.add(pool, small, name=names[2]))
    vtaops.compile_model(graph, "pynq_ext").save(tmp_path / "m.vtam")
    done = vta(*command.split(), tmp_path / "m.vtam")
    assert done.exit_code == 0, done.output
    assert names[2] in done.output
    if command in ("plan", "report profile"):
        assert names[1] in done.output
    if command == "report profile":
        assert names[0] in done.output
