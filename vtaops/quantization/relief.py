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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.progress import tracked
from vtaops.base.shapes import Array
from vtaops.graph.onnx_files import (
    ModelProto,
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


Again = Callable[[Sequence[str]], "Quantization"]
"""Quantises once more, with some nodes in float."""


def worst_output(done: Quantization, samples: Sequence[Sample]) -> float:
    """Return the SQNR in dB of the output that keeps least."""
    return _judged(done, samples)[0]


def _judged(done: Quantization, samples: Sequence[Sample]) -> tuple[float, int]:
    """Return the SQNR of the worst output, and the number of samples with enough of all."""
    judges = spread(samples, JUDGES)
    exact, rounded = outputs(done.prepared, judges, exact=False), outputs(done.model, judges)
    alone = (min(sqnrs([one], [other])) for one, other in zip(exact, rounded, strict=True))
    return min(sqnrs(exact, rounded)), sum(db >= LOW_DB for db in alone)


def relieved(done: Quantization, samples: Sequence[Sample], again: Again) -> Quantization:
    """Leave products float where an output is lost otherwise.

    Parameters
    ----------
    done
        What was quantised.
    samples
        Those on which it is judged.
    again
        Quantises with the given nodes in float.
    """
    judges = spread(samples, JUDGES)
    before, enough = _judged(done, judges)
    if before >= LOW_DB:
        return _fine_ends(done, judges, again, before)
    # Quiet samples may be lost with any product on integers; others need not be.
    best, most, search = done, max(enough, len(judges) // 2), _Search(done)
    for nodes in search.candidates():
        relaxed = again(nodes)
        if relaxed.on_integers:
            least, count = _judged(relaxed, judges)
            all_back = least >= LOW_DB
            if all_back or count > most:
                of = f"{count} of {len(judges)} samples, not {enough}"
                some = "" if all_back else f" (and {LOW_DB:.0f} dB in {of})"
                relief = Relief(tuple(search.products(nodes)), least, before, some)
                best, most = replace(relaxed, relief=relief), count
            if all_back:
                break
    return best


class _Search:
    """The products of a file, and the dB of its worst output with some tensors in float."""

    def __init__(self, done: Quantization) -> None:
        self._model = done.prepared
        self._switches = Switches(self._model, done.model, done.samples)
        self._groups = _tensors_of_products(self._model, self._switches.images)

    def products(self, nodes: Collection[str]) -> list[str]:
        """Return the products among some nodes."""
        return [node for node in self._groups if node in nodes]

    def candidates(self) -> list[list[str]]:
        """Return nodes whose tensors in float bring back: small fronts, products, large fronts."""
        work = multiplications(self._model)
        few = MOST_WORK * sum(map(work.__getitem__, self._groups))
        fronts = {sum(map(work.__getitem__, self.products(f[0]))): f for f in self._fronts()}
        small, large = list[list[str]](), list[list[str]]()
        for size in spread(sorted(fronts.keys() - {0}), MOST_FRONTS):
            nodes, tensors = fronts[size]
            if min(self._switches.sqnrs(tensors)) >= LOW_DB:
                (small if size <= few else large).append(nodes)
        costliest = self._costliest()
        return [*small, *(costliest[: n + 1] for n in range(len(costliest))), *large]

    def _without(self, *nodes: str) -> float:
        """Return the dB of the worst output with some products in float."""
        return min(self._switches.sqnrs(set().union(*map(self._groups.__getitem__, nodes))))

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

    def _fronts(self) -> Iterator[tuple[list[str], set[str]]]:
        """Yield what is in front of each product and function of the host: nodes, and tensors."""
        nodes, images = [*self._model.graph.node], self._switches.images.keys()
        inside = set[str]().union(*(function.nodes for function in functions(self._model)))
        for node in nodes:
            product, tensors = node.name in self._groups, {*node.input, *node.output}
            loose = node.op_type not in MOVES and node.name not in inside
            if product or (loose and images.isdisjoint(tensors)):
                read = node.input[:1] if product else node.input
                front = needed(nodes, node.input)
                yield [n.name for n in front], {*read}.union(*(n.input for n in front))


def multiplications(model: ModelProto) -> dict[str, int]:
    """Return the multiplications of the products of a prepared model."""
    shapes, work = inferred_shapes(model), dict[str, int]()
    shapes |= {name: value.shape for name, value in initializers(model).items()}
    for node in model.graph.node:
        if node.op_type in PRODUCTS:
            names = (*node.input[:2], node.output[0])
            data, weight, result = (shapes.get(name) or (1,) for name in names)
            # Each value of the input of a transposed convolution meets the kernels of a channel.
            each = weight[1:] if node.op_type in ("Conv", "ConvTranspose") else data[-1:]
            values = data if node.op_type == "ConvTranspose" else result
            work[node.name] = math.prod(values) * math.prod(each)
    return work


def _tensors_of_products(model: ModelProto, found: Collection[str]) -> dict[str, set[str]]:
    """Return the tensors with pairs that each product reads, or writes, maybe by an activation."""
    ends, groups = saturated(model), dict[str, set[str]]()
    for node in model.graph.node:
        result = node.output[0]
        near = {*node.input, result, ends.get(result, result)}.intersection(found)
        if node.op_type in PRODUCTS and near:
            groups[node.name] = near
    return groups


# ------------------------------------------------------------------------------------ last products


MOST_END_WORK = 1 / 20
"""Largest part of all multiplications that last products may have."""

LEAST_VALUES = 64
"""Values of a sample from which half of them say something of most."""

UNEVEN = 16
"""Ratio of the largest value to the median from which half take fewer than `FEW` values."""


def _fine_ends(
    done: Quantization, judges: Sequence[Sample], again: Again, before: float
) -> Quantization:
    """Leave the last products float half of whose values would take fewer than `FEW` values.

    Logits of a detector from -400 to 3 have steps of 1.6, and what decides, their sign, lies within
    two. If last products do little work, the host may compute them from the integers before.
    """
    prepared, work = done.prepared, multiplications(done.prepared)
    last = only_moved(prepared).keys() & images(prepared, done.model).keys()
    nodes = prepared.graph.node
    ends = {n.name: n.output[0] for n in nodes if n.op_type in PRODUCTS and n.output[0] in last}
    runs = [*map(Probe(prepared, [*ends.values()], exact=False).run, done.samples)]
    coarse = [node for node, name in ends.items() if _is_coarse([run[name] for run in runs])]
    if coarse and sum(map(work.__getitem__, coarse)) <= MOST_END_WORK * sum(work.values()):
        fine = again(coarse)
        least = worst_output(fine, judges)
        if least >= before:
            some = f" (and half of its values take more than {FEW})"
            return replace(fine, relief=Relief(tuple(coarse), least, before, some))
    return done


def _is_coarse(values: Sequence[Array]) -> bool:
    """Return whether half of some values are far below the largest."""
    sizes = np.abs(np.stack(values))
    return bool(sizes[0].size >= LEAST_VALUES and UNEVEN * np.median(sizes) < sizes.max())
