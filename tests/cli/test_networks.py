"""The commands for networks, on a small compiled model."""

import json

import numpy as np
import onnx
import pytest
from helpers.onnx_models import images, small_network
from helpers.random_graphs import random_graph, random_inputs
from typer.testing import CliRunner

import vtaops
from vtaops.cli import app

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
    done = vta("run", path, *inputs, "--check", "--profile", "-o", tmp_path / "y.npz")
    assert done.exit_code == 0, done.output
    assert "equal to the reference" in done.output
    assert f"gemm_counter {model.stats().gemm_counter:,}" in done.output
    with np.load(tmp_path / "y.npz") as found:
        expected = model.reference(*random_inputs(model.graph, SEED))
        expected = expected if isinstance(expected, tuple) else (expected,)
        for tensor, array in zip(model.graph.outputs, expected, strict=True):
            assert np.array_equal(found[tensor.name], array)


def test_the_plan_and_the_profile(compiled, tmp_path):
    model, path, _ = compiled
    rows = json.loads(vta("ops", path, "--json").output)
    assert [row["name"] for row in rows] == [row.name for row in model.plan]
    assert f"of {len(rows)} operators on VTA" in vta("ops", path).output
    data = json.loads(vta("profile", path, "--json").output)
    assert data["cycles"] == model.cycles()
    for name, start in (("page.html", b"<!"), ("roof.png", b"\x89PNG")):
        assert vta("profile", path, "-o", tmp_path / name).exit_code == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    done = vta("profile", path, "-o", tmp_path / "memory.svg", "--picture", "memory")
    assert done.exit_code == 0, done.output


def test_mistakes_are_named(compiled, tmp_path):
    _, path, inputs = compiled
    for arguments, text in (
        (("run", path, *inputs, *inputs), "inputs are given"),
        (("run", tmp_path / "nothing.vtam"), "cannot read"),
        (("run", tmp_path / "nothing.onnx"), "there is no file"),
        (("ops", tmp_path / "nothing.onnx"), "there is no file"),
        (("profile", path, "--against", "pynq"), "needs the model itself"),
    ):
        done = vta(*arguments)
        assert done.exit_code == 1
        assert isinstance(done.exception, vtaops.VTAError)
        assert text in str(done.exception)


def test_the_noise_of_every_layer(tmp_path):
    onnx.save(small_network(), tmp_path / "float.onnx")
    np.savez(tmp_path / "images.npz", x=images())
    model = tmp_path / "q.onnx"
    options = "--calibration", tmp_path / "images.npz", "-o", model, "--json"
    (tmp_path / "quality.json").write_text(
        vta("quantize", tmp_path / "float.onnx", *options).stdout
    )
    quality = {
        layer["tensor"]: layer["sqnr_db"]
        for layer in json.loads((tmp_path / "quality.json").read_text())["layers"]
    }
    found = vta("profile", model, "--quality", tmp_path / "quality.json", "--json")
    shown = {row["name"]: row["sqnr"] for row in json.loads(found.stdout)["layers"]}
    known = {name: value for name, value in shown.items() if value is not None}
    assert len(known) > 4
    assert known == {name: quality[name] for name in known}
    done = vta("profile", model, "--quality", tmp_path / "images.npz")
    assert done.exit_code == 1
    assert "is not what vtaops quantize --json prints" in str(done.exception)


def test_a_file_is_for_one_configuration(compiled, tmp_path):
    _, path, inputs = compiled
    for command in (("run", path, *inputs), ("profile", path), ("ops", path)):
        done = vta(*command, "--config", "pynq")
        assert done.exit_code == 1
        assert "is compiled for tiny, not for pynq" in str(done.exception)
        assert vta(*command, "--config", "tiny").exit_code == 0
    assert "on tiny" in vta("ops", path).output
    done = vta("compile", path, "-o", tmp_path / "again.vtam")
    assert done.exit_code == 1
    assert "is compiled already" in str(done.exception)
