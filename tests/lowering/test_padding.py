"""Masks cut into boxes; views of tensors against their definitions."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vtaops import HardwareConfig
from vtaops.base.window import Window
from vtaops.errors import ShapeError
from vtaops.lowering.emission.padding import boxes
from vtaops.machine import views
from vtaops.machine.layout import Layout, bias_layout, diagonal_layout, flat_layout
from vtaops.machine.views import BlockDiagonal, Flat, KernelColumns, Patches, Plus
from vtaops.ops.groups import ChannelGroups


@given(hnp.arrays(np.bool_, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)))
@settings(max_examples=150, deadline=None)
def test_boxes_cover_a_mask_once(mask):
    covered = np.zeros(mask.shape, int)
    for box in boxes(mask):
        covered[tuple(slice(span.start, span.stop) for span in box)] += 1
    np.testing.assert_array_equal(covered, mask.astype(int))


def test_boxes_of_conditions_on_axes_are_few():
    """A window of 3 with padding 1 on 8 pixels: every tap is one box."""
    tap, pixel = np.ogrid[:3, :8]
    inside = (pixel + tap >= 1) & (pixel + tap < 9)
    assert len(list(boxes(inside))) == 3
    assert len(list(boxes(inside[:, None, :, None] & inside[None, :, None, :]))) == 9


# -------------------------------------------------------------------------------------- views


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_grouped_weights_multiply_as_groups_do(groups, inputs, outputs, blocks):
    """As a matrix: each merged group is dense with zeros between its groups."""
    config = HardwareConfig.load("tiny")
    rng = np.random.default_rng(groups * 100 + inputs * 10 + outputs)
    in_channels, out_channels = groups * inputs * blocks, groups * outputs * blocks
    kernel = rng.integers(-9, 9, (out_channels, inputs * blocks, 1, 1)).astype(np.int8)
    pixel = rng.integers(-9, 9, in_channels)
    expected = [
        pixel[o // (outputs * blocks) * inputs * blocks :][: inputs * blocks] @ kernel[o, :, 0, 0]
        for o in range(out_channels)
    ]
    view = ChannelGroups(groups, in_channels, out_channels).view(config)
    if view is None:
        assert groups == 1
        return
    dense = view.apply(kernel)[:, :, 0, 0].astype(int)
    assert dense.shape == view.shape(kernel.shape)[:2]
    padded = np.pad(pixel, (0, view.inputs))
    merged_outputs = view.merged * outputs * blocks
    first = np.arange(out_channels) // merged_outputs * view.inputs
    found = [
        row @ padded[begin : begin + view.inputs] for row, begin in zip(dense, first, strict=True)
    ]
    np.testing.assert_array_equal(found, expected)


def test_folded_columns_give_the_same_convolution():
    rng = np.random.default_rng(1)
    image = rng.integers(-9, 9, (2, 3, 5, 11)).astype(np.int8)
    kernel = rng.integers(-9, 9, (4, 3, 2, 3)).astype(np.int8)
    columns = Patches.of_columns(Window((2, 3), (1, 2), (1, 1, 0, 2), (1, 2)))
    folded, weights = columns.apply(image).astype(int), KernelColumns().apply(kernel).astype(int)
    assert folded.shape == columns.shape(image.shape)
    assert weights.shape == KernelColumns().shape(kernel.shape)
    padded = np.pad(image, ((0, 0), (0, 0), (0, 0), (1, 2))).astype(int)
    for x in range(folded.shape[3]):
        window = padded[:, :, 1:3, 2 * x : 2 * x + 5 : 2]
        expected = np.einsum("nchw,ochw->no", window, kernel.astype(int))
        found = np.einsum("nch,och->no", folded[:, :, 1:3, x], weights[:, :, :, 0])
        np.testing.assert_array_equal(found, expected)


def test_layouts_with_views_round_trip():
    config = HardwareConfig.load("tiny")
    tensor = np.arange(42, dtype=np.int8).reshape(2, 3, 7)
    flat = flat_layout(config)
    packed = flat.pack(tensor)
    assert packed.shape == flat.packed_shape(tensor.shape)
    np.testing.assert_array_equal(flat.unpack(packed, tensor.shape), tensor)
    bias = np.array([5, -7, 2**31 - 5], np.int32)
    rounded = bias_layout(config, plus=4)
    assert rounded.pack(bias)[0, 0, :3].tolist() == [9, -3, 2**31 - 1]
    with pytest.raises(ShapeError, match=r"a bias of 2147483644 cannot be rounded"):
        rounded.pack(bias + 1)
    scales = np.full((8, 1, 1, 1), 3, np.int8)
    np.testing.assert_array_equal(
        diagonal_layout(config).pack(scales)[0, 0, 0, 0], np.eye(8, dtype=np.int8) * 3
    )
    with pytest.raises(ShapeError, match="cannot be inverted"):
        diagonal_layout(config).unpack(diagonal_layout(config).pack(scales), scales.shape)


@pytest.mark.parametrize(
    "view",
    [
        Flat(),
        Plus(-3),
        BlockDiagonal(4, 2, 8),
        Patches(Window((1, 3), (1, 2), (0, 0, 0, 1))),
        KernelColumns(),
    ],
    ids=repr,
)
def test_views_are_json(view):
    assert views.from_dict(json.loads(json.dumps(view.to_dict()))) == view
    assert Layout("NCHW1n8c", view=view) == Layout("NCHW1n8c", view=view)


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "Rotated"},
        {"kind": "Plus"},
        {"kind": "Plus", "value": "3"},
        {"kind": "Plus", "value": 3, "other": 4},
        {},
    ],
)
def test_other_json_is_no_view(values):
    with pytest.raises(ShapeError, match="not a view"):
        views.from_dict(values)
