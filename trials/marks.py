"""Judge a quantised network: is it right, does it run on the accelerator, is it equal to the bit."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import vtaops
from trials.forms import Form
from trials.styles import quantised
from vtaops.base.errors import FileMismatch, PlacementWarning
from vtaops.graph.operators import Dequantize, Quantize
from vtaops.graph.probe import runtime_session
from vtaops.runtime.arguments import as_tuple

TARGETS = (
    ("pow2", "pynq"),
    ("pow2", "tiny"),
    ("free", "pynq_ext"),
    ("free", "pynq_512"),
    ("ort", "pynq_ext"),
    ("ort_uint8", "pynq_ext"),
    ("qoperator", "pynq_ext"),
    ("pytorch", "pynq_ext"),
    ("tensorrt", "pynq_ext"),
    ("qcdq", "pynq_ext"),
)
"""A quantiser and the hardware."""

PLACES = ("wrong", "raw", "refused", "host", "part", "vta")
"""From worst to best; `part`: what it is about is on the host, its neighbours on VTA."""


@dataclass(frozen=True)
class Mark:
    """What became of a network.

    Attributes
    ----------
    place
        One of `PLACES`.
    steps
        Largest difference of a result from ONNX Runtime, in its steps.
    apart
        Share of values in all tensors that differ by a step, each computed from the file's values.
    launches
        Launches of VTA.
    reason
        Why something is on the host, refused or wrong; empty if nothing is.
    """

    place: str
    steps: int = 0
    apart: float = 0.0
    launches: int = 0
    reason: str = ""

    @property
    def rank(self) -> int:
        """Place as a number; greater is better."""
        return PLACES.index(self.place)

    def as_dict(self) -> dict[str, Any]:
        """Return what it has, without zeros."""
        return {name: value for name, value in asdict(self).items() if value}

    def is_worse(self, other: Mark) -> bool:
        """Return whether a mark is worse than one of an earlier day."""
        return (
            self.rank < other.rank
            or self.steps > max(1, other.steps)
            or (self.place == "vta" and self.launches > other.launches)
            or self.apart > other.apart + 0.005
        )


def judged(form: Form, style: str, config: str) -> Mark | None:
    """Return the mark of a form; None if ONNX Runtime or the quantiser has none of it."""
    opset, batch = form.drawn(style)
    model, data = form.network(opset, batch)
    try:
        file = quantised(model, data, style)
        session = runtime_session(file, "ORT_DISABLE_ALL")
        expected = session.run(None, {"x": data[:batch]})
    except Exception:
        return None
    return mark_of(file, {"x": data[:batch]}, expected, config)


def mark_of(
    file: onnx.ModelProto,
    sample: dict[str, np.ndarray[Any, Any]],
    expected: list[np.ndarray[Any, Any]],
    config: str,
) -> Mark:
    """Return the mark of a file, whose results are those of ONNX Runtime."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlacementWarning)
            model = vtaops.compile_model(file, config, host=True)
        found, own = (as_tuple(each(sample)) for each in (model.run, model.reference))
    except FileMismatch as error:
        return Mark("wrong", reason=_line(error))
    except vtaops.VTAError as error:
        return Mark("refused", reason=_line(error))
    except Exception as error:
        return Mark("raw", reason=f"{type(error).__name__}: {_line(error)}")
    if any(not np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(found, own, strict=True)):
        return Mark("wrong", reason="the model computes something else than its graph")
    steps = _steps(file, found, expected)
    agreed = model.agreement
    apart = round(agreed.differences / max(1, agreed.values), 4)
    place, reason = _place(model)
    if steps > LIMIT or agreed.reason:
        wrong = agreed.reason or f"{steps} steps from ONNX Runtime"
        return Mark("wrong" if steps > LIMIT else place, steps, apart, len(model.regions), wrong)
    return Mark(place, steps, apart, len(model.regions), reason)


LIMIT = 8
"""Steps that halves rounded otherwise in inner tensors may add up to in a result."""


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _place(model: Any) -> tuple[str, str]:
    """Return the place, and the reason of the first operator on the host."""
    inner = [
        row
        for node, row in zip(model.graph.nodes, model.plan, strict=True)
        if not isinstance(node.op, Quantize | Dequantize)
    ]
    host = [row for row in inner if row.where == "host"]
    if not host:
        return "vta", ""
    place = "host" if len(host) == len(inner) else "part"
    return place, host[0].reason


def _steps(file: onnx.ModelProto, found: Any, expected: Any) -> int:
    """Return the largest difference in steps of the result; of float results, 127 are the reach."""
    scales = _scales(file)
    worst = 0.0
    for output, ours, theirs in zip(file.graph.output, found, expected, strict=True):
        if ours.shape != theirs.shape:
            return 255
        reach = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)) / 127 or 1.0
        step = scales.get(output.name) or (reach if theirs.dtype.kind == "f" else 1.0)
        apart = np.abs(theirs.astype(np.float64) - ours.astype(np.float64)) / step
        worst = max(worst, float(np.nan_to_num(apart).max(initial=0)))
    return round(worst)


def _scales(file: onnx.ModelProto) -> dict[str, float]:
    """Return the step of each tensor that a DequantizeLinear writes."""
    constants = {c.name: numpy_helper.to_array(c) for c in file.graph.initializer}
    return {
        node.output[0]: float(constants[node.input[1]].max())
        for node in file.graph.node
        if node.op_type == "DequantizeLinear" and node.input[1] in constants
    }
