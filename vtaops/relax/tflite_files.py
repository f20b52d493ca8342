"""int8 models of TFLite, as TVM's front end reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vtaops.errors import ModelError, UnsupportedError
from vtaops.files import NETWORK, read_file
from vtaops.onnx_files import require

IDENTIFIER = b"TFL3"


def from_tflite_file(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
    """Return the Relax module of a file, images NHWC as TFLite has them.

    Raises
    ------
    ModelError
        If there is no such file, or it is no TFLite model.
    UnsupportedError
        If TVM's front end does not know an operator, which its message names.
    """
    try:
        content = read_file(path, NETWORK)
    except OSError as error:
        raise ModelError(f"there is no model file {path}") from error
    if content[4:8] != IDENTIFIER:
        raise ModelError(f"{path} is no TFLite model: it has no identifier TFL3")
    tflite = require("tflite")
    from tvm.relax.frontend.tflite import from_tflite

    given = {name: tuple(shape) for name, shape in (shapes or {}).items()} or None
    try:
        return from_tflite(tflite.Model.GetRootAsModel(content, 0), shape_dict=given)
    except Exception as error:  # of TVM, of flatbuffers, of struct: no common base class
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        raise UnsupportedError(f"TVM's front end cannot read {path}: {reason}") from error
