"""ONNX models whose weights lie in other files: right ones, absent ones, and those of others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto

from trials.hostile_onnx import float_models
from vtaops import VTAError
from vtaops.graph.onnx_files import initializers, opened

SECRET = np.float32(12345.678)
"""Fills the file that no model may read."""

NAMES = (
    *("weights", "sparse", "empty", "../secret", "link", "folder/secret", "loop", "pipe", "inner"),
    *("network.onnx", "nothing", "", ".", "..", "/dev/zero", "weights/", "./weights", "x\0"),
    *("inner/../weights", "x" * 300),
)
NUMBERS = ("0", "4", "64", "4096", "-1", "1e3", "", "x", str(1 << 31), str(1 << 63), "9" * 5000)
DIMS = (0, 1, 3, 4, 64, 1 << 10, 1 << 20, 1 << 31, (1 << 63) - 1, -1)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Return a model some of whose tensors lie in files, with wrong places, sizes and types."""
    model = onnx.ModelProto.FromString(draw(st.deferred(lambda: st.sampled_from(float_models()))))
    tensors = list(model.graph.initializer)
    for tensor in draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=4)):
        nbytes = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        if draw(st.integers(0, 9)):
            tensor.data_location = TensorProto.EXTERNAL
        for key, values in {
            "location": st.sampled_from(NAMES) | st.just("weights"),
            "offset": st.sampled_from(NUMBERS),
            "length": st.just(str(nbytes)) | st.sampled_from(NUMBERS),
        }.items():
            if draw(st.integers(0, 3)) or key == "location":
                tensor.external_data.add(key=key, value=draw(values))
        if not draw(st.integers(0, 3)):
            tensor.dims[:] = draw(st.lists(st.sampled_from(DIMS), max_size=4))
        if not draw(st.integers(0, 9)):
            tensor.data_type = draw(st.sampled_from([*range(-1, 28), 99]))
    return model.SerializeToString()


def use(data: bytes) -> None:
    """Load a model beside files of all kinds: it has none of those that it may not read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "model")
        (folder / "inner").mkdir(parents=True)
        (folder / "weights").write_bytes(np.linspace(-1, 1, 4096, dtype=np.float32).tobytes())
        (folder / "empty").touch()
        with (folder / "sparse").open("wb") as file:
            file.truncate(1 << 40)
        np.full(4096, SECRET).tofile(folder.parent / "secret")
        (folder / "link").symlink_to("../secret")
        (folder / "folder").symlink_to("..")
        (folder / "loop").symlink_to("loop")
        os.mkfifo(folder / "pipe")
        path = folder / "network.onnx"
        path.write_bytes(data)
        try:
            found = initializers(opened(path))
        except VTAError:
            return
        for tensor, values in found.items():
            assert not (values == SECRET).any(), f"{tensor} was read from a file of others"
