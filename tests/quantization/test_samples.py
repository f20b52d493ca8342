"""Calibration data of strangers: no program is run for a picture, and little memory taken."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tests.helpers.tensors import LearningTensor
from vtaops.errors import ModelError, UnsupportedError
from vtaops.quantization import pictures
from vtaops.quantization.samples import load_samples
from vtaops.quantization.sources import _examples

Image = pytest.importorskip("PIL.Image")
SHAPES = {"x": (1, 3, 6, 4)}


def saved(folder, name, kind):
    path = folder / name
    Image.fromarray(np.zeros((6, 4, 3), np.uint8)).save(path, kind)
    return path


@pytest.mark.parametrize("kind", ["EPS", "TGA", "PCX"])
def test_a_picture_in_another_format_than_its_suffix_can_have(tmp_path, monkeypatch, kind):
    """Pillow runs Ghostscript for EPS, whatever the file is called."""
    monkeypatch.setattr(subprocess, "check_call", pytest.fail)
    monkeypatch.setattr(subprocess, "Popen", pytest.fail)
    with pytest.raises(ModelError, match="cannot read"):
        load_samples(saved(tmp_path, "picture.png", kind), SHAPES)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP"])
def test_pictures_of_all_suffixes_are_read(tmp_path, kind):
    (sample,) = load_samples(saved(tmp_path, "picture.png", kind), SHAPES)
    assert sample["x"].shape == SHAPES["x"]


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "_PIXEL_BYTES", 1 << 27)
    with pytest.raises(ModelError, match="4 x 6 pixels; the limit is 3"):
        load_samples(saved(tmp_path, "picture.png", "PNG"), SHAPES)


def test_an_archive_that_unpacks_to_much_more_than_it_takes(tmp_path):
    path, zeros = tmp_path / "data.npz", np.zeros((1 << 21, 3, 6, 4), np.int8)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": zeros.shape}
    )
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(4):
            member.write(zeros)
    assert path.stat().st_size < 1 << 22
    with pytest.raises(ModelError, match=r"unpack to 603.*numpy\.savez"):
        load_samples(path, SHAPES)


def test_small_compressed_archives_are_read(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", x=np.zeros((3, 3, 6, 4), np.float32))
    assert len(load_samples(tmp_path / "data.npz", SHAPES)) == 3


@pytest.mark.parametrize("value", [0.5, 200, np.nan])
def test_numbers_that_an_integer_input_cannot_hold_are_refused(value):
    dtypes = {"x": np.dtype("int8")}
    stack = np.full(SHAPES["x"], -3.0, np.float32)
    assert load_samples(stack, SHAPES, dtypes)[0]["x"].dtype == np.int8
    stack[..., 0] = value
    with pytest.raises(ModelError, match="'x' holds float32 values that int8 cannot represent"):
        load_samples(stack, SHAPES, dtypes)


@pytest.mark.parametrize("shape", [(1, 6, 4, 3), (None, 6, 4, 1), (1, 1, 6, 4)])
def test_pictures_fit_inputs_of_either_order(tmp_path, shape):
    path = tmp_path / "picture.png"
    pixels = np.arange(72, dtype=np.uint8).reshape(6, 4, 3)
    Image.fromarray(pixels).save(path)
    found = pictures.read_picture(path, "x", shape)
    assert found.shape == (1, *shape[1:])
    if shape[-1] == 3:
        np.testing.assert_allclose(found[0], (pixels / 255 - 0.5) / 0.5, atol=1e-6)
    with pytest.raises(ModelError, match=r"would, or 1 instead of 3 for gray"):
        pictures.read_picture(path, "x", (1, 6, 4, 2))


def test_samples_are_stacked_in_many_ways():
    """Along the first axis, one more in front, as lists, as tensors, or one for all."""
    shapes = {"x": (1, 3), "state": (2, 1, 4)}
    x, state = np.arange(12.0).reshape(4, 3), np.arange(32.0).reshape(4, 2, 1, 4)
    wanted = load_samples({"x": x, "state": state}, shapes)
    assert [sample["state"].shape for sample in wanted] == [(2, 1, 4)] * 4
    forms = [
        {"x": x[:, None], "state": state.reshape(8, 1, 4)},
        {"x": x.tolist(), "state": LearningTensor(state)},
        [{"x": LearningTensor(a), "state": b} for a, b in zip(x, state, strict=True)],
        [(a, b) for a, b in zip(x, state, strict=True)],
        [[x[:2], state[:2], np.zeros(2)], (x[2:], state[2:], np.zeros(2))],  # with labels
    ]
    for form in forms:
        for one, other in zip(load_samples(form, shapes), wanted, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in shapes)
    shared = load_samples({"x": x, "state": state[0]}, shapes)
    assert len(shared) == 4
    assert all(np.array_equal(sample["state"], state[0]) for sample in shared)
    for form in (x, x.tolist(), list(x), LearningTensor(x), [LearningTensor(row) for row in x]):
        assert len(load_samples(form, {"x": (1, 3)})) == 4
    labelled = [[LearningTensor(x[at : at + 2]), np.zeros(2)] for at in (0, 2)]
    assert len(load_samples(labelled, {"x": (1, 3)})) == 4


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"x": np.zeros((4, 3)), "y": np.zeros((3, 2))},
            r"'x' 4, 'y' 3\. Give each as many, or one",
        ),
        (
            {"x": np.zeros((4, 2)), "y": np.zeros((4, 2))},
            r"\(1, 3\): stack samples along the first",
        ),
        ({"x": [[1, 2, 3], [4]], "y": np.zeros((2, 2))}, "'x' is no array of numbers"),
        (5, "not int"),
    ],
)
def test_samples_that_do_not_fit(data, message):
    with pytest.raises(ModelError, match=message):
        load_samples(data, {"x": (1, 3), "y": (1, 2)})


def test_inputs_of_a_module_are_named_in_shapes():
    with pytest.raises(ModelError, match="the shapes have no 'x'; the module takes x, y"):
        _examples(["x", "y"], [], {"input": (1, 3), "y": (1, 2)})
    with pytest.raises(ModelError, match="the calibration data have no 'y'"):
        _examples(["x", "y"], {"x": np.zeros((2, 3))}, None)
    (found,) = _examples(["x"], [], {"x": (1, 3)})
    assert found.shape == (1, 3)


def test_without_pillow_it_is_told_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UnsupportedError, match=r"pictures need Pillow, .*: pip install pillow"):
        pictures.read_picture(tmp_path / "x.png", "x", (1, 3, 4, 4))
