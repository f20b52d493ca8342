"""LiteRT's reference kernels, which define a TFLite file bit for bit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.optional import optional
from vtaops.base.shapes import Array


def has_litert() -> bool:
    """Return whether LiteRT is installed."""
    return find_spec("ai_edge_litert") is not None


_TRIAL = """
import sys
from ai_edge_litert.interpreter import Interpreter, OpResolverType
trial = Interpreter(sys.argv[1], experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
trial.allocate_tensors()
trial.invoke()
"""


def runs(path: Path) -> bool:
    """Return whether LiteRT runs a file: on some it ends its whole process, so another one tries.

    One such file has a softmax whose input has a scale below 2**-26.
    """
    tried = subprocess.run([sys.executable, "-c", _TRIAL, str(path)], capture_output=True)
    return tried.returncode == 0


def reference(path: Path, arrays: Sequence[Array]) -> Callable[[int], Array]:
    """Return a function that returns LiteRT's values of the tensor of a number.

    Raises
    ------
    ModelError
        If the arrays do not match the inputs of the file.
    """
    purpose = "running TFLite's reference kernels needs"
    module = "ai_edge_litert.interpreter"
    litert = optional(module, "ai-edge-litert", purpose, "litert")
    interpreter = litert.Interpreter(
        str(path),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    with raising(ModelError, f"{path} refuses an input", ValueError):
        for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return lambda number: np.asarray(interpreter.get_tensor(number))
