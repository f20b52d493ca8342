"""Layers that stay float where int8 would lose an output.

A few products often cost nearly all that an output loses: the spectrum at the front of a judge of
sound, the last layer of a regression. Where an output keeps less than `LOW_DB`, channels are
equalised; if that is not enough, such products are left to the host, as few as bring the output
back; if none do, nothing changes. Which cost most shows a file in which the tensors of each product
may pass in float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vtaops.base.progress import tracked
from vtaops.graph.onnx_files import Connections, ModelProto
from vtaops.graph.probe import Probe
from vtaops.quantization.costs import switched
from vtaops.quantization.pairs import images
from vtaops.quantization.quality import LOW_DB, outputs, worst_sqnr
from vtaops.quantization.samples import Sample
from vtaops.quantization.scales import PRODUCTS, saturated

if TYPE_CHECKING:
    from vtaops.quantization.pipeline import Quantization

JUDGES = 2
"""Most samples that judge."""

MOST_TRIED = 8
"""Most products that are tried together with others: those that cost most alone."""

MOST_LAYERS = 6
"""Most products that are left float."""


@dataclass(frozen=True)
class Relief:
    """Products that stay float, and the dB of the worst output with and without them."""

    nodes: tuple[str, ...]
    sqnr_db: float
    rounded_db: float

    def __str__(self) -> str:
        return (
            f"{', '.join(self.nodes)} stay float, on the host: an output keeps {self.sqnr_db:.1f} "
            f"dB, and {self.rounded_db:.1f} dB with all products in integers"
        )


def judged_on(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples that judge."""
    return [*samples[:: max(1, len(samples) // JUDGES)]][:JUDGES]


def worst_output(done: Quantization) -> float:
    """Return the SQNR in dB of the output that keeps least."""
    judges = judged_on(done.samples)
    exact = outputs(done.prepared, judges, exact=False)
    return worst_sqnr(exact, outputs(done.model, judges))


def relieved(
    done: Quantization, again: Callable[[Sequence[str]], Quantization]
) -> tuple[Quantization, Relief | None]:
    """Return a quantisation with as few products in float as bring its outputs back.

    Parameters
    ----------
    done
        What was quantised, an output of which keeps too little.
    again
        Quantises with the given nodes in float.
    """
    before = worst_output(done)
    nodes = costliest(done.prepared, done.model, judged_on(done.samples))
    sizes = (nodes[:count] for count in range(1, len(nodes) + 1))
    kept = next((each for each in sizes if _brings_back(again(each))), None)
    if kept is None:
        return done, None
    for node in kept[:-1]:  # the last one was needed; those before may have been only on its way
        fewer = [other for other in kept if other != node]
        kept = fewer if _brings_back(again(fewer)) else kept
    chosen = again(kept)
    return chosen, Relief(tuple(kept), worst_output(chosen), before)


def _brings_back(done: Quantization) -> bool:
    """Return whether all outputs keep enough, and something is computed in integers."""
    on_integers = any(node.op_type == "QuantizeLinear" for node in done.model.graph.node)
    return on_integers and worst_output(done) >= LOW_DB


def costliest(model: ModelProto, quantized: ModelProto, judges: Sequence[Sample]) -> list[str]:
    """Return the products that cost the outputs most, each on top of those before."""
    groups = _tensors_of_products(model, images(model, quantized))
    sqnr = _judge(model, quantized, groups, judges)
    alone = {node: sqnr([node]) for node in tracked("leave a product float", [*groups])}
    others = sorted(alone, key=lambda node: -alone[node])[:MOST_TRIED]
    taken: list[str] = []
    while others and len(taken) < MOST_LAYERS and (not taken or sqnr(taken) < 2 * LOW_DB):
        taken.append(max(others, key=lambda node: sqnr([*taken, node])))
        others.remove(taken[-1])
    return taken


def _judge(
    model: ModelProto,
    quantized: ModelProto,
    groups: Mapping[str, set[str]],
    judges: Sequence[Sample],
) -> Callable[[Sequence[str]], float]:
    """Return what tells the dB of the worst output with some products in float."""
    found, names = images(model, quantized), sorted(set().union(*groups.values()))
    ends = [value.name for value in model.graph.output]
    probe = Probe(switched(model, quantized, {name: found[name] for name in names}), ends)
    exact = outputs(model, judges, exact=False)

    def sqnr(nodes: Sequence[str]) -> float:
        passing = set().union(*(groups[node] for node in nodes))
        switches = {f"switch/{name}": np.array(name in passing) for name in names}
        return worst_sqnr(exact, (probe.run({**judge, **switches}) for judge in judges))

    return sqnr


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
