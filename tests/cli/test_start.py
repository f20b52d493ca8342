"""``vtaops start``: a network of one's own, from its file to a page; or why not, at once."""

import json
import shlex

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import vtaops
from trials.onnx_models import Builder, images, small_network
from vtaops import cli
from vtaops.errors import ArgumentError, ModelError, UnsupportedError


def start(*words):
    return CliRunner().invoke(cli.app, ["start", *map(str, words)])


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A float network and its data, with labels."""
    folder = tmp_path_factory.mktemp("own")
    onnx.save(small_network(), folder / "net.onnx")
    np.savez(folder / "data.npz", x=images(6), labels=np.arange(6))
    return folder


@pytest.fixture(scope="module")
def made(own):
    """The folder that the command leaves, and what it printed."""
    done = start(own / "net.onnx", "--data", own / "data.npz", "-o", own / "made")
    assert done.exit_code == 0, done.output
    return own / "made", done.stdout


def test_the_page_tells_all_that_was_found(made):
    folder, printed = made
    page = (folder / "net.html").read_text()
    model = vtaops.load_model(folder / "net.vtam")
    cycles = f"{model.cycles():,}"
    for text in (cycles, "proven equal", "answers right", "answers as in float", "Quantised with"):
        assert text in page
    assert cycles in printed
    assert "http" not in page  # self-contained
    assert "<script" not in page
    assert page.count("<figure>") == 6


def test_the_commands_by_hand_make_the_same_files(made):
    """Each as printed, from the calibration data that lie in the folder."""
    folder, printed = made
    lines = [line[2:] for line in printed.splitlines() if line.startswith("$ vtaops ")]
    assert [line.split()[1] for line in lines] == ["quantize", "plan", "compile", "run", "evaluate"]
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("net.q.onnx", "net.vtam"):
        (folder / name).unlink()
    for line in lines:
        done = CliRunner().invoke(cli.app, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}: {done.output}"
    assert (folder / "net.q.onnx").read_bytes() == kept["net.q.onnx"]
    assert (folder / "net.vtam").exists()


def test_another_device_and_json(own, tmp_path):
    """Recipes are searched for what is not the default; the report is all that stdout holds."""
    given = own / "net.onnx", "--data", own / "data.npz", "-o", tmp_path / "made"
    done = start(*given, "--config", "pynq", "--samples", 2, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["config"], told["equal"], told["samples"]) == ("pynq", True, 2)
    assert told["report"]["cycles"] == vtaops.load_model(tmp_path / "made/net.vtam").cycles()
    assert told["commands"][0].startswith("vtaops quantize ")
    assert "$ vtaops quantize" in done.stderr
    assert "Quantised with" in (tmp_path / "made/net.html").read_text()


def test_random_data_are_drawn_only_when_asked_for(own, tmp_path):
    given = own / "net.onnx", "-o", tmp_path / "made"
    refused = start(*given)
    assert isinstance(refused.exception, ArgumentError)
    assert "--data with a folder of pictures" in str(refused.exception)
    assert "'x' of shape (N, 3, 12, 12)" in str(refused.exception)
    assert not (tmp_path / "made").exists()
    done = start(*given, "--random-data")
    assert done.exit_code == 0, done.output
    assert "the inputs are random" in done.stderr
    page = (tmp_path / "made" / "net.html").read_text()
    assert "The inputs are random" in page
    assert "answers as in float" not in page


def test_a_quantised_network_needs_no_data(own, tmp_path):
    onnx.save(vtaops.quantize(own / "net.onnx", images(2)), tmp_path / "q.onnx")
    done = start(tmp_path / "q.onnx", "-o", tmp_path / "made")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "made" / "q.html").read_text()
    assert "quantised already" in page
    assert "Not measured: there are no data" in page
    np.savez(tmp_path / "x.npz", x=images(2))
    done = start(tmp_path / "q.onnx", "--data", tmp_path / "x.npz", "-o", tmp_path / "more")
    assert done.exit_code == 0, done.output
    assert "so nothing was compared" in (tmp_path / "more" / "q.html").read_text()


def refused_network(kind):
    b = Builder()
    b.output(b.add(kind, b.input((1, 8))))
    return b.model()


@pytest.mark.filterwarnings("ignore:no part of the network")
@pytest.mark.parametrize(
    ("name", "words", "error", "texts"),
    [
        ("net.xyz", (), UnsupportedError, ["reads .onnx and .tflite"]),
        ("absent.onnx", (), ModelError, ["absent.onnx does not exist"]),
        ("sums.onnx", ("--data", "absent"), ModelError, ["absent do not exist"]),
        (
            "sums.onnx",
            ("--random-data",),
            UnsupportedError,
            ["nothing of sums.onnx would run on VTA", "Sin", "What helps: "],
        ),
        ("open.onnx", ("--random-data",), ModelError, ["--shapes x=..."]),
        ("words.onnx", ("--random-data",), ArgumentError, ["holds int64", "'x' of shape (N, 8)"]),
    ],
)
def test_what_cannot_be_started_is_told_with_a_way_out(
    name, words, error, texts, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.xyz").write_bytes(b"?")
    onnx.save(refused_network("Sin"), "sums.onnx")
    model = refused_network("Sin")
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_value, dims[1].dim_param = -1, "length"
    onnx.save(model, "open.onnx")
    model = refused_network("Neg")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.save(model, "words.onnx")
    done = start(name, *words)
    assert isinstance(done.exception, error), done.output
    message = str(done.exception)
    assert all(text in message for text in texts), message
    assert len(message) < 600
    assert not [*tmp_path.glob("*-start/*.vtam")]
