"""Layouts: packing is exact, invertible, pads with zeros, and refuses what does not fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vtaops import HardwareConfig
from vtaops.errors import ShapeError
from vtaops.machine.layout import (
    Layout,
    bias_layout,
    data_layout,
    kernel_layout,
    matrix_layout,
    weight_layout,
)

CONFIGS = [HardwareConfig.load(name) for name in HardwareConfig.names()]
extent = st.integers(1, 9)


def naive_pack(array, outer, blocks, axes):
    """Pack by its definition, one scalar at a time: the reference of this file.

    Letter by letter: the logical index along axis X is ``outer_X * block_X + inner_x``.
    """
    sizes = dict(blocks)
    extents = dict(zip(axes, array.shape, strict=True))
    shape = [-(-extents[a] // sizes.get(a.lower(), 1)) for a in outer]
    packed = np.zeros([*shape, *(size for _, size in blocks)], array.dtype)
    for place in np.ndindex(*packed.shape):
        position = dict(zip([*outer, *(letter for letter, _ in blocks)], place, strict=True))
        index = tuple(
            position[a] * sizes.get(a.lower(), 1) + position.get(a.lower(), 0) for a in axes
        )
        if all(i < n for i, n in zip(index, array.shape, strict=True)):
            packed[place] = array[index]
    return packed


# ---------------------------------------------------------------------------- the notation


@pytest.mark.parametrize(
    ("text", "logical", "outer", "blocks", "axes"),
    [
        ("NCHW", "", ("N", "C", "H", "W"), (), "NCHW"),
        ("NCHW1n16c", "", ("N", "C", "H", "W"), (("n", 1), ("c", 16)), "NCHW"),
        ("OIHW16o16i", "", ("O", "I", "H", "W"), (("o", 16), ("i", 16)), "OIHW"),
        ("C1n16c", "", ("C",), (("n", 1), ("c", 16)), "C"),
        ("HWNC4n8c", "NCHW", ("H", "W", "N", "C"), (("n", 4), ("c", 8)), "NCHW"),
    ],
)
def test_notation(text, logical, outer, blocks, axes):
    layout = Layout(text, logical)
    assert (layout.outer, layout.blocks, layout.axes) == (outer, blocks, axes)


@pytest.mark.parametrize(
    ("text", "logical"),
    [
        ("", ""),
        ("nchw", ""),
        ("NCHW16", ""),
        ("NCHW0c", ""),
        ("NCHW016c", ""),
        ("NCHW-1c", ""),
        ("NCHW 16c", ""),
        ("NCC16c", ""),
        ("NC16cHW", ""),
        ("NCHW4c4c", ""),
        ("16c", ""),
        ("NCHW16c", "NCH"),
        ("NCHW16c", "NCHWW"),
        ("NCHW16c", "NCHD"),
    ],
)
def test_texts_that_are_no_layout(text, logical):
    with pytest.raises(ShapeError, match="layout"):
        Layout(text, logical)


def test_layouts_of_a_configuration():
    config = HardwareConfig(log_batch=2, log_block=3)
    assert data_layout(config).text == "NCHW4n8c"
    assert kernel_layout(config).text == "OIHW8o8i"
    assert matrix_layout(config).text == "MC4m8c"
    assert weight_layout(config).text == "OI8o8i"
    assert bias_layout(config).text == "C4n8c"


# --------------------------------------------------------------------------------- packing


def test_a_small_image_by_hand():
    """Channels 0..4 of a 1x5x1x2 image in blocks of 4: block, pixel, lane."""
    image = np.arange(10, dtype=np.int8).reshape(1, 5, 1, 2)
    packed = Layout("NCHW1n4c").pack(image)
    assert packed.shape == (1, 2, 1, 2, 1, 4)
    assert packed.reshape(2, 2, 4).tolist() == [
        [[0, 2, 4, 6], [1, 3, 5, 7]],
        [[8, 0, 0, 0], [9, 0, 0, 0]],
    ]


@pytest.mark.parametrize(
    ("text", "logical", "shape"),
    [
        ("NCHW1n4c", "", (2, 6, 3, 2)),
        ("NCHW2n4c", "", (3, 5, 2, 2)),
        ("OIHW4o4i", "", (5, 7, 2, 1)),
        ("MC2m4c", "", (5, 6)),
        ("C2n4c", "", (6,)),
        ("HWCN4c2n", "NCHW", (3, 5, 2, 2)),
        ("WHCN3c", "NCHW", (2, 4, 2, 3)),
        ("IOHW4i8o", "OIHW", (9, 5, 1, 2)),
    ],
)
def test_packing_agrees_with_its_definition(text, logical, shape):
    layout = Layout(text, logical)
    array = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    expected = naive_pack(array, layout.outer, layout.blocks, layout.axes)
    packed = layout.pack(array)
    assert packed.dtype == np.int8
    assert packed.flags.c_contiguous
    assert packed.shape == layout.packed_shape(shape)
    np.testing.assert_array_equal(packed, expected)


@st.composite
def layouts_with_shapes(draw):
    axes = draw(st.permutations("NCHWOI").map(lambda p: p[: draw(st.integers(1, 4))]))
    logical = "".join(draw(st.permutations(axes)))
    blocked = draw(st.lists(st.sampled_from(axes), unique=True))
    letters = [axis.lower() for axis in blocked] + draw(st.sampled_from([[], ["z"]]))
    blocks = "".join(f"{draw(st.integers(1, 5))}{letter}" for letter in letters)
    layout = Layout("".join(axes) + blocks, logical)
    return layout, tuple(draw(st.lists(extent, min_size=len(axes), max_size=len(axes))))


@settings(max_examples=150, deadline=None)
@given(layouts_with_shapes(), st.sampled_from(["int8", "int32"]), st.data())
def test_unpack_is_the_exact_inverse_and_padding_is_zero(layout_shape, dtype, data):
    layout, shape = layout_shape
    array = data.draw(hnp.arrays(dtype, shape))
    packed = layout.pack(array)
    assert packed.shape == layout.packed_shape(shape)
    assert packed.flags.c_contiguous
    restored = layout.unpack(packed, shape)
    assert restored.dtype == array.dtype
    np.testing.assert_array_equal(restored, array)
    # Every scalar appears once for each copy of a replicated block, and the rest is zero.
    copies = np.prod([n for letter, n in layout.blocks if letter.upper() not in layout.outer] or 1)
    np.testing.assert_array_equal(
        np.sort(packed[packed != 0].ravel()), np.sort(np.repeat(array[array != 0], copies))
    )


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_images_and_kernels_of_every_configuration(config, data):
    shape = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40)), 2, 3)
    image = data.draw(hnp.arrays(np.int8, shape, fill=st.integers(-128, 127)))
    for layout, tile in (
        (data_layout(config), config.inp.shape),
        (kernel_layout(config), config.wgt.shape),
    ):
        packed = layout.pack(image)
        assert packed.shape[-2:] == tile
        np.testing.assert_array_equal(layout.unpack(packed, shape), image)


def test_a_block_without_an_axis_repeats():
    packed = Layout("C3n4c").pack(np.arange(1, 7, dtype=np.int32))
    assert packed.tolist() == [[[1, 2, 3, 4]] * 3, [[5, 6, 0, 0]] * 3]


@pytest.mark.parametrize("view", ["transposed", "strided", "reversed", "broadcast"])
def test_inputs_need_not_be_contiguous(view):
    base = np.random.default_rng(1).integers(-128, 128, (4, 6, 8, 10)).astype(np.int8)
    array = {
        "transposed": base.transpose(3, 1, 0, 2),
        "strided": base[::2, 1::2, ::3],
        "reversed": base[:, ::-1, :, ::-1],
        "broadcast": np.broadcast_to(base[:1], (3, 6, 8, 10)),
    }[view]
    assert not array.flags.c_contiguous
    layout = Layout("NCHW2n4c")
    packed = layout.pack(array)
    np.testing.assert_array_equal(packed, layout.pack(array.copy(order="C")))
    np.testing.assert_array_equal(layout.unpack(packed, array.shape), array)
    fortran = np.asfortranarray(packed)
    np.testing.assert_array_equal(layout.unpack(fortran, array.shape), array)


def test_results_do_not_share_memory_with_inputs():
    array = np.ones((1, 1, 2, 2), np.int8)
    for result in (Layout("NCHW").pack(array), Layout("NCHW").unpack(array, array.shape)):
        assert not np.shares_memory(result, array)


# --------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("shape", [(), (4,), (1, 2, 3), (1, 2, 3, 4, 5)])
def test_wrong_rank(shape):
    layout = Layout("NCHW1n4c")
    with pytest.raises(ShapeError, match=f"rank {len(shape)} .* needs rank 4 with axes NCHW"):
        layout.pack(np.zeros(shape, np.int8))
    with pytest.raises(ShapeError, match="needs rank 4"):
        layout.unpack(np.zeros((1, 1, 1, 1, 1, 4), np.int8), shape)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 3, 0)])
def test_empty_arrays(shape):
    layout = Layout("NCHW1n4c")
    with pytest.raises(ShapeError, match="is empty; every extent must be at least 1"):
        layout.pack(np.zeros(shape, np.int8))


def test_unpack_refuses_another_packed_shape():
    layout = Layout("NCHW1n4c")
    with pytest.raises(ShapeError, match=r"has shape \(1, 3, 2, 2, 1, 4\); layout .* has shape"):
        layout.unpack(np.zeros((1, 3, 2, 2, 1, 4), np.int8), (1, 5, 2, 2))
