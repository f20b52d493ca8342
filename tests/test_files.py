"""Files of any size and kind: readers end in their own errors, and read no more than fits."""

import resource

import pytest

import vtaops
from vtaops import ConfigError, DeviceError, HardwareConfig, ModelError, Program, ProgramError
from vtaops.board.bitfile import read_bit_file
from vtaops.board.catalogue import Catalogue
from vtaops.files import read_file
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


def test_what_fits_is_read_and_devices_are_not_read_for_ever(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_file(path, 5) == b"12345"
    for file, most in ((path, 4), ("/dev/zero", 1000)):
        with pytest.raises(OSError, match="more than"):
            read_file(file, most)
