"""Random networks of four forms of operators in a row, as another quantiser writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from trials.forms import FORMS, IMAGE, OPSETS, Form, Network
from trials.marks import Mark, mark_of
from trials.styles import STYLES, quantised, with_integer_ends
from vtaops.graph.probe import runtime_session

PLAIN = ("pynq", "tiny")
EXTENDED = ("pynq_ext", "pynq_512", "pynq_exact")

LENGTH = 4

IMAGES = [form for form in FORMS if form.shape == IMAGE]


def network(seed: int) -> tuple[onnx.ModelProto, np.ndarray[Any, Any], list[str]]:
    """Return a random float network, four inputs, stacked, and the names of its forms."""
    rng = np.random.default_rng(seed)
    opset, batch = int(rng.choice(OPSETS)), int(rng.integers(1, 5))
    b = Network(seed, opset, batch)
    x, names = b.product(b.input([batch, *IMAGE])), list[str]()
    while len(names) < LENGTH:
        form = IMAGES[int(rng.integers(len(IMAGES)))]
        y = _added(b, x, form)
        if y:
            names.append(form.name)
            x = b.product(y) if rng.random() < 0.4 else y
    b.output(b.product(x))
    data = rng.standard_normal((4 * batch, *IMAGE))
    return b.model(opset), data.astype(np.float32), names


def _added(b: Network, x: str, form: Form) -> str:
    """Add a form, and return its result; empty, and nothing is added, if it changes the shape."""
    lists = b.nodes, b.constants, b.known
    lengths = [len(each) for each in lists]
    if form.opset <= b.opset:
        y = form.build(b, x)
        if b.shape_of(y) == b.shape_of(x) and b.type_of(y).elem_type == onnx.TensorProto.FLOAT:
            return y
    for each, length in zip(lists, lengths, strict=True):
        del each[length:]
    return ""


def judged(seed: int) -> tuple[str, Mark] | None:
    """Return what a random network is, and its mark; None if the quantiser cannot write it."""
    model, data, names = network(seed)
    style = STYLES[seed % len(STYLES)]
    turn = seed // len(STYLES)
    config = PLAIN[turn % 2] if style == "pow2" else EXTENDED[turn % 3]
    sample = {"x": data[: len(data) // 4]}
    try:
        file = quantised(model, data, style)
        if style == "ort_uint8" and turn % 2:
            file, sample = with_integer_ends(file, sample)
        expected = runtime_session(file, "ORT_DISABLE_ALL").run(None, sample)
    except Exception:
        return None
    mark = mark_of(file, sample, expected, config, prove=False)
    return f"{style} {config} {len(sample['x'])}: {', '.join(names)}", mark
