"""Read inner tensors of a model by a session of ONNX Runtime that returns them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from copy import deepcopy
from typing import Any

import numpy as np

from vtaops.base.errors import ModelError, raising
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import ModelProto, initializers, onnx, replace_initializer, require

_INTEGER_PRODUCTS = ("QLinearConv", "QLinearMatMul", "QGemm")
"""Operators whose input 2 is the data's zero point; 3 and 5 are weights and their zero point."""


def runtime_errors() -> AbstractContextManager[None]:
    """Convert exceptions of ONNX Runtime, whose hierarchy is not public, to a ModelError."""

    def describe(error: Exception) -> str:
        return " ".join(str(error).split()) or type(error).__name__

    return raising(ModelError, "ONNX Runtime refuses the model", Exception, describe=describe)


def runtime_session(model: ModelProto | bytes, level: str, **settings: Any) -> Any:
    """Return a session of ONNX Runtime on the CPU, with a level of graph optimisation.

    The model may be the content of its file.

    Raises
    ------
    ModelError
        If ONNX Runtime rejects the model.
    """
    ort = require("onnxruntime")
    options = ort.SessionOptions()
    settings |= {"log_severity_level": 4, "enable_cpu_mem_arena": False}
    settings |= {"graph_optimization_level": getattr(ort.GraphOptimizationLevel, level)}
    for name, value in settings.items():
        setattr(options, name, value)
    # Threads that wait in a loop for the next node take as much of the processor as those that
    # work: a third of the time of quantize for small networks.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = model if isinstance(model, bytes) else model.SerializeToString()
    with runtime_errors():
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    session._model_bytes = None  # kept for other providers, and as large as the file
    return session


class Probe:
    """A model whose run returns named tensors.

    Parameters
    ----------
    model
        The ONNX model.
    names
        Tensors to return; None for the outputs of the model.
    exact
        Run the nodes without ONNX Runtime's fusions, so that the result is defined by the file
        and not by a fused integer kernel.

    Raises
    ------
    ModelError
        If ONNX Runtime rejects the model; from `run`, if it cannot be computed.
    """

    def __init__(
        self, model: ModelProto, names: Sequence[str] | None = None, *, exact: bool = True
    ) -> None:
        wanted = names if names is not None else [value.name for value in model.graph.output]
        self.names = list(dict.fromkeys(wanted))
        shown, make = deepcopy(model), onnx.ValueInfoProto
        present = {value.name for value in model.graph.output}
        shown.graph.output.extend(make(name=name) for name in self.names if name not in present)
        if exact:
            _shift_weights(shown)
        self._session = self._opened(shown, exact)

    @staticmethod
    def _opened(model: ModelProto, exact: bool) -> Any:
        if not exact:
            with suppress(ModelError):  # fusions of ONNX Runtime 1.32 break some transformers
                return runtime_session(model, "ORT_ENABLE_ALL")
        return runtime_session(model, "ORT_DISABLE_ALL")

    def run(self, sample: dict[str, Array]) -> dict[str, Array]:
        """Return the tensors for one sample."""
        if not self.names:  # ONNX Runtime would return all outputs
            return {}
        with runtime_errors():
            values = self._session.run(self.names, sample)
        return dict(zip(self.names, values, strict=True))


def _shift_weights(model: ModelProto) -> None:
    """Convert constant int8 weights of uint8 data to uint8, with a zero point 128 higher.

    The meaning is the same, but on a processor without VNNI, ONNX Runtime's products of uint8 by
    int8 saturate at 16 bits; those of uint8 by uint8 do not.
    """
    constants = initializers(model)
    for node in model.graph.node:
        if node.op_type not in _INTEGER_PRODUCTS or not {*node.input[2:6]} <= {*constants}:
            continue
        offset, weights, _, zero = (constants[name] for name in node.input[2:6])
        if offset.dtype != np.uint8 or weights.dtype != np.int8:
            continue
        for at, array in ((3, weights), (5, zero)):
            name = f"{node.input[at]}/unsigned"
            replace_initializer(model, name, array.view(np.uint8) ^ np.uint8(128))
            node.input[at] = name
