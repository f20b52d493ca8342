"""Compare a network with its file: the file in its own runtime, the graph in the NumPy executor.

Each node of the graph gets the file's own values of what it reads, so a difference belongs to the
node that makes it. A difference is explained by a promise of docs/quantization.md, which says how
far the number before rounding may be from the file's (`slack`); otherwise the graph is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vtaops.base.agreement import Agreement
from vtaops.base.errors import FileMismatch, ModelError, ShapeError, UnsupportedError, VTAError
from vtaops.base.optional import install_command, optional
from vtaops.base.shapes import Array
from vtaops.frontends.importing import Shapes, import_model
from vtaops.frontends.litert import has_litert, reference, runs
from vtaops.frontends.promises import FLOAT_ERROR, HOST_ERROR, slack
from vtaops.frontends.tflite import tensors_of
from vtaops.frontends.values import RANDOM
from vtaops.graph import Graph, Node, Quantize, Requantization, Tensor, onnx_files
from vtaops.graph import operators as ops
from vtaops.graph.executor import evaluate_node
from vtaops.graph.probe import Probe

Sample = Mapping[str, Array]
"""One array for each input, by name."""


@dataclass(frozen=True)
class Compiled:
    """The graph of a file, and the graph that the hardware computes in its place.

    Attributes
    ----------
    imported, graph : Graph
        The two graphs; tensors of one name have one meaning.
    steps : mapping of str to int
        By how many steps a node of `graph` may differ, where its hardware rounds coarsely.
    """

    imported: Graph
    graph: Graph
    steps: Mapping[str, int]


def agreement(
    source: Any, compiled: Compiled, samples: Iterable[Sample] = (), shapes: Shapes | None = None
) -> Agreement:
    """Compare a network with the file or the ONNX model that it was imported from.

    Parameters
    ----------
    source
        As for `import_model`.
    compiled
        The network.
    samples
        Inputs to compare on, by the names of the graph's inputs. By default two are drawn.
    shapes
        As for `import_model`.

    Raises
    ------
    FileMismatch
        If a node computes something else than the file; the message names it, and both values.
    VTAError
        If a sample does not suit the file; nothing is compared where this is true of drawn inputs.
    """
    if reason := _not_compared(source):
        return Agreement(reason=reason)
    ordered = [_in_order(compiled.imported, sample) for sample in samples]
    try:
        drawn = ordered or [*_drawn(compiled.imported)]
        every = _by_tensor(source, compiled, drawn, shapes).values()
        runtime = max((one.runtime for one in every), default="")
        total = sum(every, Agreement(runtime))
        return replace(total, inputs=len(drawn), tensors=len(every))
    except FileMismatch:
        raise
    except VTAError as error:
        if ordered:
            raise
        return Agreement(reason=f"give inputs, for drawn ones do not suit it: {error}")


def differences(
    source: Any, sample: Sample, *, shapes: Shapes | None = None
) -> dict[str, Agreement]:
    """Return how the graph of a file compares with the file on one input, tensor by tensor.

    Parameters
    ----------
    source, shapes
        As for `import_model`: an ONNX model, or the path of a file.
    sample
        One array for each input, by name.

    Raises
    ------
    FileMismatch
        If a node computes something else than the file; the message names it, and both values.
    UnsupportedError
        If nothing runs the file, or there is none.
    """
    if reason := _not_compared(source):
        raise UnsupportedError(f"the network cannot be compared: {reason}")
    graph = import_model(source, shapes=shapes)
    compiled = Compiled(graph, graph, {})
    return _by_tensor(source, compiled, [_in_order(graph, sample)], shapes)


def _not_compared(source: Any) -> str:
    """Return why a source cannot be compared; empty if it can."""
    if not (isinstance(source, str | Path) or type(source).__module__.startswith("onnx")):
        return "it does not come from a file"
    if not str(source).endswith(".tflite"):
        return ""
    if not has_litert():
        return f"LiteRT is not installed: {install_command('litert')}"
    return "" if runs(Path(source)) else "LiteRT cannot run it"


def _by_tensor(
    source: Any, compiled: Compiled, given: Sequence[Sequence[Array]], shapes: Shapes | None
) -> dict[str, Agreement]:
    """Return a comparison for each tensor, summed over the inputs."""
    is_tflite, graph = str(source).endswith(".tflite"), compiled.imported
    file = _TfliteFile(Path(source)) if is_tflite else _OnnxFile(source, shapes, graph)
    found: defaultdict[str, Agreement] = defaultdict(partial(Agreement, file.runtime, tensors=1))
    for arrays in given:
        for name, one in _compared(file, compiled, arrays):
            found[name] += one
    return found


def _in_order(graph: Graph, sample: Sample) -> list[Array]:
    names = [tensor.name for tensor in graph.inputs]
    if sorted(names) != sorted(sample):
        raise ModelError(f"a sample has the inputs {[*sample]}; {graph.name} takes {names}")
    return [np.asarray(sample[name]) for name in names]


def _drawn(graph: Graph) -> Iterator[list[Array]]:
    """Yield two inputs: noise over the whole range, and planes of different levels with little."""
    rng = np.random.default_rng(0)
    for share in (1.0, 0.25):
        yield [_draw(tensor, graph, share, rng) for tensor in graph.inputs]


_RANGES = {"float32": (-1.0, 1.0), "int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}


def _draw(tensor: Tensor, graph: Graph, share: float, rng: np.random.Generator) -> Array:
    low, high = _RANGES.get(tensor.dtype, (0.0, 1.0))  # indices, for one, are at least in range
    for node in graph.consumers(tensor):
        if isinstance(node.op, Quantize):
            low, high = ((end - node.op.zero_point) * node.op.scale for end in (-128, 127))
    planes = (*tensor.shape[:2], *(1 for _ in tensor.shape[2:]))
    levels = rng.uniform(low, high, planes) * (1 - share)
    values = levels + share * rng.uniform(low, high, tensor.shape)
    return np.asarray(values if tensor.dtype == "float32" else np.rint(values), tensor.dtype)


# ---------------------------------------------------------------------------- the file's values


@dataclass(frozen=True)
class Stated:
    """What the file says of a tensor of the graph.

    Attributes
    ----------
    name
        The file's name of the tensor.
    values
        Its values, of the dtype of the graph's tensor.
    before
        The numbers before rounding, as floats; None if the file does not have them.
    most
        By how many steps roundings of one number may differ.
    """

    name: str
    values: Array
    before: Array | None = None
    most: int = 1


def _signed(values: Array, tensor: Tensor) -> Array:
    """Return integers of the file as the graph has them."""
    unsigned = values.dtype == np.uint8 and tensor.dtype == "int8"
    return (values ^ np.uint8(128)).view(np.int8) if unsigned else values


class _TfliteFile:
    """A TFLite file in LiteRT's reference kernels, which its graph equals in every value."""

    def __init__(self, path: Path) -> None:
        litert = optional("ai_edge_litert", "ai-edge-litert", "", "")
        self.runtime = f"LiteRT {litert.__version__}"
        self._path, self._places = path, tensors_of(path)

    def run(self, arrays: Sequence[Array]) -> None:
        self._values_of = reference(self._path, arrays)

    def of(self, node: Node, tensor: Tensor) -> Stated | None:
        """Return what the file says of a tensor."""
        place = self._places.get(tensor.name)
        if place is None or tensor.dtype != "int8":
            return None
        number, image, name = place
        values = _signed(self._values_of(number), tensor)
        floats = isinstance(node.op, ops.LookupTable | Quantize)  # rounded once
        values = np.ascontiguousarray(values.transpose(0, 3, 1, 2) if image else values)
        return Stated(name, values, most=int(floats))


_CLIPS = frozenset({"Relu", "Clip"})
_VARIADIC = frozenset({"Concat", "Identity", "Max", "Mean", "Min", "Sum"})


def _passes(node: onnx_files.NodeProto) -> bool:
    """Return whether a node makes no other tensor than its only input."""
    return node.op_type in _VARIADIC and len(node.input) == 1


def _before_rounding(links: onnx_files.Connections, name: str, kept: Collection[str]) -> str:
    """Return the float tensor of which a tensor is the only rounding; empty if there is none.

    A graph joins a rounding, a clip, and a second rounding to the same grid.
    """
    while (rounding := links.writers.get(name)) and rounding.op_type == "QuantizeLinear":
        before = str(rounding.input[0])
        writer = links.writers.get(before)
        while writer is not None and (writer.op_type in _CLIPS or _passes(writer)):
            writer = links.writers.get(writer.input[0])
        if writer is None or writer.op_type != "DequantizeLinear":
            return "" if _is_rounded_before(links, before, kept) else before
        name = writer.input[0]
        if name in kept:
            return before
    return ""


def _roundings(links: onnx_files.Connections, name: str) -> list[onnx_files.NodeProto]:
    """Return the roundings of a tensor."""
    found = []
    for reader in links.readers.get(name, []):
        if _passes(reader):
            found += _roundings(links, reader.output[0])
        elif reader.op_type == "QuantizeLinear":
            found.append(reader)
    return found


def _is_rounded_before(links: onnx_files.Connections, name: str, kept: Collection[str]) -> bool:
    """Return whether the graph leaves out a rounding between tensors that it has."""
    stack, seen = [name], set[str]()
    while stack:
        node = links.writers.get(stack.pop())
        if node is None or node.output[0] in seen | {*kept}:
            continue
        if node.op_type == "QuantizeLinear" and node.input[0] not in links.constants:
            return True
        seen |= {*node.output}
        stack += node.input
    return False


class _OnnxFile:
    """An ONNX model in ONNX Runtime, which runs its nodes as they stand."""

    def __init__(self, source: Any, shapes: Shapes | None, graph: Graph) -> None:
        model = onnx_files.opened(source, shapes)
        self.runtime = f"ONNX Runtime {onnx_files.require('onnxruntime').__version__}"
        self._inputs = [value.name for value in model.graph.input]
        links = onnx_files.Connections(model)
        self._places = {
            tensor.name: self._integers(links, node, tensor, graph)
            for node in graph.nodes
            for tensor in node.outputs
            if tensor.dtype == "int8"
        }
        outputs = zip(graph.outputs, model.graph.output, strict=True)
        self._places |= {tensor.name: value.name for tensor, value in outputs}
        kept = {*self._places.values()}
        self._before = {name: _before_rounding(links, name, kept) for name in kept}
        wanted = sorted(({*kept, *self._before.values()} & links.writers.keys()) - {""})
        self._probe = Probe(model, wanted)
        self._values: dict[str, Array] = {}

    def _integers(
        self, links: onnx_files.Connections, node: Node, tensor: Tensor, graph: Graph
    ) -> str:
        """Return the file's integers of a tensor: those of its scale, if it is rounded to more."""
        rounded = node.inputs[0] if isinstance(node.op, Quantize) else tensor
        inputs = dict(zip(graph.inputs, self._inputs, strict=True))
        roundings = _roundings(links, inputs.get(rounded, rounded.name))
        roundings.sort(
            key=lambda n: [*np.ravel(links.constants.get(n.input[1], ()))] != [tensor.scale]
        )
        return str(roundings[0].output[0]) if roundings else tensor.name

    def run(self, arrays: Sequence[Array]) -> None:
        sample = dict(zip(self._inputs, arrays, strict=True))
        self._values = {**sample, **self._probe.run(sample)}

    def of(self, node: Node, tensor: Tensor) -> Stated | None:
        """Return what the file says of a tensor."""
        name = self._places.get(tensor.name, "")
        values = self._values.get(name)
        random = {*getattr(node.op, "operators", ())} & (RANDOM | {"Dropout"})
        if values is None or random:
            return None
        values, before = _signed(values, tensor), self._values.get(self._before.get(name, ""))
        return Stated(name, values, before) if values.dtype == tensor.dtype else None


# ---------------------------------------------------------------------------------- comparison


def _compared(
    file: _TfliteFile | _OnnxFile, compiled: Compiled, arrays: Sequence[Array]
) -> Iterator[tuple[str, Agreement]]:
    """Compare the graph with the file on one input, and with the graph that replaces it."""
    graph = compiled.imported
    file.run(arrays)
    values = {tensor.name: array for tensor, array in zip(graph.inputs, arrays, strict=True)}
    errors: dict[str, float] = {}
    for node in graph.nodes:
        inherited = max((errors.get(tensor.name, 0.0) for tensor in node.inputs), default=0.0)
        error = inherited + (slack(node) if isinstance(file, _OnnxFile) else 0.0)
        made = evaluate_node(node, values)
        for tensor in node.outputs:
            ours, stated = made[tensor.name], file.of(node, tensor)
            if stated is None:
                values[tensor.name], errors[tensor.name] = ours, error
                continue
            values[tensor.name] = stated.values
            if stated.name:
                name = stated.name if isinstance(file, _TfliteFile) else tensor.name
                halves, scales = _differences(node, tensor, stated, ours, error)
                yield name, Agreement("", 1, 1, ours.size, halves, scales)
    _check_hardware(compiled, values)


def _differences(
    node: Node, tensor: Tensor, stated: Stated, ours: Array, error: float
) -> tuple[int, int]:
    """Return the number of differences that are halves, and that scales explain.

    Raises
    ------
    FileMismatch
        If something else differs.
    """
    theirs = stated.values
    if theirs.shape != ours.shape:  # an input states it, or an axis
        raise ShapeError(
            f"the file's tensor {stated.name!r} has the shape {theirs.shape} for this input; the "
            f"graph's {node.op.kind} has {ours.shape}"
        )
    if theirs.dtype != np.int8:
        far = _far_apart(theirs, ours)
        if far.any():
            raise _at_first(node, stated, ours, far)
        return 0, 0
    differs = np.asarray(theirs != ours)
    mine = ours[differs].astype(np.int64)
    close = np.abs(theirs[differs] - mine) <= stated.most + error
    count = 0
    if stated.before is not None:
        scaling = getattr(node.op, "requantization", Requantization())
        low, high = (end - tensor.zero_point for end in scaling.clip)
        exact = stated.before[differs].astype(np.float64) / tensor.scale
        distance = np.abs(np.clip(exact, low, high) - (mine - tensor.zero_point))
        close &= distance <= 0.5 + error + 256 * FLOAT_ERROR
        count = int(np.count_nonzero(close & (distance == 0.5)))
    if not close.all():
        differs[differs] = ~close
        raise _at_first(node, stated, ours, differs)
    return count, len(close) - count


def _far_apart(theirs: Array, ours: Array) -> Array:
    """Return where values that are not of 8 bits differ by more than the host may."""
    if theirs.dtype.kind != "f":
        return np.asarray(theirs != ours)
    finite = np.abs(theirs[np.isfinite(theirs)])
    return ~np.isclose(
        ours, theirs, rtol=0, atol=HOST_ERROR * finite.max(initial=0), equal_nan=True
    )


def _at_first(node: Node, stated: Stated, ours: Array, far: Array) -> FileMismatch:
    index = np.argwhere(far)[0].tolist()
    theirs, mine = (array[tuple(index)].item() for array in (stated.values, ours))
    place = f" at {index}" if index else ""
    return FileMismatch(
        f"the file's tensor {stated.name!r} is {theirs}{place}; the graph's {node.op.kind} makes "
        f"{mine}. No promise of docs/quantization.md explains it ({100 * far.mean():.2g} % of the "
        "tensor): a fault of vtaops. check=False, or --no-check, compiles the network all the same"
    )


# ------------------------------------------------------------ the graph that the hardware computes


def _check_hardware(compiled: Compiled, values: Mapping[str, Array]) -> None:
    """Compare the nodes that were replaced for the hardware with those that they replace.

    Raises
    ------
    FileMismatch
        If one differs by more steps than its rounding explains.
    """
    known = dict(values)
    imported = {node.name: node for node in compiled.imported.nodes}
    leaves: dict[str, set[str]] = {}
    steps = dict(compiled.steps)
    for node in compiled.graph.nodes:
        names, before = {tensor.name for tensor in node.inputs}, imported.get(node.name)
        if getattr(before, "op", None) is node.op:
            continue
        read = set().union(*(leaves.get(name, {name}) for name in names))
        made = evaluate_node(node, known)
        steps[node.name] = max(steps.get(name, 0) for name in (node.name, *(names & {*leaves})))
        if before is None:  # a part of the next one
            known |= made
            leaves[node.name] = read
            continue
        theirs = _from(compiled.imported, before, {name: values[name] for name in read})
        apart = np.abs(theirs.astype(np.int64) - made[node.name])
        if (apart > steps[node.name]).any():
            raise _at_first(node, Stated(node.name, theirs), made[node.name], apart > 0)


def _from(graph: Graph, node: Node, values: dict[str, Array]) -> Array:
    """Return the result of a node of a graph, computed from other tensors."""
    for tensor in node.inputs:
        maker = graph.maker(tensor)
        if maker is not None and tensor.name not in values:
            _from(graph, maker, values)
    values |= evaluate_node(node, values)
    return values[node.name]
