"""Files of any size and kind: readers end in their own errors, and read no more than fits."""

import resource
import struct

import numpy as np
import pytest

import vtaops
from vtaops import ConfigError, DeviceError, HardwareConfig, ModelError, Program, ProgramError
from vtaops.base.errors import StoreError
from vtaops.base.files import read_array, read_file
from vtaops.board.bitfile import read_bit_file
from vtaops.board.catalogue import Catalogue
from vtaops.explore import ResultStore
from vtaops.model.artefact import load
from vtaops.runtime.wire import read_secret

READERS = {
    "own.json": (HardwareConfig.load, ConfigError),
    "additions.json": (lambda path: Catalogue(path.parent), ConfigError),
    "manifest.toml": (lambda path: Catalogue(path.parent, path), ConfigError),
    "program.vta": (Program.load, ProgramError),
    "network.vtam": (load, ProgramError),
    "design.bit": (read_bit_file, DeviceError),
    "network.onnx": (vtaops.compile_model, ModelError),
    "network.tflite": (vtaops.compile_model, ModelError),
    "secret": (read_secret, DeviceError),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("size", [1, 100 << 20, 20 << 30], ids=["1", "100M", "20G"])
def test_a_file_of_zeros_of_any_size(name, size, tmp_path):
    path, (read, error) = tmp_path / name, READERS[name]
    with path.open("wb") as file:
        file.truncate(size)  # sparse: takes no room on disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(error):
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


@pytest.mark.parametrize("name", READERS)
def test_a_folder_in_place_of_a_file(name, tmp_path):
    path, (read, error) = tmp_path / name, READERS[name]
    path.mkdir()
    if name == "additions.json":  # no additions
        assert read(path).entries
        return
    with pytest.raises(error):
        read(path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("stem", ["x" * 5000, "x\0y"], ids=["long", "null"])
def test_names_that_no_file_can_have(name, stem, tmp_path):
    read, error = READERS[name]
    if name == "additions.json":  # a folder that is not there has none
        assert read(tmp_path / stem / name).entries
        return
    with pytest.raises(error):
        read(tmp_path / f"{stem}{name}")


def test_programs_and_stores_are_not_written_to_names_that_no_file_can_have(tmp_path):
    program = vtaops.compile(vtaops.Gemm(m=2, n=5, k=7), "tiny")
    for stem in ("x" * 5000, "x\0y"):
        with pytest.raises(ProgramError, match="cannot write"):
            program.save(tmp_path / stem)
        with pytest.raises(StoreError, match="cannot open"):
            ResultStore(tmp_path / stem)


def header(shape: str) -> bytes:
    """Return a .npy file of 64 bytes that has any shape by its header."""
    text = f"{{'descr': '|i1', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text + b"\n" + bytes(64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x07\x00",
        header("(1000000000000000,)"),
        header("(-3,)"),
        header("(" * 100),
        header("('a',)"),
        b"PK\x03\x04",
    ],
)
def test_what_is_no_array_is_refused(content, tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"x\.npy"):
        read_array(path)


def test_arrays_are_read_and_several_are_none(tmp_path):
    path, array = tmp_path / "x.npy", np.arange(6).reshape(2, 3)
    np.save(path, array)
    assert np.array_equal(read_array(path), array)
    np.savez(tmp_path / "x.npz", array)
    with pytest.raises(OSError, match="Several"):
        read_array(tmp_path / "x.npz")


def test_what_fits_is_read_and_devices_are_not_read_for_ever(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    for file, most in ((path, 4), ("/dev/zero", 1000)):
        with pytest.raises(OSError, match="more than"):
            read_file(file, most)
