"""Calibration data of strangers: no program is run for a picture, and little memory taken."""

import io
import subprocess
import zipfile

import numpy as np
import pytest

from vtaops import ModelError
from vtaops.quantization import pictures
from vtaops.quantization.samples import load_samples

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
