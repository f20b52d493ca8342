"""Graphs and their meaning: the executor against the formulas of docs/quantization.md."""

import contextlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtaops.errors import ShapeError
from vtaops.graph import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Dense,
    Dequantize,
    Extremum,
    Graph,
    Host,
    HostFunction,
    LookupTable,
    Matmul,
    MaxPool,
    Multiply,
    Pad,
    Quantize,
    Requantization,
    Requantize,
    Reshape,
    Slice,
    Tensor,
    Transpose,
    TransposedConvolution,
    Upsample,
    evaluate,
)
from vtaops.graph.requantization import fixed_point

RNG = np.random.default_rng(20)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def requantized(acc, scaling, channel=0):
    """The formula, on one Python integer."""
    m = int(scaling.multiplier if scaling.multiplier.ndim == 0 else scaling.multiplier[channel])
    s = int(scaling.shift if scaling.shift.ndim == 0 else scaling.shift[channel])
    half = Fraction(1, 2) if s else 0
    value = math.floor(Fraction(int(acc) * m, 2**s) + half) + scaling.zero_point
    return min(max(value, scaling.clip[0]), scaling.clip[1])


def run(op, *arrays, zero_points=None):
    graph = Graph()
    zero_points = zero_points or [0] * len(arrays)
    tensors = [
        graph.input(f"x{i}", a.shape, str(a.dtype), zero_point=z)
        for i, (a, z) in enumerate(zip(arrays, zero_points, strict=True))
    ]
    graph.output(graph.add(op, *tensors))
    (result,) = evaluate(graph, *arrays)
    return result


@given(st.floats(2.0**-40, 60000.0))
def test_multipliers_are_within_two_to_the_minus_16_of_the_ratio(ratio):
    multiplier, shift = fixed_point(ratio)
    assert 0 <= multiplier < 1 << 16
    assert 0 <= shift <= 47
    error = abs(Fraction(multiplier, 2**shift) - Fraction(ratio))
    if ratio >= 2.0**-31:
        assert error <= Fraction(ratio) / 2**16
    assert error <= Fraction(1, 2**48) or ratio >= 2.0**-31


@pytest.mark.parametrize("exponent", range(-47, 16))
def test_powers_of_two_are_exact_and_are_shifts(exponent):
    scaling = Requantization.from_ratio(2.0**exponent)
    assert scaling.right_shift == -exponent


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 65535),
    st.integers(0, 47),
    st.integers(-128, 127),
)
def test_requantization_is_the_formula(acc, multiplier, shift, zero_point):
    scaling = Requantization(multiplier, shift, zero_point, (-100, 90))
    result = scaling.apply(np.array([[acc]]))
    assert result.item() == requantized(acc, scaling)


CHANNELS = Requantization([1, 3, 40000, 7], [0, 2, 17, 4], 5, (-90, 100))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolution(groups, residual, dilation):
    x, w = int8(2, 4, 6, 5), int8(4, 4 // groups, 3, 2) // 16
    bias = RNG.integers(-500, 500, 4).astype(np.int32)
    factor = np.array([2, 100, 17, 33]) if residual else None
    op = Convolution(w, bias, CHANNELS, (2, 1), (1, 0, 2, 1), (dilation, 1), groups, factor)
    zero, side = -7, 11
    tensors = Tensor("x", x.shape), Tensor("r", (2, 4, 4 - (dilation == 2), 5))
    shape = op.infer(*tensors[: 1 + residual]).shape
    r = int8(*shape)
    y = run(op, x, *([r] if residual else []), zero_points=[zero, side][: 1 + residual])
    assert y.shape == shape
    per_group = 4 // groups
    for n, o, i, j in np.ndindex(*shape):
        acc = int(bias[o])
        for c, dy, dx in itertools.product(range(per_group), range(3), range(2)):
            row, column = i * 2 - 1 + dy * dilation, j + dx
            if 0 <= row < 6 and column < 5:
                pixel = int(x[n, o // per_group * per_group + c, row, column]) - zero
                acc += int(w[o, c, dy, dx]) * pixel
        if residual:
            acc += int(factor[o]) * (int(r[n, o, i, j]) - side)
        assert y[n, o, i, j] == requantized(acc, CHANNELS, o)


def test_transposed_convolution_scatters():
    x, w = int8(1, 3, 3, 4), int8(3, 4, 3, 2) // 16
    op = TransposedConvolution(w, None, CHANNELS, (2, 3), (1, 0, 0, 1), (1, 2))
    y = run(op, x, zero_points=[9])
    whole = np.zeros((4, 20, 20), dtype=object)
    for c, i, j, o, dy, dx in np.ndindex(3, 3, 4, 4, 3, 2):
        whole[o, i * 2 + dy, j * 3 + dx] += (int(x[0, c, i, j]) - 9) * int(w[c, o, dy, dx])
    for _, o, i, j in np.ndindex(*y.shape):
        assert y[0, o, i, j] == requantized(whole[o, i + 1, j], CHANNELS, o)
    assert y.shape == (1, 4, (3 - 1) * 2 - 1 + 3 + 1, (4 - 1) * 3 - 1 + 2 + 2)


def test_products():
    x, w = int8(3, 5), int8(4, 5)
    y = run(Dense(w, np.arange(4, dtype=np.int32), CHANNELS), x, zero_points=[-128])
    for i, o in np.ndindex(3, 4):
        acc = o + sum((int(a) + 128) * int(b) for a, b in zip(x[i], w[o], strict=True))
        assert y[i, o] == requantized(acc, CHANNELS, o)
    a, b, scaling = int8(2, 3, 5), int8(2, 5, 4), Requantization(33333, 24, 3)
    y = run(Matmul(scaling), a, b, zero_points=[4, -9])
    for n, i, o in np.ndindex(2, 3, 4):
        acc = sum((int(a[n, i, k]) - 4) * (int(b[n, k, o]) + 9) for k in range(5))
        assert y[n, i, o] == requantized(acc, scaling)


@pytest.mark.parametrize("exclude", [False, True])
def test_pools(exclude):
    x, zero = int8(1, 2, 5, 6), 30
    window = {"kernel": (3, 2), "strides": (2, 1), "padding": (1, 1, 1, 0)}
    average = AveragePool(
        **window, factor=11, requantization=CHANNELS_OF_ONE, exclude_padding=exclude
    )
    greatest, mean = run(MaxPool(**window), x), run(average, x, zero_points=[zero])
    for _, c, i, j in np.ndindex(*greatest.shape):
        pixels = [
            int(x[0, c, 2 * i - 1 + dy, j - 1 + dx])
            for dy, dx in np.ndindex(3, 2)
            if 0 <= 2 * i - 1 + dy < 5 and 0 <= j - 1 + dx < 6
        ]
        assert greatest[0, c, i, j] == max(pixels)
        total = sum(pixels) - zero * len(pixels)
        scaling = CHANNELS_OF_ONE
        if exclude and len(pixels) < 6:  # 6 / count times the scale of whole windows, to 16 bits
            ratio, shift = Fraction(3000 * 6, len(pixels) << 17), 0
            while round(ratio * 2**shift) < 1 << 15:
                shift += 1
            scaling = Requantization(round(ratio * 2**shift), shift, -4, (-100, 100))
        assert mean[0, c, i, j] == requantized(total * 11, scaling)


CHANNELS_OF_ONE = Requantization(3000, 17, -4, (-100, 100))


def test_elementwise():
    a, b, each = int8(1, 3, 4, 5), int8(1, 3, 4, 5), int8(1, 3, 1, 1)
    zeros = [12, -50]
    for other in (b, each):
        total = run(Add((7, -3), CHANNELS_OF_ONE), a, other, zero_points=zeros)
        product = run(Multiply(CHANNELS_OF_ONE), a, other, zero_points=zeros)
        for index in np.ndindex(*a.shape):
            p, q = int(a[index]) - 12, int(np.broadcast_to(other, a.shape)[index]) + 50
            assert total[index] == requantized(7 * p - 3 * q, CHANNELS_OF_ONE)
            assert product[index] == requantized(p * q, CHANNELS_OF_ONE)
        greater, less = (run(Extremum(f), a, other) for f in ("maximum", "minimum"))
        for index in np.ndindex(*a.shape):
            pair = int(a[index]), int(np.broadcast_to(other, a.shape)[index])
            assert (less[index], greater[index]) == (min(pair), max(pair))
    plain = run(Requantize(CHANNELS_OF_ONE), a, zero_points=[12])
    for index in np.ndindex(*a.shape):
        p = int(a[index]) - 12
        assert plain[index] == requantized(p, CHANNELS_OF_ONE)
    table = int8(256)
    assert np.array_equal(run(LookupTable(table), a), table[a.astype(int) + 128])


def test_movement():
    x = int8(1, 4, 3, 2)
    assert np.array_equal(run(Concat(), x, x[:, :1]), np.concatenate([x, x[:, :1]], axis=1))
    assert np.array_equal(run(Upsample((2, 3)), x), np.kron(x, np.ones((2, 3), np.int8)))
    padded = run(Pad((1, 0, 2, 3)), x, zero_points=[-5])
    assert padded.shape == (1, 4, 6, 5)
    assert (padded[:, :, 0] == -5).all()
    assert np.array_equal(padded[:, :, 1:4, :2], x)
    assert np.array_equal(run(Slice(1, 1, 4, 2), x), x[:, 1:4:2])
    assert np.array_equal(run(Reshape((1, 24)), x), x.reshape(1, 24))
    assert np.array_equal(run(Transpose((0, 2, 3, 1)), x), x.transpose(0, 2, 3, 1))


def test_borders_to_float():
    x = np.array([[-0.25, 0.25, 0.75, 1e9, -1e9, 0.6, np.nan, np.inf]], np.float32)
    graph = Graph()
    q = graph.add(Quantize(0.5, -3), graph.input("x", x.shape, "float32"))
    graph.output(q, graph.add(Dequantize(), q))
    steps, real = evaluate(graph, x)
    assert steps.tolist() == [[-3, -3, -1, 127, -128, -2, -128, 127]]  # halves to even
    assert real.dtype == np.float32
    assert real.tolist() == [[0.0, 0.0, 1.0, 65.0, -62.5, 0.5, -62.5, 65.0]]


@given(st.floats(2.0**-20, 32), st.floats(2.0**-20, 32))
def test_a_sum_is_close_to_its_ratios(first, second):
    add = Add.from_ratios(first, -second)
    unit = Fraction(int(add.requantization.multiplier), 2 ** int(add.requantization.shift))
    tolerance = Fraction(max(first, second)) / 2**14
    assert abs(add.factors[0] * unit - Fraction(first)) <= tolerance
    assert abs(add.factors[1] * unit + Fraction(second)) <= tolerance


RATIOS = st.one_of(st.integers(-30, 30).map(lambda e: 2.0**e), st.floats(2.0**-30, 2.0**30))


@given(RATIOS, RATIOS, st.sampled_from([-128, -5, 0, 127]))
def test_a_sum_of_far_scales_is_within_a_step(first, second, zero):
    with contextlib.suppress(ShapeError) if max(first, second) > 32 else contextlib.nullcontext():
        check_sum(Add.from_ratios(first, -second, zero), first, second, zero)


def check_sum(add, first, second, zero):
    few, every = np.array([-255, -100, -2, -1, 0, 1, 3, 255])[:, None], np.arange(-255, 256)
    a, b = (few, every) if first > second else (every, few)
    exact = np.clip(np.rint(a * first - b * second) + zero, -128, 127)
    found = add.requantization.apply(add.sums(a, b))
    assert np.abs(found - exact).max() <= 1


@pytest.mark.parametrize("ratio", [0.0, float("inf"), float("nan")])
def test_a_sum_needs_positive_ratios(ratio):
    with pytest.raises(ShapeError, match="finite"):
        Add.from_ratios(1.0, ratio)


@pytest.mark.parametrize("count", [1, 4, 9, 49, 64, 196])
def test_an_average_is_close_to_the_mean(count):
    for shifts_only in (False, True):
        pool = AveragePool.from_ratio(1.0, count, shifts_only=shifts_only)
        ratio = Fraction(pool.factor * int(pool.requantization.multiplier)) / (
            2 ** int(pool.requantization.shift)
        )
        assert abs(ratio * count - 1) <= Fraction(1, 128 if shifts_only else 65536)
        assert pool.requantization.right_shift is not None or not shifts_only


class Negate(HostFunction):
    def __call__(self, *arrays):
        return tuple(-array for array in arrays)


def test_host_functions_have_any_number_of_results():
    graph = Graph()
    x, y = graph.input("x", (2,), "float32"), graph.input("y", (3,), "float32")
    outputs = Tensor("-", (2,), "float32"), Tensor("-", (3,), "float32")
    graph.output(*graph.add_many(Host(Negate(), outputs, ("Neg", "Neg")), x, y))
    a, b = evaluate(graph, np.ones(2, np.float32), np.zeros(3, np.float32))
    assert a.tolist() == [-1, -1]
    assert b.tolist() == [0, 0, 0]
    wrong = Graph()
    x = wrong.input("x", (2,), "float32")
    wrong.output(wrong.add(Host(Negate(), (Tensor("-", (5,), "float32"),)), x))
    with pytest.raises(ShapeError, match="instead of"):
        evaluate(wrong, np.ones(2, np.float32))


def test_bad_graphs_are_refused():
    graph = Graph()
    x = graph.input("x", (1, 4, 6, 6))
    weight = int8(4, 4, 3, 3)
    for message, build in {
        "duplicate tensor name": lambda: graph.input("x", (1,)),
        "not a tensor of this graph": lambda: graph.add(
            MaxPool((2, 2), (2, 2)), Tensor("x", (1, 4, 6, 6))
        ),
        "takes 2 inputs": lambda: graph.add(Add(), x),
        "channels": lambda: graph.add(Convolution(int8(4, 3, 3, 3)), x),
        "int8 or int16 of rank 4": lambda: Convolution(weight.astype(np.int32)),
        "bias is": lambda: Convolution(weight, np.zeros(3, np.int32)),
        "output channels": lambda: Convolution(weight, requantization=Requantization([1, 2])),
        "spans 7 pixels": lambda: graph.add(Convolution(int8(4, 4, 7, 7)), x),
        "beyond int32": lambda: graph.add(Convolution(weight, np.full(4, 2**31 - 1, np.int32)), x),
        "multiplier spans": lambda: Requantization(65536),
        "shift spans": lambda: Requantization(1, 48),
        "clip is": lambda: Requantization(clip=(3, 2)),
        "static": lambda: graph.input("y", (1, -1)),
        "dtype float16": lambda: graph.input("y", (1,), "float16"),
        "zero points": lambda: graph.add(Concat(), x, graph.input("z", (1, 4, 6, 6), zero_point=1)),
        "before they are compared": lambda: graph.add(Extremum(), *graph.inputs),
        "function is 'mean'": lambda: Extremum("mean"),
        "positive and finite": lambda: Requantization.from_ratio(float("nan")),
        "at most 65535": lambda: Requantization.from_ratio(70000.0),
        "finite float32": lambda: graph.input("s", (1,), scale=1e39),
        "positive, finite": lambda: graph.input("s", (1,), scale=1e-46),
        "cannot take the shape": lambda: graph.add(Reshape((5,)), x),
        "permute": lambda: graph.add(Transpose((0, 1)), x),
        "the network takes 2": lambda: evaluate(graph, int8(1, 4, 6, 6)),
        "not a graph operator": lambda: graph.add("conv", x),
    }.items():
        with pytest.raises(ShapeError, match=message):
            build()
