"""Translate floating point between quantised tensors to integer operators, by one table.

`translate` takes a value of the Relax graph and the grid of its quantised result, and returns the
step that computes it on integers. Operators that move values (reshapes, slices, max pooling) pass
the grid on to their operand; operators that compute read operands on their own grids.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vtaops.base.shapes import Array, Sides, ceil_div
from vtaops.base.window import Size
from vtaops.graph import operators as ops
from vtaops.graph.grid import Grid
from vtaops.graph.requantization import Requantization, quantized_multiplier
from vtaops.relax import halves
from vtaops.relax.functions import ELEMENTWISE, affine_of, apply, argument_of, names
from vtaops.relax.pixels import moved_pixels
from vtaops.relax.steps import (
    Leaf,
    NotTranslated,
    ResultRange,
    Source,
    Step,
    grid_of,
    shapes_translated,
    step,
)
from vtaops.relax.sums import is_sum, read_sum, scaled
from vtaops.relax.values import Value, pair, real, sides

EIGHT_BITS = frozenset({"int8", "uint8"})

Rule = Callable[[Value, ResultRange], Source]


def translate(value: Value, target: ResultRange) -> Source:
    """Return the integer operators that compute a float value, rounded to a grid.

    An integer value must already be in the graph, on the target's grid.

    Raises
    ------
    NotTranslated
        If VTA cannot compute it; the message gives the reason.
    """
    if value.dtype in EIGHT_BITS:
        if (value.op, value.dtype) == ("input", "uint8"):
            raise NotTranslated("an input of uint8: arrays of VTA are int8")
        if value.fixed:
            raise NotTranslated("a constant tensor where VTA reads an activation")
        if natural_grid(value) is None:
            raise NotTranslated(f"what it reads ({value.op}) is not quantised")
        return Leaf(value, target.grid)
    return translate_root(value, target)


def translate_root(value: Value, target: ResultRange) -> Source:
    """Return the integer operators of a value to compute now; see `translate`."""
    rule = RULES.get(value.op)
    if target.tflite and value.op == "nn.softmax":
        rule = _softmax
    try:
        if rule is None:
            raise NotTranslated(f"VTA has no operator {value.op}")
        with shapes_translated():
            return rule(value, target)
    except NotTranslated:
        affine = affine_of(value)
        if affine is not None and affine[0] is not value and len(value.shape) == 4:
            return _affine(value, *affine, target)
        argument = argument_of(value) if value.op in ELEMENTWISE else None
        if argument is None:
            raise
        return _table(value, argument, target)


def natural_grid(value: Value) -> Grid | None:
    """Return the grid of a value that is quantised, or consists of quantised values moved around.

    Raises
    ------
    NotTranslated
        If it is quantised in a way that VTA does not support.
    """
    if value.op == "quantize":
        return grid_of(value)
    if value.op == "dequantize":
        grid, own = grid_of(value), natural_grid(value.args[0])
        if own not in (None, grid):
            raise NotTranslated(f"a tensor is dequantised as {grid} that was quantised as {own}")
        return grid
    if value.op == "input":
        return _input_grid(value)
    if value.op not in KEEPING_GRIDS:
        return None
    first, *others = (natural_grid(argument) for argument in value.args)
    return first if all(other == first for other in others) else None


def _input_grid(value: Value) -> Grid | None:
    """Return the grid from which an integer input is dequantised."""
    reader = next((r for r in value.readers if r and r.op == "dequantize"), None)
    return None if reader is None or value.dtype != "int8" else grid_of(reader)


def operand(value: Value) -> tuple[Source, float]:
    """Return a quantised operand and its scale.

    Raises
    ------
    NotTranslated
        If it is not quantised.
    """
    grid = natural_grid(value)
    if grid is None:
        raise NotTranslated(f"what it reads ({value.op}) is not quantised")
    return translate(value, ResultRange(grid)), grid.scale


# ------------------------------------------------------------------- what computes


def _dequantize(value: Value, target: ResultRange) -> Source:
    grid, rounded = grid_of(value), value.args[0]
    if grid == target.grid and (target.low, target.high) != (-128, 127):
        alone = len(value.readers) == len(rounded.readers) == 1
        if alone and rounded.op == "quantize" and grid_of(rounded) == grid:
            # Rounding and then clipping on one grid is one clip after one rounding.
            return translate(rounded.args[0], target)
    source = translate(rounded, ResultRange(grid))
    if grid == target.grid and (target.low, target.high) == (-128, 127):
        return source
    ratio = grid.scale / target.grid.scale
    return step(ops.Requantize(target.requantization(ratio)), source, scale=target.grid.scale)


def _sum(value: Value, target: ResultRange) -> Source:
    return read_sum(value, operand).rounded(target)


def _add(value: Value, target: ResultRange) -> Source:
    if is_sum(value):
        return _sum(value, target)
    sign = -1.0 if value.op == "subtract" else 1.0
    constant = real(value.args[1])
    if constant is not None or (sign > 0 and real(value.args[0]) is not None):
        return _add_constant(value, target, sign)
    first, second, flipped = _broadcast(value)
    if flipped and sign < 0:
        raise NotTranslated("a vector less an image")
    (a, a_scale), (b, b_scale) = operand(first), operand(second)
    unit, zero = target.grid.scale, target.grid.zero_point
    bounds = (target.low, target.high)
    if target.tflite:
        op = ops.RescaledAdd.from_scales(
            a_scale, b_scale, unit, sign=int(sign), zero_point=zero, clip=bounds
        )
        return step(op, a, b, scale=unit)
    ratios = a_scale / unit, sign * b_scale / unit
    return halves.total(ops.Add.from_ratios(*ratios, zero, bounds), a, b, scale=unit)


def _add_constant(value: Value, target: ResultRange, sign: float) -> Source:
    tensor, constant = value.args if real(value.args[1]) is not None else value.args[::-1]
    added = real(constant)
    assert added is not None
    data, scale = operand(tensor)
    if len(tensor.shape) != 4:
        raise NotTranslated("a constant is added to something that is not an image")
    channels = tensor.shape[1]
    found = scaled(data, scale, None, channels)
    if added.size not in (1, channels) or (added.size > 1 and added.shape[-2:] != (1, 1)):
        raise NotTranslated(f"a constant of shape {added.shape} is added")
    found.bias[:] = sign * np.broadcast_to(added.reshape(-1), (channels,))
    return found.rounded(target)


def _multiply(value: Value, target: ResultRange) -> Source:
    for tensor, constant in (value.args, value.args[::-1]):
        factor = real(constant)
        if factor is not None:
            data, scale = operand(tensor)
            if factor.size == 1 and factor.reshape(()) > 0:
                ratio = scale * float(factor.reshape(())) / target.grid.scale
                requantize = ops.Requantize(target.requantization(ratio))
                return step(requantize, data, scale=target.grid.scale)
            if len(tensor.shape) != 4:
                raise NotTranslated("a constant multiplies something that is not an image")
            return scaled(data, scale, constant, tensor.shape[1]).rounded(target)
    first, second, _ = _broadcast(value)
    return _product(ops.Multiply, first, second, target)


def _product(
    kind: type[ops.Multiply | ops.Matmul], first: Value, second: Value, target: ResultRange
) -> Step:
    (a, a_scale), (b, b_scale) = operand(first), operand(second)
    ratio = a_scale * b_scale / target.grid.scale
    if target.tflite:  # TFLite computes this in float32
        ratio = float(np.float32(a_scale * b_scale) / np.float32(target.grid.scale))
    return step(kind(target.requantization(ratio)), a, b, scale=target.grid.scale)


def _affine(value: Value, tensor: Value, factor: Any, term: Any, target: ResultRange) -> Source:
    """Translate a per-channel factor and term to a depthwise convolution with a bias."""
    data, scale = operand(tensor)
    found = scaled(data, scale, None, value.shape[1], factor)
    found.bias[:] = term
    return found.rounded(target)


def _broadcast(value: Value) -> tuple[Value, Value, bool]:
    """Return the operands, the one with the result's shape first, and whether they are swapped."""
    first, second = value.args
    if first.shape == value.shape:
        return first, second, False
    return second, first, True


def _matmul(value: Value, target: ResultRange) -> Source:
    if is_sum(value):
        return _sum(value, target)
    first, second = value.args
    return _product(ops.Matmul, first, second, target)


def _average_pool(value: Value, target: ResultRange) -> Source:
    kernel, strides, padding, more = _pool_window(value, "an average pool")
    counted = value.attrs.count_include_pad
    if more and counted:
        raise NotTranslated("an average pool that rounds up and counts its padding")
    if kernel == strides == (1, 1) and counted:
        return _moved(ops.Pad(padding), translate(value.args[0], target))
    excluded = not counted and any(padding)
    return _average(
        value.args[0],
        target,
        math.prod(kernel),
        kernel=kernel,
        strides=strides,
        padding=padding,
        exclude_padding=excluded,
    )


def _mean(value: Value, target: ResultRange) -> Source:
    image = value.args[0]
    axes = sorted(int(axis) % len(image.shape) for axis in value.attrs.axis or ())
    if target.tflite and len(image.shape) == 4 and axes == [1, 2]:
        return _mean_of_last(value, target)
    if len(image.shape) != 4 or axes != [2, 3]:
        raise NotTranslated(f"a mean over the axes {axes} of {len(image.shape)}")
    pooled = _average(image, target, image.shape[2] * image.shape[3])
    return pooled if value.attrs.keepdims else _moved(ops.Reshape(value.shape), pooled)


def _mean_of_last(value: Value, target: ResultRange) -> Source:
    """Translate a mean over the pixels of a channels-last image."""
    data, scale = operand(value.args[0])
    _, h, w, _ = value.args[0].shape
    scaling = _tflite_mean(scale / target.grid.scale, h * w, False, target)
    image = _moved(ops.Transpose((0, 3, 1, 2)), data)
    pooled = step(ops.AveragePool(requantization=scaling), image, scale=target.grid.scale)
    return _moved(ops.Reshape(value.shape), pooled)


def _adaptive_pool(value: Value, target: ResultRange) -> Source:
    if value.shape[2:] != (1, 1):
        raise NotTranslated(f"an adaptive pool to {value.shape[2:]}")
    image = value.args[0]
    return _average(image, target, image.shape[2] * image.shape[3])


def _average(image: Value, target: ResultRange, count: int, **window: Any) -> Source:
    if not count:
        raise NotTranslated("a mean over no pixels")
    data, scale = operand(image)
    ratio, bounds = scale / target.grid.scale, (target.low, target.high)
    if target.tflite:
        scaling = _tflite_mean(ratio, count, bool(window), target)
        op = ops.AveragePool(requantization=scaling, **window)
    else:
        op = ops.AveragePool.from_ratio(
            ratio,
            count,
            shifts_only=_is_power_of_two(ratio),
            zero_point=target.grid.zero_point,
            clip=bounds,
            **window,
        )
    return step(op, data, scale=target.grid.scale)


def _tflite_mean(ratio: float, count: int, pool: bool, target: ResultRange) -> Requantization:
    """Return TFLite's rounding of a mean: as a pool, or as a product with one over the pixels."""
    zero, bounds = target.grid.zero_point, (target.low, target.high)
    if pool and ratio == 1:
        return Requantization(count, 0, zero, bounds, "quotient")
    multiplier, shift = quantized_multiplier(ratio)
    more = min(count.bit_length() - 1, 32, 62 - shift)
    return Requantization((multiplier << more) // count, shift + more, zero, bounds, "twice")


def _softmax(value: Value, target: ResultRange) -> Source:
    if target.grid != Grid(1 / 256, -128) or int(value.attrs.axis) not in (
        -1,
        len(value.shape) - 1,
    ):
        raise NotTranslated("a softmax whose result is not 1/256 above -128")
    return step(ops.FixedSoftmax(), operand(value.args[0])[0], scale=target.grid.scale)


def _leaky(value: Value, target: ResultRange) -> Source:
    return _leaky_table(value, np.array([float(value.attrs.alpha)]), target)


def _prelu(value: Value, target: ResultRange) -> Source:
    slope = real(value.args[1])
    axis = int(value.attrs.axis) % len(value.shape)
    if slope is None or (slope.size > 1 and (axis != 1 or slope.size != value.shape[1])):
        raise NotTranslated("a PReLU whose slopes are not constant per channel")
    return _leaky_table(value, slope.reshape(-1), target)


def _leaky_table(value: Value, slopes: Array, target: ResultRange) -> Source:
    """Translate to a table; devices without tables take the factors nearest to it."""
    data, scale = operand(value.args[0])
    grid, name = Grid(scale, data.tensor.zero_point), value.op.removeprefix("nn.")
    if not target.tflite:
        x = _reals(grid)
        return _tabulated(np.where(x >= 0, x, np.outer(np.float32(slopes), x)), data, name, target)
    steps = np.arange(-128, 128) - grid.zero_point
    own, result = np.float32(scale), np.float32(target.grid.scale)
    ratios = np.where(steps >= 0, own / result, own * np.float32(slopes[0]) / result)
    values = np.array(
        [_tflite_product(*pair) for pair in zip(steps.tolist(), ratios.tolist(), strict=True)]
    )
    table = np.clip(values + target.grid.zero_point, target.low, target.high).astype(np.int8)
    op = ops.LookupTable(table, target.grid.zero_point, name)
    return step(op, data, scale=target.grid.scale)


def _tflite_product(steps: int, ratio: float) -> int:
    """Return TFLite's rounded product, whose sign is put on behind the rounding."""
    if not ratio:
        return 0
    scaling = Requantization.tflite(abs(ratio))
    half = int(scaling.half) + int(scaling.by_sign) * (-1 if steps < 0 else 1)
    value = steps * int(scaling.multiplier) + half >> int(scaling.shift)
    return value if ratio > 0 else -value


def _table(value: Value, argument: Value, target: ResultRange) -> Source:
    grid = grid_of(argument)
    results = apply(value, argument, _reals(grid))
    name = "-".join(dict.fromkeys(part.removeprefix("nn.") for part in names(value, argument)))
    return _tabulated(results, translate(argument.args[0], ResultRange(grid)), name, target)


def _reals(grid: Grid) -> Array:
    """Return the real values of -128, -127, ..., 127."""
    steps = np.arange(-128, 128, dtype=np.float32) - grid.zero_point
    return np.asarray(steps * np.float32(grid.scale))


def _tabulated(results: Array, data: Source, name: str, target: ResultRange) -> Source:
    """Return a table of the real results for -128, -127, ..., 127, in a row for each channel."""
    with np.errstate(all="ignore"):  # results that are not finite are rejected below
        steps = np.rint(results / np.float32(target.grid.scale))
    if not np.isfinite(steps).all():
        raise NotTranslated(f"{name} is not finite on all 256 values")
    table = np.clip(steps + target.grid.zero_point, target.low, target.high).astype(np.int8)
    op = ops.LookupTable(table[0] if len(table) == 1 else table, target.grid.zero_point, name)
    return step(op, data, scale=target.grid.scale)


# ---------------------------------------------------------------------- what clips


def _relu(value: Value, target: ResultRange) -> Source:
    return translate(value.args[0], target.clipped(low=0))


def _clip(value: Value, target: ResultRange) -> Source:
    low, high = value.extra
    return translate(value.args[0], target.clipped(float(low), float(high)))


def _bound(value: Value, target: ResultRange) -> Source:
    for tensor, constant in (value.args, value.args[::-1]):
        bound = real(constant)
        if bound is not None and bound.size == 1:
            limit = float(bound.reshape(()))
            clipped = (
                target.clipped(low=limit) if value.op == "maximum" else target.clipped(high=limit)
            )
            return translate(tensor, clipped)
    raise NotTranslated(f"{value.op} of two tensors")


# ---------------------------------------------------------------------- what moves


def _moved(op: ops.GraphOperator, source: Source) -> Step:
    return step(op, source, scale=source.tensor.scale)


def _max_pool(value: Value, target: ResultRange) -> Source:
    kernel, strides, padding, _ = _pool_window(value, "a max pool")
    return _moved(ops.MaxPool(kernel, strides, padding), translate(value.args[0], target))


def _reshape(value: Value, target: ResultRange) -> Source:
    shuffled = _shuffle(value)
    if shuffled is not None:
        image, groups = shuffled
        return _moved(ops.ChannelShuffle(groups), translate(image, target))
    pixels = moved_pixels(value)
    if pixels is not None:
        if target not in value.steps:
            image, make = pixels
            value.steps[target] = _moved(make(_unchanged(target.grid)), translate(image, target))
        found: Step = value.steps[target]
        return found
    return _moved(ops.Reshape(value.shape), translate(value.args[0], target))


def _unchanged(grid: Grid) -> Requantization:
    return Requantization(1, 0, grid.zero_point)


def _shuffle(value: Value) -> tuple[Value, int] | None:
    """Return image and groups if three operators together shuffle channels."""
    turned = _through_pairs(value.args[0])
    if turned.op != "permute_dims" or _axes(turned) != (0, 2, 1, 3, 4):
        return None
    split = _through_pairs(turned.args[0])
    if split.op != "reshape" or split.args[0].shape != value.shape:
        return None
    n, groups, each, *image = split.shape
    if (n, groups * each, *image) != value.shape:
        return None
    return split.args[0], groups


def _through_pairs(value: Value) -> Value:
    """Return the value before quantize/dequantize pairs that keep its grid."""
    while value.op == "dequantize" and value.args[0].op == "quantize":
        before = value.args[0].args[0]
        if natural_grid(before) != grid_of(value) or grid_of(value.args[0]) != grid_of(value):
            break
        value = before
    return value


def _permute(value: Value, target: ResultRange) -> Source:
    return _moved(ops.Transpose(_axes(value)), translate(value.args[0], target))


def _axes(value: Value) -> tuple[int, ...]:
    axes = value.attrs.axes
    if axes is None:
        return tuple(reversed(range(len(value.shape))))
    return tuple(int(axis) % len(value.shape) for axis in axes)


def _concat(value: Value, target: ResultRange) -> Source:
    parts = [translate(part, target) for part in value.args]
    axis = int(value.attrs.axis or 0)
    return step(ops.Concat(axis % len(value.shape)), *parts, scale=target.grid.scale)


def _get_item(value: Value, target: ResultRange) -> Source:
    (whole,), (index,) = value.args, value.extra
    if whole.op != "split":
        raise NotTranslated(f"a result of {whole.op}")
    source = whole.args[0]
    axis = int(whole.attrs.axis) % len(source.shape)
    sections, extent = whole.attrs.indices_or_sections, source.shape[axis]
    if hasattr(sections, "__len__"):
        cuts = [0, *(int(cut) for cut in sections), extent]
    else:
        size = ceil_div(extent, int(sections))
        cuts = [*range(0, extent, size), extent]
    return _moved(ops.Slice(axis, cuts[index], cuts[index + 1]), translate(source, target))


def _strided_slice(value: Value, target: ResultRange) -> Source:
    axes, begins, ends, *rest = value.extra
    strides = rest[0] if rest else (1,) * len(axes)
    source = value.args[0]
    found = translate(source, target)
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        axis, extent = axis % len(source.shape), source.shape[axis]
        start, stop, stride = slice(begin, end, stride).indices(extent)
        if stride < 1:
            raise NotTranslated("a slice that runs backwards")
        if (start, stop, stride) != (0, extent, 1):
            found = _moved(ops.Slice(axis, start, stop, stride), found)
    return found


def _resize(value: Value, target: ResultRange) -> Source:
    attrs, image = value.attrs, value.args[0]
    factors = [out // size for out, size in zip(value.shape[2:], image.shape[2:], strict=True)]
    nearest = str(attrs.method) == "nearest_neighbor" and str(attrs.layout) == "NCHW"
    whole = tuple(f * size for f, size in zip(factors, image.shape[2:], strict=True))
    if not nearest or whole != value.shape[2:] or not all(map(_repeats, factors, [attrs] * 2)):
        raise NotTranslated("a resize that does not repeat each pixel a whole number of times")
    return _moved(ops.Upsample((factors[0], factors[1])), translate(image, target))


def _repeats(factor: int, attrs: Any) -> bool:
    """Return whether pixel i of the result is pixel i // factor of the image."""
    i = np.arange(4 * factor)
    mode, rounding = str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
    if mode == "half_pixel":
        x = (i + 0.5) / factor - 0.5
    elif mode == "asymmetric":
        x = i / factor
    else:
        return factor == 1
    roundings: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round": lambda v: np.floor(v + 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
    }
    if rounding not in roundings:
        return False
    return bool((np.clip(roundings[rounding](x), 0, 3) == i // factor).all())


def _pad(value: Value, target: ResultRange) -> Source:
    attrs = value.attrs
    widths = [int(width) for width in attrs.pad_width]
    amount = value.extra[0] if value.extra else getattr(attrs, "pad_value", 0.0)
    if len(widths) != 8 or any(widths[:4]) or float(amount) or str(attrs.pad_mode) != "constant":
        raise NotTranslated("a pad that is not of zeros around an image")
    top, bottom, left, right = widths[4:]
    return _moved(ops.Pad((top, left, bottom, right)), translate(value.args[0], target))


def _pool_window(value: Value, pool: str) -> tuple[Size, Size, Sides, bool]:
    """Return kernel, strides, padding including that for rounding up, and whether there is such."""
    attrs = value.attrs
    if str(attrs.layout) != "NCHW" or pair(attrs.dilation) != (1, 1):
        raise NotTranslated(f"{pool} with dilation or in another layout than NCHW")
    kernel, strides = pair(attrs.pool_size), pair(attrs.strides)
    top, left, bottom, right = sides(attrs.padding)
    (rows, height), (columns, width) = (
        ((value.shape[axis] - 1) * strides[axis - 2] + kernel[axis - 2], value.args[0].shape[axis])
        for axis in (2, 3)
    )
    padding = top, left, max(bottom, rows - height - top), max(right, columns - width - left)
    return kernel, strides, padding, padding != (top, left, bottom, right)


def _is_power_of_two(ratio: float) -> bool:
    return math.frexp(ratio)[0] == 0.5


COMPUTING: dict[str, Rule] = {
    "dequantize": _dequantize,
    "nn.conv2d": _sum,
    "nn.conv2d_transpose": _sum,
    "matmul": _matmul,
    "add": _add,
    "subtract": _add,
    "multiply": _multiply,
    "mean": _mean,
    "nn.avg_pool2d": _average_pool,
    "nn.adaptive_avg_pool2d": _adaptive_pool,
    "clip": _clip,
    "minimum": _bound,
    "maximum": _bound,
    "nn.leakyrelu": _leaky,
    "nn.prelu": _prelu,
}

MOVING: dict[str, Rule] = {
    "nn.max_pool2d": _max_pool,
    "nn.relu": _relu,
    "reshape": _reshape,
    "flatten": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "nn.batch_flatten": _reshape,
    "permute_dims": _permute,
    "concat": _concat,
    "get_item": _get_item,
    "strided_slice": _strided_slice,
    "image.resize2d": _resize,
    "nn.pad": _pad,
}
"""Operators whose results need no rounding if their operands lie on a grid."""

RULES = COMPUTING | MOVING
"""Translation of each Relax operator to integer operators."""

KEEPING_GRIDS = MOVING.keys() | {"split"}
"""Operators whose results lie on the grid of their operand."""
