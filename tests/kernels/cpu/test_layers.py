"""Layers with packed weights against the calls of `vtaops.cpu`, whose tests are elsewhere.

`trials/random_calls.py` draws chains of them against NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest

from trials.kernel_reference import depthwise_reference, random
from vtaops import cpu
from vtaops.base.errors import ShapeError
from vtaops.kernels.cpu import layers
from vtaops.kernels.cpu.schedule.convolution import KEPT_BYTES


def close(result, expected):
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("channels", [3, 21])
def test_a_convolution_is_that_of_the_call(channels):
    x, w, bias = random((2, channels, 9, 11)), random((35, channels, 3, 3), at=1), random((35,))
    norm = tuple(np.abs(random((35,), at=k)) + np.float32(0.5) for k in range(4))
    steps = {"strides": (1, 2), "padding": (1, 0, 2, 1)}
    expected = cpu.conv2d(x, w, bias=bias, batch_norm=norm, activation="relu6", **steps)
    layer = layers.PackedConv2d(w, bias=bias, batch_norm=norm, activation="relu6", **steps)
    close(layer(x).numpy(), expected)
    close(layer(layers.pack(x)).numpy(), expected)
    assert layer(x).shape == expected.shape


@pytest.mark.parametrize("kind", ["float32", "uint8"])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_strided_point_reads_every_other_pixel(kind, padding):
    byte, steps = kind == "uint8", {"strides": (2, 3), "padding": padding}
    x = random((2, 20, 9, 14), dtype=kind)
    w = random((18, 20, 1, 1), at=1, dtype="int8" if byte else kind)
    close(layers.PackedConv2d(w, **steps)(x).numpy(), cpu.conv2d(x, w, **steps))


def test_weights_beyond_the_cache_meet_all_images():
    x, w = random((3, 320, 3, 4)), random((192, 320, 3, 3), at=1) / np.float32(50)
    assert layers.pack(x).blocks.nbytes < KEPT_BYTES < w.nbytes
    close(layers.PackedConv2d(w, padding=1)(x).numpy(), cpu.conv2d(x, w, padding=1))


def test_a_residual_comes_before_the_activation():
    x, w = random((1, 20, 6, 5)), random((20, 20, 1, 1), at=1)
    layer = layers.PackedConv2d(w, activation="relu")
    close(layer(x, x).numpy(), cpu.conv2d(x, w, residual=x, activation="relu"))
    close(layer(x).numpy(), cpu.conv2d(x, w, activation="relu"))


def test_depthwise_and_pools():
    x, w = random((1, 19, 12, 13)), random((19, 1, 3, 3), at=1)
    depthwise = layers.PackedConv2d(w, groups=19, padding=1, strides=2)
    close(depthwise(x).numpy(), cpu.depthwise_conv2d(x, w, padding=1, strides=2))
    largest = layers.PackedMaxPool2d(3, strides=2, padding=1)
    close(largest(x).numpy(), cpu.max_pool2d(x, 3, strides=2, padding=1))
    close(layers.PackedAvgPool2d((2, 3))(x).numpy(), cpu.avg_pool2d(x, (2, 3)))
    close(layers.PackedGlobalAvgPool2d()(x).numpy(), cpu.global_avg_pool2d(x))
    close(layers.PackedAdd()(x, layers.pack(x)).numpy(), x + x)


def test_a_maximum_keeps_nan():
    x = random((1, 3, 6, 6))
    x[0, 1, 2, 2] = np.nan
    result = layers.PackedMaxPool2d(2)(x).numpy()
    assert np.isnan(result[0, 1, 1, 1])
    assert np.isnan(result).sum() == 1


def test_layers_follow_the_size_of_their_images():
    w = random((8, 4, 3, 3))
    layer = layers.PackedConv2d(w, padding=1)
    for size in (5, 8, 5):
        x = random((1, 4, size, size), at=size)
        close(layer(x).numpy(), cpu.conv2d(x, w, padding=1))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: layers.PackedConv2d(w, groups=2), "groups is 2"),
        (
            lambda w: layers.PackedConv2d(w, bias=np.ones(3, "float32")),
            r"bias has shape \(3,\); it must be \(4,\)",
        ),
        (lambda w: layers.PackedConv2d(w, batch_norm=(np.ones(4, "float32"),)), "1 vectors"),
        (lambda w: layers.PackedConv2d(w, activation="swoosh"), "swoosh"),
        (lambda w: layers.PackedConv2d(w.astype("int32")), "int32"),
        (lambda w: layers.PackedConv2d(w.astype("int8"), groups=4), "groups is 4"),
        (lambda w: layers.Packed(w, 4), "5 axes"),
        (lambda w: layers.PackedMaxPool2d(2)(w.astype("int8")), "int8"),
        (lambda w: layers.PackedAdd()(w, w.astype("int8")), "int8"),
        (lambda w: layers.PackedConv2d(w)(w, np.ones((4, 4, 1, 1), "int32")), "int32"),
        (lambda w: layers.PackedConv2d(w)(np.ones((1, 5, 4, 4), "float32")), "5 channels"),
        (lambda w: layers.PackedConv2d(w)(np.ones((1, 4, 2, 2), "float32")), "spans 3 pixels"),
        (lambda w: layers.PackedConv2d(w)(np.ones((4, 4), "float32")), "4 axes"),
        (lambda w: layers.PackedConv2d(w)(*np.ones((2, 1, 4, 4, 4), "float32")), "residual"),
        (lambda _: layers.PackedMaxPool2d(2, padding=2), "half the window"),
        (lambda w: layers.PackedAdd()(w, w[:, :2]), "differ"),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(ShapeError, match=words):
        call(random((4, 4, 3, 3)))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_bytes(kind):
    limits = np.iinfo(kind)
    draw = np.random.default_rng(3).integers
    x = draw(limits.min, limits.max + 1, (2, 3, 9, 8)).astype(kind)
    w, v = (draw(-128, 128, shape).astype("int8") for shape in ((20, 3, 3, 3), (11, 20, 1, 1)))
    bias = draw(-999, 999, 20).astype("int32")
    steps = {"bias": bias, "padding": 1, "strides": 2, "shift": 7, "clip": (-127, 127)}
    middle = layers.PackedConv2d(w, **steps)(x)
    expected = cpu.conv2d(x, w, **steps)
    np.testing.assert_array_equal(middle.numpy(), expected)
    sums = layers.PackedConv2d(v)(middle).numpy()
    np.testing.assert_array_equal(sums, cpu.conv2d(expected, v))
    rows = np.ascontiguousarray(x.reshape(2, 9, -1))
    w = draw(-128, 128, (13, 24)).astype("int8")
    added = draw(-999, 999, (2, 9, 13)).astype("int32")
    result = layers.PackedDense(w, activation="relu")(rows, added)
    total = rows.astype("int32") @ w.T.astype("int32") + added
    np.testing.assert_array_equal(result, np.maximum(total, 0))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_bytes_of_each_channel(kind):
    limits = np.iinfo(kind)
    draw = np.random.default_rng(4).integers
    x = draw(limits.min, limits.max + 1, (2, 19, 9, 13)).astype(kind)
    x[0, 0, :3, :3] = limits.min
    w, bias = draw(-128, 128, (19, 1, 3, 3)).astype("int8"), draw(-999, 999, 19).astype("int32")
    steps = {"padding": 1, "strides": 2}
    sums = depthwise_reference(x, w, (2, 2), (1, 1, 1, 1), (1, 1))
    layer = layers.PackedConv2d(w, groups=19, **steps)
    np.testing.assert_array_equal(layer(x).numpy(), sums)
    np.testing.assert_array_equal(layer(layers.pack(x)).numpy(), sums)
    ends = {"bias": bias, "activation": "relu", "shift": 6, "clip": (-100, 90)}
    expected = np.clip(np.maximum((sums + bias.reshape(-1, 1, 1)) >> 6, 0), -100, 90)
    result = layers.PackedConv2d(w, groups=19, **steps, **ends)(x).numpy()
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, expected)


def test_blocks_given_by_hand_are_copied_if_kernels_cannot_read_them():
    x, w = random((2, 20, 6, 7)), random((20, 1, 3, 3), at=1)
    layer, given = layers.PackedConv2d(w, groups=20), layers.pack(x)
    expected = layer(given).numpy()
    turned = np.asfortranarray(given.blocks)
    fixed = given.blocks.copy()
    fixed.flags.writeable = False
    for blocks in (turned, fixed, given.blocks[::-1][::-1]):
        np.testing.assert_array_equal(layer(layers.Packed(blocks, 20)).numpy(), expected)


@pytest.mark.parametrize("rows", [1, 29])
def test_a_dense_layer_is_that_of_the_call(rows):
    x, w, bias = random((rows, 50)), random((35, 50), at=1), random((35,))
    layer = layers.PackedDense(w, bias=bias, activation="gelu")
    close(layer(x), cpu.dense(x, w, bias=bias, activation="gelu"))
    assert layer(x[:0]).shape == (0, 35)


def test_layers_refuse_what_does_not_fit_their_weights():
    w = np.ones((4, 3), "int8")
    with pytest.raises(ShapeError, match="float32"):
        layers.PackedDense(w)(np.ones((2, 3), "float32"))
    with pytest.raises(ShapeError, match=r"take \(\.\.\., 3\)"):
        layers.PackedDense(w)(np.ones((2, 4), "int8"))
    with pytest.raises(ShapeError, match="batch_norm"):
        layers.PackedDense(w, batch_norm=np.ones((4, 4), "float32"))
    with pytest.raises(ShapeError, match="float32"):
        layers.PackedConv2d(w[:, :, None, None])(np.ones((1, 3, 4, 4), "float32"))
