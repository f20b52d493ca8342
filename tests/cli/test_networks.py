"""The commands for networks, on a small compiled model."""

import json

import numpy as np
import pytest
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
