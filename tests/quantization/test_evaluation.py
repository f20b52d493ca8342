"""Accuracy on labelled data: classes, sequences; and the command that tells it."""

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import vtaops
from trials.onnx_models import Builder, images, small_network
from vtaops.cli import app
from vtaops.errors import ModelError
from vtaops.quantization.datasets import load_dataset
from vtaops.quantization.evaluation import Classes, evaluate

SHAPES = {"x": (1, 3, 12, 12)}


def scores_of(model, batch):
    from vtaops.graph.probe import Probe

    return np.concatenate([next(iter(Probe(model).run({"x": x[None]}).values())) for x in batch])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    model, data = small_network(), images(12)
    onnx.save(model, folder / "float.onnx")
    onnx.save(vtaops.quantize(model, data), folder / "q.onnx")
    labels = scores_of(model, data).argmax(1)
    labels[5] = (labels[5] + 1) % 10  # where float is wrong
    np.savez(folder / "data.npz", x=data, labels=labels)
    return folder


def test_the_command_tells_accuracy_agreement_and_the_worst(files):
    page = files / "worst.html"
    given = ["evaluate", str(files / "q.onnx"), "--data", str(files / "data.npz")]
    given += ["--against", str(files / "float.onnx")]
    shown = CliRunner().invoke(app, [*given, "-o", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "float accuracy 91.7%" in shown.output
    assert "float itself is wrong on 1" in shown.output
    text = page.read_text()
    assert text.count("<figure>") == 10
    assert text.count("data:image/png;base64,") == 10
    found = json.loads(CliRunner().invoke(app, [*given, "--json"]).stdout)
    assert found["samples"] == 12
    assert found["float_accuracy"] == pytest.approx(11 / 12)
    assert found["accuracy"] >= 10 / 12
    assert found["agreement"] >= 11 / 12
    assert found["sqnr_db"][0] > 25
    assert len(found["worst"]) == 10
    wrong = [each["accuracy"] < 1 or each["agreement"] < 1 for each in found["worst"]]
    assert wrong == sorted(wrong, reverse=True)  # before those that are only noisy
    assert any(wrong)


def test_without_a_float_model_or_labels_the_rest_is_told(files, tmp_path):
    np.savez(tmp_path / "data.npz", x=images(2))
    given = ["evaluate", str(files / "q.onnx"), "--data", str(tmp_path / "data.npz"), "--json"]
    found = json.loads(CliRunner().invoke(app, given).stdout)
    assert found["accuracy"] is None
    assert found["agreement"] is None
    assert found["sqnr_db"] == []
    assert "answer" in found["worst"][0]


def test_inputs_may_be_integers(tmp_path):
    """Words of a text, for example, which a table turns into vectors."""
    b = Builder()
    words = b.input((1, 4), kind=onnx.TensorProto.INT32)
    table = b.constant(np.random.default_rng(0).standard_normal((9, 8)).astype(np.float32))
    b.output(b.gemm(b.add("Flatten", b.add("Gather", table, words)), 32, 5))
    onnx.save(b.model(), tmp_path / "float.onnx")
    data = {"x": np.random.default_rng(1).integers(0, 9, (6, 4)).astype(np.int32)}
    onnx.save(vtaops.quantize(b.model(), data), tmp_path / "q.onnx")
    np.savez(tmp_path / "data.npz", **data)
    words = ["evaluate", "q.onnx", "--data", "data.npz", "--against", "float.onnx"]
    given = [str(tmp_path / word) if "." in word else word for word in words]
    found = json.loads(CliRunner().invoke(app, [*given, "--samples", "3", "--json"]).stdout)
    assert found["samples"] == 3
    assert found["sqnr_db"][0] > 25


@pytest.mark.parametrize("names", [("cat", "dog"), ("3", "7")])
def test_pictures_lie_in_folders_by_class(names, tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for level, name in enumerate(names):
        (tmp_path / name).mkdir()
        for number in range(2):
            pixels = np.full((12, 12, 3), 100 * level + number, np.uint8)
            pillow.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    found = load_dataset(tmp_path, SHAPES)
    numbers = [3, 7] if names[0] == "3" else [0, 1]
    assert [case.label for case in found.cases] == [numbers[0]] * 2 + [numbers[1]] * 2
    assert found.classes == dict(zip(numbers, names, strict=True))
    assert found.cases[2].read()["x"].shape == SHAPES["x"]

    def runs(sample):
        scores = np.zeros(8)
        scores[numbers[int(sample["x"].mean() > -0.5)]] = 1
        return [scores]

    result = evaluate(runs, None, found, Classes(1))
    assert result.shares["accuracy"] == 1
    assert result.worst[0].texts["label"] in names


def test_sequences_have_a_label_for_each_position(tmp_path):
    labels = np.array([[0, 1, 2], [2, 2, 2]])
    np.savez(tmp_path / "data.npz", x=np.eye(3)[labels].astype(np.float32), labels=labels)
    data = load_dataset(tmp_path / "data.npz", {"x": (1, 3, 3)})

    def wrong_at_the_end(sample):
        scores = sample["x"].copy()
        scores[0, 2] = [1, 0, 0]
        return [scores]

    result = evaluate(wrong_at_the_end, lambda sample: [sample["x"]], data, Classes(3))
    assert result.shares["accuracy"] == result.shares["agreement"] == pytest.approx(2 / 3)
    assert result.shares["float_accuracy"] == 1
    assert result.float_wrong == 0
    assert result.worst[0].texts["answer"] == "0 1 0"


def test_data_that_cannot_be_judged(tmp_path):
    with pytest.raises(ModelError, match="do not exist"):
        load_dataset(tmp_path / "missing", SHAPES)
    np.savez(tmp_path / "data.npz", x=images(3), labels=np.zeros(2, int))
    with pytest.raises(ModelError, match=r"'labels' holds 2 values of int64; .* of the 3 samples"):
        load_dataset(tmp_path / "data.npz", SHAPES)
    (tmp_path / "folder" / "class").mkdir(parents=True)
    with pytest.raises(ModelError, match="hold no pictures"):
        load_dataset(tmp_path / "folder", SHAPES)
    with pytest.raises(ModelError, match="labels of 3 positions do not fit"):
        Classes(3).answer([np.zeros((1, 10))])


def test_a_single_score_is_a_probability():
    scores = np.array([[[0.2], [0.9], [0.5]]])
    assert Classes(3).answer([scores]).tolist() == [0, 1, 0]
    assert Classes(1).answer([scores[0, 1]]).tolist() == [1]
