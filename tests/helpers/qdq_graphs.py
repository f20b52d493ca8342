"""Random QDQ models, written node by node without a quantiser.

A random float graph grows operator by operator; ONNX Runtime says what ranges its tensors take, and
pairs are put behind every operator with scales, zero points and types drawn at random.
"""

from itertools import pairwise

import numpy as np
import onnx
from onnx import helper, numpy_helper

from trials.onnx_models import Builder
from vtaops.graph.probe import Probe

SHAPE = (1, 8, 9, 8)


def random_qdq(seed, *, power_of_two):
    """Return a QDQ model and an input for it."""
    rng = np.random.default_rng(seed)
    model = float_graph(rng)
    x = rng.standard_normal(SHAPE).astype(np.float32)
    return quantized(model, x, rng, power_of_two), {"x": x}


def float_graph(rng):
    """Return a random network of images that ends in one or two outputs."""
    b = Builder(int(rng.integers(1 << 30)))
    tensors = {b.input(list(SHAPE)): SHAPE[1:]}
    for _ in range(int(rng.integers(4, 9))):
        name = list(tensors)[-1] if rng.random() < 0.7 else str(rng.choice(list(tensors)))
        kind = str(rng.choice(list(OPERATORS)))
        made = OPERATORS[kind](b, rng, name, tensors)
        if made is not None:
            tensors[made[0]] = made[1]
    last = list(tensors)[-1]
    if rng.random() < 0.3:
        vector = b.add("Flatten", b.add("GlobalAveragePool", last))
        b.output(b.gemm(vector, tensors[last][0], 10))
    else:
        b.output(last)
    return b.model()


def _convolution(b, rng, x, tensors):
    c, h, w = tensors[x]
    kernel = int(rng.choice([1, 3, 3, 5]))
    group = int(rng.choice([1, 1, c, 2 if c % 2 == 0 else 1]))
    filters = c if group == c else int(rng.choice([4, 8, 16]))
    stride, dilation = int(rng.choice([1, 1, 2])), int(rng.choice([1, 1, 2]))
    pads = [int(v) for v in rng.integers(0, kernel, 4)]
    span = dilation * (kernel - 1) + 1
    size = [(e + pads[i] + pads[i + 2] - span) // stride + 1 for i, e in enumerate((h, w))]
    if min(size) < 1:
        return None
    y = b.conv(
        x, c, filters, kernel, group=group, bias=bool(rng.random() < 0.7), pads=pads,
        strides=[stride] * 2, dilations=[dilation] * 2,
    )  # fmt: skip
    if rng.random() < 0.5:
        y = b.add("Relu", y)
    elif rng.random() < 0.3:
        y = b.add("Clip", y, b.constant(np.float32(-0.5)), b.constant(np.float32(1)))
    return y, (filters, *size)


def _transposed(b, rng, x, tensors):
    c, h, w = tensors[x]
    weight = (rng.standard_normal((c, 4, 2, 2)) / np.sqrt(c)).astype(np.float32)
    y = b.add("ConvTranspose", x, b.constant(weight), strides=[2, 2], kernel_shape=[2, 2])
    return (y, (4, 2 * h, 2 * w)) if h < 20 else None


def _pool(b, rng, x, tensors):
    c, h, w = tensors[x]
    if min(h, w) < 3:
        return None
    kind, options = ("MaxPool", {}) if rng.random() < 0.5 else ("AveragePool", {})
    kernel = int(rng.choice([2, 3]))
    pads = [int(v) for v in rng.integers(0, 2, 4)]
    if kind == "AveragePool":
        options = {"count_include_pad": int(rng.integers(2))}
    y = b.add(kind, x, kernel_shape=[kernel] * 2, strides=[2, 2], pads=pads, **options)
    return y, (c, *((e + pads[i] + pads[i + 2] - kernel) // 2 + 1 for i, e in enumerate((h, w))))


def _pair(b, rng, x, tensors):
    """Sum, product or concatenation with a tensor of the same image."""
    shape = tensors[x]
    alike = [n for n, s in tensors.items() if s == shape and n != "x"]
    if not alike or x == "x":
        return None
    kind, other = str(rng.choice(["Add", "Add", "Mul", "Concat", "Sub"])), str(rng.choice(alike))
    if kind == "Concat":
        return b.add("Concat", x, other, axis=1), (2 * shape[0], *shape[1:])
    return b.add(kind, x, other), shape


def _residual(b, rng, x, tensors):
    c, *_ = tensors[x]
    y = b.add("Add", b.conv(x, c, c), x)
    return (b.add("Relu", y) if rng.random() < 0.5 else y), tensors[x]


def _movement(b, rng, x, tensors):
    c, h, w = tensors[x]
    kind = str(rng.choice(["Slice", "Pad", "Resize", "Split"]))
    if kind == "Slice" and c > 2:
        ends = (b.constant(np.array([v])) for v in (1, c, 1))
        return b.add("Slice", x, *ends), (c - 1, h, w)
    if kind == "Pad":
        return b.add("Pad", x, b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2]))), (c, h + 1, w + 2)
    if kind == "Resize" and h < 20:
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return b.add("Resize", x, "", scales, mode="nearest", **modes), (c, 2 * h, 2 * w)
    if kind == "Split" and c % 2 == 0:
        first, _ = b.add("Split", x, outputs=2, axis=1)
        return first, (c // 2, h, w)
    return None


def _function(b, rng, x, tensors):
    kind = str(rng.choice(["Relu", "LeakyRelu", "HardSwish", "Sigmoid", "Scale", "Shift"]))
    c = tensors[x][0]
    if kind in ("Scale", "Shift"):
        constant = b.constant(rng.uniform(-1, 1, (1, c, 1, 1)).astype(np.float32))
        return b.add("Mul" if kind == "Scale" else "Add", x, constant), tensors[x]
    return b.add(kind, x, **({"alpha": 0.25} if kind == "LeakyRelu" else {})), tensors[x]


OPERATORS = {
    "convolution": _convolution,
    "more convolution": _convolution,
    "transposed": _transposed,
    "pool": _pool,
    "pair": _pair,
    "residual": _residual,
    "movement": _movement,
    "function": _function,
}

MOVES = ("MaxPool", "Concat", "Slice", "Pad", "Resize", "Split", "Flatten")


def quantized(model, x, rng, power_of_two):
    """Return a float model with pairs: one type for all activations, scales as they come."""
    names = [n for node in model.graph.node for n in node.output]
    values = {"x": x, **Probe(model, names, exact=False).run({"x": x})}
    kind = np.dtype(rng.choice(["int8", "uint8"]))
    asymmetric, per_channel = bool(rng.integers(2)), bool(rng.integers(2)) and not power_of_two
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    made = _Pairs(constants, kind)
    axes = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0}
    weights = {n.input[1]: axes[n.op_type] for n in model.graph.node if n.op_type in axes}
    weights |= {
        each: None
        for node in model.graph.node
        if node.op_type in ("Add", "Mul")
        for each in node.input
        if each in constants
    }
    grids = _grids(model, values, kind, rng, power_of_two, asymmetric)
    inner = _inner(model)
    name = {"x": made.pair("x", *grids["x"])}
    for node in model.graph.node:
        read = [name.get(n, n) for n in node.input]
        for index, each in enumerate(node.input):
            if each in weights and each not in name:
                axis = weights[each] if per_channel else None
                name[each] = made.weight(each, axis, power_of_two)
                read[index] = name[each]
        if node.op_type in axes and len(node.input) == 3 and rng.random() < 0.8:
            read[2] = made.bias(node.input[2], grids[node.input[0]][0], node.input[1])
        kinds = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        made.nodes.append(helper.make_node(node.op_type, read, list(node.output), **kinds))
        for output in node.output:
            if output not in inner:
                name[output] = made.pair(output, *grids[output])
    outputs = [onnx.ValueInfoProto(name=name[o.name]) for o in model.graph.output]
    constants = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph(made.nodes, "random", list(model.graph.input), outputs, constants)
    opset = [helper.make_opsetid("", 17)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opset, ir_version=8)
    )


class _Pairs:
    """Nodes and constants of a model that gets pairs."""

    def __init__(self, constants, kind):
        self.constants, self.kind, self.nodes = constants, kind, []

    def pair(self, tensor, scale, zero):
        parameters = [f"{tensor}_scale", f"{tensor}_zero"]
        values = np.float32(scale), np.array(zero, self.kind)
        self.constants.update(zip(parameters, map(np.asarray, values), strict=True))
        names = [tensor, f"{tensor}_q", f"{tensor}_dq"]
        for op, (source, result) in zip(
            ("QuantizeLinear", "DequantizeLinear"), pairwise(names), strict=True
        ):
            self.nodes.append(helper.make_node(op, [source, *parameters], [result]))
        return names[-1]

    def weight(self, tensor, axis, power_of_two):
        value = self.constants.pop(tensor)
        others = tuple(a for a in range(value.ndim) if a != axis)
        reach = np.abs(value).max(axis=None if axis is None else others)
        scale = np.asarray(np.maximum(reach, 1e-3) / 127)
        scale = (2.0 ** np.ceil(np.log2(scale)) if power_of_two else scale).astype(np.float32)
        shaped = scale if axis is None else np.expand_dims(scale, others)
        integers = np.clip(np.rint(value / shaped), -127, 127).astype(np.int8)
        names = [f"{tensor}_{part}" for part in ("int", "scale", "zero")]
        values = integers, scale, np.zeros(scale.shape, np.int8)
        self.constants.update(zip(names, values, strict=True))
        extra = {} if axis is None else {"axis": axis}
        self.nodes.append(helper.make_node("DequantizeLinear", names, [f"{tensor}_dq"], **extra))
        return f"{tensor}_dq"

    def bias(self, tensor, data_scale, weight):
        """Put a bias on the grid of the sums, as quantisers do."""
        scale = (np.float32(data_scale) * self.constants[f"{weight}_scale"]).astype(np.float32)
        names = [f"{tensor}_{part}" for part in ("int", "scale", "zero")]
        steps = np.rint(self.constants.pop(tensor) / scale).astype(np.int32)
        values = steps, scale, np.zeros(scale.shape, np.int32)
        self.constants.update(zip(names, values, strict=True))
        extra = {"axis": 0} if scale.ndim else {}
        self.nodes.append(helper.make_node("DequantizeLinear", names, [f"{tensor}_dq"], **extra))
        return f"{tensor}_dq"


def _inner(model):
    """Return results of sums of products that only a Relu or Clip reads: rounded behind it."""
    readers = {}
    for node in model.graph.node:
        for each in node.input:
            readers.setdefault(each, []).append(node.op_type)
    products = ("Conv", "Add", "Sub")
    return {
        n.output[0]
        for n in model.graph.node
        if n.op_type in products and readers.get(n.output[0]) in (["Relu"], ["Clip"])
    }


def _grids(model, values, kind, rng, power_of_two, asymmetric):
    """Return scale and zero point of each tensor; one for all that only moves."""
    found = {}
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    for name, value in values.items():
        least, most = min(float(value.min()), 0.0), max(float(value.max()), 1e-3)
        scale = (most - least) / 255 if asymmetric else max(-least, most) / 127
        scale *= rng.uniform(0.7, 1.3)
        if power_of_two:
            scale = 2.0 ** np.ceil(np.log2(scale))
        zero = round(low - least / scale) if asymmetric else (128 if kind == np.uint8 else 0)
        found[name] = scale, int(np.clip(zero, low, high))
    for node in reversed(model.graph.node):
        if node.op_type in MOVES:
            for name in node.input:
                if name in found:
                    found[name] = found[node.output[0]]
    for node in model.graph.node:
        if node.op_type in MOVES:
            for name in node.output:
                found[name] = found[node.input[0]]
    return found
