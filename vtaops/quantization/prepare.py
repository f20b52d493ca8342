"""Prepare a float graph for quantisation: optimise it, and use operators that VTA has.

Every rewrite keeps the function of the model: a sum of two becomes an addition, a batch norm that
cannot be folded into a convolution becomes a depthwise 1x1 convolution, and a mean over the image a
global average. Activations after a concatenation move to its parts, where they are free. ONNX
Runtime folds batch norms and pads into convolutions, and most factors and terms; `_fold_affine` the
others, 2 of 14 million cycles of DenseNet-121. onnxscript's rules fold only norms and pads.

Tensors that a step of quantisation adds are called NAME:PART, as no exporter calls others.
"""

from __future__ import annotations

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.shapes import Array
from vtaops.base.temporary import TemporaryFolder
from vtaops.frontends.functions import AFFINE
from vtaops.graph.onnx_files import (
    Arrays,
    Connections,
    ModelProto,
    NodeProto,
    additions,
    attributes,
    make_node,
    require,
)
from vtaops.graph.probe import runtime_session
from vtaops.quantization.rewrites import (
    mixed_heads,
    norm_of_token,
    response_norm,
    softmax_along_rows,
    transpose_of_scores,
)
from vtaops.quantization.rewriting import Nodes, Rewriting
from vtaops.quantization.scales import SATURATING

SMALLEST_DIVISOR = 2.0**-100
"""Magnitude of divisors above which reciprocals are finite, and large enough to be exact."""


def prepare(model: ModelProto) -> ModelProto:
    """Return the model optimised by ONNX Runtime and rewritten to operators that VTA has.

    Raises
    ------
    ModelError
        If ONNX Runtime rejects the model.
    """
    onnx = require("onnx")
    with TemporaryFolder() as folder:
        path = folder / "optimized.onnx"
        runtime_session(model, "ORT_ENABLE_BASIC", optimized_model_filepath=str(path))
        prepared = onnx.load(str(path))
    Rewriting(prepared).run(dict.fromkeys(("Add", "Mul", "Where"), _unchanged))
    Rewriting(prepared).run(
        {
            "Sum": _sum,
            "BatchNormalization": _batch_norm,
            "InstanceNormalization": _norm_of_rows,
            "ReduceMean": _reduce_mean,
            "Gemm": _gemm,
            "Max": _bound,
            "Min": _bound,
            "Div": lambda graph, node: response_norm(graph, node) or _quotient(graph, node),
            "Transpose": transpose_of_scores,
            "Softmax": softmax_along_rows,
            "MatMul": mixed_heads,
            "Reshape": mixed_heads,
            "Gather": norm_of_token,
        }
    )
    convolutions = dict.fromkeys(("Conv", "ConvTranspose"), _fold_affine)
    Rewriting(prepared).run({"Concat": _activate_parts, **convolutions})
    _name_nodes(prepared)
    result: ModelProto = onnx.shape_inference.infer_shapes(prepared)
    return result


# ------------------------------------------------------------------------- what changes nothing


NEUTRAL = {"Add": 0, "Mul": 1}
"""Numbers that change no other in operators of two."""


def _unchanged(graph: Rewriting, node: NodeProto) -> str | None:
    """Return the input that the result is: of ``x + 0``, ``x * 1``, or a choice that is decided."""
    if node.op_type == "Where" and node.input[0] not in graph.constants:
        return _softmax_behind(graph.tensors, *node.input)
    shape, taken = graph.shapes.get(node.output[0]), _taken(node, graph.constants)
    return next((n for n in taken if n in graph.shapes and graph.shapes[n] == shape), None)


def _taken(node: NodeProto, constants: Arrays) -> list[str]:
    """Return the inputs whose elements a node takes as they are, maybe for more of them."""
    names: list[str] = [*node.input]
    if node.op_type in NEUTRAL:
        pairs, idle = (names, names[::-1]), NEUTRAL[node.op_type]
        return [n for n, c in pairs if c in constants and (constants[c] == idle).all()]
    chosen = constants[names[0]]
    return names[1:2] if chosen.all() else [] if chosen.any() else names[2:]


def _softmax_behind(tensors: Connections, test: str, _: str, result: str) -> str | None:
    """Return the softmax that ``Where(IsNaN(softmax), 0, softmax)`` is; None if it is none."""
    check, softmax = (tensors.writers.get(name) for name in (test, result))
    if softmax is None or check is None or [*check.input] != [result]:
        return None
    if (check.op_type, softmax.op_type) != ("IsNaN", "Softmax"):
        return None
    terms = tensors.writers.get(softmax.input[0], softmax).input
    masks = (tensors.constants[name] for name in terms if name in tensors.constants)
    return result if all(map(_leaves_some, masks)) else None


def _leaves_some(mask: Array) -> bool:
    """Return whether a mask leaves a number in each row."""
    return mask.ndim > 0 and bool((mask.max(axis=-1, initial=-np.inf) > -1e30).all())


# ---------------------------------------------------------------------- nodes that VTA has not


def _sum(_: Rewriting, node: NodeProto) -> Nodes:
    """Return a sum of n tensors as n - 1 additions."""
    return additions(node) or [make_node("Identity", node.input, node.output)]


def _bound(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return an extremum of a tensor and a number as a Clip."""
    names, constants = {*node.input}, graph.constants
    numbers = {name for name in names & constants.keys() if constants[name].size == 1}
    if len(names) != 2 or len(numbers) != 1:
        return None
    (data,), value = names - numbers, constants[numbers.pop()]
    if value.dtype != np.float32 or value.ndim > len(graph.shapes.get(data, ())):
        return None
    bound = graph.store(f"{node.output[0]}:bound", value.reshape(()))
    ends = [bound] if node.op_type == "Max" else ["", bound]
    return [make_node("Clip", [data, *ends], node.output, name=node.name)]


def _quotient(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return a division by a constant as a product with its reciprocal, which integers have."""
    value = graph.constants.get(node.input[1])
    if value is None or value.dtype != np.float32 or not np.all(np.abs(value) > SMALLEST_DIVISOR):
        return None
    constants = {"factor": 1 / value.astype(np.float64)}
    return graph.written("result = Mul (data, factor)", node, constants)


def _gemm(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return a product whose factors are 1 and whose bias is a vector or an addition."""
    attrs, (result,) = attributes(node), node.output
    data, *others = filter(None, node.input)
    inputs = dict(zip(("weight", "bias"), others, strict=False))
    scales = {"weight": attrs.pop("alpha", 1.0), "bias": attrs.pop("beta", 1.0)}
    scaled = [part for part in inputs if scales[part] != 1]
    if not {inputs[part] for part in scaled} <= graph.constants.keys():
        return None
    for part in scaled:
        value = graph.constants[inputs[part]] * np.float32(scales[part])
        inputs[part] = graph.store(f"{result}:{part}", value)
    row = _row(graph.constants, *inputs.values(), transposed=bool(attrs.get("transB", 0)))
    if row is not None:
        inputs["bias"] = graph.store(f"{result}:bias", row)
    if "bias" not in inputs or row is not None:
        return [make_node("Gemm", [data, *inputs.values()], [result], name=node.name, **attrs)]
    alone = f"{result}:scaled"
    product = make_node("Gemm", [data, inputs["weight"]], [alone], name=node.name, **attrs)
    return [product, make_node("Add", [alone, inputs["bias"]], [result])]


def _row(constants: Arrays, weight: str, term: str = "", *, transposed: bool) -> Array | None:
    """Return the term of a product as a vector; None if it is none, differs by row, or is wrong."""
    value = constants.get(term)
    if value is None or weight not in constants or (value.ndim > 1 and len(value) > 1):
        return None
    units = constants[weight].shape[0 if transposed else 1]
    return np.broadcast_to(value.reshape(-1), (units,)) if value.size in (1, units) else None


def _batch_norm(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return a batch norm as a depthwise 1x1 convolution with scale / deviation.

    That of a matrix becomes a product and a sum, which `_fold_affine` may fold.
    """
    if len(node.output) != 1 or not all(name in graph.constants for name in node.input[1:]):
        return None
    scale, shift, mean, variance = (graph.constants[n].astype(np.float64) for n in node.input[1:])
    factor = scale / _deviation(node, variance)
    rank = len(graph.shapes.get(node.input[0], ())) or 4
    weight = factor.reshape(-1, *[1] * (rank - 1)) if rank > 2 else factor
    text = "scaled = Mul (data, weight)\nresult = Add (scaled, bias)"
    if rank > 2:
        form = f"kernel_shape = {[1] * (rank - 2)}, group = {len(factor)}"
        text = f"result = Conv <{form}> (data, weight, bias)"
    return graph.written(text, node, {"weight": weight, "bias": shift - mean * factor})


def _deviation(node: NodeProto, variance: Array) -> Array:
    """Return the standard deviation by which a batch norm divides."""
    spread = variance + attributes(node).get("epsilon", 1e-5)
    if not (np.isfinite(spread).all() and spread.min(initial=1.0) > 0):
        raise ModelError(
            f"BatchNormalization {node.name or node.output[0]!r} has a variance of "
            f"{spread.min():g} with epsilon; it must be positive and finite"
        )
    return np.asarray(np.sqrt(spread))


LAYER_NORMS = 17
"""The opset from which ONNX has layer norms."""


def _norm_of_rows(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return an instance norm of rows, as exporters write group norms, as a layer norm."""
    shape = graph.shapes.get(node.input[0], ())
    scale, bias = (graph.constants.get(name) for name in node.input[1:])
    known = any(e.version >= LAYER_NORMS for e in graph.model.opset_import if not e.domain)
    if len(shape) != 3 or not known or not (np.all(scale == 1) and np.all(bias == 0)):
        return None
    constants = {"weight": np.ones(shape[2]), "bias": np.zeros(shape[2])}
    form = f"axis = -1, epsilon = {attributes(node).get('epsilon', 1e-5)}"
    return graph.written(
        f"result = LayerNormalization <{form}> (data, weight, bias)", node, constants
    )


_TURNED = """\
part0 = Transpose <perm = [0, 2, 1]> (data)
pooled = GlobalAveragePool (part0)
"""
_MEANS = {
    (4, 2, 3, 0): "pooled = GlobalAveragePool (data)\nresult = Flatten (pooled)",
    (4, 2, 3, 1): "result = GlobalAveragePool (data)",
    (3, 1, 0): _TURNED + "result = Flatten (pooled)",
    (3, 1, 1): _TURNED + "result = Transpose <perm = [0, 2, 1]> (pooled)",
}
"""Means of some rank along some axes, which are kept or not."""


def _reduce_mean(graph: Rewriting, node: NodeProto) -> Nodes | None:
    """Return a mean over height and width, or over tokens (1), as a global average."""
    rank, attrs = len(graph.shapes.get(node.input[0], ())), attributes(node)
    axes = attrs.get("axes", graph.constants.get([*node.input, ""][1], ()))
    known = sorted(int(axis) % max(rank, 1) for axis in axes)
    text = _MEANS.get((rank, *known, attrs.get("keepdims", 1)))
    return graph.written(text, node) if text else None


# ------------------------------------------------------------------------- the whole graph


def _activate_parts(graph: Rewriting, concat: NodeProto) -> Nodes | None:
    """Move an activation that alone reads a concatenation before it."""
    activation = graph.tensors.only_reader(concat.output[0])
    if activation is None or activation.op_type not in SATURATING:
        return None
    (result,), bounds = activation.output, activation.input[1:]
    active = [
        make_node(activation.op_type, [name, *bounds], [f"{result}:part{number}"])
        for number, name in enumerate(concat.input)
    ]
    graph.done.add(result)
    concat.input[:], concat.output[:] = [node.output[0] for node in active], [result]
    return [*active, concat]


def _name_nodes(model: ModelProto) -> None:
    """Give each node a name of its own."""
    seen = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
        seen.add(node.name)


def _fold_affine(graph: Rewriting, node: NodeProto) -> None:
    """Fold factors and terms after a convolution into it.

    This is exact in float; on integers, each of them would be another rounding.
    """
    tensors, (name,) = graph.tensors, node.output
    if (found := _weight_and_bias(node, graph.constants)) is None:
        return
    weight, bias = found
    axis = int(node.op_type == "ConvTranspose")
    while function := _affine(tensors.only_reader(name), name, graph.constants, len(bias)):
        reader, factor, term = function
        weight = weight * np.expand_dims(factor, tuple({0, 1, 2, 3} - {axis}))
        bias = bias * factor + term
        (name,) = reader.output
        graph.done.add(name)
    if name != node.output[0]:
        constants = graph.store(f"{name}:weight", weight), graph.store(f"{name}:bias", bias)
        node.input[1:], node.output[:] = constants, [name]


def _weight_and_bias(node: NodeProto, constants: Arrays) -> tuple[Array, Array] | None:
    """Return weight and bias of a convolution as float64; None if they are not constants.

    A node with a bias of the wrong length is not a valid convolution; ONNX Runtime rejects it
    later.
    """
    transposed = node.op_type == "ConvTranspose"
    if not (node.op_type == "Conv" or (transposed and attributes(node).get("group", 1) == 1)):
        return None
    if any(name not in constants for name in node.input[1:]):
        return None
    weight, *given = (constants[name].astype(np.float64) for name in node.input[1:])
    channels = weight.shape[int(transposed)]
    bias = given[0] if given else np.zeros(channels)
    return (weight, bias) if bias.shape == (channels,) else None


def _affine(
    node: NodeProto | None, name: str, constants: Arrays, channels: int
) -> tuple[NodeProto, Array, Array] | None:
    """Return a node that computes ``factor * x + term``, with both for each channel; else None."""
    if node is None or node.op_type not in AFFINE:
        return None
    place = [*node.input].index(name)
    rule, constant = AFFINE[node.op_type][place], constants.get(node.input[1 - place])
    if rule is None or constant is None:
        return None
    if (1,) * (4 - constant.ndim) + constant.shape not in ((1, 1, 1, 1), (1, channels, 1, 1)):
        return None
    numbers = rule(constant.reshape(-1).astype(np.float64))
    factor, term = (np.broadcast_to(part, channels) for part in numbers)
    return node, factor, term
