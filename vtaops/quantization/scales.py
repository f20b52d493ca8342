"""Scales and zero points of activations, from calibrated ranges.

Tensors connected by operators without arithmetic share one grid: both sides of a pooling or a
reshape, and all parts of a concatenation, so that these need no requantisation on VTA. Inputs of a
Relu or Clip saturate on the grid of its output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from vtaops.base.shapes import Array
from vtaops.graph.grid import Grid, Range
from vtaops.graph.onnx_files import (
    Arrays,
    Connections,
    ModelProto,
    NodeProto,
    attributes,
    initializers,
)
from vtaops.quantization.disjoint_sets import DisjointSets
from vtaops.quantization.observers import SquaredErrors

MOVES = (
    "MaxPool",
    "AveragePool",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Slice",
    "Split",
    "Resize",
    "Pad",
)
"""Operators whose result ONNX Runtime's quantiser leaves on the grid of their input."""

SATURATING = frozenset({"Relu", "Clip"})
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
MOST_WEIGHTS = 1 << 20
"""Number of weights of a constant that are sampled to choose a power of two."""

LARGEST, LARGEST_BIAS = 127, (1 << 31) - 1
"""Weights are symmetric int8, biases int32."""

SMALLEST = 1e-30
"""Scales below it are those of zeros; ordinary numbers take their place."""

MOST_UNEVEN = 2
"""Ratio of the ranges of parts beyond which a concatenation at the end of a model stays float."""

MOST_BIAS = 1 << 30
"""Largest bias in steps of its sums: half of int32, the products have the rest."""

FINEST = 1 << 22
"""Most steps of the sums in a step of their result."""


def shared_ranges(
    model: ModelProto, ranges: dict[str, Range]
) -> tuple[dict[str, Range], dict[str, str]]:
    """Give tensors that share a grid the same range.

    Returns
    -------
    ranges
        The range of each tensor: the hull of its group's ranges. Results of concatenations that
        nothing computes with, and whose parts differ much in range, have none.
    groups
        A representative of each tensor's group.
    """
    ends = _loose_ends(model, ranges)
    ranges = {name: reach for name, reach in ranges.items() if name not in ends}
    entering = {name: end for name, end in saturated(model).items() if end in ranges}
    groups = _groups(model, set(ranges))
    hulls: dict[str, Range] = {}
    for name, (low, high) in ranges.items():
        if name not in entering:
            old = hulls.get(groups[name], (0.0, 0.0))
            hulls[groups[name]] = min(low, old[0]), max(high, old[1])
    for name in reversed(list(entering)):
        if name in ranges:
            groups[name] = groups[entering[name]]
    return {name: hulls[groups[name]] for name in ranges}, groups


def saturated(model: ModelProto) -> dict[str, str]:
    """Return the inputs of a Relu or Clip that nothing else reads, with the output of each."""
    tensors = Connections(model)
    return {
        node.input[0]: node.output[0]
        for node in model.graph.node
        if node.op_type in SATURATING and tensors.only_reader(node.input[0]) is not None
    }


def _loose_ends(model: ModelProto, ranges: Mapping[str, Range]) -> set[str]:
    """Return results of concatenations, and what moves them, that stay float behind their parts.

    Their parts are tensors such as boxes and scores: one grid would leave one of them few steps,
    and nothing computes with the whole.
    """
    loose, ends = only_moved(model), set[str]()
    for node in model.graph.node:
        if node.op_type == "Concat" and node.output[0] in loose:
            known = [ranges[name] for name in node.input if name in ranges]
            sizes = [*filter(None, (max(-low, high) for low, high in known))]
            if sizes and max(sizes) > MOST_UNEVEN * min(sizes):
                ends |= loose[node.output[0]]
    return ends


def only_moved(model: ModelProto) -> dict[str, set[str]]:
    """Return the tensors that nothing computes with, each with those that it is moved to."""
    tensors, loose = Connections(model), dict[str, set[str]]()
    for name in reversed(list(tensors.writers)):
        readers = tensors.readers.get(name, [])
        behind = {reader.output[0] for reader in readers}
        moved = all(reader.op_type in ("Concat", "DepthToSpace", *MOVES) for reader in readers)
        if moved and behind <= loose.keys():
            loose[name] = {name}.union(*map(loose.__getitem__, behind))
    return loose


def _groups(model: ModelProto, names: set[str]) -> dict[str, str]:
    ties = DisjointSets[str]()
    for node in model.graph.node:
        tied = [node.input[0], *node.output] if node.op_type in MOVES else [""]
        if node.op_type == "Concat":
            tied = [*node.output, *node.input]
        if tied[0] in names:  # as those of concatenations that stay float are not
            ties.join(tied[0], *names.intersection(tied))
    return {name: ties.root(name) for name in names}


def power_of_two_grids(
    model: ModelProto,
    errors: SquaredErrors,
    ranges: dict[str, Range],
    groups: dict[str, str],
    *,
    zero_points: bool,
) -> dict[str, Grid]:
    """Return, for each group, the power-of-two grid with the least squared error on the samples.

    The grid that covers the range often wastes almost a bit, so those with half and a quarter of
    its scale are also tried; they saturate the rarest values.
    """
    candidates = {
        groups[name]: _powers(reach, zero_points=zero_points) for name, reach in ranges.items()
    }
    totals: dict[str, Array | float] = defaultdict(float)
    entering = saturated(model)
    for name in ranges:
        if name not in entering:
            totals[groups[name]] += errors.of(name, candidates[groups[name]], ranges[name])
    best = {group: grids[int(np.argmin(totals[group]))] for group, grids in candidates.items()}
    return {name: best[groups[name]] for name in ranges}


@dataclass(frozen=True)
class WeightScale:
    """The scale of a constant, and the axis along which it has one for each channel, if any.

    `largest` is the largest integer.
    """

    scale: Array
    axis: int | None
    largest: int = LARGEST

    def steps(self, rank: int) -> Array:
        """Return the scale, as files have it, in a shape that broadcasts to the constant."""
        axes = () if self.axis is None else tuple({*range(rank)} - {self.axis})
        return np.asarray(np.expand_dims(np.float32(self.scale).astype(np.float64), axes))

    def integers(self, value: Array) -> Array:
        """Return the nearest integers for a constant, in the type that holds the largest."""
        steps = np.rint(value / self.steps(value.ndim))
        kind = np.min_scalar_type(-self.largest)
        return np.asarray(np.clip(steps, -self.largest - 1, self.largest)).astype(kind)

    def rounded(self, value: Array) -> Array:
        """Return the real numbers that stand for a constant, as float64."""
        return np.asarray(self.integers(value) * self.steps(value.ndim))


def weight_scales(
    model: ModelProto, grids: Mapping[str, Grid], nodes: Collection[str], *, free: bool, bits: int
) -> dict[str, WeightScale]:
    """Return the scales of all constants that nodes on integers read, except biases.

    They are powers of two, one for each constant; or, if free, ONNX Runtime's, one for each channel
    of a product's weight. Either is large enough for the sums of its products (`_least`). Free ones
    of the weights of products may have few `bits`.
    """
    constants, scales = initializers(model), dict[str, WeightScale]()
    readers: dict[str, list[NodeProto]] = defaultdict(list)
    for node in model.graph.node:
        for name in constants.keys() & constant_operands(node) if node.name in nodes else ():
            readers[name].append(node)
    for name, those in readers.items():
        weight = constants[name]
        axis = _channel_axis(those, name, weight.ndim) if free else None
        bounds = [_least(node, grids, constants) for node in those]
        least = reduce(np.maximum, bounds if axis is not None else [*map(np.max, bounds)])
        largest = _most(those, name, bits)
        scale = (
            _free_scale(weight, axis, least, largest)
            if free
            else np.asarray(power_of_two_weight_scale(weight, float(least)))
        )
        scales[name] = WeightScale(scale, axis, largest)
    return scales


def _most(nodes: Sequence[NodeProto], name: str, bits: int) -> int:
    """Return the largest integer of a constant: few `bits` are for products of one group."""
    groups = {attributes(n).get("group", 1) for n in nodes if name in n.input[1:2]}
    products = all(node.op_type in ("Conv", "Gemm", "MatMul") for node in nodes)
    return (1 << bits - 1) - 1 if products and groups == {1} else LARGEST


def _free_scale(weight: Array, axis: int | None, least: Array, most: int) -> Array:
    """Return the scales with which the largest weight of each channel is `most`."""
    others = tuple(each for each in range(weight.ndim) if each != axis)
    largest = np.abs(weight.astype(np.float64)).max(axis=others, initial=0.0)
    scales: Array = np.maximum(largest / most, least)
    return np.where(scales < SMALLEST, 1.0 / most, scales)


def _channel_axis(nodes: Sequence[NodeProto], name: str, rank: int) -> int | None:
    """Return the axis of a weight that counts the results of its products; None if none does."""
    axes = set[int | None]()
    for node in nodes:
        attrs = attributes(node)
        known = {
            "Conv": 0,
            "ConvTranspose": None if attrs.get("group", 1) > 1 else 1,
            "Gemm": 0 if attrs.get("transB") else 1,
            "MatMul": 1 if rank == 2 else None,
        }
        axes.add(known.get(node.op_type) if name in node.input[1:2] else None)
    return axes.pop() if len(axes) == 1 else None


def _least(node: NodeProto, grids: Mapping[str, Grid], constants: Arrays) -> Array:
    """Return the least scale of a product's weight, for each channel or for all.

    A channel whose weights are almost 0, as a batch norm leaves it, would have products so fine
    that its bias leaves int32, or its result needs a shift that no hardware has. Coarser products
    change its results by at most 2**-16 of a step for each weight.
    """
    if node.op_type not in PRODUCTS or node.input[0] not in grids:
        return np.zeros(())
    data = grids[node.input[0]].scale
    bias = constants.get([*node.input, ""][2])
    least = np.zeros(()) if bias is None else np.abs(bias.astype(np.float64)) / MOST_BIAS
    if node.output[0] in grids:
        least = np.maximum(least, grids[node.output[0]].scale / FINEST)
    return least / data


def no_finer_than_totals(
    model: ModelProto,
    grids: dict[str, Grid],
    groups: dict[str, str],
    floats: Collection[str],
) -> dict[str, Grid]:
    """Make grids that only one addition reads at least as coarse as that of its result.

    The sum then loses no bit of them. Rounding them where they are computed, from sums of many
    bits, costs as much, but has no exact halves, all of which hardware rounds up. Additions that
    continue the sums of a convolution are excluded: they round once, whatever the grid.
    """
    result, tensors, members = dict(grids), Connections(model), defaultdict[str, set[str]](set)
    for name in grids:
        members[groups[name]].add(name)
    for node in reversed(model.graph.node):
        if node.op_type == "Add" and node.output[0] in result.keys() - {*floats}:
            scale = result[node.output[0]].scale
            for group in (members[groups.get(name, "")] for name in node.input):
                if _are_added(group, node, tensors):
                    for name in group:
                        result[name] = replace(result[name], scale=max(scale, result[name].scale))
    return result


def _are_added(group: set[str], node: NodeProto, tensors: Connections) -> bool:
    """Return whether an addition alone reads tensors on one grid, and continues no sums."""
    read = {r.output[0] for name in group for r in tensors.readers.get(name, ())} - group
    alone = read == {*node.output} and group.isdisjoint(tensors.outputs)
    return alone and not any(tensors.chain(name, "Conv") for name in node.input)


def power_of_two_weight_scale(weight: Array, least: float = 0.0) -> float:
    """Return the power of two with the least squared error on a weight tensor.

    Parameters
    ----------
    weight
        float32 weights of any shape.
    least
        A lower bound, for cases where the int32 bias needs coarser products.
    """
    greatest = float(np.abs(weight).max())
    grids = _powers((-greatest, greatest), zero_points=False)
    exact = weight.reshape(-1)[:: max(1, weight.size // MOST_WEIGHTS)].astype(np.float64)
    errors = [np.square(exact - grid.rounded(exact)).sum() for grid in grids]
    scale = grids[int(np.argmin(errors))].scale
    while scale < least:
        scale *= 2
    return scale


def covering_grid(found: Range, zero_points: bool) -> Grid:
    """Return the smallest grid that covers a range."""
    low, high = found
    if high - low < 1e-12:  # all zeros: any scale is exact
        low, high = -1.0, 1.0
    if not zero_points:
        return Grid(max(-low, high) / 127)
    scale = (high - low) / 255
    return Grid(scale, _zero_point(-128 - low / scale), symmetric=False)


def _powers(found: Range, *, zero_points: bool) -> list[Grid]:
    """Return the power-of-two grid that covers a range, and those with half and a quarter scale."""
    low, high = found
    covering = 2.0 ** np.ceil(np.log2(covering_grid(found, zero_points).scale))
    scales = [covering, covering / 2, covering / 4]
    if not zero_points:
        return [*map(Grid, scales)]
    zeros = [-128 if low == 0 else -(low + high) / 2 / scale for scale in scales]
    return [Grid(s, _zero_point(z), symmetric=False) for s, z in zip(scales, zeros, strict=True)]


def _zero_point(value: float) -> int:
    return int(np.clip(np.rint(value), -128, 127))


def constant_operands(node: NodeProto) -> list[str]:
    """Return the inputs that a quantised operator may read as constants on a grid.

    Biases are not among them: their grid is that of the sums.
    """
    first = {"Conv": 1, "ConvTranspose": 1, "Gemm": 0, "MatMul": 0}
    if node.op_type in first:
        return [*node.input[first[node.op_type] : 2]]
    return [*node.input] if node.op_type in ("Add", "Sub", "Mul", "Concat") else []
