"""Accuracy on labelled data: classes, sequences, boxes; and the command that tells it."""

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
from vtaops.quantization.evaluation import Boxes, Classes, Text, evaluate, overlap

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


def test_boxes_of_coco_are_found(tmp_path):
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    pillow.new("RGB", (200, 100)).save(tmp_path / "a.png")
    listed = {
        "images": [{"id": 5, "file_name": "a.png", "width": 200, "height": 100}],
        "annotations": [
            {"image_id": 5, "category_id": 18, "bbox": [20, 10, 60, 40]},
            {"image_id": 5, "category_id": 90, "bbox": [100, 50, 100, 50]},
        ],
        "categories": [{"id": 90, "name": "ball"}, {"id": 18, "name": "dog"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(listed))
    data = load_dataset(tmp_path / "boxes.json", {"x": (1, 3, 50, 50)})
    assert data.classes == {0: "dog", 1: "ball"}
    boxes = np.array([[5, 5, 20, 25], [5, 6, 20, 25], [25, 25, 50, 50], [0, 0, 9, 9]])  # pixels
    scores = np.array([[0.9, 0], [0.8, 0], [0, 0.7], [0.1, 0.2]])

    def both(form):
        return lambda _: [form[None].astype(np.float32), scores[None].astype(np.float32)]

    found = evaluate(both(boxes), both(boxes), data, Boxes((50, 50)))
    assert found.shares == {"accuracy": 1, "float_accuracy": 1, "agreement": 1}
    assert found.worst[0].texts == {"answer": "1 dog, 1 ball"} | dict.fromkeys(
        ("float", "label"), "1 dog, 1 ball"
    )
    middle = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], 1)
    task = Boxes((50, 50), corners=False)
    assert task.agreement(task.answer(both(middle)(None)), data.cases[0].label) == 1
    joined = np.concatenate([middle, scores], axis=1)
    for rows in (joined, joined.T):  # (n, 6), and YOLO's (6, n)
        wide = np.tile(joined, (5, 1)) if rows is joined else np.tile(joined, (5, 1)).T
        assert task.told(task.answer([wide[None]]), {}) == "1 0, 1 1"
    one = evaluate(both(boxes[::-1] * 0 + 1), None, data, Boxes((50, 50)))
    assert one.shares["accuracy"] == 0


def test_boxes_count_from_a_score_on():
    task = Boxes((10, 10))
    boxes = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [5, 5, 7, 7.0]])
    scores = np.array([[0.9, 0], [0.2, 0.1], [0, 0.3]])
    label = np.array([[0, 0, 0, 0.1, 0.1], [0, 0.2, 0.2, 0.3, 0.3], [1, 0.8, 0.8, 0.9, 0.9]])
    answer = task.answer([boxes, scores])
    assert task.told(answer, {}) == "1 0"
    assert task.agreement(answer, label) == pytest.approx(2 / 4)


def test_texts_are_equal_or_not(tmp_path):
    steps = np.array([[0, 3, 3, 0, 1, 2, 2, 0, 2]])
    np.savez(tmp_path / "data.npz", x=np.eye(4)[steps].astype(np.float32), labels=["cabb"])
    data = load_dataset(tmp_path / "data.npz", {"x": (1, 9, 4)})
    task = Text("abc")

    def last_missing(sample):
        return [sample["x"][:, :-1]]

    def exact(sample):
        return [sample["x"]]

    found = evaluate(exact, exact, data, task)
    assert found.shares["accuracy"] == found.shares["agreement"] == 1
    found = evaluate(last_missing, None, data, task)
    assert found.shares == {"accuracy": 0}
    assert found.worst[0].texts == {"answer": "cab", "label": "cabb"}
    assert "accuracy 0.0%" in str(found)
    with pytest.raises(ModelError, match="has 4 classes; 2 characters and none are 3"):
        Text("ab").answer([np.zeros((5, 4))])


def test_the_command_reads_texts(tmp_path):
    b = Builder()
    b.output(b.gemm(b.add("Flatten", b.input([1, 5, 4])), 20, 4))
    data = np.random.default_rng(0).standard_normal((6, 5, 4)).astype(np.float32)
    onnx.save(vtaops.quantize(b.model(), data), tmp_path / "q.onnx")
    np.savez(tmp_path / "data.npz", x=data, labels=["a"] * 6)
    (tmp_path / "letters.txt").write_text("a\nb\nc\n")
    given = ["evaluate", str(tmp_path / "q.onnx"), "--data", str(tmp_path / "data.npz"), "--json"]
    shown = CliRunner().invoke(app, given)
    assert "name its characters by --alphabet" in str(shown.exception)
    found = json.loads(
        CliRunner().invoke(app, [*given, "--alphabet", str(tmp_path / "letters.txt")]).stdout
    )
    assert 0 <= found["accuracy"] <= 1
    assert {"answer", "label"} <= found["worst"][0].keys()


def test_overlap():
    a, b = np.array([0, 0, 0, 2, 2.0]), np.array([0, 1, 0, 3, 2.0])
    assert overlap(a, a) == 1
    assert overlap(a, b) == pytest.approx(1 / 3)
    assert overlap(a, np.array([0, 5, 5, 6, 6.0])) == overlap(a * 0, a * 0) == 0


def test_data_that_cannot_be_judged(tmp_path):
    with pytest.raises(ModelError, match="do not exist"):
        load_dataset(tmp_path / "missing", SHAPES)
    np.savez(tmp_path / "data.npz", x=images(3), labels=np.zeros(2, int))
    with pytest.raises(ModelError, match=r"'labels' holds 2 values of int64; .* of the 3 samples"):
        load_dataset(tmp_path / "data.npz", SHAPES)
    (tmp_path / "folder" / "class").mkdir(parents=True)
    with pytest.raises(ModelError, match="hold no pictures"):
        load_dataset(tmp_path / "folder", SHAPES)
    (tmp_path / "boxes.json").write_text('{"images": 3}')
    with pytest.raises(ModelError, match="is no list of boxes in the format of COCO"):
        load_dataset(tmp_path / "boxes.json", SHAPES)
    with pytest.raises(ModelError, match="are no boxes"):
        Boxes((8, 8)).answer([np.zeros((1, 3))])
    with pytest.raises(ModelError, match="labels of 3 positions do not fit"):
        Classes(3).answer([np.zeros((1, 10))])


def test_a_single_score_is_a_probability():
    scores = np.array([[[0.2], [0.9], [0.5]]])
    assert Classes(3).answer([scores]).tolist() == [0, 1, 0]
    assert Classes(1).answer([scores[0, 1]]).tolist() == [1]
