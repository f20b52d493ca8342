"""Random float networks of what stops a quantiser: shared and odd biases, masks, dead channels.

Each network is a chain of parts, each of which once ended `vtaops.quantize` in an error of Python,
wrote a file that did not load, or lost its values: biases that several products share or that are
rows, outputs of rank 0 and 1, ranks 1 to 5, channels whose weights are almost 0 beside a large
bias, attention under masks of any depth, RMS norms of large tokens, pictures NHWC, constants of
float16 and float64, shapes of no elements, names that a quantiser would invent itself, padded and
cut channels, slopes of each channel, sizes of other than whole factors, and subgraphs.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import vtaops
from trials.campaign import Campaign, Result, result
from trials.onnx_models import Builder
from vtaops.graph.probe import Probe

SIDE, FEATURES = 8, 12


def network(seed: int) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """Return a random float network, and six samples of its inputs, stacked."""
    rng = np.random.default_rng(seed)
    b = _Named(seed)
    data: dict[str, Any] = {}
    start = (_images, _images, _last, _tokens, _tokens, _signal)[int(rng.integers(6))]
    x, blocks = start(b, rng, data)
    for _ in range(int(rng.integers(1, 4))):
        x = blocks[int(rng.integers(len(blocks)))](b, rng, x, data)
    _end(b, rng, x)
    return b.model(), data


class _Named(Builder):
    """A builder that gives some of its tensors names that quantisers invent."""

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = super().add(kind, *inputs, outputs=outputs, **attributes)
        if outputs > 1 or not inputs or not inputs[0] or self.rng.random() > 0.06:
            return names
        known = {name for node in self.nodes[:-1] for name in node.output}
        known |= {tensor.name for tensor in self.constants}
        taken = inputs[int(self.rng.integers(len(inputs)))]
        ends = ("::scale", "::quantized", "::rounded", "::exact", "2")
        name = f"{taken}{ends[int(self.rng.integers(len(ends)))]}"
        if name not in known:
            self.nodes[-1].output[0] = name
        if self.rng.integers(2):
            self.nodes[0].name = self.nodes[-1].output[0]
        return self.nodes[-1].output[0]


# ------------------------------------------------------------------------------- inputs


def _given(b: Builder, rng: Any, data: Any, shape: tuple[int, ...], name: str = "x") -> str:
    data[name] = rng.standard_normal((6 * shape[0], *shape[1:])).astype(np.float32)
    return b.input([*shape], name)


def _images(b: Builder, rng: Any, data: Any) -> tuple[str, Any]:
    x = _given(b, rng, data, (int(rng.integers(1, 3)), 3, SIDE, SIDE))
    return b.conv(x, 3, FEATURES, relu=True), IMAGES


def _last(b: Builder, rng: Any, data: Any) -> tuple[str, Any]:
    x = b.add("Transpose", _given(b, rng, data, (1, SIDE, SIDE, 3)), perm=[0, 3, 1, 2])
    return b.conv(x, 3, FEATURES), IMAGES


def _tokens(b: Builder, rng: Any, data: Any) -> tuple[str, Any]:
    x = _given(b, rng, data, (1, SIDE, FEATURES))
    data["x"] *= rng.choice([1, 30], (1, SIDE, 1)).astype(np.float32)
    return x, TOKENS


def _signal(b: Builder, rng: Any, data: Any) -> tuple[str, Any]:
    x = _given(b, rng, data, (1, 3, 32))
    return _conv1d(b, rng, x, 3), (_line, _shared_line)


# ------------------------------------------------------------------------------- images


def _shared(b: Any, rng: Any, x: str, data: Any) -> str:
    """Two convolutions with one bias, maybe with one weight."""
    left = b.conv(x, FEATURES, FEATURES)
    node = b.nodes[-1]
    weight = node.input[1] if rng.integers(2) else _weight(b, rng, (FEATURES, FEATURES, 3, 3))
    right = b.add("Conv", b.add("Tanh", x), weight, node.input[2], pads=[1] * 4)
    return str(b.add(str(rng.choice(["Add", "Mul"])), left, right))


def _dead(b: Any, rng: Any, x: str, data: Any) -> str:
    """A convolution some of whose channels are their bias, as a batch norm of scale 0 leaves."""
    weight = rng.standard_normal((FEATURES, FEATURES, 3, 3)) / 10
    weight[rng.random(FEATURES) < 0.3] *= 10.0 ** -rng.uniform(5, 12)
    bias = rng.normal(0, 1, FEATURES)
    parts = [b.constant(v.astype(np.float32)) for v in (weight, bias)]
    return str(b.add("Relu", b.add("Conv", x, *parts, pads=[1] * 4)))


def _pyramid(b: Any, rng: Any, x: str, data: Any) -> str:
    """Down, up by a decoder, and joined."""
    small = b.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    if rng.integers(2):
        weight = _weight(b, rng, (FEATURES, FEATURES, 2, 2))
        big = b.add("ConvTranspose", small, weight, strides=[2, 2])
    else:
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        roi = b.constant(np.zeros(0, np.float32)) if rng.integers(2) else ""
        big = b.add("Resize", small, roi, scales, mode="nearest")
    joined = b.add("Concat", big, x, axis=1)
    return str(b.conv(joined, 2 * FEATURES, FEATURES, kernel=1))


def _heads(b: Any, rng: Any, x: str, data: Any) -> str:
    """Boxes of tens and scores below one meet in one Concat."""
    boxes = b.add("Mul", b.conv(x, FEATURES, FEATURES), b.constant(np.float32(100)))
    return str(b.add("Concat", boxes, b.add("Sigmoid", b.conv(x, FEATURES, FEATURES)), axis=1))


def _halves(b: Any, rng: Any, x: str, data: Any) -> str:
    """A product by a constant of float16 or float64, which a Cast makes float32."""
    kind = [np.float16, np.float64][int(rng.integers(2))]
    factor = b.constant(rng.uniform(0.5, 2, (1, FEATURES, 1, 1)).astype(kind))
    return str(b.add("Mul", x, b.add("Cast", factor, to=1)))


def _wider(b: Any, rng: Any, x: str, data: Any) -> str:
    """More channels, of a number, beside a branch that is added, as in BlazeFace."""
    more = int(rng.integers(1, 9))
    number = b.constant(np.float32(rng.choice([0.0, 0.0, 0.5])))
    padded = b.add("Pad", x, b.constant(np.array([0, 0, 0, 0, 0, more, 0, 0])), number)
    y = b.add("Add", b.conv(x, FEATURES, FEATURES + more), padded)
    return str(b.conv(b.add("Relu", y), FEATURES + more, FEATURES, kernel=1))


def _bounded(b: Any, rng: Any, x: str, data: Any) -> str:
    """An extremum with a number behind a leaky activation, as Keras writes it."""
    kind, bound = [("Max", -0.2), ("Min", 0.8)][int(rng.integers(2))]
    value = b.constant(np.full([(), (1,), (1, 1, 1, 1)][int(rng.integers(3))], bound, np.float32))
    y = b.add("LeakyRelu", b.conv(x, FEATURES, FEATURES), alpha=0.2)
    return str(
        b.conv(b.add(kind, *((y, value) if rng.integers(2) else (value, y))), FEATURES, FEATURES)
    )


def _each_slope(b: Any, rng: Any, x: str, data: Any) -> str:
    """A PReLU, some of whose slopes are below 0."""
    slopes = b.constant(rng.uniform(-1.5, 1.5, (FEATURES, 1, 1)).astype(np.float32))
    return str(b.conv(b.add("PRelu", b.conv(x, FEATURES, FEATURES), slopes), FEATURES, FEATURES))


def _slices(b: Any, rng: Any, x: str, data: Any) -> str:
    """Channels cut within blocks, computed on, and joined in another order."""
    at = int(rng.integers(1, FEATURES))
    ends = [(0, at), (at, FEATURES)]
    parts = [b.add("Slice", x, *(b.constant(np.array([v])) for v in (*span, 1))) for span in ends]
    left = b.conv(parts[0], at, at, relu=True)
    return str(b.conv(b.add("Concat", parts[1], left, axis=1), FEATURES, FEATURES))


def _other_size(b: Any, rng: Any, x: str, data: Any) -> str:
    """Images resized by other than whole factors, and back."""
    size = int(rng.integers(5, 15))
    mode = str(rng.choice(["nearest", "linear"]))
    for shape in (size, SIDE):
        sizes = b.constant(np.array([_batch(b), FEATURES, shape, shape]))
        x = b.conv(b.add("Resize", x, "", "", sizes, mode=mode), FEATURES, FEATURES)
    return str(x)


def _batch(b: Any) -> int:
    return int(b.inputs[0].type.tensor_type.shape.dim[0].dim_value)


def _either(b: Any, rng: Any, x: str, data: Any) -> str:
    """One of two branches, which read a tensor from outside; numbers decide."""
    y = b.conv(x, FEATURES, FEATURES)
    total = b.add("ReduceSum", y, keepdims=0)
    large = b.add("GreaterOrEqual", total, b.constant(np.float32(0)))
    factor, shape = b.constant(np.float32(0.5)), [_batch(b), FEATURES, SIDE, SIDE]
    graphs = []
    for kind in ("Mul", "Add"):
        name = f"{kind}{len(b.nodes)}_inside"
        node = helper.make_node(kind, [y, factor], [name])
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        graphs.append(helper.make_graph([node], kind, [], [value]))
    chosen = b.add("If", large, then_branch=graphs[0], else_branch=graphs[1])
    return str(b.conv(chosen, FEATURES, FEATURES))


IMAGES = (
    *(_shared, _dead, _pyramid, _halves, _wider, _bounded, _each_slope, _slices, _other_size),
    _either,
)


# ------------------------------------------------------------------------------- tokens


def _weight(b: Any, rng: Any, shape: tuple[int, ...]) -> str:
    taps = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
    return str(b.constant((rng.standard_normal(shape) / np.sqrt(taps)).astype(np.float32)))


def _product(b: Any, rng: Any, x: str) -> str:
    y = b.add("MatMul", x, _weight(b, rng, (FEATURES, FEATURES)))
    return str(b.add("Add", y, _weight(b, rng, (FEATURES,)))) if rng.integers(2) else str(y)


def _attention(b: Any, rng: Any, x: str, data: Any) -> str:
    """Attention under a mask: a constant or an input, of -10000, of the least number, of -inf."""
    query, key, value = (_product(b, rng, x) for _ in range(3))
    scores = b.add("MatMul", query, b.add("Transpose", key, perm=[0, 2, 1]))
    scores = b.add("Mul", scores, b.constant(np.float32(FEATURES**-0.5)))
    deep = np.float32(rng.choice([-1e4, -1e9, np.finfo(np.float32).min, -np.inf]))
    hidden = np.triu(np.ones((1, SIDE, SIDE), bool), 1)
    form = int(rng.integers(3))
    if form == 0:
        scores = b.add("Add", scores, b.constant(np.where(hidden, deep, np.float32(0))))
    elif form == 1:
        scores = b.add("Where", b.constant(hidden), b.constant(deep), scores)
    else:
        name = f"mask{len(data)}"
        data[name] = np.ones((6, SIDE), np.float32)
        data[name][:, int(rng.integers(4, 8)) :] = 0
        mask = b.add("Sub", b.constant(np.float32(1)), b.input([1, SIDE], name))
        mask = b.add("Mul", mask, b.constant(max(deep, np.finfo(np.float32).min)))
        scores = b.add("Add", scores, mask)
    mixed = b.add("MatMul", b.add("Softmax", scores, axis=-1), value)
    return str(b.add("Add", x, _product(b, rng, mixed)))


def _rms_norm(b: Any, rng: Any, x: str, data: Any) -> str:
    square = b.add("Pow", x, b.constant(np.float32(2)))
    mean = b.add("ReduceMean", square, axes=[-1], keepdims=1)
    root = b.add("Sqrt", b.add("Add", mean, b.constant(np.float32(1e-6))))
    scaled = (
        b.add("Div", x, root) if rng.integers(2) else b.add("Mul", x, b.add("Reciprocal", root))
    )
    weight = b.constant(rng.uniform(0.5, 2, FEATURES).astype(np.float32))
    return _product(b, rng, b.add("Mul", scaled, weight))


def _gelu(b: Any, rng: Any, x: str, data: Any) -> str:
    y = _product(b, rng, x)
    half = b.add("Mul", y, b.constant(np.float32(0.5)))
    curve = b.add("Erf", b.add("Div", y, b.constant(np.float32(2**0.5))))
    return _product(b, rng, b.add("Mul", half, b.add("Add", curve, b.constant(np.float32(1)))))


def _five(b: Any, rng: Any, x: str, data: Any) -> str:
    """A detour by rank 5."""
    shape = b.constant(np.array([1, 2, SIDE // 2, 1, FEATURES]))
    y = b.add("Transpose", b.add("Reshape", x, shape), perm=[0, 2, 1, 3, 4])
    return _product(b, rng, b.add("Reshape", y, b.constant(np.array([1, SIDE, FEATURES]))))


def _twice(b: Any, rng: Any, x: str, data: Any) -> str:
    """Two layers of one weight, of which maybe one has a bias."""
    weight = _weight(b, rng, (FEATURES, FEATURES))
    for _ in range(2):
        x = b.add("MatMul", b.add("Tanh", x), weight)
        x = b.add("Add", x, _weight(b, rng, (FEATURES,))) if rng.integers(2) else x
    return str(x)


TOKENS = (_attention, _attention, _rms_norm, _gelu, _five, _twice)


# ------------------------------------------------------------------------------- signals


def _conv1d(b: Any, rng: Any, x: str, channels: int) -> str:
    operands = [x, _weight(b, rng, (FEATURES, channels, 3)), _weight(b, rng, (FEATURES,))]
    return str(b.add("Relu", b.add("Conv", *operands, pads=[1, 1])))


def _line(b: Any, rng: Any, x: str, data: Any) -> str:
    return _conv1d(b, rng, x, FEATURES)


def _shared_line(b: Any, rng: Any, x: str, data: Any) -> str:
    left = _conv1d(b, rng, x, FEATURES)
    node = b.nodes[-2]
    right = b.add("Conv", left, *node.input[1:], pads=[1, 1])
    return str(b.add("Add", left, right))


# ------------------------------------------------------------------------------- outputs


def _end(b: Any, rng: Any, x: str) -> None:
    """Write the result as it is, as boxes and scores, as classes, as one number or as a row."""
    kind = int(rng.integers(6))
    if kind == 0:
        return b.output(x)
    if kind == 1 and len(b.inputs[0].type.tensor_type.shape.dim) == 4:
        return b.output(_heads(b, rng, x, {}))
    if kind == 2:
        return b.output(b.add("ReduceMean", x, keepdims=0))
    flat = b.add("Reshape", x, b.constant(np.array([1, -1])))
    axes = b.constant(np.array([0]))
    if kind == 3:
        return b.output(b.add("Squeeze", flat, axes))
    mean = b.add(
        "ReduceMean", b.add("Reshape", flat, b.constant(np.array([FEATURES, -1]))), axes=[1]
    )
    row = b.add("Transpose", mean, perm=[1, 0])
    bias = rng.normal(0, 0.1, [(5,), (1, 5), (1, 1), (1,), ()][int(rng.integers(5))])
    scores = b.add(
        "Gemm", row, _weight(b, rng, (FEATURES, 5)), b.constant(np.asarray(bias, np.float32))
    )
    if kind == 4:
        return b.output(scores)
    empty = b.constant(np.zeros(0, np.int64))
    return b.output(b.add("Reshape", b.add("ReduceMax", scores, keepdims=0), empty))


# ------------------------------------------------------------------------------- judge


def check(
    seed: int, scales: str = "pow2", config: str | None = None, **options: Any
) -> dict[str, Any]:
    """Quantise a network and hold the file against float; compile and run it for a configuration.

    Returns
    -------
    dict
        `dB` of each output; `refused` and `error`, empty if all is right. An error that is not a
        `vtaops.VTAError` is raised.
    """
    model, data = network(seed)
    batch = {v.name: v.type.tensor_type.shape.dim[0].dim_value for v in model.graph.input}
    samples = [
        {name: value.reshape(6, batch[name], *value.shape[1:])[i] for name, value in data.items()}
        for i in range(6)
    ]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            file = vtaops.quantize(model, data, scales=scales, **options)
        except vtaops.VTAError as error:
            return {"dB": [], "refused": str(error), "error": ""}
    said = [str(w.message) for w in told if "the quantised file: " in str(w.message)]
    exact, found = Probe(model), Probe(file)
    pairs = [(exact.run(sample), found.run(sample)) for sample in samples]
    figures = {
        name: _decibels([(one[name], two[name]) for one, two in pairs]) for name in pairs[0][0]
    }
    if config is not None:
        said += _compiled(file, samples[0], config)
    return {"dB": figures, "refused": "", "error": "; ".join(said)}


def _compiled(file: Any, sample: dict[str, Any], config: str) -> list[str]:
    """Compile and run a file; return what is wrong with the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = vtaops.compile_model(file, config)
        except vtaops.VTAError as error:
            stays_float = all(node.op_type != "QuantizeLinear" for node in file.graph.node)
            return [] if stays_float else [f"compile: {error}"]
    found, expected = (
        values if isinstance(values, tuple) else (values,)
        for values in (model.run(**sample), model.reference(**sample))
    )
    same = all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    return [] if same else ["the device differs from the reference"]


def trial(case: str) -> Result:
    """Quantise, compile, run and compare one network: ``free/7``."""
    scales, seed = case.split("/")
    config = {"free": "pynq_ext", "pow2": "pynq"}[scales]
    found = check(int(seed), scales, config, equalization=int(seed) % 2 == 1)
    error = found["error"] or found["refused"]
    return result(scales, error, networks=1, right=not error)


CAMPAIGN = Campaign(
    lambda count: [f"{scales}/{seed}" for seed in range(count) for scales in ("free", "pow2")],
    trial,
    count=200,
)


def _decibels(pairs: Any) -> float:
    exact, found = (np.stack([np.float64(pair[i]) for pair in pairs]) for i in (0, 1))
    noise, signal = np.square(exact - found).sum(), np.square(exact).sum()
    return round(float(10 * np.log10(signal / noise)), 1) if noise and signal else 99.0
