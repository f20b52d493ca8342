"""How calls are written: keywords, either spelling, broadcasting, and what mistakes are told."""

import dataclasses
import inspect
import logging

import numpy as np
import pytest

import vtaops
from vtaops import (
    AvgPool2d,
    BatchMatmul,
    Conv2d,
    Conv2dTranspose,
    Elementwise,
    Gemm,
    HardwareConfig,
    MaxPool2d,
    Session,
    Tiling,
    ops,
)
from vtaops.base import errors
from vtaops.base.names import suggestion
from vtaops.schedule.workloads import WORKLOADS, find

IMAGE = {"height": 5, "width": 6}
DESCRIPTIONS = (
    Conv2d(in_channels=3, out_channels=4, **IMAGE, kernel=3),
    Conv2dTranspose(in_channels=3, out_channels=4, **IMAGE, kernel=3),
    MaxPool2d(channels=3, **IMAGE, kernel=2),
    AvgPool2d(channels=3, **IMAGE, kernel=(2, 1)),
    Gemm(m=1, n=2, k=3),
    BatchMatmul(batch=1, m=1, n=2, k=3),
    Elementwise(function="add", shape=(3, 4)),
)


def int8(*shape):
    return np.random.default_rng(len(shape)).integers(-128, 128, shape).astype(np.int8)


def test_one_default_of_requantisation_and_of_padding():
    for op in DESCRIPTIONS:
        assert getattr(op, "clip", (-128, 127)) == (-128, 127)
        assert getattr(op, "padding", (0,) * 4) == (0,) * 4
        sums = not isinstance(op, Elementwise | MaxPool2d | AvgPool2d)
        assert not sums or op.shift == 8
    negative = vtaops.gemm(np.full((1, 1), -128, np.int8), np.full((1, 1), 2, np.int8))
    assert negative.item() == -1


@pytest.mark.parametrize("op", DESCRIPTIONS, ids=lambda op: type(op).__name__)
def test_descriptions_print_as_the_call_that_makes_them(op):
    assert eval(repr(op), vars(ops) | vars(vtaops)) == op
    assert "rounding" not in repr(op)


def test_values_of_people_print_shortly():
    assert repr(DESCRIPTIONS[0]) == (
        "Conv2d(in_channels=3, out_channels=4, height=5, width=6, kernel=3)"
    )
    tiling = Tiling(oc=16, ic=16, taps="row")
    assert repr(tiling) == "Tiling(oc=16, ic=16, taps='row')"
    pynq = HardwareConfig.load("pynq")
    assert "pynq: pynq at 100 MHz, tiles of 1x16x16" in repr(pynq)
    with Session(config="tiny") as session:
        session.relu(int8(3, 4))
        assert repr(session).endswith("tiny: 1 programs loaded>")
    assert repr(session).endswith("closed>")


@pytest.mark.parametrize("op", DESCRIPTIONS, ids=lambda op: type(op).__name__)
def test_descriptions_refuse_positions_and_ask_for_shapes(op):
    with pytest.raises(errors.ArgumentError, match=r"too many positional arguments; it takes .*="):
        type(op)(256, 256, 14, 14, 3)
    with pytest.raises(errors.ArgumentError, match=r" missing a required .*; it takes "):
        type(op)()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MaxPool2d(stride=2), r"missing a required .*'channels'; it takes .*, kernel=, "),
        (lambda: Conv2d(in_chanels=3), r"no keyword 'in_chanels' \(did you mean 'in_channels'\?\)"),
        (lambda: Gemm(m=1, n=1, k=1, colour=3), "no keyword 'colour'; it takes m=, n=, k="),
        (lambda: MaxPool2d(channels=1, **IMAGE, kernel=2, kernel_size=2), "two spellings"),
        (lambda: vtaops.conv2d(int8(1, 1, 3, 3), int8(1, 1, 3, 3), pading=1), "mean 'padding'"),
        (lambda: vtaops.conv2d(int8(1, 1, 3, 3)), "missing a required argument: 'kernel'"),
        (lambda: vtaops.relu(int8(3), 5), "too many positional arguments"),
        (lambda: vtaops.gemm(int8(1, 1), int8(1, 1), strides=1), "no keyword 'strides'"),
    ],
)
def test_mistakes_in_a_call_are_type_errors_that_tell_the_keywords(call, message):
    with pytest.raises(TypeError, match=message) as caught:
        call()
    assert isinstance(caught.value, vtaops.VTAError)


def test_errors_of_values_are_value_errors():
    kinds = vars(errors).values()
    found = {e for e in kinds if isinstance(e, type) and issubclass(e, errors.VTAError)}
    of_devices = {e for e in found if issubclass(e, errors.DeviceError)}
    others = {errors.VTAError}
    assert {e for e in found if not issubclass(e, ValueError)} == of_devices | others


def test_either_spelling_is_taken():
    x, w = int8(1, 3, 7, 7), int8(4, 3, 3, 3)
    assert Conv2d(in_channels=3, out_channels=4, **IMAGE, kernel_size=3, stride=2) == Conv2d(
        in_channels=3, out_channels=4, **IMAGE, kernel=3, strides=2
    )
    np.testing.assert_array_equal(vtaops.conv2d(x, w, stride=2), vtaops.conv2d(x, w, strides=2))
    pooled = vtaops.max_pool2d(x, kernel_size=3, stride=1)
    np.testing.assert_array_equal(pooled, vtaops.max_pool2d(x, 3, strides=1))
    a, b = int8(3, 5), int8(5, 4)
    np.testing.assert_array_equal(vtaops.matmul(a, b), vtaops.gemm(a, b.T))


def test_signatures_name_the_parameters():
    for cls in (Conv2d, MaxPool2d, Elementwise):
        stated = inspect.signature(cls).parameters
        assert [*stated] == [f.name for f in dataclasses.fields(cls)]
        assert {parameter.kind for parameter in stated.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("kernel", [1, 2, 3, (4, 5)])
def test_same_padding_keeps_the_size(kernel):
    """As PyTorch: of an odd number the greater half is at the bottom and the right."""
    op = Conv2d(in_channels=3, out_channels=4, **IMAGE, kernel=kernel, dilation=2, padding="same")
    top, left, bottom, right = op.pads
    assert op.out_size == (5, 6)
    assert (bottom - top, right - left) in {(0, 0), (1, 1), (1, 0), (0, 1)}
    for given in ({"strides": 2, "padding": "same"}, {"padding": "full"}):
        with pytest.raises(vtaops.errors.ShapeError, match="'same'"):
            Conv2d(in_channels=3, out_channels=4, **IMAGE, kernel=3, **given)
    valid = MaxPool2d(channels=3, **IMAGE, kernel=3, padding="valid")
    assert valid == MaxPool2d(channels=3, **IMAGE, kernel=3)


@pytest.mark.parametrize("function", ["add", "sub", "minimum", "maximum"])
@pytest.mark.parametrize("shape", [(1, 5, 1, 1), (4, 6), (), (2, 5, 4, 6)])
def test_shapes_broadcast(function, shape):
    x, other = int8(2, 5, 4, 6), np.asarray(int8(*shape), np.int8)
    meant = {"sub": np.subtract}.get(function) or getattr(np, function)
    expected = np.clip(meant(x.astype(int), other.astype(int)), -128, 127)
    np.testing.assert_array_equal(getattr(vtaops, function)(x, other), expected)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("resnet18.c8", "resnet18.C8"), ("resnet.C2+add", "resnet18-rest.C2+add"), ("zzz", None)],
)
def test_unknown_layers_are_told_their_neighbours(name, meant):
    with pytest.raises(
        vtaops.errors.ShapeError, match=r"the nearest are (\S+), (\S+), (\S+);"
    ) as caught:
        find(name)
    assert meant is None or f" {meant}, " in str(caught.value)
    assert suggestion(name, WORKLOADS) == ("" if meant is None else f" (did you mean {meant!r}?)")


def test_unknown_configurations_and_keys_are_told_their_neighbour():
    with pytest.raises(vtaops.errors.ConfigError, match=r"'pinq' \(did you mean 'pynq'\?\)"):
        HardwareConfig.load("pinq")
    with pytest.raises(vtaops.errors.ConfigError, match=r"did you mean 'LOG_BLOCK'\?"):
        HardwareConfig.from_dict({"LOG_BLOK": 4})


def test_the_package_lists_its_public_names_only():
    listed = {name for name in dir(vtaops) if not name.startswith("__")}
    assert {"conv2d", "Conv2d", "matmul", "errors", "runtime"} <= listed
    assert not {"Any", "ast", "Path", "annotations", "_EXPORTS"} & listed


def test_a_logger_tells_of_compilations(caplog):
    with caplog.at_level(logging.INFO, logger="vtaops"):
        vtaops.compile(DESCRIPTIONS[4], "tiny")
    assert "compiled gemm 1x3 . 3x2: " in caplog.text
