"""Corners of `vtaops.cpu`: special values, overlaps, empty arrays, forks, odd arguments."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from scipy import special

from trials import random_calls
from trials.kernel_reference import conv2d_reference, depthwise_reference, random, windows
from vtaops import cpu
from vtaops.base.errors import ShapeError
from vtaops.kernels import KernelCache, cache
from vtaops.kernels.calls.backend import _check_sizes
from vtaops.kernels.ops import MatmulOp, StackedMatmulOp, UnaryOp

pytestmark = pytest.mark.usefixtures("no_files")


@pytest.mark.parametrize("seed", range(len(random_calls.FAMILIES)))
def test_random_calls_equal_numpy(seed):
    """One of each family; the campaign has more."""
    random_calls.check(seed)


@pytest.mark.parametrize("target", random_calls.PROCESSORS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_no_tile_reaches_into_the_next_group(dtype, target):
    """Groups of three vectors of results, in an image so narrow that lanes are channels."""
    draw, outs = random_calls.Draw(3), 3 * target.lanes
    x, w = draw.array(1, 10, 9, 5, dtype=dtype), draw.array(2 * outs, 5, 3, 3, dtype=dtype)
    expected = conv2d_reference(x, w, (2, 2), (0,) * 4, (1, 1), 2)
    with random_calls.processor(target):
        found = cpu.conv2d(x, w, strides=2, groups=2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", random_calls.PROCESSORS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize(
    ("height", "strides"), [(1, (1, 2)), (1, (3, 3)), (2, (2, 3)), (9, (2, 1))]
)
def test_strided_1x1_of_one_row_and_of_several(height, strides, target):
    """Rows of as many results as a vector has lanes, the least that is multiplied as a matrix."""
    draw = random_calls.Draw(height)
    x, w = draw.array(2, 5, height, strides[1] * target.lanes), draw.array(7, 5, 1, 1)
    expected = conv2d_reference(x, w, strides, (0,) * 4, (1, 1))
    with random_calls.processor(target):
        found = cpu.conv2d(x, w, strides=strides)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", random_calls.ACTIVATIONS)
def test_activations_to_the_last_digits(name):
    x = np.linspace(-30, 30, 6001).astype("float32")
    x = np.concatenate([x, np.float32([np.nan, np.inf, -0.0, 1e-30, -1e-30, 1e4, -1e4])])
    with np.errstate(all="ignore"):
        expected = random_calls.ACTIVATIONS[name](x.astype("float64"))
    error = 1.2e-6 if name == "gelu" else 5e-7  # PyTorch's own at -5, where 1 + erf cancels
    np.testing.assert_allclose(cpu.activation(x, name), expected, rtol=2e-6, atol=error)


@pytest.mark.parametrize("columns", [5, 9, 16, 40, 67, 128, 1000])
def test_softmax_of_masked_rows(columns):
    x = random((4, columns)) * 20
    x[0, 1::2] = -np.inf
    x[1, 0] = np.nan
    x[2] = -np.inf
    result = cpu.softmax(x)
    with np.errstate(invalid="ignore"):
        expected = special.softmax(x.astype("float64"), -1)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-37)
    assert not result[0, 1::2].any()


def test_nan_goes_through_every_maximum():
    x = random((1, 3, 40, 40))
    x[0, 0, 7, 9], x[0, 1] = np.nan, -np.inf
    view = windows(x, (3, 3), (1, 1), (1,) * 4, (1, 1), -np.inf)
    np.testing.assert_array_equal(cpu.max_pool2d(x, 3, strides=1, padding=1), view.max((4, 5)))
    np.testing.assert_array_equal(cpu.global_max_pool2d(x), x.max((2, 3), keepdims=True))
    np.testing.assert_array_equal(cpu.relu(x), np.maximum(x, 0))
    weights = np.zeros((16, 3, 1, 1), "float32")
    assert np.isnan(cpu.conv2d(x, weights, activation="relu6")[0, :, 7, 9]).all()


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize(("size", "window", "stride", "padding"), [(32, 3, 1, 1), (9, 3, 2, 1)])
def test_averages_over_whole_tiles(include, size, window, stride, padding):
    x, sides = random((1, 2, size, size)), (padding,) * 4
    kernel, steps = (window,) * 2, (stride,) * 2
    total = windows(x, kernel, steps, sides, (1, 1)).sum((4, 5))
    inside = windows(np.ones_like(x), kernel, steps, sides, (1, 1)).sum((4, 5))
    result = cpu.avg_pool2d(x, window, strides=stride, padding=padding, count_include_pad=include)
    expected = total / (window * window if include else inside)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def by_ceiling(extent, window, stride, padding):
    """Return the first pixels of the windows along an axis, as PyTorch defines ``ceil_mode``."""
    count = -(-(extent + 2 * padding - window) // stride) + 1
    if (count - 1) * stride >= extent + padding:
        count -= 1
    return [i * stride - padding for i in range(count)]


@pytest.mark.parametrize(("window", "stride", "padding"), [(3, 2, 0), (3, 2, 1), (2, 3, 1)])
@pytest.mark.parametrize("size", [6, 7, 8])
def test_ceil_mode(size, window, stride, padding):
    x = random((size, size + 1))
    starts = [by_ceiling(extent, window, stride, padding) for extent in x.shape]
    keywords = {"strides": stride, "padding": padding, "ceil_mode": True}
    largest = cpu.max_pool2d(x[None, None], window, **keywords)[0, 0]
    means = cpu.avg_pool2d(x[None, None], window, **keywords)[0, 0]
    inner = cpu.avg_pool2d(x[None, None], window, count_include_pad=False, **keywords)[0, 0]
    assert largest.shape == means.shape == (len(starts[0]), len(starts[1]))
    for i, top in enumerate(starts[0]):
        for j, left in enumerate(starts[1]):
            patch = x[max(top, 0) : top + window, max(left, 0) : left + window]
            rows, columns = (
                min(first + window, extent + padding) - first
                for first, extent in zip((top, left), x.shape, strict=True)
            )
            assert largest[i, j] == patch.max()
            assert means[i, j] == pytest.approx(patch.sum() / (rows * columns), rel=1e-4, abs=1e-5)
            assert inner[i, j] == pytest.approx(patch.mean(), rel=1e-4, abs=1e-5)


def test_results_may_overlap_what_they_are_computed_from():
    rows, b = random((9, 8)), random((8, 8), at=1)
    expected = rows[:8] @ b
    for _ in range(2):
        copy = rows.copy()
        np.testing.assert_allclose(cpu.matmul(copy[:8], b, out=copy[1:]), expected, rtol=1e-4)
    line = random((1000,))
    expected = line[:-1] + line[1:]
    assert np.array_equal(cpu.add(line[:-1], line[1:], out=line[1:]), expected)
    square = random((8, 8))
    expected = square + square[0]
    assert cpu.add(square, square[0], out=square) is square
    assert np.array_equal(square, expected)


def test_empty_batches_have_empty_results():
    none, few = random((0, 3, 8, 8)), random((4, 3, 3, 3))
    assert cpu.conv2d(none, few, padding=1).shape == (0, 4, 8, 8)
    assert cpu.max_pool2d(none, 2).shape == (0, 3, 4, 4)
    assert cpu.global_avg_pool2d(none).shape == (0, 3, 1, 1)
    assert cpu.matmul(random((0, 5)), random((5, 3))).shape == (0, 3)
    assert cpu.softmax(random((0, 3))).shape == (0, 3)
    assert cpu.add(random((0, 3)), random((1, 3))).shape == (0, 3)
    with pytest.raises(ShapeError, match="is empty"):
        cpu.matmul(random((3, 0)), random((0, 4)))


def test_more_elements_than_an_index_counts_are_refused():
    with pytest.raises(ShapeError, match="split it"):
        _check_sizes(UnaryOp("relu", 1 << 31, "int8"))


@pytest.mark.parametrize("padding", [1, [1, 1], np.int64(1), [np.int32(1)] * 4, "same"])
def test_parameters_in_every_form_reach_the_plan(padding):
    x, w = random((1, 3, 8, 8)), random((4, 3, 3, 3), at=1)
    expected = conv2d_reference(x, w, (1, 1), (1,) * 4, (1, 1))
    before = len(cpu._cpu._plans)
    for _ in range(3):
        result = cpu.conv2d(x, w, padding=padding, strides=np.int64(1))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert len(cpu._cpu._plans) <= before + 1


def test_same_padding_puts_the_odd_one_behind():
    x, w = random((1, 2, 9, 9)), random((3, 2, 4, 2), at=1)
    expected = conv2d_reference(x, w, (1, 1), (3, 1, 3, 1), (2, 2))
    np.testing.assert_allclose(cpu.conv2d(x, w, padding="same", dilation=2), expected, atol=1e-4)
    with pytest.raises(ShapeError, match="strides of 1"):
        cpu.conv2d(x, w, padding="same", strides=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w: cpu.conv2d(x, w, biass=w[:, 0, 0, 0]), "unknown keyword 'biass'"),
        (lambda x, w: cpu.conv2d(x, w, strides=1.5), "strides is 1.5"),
        (lambda x, w: cpu.activation(x, "mish"), "'mish'; give one of relu"),
        (lambda x, w: cpu.softmax(x, axis=4), "axis is 4; data has 4 axes"),
        (lambda x, w: cpu.matmul(x, x, residual=x), "stacks of matrices take no residual"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ShapeError, match=message):
        call(random((1, 3, 8, 8)), random((4, 3, 3, 3)))


@pytest.mark.parametrize("target", random_calls.PROCESSORS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize(("rows", "steps", "columns"), [(25, 127, 50), (31, 33, 9), (5, 19, 17)])
def test_last_tiles_end_with_the_result(rows, steps, columns, target):
    """Rows, sums and columns that are no multiples of anything; what follows them is in place."""
    x, w, bias = random((rows, steps)), random((columns, steps), at=1), random((columns,), at=2)
    residual = random((rows, columns), at=3)
    expected = np.maximum(x @ w.T + bias + residual, 0)
    with random_calls.processor(target):
        dense = cpu.dense(x, w, bias=bias, residual=residual, activation="relu")
        product = cpu.matmul(x, w.T.copy(), bias=bias, residual=residual, activation="relu")
        image, more = x.T[None, :, None], residual.T[None, :, None]  # a row of pixels
        kernel = w[:, :, None, None]
        pixels = cpu.conv2d(image, kernel, bias=bias, residual=more, activation="relu")
    for found in (dense, product, pixels[0, :, 0].T):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", random_calls.PROCESSORS, ids=lambda target: target.mcpu)
@pytest.mark.parametrize(("rows", "steps", "columns"), [(33, 48, 40), (5, 200, 7), (3, 40, 33)])
def test_matrices_that_lie_turned_are_read_as_they_lie(rows, steps, columns, target, monkeypatch):
    """Transposed views, of stacks too, are products with rows; nothing is copied for them."""
    x, keys = random((2, 3, rows, steps)), random((2, 3, columns, steps), at=1)
    taken = []
    with random_calls.processor(target):
        plain = cpu._cpu.kernel
        monkeypatch.setattr(cpu._cpu, "kernel", lambda op: (taken.append(op), plain(op))[1])
        found = cpu.matmul(x, keys.swapaxes(-1, -2))
        one = cpu.matmul(x[0, 0], keys[0, 0].T)
    expected = x @ keys.swapaxes(-1, -2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(one, expected[0, 0], rtol=1e-4, atol=1e-4)
    product = MatmulOp(rows, columns, steps, transposed_b=True)
    assert taken == [StackedMatmulOp(6, product), product]


def test_matrices_that_lie_turned_do_not_fit_in_the_shapes_of_the_caller():
    with pytest.raises(ShapeError, match=r"a has shape \(4, 5\) and b \(6, 7\)"):
        cpu.matmul(random((4, 5)), random((7, 6)).T)
    with pytest.raises(ShapeError, match=r"stacks \(2, 4, 5\) and \(3, 5, 7\) do not broadcast"):
        cpu.matmul(random((2, 4, 5)), random((3, 5, 7)))


def test_unsigned_depthwise_and_rows_of_any_rank():
    x, w = random((1, 5, 11, 13), "uint8"), random((5, 1, 3, 3), "int8")
    expected = depthwise_reference(x.astype("int64"), w, (1, 1), (0,) * 4, (1, 1))
    assert np.array_equal(cpu.conv2d(x, w, groups=5), expected)
    x, w, added = random((2, 3, 20)), random((7, 20), at=1), random((2, 3, 7), at=2)
    out = np.empty_like(added)
    for _ in range(2):  # the second call finds a plan
        assert cpu.dense(x, w, residual=added, out=out) is out
        np.testing.assert_allclose(out, x @ w.T + added, rtol=1e-4, atol=1e-4)
        sums = cpu.matmul(x, w.T.copy(), residual=added)
        np.testing.assert_allclose(sums, x @ w.T + added, rtol=1e-4, atol=1e-4)
        row = cpu.conv1d(x, w[:, :3, None], residual=np.ones((2, 7, 20), "float32"))
        expected = np.einsum("oc,ncw->now", w[:, :3], x) + 1
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError, match=r"residual has shape \(6, 7\); it must be \(2, 3, 7\)"):
        cpu.dense(x, w, residual=added.reshape(6, 7))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_computes():
    """TVM's threads do not survive a fork; a call that waits for them would wait for ever."""
    program = """
        import os
        import numpy as np
        from vtaops import cpu
        from vtaops.kernels.cpu import layers
        a = np.random.default_rng(0).standard_normal((256, 256)).astype("float32")
        expected = cpu.matmul(a, a)
        kernel = cpu.kernel(cpu._cpu._plans[next(iter(cpu._cpu._plans))]._kernel.op)
        layer = layers.PackedDense(a)
        product = layer(a)
        if child := os.fork():
            raise SystemExit(os.waitpid(child, 0)[1])
        same = np.array_equal(layer(a), product)
        same &= np.array_equal(cpu.matmul(a, a), expected)
        same &= np.array_equal(kernel(a, a), expected)
        same &= np.allclose(cpu.matmul(a[:200], a), expected[:200], atol=1e-3)
        os._exit(0 if same else 1)
    """
    environment = {**os.environ, "TVM_NUM_THREADS": "2", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    assert subprocess.run(command, env=environment, timeout=240).returncode == 0


def test_the_folder_of_kernels_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_KERNELS", 16)
    for age in range(17):
        path = tmp_path / f"{age}.so"
        path.touch()
        os.utime(path, (age, age))
    cache._drop_oldest(tmp_path)
    assert {int(path.stem) for path in tmp_path.iterdir()} == set(range(2, 17))
    kernels = KernelCache(tmp_path)
    for size in range(20):
        kernels.get(UnaryOp("relu", size), "target", lambda size=size: {"main": size})
    assert len(kernels._loaded) == 16


def test_a_kernel_depends_on_the_sources_that_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    schedule, other = tmp_path / "kernels" / "schedule.py", tmp_path / "report.py"
    schedule.parent.mkdir()
    schedule.write_text("one")
    other.write_text("one")

    def key():
        cache._toolchain.cache_clear()
        return cache.kernel_key(UnaryOp("relu", 8), "target", ("kernels",))

    before = key()
    other.write_text("another")
    assert key() == before
    schedule.write_text("another")
    assert key() != before


def test_tensors_in_tensors_out():
    torch = pytest.importorskip("torch")
    a, b = torch.from_numpy(random((3, 4))), torch.from_numpy(random((4, 3)))
    out = torch.empty(3, 3)
    assert torch.allclose(cpu.matmul(a, b), a @ b, atol=1e-5)
    assert cpu.matmul(a, b, out=out) is out
    for result in (cpu.softmax(a, axis=0), cpu.dense(a[None], a), cpu.matmul(a[None], b)):
        assert isinstance(result, torch.Tensor)
    line = cpu.conv1d(torch.ones(2, 3, 9), torch.ones(4, 3, 3), padding="same")
    assert isinstance(line, torch.Tensor)
    assert line.shape == (2, 4, 9)
