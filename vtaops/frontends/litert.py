"""Compare a network with LiteRT's reference kernels, which define a TFLite file bit for bit.

The integer executor computes each operator of the file from LiteRT's integers, so a difference is
located where it arises. The graph of a file has none; the graph of a compiled network has those
that its hardware cannot avoid (`vtaops plan` counts them).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vtaops.base.errors import ModelError
from vtaops.base.optional import optional
from vtaops.base.shapes import Array
from vtaops.frontends.tflite import tensors_of
from vtaops.graph import Graph, Node, Quantize
from vtaops.graph.executor import checked_inputs, evaluate_node

Compared = tuple[str, Node, str, Array, Array]
"""A tensor: its name in the file (empty if the file has none), its node and name in the graph, and
its values in LiteRT and in the executor, in the graph's layout."""


Place = tuple[int, bool, str]
"""The number of a tensor, whether the graph has it as NCHW, and its name."""


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
    inputs = interpreter.get_input_details()
    if len(inputs) != len(arrays):
        raise ModelError(f"{path} takes {len(inputs)} inputs; {len(arrays)} given")
    for detail, array in zip(inputs, arrays, strict=True):
        if array.shape != tuple(detail["shape"]) or array.dtype != detail["dtype"]:
            stated = f"{np.dtype(detail['dtype'])}{detail['shape'].tolist()}"
            raise ModelError(
                f"{detail['name']} is {array.dtype}{list(array.shape)}; {path} takes {stated}"
            )
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return lambda number: np.asarray(interpreter.get_tensor(number))


def compare(path: Path, graph: Graph, arrays: Sequence[Array]) -> Iterator[Compared]:
    """Yield a comparison for each tensor that the graph of a file computes.

    Each node reads LiteRT's values of the tensors that the file has.

    Raises
    ------
    ModelError
        If the graph does not belong to the file.
    """
    values_of, places = reference(path, arrays), tensors_of(path)
    if [tensor.shape for tensor in graph.inputs] != [array.shape for array in arrays]:
        raise ModelError(f"{graph.name} is not a graph of {path}, whose inputs have other shapes")
    values = checked_inputs(graph.inputs, arrays)
    for node in graph.nodes:
        made = evaluate_node(node, values)
        for name, own in made.items():
            place = _place(places, node, name) if own.dtype == np.int8 else None
            theirs = own if place is None else _as_in_graph(values_of(place[0]), place[1])
            if theirs.shape != own.shape:
                raise ModelError(f"{graph.name} is not a graph of {path}, which has another {name}")
            values[name] = theirs
            yield "" if place is None else place[2], node, name, theirs, own


def _place(places: Mapping[str, Place], node: Node, name: str) -> Place | None:
    """Return where the file has a tensor; what a node rounds may have the name."""
    found = places.get(name)
    return found or (places.get(node.inputs[0].name) if isinstance(node.op, Quantize) else None)


def _as_in_graph(values: Array, image: bool) -> Array:
    """Return LiteRT's values of a tensor as the graph has them: int8, and images as NCHW."""
    values = values.transpose(0, 3, 1, 2) if image else values
    unsigned = values.dtype == np.uint8
    return np.ascontiguousarray((values ^ 128).view(np.int8) if unsigned else values)
