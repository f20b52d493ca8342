"""Every field of a description crossed with every operator: right, or refused when it is made.

The fields are those of the dataclasses, and their values follow from their annotations, so a new
field or operator joins by itself: one of an unknown type, or without a base, is an error here.
``operator 7`` and ``node 7`` are cases by number; each runs on one configuration, with a further
round on the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import product
from typing import Any, get_args

import numpy as np

import vtaops
from trials.campaign import Campaign, Result, result
from vtaops import HardwareConfig, ops
from vtaops.base.errors import ShapeError, VTAError
from vtaops.graph import (
    Add,
    FineRequantization,
    Graph,
    Quotient,
    Requantization,
    Requantize,
    Tensor,
    TfliteRequantization,
)
from vtaops.graph import operators as graph_operators
from vtaops.graph.operators import GraphOperator
from vtaops.ops.elementwise import Function
from vtaops.ops.epilogue import Rounding as ShiftRounding
from vtaops.ops.reference import evaluate, random_arguments

LARGEST = 1 << 17
"""Elements of a node's result, or of an operator's arrays, that are tried."""

# ---------------------------------------------------------------- operators of the accelerator

_NUMBERS = (-128, -3, 0, 1, 2, 3, 8, 15, 16, 31, 47, 127, 1 << 15, 40000, 1 << 23)
_SIDES: tuple[Any, ...] = (0, 1, (1, 0), (0, 1, 2, 0), "same", "valid")
VALUES: dict[str, tuple[Any, ...]] = {
    "int": _NUMBERS,
    "bool": (False, True),
    "bool | None": (None, False, True),
    "Pair": (1, 2, (1, 2), (3, 1)),
    "Pair | None": (None, 1, (2, 1)),
    "Padding": _SIDES,
    "int | tuple[int, int] | Sides": _SIDES,
    "tuple[int, int] | None": (None, (0, 127), (-7, 5), (3, 3), (3, 9), (64, 7)),
    "tuple[int, ...]": ((5,), (3, 4), (2, 3, 4, 4), (2, 20, 1, 3)),
    "Rounding": get_args(ShiftRounding),
    "Function": get_args(Function),
}
"""Values to try of each annotation."""

_IMAGE = {"batch": 2, "height": 5, "width": 4}
_FILTERS = {**_IMAGE, "in_channels": 6, "out_channels": 6, "kernel": 2}
_SCALE = {"multiplier": 40000, "shift": 20, "zero_point": 3, "rounding": "half_up"}
_FINE = {"multiplier": 1 << 23, "shift": 27, "nudge": -3, "fine": 2, "zero_point": 3}
_CHANNELS = {"scales": True, "shift": 0, "zero_point": 3, "bias": True}
BASES: dict[str, tuple[dict[str, Any], ...]] = {
    "Gemm": ({"m": 3, "n": 5, "k": 7}, {"m": 3, "n": 5, "k": 7, **_CHANNELS}),
    "BatchMatmul": (
        {"batch": 2, "m": 3, "n": 5, "k": 7},
        {"batch": 2, "m": 3, "n": 5, "k": 7, **_SCALE},
        {"batch": 2, "m": 3, "n": 5, "k": 7, **_SCALE, "data_zero_point": -128},
    ),
    "Conv2d": (
        _FILTERS,
        {**_FILTERS, "residual": True, "bias": True},
        {**_FILTERS, "residual": True, **_CHANNELS},
    ),
    "Conv2dTranspose": (_FILTERS, {**_FILTERS, "strides": 2, **_CHANNELS}),
    "Elementwise": (
        *({"function": name, "shape": (2, 6, 3, 4)} for name in get_args(Function)),
        {"function": "add", "shape": (2, 6, 3, 4), **_SCALE},
        {"function": "multiply", "shape": (2, 6, 3, 4), **_FINE},
    ),
    "MaxPool2d": ({**_IMAGE, "channels": 6, "kernel": 3},),
    "AvgPool2d": (
        {**_IMAGE, "channels": 6, "kernel": 2},
        {**_IMAGE, "channels": 6, "kernel": 2, **_SCALE},
        {**_IMAGE, "channels": 6, "kernel": 2, **_FINE},
    ),
}
"""Fields of the operators with which each other field is crossed."""


@dataclass(frozen=True)
class Case:
    """A description with one field changed.

    Attributes
    ----------
    text : str
        What was changed.
    make : callable
        Returns the description, or raises why there is none.
    """

    text: str
    make: Any


def operator_cases() -> Iterator[Case]:
    """Yield every field of every operator with every value of its annotation."""
    for name in ops.__all__:
        cls: Any = getattr(ops, name)
        if not (isinstance(cls, type) and is_dataclass(cls)) or cls is ops.Operator:
            continue
        for base in BASES[name]:
            for f in fields(cls):
                for value in VALUES[str(f.type)]:
                    stated = {**base, f.name: value}
                    yield Case(f"{name}({stated})", lambda cls=cls, s=stated: cls(**s))


def judge_operator(case: Case, config: str, seed: int = 0) -> str:
    """Return ``refused``, ``too large``, ``right``, or what is wrong with an operator."""
    try:
        op = case.make()
        if sum(math.prod(b.shape) for b in op.buffers(HardwareConfig.load(config))) > LARGEST:
            return "too large"
        program = vtaops.compile(op, config, capabilities="fsim")
    except VTAError:
        return "refused"
    arrays = random_arguments(op, np.random.default_rng(seed))
    if not np.array_equal(program.run("fsim", *arrays), evaluate(op, arrays)):
        return "wrong"
    return "right" if program.prove().complete else f"not proven: {program.prove().unproven[0]}"


# --------------------------------------------------------------------------- nodes of graphs


def _scalings(channels: int) -> list[Requantization]:
    """Return requantizations of each class; some have a number for each channel."""
    each = np.arange(channels)
    tflite, fine = TfliteRequantization, FineRequantization
    return [
        Requantization(1, 7),
        Requantization(1, 0, zero_point=5, clip=(5, 90)),
        Requantization(40000, 23, zero_point=-128),
        Requantization(40000 + each, 23 + each % 2),
        Requantization(0, 47),
        fine((1 << 23) + 99, 30, nudge=-3, fine=1, zero_point=4),
        fine((1 << 23) + 99, 30, nudge=2, fine=2),
        fine((1 << 23) + 99, 30, nudge=each % 5, fine=3),
        fine((1 << 23) + each, 30 + each % 2, nudge=each % 5, fine=1),
        tflite(1 << 30, 37, rounds="once"),
        tflite((1 << 30) + each, 37, zero_point=3, rounds="once"),
        tflite(1 << 30, 37),
        tflite((1 << 30) + each, 37, zero_point=3),
    ]


def _arrays(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(len(shape)).integers(-99, 100, shape)
    return numbers.astype(dtype)


def _exponentials() -> np.ndarray[Any, Any]:
    """Return both digits of exponentials, all of them 1 but the first, which is 0."""
    tables = np.full((2, 256), 127, np.int8)
    tables[:, 0] = -127, -128
    return tables


_IMAGES = (2, 6, 5, 4)
NODES: dict[str, tuple[dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    "Convolution": ({"weight": _arrays((6, 6, 2, 2), np.int8)}, (_IMAGES,)),
    "TransposedConvolution": ({"weight": _arrays((6, 6, 2, 2), np.int8)}, (_IMAGES,)),
    "Dense": ({"weight": _arrays((6, 6), np.int8)}, ((3, 6),)),
    "Matmul": ({}, ((2, 3, 6), (2, 6, 5))),
    "MaxPool": ({"kernel": (2, 2), "strides": (1, 1)}, (_IMAGES,)),
    "AveragePool": ({"kernel": (2, 2)}, (_IMAGES,)),
    "Add": ({}, (_IMAGES, _IMAGES)),
    "RescaledAdd": (
        {"multipliers": (1 << 30, 1 << 30), "shifts": (31, 32)},
        (_IMAGES, _IMAGES),
    ),
    "Multiply": ({}, (_IMAGES, _IMAGES)),
    "Extremum": ({}, (_IMAGES, _IMAGES)),
    "Requantize": ({}, (_IMAGES,)),
    "LookupTable": ({"table": _arrays((256,), np.int8)}, (_IMAGES,)),
    "Concat": ({}, (_IMAGES, _IMAGES)),
    "Upsample": ({}, (_IMAGES,)),
    "Pad": ({"padding": (1, 0, 0, 1)}, (_IMAGES,)),
    "Slice": ({"axis": 1, "start": 1, "stop": 4}, (_IMAGES,)),
    "Reshape": ({"shape": (2, 120)}, (_IMAGES,)),
    "Transpose": ({"axes": (0, 1, 3, 2)}, (_IMAGES,)),
    "RowNorm": (
        {"weight": np.arange(6, dtype=np.int32) * 3000, "bias": np.full(6, 7, np.int32)},
        ((3, 6),),
    ),
    "RowSoftmax": ({"tables": _exponentials()}, ((3, 6),)),
    "FixedSoftmax": ({}, ((3, 6),)),
    "Constant": ({"value": _arrays(_IMAGES, np.int8)}, ()),
    "Expand": ({"shape": _IMAGES}, ((1, 6, 1, 4),)),
    "FromUint8": ({}, (_IMAGES,)),
    "ToUint8": ({}, (_IMAGES,)),
}
"""Fields and inputs of the operators on integers with which each other field is crossed."""

_HALVED = Requantize(Requantization(1, 1))
"""What the accelerator computes of tensors of operators that may run on the host alone."""

_OUTSIDE = frozenset({"FloatOperator", "GraphOperator", "Host", "Quantize", "Dequantize"})
"""Not on integers alone; nor are the classes of float operators."""

_WEIGHTS = (_arrays((4, 6, 2, 2), np.int8), _arrays((6, 1, 2, 2), np.int8))
NODE_VALUES: dict[str, tuple[Any, ...]] = {
    "Pair": ((1, 1), (2, 1), (1, 3), (3, -1), (32768, -1), (1 << 30, 1 << 29), (0, 0)),
    "Pair | None": (None, (1, 1), (2, 3)),
    "Sides": ((0, 0, 0, 0), (1, 0, 0, 1), (0, 2, 1, 0)),
    "int": (-1, 0, 1, 2, 3, 5, 31, 127, 1 << 30),
    "int | None": (None, -5, 0, 127, 200),
    "bool": (False, True),
    "npt.NDArray[np.int8]": (*_WEIGHTS, _arrays((256,), np.int8), _arrays((6, 256), np.int8)),
    "Weights": (*_WEIGHTS, *(200 * weight.astype(np.int16) for weight in _WEIGHTS)),
    "npt.NDArray[np.int32]": (np.full(6, -65535, np.int32), np.full(5, 1, np.int32)),
    "npt.NDArray[np.bool_] | None": (
        *(None, np.tri(3, 6) > 0, np.arange(6)[None] > 3),
        *(np.ones((3, 6), bool), np.eye(2, 6) > 0, np.zeros((3, 6), bool)),
    ),
    "npt.NDArray[np.int32] | None": (None, _arrays((6,), np.int32)),
    "Any": (None, 1, 3, -7, 64, 200, np.arange(6) + 1, np.arange(6) - 3),
    "str": ("table", "gelu"),
    "ExtremumFunction": ("maximum", "minimum", "mean"),
    "Literal['constant', 'edge', 'reflect']": ("constant", "edge", "reflect", "wrap"),
    "Array": (
        *(_arrays(shape, np.int8) for shape in (_IMAGES, (1, 6, 1, 1), (2, 1, 5, 4), (4,), ())),
        *(_arrays(_IMAGES, dtype) for dtype in (np.uint8, np.int32, np.float32, np.float64)),
    ),
    "Shape": (
        _IMAGES,
        (2, 120),
        (2, 6, 20, 1),
        (2, 6, 4, 5),
        (0, 1, 2, 3),
        (0, 1, 3, 2),
        (3, 2, 1, 0),
    ),
}
"""Values to try of each annotation; those of requantizations stand apart."""


def nodes() -> list[str]:
    """Return the operators that are to be crossed: those on integers."""
    found = []
    for name in graph_operators.__all__:
        cls = getattr(graph_operators, name)
        if issubclass(cls, graph_operators.FloatOperator) or name in _OUTSIDE:
            continue
        found.append(name)
    return found


def node_cases() -> Iterator[Case]:
    """Yield every field of every operator of graphs with every value of its annotation."""
    for name in nodes():
        cls: Any = getattr(graph_operators, name)
        base, shapes = NODES[name]
        changes: list[dict[str, Any]] = [{}]  # for operators without fields
        for f in fields(cls):
            if str(f.type).startswith("Requantization"):
                values = [*_scalings(6), *[Quotient(), Quotient((3, 99))] * ("Quotient" in f.type)]
            else:
                values = [*NODE_VALUES[str(f.type)]]
            changes += [{f.name: value} for value in values]
        for stated, zero in product([{**base, **change} for change in changes], (0, -5)):
            yield Case(
                f"{name}({stated}) of zero point {zero}",
                lambda cls=cls, s=stated, z=zero, shapes=shapes: _graph(cls(**s), shapes, z),
            )


def _graph(op: GraphOperator, shapes: tuple[tuple[int, ...], ...], zero: int) -> Graph:
    graph = Graph("crossed")
    dtype = "int8" if "int8" in op.takes else op.takes[0]
    zeros = {"zero_point": zero} if dtype == "int8" else {}
    inputs: list[Tensor] = [
        graph.input(f"x{number}", shape, dtype, **zeros) for number, shape in enumerate(shapes)
    ]
    if type(op).__name__ in ("Constant", "Expand", "FromUint8", "ToUint8"):
        return _beside_the_accelerator(graph, op, inputs, zero)
    if getattr(op, "residual_factor", None) is not None:
        result = replace(op, residual_factor=None).infer(*inputs)  # type: ignore[type-var]
        inputs.append(graph.input("residual", result.shape, zero_point=7))
    graph.output(graph.add(op, *inputs))
    if graph.outputs[0].elements > LARGEST:
        raise ShapeError(f"a result of {graph.outputs[0].elements} elements is not tried")
    return graph


def _beside_the_accelerator(
    graph: Graph, op: GraphOperator, inputs: list[Tensor], zero: int
) -> Graph:
    """Add an operator whose inputs and result are those of operators of the accelerator."""
    result = graph.add(op, *(graph.add(_HALVED, x) if x.dtype == "int8" else x for x in inputs))
    if not inputs:
        image = graph.input("x", _IMAGES, zero_point=zero)
        result = graph.add(Add((1, 1), Requantization(1, 1)), image, result)
    graph.output(graph.add(_HALVED, result) if result.dtype == "int8" else result)
    return graph


def judge_node(case: Case, config: str, seed: int = 0) -> str:
    """Return ``refused``, or ``right``, or what is wrong with a node on a configuration."""
    try:
        graph = case.make()
    except VTAError:
        return "refused"
    model = vtaops.compile_model(graph, config)
    rng = np.random.default_rng(seed)
    for array in (rng.integers(-128, 128, 1 << 10), rng.choice([-128, 127], 1 << 10)):
        arrays = [np.resize(array, t.shape).astype(t.dtype) for t in graph.inputs]
        found, wanted = model.run(*arrays), model.reference(*arrays)
        if not np.array_equal(found, wanted):
            return f"wrong: {int((found != wanted).sum())} of {found.size}"
    if not model.regions:
        return "right"
    proof = model.prove()
    return "right" if proof.complete else f"not proven: {proof.unproven[0]}"


def roundings_crossed() -> bool:
    """Whether requantizations of every class are tried."""
    return {type(each) for each in _scalings(1)} == {
        Requantization,
        *Requantization.__subclasses__(),
    }


# --------------------------------------------------------------------------------- campaign

CONFIGS = ("pynq", "tiny", "pynq_ext")


@cache
def crossed(kind: str) -> list[Case]:
    """Return all cases of a kind: ``operator`` or ``node``."""
    return [*(operator_cases() if kind == "operator" else node_cases())]


def cases(rounds: int) -> list[str]:
    """Return the names of the cases, each on so many configurations."""
    return [
        f"{kind} {number} {CONFIGS[(number + turn) % len(CONFIGS)]}"
        for turn in range(rounds)
        for kind in ("node", "operator")
        for number in range(len(crossed(kind)))
    ]


def trial(case: str) -> Result:
    """Judge one case: ``node 7 pynq``."""
    kind, number, config = case.split()
    subject = crossed(kind)[int(number)]
    verdict = (judge_operator if kind == "operator" else judge_node)(subject, config)
    sound = verdict in ("right", "refused", "too large")
    faults = "" if sound else f"{subject.text}: {verdict}"
    return result(f"{kind}s", faults, cases=1, **{verdict if sound else "wrong": 1})


CAMPAIGN = Campaign(cases, trial, count=1)
