"""Read programs of torch.export, through PyTorch's own exporter to ONNX."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import Any

from vtaops.base.errors import ModelError, UnsupportedError, raising
from vtaops.base.optional import optional
from vtaops.frontends.onnx import read_onnx
from vtaops.frontends.values import OnnxNetwork
from vtaops.graph.onnx_files import ModelProto, first_line


def read_torch(program: Any) -> OnnxNetwork:
    """Read a program of `torch.export`, float or quantised by PT2E; a dynamic batch is 1.

    Raises
    ------
    ModelError
        If it is another object of torch.
    UnsupportedError
        If PyTorch cannot write it as ONNX.
    """
    return read_onnx(exported(program))


def exported(program: Any) -> ModelProto:
    """Return the ONNX model of a program; its inputs have the names of the program's."""
    torch = optional("torch", "PyTorch", "its programs need", "torch")
    optional("onnxscript", "onnxscript", "programs of torch.export need", "onnxscript")
    if not isinstance(program, torch.export.ExportedProgram):
        raise ModelError(
            f"{type(program).__name__} is not an exported program: "
            "torch.export.export(module.eval(), (example,)) makes one"
        )
    text = "PyTorch cannot write this program as ONNX"
    with warnings.catch_warnings(), raising(UnsupportedError, text, Exception, describe=first_line):
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with contextlib.redirect_stdout(io.StringIO()):
            made = torch.onnx.export(program, dynamo=True, optimize=False)
    model: ModelProto = made.model_proto
    return model
