"""Translate the normal form to an integer graph, and determine what stays on the host.

Values are visited backwards from the outputs, so only required values are processed. Each quantised
tensor gets its integer operators (`translate`) or, where that fails, is quantised from a value of
the host. The host's operators are merged into as few functions as their order allows: one per
phase, which is the number of times that data returned from the accelerator before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from vtaops.base.errors import ModelError, UnsupportedError
from vtaops.graph import Dequantize, Graph, GraphOperator, Host, Quantize, Tensor
from vtaops.graph.grid import Grid
from vtaops.graph.host import NOT_QUANTIZED, HostFunction
from vtaops.relax.floats import float_operator
from vtaops.relax.host import RelaxFunction, host_module
from vtaops.relax.steps import Leaf, NotTranslated, ResultRange, Source, Step, grid_of
from vtaops.relax.translate import EIGHT_BITS, RULES, natural_grid, translate, translate_root
from vtaops.relax.values import FOREIGN, Body, Value, read

NO_OPERATOR = "VTA has no operator "
TFLITE = "vtaops.tflite"
"""Attribute of a Relax function whose source rounds like TFLite."""
BETWEEN_FLOATS = ": not between quantised tensors"


class Parts(Protocol):
    """A source that can provide its own host functions."""

    def function(
        self, inputs: Sequence[Value], group: Iterable[Value], outputs: Sequence[Value]
    ) -> HostFunction | None:
        """Return a function that computes a group of values; None if it cannot."""


def to_graph(
    mod: Any,
    name: str = "network",
    names: Callable[[Body], dict[Value, str]] | None = None,
    parts: Callable[[Body], Parts] | None = None,
) -> Graph:
    """Translate a Relax module in normal form (see `vtaops.relax.to_relax`) to an integer graph.

    Parameters
    ----------
    mod
        A module whose function `main` computes on tensors of static shape. With the attribute
        `TFLITE`, it computes exactly like TFLite's reference kernels.
    name
        Name of the graph.
    names
        Returns the names of values that are known from a file.
    parts
        Provides the host's functions from the file; without it, TVM compiles them.

    Returns
    -------
    vtaops.graph.Graph
        Integer operators between quantised tensors; `Host` for everything else, with the reason.

    Raises
    ------
    ModelError
        If a shape is not static.
    UnsupportedError
        If the module has more than one function, or types that no device supports.
    """
    body = read(mod)
    source = parts(body) if parts else None
    attrs = mod["main"].attrs
    plan = ValuePlan(body, tflite=bool(attrs and TFLITE in attrs))
    return _Emitter(mod, body, plan, name, names(body) if names else {}, source).graph


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
    """

    def __init__(self, body: Body, tflite: bool = False) -> None:
        self._tflite = tflite
        self.sources: dict[Value, Source] = {}
        self.quantized: dict[Value, Grid] = {}
        self.host: dict[Value, None] = {}
        self.reasons: dict[Value, str] = {}
        self._phases: dict[Value, int] = {}
        self._failed: dict[Value, str] = {}
        self._quantised_model = any(value.op == "quantize" for value in body.bindings)
        self._visit(body.outputs)

    def phase(self, value: Value) -> int:
        """Return how often data returns from the accelerator before a value is available."""
        return self._phases.get(value, 0)

    def _visit(self, outputs: Iterable[Value]) -> None:
        """Visit values depth-first, without recursion because networks are deep."""
        stack = [(value, False) for value in outputs]
        done: set[Value] = set()
        while stack:
            value, ready = stack.pop()
            if ready:
                self._phases[value] = self._phase(value)
            elif value not in done:
                done.add(value)
                stack.append((value, True))
                stack.extend((needed, False) for needed in self._classify(value))

    def _classify(self, value: Value) -> list[Value]:
        """Classify a value; return the values that it needs."""
        if value.op == "input" or value.fixed:
            return []
        if value.dtype == "any":
            self.host[value] = None
            self.reasons[value] = self._why(value)
            return list(value.args)
        try:
            grid = natural_grid(value)
            if grid is not None:
                target = ResultRange(grid, tflite=self._tflite)
                quantized = value.op == "quantize"
                self.sources[value] = (
                    translate(value.args[0], target) if quantized else translate_root(value, target)
                )
                return list(_leaves(self.sources[value]))
            reason = self._why(value)
        except NotTranslated as error:
            reason = str(error)
            if value.op == "quantize" and (grid := _grid_or_none(value)) is not None:
                self.quantized[value] = grid
                self.reasons[value] = self._failed[value.args[0]] = reason
                return [value.args[0]]
        self.host[value] = None
        self.reasons[value] = reason
        return list(value.args)

    def _why(self, value: Value) -> str:
        if not self._quantised_model:
            return NOT_QUANTIZED
        if value.op in RULES and value in self._failed:
            return self._failed[value]
        if value.op in RULES or value.op == "split":
            return f"{value.op}{BETWEEN_FLOATS}"
        return f"{NO_OPERATOR}{value.op.removeprefix(FOREIGN)}"

    def _phase(self, value: Value) -> int:
        if value in self.sources:
            return max((self.phase(leaf) for leaf in _leaves(self.sources[value])), default=0)
        if value in self.quantized:
            return self.phase(value.args[0])
        phases = (
            self.phase(argument) + (argument in self.sources or argument in self.quantized)
            for argument in value.args
        )
        return max(phases, default=0)


def _joined(reasons: Iterable[str]) -> str:
    """Return reasons as one text, grouping operators with the same reason."""
    every = list(dict.fromkeys(reasons))
    between = [r.removesuffix(BETWEEN_FLOATS) for r in every if r.endswith(BETWEEN_FLOATS)]
    unknown = [r.removeprefix(NO_OPERATOR) for r in every if r.startswith(NO_OPERATOR)]
    said = [r for r in every if not (r.endswith(BETWEEN_FLOATS) or r.startswith(NO_OPERATOR))]
    said += [NO_OPERATOR + ", ".join(unknown)] * bool(unknown)
    said += [", ".join(between) + BETWEEN_FLOATS] * bool(between)
    return "; ".join(said)


def _grid_or_none(value: Value) -> Grid | None:
    try:
        return grid_of(value)
    except NotTranslated:
        return None


def _leaves(source: Source) -> Iterable[Value]:
    return (leaf.value for leaf in source.leaves())


class _Emitter:
    """Emit a plan as a graph by phase: the host's function, then the operators that read it."""

    def __init__(
        self,
        mod: Any,
        body: Body,
        plan: ValuePlan,
        name: str,
        names: dict[Value, str],
        parts: Parts | None,
    ) -> None:
        self.graph = Graph(name)
        self._parts = parts
        self._mod, self._body, self._plan, self._names = mod, body, plan, names
        self._integers: dict[Value, Tensor] = {}
        self._floats: dict[Value, Tensor] = {}
        self._steps: dict[Step, Tensor] = {}
        self._inputs()
        last = max((plan.phase(value) for value in body.bindings), default=0)
        for phase in range(last + 1):
            self._host(phase)
            for value in body.bindings:
                if plan.phase(value) == phase:
                    self._quantized(value)
        self.graph.output(*(self._output(value) for value in body.outputs))

    def _inputs(self) -> None:
        grids = {
            leaf.value: leaf.grid
            for source in self._plan.sources.values()
            for leaf in source.leaves()
            if leaf.value.op == "input"
        }
        for value in self._body.inputs:
            grid = grids.get(value, Grid(1.0))
            tensor = self.graph.input(
                value.name, value.shape, value.dtype, scale=grid.scale, zero_point=grid.zero_point
            )
            (self._integers if value in grids else self._floats)[value] = tensor

    def _quantized(self, value: Value) -> None:
        if value in self._plan.quantized:
            grid = self._plan.quantized[value]
            op = Quantize(grid.scale, grid.zero_point)
            tensor = self.graph.add(op, self._float(value.args[0]), name=self._name(value))
            self._integers[value] = tensor
        elif value.dtype in EIGHT_BITS and value in self._plan.sources:
            self._integers[value] = self._emit(self._plan.sources[value], self._name(value))

    def _name(self, value: Value) -> str:
        """Return the name of a value in its file; empty if it is unknown or already in use."""
        name = self._names.get(value, "")
        return "" if name in self.graph.tensors else name

    def _emit(self, source: Source, name: str = "") -> Tensor:
        if isinstance(source, Leaf):
            return self._integers[source.value]
        if source not in self._steps:
            inputs = [self._emit(part) for part in source.inputs]
            self._steps[source] = self.graph.add(source.op, *inputs, name=name, scale=source.scale)
        return self._steps[source]

    def _float(self, value: Value) -> Tensor:
        """Return a value for the host, converted to float if it was a float."""
        if value not in self._floats:
            if value in self._integers:
                return self._integers[value]
            source = self._emit(self._plan.sources[value])
            self._floats[value] = self.graph.add(Dequantize(), source, name=self._name(value))
        return self._floats[value]

    def _output(self, value: Value) -> Tensor:
        if value.fixed:
            raise UnsupportedError("an output of the model is a constant")
        if value.dtype != "uint8" or value in self._floats:
            return self._float(value)
        module, results = host_module(self._mod, [value], [], [value]), (_tensor(value),)
        op = Host(RelaxFunction(module), results, ("astype",), "the model's output is uint8")
        return self.graph.add(op, self._float(value))

    def _host(self, phase: int) -> None:
        """Add the host's part of a phase: operators, or one function."""
        plan, bindings = self._plan, self._body.bindings
        group = [v for v in bindings if v in plan.host and plan.phase(v) == phase and not v.fixed]
        if group and not self._defined(group):
            self._opaque(group)

    def _defined(self, group: list[Value]) -> bool:
        """Add the operators of a group if the graph supports all; return whether it does."""
        steps = [step for value in group if (step := float_operator(value))]
        if len(steps) == len(group):
            for value, (op, data) in zip(group, steps, strict=True):
                self._floats[value] = self.graph.add(op, self._float(data), name=self._name(value))
        return len(steps) == len(group)

    def _opaque(self, group: list[Value]) -> None:
        """Add a group as one function."""
        plan, inside = self._plan, set(group)
        read = dict.fromkeys(argument for v in group for argument in v.args)
        inputs = [v for v in read if v not in inside and not v.fixed]
        outputs = [v for v in group if self._read_outside(v, inside)]
        op = self._function(inputs, group, outputs, _joined(plan.reasons[v] for v in group))
        names = list(map(self._name, outputs))
        tensors = self.graph.add_many(
            op, *map(self._float, inputs), names=names if all(names) else None
        )
        self._floats.update(zip(outputs, tensors, strict=True))

    def _function(
        self, inputs: list[Value], group: list[Value], outputs: list[Value], reason: str
    ) -> GraphOperator:
        results = tuple(map(_tensor, outputs))
        operators = tuple(dict.fromkeys(v.op.removeprefix(FOREIGN) for v in group))
        part = self._parts and self._parts.function(inputs, group, outputs)
        return Host(part or self._compiled(inputs, group, outputs), results, operators, reason)

    def _compiled(
        self, inputs: list[Value], group: list[Value], outputs: list[Value]
    ) -> RelaxFunction:
        """Return a function compiled by TVM."""
        foreign = dict.fromkeys(v.op for v in group if v.op.startswith(FOREIGN))
        if foreign:
            raise UnsupportedError(
                f"the operators {', '.join(op.removeprefix(FOREIGN) for op in foreign)} are part "
                "of a function that cannot be cut out of the model"
            )
        bindings = _with_constants(self._body.bindings, group)
        return RelaxFunction(host_module(self._mod, inputs, bindings, outputs))

    def _read_outside(self, value: Value, inside: set[Value]) -> bool:
        plan = self._plan
        return any(
            v is None or (v not in inside and (v in plan.host or v in plan.quantized))
            for v in value.readers
        )


def _with_constants(bindings: Sequence[Value], group: Sequence[Value]) -> list[Value]:
    """Return the group's bindings and the constant bindings that they read, in order."""
    wanted: set[Value] = set()
    stack = list(group)
    while stack:
        value = stack.pop()
        if value not in wanted:
            wanted.add(value)
            stack.extend(a for a in value.args if a.fixed)
    return [value for value in bindings if value in wanted]


def _tensor(value: Value) -> Tensor:
    """Return the tensor for a value of the host."""
    if value.dtype == "tuple":
        raise UnsupportedError(f"{value.op} returns a tuple that is used as a whole")
    if value.dtype == "any":
        raise ModelError(
            f"the tensor {value.name!r}, which {value.op.removeprefix(FOREIGN)} computes, has no "
            "static shape; VTA's programs need one"
        )
    return Tensor("-", value.shape, value.dtype)
