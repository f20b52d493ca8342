"""Translate a network to an integer graph, and determine what stays on the host.

Values are visited backwards from the outputs, so only required values are processed. Each quantised
tensor gets its integer operators (`translate`) or, where that fails, is quantised from a value of
the host. The host's operators are merged into as few functions as their order allows: one per
phase, which is the number of times that data returned from the accelerator before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vtaops.base.errors import ModelError, ShapeError, UnsupportedError
from vtaops.base.reasons import Reason
from vtaops.frontends.floats import float_operator
from vtaops.frontends.grids import EIGHT_BITS, natural_grid
from vtaops.frontends.inference import PAIRED
from vtaops.frontends.parts import host_function
from vtaops.frontends.rules import RULES
from vtaops.frontends.steps import Leaf, ResultRange, Source, Step
from vtaops.frontends.translate import translate_root
from vtaops.frontends.values import BEFORE_ROUNDING, NotTranslated, OnnxNetwork, Value
from vtaops.graph import (
    Constant,
    Dequantize,
    FromUint8,
    Graph,
    GraphOperator,
    Host,
    Quantize,
    Tensor,
    ToUint8,
)
from vtaops.graph.grid import Grid
from vtaops.graph.host import NOT_QUANTIZED
from vtaops.graph.tensor import DTYPES

DYNAMIC = frozenset({"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"})
"""Operators of files whose scales are computed when they run; the host runs them."""

PRODUCTS = {
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"), 1),
    **dict.fromkeys(("Einsum", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"), 1),
    **dict.fromkeys(("Attention", "GRU", "LSTM", "RNN"), 2),
}
"""How many products operators compute; a recurrent one those of its inputs and of its state."""

_NOT_QUANTIZED = Reason("not_quantized", NOT_QUANTIZED)
_OF_OPERATORS = {
    "no_operator": "VTA has no operator {}",
    "between_floats": "{}: not between quantised tensors",
}
"""Reasons that name operators, by code."""


def to_graph(network: OnnxNetwork, name: str = "network") -> Graph:
    """Translate a network to an integer graph.

    Parameters
    ----------
    network
        The network, as a reader returns it.
    name
        Name of the graph.

    Returns
    -------
    vtaops.graph.Graph
        Integer operators between quantised tensors; `Host` for everything else, with the reason.

    Raises
    ------
    ModelError
        If a tensor that the accelerator and the host exchange has no static shape, or a scale is
        not positive.
    """
    return _Emitter(network, ValuePlan(network), name).graph


class ValuePlan:
    """Where each value is computed.

    Attributes
    ----------
    sources
        Quantised values, and values that only move them, with their integer operators.
    quantized
        Quantised values that are rounded from values of the host.
    host
        Values that the host computes.
    reasons
        Reasons for values in `host` and `quantized`.
    grids
        The grids of integers that operators of `sources` read.
    """

    def __init__(self, network: OnnxNetwork) -> None:
        self._tflite = network.tflite
        self.sources: dict[Value, Source] = {}
        self.quantized: dict[Value, Grid] = {}
        self.host: dict[Value, None] = {}
        self.reasons: dict[Value, Reason] = {}
        self._phases: dict[Value, int] = {}
        self._failed: dict[Value, Reason] = {}
        self._quantised_model = any(
            value.op in PAIRED | DYNAMIC and not value.fixed for value in network.values
        )
        self._place(network)
        leaves = (leaf for source in self.sources.values() for leaf in source.leaves())
        self.grids = {leaf.value: leaf.grid for leaf in leaves}

    def _place(self, network: OnnxNetwork) -> None:
        """Classify the values that outputs need, and count their phases."""
        needed, reads = {*network.outputs}, dict[Value, list[Value]]()
        for value in reversed(network.values):
            if value in needed:
                reads[value] = self._classify(value)
                needed.update(reads[value])
        on_vta = self.sources.keys() | self.quantized
        for value in reversed(reads):
            phases = (self.phase(r) + (value in self.host and r in on_vta) for r in reads[value])
            self._phases[value] = max(phases, default=0)

    def phase(self, value: Value) -> int:
        """Return how often data returns from the accelerator before a value is available."""
        return self._phases.get(value, 0)

    def _classify(self, value: Value) -> list[Value]:
        """Classify a value; return the values that it needs."""
        if value.fixed:
            return []
        grid = None
        try:
            if value.shape is not None:
                grid = natural_grid(value)
            if grid is not None:
                source = translate_root(value, ResultRange(grid, tflite=self._tflite))
                self.sources[value] = source
                return [leaf.value for leaf in source.leaves()]
            reason = self._why(value)
        except (NotTranslated, ShapeError) as error:
            reason = getattr(error, "reason", Reason("form", str(error)))
            if value.op == "QuantizeLinear" and grid is not None:
                self.quantized[value] = grid
                self.reasons[value] = self._failed[value.first] = reason
                return [value.first]
        self.host[value] = None
        self.reasons[value] = reason
        return value.reads

    def _why(self, value: Value) -> Reason:
        if not self._quantised_model:
            return _NOT_QUANTIZED
        if value.op in RULES:
            return self._failed.get(value) or Reason("between_floats", value.kind)
        return Reason("no_operator", value.kind)


Group = dict[Value, None]
"""Values that the host computes in one phase, in order."""


def _joined(reasons: Iterable[Reason]) -> Reason:
    """Return several reasons as one, grouping operators with the same reason."""
    every = list(dict.fromkeys(reasons))
    chosen = [reason for reason in every if reason.code not in _OF_OPERATORS]
    for code, text in _OF_OPERATORS.items():
        if names := [reason.text for reason in every if reason.code == code]:
            chosen.append(Reason(code, text.format(", ".join(names))))
    return Reason(chosen[0].code, "; ".join(reason.text for reason in chosen))


def _read(group: Group) -> list[Value]:
    """Return what a group reads of others, but for constants."""
    read = dict.fromkeys(arg for value in group for arg in value.reads)
    return [value for value in read if value not in group and not value.fixed]


class _Emitter:
    """Emit a plan as a graph by phase: the host's function, then the operators that read it."""

    def __init__(self, network: OnnxNetwork, plan: ValuePlan, name: str) -> None:
        self.graph = Graph(name)
        self._network, self._plan = network, plan
        self._integers: dict[Value, Tensor] = {}
        self._floats: dict[Value, Tensor] = {}
        self._steps: dict[Step, Tensor] = {}
        for value in network.inputs:
            grid = plan.grids.get(value, _INTEGERS)
            own = replace(_tensor(value, grid), name=value.name, zero_point=grid.zero_point)
            self._keep(value, self.graph.input_like(own))
        for phase in sorted(set(map(plan.phase, network.values))):
            self._host(phase)
            for value in network.values:
                if plan.phase(value) == phase:
                    self._quantized(value)
        self.graph.output(*(self._output(value) for value in network.outputs))

    def _quantized(self, value: Value) -> None:
        if value in self._plan.quantized:
            grid = self._plan.quantized[value]
            op = Quantize(grid.scale, grid.zero_point)
            tensor = self.graph.add(op, self._float(value.first), name=self._name(value))
            self._integers[value] = tensor
        elif value.dtype in EIGHT_BITS and value in self._plan.sources:
            self._integers[value] = self._emit(self._plan.sources[value], self._name(value))

    def _name(self, value: Value) -> str:
        """Return the name of a value in its file; empty if it is already in use.

        A rounded tensor has the name of the one that it rounds, unless it is an output.
        """
        rounds = value.op == "QuantizeLinear" and None not in value.readers
        name = value.first.name.removesuffix(BEFORE_ROUNDING) if rounds else value.name
        return "" if name in self.graph.tensors else name

    def _emit(self, source: Source, name: str = "") -> Tensor:
        if isinstance(source, Leaf):
            return self._integers[source.value]
        if source not in self._steps:
            inputs = [self._emit(part) for part in source.inputs]
            self._steps[source] = self.graph.add(
                source.op, *inputs, name=name, scale=source.tensor.scale
            )
        return self._steps[source]

    def _float(self, value: Value) -> Tensor:
        """Return a value for the host: in floating point if it was, uint8 if it was."""
        if value not in self._floats:
            tensor = self._integers.get(value) or self._emit(self._plan.sources[value])
            if value.dtype != "int8":
                op = ToUint8() if value.dtype == "uint8" else Dequantize()
                tensor = self.graph.add(op, tensor, name=self._name(value))
            self._floats[value] = tensor
        return self._floats[value]

    def _output(self, value: Value) -> Tensor:
        if not value.fixed:
            return self._float(value)
        if value.array is None:
            raise UnsupportedError(f"the output {value.name!r} is a constant that nothing computes")
        return self.graph.add(Constant(value.array), name=self._name(value))

    def _host(self, phase: int) -> None:
        """Add the host's part of a phase: operators that the graph defines, or one function."""
        plan = self._plan
        own = [v for v in self._network.values if v in plan.host and plan.phase(v) == phase]
        group = dict.fromkeys(own)
        outputs = [v for v in group if v in plan.grids or self._read_outside(v, group)]
        if group and not self._defined(group, outputs):
            self._opaque(group, outputs)

    def _defined(self, group: Group, outputs: list[Value]) -> bool:
        """Add the operators of a group if the graph supports all; return whether it does.

        What lies inside of an operator that a file writes as several is not needed.
        """
        if not self._plan.grids.keys().isdisjoint(group):
            return False  # operators of VTA read integers that the host computes
        needed, steps = {*outputs}, dict[Value, tuple[GraphOperator, list[Value]]]()
        for value in reversed(group):
            if value in needed:
                step = float_operator(value)
                if step is None:
                    return False
                steps[value] = step
                needed.update(step[1])
        for value, (op, operands) in reversed(steps.items()):
            inputs = map(self._float, operands)
            self._floats[value] = self.graph.add(op, *inputs, name=self._name(value))
        return True

    def _opaque(self, group: Group, outputs: list[Value]) -> None:
        """Add a group as one function."""
        inputs, grids = _read(group), self._plan.grids
        reason = _joined(self._plan.reasons[value] for value in group)
        op = Host(
            host_function(self._network, inputs, outputs),
            tuple(_tensor(value, grids.get(value, _INTEGERS)) for value in outputs),
            tuple(dict.fromkeys(value.kind for value in group)),
            reason.text,
            reason.code,
            sum(PRODUCTS.get(op, 0) for op in {value.node: value.op for value in group}.values()),
        )
        names = list(map(self._name, outputs))
        tensors = self.graph.add_many(
            op, *map(self._float, inputs), names=names if all(names) else None
        )
        for value, tensor in zip(outputs, tensors, strict=True):
            self._keep(value, tensor)

    def _keep(self, value: Value, tensor: Tensor) -> None:
        """Keep a tensor of the host, as integers too if operators of VTA read them."""
        self._floats[value] = tensor
        if grid := self._plan.grids.get(value):
            if tensor.dtype == "uint8":
                tensor = self.graph.add(FromUint8(grid.zero_point), tensor, scale=grid.scale)
            self._integers[value] = tensor

    def _read_outside(self, value: Value, inside: Group) -> bool:
        plan = self._plan
        return any(v is None or (v not in inside and v in plan.reasons) for v in value.readers)


_INTEGERS = Grid(1.0)
"""The grid of tensors that have none."""


def _tensor(value: Value, grid: Grid) -> Tensor:
    """Return the tensor for a value of the host."""
    if value.shape is None:
        raise ModelError(
            f"the tensor {value.name!r}, which {value.label} computes, has no static shape; VTA's "
            "programs need one"
        )
    if value.dtype not in DTYPES:
        raise UnsupportedError(
            f"the tensor {value.name!r} is {value.dtype or 'no tensor'}; a network's inputs, "
            f"outputs, and what its parts exchange are {', '.join(DTYPES)}: convert it first"
        )
    zero_point = grid.zero_point if value.dtype == "int8" else 0
    return Tensor("-", value.shape, value.dtype, grid.scale, zero_point)
