"""Every operator family: random operators on random configurations and tilings are bit-exact to
NumPy in every order of execution; tile products and DRAM traffic are what they should be."""

import random
from dataclasses import replace

import numpy as np
import pytest
from helpers.checks import check

import vtaops
from trials.random_cases import CONFIGS, FAMILIES, random_tiling
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
)
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.fsim import Fsim
from vtaops.schedule import default_tiling

RNG = np.random.default_rng(3)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_random(family, config, seed):
    """On the simulator, and as portable programs where nothing but the portable subset works."""
    rng = random.Random(f"{family} {config} {seed}")
    hardware = HardwareConfig.load(config)
    op = FAMILIES[family](rng)
    able = "portable" if not op.features else "full"
    check(op, hardware, default_tiling(op, hardware), seed, able)
    check(op, hardware, random_tiling(rng, op, hardware), seed, able)


@pytest.mark.parametrize(
    "op",
    [
        # Windows and tiles that lie in the padding as a whole.
        MaxPool2d(channels=5, height=2, width=2, kernel=2, strides=3, padding=(7, 6, 5, 4)),
        AvgPool2d(channels=5, height=2, width=2, kernel=2, strides=3, padding=(7, 6, 5, 4)),
        # Overlapping windows in several tiles.
        MaxPool2d(channels=64, height=23, width=21, kernel=5, strides=1, padding=2),
        # A global pool: every accumulator is written by all products.
        AvgPool2d(channels=70, height=7, width=7, kernel=7, strides=1),
        # Phases without any tap, and outputs that the padding reaches.
        Conv2dTranspose(
            in_channels=3,
            out_channels=5,
            height=4,
            width=3,
            kernel=1,
            strides=3,
            shift=0,
            clip=None,
        ),
        Conv2dTranspose(
            in_channels=3, out_channels=5, height=4, width=3, kernel=2, strides=4, output_padding=3
        ),
        Conv2dTranspose(
            in_channels=3, out_channels=5, height=4, width=3, kernel=7, padding=3, bias=True
        ),
        Conv2dTranspose(
            in_channels=3,
            out_channels=5,
            height=4,
            width=3,
            kernel=6,
            strides=5,
            padding=(4, 0, 3, 2),
        ),
        # Groups that fill blocks neither of input nor of output channels.
        Conv2d(in_channels=34, out_channels=51, height=6, width=6, kernel=3, padding=1, groups=17),
        Conv2d(in_channels=72, out_channels=24, height=6, width=6, kernel=3, padding=1, groups=3),
        Conv2d(
            in_channels=17,
            out_channels=17,
            height=6,
            width=6,
            kernel=3,
            padding=1,
            groups=17,
            residual=True,
            residual_scale=-128,
        ),
        Conv2d(
            in_channels=3,
            out_channels=9,
            height=11,
            width=11,
            kernel=5,
            strides=2,
            padding=(1, 3, 0, 2),
            fold_columns=True,
        ),
        # Pixels that sum nothing but padding.
        Conv2d(
            in_channels=3,
            out_channels=5,
            height=4,
            width=4,
            kernel=1,
            padding=2,
            shift=0,
            clip=None,
        ),
        Conv2d(
            in_channels=3,
            out_channels=5,
            height=4,
            width=4,
            kernel=1,
            padding=2,
            shift=3,
            clip=None,
        ),
        Conv2d(
            in_channels=3,
            out_channels=5,
            height=4,
            width=4,
            kernel=1,
            padding=2,
            shift=0,
            clip=None,
            residual=True,
        ),
        AvgPool2d(channels=5, height=3, width=3, kernel=1, padding=2, clip=None),
        Elementwise(function="sub", shape=(1,), other_scale=127, shift=-15, clip=None),
        Elementwise(function="identity", shape=(3, 1, 1), shift=31, rounding="half_up"),
    ],
    ids=lambda op: op.summary,
)
@pytest.mark.parametrize("config", ["pynq", "tiny"])
def test_corner_cases(op, config):
    hardware = HardwareConfig.load(config)
    check(op, hardware, default_tiling(op, hardware), 5)


# ------------------------------------------------------------------------- what it costs


def stats(op, config="pynq"):
    return vtaops.compile(op, config).stats()


def test_transposed_convolution_multiplies_no_zeros():
    """Each output pixel sums the taps that reach a pixel of the image, and nothing else."""
    op = Conv2dTranspose(
        in_channels=32,
        out_channels=48,
        height=5,
        width=7,
        kernel=(3, 5),
        strides=(2, 3),
        padding=(1, 0, 0, 2),
    )
    rows = sum(
        (y + 1 - dy) % 2 == 0 and 0 <= (y + 1 - dy) // 2 < 5
        for y in range(op.out_size[0])
        for dy in range(3)
    )
    columns = sum(
        (x - dx) % 3 == 0 and 0 <= (x - dx) // 3 < 7
        for x in range(op.out_size[1])
        for dx in range(5)
    )
    inside = stats(op).gemm_counter
    assert inside == rows * columns * 2 * 3
    stretched = op.out_size[0] * op.out_size[1] * 15 * 2 * 3  # as a convolution of inserted zeros
    assert inside < stretched / 5


def test_first_layer_takes_at_most_a_third_of_the_products():
    plain = Conv2d(
        in_channels=3, out_channels=64, height=56, width=56, kernel=7, strides=2, padding=3
    )
    folded = plain.folded_if_shorter(HardwareConfig.load("pynq"))
    assert folded.fold_columns
    assert stats(folded).gemm_counter * 3 <= stats(plain).gemm_counter
    assert (
        not Conv2d(in_channels=64, out_channels=64, height=9, width=9, kernel=3, padding=1)
        .folded_if_shorter(HardwareConfig.load("pynq"))
        .fold_columns
    )


def test_depthwise_costs_one_product_for_each_tap_and_block():
    for multiplier in (1, 2, 3):
        op = Conv2d(
            in_channels=32, out_channels=32 * multiplier, height=9, width=9, kernel=3, groups=32
        )
        assert stats(op).gemm_counter == 9 * 7 * 7 * 2 * multiplier


def test_products_with_padding_are_left_out_on_demand():
    op = Conv2d(in_channels=32, out_channels=32, height=7, width=7, kernel=3, padding=1, bias=True)
    tiling = Tiling(oc=32, ic=16, h=4, w=7, inp_tiles=2)
    config = HardwareConfig.load("pynq")
    all_of_them = vtaops.compile(op, config, tiling).stats().gemm_counter
    real = vtaops.compile(op, config, replace(tiling, padding="skip")).stats().gemm_counter
    assert all_of_them == 21 * 21 * 4
    assert real == 19 * 19 * 4
    check(op, config, replace(tiling, padding="skip"), 1)


def test_residual_moves_only_the_residual():
    """No round trip of the convolution's result, one more product a tile, no more accumulators."""
    plain = stats(Conv2d(in_channels=32, out_channels=32, height=14, width=14, kernel=3, padding=1))
    fused = stats(
        Conv2d(
            in_channels=32, out_channels=32, height=14, width=14, kernel=3, padding=1, residual=True
        )
    )
    pixels = 14 * 14 * 2
    assert fused.inp_load_nbytes - plain.inp_load_nbytes == pixels * 16
    assert fused.out_store_nbytes == plain.out_store_nbytes
    assert fused.acc_load_nbytes == 0
    assert fused.gemm_counter - plain.gemm_counter == pixels
    assert fused.alu_counter == plain.alu_counter


def test_sums_need_no_alu():
    for function in ("add", "sub"):
        found = stats(Elementwise(function=function, shape=(160,), clip=None))
        assert (found.gemm_counter, found.alu_counter) == (20, 0)


def test_padding_of_a_pool_is_neither_loaded_nor_compared():
    op = MaxPool2d(channels=16, height=8, width=8, kernel=3, strides=3, padding=1)
    found = stats(op)
    assert found.inp_load_nbytes == 8 * 8 * 16
    real = sum(0 <= 3 * y + dy - 1 < 8 for y in range(3) for dy in range(3)) ** 2
    fills = 3 * 3
    assert found.alu_counter == real + fills


# -------------------------------------------------------------------- against other references


def test_rounding_half_up_is_nearest_with_halves_upwards():
    x = np.arange(-128, 128, dtype=np.int8)
    for bits in (1, 3, 6):
        expected = np.floor(x / 2**bits + 0.5).astype(np.int8)
        assert (vtaops.requantize(x, shift=bits) == expected).all()
        assert (vtaops.requantize(x, shift=bits, rounding="truncate") == x >> bits).all()


def test_biased_and_unbiased_rounding_agree():
    data, weight = int8(4, 40), int8(20, 40)
    zero = np.zeros(20, np.int32)
    for shift in (1, 8, 15, 16, 20):
        one = vtaops.gemm(data, weight, shift=shift, rounding="half_up")
        two = vtaops.gemm(data, weight, shift=shift, rounding="half_up", bias=zero)
        assert (one == two).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 16, 25, 49, 100, 196, 1000])
def test_average_factor_is_close(count):
    multiplier, shift = AvgPool2d(
        channels=1, height=count, width=1, kernel=(count, 1), strides=1
    ).factor
    assert 1 <= multiplier <= 127
    assert shift >= 0
    error = abs(multiplier * count / 2**shift - 1)
    assert error <= (0 if count & (count - 1) == 0 else 1 / 127)


def test_average_of_constants_is_the_constant_within_a_step():
    for value in (-128, -1, 0, 1, 127):
        images = np.full((1, 20, 7, 7), value, np.int8)
        means = vtaops.global_avg_pool2d(images)
        assert means.shape == (1, 20, 1, 1)
        assert (np.abs(means.astype(int) - value) <= 1).all()


def test_reference_of_transposed_convolution_equals_its_adjoint():
    """<conv(x), y> == <x, conv_transpose(y)> for the convolution with the same kernel."""
    conv = Conv2d(
        in_channels=3,
        out_channels=4,
        height=9,
        width=11,
        kernel=(3, 2),
        strides=(2, 3),
        padding=(1, 0, 1, 1),
    )
    back = Conv2dTranspose(
        in_channels=4,
        out_channels=3,
        height=conv.out_size[0],
        width=conv.out_size[1],
        kernel=(3, 2),
        strides=(2, 3),
        padding=(1, 0, 1, 1),
        output_padding=(0, 0),
        shift=0,
        clip=None,
    )
    small = RNG.integers(-1, 2, (1, 3, *back.out_size)).astype(np.int8)
    kernel = RNG.integers(-1, 2, (4, 3, 3, 2)).astype(np.int8)
    y = RNG.integers(-1, 2, (1, 4, *conv.out_size)).astype(np.int8)
    forward = Conv2d(
        in_channels=3,
        out_channels=4,
        height=back.out_size[0],
        width=back.out_size[1],
        kernel=(3, 2),
        strides=(2, 3),
        padding=(1, 0, 1, 1),
        shift=0,
        clip=None,
    )
    left = (evaluate(forward, [small, kernel]).astype(int) * y).sum()
    right = (small.astype(int) * evaluate(back, [y, kernel])).sum()
    assert left == right


def test_reference_of_grouped_convolution_equals_separate_ones():
    op = Conv2d(
        batch=2,
        in_channels=6,
        out_channels=9,
        height=5,
        width=5,
        kernel=3,
        padding=1,
        groups=3,
        shift=3,
    )
    data, kernel = random_arguments(op, np.random.default_rng(1))
    single = Conv2d(
        batch=2, in_channels=2, out_channels=3, height=5, width=5, kernel=3, padding=1, shift=3
    )
    parts = [
        evaluate(single, [data[:, 2 * g : 2 * g + 2], kernel[3 * g : 3 * g + 3]]) for g in range(3)
    ]
    np.testing.assert_array_equal(evaluate(op, [data, kernel]), np.concatenate(parts, axis=1))


# ------------------------------------------------------------------------- the user's calls


@pytest.fixture(scope="module")
def session():
    with Session("fsim", "tiny") as opened:
        yield opened


def test_elementwise_calls(session):
    a, b = int8(2, 3, 5), int8(2, 3, 5)
    wide = a.astype(int), b.astype(int)
    assert (session.add(a, b) == np.clip(wide[0] + wide[1], -128, 127)).all()
    assert (session.sub(a, b, shift=1) == (wide[0] - wide[1]) >> 1).all()
    assert (session.multiply(a, b, shift=7) == np.clip((wide[0] * wide[1]) >> 7, -128, 127)).all()
    assert (session.minimum(a, b) == np.minimum(a, b)).all()
    assert (session.maximum(a, b) == np.maximum(a, b)).all()
    assert (session.relu(a) == np.maximum(a, 0)).all()
    assert (session.clip(a, -7, 9) == np.clip(a, -7, 9)).all()
    assert (session.requantize(a, shift=-3) == np.clip(wide[0] << 3, -128, 127)).all()
    expected = np.clip(np.floor(wide[0] * 5 / 8 + 0.5), -128, 127)
    assert (session.requantize(a, scale=5, shift=3) == expected).all()


def test_convolution_calls(session):
    x, depthwise = int8(1, 5, 6, 7), int8(10, 1, 3, 3)
    expected = evaluate(
        Conv2d(
            in_channels=5,
            out_channels=10,
            height=6,
            width=7,
            kernel=3,
            padding=1,
            groups=5,
            shift=6,
        ),
        [x, depthwise],
    )
    np.testing.assert_array_equal(
        session.depthwise_conv2d(x, depthwise, padding=1, shift=6), expected
    )
    kernel, residual = int8(4, 5, 3, 3), int8(1, 4, 6, 7)
    op = Conv2d(
        in_channels=5,
        out_channels=4,
        height=6,
        width=7,
        kernel=3,
        padding=1,
        residual=True,
        residual_scale=3,
        residual_shift=1,
    )
    np.testing.assert_array_equal(
        session.conv2d(x, kernel, padding=1, residual=residual, residual_scale=3, residual_shift=1),
        evaluate(op, [x, kernel, residual]),
    )
    back = int8(5, 4, 4, 4)
    np.testing.assert_array_equal(
        session.conv2d_transpose(x, back, strides=2, padding=1),
        evaluate(
            Conv2dTranspose(
                in_channels=5, out_channels=4, height=6, width=7, kernel=4, strides=2, padding=1
            ),
            [x, back],
        ),
    )
    a, b = int8(3, 4, 20), int8(3, 6, 20)
    np.testing.assert_array_equal(
        session.batch_matmul(a, b), evaluate(BatchMatmul(batch=3, m=4, n=6, k=20), [a, b])
    )


def test_pooling_calls(session):
    x = int8(1, 5, 6, 8)
    assert (session.max_pool2d(x, 2) == x.reshape(1, 5, 3, 2, 4, 2).max(axis=(3, 5))).all()
    means = x.reshape(1, 5, 3, 2, 4, 2).astype(int).sum(axis=(3, 5))
    assert (session.avg_pool2d(x, 2, rounding="truncate") == means >> 2).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.add(int8(3), int8(4)), "they must be equal, or broadcast as in NumPy"),
        (lambda s: s.add(int8(3), int8(3), scale=0), "scale is 0"),
        (lambda s: s.sub(int8(3), int8(3), other_scale=-32640), "within 32639"),
        (lambda s: s.relu(np.zeros(3)), "data has dtype float64"),
        (lambda s: s.relu(np.int8(3)), "a scalar is not a tensor"),
        (lambda s: s.requantize(int8(3), shift=32), "must lie in -15..31"),
        (lambda s: s.max_pool2d(int8(1, 1, 2, 2), 3), "the window spans 3 pixels in height"),
        (lambda s: s.avg_pool2d(int8(1, 1, 2, 2), 2, rounding="up"), "rounding is 'up'"),
        (
            lambda s: s.conv2d_transpose(
                int8(1, 2, 3, 3), int8(2, 2, 2, 2), strides=2, output_padding=2
            ),
            "output_padding is 2 in height",
        ),
        (
            lambda s: s.conv2d_transpose(int8(1, 2, 3, 3), int8(3, 2, 2, 2)),
            "kernel expects 3",
        ),
        (
            lambda s: s.conv2d_transpose(int8(1, 1, 1, 1), int8(1, 1, 1, 1), padding=1),
            "the output has -1 pixels",
        ),
        (lambda s: s.batch_matmul(int8(2, 3, 4), int8(3, 3, 4)), "first and last extents"),
        (
            lambda s: s.conv2d(int8(1, 1, 3, 3), int8(1, 1, 3, 3), residual=int8(1, 1, 3, 3)),
            "residual has shape",
        ),
    ],
)
def test_mistakes_are_explained(session, call, message):
    with pytest.raises(vtaops.errors.ShapeError, match=message):
        call(session)


def test_what_vta_cannot_run_falls_back_to_the_cpu():
    x = int8(1, 5, 6, 6)
    unsupported = pytest.raises(vtaops.errors.UnsupportedError, match="which hls-2020 lacks")
    with Session(Fsim("tiny", capabilities="hls-2020")) as session, unsupported:
        session.multiply(x, x, shift=7)
    with Session(Fsim("tiny", capabilities="hls-2020"), fallback="cpu") as session:
        y = session.multiply(x, x, shift=7)
        session.relu(x)
        session.relu(x)
        assert (
            session.stats
            == vtaops.compile(
                Elementwise(function="identity", shape=(1, 5, 6, 6), clip=(0, 127)), "tiny"
            ).stats()
            + session.program(
                Elementwise(function="identity", shape=(1, 5, 6, 6), clip=(0, 127))
            ).stats()
        )
        cpu, vta = session.placements
        assert (cpu.where, cpu.runs, vta.where, vta.runs) == ("cpu", 1, "vta", 2)
        assert "which hls-2020 lacks" in cpu.reason
        session.reset_stats()
        assert session.placements == []
    assert (y == np.minimum(x.astype(int) ** 2 >> 7, 127)).all()


def test_what_does_not_fit_falls_back_too():
    x = int8(1, 1, 60, 60)
    with (
        Session("fsim", "tiny") as session,
        pytest.raises(vtaops.errors.ScheduleError, match="no tile"),
    ):
        session.max_pool2d(x, kernel=60)
    with Session("fsim", "tiny", fallback="cpu") as session:
        y = session.max_pool2d(x, kernel=60)
        assert session.placements[0].where == "cpu"
        bad = Tiling(oc=8, ic=8, h=99)
        with pytest.raises(vtaops.errors.ScheduleError, match="needs 99 elements"):
            session.run(Elementwise(function="identity", shape=x.shape), x, tiling=bad)
    op = MaxPool2d(channels=1, height=60, width=60, kernel=60)
    assert (y == evaluate(op, [x])).all()


def test_what_does_not_run_is_not_compiled_again(monkeypatch):
    import vtaops.session.session as module

    attempts = []
    original = module.compile
    monkeypatch.setattr(module, "compile", lambda *a, **k: attempts.append(a) or original(*a, **k))
    x = int8(1, 5, 6, 6)
    device = Fsim("tiny", capabilities="hls-2020")
    with Session(device, fallback="cpu") as session:
        for _ in range(3):
            session.multiply(x, x)
        assert [p.runs for p in session.placements] == [3]
    assert len(attempts) == 1
    with pytest.raises(vtaops.errors.DeviceError, match="closed"):
        session.multiply(x, x)


def test_products_fall_back_where_the_board_has_no_multiplier():
    x, y = int8(1, 5, 6, 6), int8(1, 5, 6, 6)
    device = Fsim("tiny", capabilities="hls-2020")
    with Session(device, fallback="cpu") as session:
        product = session.multiply(x, y, shift=9)
        assert "'mul', which hls-2020 lacks" in session.placements[0].reason
    with Session("fsim", "tiny") as able:
        assert (able.multiply(x, y, shift=9) == product).all()


def test_a_fallback_on_no_gpu_says_so():
    with pytest.raises(
        vtaops.errors.DeviceError, match="fallback is 'gpu'; it must be 'cpu', 'cuda'"
    ):
        Session("fsim", fallback="gpu")
    if vtaops.cuda.device_present():
        return
    device = Fsim("tiny", capabilities="hls-2020")
    with (
        Session(device, fallback="cuda") as session,
        pytest.raises(vtaops.errors.DeviceError, match="no NVIDIA GPU"),
    ):
        session.multiply(int8(3), int8(3))


def test_functions_take_a_session(session):
    x = int8(3, 4)
    before = session.stats
    assert (session.relu(x) == vtaops.relu(x)).all()
    assert session.stats != before


def test_programs_with_constants_and_views_survive_a_file(tmp_path):
    for op in (
        Conv2d(
            in_channels=6,
            out_channels=6,
            height=5,
            width=5,
            kernel=3,
            padding=1,
            groups=6,
            bias=True,
            rounding="half_up",
            residual=True,
        ),
        Conv2d(
            in_channels=3, out_channels=4, height=9, width=9, kernel=5, padding=1, fold_columns=True
        ),
        Elementwise(function="sub", shape=(3, 5, 7)),
        Gemm(m=3, n=4, k=5, bias=True, rounding="half_up"),
    ):
        program = vtaops.compile(op, "tiny")
        program.save(tmp_path / "program.vta")
        loaded = vtaops.Program.load(tmp_path / "program.vta")
        assert loaded.buffers == program.buffers
        arrays = random_arguments(op, np.random.default_rng(2))
        np.testing.assert_array_equal(loaded.run(Fsim("tiny"), *arrays), evaluate(op, arrays))
