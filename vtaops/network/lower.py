"""Lower nodes of a graph to operators of VTA: one function for each operator of graphs.

`lower_<operator>` adds what VTA executes to a region, or raises `NotOnVta` with the reason why the
host executes the node. So a node runs on VTA if it can be lowered alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vtaops.base.errors import ShapeError
from vtaops.base.reasons import Reason
from vtaops.base.shapes import Array
from vtaops.graph import (
    FineRequantization,
    Graph,
    Node,
    Quotient,
    Requantization,
    Tensor,
    TfliteRequantization,
)
from vtaops.graph import operators as ops
from vtaops.machine.capabilities import Feature
from vtaops.network.epilogue import (
    require_accumulator,
    require_digits,
    right_shift,
    scale_of,
)
from vtaops.network.lower_sums import (
    lower_average_pool,
    lower_convolution,
    lower_dense,
    lower_requantize,
    lower_transposed_convolution,
)
from vtaops.network.matrices import (
    flattened,
    lower_product,
    lower_row_norm,
    lower_row_softmax,
    turned,
)
from vtaops.network.places import Lanes, TensorPlace
from vtaops.network.products import lower_matmul
from vtaops.network.propagation import flattens, joins_pixels, makes, turns
from vtaops.network.readers import storages
from vtaops.network.region import LoweredRegion, all_but, zero_weights
from vtaops.network.target import NotOnVta, Target
from vtaops.ops import Conv2dTranspose, Elementwise, MaxPool2d
from vtaops.ops.elementwise import Function
from vtaops.ops.epilogue import offset_stages

_ENDS = (ops.Quantize, ops.Dequantize, ops.FromUint8, ops.ToUint8, ops.Constant)
"""What operators between the accelerator and the world are."""

ON_HOST = (ops.Host, ops.FloatOperator, *_ENDS)
"""Operators that always run on the host."""

MAX_EXTENT = 1 << 18
"""Maximum size of an image axis, because the compiler lists them; vocabularies are smaller."""


def lower_region(graph: Graph, nodes: Sequence[Node], target: Target) -> LoweredRegion:
    """Return the operators that VTA executes for nodes of a graph.

    Raises
    ------
    NotOnVta
        If it cannot execute a node among the others; the error names it.
    """
    region = LoweredRegion(graph, nodes, target)
    for node in region.nodes:
        try:
            _check_inputs(node, region)
            _LOWERINGS[type(node.op)](node.op, node, region)
        except NotOnVta as error:
            error.node = node.name
            raise
    region.export_outputs()
    return region


def _check_inputs(node: Node, region: LoweredRegion) -> None:
    """Refuse inputs of the host that lie as heads, which only products of two tensors read."""
    for tensor in node.inputs:
        storage = region.storages[tensor.name]
        if tensor in region.inputs and storage.split:
            text = f"{tensor.name} is stored as {storage}, which the host does not make"
            raise NotOnVta("layout", text)


def reason_for_host(node: Node, graph: Graph, target: Target) -> Reason | None:
    """Return why a node runs on the host; None if VTA can execute it."""
    try:
        _lower_alone(node, graph, target)
    except NotOnVta as error:
        return error.reason if isinstance(node.op, ops.Host) else _named(error.reason, node.op.kind)
    return None


def is_apart(node: Node, graph: Graph, target: Target) -> bool:
    """Return whether VTA executes a product of two tensors, in a launch of its own."""
    return isinstance(node.op, ops.Matmul) and _lower_alone(node, graph, target)


def _lower_alone(node: Node, graph: Graph, target: Target) -> bool:
    """Lower a node alone; return whether the host must pack its operands, which are matrices.

    Raises NotOnVta if the host executes it.
    """
    _check(node, graph, target)
    product = isinstance(node.op, ops.Matmul)
    if target.stores_weights or not product:
        try:
            _LOWERINGS[type(node.op)](node.op, node, LoweredRegion(graph, [node], target))
        except NotOnVta:
            if not product:
                raise
        else:
            return False
    lower_matmul(node, target)
    return True


def _named(reason: Reason, kind: str) -> Reason:
    """Return a reason with the name of the operator in place of its pronoun."""
    name = f"the {kind.replace('_', ' ').replace('+', ' with ')}"
    for pronoun, noun in (("its ", f"{name}'s "), ("it ", f"{name} ")):
        if reason.text.startswith(pronoun):
            return Reason(reason.code, noun + reason.text.removeprefix(pronoun))
    return reason


# ------------------------------------------------------------------------------ what VTA takes


def _check(node: Node, graph: Graph, target: Target) -> None:
    """Refuse operators, types, roundings and images that no function below need expect."""
    op = node.op
    if isinstance(op, ops.Host):
        raise NotOnVta(op.code, op.reason)
    if isinstance(op, _ENDS):
        raise NotOnVta("boundary", "it is the boundary to the host")
    if isinstance(op, ops.FloatOperator):
        raise NotOnVta("no_operator", f"VTA has no operator {op.kind}")
    for tensor in (*node.inputs, *node.outputs):
        if tensor.dtype != "int8":
            raise NotOnVta("type", f"{tensor.name} is {tensor.dtype}; VTA computes on int8")
    if type(op) not in _LOWERINGS:
        raise NotOnVta("no_operator", f"VTA has no {op.kind}")
    if isinstance(op, ops.Requantized):
        _check_rounding(op.requantization, target)
    if not isinstance(op, ops.Matmul):
        _check_storage(node, graph)


def _check_rounding(scaling: Requantization | Quotient, target: Target) -> None:
    if isinstance(scaling, TfliteRequantization):
        text = "it rounds like TFLite, which VTA can only approximate; with 'exact', it is equal"
        raise NotOnVta("rounding", text)
    if isinstance(scaling, FineRequantization | Quotient) and not target.fine:
        text = f"{target.config.name} has no extension 'exact', which has its scales"
        raise NotOnVta("rounding", text)


def _check_storage(node: Node, graph: Graph) -> None:
    """Refuse a node that cannot read or write the images that hold its tensors."""
    known, found = storages(graph), []
    for tensor in (*node.inputs, *node.outputs):
        if (storage := known.get(tensor.name)) is None:
            text = f"{tensor.name} has rank {len(tensor.shape)}; VTA's images need 2 or more"
            raise NotOnVta("layout", text)
        if (extent := max(storage.image)) > MAX_EXTENT:
            text = f"{tensor.name} has an axis of {extent:,}; an image's are at most {MAX_EXTENT:,}"
            raise NotOnVta("layout", text)
        found.append(storage)
    *given, result = found
    if not makes(node, given, result):
        before, after = node.inputs[0].shape, node.outputs[0].shape
        raise NotOnVta(
            "layout",
            f"it moves data: {before}, stored as {' and '.join(map(str, given))}, to {after}; VTA "
            "keeps the pixels of images apart from their channels",
        )


# --------------------------------------------------------------------------------- elementwise


def lower_max_pool(op: ops.MaxPool, node: Node, region: LoweredRegion) -> None:
    """Lower to a pool."""
    if op.dilation != (1, 1):
        text = f"its windows have the dilation {op.dilation}; VTA compares adjacent pixels"
        raise NotOnVta("window", text)
    place = region.same_lanes(node)
    pool = MaxPool2d(
        **place.extents,
        channels=place.width,
        kernel=op.kernel,
        strides=op.strides,
        padding=op.window(node.inputs[0]).padding,
    )
    region.step_alike(node, pool, place)


def lower_add(op: ops.Add, node: Node, region: LoweredRegion) -> None:
    """Lower to a sum with factors."""
    a, b = node.inputs
    if a.shape != b.shape:
        text = f"its operands have the shapes {a.shape} and {b.shape}; VTA adds equal ones"
        raise NotOnVta("shape", text)
    scaling, factors = op.requantization, op.factors
    constant = -sum(f * t.zero_point for f, t in zip(factors, node.inputs, strict=True))
    require_digits("its factors are", factors)
    if not region.target.scales:
        shift = right_shift(scaling)
        constant += scaling.zero_point << shift
        require_accumulator(128 * sum(map(abs, factors)) + abs(constant) + (1 << shift >> 1))
        try:
            offset_stages("sum", constant, shift, "half_up")
        except ShapeError as error:
            text = f"its constant of the zero points: {error}"
            raise NotOnVta("zero_point", text) from error
    first, second = factors
    constant = int(np.int64(constant).astype(np.int32))  # sums wrap as well
    fields = {"scale": first, "other_scale": second, "constant": constant}
    _elementwise(node, region, "add", scaling, **fields)


def lower_multiply(op: ops.Multiply, node: Node, region: LoweredRegion) -> None:
    """Lower to a product of two tensors."""
    capabilities = region.target.capabilities
    if not capabilities.has(Feature.MUL):
        raise NotOnVta("extension", f"{capabilities.name} cannot multiply two tensors")
    if op.requantization.zero_point and not region.target.scales:
        text = f"its result has the zero point {op.requantization.zero_point}; on VTA it needs 0"
        raise NotOnVta("zero_point", text)
    (image, first), (gate, second) = ((t.shape, -t.zero_point) for t in node.inputs)
    offsets = {"data_offset": first, "other_offset": second, "by_channel": image != gate}
    _elementwise(node, region, "multiply", op.requantization, **offsets)


def lower_extremum(op: ops.Extremum, node: Node, region: LoweredRegion) -> None:
    """Lower to a maximum or minimum of two tensors."""
    by_channel = node.inputs[0].shape != node.inputs[1].shape
    _elementwise(node, region, op.function, by_channel=by_channel)


def _elementwise(
    node: Node,
    region: LoweredRegion,
    function: Function,
    scaling: Requantization | None = None,
    **fields: Any,
) -> None:
    """Add a function of two tensors."""
    if scaling:
        fields |= scale_of(scaling, region.target)
    data = region.same_lanes(node)
    other = region.second(node, data.seen_lanes)
    clip = scaling.clip if scaling else None
    combined = Elementwise(function=function, shape=data.shape, clip=clip, **fields)
    region.step_alike(node, combined, data, other=other)


def lower_lookup_table(op: ops.LookupTable, node: Node, region: LoweredRegion) -> None:
    """Lower a table that no operator before it applies to a copy."""
    if op.table.ndim > 1:
        raise NotOnVta("channels", "it has a table for each channel; VTA maps all channels alike")
    if not region.target.tables:
        text = f"{op.kind} is a table, which {region.target.config.name} lacks"
        raise NotOnVta("extension", text)
    data = region.same_lanes(node)
    copy = Elementwise(function="identity", shape=data.shape, multiplier=1)
    uses = {"data": data, "res": region.result(node, data.seen_lanes)}
    region.append(node.name, copy, uses, table=op.table)


# ------------------------------------------------------------------------------------ movement


def lower_concat(op: ops.Concat, node: Node, region: LoweredRegion) -> None:
    """Lower to nothing, if channels are joined: to copies of the parts that lie elsewhere."""
    if joins_pixels(node, region.storages):
        _join_pixels(node, region, op.axis)
        return
    places = [region.part(node, position) for position in range(len(node.inputs))]
    pairs = zip(node.inputs, places, strict=True)
    lanes = [_by_axis(tensor, place.lanes, region) for tensor, place in pairs]
    joined = TensorPlace(places[0].memory, _flat(np.concatenate(lanes, op.axis)))
    region.places[node.outputs[0].name] = joined


def _join_pixels(node: Node, region: LoweredRegion, axis: int, start: int = 0) -> None:
    """Copy images to parts of the result, or the part from `start` on of one image."""
    res, across = region.result(node), _moves_columns(node, region, axis)
    size = res.image[2 + across]
    for tensor in node.inputs:
        data = region.packed(node, tensor)
        extent = data.image[2 + across]
        shared = min(extent, size)
        uses = [
            place.with_sides(all_but(int(across), (at, whole - shared - at)))
            for place, at, whole in (
                (data, start if extent > size else 0, extent),
                (res, 0 if extent > size else start, size),
            )
        ]
        start += extent
        region.copy(node.name, *uses)


def _moves_columns(node: Node, region: LoweredRegion, axis: int) -> bool:
    """Return whether pixels that are joined or cut are columns, and not rows."""
    (whole,) = node.outputs if isinstance(node.op, ops.Concat) else node.inputs
    found = region.storages[whole.name].pixel_axis(axis % len(whole.shape), whole.shape)
    return found == 3


def _skip_pixels(node: Node, region: LoweredRegion, axis: int, start: int) -> None:
    """Copy rows or columns of an image, from the first on at equal distances."""
    assert isinstance(node.op, ops.Slice)
    data, step, res = region.packed(node, node.inputs[0]), node.op.step, region.result(node)
    across = _moves_columns(node, region, axis)
    beyond = data.image[2 + across] - start - (res.image[2 + across] - 1) * step - 1
    read = data.with_sides(all_but(int(across), (start, beyond)))
    pool = MaxPool2d(
        **read.extents,
        channels=data.width,
        kernel=1,
        strides=(1, step) if across else (step, 1),
    )
    region.append(node.name, pool, {"data": read, "res": res})


def _by_axis(tensor: Tensor, lanes: Lanes, region: LoweredRegion) -> Array:
    """Return the lanes of a tensor by the axes of its channels; others have one element."""
    return np.array(lanes).reshape(_channels(tensor, region))


def _channels(tensor: Tensor, region: LoweredRegion) -> list[int]:
    """Return the shape of a tensor whose axes are one but for those of channels."""
    axes = region.storages[tensor.name].channel_axes(tensor.shape) or ()
    return [extent if axis in axes else 1 for axis, extent in enumerate(tensor.shape)]


def _flat(lanes: Array) -> Lanes:
    return tuple(lanes.ravel().tolist())


def _view(node: Node, region: LoweredRegion, lanes: Array) -> None:
    """Make the result of a node another view of its input: other lanes of the same image."""
    region.places[node.outputs[0].name] = replace(region.first(node), lanes=_flat(lanes))


def lower_slice(op: ops.Slice, node: Node, region: LoweredRegion) -> None:
    """Lower to a view of channels, or to a copy of pixels."""
    if joins_pixels(node, region.storages):
        cut = _join_pixels if op.step == 1 else _skip_pixels
        cut(node, region, op.axis, op.start)
        return
    lanes = _by_axis(node.inputs[0], region.first(node).lanes, region)
    _view(node, region, lanes.take(range(op.start, op.stop, op.step), op.axis))


def lower_view(op: ops.Reshape | ops.Transpose, node: Node, region: LoweredRegion) -> None:
    """Lower a reshape or a transposition to a view, or to a matrix that is turned or flattened."""
    (data,), (result,), place = node.inputs, node.outputs, region.first(node)
    stored = region.storages[data.name], region.storages[result.name]
    if turns(node, *stored):
        place = turned(node, region)
    elif flattens(node, *stored):
        place = flattened(node, region)
    elif isinstance(op, ops.Transpose):
        lanes = _by_axis(data, place.lanes, region).transpose(op.axes)
        place = replace(place, lanes=_flat(lanes))
    region.places[result.name] = region.seen_as(node, place, region.image_of(result))


def lower_expand(op: ops.Expand, node: Node, region: LoweredRegion) -> None:
    """Lower to a view of repeated channels."""
    (result,) = node.outputs
    lanes = _by_axis(node.inputs[0], region.first(node).lanes, region)
    _view(node, region, np.broadcast_to(lanes, _channels(result, region)))


def lower_pad(op: ops.Pad, node: Node, region: LoweredRegion) -> None:
    """Lower to a copy into an image whose border keeps the zero point, or is copied too."""
    data = region.same_lanes(node)
    place = region.result(node, data.seen_lanes)
    place.memory.filled = op.mode == "constant"
    top, left, bottom, right = op.padding
    inside = place.with_sides((-top, -left, -bottom, -right))
    region.copy(node.name, data, inside, zeros=True)  # 1 to 4 % faster than elementwise
    if op.mode != "constant":
        _repeat_border(op, node, region, place)


def _repeat_border(op: ops.Pad, node: Node, region: LoweredRegion, place: TensorPlace) -> None:
    """Copy rows of an image to its border, and then columns with their ends."""
    inside, size = (region.image_of(t)[2:] for t in (node.inputs[0], node.outputs[0]))
    across = {0: (op.padding[1], op.padding[3]), 1: (0, 0)}
    for axis in (0, 1):
        before, behind = op.sources(axis, inside[axis])
        first, beyond = op.padding[axis], size[axis] - 1
        for to, source in [*enumerate(before), *enumerate(behind, first + inside[axis])]:
            data, res = (
                place.with_sides(all_but(axis, (at, beyond - at), across[axis]))
                for at in (first + source, to)
            )
            region.copy(node.name, data, res)


def lower_upsample(op: ops.Upsample, node: Node, region: LoweredRegion) -> None:
    """Lower to a transposed convolution that copies each pixel to every position of its phase."""
    data, place = region.first(node), region.result(node)
    inputs, outputs = data.width, place.width
    weight = zero_weights(inputs, outputs, *op.factors)
    weight[data.seen_lanes, place.seen_lanes] = 1
    uses = {"data": data, "res": place}
    transposed = Conv2dTranspose(
        **uses["data"].extents,
        in_channels=inputs,
        out_channels=outputs,
        kernel=op.factors,
        strides=op.factors,
        shift=0,
        clip=None,
    )
    region.step(node, transposed, uses, kernel=weight)


_LOWERINGS: dict[type[ops.GraphOperator], Callable[[Any, Node, LoweredRegion], None]] = {
    ops.Add: lower_add,
    ops.AveragePool: lower_average_pool,
    ops.Concat: lower_concat,
    ops.Convolution: lower_convolution,
    ops.Dense: lower_dense,
    ops.Expand: lower_expand,
    ops.Extremum: lower_extremum,
    ops.LookupTable: lower_lookup_table,
    ops.Matmul: lower_product,
    ops.MaxPool: lower_max_pool,
    ops.Multiply: lower_multiply,
    ops.Pad: lower_pad,
    ops.Requantize: lower_requantize,
    ops.Reshape: lower_view,
    ops.RowNorm: lower_row_norm,
    ops.RowSoftmax: lower_row_softmax,
    ops.Slice: lower_slice,
    ops.Transpose: lower_view,
    ops.TransposedConvolution: lower_transposed_convolution,
    ops.Upsample: lower_upsample,
}
