"""Files of any size and kind: readers end in their own errors, and read no more than fits."""

import json
import os
import resource
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import vtaops
from vtaops import HardwareConfig, Program
from vtaops.base.errors import StoreError
from vtaops.base.files import read_array, read_file
from vtaops.board.bitfile import read_bit_file
from vtaops.errors import ConfigError, DeviceError, ModelError, ProgramError
from vtaops.explore import ResultStore
from vtaops.model.artefact import FORMAT_VERSION, MAGIC, dumps, load
from vtaops.quantization.pictures import read_picture
from vtaops.quantization.samples import load_samples
from vtaops.runtime.wire import read_secret

READERS = {
    "own.json": (HardwareConfig.load, ConfigError),
    "program.vta": (Program.load, ProgramError),
    "network.vtam": (load, ProgramError),
    "design.bit": (read_bit_file, DeviceError),
    "network.onnx": (vtaops.compile_model, ModelError),
    "network.tflite": (vtaops.compile_model, ModelError),
    "secret": (read_secret, DeviceError),
}


OTHERS = {
    "array.npy": (read_array, OSError),
    "samples.npy": (lambda path: load_samples(path, {"x": (1, 3)}), ModelError),
    "picture.png": (lambda path: read_picture(path, "x", (1, 3, 4, 4)), ModelError),
    "document": (read_file, OSError),
}
"""What reads other files than those of one format."""


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


MAGICS = ("program.vta", "network.vtam", "network.tflite", "array.npy", "picture.png")
"""What begins with bytes that name its format."""


@pytest.mark.parametrize("name", MAGICS)
def test_the_magic_is_read_before_the_content(name, tmp_path):
    path, (read, error) = tmp_path / name, (READERS | OTHERS)[name]
    path.touch()
    os.truncate(path, 1 << 30)  # sparse
    with pytest.raises(error):  # what it imports is no part of the measurement
        read(path)
    tracemalloc.start()
    with pytest.raises(error):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("name", READERS)
def test_a_folder_in_place_of_a_file(name, tmp_path):
    path, (read, error) = tmp_path / name, READERS[name]
    path.mkdir()
    with pytest.raises(error):
        read(path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("stem", ["x" * 5000, "x\0y"], ids=["long", "null"])
def test_names_that_no_file_can_have(name, stem, tmp_path):
    read, error = READERS[name]
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
    for file, reason in ((path, "5 bytes, more than 4"), ("/dev/zero", "regular")):
        with pytest.raises(OSError, match=reason):
            read_file(file, 4)


KINDS = ("pipe", "/dev/zero", "/dev/tty")


def refuse(kind, folder):
    """Read something that is no regular file with every reader; the test runs it in a process."""
    for name, (read, error) in (READERS | OTHERS).items():
        path = folder / name
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(kind)
        try:
            read(path)
        except error:
            print("refused", kind, name)
        path.unlink()


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    """In a process of its own, since what is wrong here waits for ever, or fills the memory."""
    code = (
        "from pathlib import Path; import test_files as t; [t.refuse(k, Path()) for k in t.KINDS]"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{path}"},
    )
    assert done.returncode == 0, done.stderr
    names = {*READERS, *OTHERS}
    found = {tuple(line.split()[1:]) for line in done.stdout.splitlines()}
    assert {(k, n) for k, n in found if n in names} == {(k, n) for k in KINDS for n in names}


LOADING = """
import json, resource, sys
from pathlib import Path
import vtaops.model
from vtaops.errors import ProgramError
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (512 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    found = vtaops.model.load_model(sys.argv[1]).name
except ProgramError as error:
    found = str(error)
print(json.dumps([found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""


def loaded_in_little_memory(path):
    """Load a model with 512 MB beyond the imports; return its name or error, and the KiB taken."""
    done = subprocess.run(
        [sys.executable, "-c", LOADING, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_model_takes_the_memory_of_its_file(tmp_path):
    graph = vtaops.Graph("small")
    x = graph.input("x", (1, 8, 4, 4))
    graph.output(graph.add(vtaops.graph.MaxPool((2, 2), (2, 2)), x))
    path = tmp_path / "small.vtam"
    path.write_bytes(dumps(vtaops.compile_model(graph, "tiny")))
    found, kibibytes = loaded_in_little_memory(path)
    assert found == "small"
    assert kibibytes < 32 << 10


@pytest.mark.parametrize("start", [b"", MAGIC, struct.pack("<8sIIQ", MAGIC, FORMAT_VERSION, 9, 9)])
def test_what_is_no_model_is_not_read(start, tmp_path):
    path = tmp_path / "large.vtam"
    path.write_bytes(start)
    os.truncate(path, 1 << 30)  # sparse
    error, kibibytes = loaded_in_little_memory(path)
    assert "large.vtam" in error
    assert "No memory" not in error
    assert kibibytes < 32 << 10


def test_a_model_that_does_not_fit_in_memory_is_refused(tmp_path):
    path = tmp_path / "large.vtam"
    path.write_bytes(struct.pack("<8sIIQ", MAGIC, FORMAT_VERSION, 9, 1 << 30))
    os.truncate(path, 1 << 30)
    error, _ = loaded_in_little_memory(path)
    assert f"No memory for {1 << 30} bytes" in error
