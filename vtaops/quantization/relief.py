"""Layers that stay float where int8 would lose an output.

A few products often cost nearly all that an output loses: the spectrum at the front of a judge of
sound, the last layer of a regression. Where an output keeps less than `LOW_DB` in spite of
equalised channels, such products are left to the host. Tried first are all in front of a function
that the host computes, if they are a small part of the network: those of a filter bank before its
logarithm, which tells values apart that one grid does not; the launch before that function falls
away. Then come single products, as few as bring the output back, and larger fronts. If nothing
brings all samples back, what brings back most is taken, if that is most of them; else nothing
changes. A file in which each tensor may pass in float shows what helps.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.progress import tracked
from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    initializers,
    producers,
    tensor_shapes,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.activations import functions
from vtaops.quantization.costs import Switches
from vtaops.quantization.pairs import images
from vtaops.quantization.quality import FEW, GOOD_DB, LOW_DB, outputs, spread, sqnrs
from vtaops.quantization.scales import MOVES, PRODUCTS, only_moved, saturated

if TYPE_CHECKING:
    from vtaops.quantization.pipeline import Quantization

JUDGES = 16
"""Most samples that judge: with two, the dB of an output are 2 to 5 off, with 16 about one."""

SEARCHED = 2
"""Most samples on which products are compared, before those that were found are judged."""

MOST_TRIED = 8
"""Most products that are tried together with others: those that cost most alone."""

MOST_LAYERS = 6
"""Most products that are left float, other than those in front of a function of the host."""

MOST_WORK = 1 / 4
"""Largest part of all multiplications that such a front may have."""

MOST_FRONTS = 24
"""Most fronts that are tried."""

SHOWN = 3
"""Most nodes that a warning names."""


@dataclass(frozen=True)
class Relief:
    """Products that stay float, and the dB of the worst output with and without them.

    `some` tells in how many samples it keeps enough, if not in all together.
    """

    nodes: tuple[str, ...]
    sqnr_db: float
    rounded_db: float
    some: str = ""

    def __str__(self) -> str:
        more = len(self.nodes) - SHOWN
        names = ", ".join(self.nodes[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        verb = "stays" if len(self.nodes) == 1 else "stay"
        return (
            f"{names} {verb} float, on the host: an output keeps {self.sqnr_db:.1f} dB{self.some}, "
            f"and {self.rounded_db:.1f} dB with all products in integers"
        )


def worst_output(done: Quantization) -> float:
    """Return the SQNR in dB of the output that keeps least."""
    return _judged(done)[0]


def _judged(done: Quantization) -> tuple[float, int]:
    """Return the SQNR of the worst output, and the number of samples with enough of all."""
    judges = spread(done.samples, JUDGES)
    exact, rounded = outputs(done.prepared, judges, exact=False), outputs(done.model, judges)
    alone = (min(sqnrs([one], [other])) for one, other in zip(exact, rounded, strict=True))
    return min(sqnrs(exact, rounded)), sum(db >= LOW_DB for db in alone)


def relieved(
    done: Quantization, again: Callable[..., Quantization]
) -> tuple[Quantization, Relief | None]:
    """Return a quantisation with as few products in float as bring its outputs back.

    Parameters
    ----------
    done
        What was quantised, an output of which keeps too little.
    again
        Quantises with the given nodes in float; what was only tried is not `checked` for
        departures from float, which takes as long as a run of many samples.
    """
    (before, enough), search = _judged(done), _Search(done)
    samples: dict[tuple[str, ...], int] = {}

    def brings_back(nodes: Sequence[str]) -> bool:
        relaxed = again(nodes, checked=False)
        if not any(node.op_type == "QuantizeLinear" for node in relaxed.model.graph.node):
            return False
        least, samples[tuple(nodes)] = _judged(relaxed)
        return least >= LOW_DB

    kept, some = search.first(brings_back), ""
    if kept is None:  # quiet samples may be lost with any product on integers; others need not be
        kept = max(samples, key=lambda nodes: (samples[nodes], -len(nodes)), default=())
        most, count = samples.get(tuple(kept), 0), len(spread(done.samples, JUDGES))
        if most <= max(enough, count // 2):
            return done, None
        some = f" (and {LOW_DB:.0f} dB in {most} of {count} samples, not {enough})"
    chosen = again(kept, checked=True)
    return chosen, Relief(tuple(search.products(kept)), worst_output(chosen), before, some)


def _fewest(
    costliest: Sequence[str], brings_back: Callable[[Sequence[str]], bool]
) -> list[str] | None:
    """Return the fewest of the costliest products, the first ones at first, that bring back."""
    sizes = ([*costliest[:count]] for count in range(1, len(costliest) + 1))
    kept = next(filter(brings_back, sizes), None)
    for node in kept[:-1] if kept else ():  # the last one was needed; others may be on its way
        fewer = [other for other in kept or () if other != node]
        kept = fewer if brings_back(fewer) else kept
    return kept


class _Search:
    """The products of a file, and the dB of its worst output with some tensors in float."""

    def __init__(self, done: Quantization) -> None:
        self._model = done.prepared
        self._switches = Switches(self._model, done.model, spread(done.samples, SEARCHED))
        self._groups = _tensors_of_products(self._model, self._switches.images)

    def _sqnr(self, passing: Collection[str]) -> float:
        """Return the dB of the worst output with some tensors in float."""
        return min(self._switches.sqnrs(passing))

    def first(self, brings_back: Callable[[Sequence[str]], bool]) -> Sequence[str] | None:
        """Return the first nodes that bring back: of small fronts, few products, large fronts."""
        work = multiplications(self._model, self._groups)
        fronts: dict[int, tuple[list[str], set[str]]] = {}
        for nodes, tensors in self._fronts():
            fronts[sum(work[node] for node in self.products(nodes))] = nodes, tensors
        whole = sum(work.values())
        tried = spread(sorted(fronts.keys() - {0, whole}), MOST_FRONTS)
        sizes = [size for size in tried if self._sqnr(fronts[size][1]) >= LOW_DB]
        small = sum(size <= MOST_WORK * whole for size in sizes)
        ordered = [fronts[size][0] for size in sizes]
        return (
            next(filter(brings_back, ordered[:small]), None)
            or _fewest(self._costliest(), brings_back)
            or next(filter(brings_back, ordered[small:]), None)
        )

    def _without(self, nodes: Sequence[str]) -> float:
        """Return the dB of the worst output with some products in float."""
        return self._sqnr(set().union(*(self._groups[node] for node in nodes)))

    def _costliest(self) -> list[str]:
        """Return the products that cost the outputs most, each on top of those before."""
        products = tracked("leave a product float", [*self._groups])
        alone = {node: self._without([node]) for node in products}
        others = sorted(alone, key=lambda node: -alone[node])[:MOST_TRIED]
        costliest: list[str] = []
        while others and len(costliest) < MOST_LAYERS and self._without(costliest) < GOOD_DB:
            costliest.append(max(others, key=lambda node: self._without([*costliest, node])))
            others.remove(costliest[-1])
        return costliest

    def products(self, nodes: Collection[str]) -> list[str]:
        """Return the products among some nodes."""
        return [node for node in self._groups if node in nodes]

    def _fronts(self) -> Iterator[tuple[list[str], set[str]]]:
        """Yield what is in front of each product and function of the host: nodes, and tensors.

        Bit i of a number stands for node i.
        """
        nodes, before = [*self._model.graph.node], dict[str, int]()
        ends = self._ends()
        for number, node in enumerate(nodes):
            front = functools.reduce(operator.or_, (before.get(n, 0) for n in node.input), 0)
            if node.name in ends:
                read = node.input[:1] if node.name in self._groups else node.input
                those = [each for i, each in enumerate(nodes) if front >> i & 1]
                yield [n.name for n in those], {*read}.union(*(n.input for n in those))
            before |= dict.fromkeys(node.output, front | 1 << number)

    def _ends(self) -> set[str]:
        """Return the names of products, and of functions that the host computes."""
        inside = {name for function in functions(self._model) for name in function.nodes}
        loose = (n for n in self._model.graph.node if n.op_type not in MOVES)
        images = self._switches.images.keys()
        on_floats = {n.name for n in loose if images.isdisjoint((*n.input, *n.output))}
        return on_floats - inside | self._groups.keys()


def multiplications(model: ModelProto, nodes: Collection[str]) -> dict[str, int]:
    """Return the multiplications of some products of a prepared model."""
    graph = model.graph
    shapes = tensor_shapes((*graph.input, *graph.value_info, *graph.output))
    shapes |= {name: value.shape for name, value in initializers(model).items()}
    return {n.name: _multiplications(n, shapes) for n in graph.node if n.name in nodes}


def _multiplications(node: NodeProto, shapes: Mapping[str, Sequence[int]]) -> int:
    data, weight, result = (shapes.get(n) or (1,) for n in (*node.input[:2], node.output[0]))
    if node.op_type == "ConvTranspose":  # each value of its input meets the kernels of a channel
        return math.prod(data) * math.prod(weight[1:])
    if node.op_type == "Conv":
        return math.prod(result) * math.prod(weight[1:])
    return math.prod(result) * data[-1]


def _tensors_of_products(model: ModelProto, found: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the tensors with pairs that each product reads, or writes, maybe by an activation."""
    tensors, ends = Connections(model), saturated(model)
    groups: dict[str, set[str]] = {}
    for node in model.graph.node:
        if node.op_type in PRODUCTS:
            (result,) = node.output
            near = {*node.input, result, ends.get(result, result)}
            groups[node.name] = {name for name in near if name in found} - tensors.outputs
    return {node: group for node, group in groups.items() if group}


# ------------------------------------------------------------------------------------ last products


MOST_END_WORK = 1 / 20
"""Largest part of all multiplications that last products may have."""

LEAST_VALUES = 64
"""Values of a sample from which half of them say something of most."""


def coarse_ends(done: Quantization) -> list[str]:
    """Return the last products half of whose values would take fewer than `FEW` values.

    Logits of a detector from -400 to 3 have steps of 1.6, and what decides, their sign, lies within
    two. If last products do little work, the host may compute them from the integers before.
    """
    steps = _steps(done)
    coarse = [
        name for name, size in _middles(done, [*steps]).items() if size < FEW / 2 * steps[name]
    ]
    writers = producers(done.prepared)
    nodes = [writers[name].name for name in coarse]
    products = [n.name for n in done.prepared.graph.node if n.op_type in PRODUCTS]
    work = multiplications(done.prepared, products)
    small = sum(map(work.__getitem__, nodes)) <= MOST_END_WORK * sum(work.values())
    return nodes if small else []


def _steps(done: Quantization) -> dict[str, float]:
    """Return the scale of what last products write: outputs, or what is only moved to them."""
    image_of, written = images(done.prepared, done.model), producers(done.model)
    tensors, moved = Connections(done.prepared), only_moved(done.prepared)
    constants = initializers(done.model)

    def is_end(name: str) -> bool:
        behind = {reader.output[0] for reader in tensors.readers.get(name, [])}
        return name in tensors.outputs or (bool(behind) and behind <= moved.keys())

    products = [n.output[0] for n in done.prepared.graph.node if n.op_type in PRODUCTS]
    return {
        name: float(constants[written[image_of[name]].input[1]].max())
        for name in products
        if name in image_of and is_end(name)
    }


def _middles(done: Quantization, names: Sequence[str]) -> dict[str, float]:
    """Return the median magnitude of tensors on the calibration data."""
    runs = [*map(Probe(done.prepared, names, exact=False).run, done.samples)]
    values = {name: np.abs(np.stack([run[name] for run in runs])) for name in names}
    many = {name: each for name, each in values.items() if each[0].size >= LEAST_VALUES}
    return {name: float(np.median(each)) for name, each in many.items()}
