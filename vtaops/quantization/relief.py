"""Layers that stay float where int8 would lose an output.

A few products often cost nearly all that an output loses: the spectrum at the front of a judge of
sound, the last layer of a regression. Where an output keeps less than `LOW_DB` in spite of
equalised channels, such products are left to the host. Tried are all in front of a product or of a
function that the host computes, such as those of a filter bank before its logarithm, which tells
values apart that one grid does not, and whose launch falls away; then the costliest products, each
on top of those before, and larger fronts. If nothing brings all samples back,
what brings back most is taken, if that is most of them; else nothing changes. A file in which each
tensor may pass in float shows what helps.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.progress import tracked
from vtaops.graph.onnx_files import (
    Connections,
    ModelProto,
    NodeProto,
    inferred_shapes,
    initializers,
    needed,
)
from vtaops.graph.probe import Probe
from vtaops.quantization.activations import functions
from vtaops.quantization.costs import Switches
from vtaops.quantization.pairs import images
from vtaops.quantization.quality import FEW, GOOD_DB, LOW_DB, outputs, spread, sqnrs
from vtaops.quantization.samples import Sample
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
"""Largest part of all multiplications that a front may have before single products are tried."""

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


def worst_output(done: Quantization, samples: Sequence[Sample]) -> float:
    """Return the SQNR in dB of the output that keeps least."""
    return _judged(done, samples)[0]


def _judged(done: Quantization, samples: Sequence[Sample]) -> tuple[float, int]:
    """Return the SQNR of the worst output, and the number of samples with enough of all."""
    judges = spread(samples, JUDGES)
    exact, rounded = outputs(done.prepared, judges, exact=False), outputs(done.model, judges)
    alone = (min(sqnrs([one], [other])) for one, other in zip(exact, rounded, strict=True))
    return min(sqnrs(exact, rounded)), sum(db >= LOW_DB for db in alone)


def relieved(
    done: Quantization, judges: Sequence[Sample], again: Callable[[Sequence[str]], Quantization]
) -> Quantization:
    """Leave products float where an output is lost otherwise.

    Parameters
    ----------
    done
        What was quantised.
    judges
        Samples on which it is judged.
    again
        Quantises with the given nodes in float.
    """
    before, enough = _judged(done, judges)
    if before >= LOW_DB:
        return _fine_ends(done, judges, again, before)
    search = _Search(done)
    tried: list[tuple[int, Quantization, float, list[str]]] = []
    for nodes in search.candidates():
        relaxed = again(nodes)
        if any(node.op_type == "QuantizeLinear" for node in relaxed.model.graph.node):
            least, count = _judged(relaxed, judges)
            products = search.products(nodes)
            if least >= LOW_DB:
                return replace(relaxed, relief=Relief(tuple(products), least, before))
            tried.append((count, relaxed, least, products))
    # Quiet samples may be lost with any product on integers; others need not be.
    most, relaxed, least, products = max(tried, key=lambda each: each[0], default=(0, done, 0, []))
    of = len(spread(judges, JUDGES))
    if most <= max(enough, of // 2):
        return done
    some = f" (and {LOW_DB:.0f} dB in {most} of {of} samples, not {enough})"
    return replace(relaxed, relief=Relief(tuple(products), least, before, some))


class _Search:
    """The products of a file, and the dB of its worst output with some tensors in float."""

    def __init__(self, done: Quantization) -> None:
        self._model = done.prepared
        self._switches = Switches(self._model, done.model, spread(done.samples, SEARCHED))
        self._groups = _tensors_of_products(self._model, self._switches.images)

    def candidates(self) -> list[list[str]]:
        """Return nodes whose tensors in float bring back: small fronts, products, large fronts."""
        work = multiplications(self._model, self._groups)
        fronts: dict[int, tuple[list[str], set[str]]] = {}
        for nodes, tensors in self._fronts():
            fronts[sum(work[node] for node in self.products(nodes))] = nodes, tensors
        sizes = spread(sorted(fronts.keys() - {0}), MOST_FRONTS)
        back = {size: fronts[size][0] for size in sizes if self._sqnr(fronts[size][1]) >= LOW_DB}
        small = [nodes for size, nodes in back.items() if size <= MOST_WORK * sum(work.values())]
        costliest = self._costliest()
        few = [costliest[:count] for count in range(1, len(costliest) + 1)]
        return [*small, *few, *[*back.values()][len(small) :]]

    def _sqnr(self, passing: Collection[str]) -> float:
        """Return the dB of the worst output with some tensors in float."""
        return min(self._switches.sqnrs(passing))

    def _without(self, *nodes: str) -> float:
        """Return the dB of the worst output with some products in float."""
        return self._sqnr(set().union(*map(self._groups.__getitem__, nodes)))

    def _costliest(self) -> list[str]:
        """Return the products that cost the outputs most, each on top of those before."""
        products = tracked("leave a product float", [*self._groups])
        alone = {node: self._without(node) for node in products}
        others = heapq.nlargest(MOST_TRIED, alone, key=alone.__getitem__)
        costliest: list[str] = []
        while others and len(costliest) < MOST_LAYERS and self._without(*costliest) < GOOD_DB:
            costliest.append(max(others, key=lambda node: self._without(*costliest, node)))
            others.remove(costliest[-1])
        return costliest

    def products(self, nodes: Collection[str]) -> list[str]:
        """Return the products among some nodes."""
        return [node for node in self._groups if node in nodes]

    def _fronts(self) -> Iterator[tuple[list[str], set[str]]]:
        """Yield what is in front of each product and function of the host: nodes, and tensors."""
        nodes, ends = [*self._model.graph.node], self._ends()
        for node in nodes:
            if node.name in ends:
                read = node.input[:1] if node.name in self._groups else node.input
                front = needed(nodes, node.input)
                yield [n.name for n in front], {*read}.union(*(n.input for n in front))

    def _ends(self) -> set[str]:
        """Return the names of products, and of functions that the host computes."""
        inside = {name for function in functions(self._model) for name in function.nodes}
        loose = (n for n in self._model.graph.node if n.op_type not in MOVES)
        images = self._switches.images.keys()
        on_floats = {n.name for n in loose if images.isdisjoint((*n.input, *n.output))}
        return on_floats - inside | self._groups.keys()


def multiplications(model: ModelProto, nodes: Collection[str]) -> dict[str, int]:
    """Return the multiplications of some products of a prepared model."""
    shapes = inferred_shapes(model)
    shapes |= {name: value.shape for name, value in initializers(model).items()}
    return {n.name: _multiplications(n, shapes) for n in model.graph.node if n.name in nodes}


def _multiplications(node: NodeProto, shapes: Mapping[str, Sequence[int]]) -> int:
    data, weight, result = (shapes.get(n) or (1,) for n in (*node.input[:2], node.output[0]))
    # Each value of the input of a transposed convolution meets the kernels of a channel.
    each = weight[1:] if node.op_type in ("Conv", "ConvTranspose") else data[-1:]
    return math.prod(data if node.op_type == "ConvTranspose" else result) * math.prod(each)


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

UNEVEN = 16
"""Ratio of the largest value to the median from which half take fewer than `FEW` values."""


def _fine_ends(
    done: Quantization,
    judges: Sequence[Sample],
    again: Callable[[Sequence[str]], Quantization],
    before: float,
) -> Quantization:
    """Leave the last products float half of whose values would take fewer than `FEW` values.

    Logits of a detector from -400 to 3 have steps of 1.6, and what decides, their sign, lies within
    two. If last products do little work, the host may compute them from the integers before.
    """
    products = {n.output[0]: n.name for n in done.prepared.graph.node if n.op_type in PRODUCTS}
    nodes = [products[name] for name in _coarse_ends(done, products)]
    work = multiplications(done.prepared, products.values())
    small = sum(map(work.__getitem__, nodes)) <= MOST_END_WORK * sum(work.values())
    if not nodes or not small:
        return done
    fine = again(nodes)
    least = worst_output(fine, judges)
    some = f" (and half of its values take more than {FEW})"
    relief = Relief(tuple(nodes), least, before, some)
    return done if least < before else replace(fine, relief=relief)


def _coarse_ends(done: Quantization, products: Iterable[str]) -> Iterator[str]:
    """Yield results of last products half of whose values are far below the largest."""
    last = only_moved(done.prepared).keys() & images(done.prepared, done.model).keys()
    names = [name for name in products if name in last]
    runs = [*map(Probe(done.prepared, names, exact=False).run, done.samples)]
    for name in names:
        sizes = np.abs(np.stack([run[name] for run in runs]))
        if sizes[0].size >= LEAST_VALUES and UNEVEN * np.median(sizes) < sizes.max():
            yield name
