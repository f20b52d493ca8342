"""Graph: operators and the tensors between them; append-only.

Built in order of computation, by hand or by an importer (`vtaops.frontends`): an operator may read
any tensor added before it. Nodes and tensors are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from vtaops.base.errors import ArgumentError, ShapeError
from vtaops.base.names import checked_call, checked_init, suggestion
from vtaops.base.quoting import NAME_RULE, is_name
from vtaops.graph.operators import GraphOperator
from vtaops.graph.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Node:
    """One application of an operator in a graph.

    Attributes
    ----------
    name : str
        Unique in its graph; the name of its first result.
    op : GraphOperator
        The operator.
    inputs, outputs : tuple of Tensor
        Operands and results.
    """

    name: str
    op: GraphOperator
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@checked_init
class Graph:
    """An integer network.

    Parameters
    ----------
    name : str
        For reports and file names.

    Attributes
    ----------
    nodes : list of Node
        In the order of computation.
    inputs, outputs : list of Tensor
        Tensors that the host provides and receives, in order.
    tensors : dict of str to Tensor
        All tensors, by name.
    state : dict of str to str
        Inputs that a run takes from the run before: the names of the outputs that they were there.

    Examples
    --------
    >>> graph = Graph("tiny")
    >>> x = graph.input("x", (1, 16, 8, 8))
    >>> y = graph.add(MaxPool((2, 2), (2, 2)), x)
    >>> graph.output(y)
    """

    def __init__(self, name: str = "network") -> None:
        if not is_name(name):
            raise ShapeError(f"a network is named {repr(name)[:80]}; {NAME_RULE}")
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.tensors: dict[str, Tensor] = {}
        self.state: dict[str, str] = {}
        self._makers: dict[str, Node] = {}
        self._readers: dict[str, list[Node]] = {}

    def __repr__(self) -> str:
        inputs, made = (_listed(side) or "nothing" for side in (self.inputs, self.outputs))
        return f"<Graph {self.name}: {len(self.nodes)} operators from {inputs} to {made}>"

    def __str__(self) -> str:
        """Return the operators with their operands and results, one a line."""
        lines = (
            f"{_listed(node.outputs)} = {type(node.op).__name__}"
            f"({', '.join(t.name for t in node.inputs)})"
            for node in self.nodes
        )
        return "\n".join([repr(self), *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @checked_call
    def input(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "int8",
        *,
        scale: float = 1.0,
        zero_point: int = 0,
    ) -> Tensor:
        """Declare an input tensor.

        Raises
        ------
        ShapeError
            If the name is taken, or shape, dtype, scale or zero point is invalid.
        """
        return self.input_like(Tensor(name, tuple(shape), dtype, scale, zero_point))

    def input_like(self, tensor: Tensor) -> Tensor:
        """Declare an input with the name and type of a tensor of another graph; as `input`."""
        own = replace(tensor)
        self._define(own)
        self.inputs.append(own)
        return own

    @checked_call
    def add(
        self, op: GraphOperator, *inputs: Tensor, name: str = "", scale: float | None = None
    ) -> Tensor:
        """Apply a single-result operator; return its result.

        Parameters
        ----------
        op : GraphOperator
            The operator.
        inputs : Tensor
            Tensors of this graph.
        name : str
            Name of the result; by default the operator's kind and a number.
        scale : float, optional
            Real value of one step of the result; by default set by the operator.

        Raises
        ------
        ShapeError
            If the operator rejects the inputs, they are of another graph, or the name is taken.
        """
        scales = None if scale is None else [scale]
        (result,) = self.add_many(op, *inputs, names=[name] if name else None, scales=scales)
        return result

    @checked_call
    def add_many(
        self,
        op: GraphOperator,
        *inputs: Tensor,
        names: Sequence[str] | None = None,
        scales: Sequence[float] | None = None,
    ) -> tuple[Tensor, ...]:
        """Apply an operator with any number of results; as `add`."""
        self._check(op, inputs)
        made = op.infer_outputs(inputs)
        if names is None:
            base = f"{op.kind.split(',')[0].replace('+', '_')}_{len(self.nodes)}"
            names = [base] if len(made) == 1 else [f"{base}_{i}" for i in range(len(made))]
        if len(names) != len(made):
            raise ShapeError(f"{len(names)} names for the {len(made)} results of {op.kind}")
        if scales is None:
            scales = [tensor.scale for tensor in made]
        outputs = tuple(
            replace(tensor, name=name, scale=scale)
            for tensor, name, scale in zip(made, names, scales, strict=True)
        )
        node = Node(outputs[0].name, op, tuple(inputs), outputs)
        for tensor in outputs:
            self._define(tensor)
            self._makers[tensor.name] = node
        self.nodes.append(node)
        for tensor in {*inputs}:
            self._readers.setdefault(tensor.name, []).append(node)
        return outputs

    def clone(
        self, node: Node, op: GraphOperator | None = None, inputs: Sequence[str] | None = None
    ) -> tuple[Tensor, ...]:
        """Apply a node of another graph, or `op` in its place; results keep names and scales.

        `inputs` are names of tensors of this graph; by default the names of the node's inputs.
        """
        if inputs is None:
            inputs = [tensor.name for tensor in node.inputs]
        return self.add_many(
            node.op if op is None else op,
            *(self.tensors[name] for name in inputs),
            names=[tensor.name for tensor in node.outputs],
            scales=[tensor.scale for tensor in node.outputs],
        )

    def transform(self, put: Callable[[Graph, Node], object]) -> Graph:
        """Return a graph with the same inputs and outputs; `put` adds each node's replacement.

        Nodes whose results nothing reads any more are left out.
        """
        result = Graph(self.name)
        for tensor in self.inputs:
            result.input_like(tensor)
        for node in self.nodes:
            put(result, node)
        result.output(*(result.tensors[tensor.name] for tensor in self.outputs))
        result.state = dict(self.state)
        if unread := result._unread(self):
            return result.transform(lambda to, node: node in unread or to.clone(node))
        return result

    def _unread(self, before: Graph) -> set[Node]:
        """Return the nodes whose results nothing reads, but those for which it was so before."""
        read, unread = {tensor.name for tensor in self.outputs}, set[Node]()
        for node in reversed(self.nodes):
            names = {tensor.name for tensor in node.outputs}
            kept = node.name in before.tensors and names.isdisjoint(before._readers)
            if kept or not read.isdisjoint(names):
                read.update(tensor.name for tensor in node.inputs)
            else:
                unread.add(node)
        return unread

    def _check(self, op: GraphOperator, inputs: Sequence[Tensor]) -> None:
        """Reject a non-operator, and inputs of another graph, number or dtype."""
        if not isinstance(op, GraphOperator):
            raise ShapeError(f"{op!r} is not a graph operator; see vtaops.graph.operators")
        for tensor in inputs:
            self._require(tensor)
        if op.arity is not None and len(inputs) != op.arity:
            raise ShapeError(f"{op.kind} takes {op.arity} inputs; {len(inputs)} given")
        if not inputs and op.arity != 0:
            raise ShapeError(f"{op.kind} needs an input")
        for tensor in inputs:
            if tensor.dtype not in op.takes:
                known = " or ".join(op.takes)
                raise ShapeError(f"{tensor.name} is {tensor.dtype}; {op.kind} takes {known}")

    def _require(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor) or self.tensors.get(tensor.name) is not tensor:
            raise ShapeError(f"{tensor!r} is not a tensor of this graph")

    @checked_call
    def output(self, *tensors: Tensor) -> None:
        """Declare output tensors.

        Raises
        ------
        ShapeError
            If one is not a tensor of this graph.
        """
        for tensor in tensors:
            self._require(tensor)
            self.outputs.append(tensor)

    @checked_call
    def carry(self, state: Mapping[str, str]) -> None:
        """Declare state: inputs that are what an output was in the run before; at first all 0.0.

        An output that is shorter on one axis is rows: each run writes its own behind those of the
        runs before.

        Parameters
        ----------
        state : mapping of str to str
            Names of inputs, each with that of its output.

        Raises
        ------
        ShapeError
            If they are not an input and an output of one type, or belong to other state, or make
            other numbers of rows than those before them.
        """
        for past, present in state.items():
            inputs, made = ({t.name: t for t in side} for side in (self.arguments, self.results))
            for name, known, what in ((past, inputs, "input"), (present, made, "output")):
                if name not in known:
                    text = f"no {what} {name!r} is left for state{suggestion(name, known)}"
                    raise ShapeError(text)
            if not _fits(inputs[past], made[present]):
                text = (
                    f"{inputs[past]} and {made[present]} are not alike; state has one type, and "
                    "one shape but for an axis of fewer rows"
                )
                raise ShapeError(text)
            self.state[past] = present
        if len({*map(self._count, self.state)} - {0}) > 1:
            raise ShapeError("state that grows has other numbers of new rows; a run has one")

    def row_axis(self, past: str) -> int | None:
        """Return the axis on which state holds rows of many runs; None if each run makes all."""
        return _row_axis(self.tensors[past], self.tensors[self.state[past]])

    def _count(self, past: str) -> int:
        """Return how many rows of state a run makes."""
        axis = self.row_axis(past)
        return 0 if axis is None else self.tensors[self.state[past]].shape[axis]

    @property
    def new_rows(self) -> int:
        """How many rows each run writes to the state that grows; 0 if none does."""
        return max(map(self._count, self.state), default=0)

    def rows(self, past: str, place: int) -> tuple[slice, ...]:
        """Return the part of state that a run writes to which `place` rows were written before.

        Raises
        ------
        ArgumentError
            If there is no room for them.
        """
        axis, shape = self.row_axis(past), self.tensors[past].shape
        assert axis is not None
        if place + self.new_rows > shape[axis]:
            text = f"{past} holds {shape[axis]} rows, of which {place} are written; reset the state"
            raise ArgumentError(text)
        return (slice(None),) * axis + (slice(place, place + self.new_rows),)

    @property
    def arguments(self) -> list[Tensor]:
        """The inputs that are not state."""
        return [tensor for tensor in self.inputs if tensor.name not in self.state]

    @property
    def results(self) -> list[Tensor]:
        """The outputs that are not state."""
        kept = self.state.values()
        return [tensor for tensor in self.outputs if tensor.name not in kept]

    def consumers(self, tensor: Tensor) -> list[Node]:
        """Return the nodes that read a tensor, in order."""
        return list(self._readers.get(tensor.name, []))

    def maker(self, tensor: Tensor) -> Node | None:
        """Return the node that makes a tensor; None if it is an input."""
        return self._makers.get(tensor.name)

    def _define(self, tensor: Tensor) -> None:
        if tensor.name in self.tensors:
            raise ShapeError(f"duplicate tensor name {tensor.name!r}")
        self.tensors[tensor.name] = tensor


def _fits(past: Tensor, present: Tensor) -> bool:
    """Return whether an output is what an input was, or some rows of it."""
    if replace(past, name=present.name, shape=present.shape) != present:
        return False
    return past.shape == present.shape or _row_axis(past, present) is not None


def _row_axis(past: Tensor, present: Tensor) -> int | None:
    """Return the only axis on which an output has fewer elements than an input."""
    if len(past.shape) != len(present.shape):
        return None
    fewer = np.subtract(past.shape, present.shape)
    (axes,) = fewer.nonzero()
    return int(axes[0]) if len(axes) == 1 and fewer.sum() > 0 else None


def _listed(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"{t.name} {t.dtype}{[*t.shape]}" for t in tensors)
