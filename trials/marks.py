"""Judge a quantised network: is it right, on the accelerator, and equal to the bit."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from onnx import numpy_helper

import vtaops
from trials.forms import Form
from trials.styles import STYLES, Arrays, quantised, with_integer_ends
from trials.tflite_operators import Case, cases
from vtaops.base.errors import FileMismatch, PlacementWarning
from vtaops.frontends.litert import runs
from vtaops.graph import Graph, Node
from vtaops.graph.operators import (
    Concat,
    Dequantize,
    FromUint8,
    Quantize,
    Reshape,
    Slice,
    ToUint8,
    Transpose,
)
from vtaops.graph.probe import runtime_session
from vtaops.runtime.arguments import as_tuple

OWN = (("pow2", "pynq"), ("pow2", "tiny"), ("free", "pynq_ext"), ("free", "pynq_512"))
"""Scales of `vtaops.quantize`, and hardware."""

FOREIGN = tuple((style, "pynq_ext") for style in STYLES[2:])
"""Other quantisers; each form meets three of them, and some one with integer ends."""


def targets(form: Form) -> list[tuple[str, str]]:
    """Return the quantisers and the hardware that a form meets."""
    number = crc32(form.name.encode())
    drawn = [FOREIGN[(number + turn) % len(FOREIGN)] for turn in (0, 2, -1)]
    return [*OWN, *drawn, *[(INTEGER_ENDS, "pynq_ext")] * (number // 8 % 4 == 0)]


INTEGER_ENDS = "uint8_ends"
"""As `ort_uint8`, and inputs and outputs are uint8."""

PLACES = ("wrong", "raw", "refused", "host", "part", "moves", "vta")
"""From worst to best; `part`: something is computed on the host; `moves`: it only moves bytes."""

MOVES = (Concat, Slice, Reshape, Transpose)
"""Operators that move bytes."""


@dataclass(frozen=True)
class Mark:
    """What became of a network.

    Attributes
    ----------
    place
        One of `PLACES`.
    steps
        Largest difference of a result from ONNX Runtime, in its steps: a step of an inner tensor
        may become several, or, behind a Sign, many.
    apart
        Share of values in all tensors that differ by a step, each computed from the file's values;
        if none does, but hardware rounds otherwise, of the results.
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
        if self.rank != other.rank:
            return self.rank < other.rank
        return (
            self.steps > 2 * other.steps + 1
            or (self.place == "vta" and self.launches > other.launches)
            or self.apart > other.apart + 0.005
        )


TFLITE = (("int8", "pynq_ext"), ("int8", "pynq_exact"), ("uint8", "pynq_exact"))
"""Activations, and hardware, of TFLite files."""


def tflite_cases() -> dict[str, Case]:
    """Return TFLite's operators by names: the operator, shapes and options."""
    found: dict[str, Case] = {}
    for case in cases():
        if case.floats_only:
            continue
        given = [
            "x".join(map(str, operand)) if isinstance(operand, tuple) else str(operand.tolist())
            for operand in case.operands
        ]
        options = [f"{name}={value}" for name, value in case.options.items() if value]
        found.setdefault(f"{case.kind} {', '.join([*given, *options])}", case)
    return found


def judged(form: Form, style: str, config: str) -> Mark | None:
    """Return the mark of a form; None if ONNX Runtime or the quantiser has none of it."""
    made = _quantised(form, style)
    return made and mark_of(*made, config, prove=style in ("pow2", "free"))


@lru_cache(4)
def _quantised(form: Form, style: str) -> tuple[onnx.ModelProto, Arrays, list[Any]] | None:
    """Return the quantised network of a form, an input and ONNX Runtime's results."""
    opset, batch = form.drawn(style)
    model, data = form.network(opset, batch)
    sample = {"x": data[:batch]}
    try:
        file = quantised(model, data, style.replace(INTEGER_ENDS, "ort_uint8"))
        if style == INTEGER_ENDS:
            file, sample = with_integer_ends(file, sample)
        return file, sample, runtime_session(file, "ORT_DISABLE_ALL").run(None, sample)
    except Exception:
        return None


def mark_of(
    file: onnx.ModelProto, sample: Arrays, expected: list[Any], config: str, *, prove: bool = True
) -> Mark:
    """Return the mark of a file, whose results are those of ONNX Runtime."""
    mark, found, told = _compiled(file, sample, config, prove)
    if not found:
        return mark
    steps, share = _apart(file, found, expected)
    if steps and not mark.apart:  # on inputs of vtaops' own, no tensor differs
        mark, *_ = _compiled(file, sample, config, prove, check=[sample])
        if steps > 1 and not (mark.apart or told):
            return Mark("wrong", steps, reason=f"{steps} steps from ONNX Runtime")
    return replace(mark, steps=steps, apart=mark.apart or share)


def tflite_mark(case: Case, dtype: str, config: str) -> Mark | None:
    """Return the mark of a TFLite file of one operator; None if LiteRT has none of it."""
    rng = np.random.default_rng(0)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    shapes = [operand for operand in case.operands if isinstance(operand, tuple)]
    arrays = [rng.integers(low, high, shape).astype(dtype) for shape in shapes]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.tflite"
        path.write_bytes(case.file(dtype))
        mark, *_ = _compiled(path, arrays, config, True)
        cannot = mark.reason == "LiteRT cannot run it" or (
            mark.place == "refused" and not runs(path)
        )
    return None if cannot else mark


def _compiled(
    source: Any, given: Any, config: str, prove: bool, check: Any = True
) -> tuple[Mark, tuple[Any, ...], bool]:
    """Return the mark of a source without the steps of its results, its results, and one thing.

    That is whether the plan tells that the hardware rounds something else than the file says.
    """
    arrays = [given] if isinstance(given, dict) else given
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PlacementWarning)
            model = vtaops.compile_model(source, config, host=True, prove=prove, check=check)
        found, own = (as_tuple(each(*arrays)) for each in (model.run, model.reference))
    except FileMismatch as error:
        return Mark("wrong", reason=_line(error)), (), False
    except vtaops.VTAError as error:
        return Mark("refused", reason=_line(error)), (), False
    except Exception as error:
        return Mark("raw", reason=f"{type(error).__name__}: {_line(error)}"), (), False
    if not all(map(_same, found, own)):
        return Mark("wrong", reason="the model computes something else than its graph"), (), False
    agreed, (place, reason) = model.agreement, _place(model)
    apart = round(agreed.differences / max(1, agreed.values), 4)
    told = any(row.reason for row in model.plan if row.where == "vta")
    return Mark(place, 0, apart, len(model.regions), agreed.reason or reason), found, told


def _same(ours: Any, own: Any) -> bool:
    return bool(np.array_equal(ours, own, equal_nan=ours.dtype.kind == "f"))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _place(model: Any) -> tuple[str, str]:
    """Return the place, and the reason of the first operator on the host."""
    inner = [
        (node, row)
        for node, row in zip(model.graph.nodes, model.plan, strict=True)
        if not _is_boundary(node, model.graph)
    ]
    host = [(node, row) for node, row in inner if row.where == "host"]
    if not host:
        return "vta", ""
    computed = [row for node, row in host if not isinstance(node.op, MOVES)]
    if not computed and len(host) < len(inner):
        at_ends = len(model.regions) == 1
        return ("vta", "") if at_ends else ("moves", host[0][1].reason)
    place = "host" if len(host) == len(inner) else "part"
    return place, (computed or [host[0][1]])[0].reason


def _is_boundary(node: Node, graph: Graph) -> bool:
    """Return whether a node rounds, or brings the channels of an image to their place."""
    ends = {tensor.name for tensor in (*graph.inputs, *graph.outputs)}
    near = {tensor.name for tensor in (*node.inputs, *node.outputs)} & ends
    return isinstance(node.op, BOUNDARY) or (
        isinstance(node.op, Transpose) and tuple(node.op.axes) in LAYOUTS and bool(near)
    )


BOUNDARY = (Quantize, Dequantize, FromUint8, ToUint8)
"""What stands between the host's tensors and those of VTA."""

LAYOUTS = ((0, 2, 3, 1), (0, 3, 1, 2))
"""Channels last, and first."""


def _apart(file: onnx.ModelProto, found: Any, expected: Any) -> tuple[int, float]:
    """Return the largest difference in steps, and the share of results that differ by one.

    Of results in float, 127 steps are the reach.
    """
    scales = _scales(file)
    apart = []
    for output, ours, theirs in zip(file.graph.output, found, expected, strict=True):
        if ours.shape != theirs.shape:
            return 255, 1.0
        reach = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0)) / 127 or 1.0
        step = scales.get(output.name) or (reach if theirs.dtype.kind == "f" else 1.0)
        steps = np.abs(theirs.astype(np.float64) - ours.astype(np.float64)) / step
        apart.append(np.rint(np.nan_to_num(steps)).reshape(-1))
    every = np.concatenate(apart)
    return int(every.max(initial=0)), round(float(np.mean(every > 0)) if every.size else 0.0, 4)


def _scales(file: onnx.ModelProto) -> dict[str, float]:
    """Return the step of each tensor that a DequantizeLinear writes."""
    constants = {c.name: numpy_helper.to_array(c) for c in file.graph.initializer}
    return {
        node.output[0]: float(constants[node.input[1]].max())
        for node in file.graph.node
        if node.op_type == "DequantizeLinear" and node.input[1] in constants
    }
