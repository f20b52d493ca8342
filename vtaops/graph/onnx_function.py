"""OnnxFunction: a part of an ONNX model that ONNX Runtime executes on the host.

It holds a model: data, not machine code. ONNX Runtime executes it in one thread, so forked
processes may call it and results do not depend on the number of processors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from vtaops.base.errors import ProgramError, UnsupportedError, raising
from vtaops.base.shapes import Array
from vtaops.graph.host import HostFunction
from vtaops.graph.onnx_bounds import require_bounded
from vtaops.graph.onnx_files import onnx, require, tensors

_DOMAINS = ("", "ai.onnx")


class OnnxFunction(HostFunction):
    """An ONNX model on arrays.

    Parameters
    ----------
    data : bytes
        The serialized model; its inputs and outputs are those of the function, in order. It is read
        at the first call.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._session: Any = None

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the results.

        Raises
        ------
        ProgramError
            If the bytes are not an ONNX model, or it uses operators that are not ONNX's own, or
            weights in another file.
        UnsupportedError
            If ONNX Runtime is not installed or does not support an operator, or if the model may
            run without end or take too much memory (`vtaops.graph.onnx_bounds`).
        """
        if self._session is None:
            _check(self.data)
            self._session = _session(self.data)
        names = [value.name for value in self._session.get_inputs()]
        feeds = dict(zip(names, map(np.asarray, arrays), strict=True))
        with raising(UnsupportedError, "ONNX Runtime cannot run a part of the model", Exception):
            results = _run(self._session, feeds)
        return tuple(map(np.asarray, results))


def _check(data: bytes) -> None:
    """Refuse what a file may hold, and a part of a network never is."""
    with raising(ProgramError, "a host function is not an ONNX model", Exception):
        model = onnx.load_model_from_string(data)
    if any(tensor.external_data or tensor.data_location for tensor in tensors(model)):
        raise ProgramError("a host function names weights in another file")
    if model.functions or any(e.domain not in _DOMAINS for e in model.opset_import):
        raise ProgramError("a host function has operators that are not ONNX's own")
    require_bounded(model)


_POLL_SECONDS = 0.1
"""A wait without end is not interrupted where a library has set SIGINT to restart system calls."""


def _run(session: Any, feeds: Mapping[str, Array]) -> Any:
    """Run a session so that Ctrl-C, which only the main thread sees, ends it."""
    if threading.current_thread() is not threading.main_thread():
        return session.run(None, feeds)
    options = require("onnxruntime").RunOptions()
    with ThreadPoolExecutor(1) as pool:
        try:  # submitting, too, can be interrupted when the part already runs
            running = pool.submit(session.run, None, feeds, options)
            while not wait([running], _POLL_SECONDS).done:
                pass
            return running.result()
        except BaseException:
            options.terminate = True
            raise


def _session(data: bytes) -> Any:
    ort = require("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # it would round otherwise
    with raising(UnsupportedError, "ONNX Runtime refuses a part of the model", Exception):
        return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
