"""Session and functions: what users call, and what they are told when they call it wrongly."""

import inspect
import threading
from dataclasses import fields

import numpy as np
import pytest

import vtaops
from vtaops import Conv2d, Gemm, Session, Tiling
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime import ResidentPrograms
from vtaops.schedule import default_tiling

RNG = np.random.default_rng(0)


def int8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


@pytest.fixture(scope="module")
def session():
    with Session("fsim", "tiny") as opened:
        yield opened


def test_conv2d_with_bias_and_every_parameter(session):
    x, w = int8(2, 5, 9, 8), int8(7, 5, 3, 2)
    bias = RNG.integers(-9999, 9999, 7).astype(np.int32)
    y = session.conv2d(
        x,
        w,
        strides=(2, 1),
        padding=(1, 0, 2, 1),
        dilation=(1, 2),
        bias=bias,
        shift=6,
        clip=(-50, 60),
    )
    op = Conv2d(
        batch=2,
        in_channels=5,
        out_channels=7,
        height=9,
        width=8,
        kernel=(3, 2),
        strides=(2, 1),
        padding=(1, 0, 2, 1),
        dilation=(1, 2),
        bias=True,
        shift=6,
        clip=(-50, 60),
    )
    assert y.dtype == np.int8
    np.testing.assert_array_equal(y, evaluate(op, [x, w, bias]))


def test_gemm_and_dense(session):
    x, w = int8(5, 40), int8(12, 40)
    expected = evaluate(Gemm(m=5, n=12, k=40, shift=7), [x, w])
    np.testing.assert_array_equal(session.gemm(x, w, shift=7), expected)
    np.testing.assert_array_equal(session.gemm(x, w, shift=7), expected)
    np.testing.assert_array_equal(vtaops.gemm(x, w, shift=7), expected)
    np.testing.assert_array_equal(vtaops.gemm(x, w, shift=7), expected)


def test_arrays_need_not_be_contiguous(session):
    x, w = int8(9, 8, 5, 2).transpose(3, 2, 0, 1), int8(4, 5, 6, 3)[:, :, ::2]
    assert not x.flags.c_contiguous
    assert not w.flags.c_contiguous
    expected = session.conv2d(np.ascontiguousarray(x), np.ascontiguousarray(w))
    np.testing.assert_array_equal(session.conv2d(x, w), expected)
    flipped = session.conv2d(x[:, :, ::-1, ::-1], w[::-1, :, ::-1, ::-1])
    np.testing.assert_array_equal(flipped, expected[:, ::-1, ::-1, ::-1])


def test_lists_are_arrays_too():
    assert vtaops.gemm(np.ones((1, 3), np.int8), np.ones((2, 3), np.int8), shift=0).tolist() == [
        [3, 3]
    ]


def test_explicit_tiling_is_used():
    x, w = int8(1, 32, 6, 6), int8(32, 32, 3, 3)
    op = Conv2d(in_channels=32, out_channels=32, height=6, width=6, kernel=3)
    with Session("fsim", "pynq") as session:
        one = session.run(op, x, w, tiling=Tiling(32, 32, 4, 4))
        small = session.stats
        session.reset_stats()
        two = session.run(op, x, w, tiling=Tiling(16, 16, 2, 4, oc_threads=2))
        np.testing.assert_array_equal(one, two)
        assert session.stats.inp_load_nbytes > small.inp_load_nbytes


def test_statistics_accumulate_and_reset():
    x, w = int8(3, 16), int8(16, 16)
    with Session() as session:
        session.gemm(x, w)
        once = session.stats
        session.gemm(x, w)
        assert session.stats == once + once
        session.reset_stats()
        assert session.stats.gemm_counter == 0
        assert session.program(Gemm(m=3, n=16, k=16)).stats() == once


def test_a_program_is_compiled_once(monkeypatch):
    import vtaops.session.session as module

    compiled = []
    original = module.compile

    def counting(*arguments, **options):
        compiled.append(arguments[0])
        return original(*arguments, **options)

    monkeypatch.setattr(module, "compile", counting)
    monkeypatch.setattr(module, "LOADED_PROGRAMS", 2)
    x = int8(1, 8)
    with Session("fsim", "tiny") as session:
        for n in (8, 9, 8, 9, 10, 9, 8):
            session.gemm(x, int8(n, 8))
    # 10 evicts 8, the least recently used; 9 stays.
    assert [op.n for op in compiled] == [8, 9, 10, 8]


def test_a_closed_session_says_so():
    session = Session("fsim", "tiny")
    session.close()
    session.close()
    with pytest.raises(vtaops.errors.DeviceError, match="closed"):
        session.gemm(int8(1, 8), int8(8, 8))


def test_threads_share_a_session_and_have_their_own():
    x, w = int8(1, 16, 7, 7), int8(16, 16, 3, 3)
    expected = evaluate(
        Conv2d(in_channels=16, out_channels=16, height=7, width=7, kernel=3), [x, w]
    )
    shared, wrong = Session("fsim", "tiny"), []

    def work(index):
        own = Session("fsim", "tiny") if index % 2 else shared
        for _ in range(5):
            if not np.array_equal(own.conv2d(x, w), expected):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert shared.stats == shared.program(
        Conv2d(in_channels=16, out_channels=16, height=7, width=7, kernel=3)
    ).stats() + sum(
        [
            shared.program(
                Conv2d(in_channels=16, out_channels=16, height=7, width=7, kernel=3)
            ).stats()
        ]
        * 14,
        vtaops.Statistics(),
    )
    shared.close()


def test_overflow_is_detected_on_request():
    # 2 x 131072 products of (-128) * (-128) wrap an int32.
    k = 131072 + 16
    x, w = np.full((1, k), -128, np.int8), np.full((1, k), -128, np.int8)
    with (
        Session(check_overflow=True) as careful,
        pytest.raises(vtaops.errors.DeviceError, match="overflow"),
    ):
        careful.gemm(x, w)
    with Session() as session:
        wrapped = session.gemm(x, w, shift=0, clip=None)
    assert wrapped[0, 0] == np.int8(np.int64(k * 128 * 128).astype(np.int32) & 0xFF)
    with Session(check_overflow=True) as careful:  # the largest k that cannot overflow
        assert careful.gemm(x[:, :131071], w[:, :131071], shift=24).item() == 127


# -------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("data", "kernel", "options", "message"),
    [
        (np.zeros((1, 4, 5, 5)), int8(4, 4, 3, 3), {}, "data has dtype float64"),
        (int8(1, 4, 5, 5), np.zeros((4, 4, 3, 3), np.uint8), {}, "kernel has dtype uint8"),
        (int8(4, 5, 5), int8(4, 4, 3, 3), {}, "rank 3 .* it must have rank 4: NCHW"),
        (int8(1, 4, 5, 5), int8(4, 4, 9), {}, "rank 3 .* it must have rank 4: OIHW"),
        (int8(1, 4, 5, 5), int8(4, 3, 3, 3), {}, "data has 4 channels .* kernel expects 3"),
        (int8(0, 4, 5, 5), int8(4, 4, 3, 3), {}, "data is empty"),
        (int8(1, 4, 5, 5), int8(0, 4, 3, 3), {}, "kernel is empty"),
        (int8(1, 4, 5, 5), int8(4, 4, 7, 3), {}, "spans 7 pixels in height, .* has 5"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"shift": 32}, "shift is 32; .* 0..31"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"shift": -1}, "shift is -1"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"clip": (0, 200)}, r"clip is \(0, 200\)"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"clip": (5, 4)}, r"clip is \(5, 4\)"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"strides": 0}, "stride_h is 0"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"strides": (1, 2, 3)}, "strides is"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"padding": -1}, "padding_top is -1"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"padding": (1, 2, 3)}, "padding is"),
        (int8(1, 4, 5, 5), int8(4, 4, 3, 3), {"dilation": 0}, "dilation_h is 0"),
        (
            int8(1, 4, 5, 5),
            int8(4, 4, 3, 3),
            {"bias": np.zeros(4)},
            r"bias has dtype float64 .* int32 of shape \(4,\)",
        ),
        (
            int8(1, 4, 5, 5),
            int8(4, 4, 3, 3),
            {"bias": np.zeros(5, np.int32)},
            r"shape \(5,\); it must be int32 of shape \(4,\)",
        ),
    ],
)
def test_conv2d_explains_bad_input(session, data, kernel, options, message):
    with pytest.raises(vtaops.errors.ShapeError, match=message):
        session.conv2d(data, kernel, **options)


def test_gemm_explains_bad_input(session):
    with pytest.raises(vtaops.errors.ShapeError, match="last extents must be equal"):
        session.gemm(int8(3, 4), int8(5, 6))
    with pytest.raises(vtaops.errors.ShapeError, match="rank 1"):
        session.gemm(int8(3), int8(5, 3))


def test_groups_must_divide_the_channels(session):
    with pytest.raises(vtaops.errors.ShapeError, match="groups is 2; it must divide out_channels"):
        session.conv2d(int8(1, 4, 5, 5), int8(5, 2, 3, 3), groups=2)


def test_an_impossible_tiling_names_scratchpad_excess_and_a_way_out():
    op = Conv2d(in_channels=256, out_channels=256, height=14, width=14, kernel=3, padding=1)
    with pytest.raises(vtaops.errors.ScheduleError) as caught:
        vtaops.compile(op, "pynq", Tiling(256, 256, 14, 14))
    assert "4096 elements of the inp scratchpad, which has 2048: 2048 too many" in str(caught.value)
    suggestion = str(caught.value).split("; ")[-1].removesuffix(" fits")
    vtaops.compile(op, "pynq", eval(suggestion, {"Tiling": Tiling}))


@pytest.mark.parametrize(
    ("tiling", "message"),
    [
        (Tiling(24, 16, 7, 14), "tiling oc is 24; .* a multiple of 16, at most 256"),
        (Tiling(512, 16, 7, 14), "tiling oc is 512; .* at most 256"),
        (Tiling(16, 10, 7, 14), "tiling ic is 10"),
        (Tiling(16, 16, 15, 14), "tiling h is 15; .* at most 14"),
        (Tiling(16, 16, 7, 99), "tiling w is 99; .* at most 14"),
        (Tiling(256, 16, 1, 1, oc_threads=2), "oc_threads is 2, but there are only 1 tiles"),
        (Tiling(16, 16, 14, 1, h_threads=2), "h_threads is 2, but there are only 1 tiles"),
    ],
)
def test_tilings_that_do_not_suit_the_operator(tiling, message):
    with pytest.raises(vtaops.errors.ScheduleError, match=message):
        vtaops.compile(
            Conv2d(in_channels=256, out_channels=256, height=14, width=14, kernel=3, padding=1),
            "pynq",
            tiling,
        )


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "16"])
def test_tilings_are_positive_integers(value):
    for wrong, message in (
        ({"ocs": 1}, r"Tiling has no keyword 'ocs' \(did you mean 'oc'\?\); it takes oc, ic"),
        ({"oc": 1}, "missing a required argument: 'ic'"),
        ({"oc": 1, "ic": 1, "ocs": 1}, "no keyword 'ocs'"),
    ):
        with pytest.raises(vtaops.errors.ShapeError, match=message):
            Tiling(**wrong)
    with pytest.raises(vtaops.errors.ScheduleError, match="must be a positive integer"):
        Tiling(oc=value, ic=16)
    with pytest.raises(vtaops.errors.ScheduleError, match="has 32 bits; 31 are the most"):
        Tiling(oc=16, ic=16, h=1 << 31)


def test_some_tile_of_a_wide_image_fits_a_small_scratchpad():
    small = vtaops.HardwareConfig.from_dict(
        {"LOG_BLOCK": 5, "LOG_INP_BUFF_SIZE": 13, "LOG_WGT_BUFF_SIZE": 16, "LOG_ACC_BUFF_SIZE": 15}
    )
    op = Conv2d(
        in_channels=3, out_channels=64, height=224, width=224, kernel=7, strides=2, padding=3
    )
    assert default_tiling(op, small).w < 28


def test_an_operator_that_fits_no_scratchpad_says_so():
    with pytest.raises(vtaops.errors.ScheduleError, match=r"no tile of MaxPool2d.* fits"):
        vtaops.compile(
            vtaops.MaxPool2d(channels=8, height=20, width=20, kernel=12, strides=2, padding=1),
            "tiny",
        )


def test_sizes_that_nothing_holds_are_refused_at_once():
    x = np.zeros((1, 16, 4, 4), np.int8)
    with Session() as session:
        for padding in (1 << 30, 1 << 21, (0, 1 << 20)):
            with pytest.raises(
                vtaops.errors.ShapeError, match=r"padded input has .* at most 1048576"
            ):
                session.max_pool2d(x, 3, padding=padding)
            with pytest.raises(
                vtaops.errors.ShapeError, match=r"padded input has .* at most 1048576"
            ):
                session.conv2d(x, np.zeros((16, 16, 1, 1), np.int8), padding=padding)
        for padding in (1 << 15, 1 << 18):
            with pytest.raises(vtaops.errors.ShapeError, match=r"has \d+ bytes; DRAM ends at"):
                session.max_pool2d(x, 3, padding=padding)
    with pytest.raises(vtaops.errors.ShapeError, match="DRAM ends at"):
        vtaops.compile(Gemm(m=1 << 20, n=1 << 20, k=1))


def test_programs_leave_a_full_device_by_need():
    """A device with room for two programs runs ten, and what does not fit at all is refused."""
    from vtaops.runtime.fsim import Fsim

    class Small(Fsim):
        left = 30_000

        def alloc(self, nbytes):
            if nbytes > self.left:
                raise vtaops.base.errors.NoRoom(f"no room for {nbytes} bytes")
            self.left -= nbytes
            return super().alloc(nbytes)

        def free(self, buffer):
            self.left += buffer.nbytes
            super().free(buffer)

    with Session(Small("pynq")) as session:
        for _ in range(2):
            for m in range(1, 11):
                x = np.ones((m, 64), np.int8)
                assert (session.gemm(x, np.ones((64, 64), np.int8), shift=0) == 64).all()
        with pytest.raises(vtaops.base.errors.NoRoom):
            session.gemm(np.ones((1, 640), np.int8), np.ones((64, 640), np.int8))
        assert (session.gemm(x, np.ones((64, 64), np.int8), shift=0) == 64).all()
    with Small("pynq") as device, ResidentPrograms(device) as residents:
        for m in range(1, 11):
            program = vtaops.compile(Gemm(m=m, n=64, k=64, shift=0), "pynq")
            (y,) = residents.run(program, [np.ones(s, np.int8) for s in ((m, 64), (64, 64))])
            assert (y == 64).all()
        assert 0 < len(residents) < 10


def test_an_interrupted_write_leaves_no_weights_that_count_as_written():
    """The caller also changes its own array between two runs."""
    from vtaops.runtime.fsim import Fsim

    class Interrupted(Fsim):
        now = False

        def write(self, buffer, data):
            super().write(buffer, data)
            if self.now and np.asarray(data).nbytes >= w.nbytes:
                raise KeyboardInterrupt

    x, w = np.ones((1, 64), np.int8), np.ones((64, 64), np.int8)
    with Session(Interrupted("pynq")) as session:
        device = session.device
        assert (session.gemm(x, w, shift=0) == 64).all()
        w[:] = 0
        assert (session.gemm(x, w, shift=0) == 0).all()
        device.now = True
        with pytest.raises(KeyboardInterrupt):
            session.gemm(x, w + 1, shift=0)
        device.now = False
        for value in (0, 1):
            assert (session.gemm(x, w + value, shift=0) == 64 * value).all()


def test_a_session_may_search_for_tilings():
    """It takes no more cycles; what the device can do holds for the search too."""
    x, op = int8(40), Gemm(m=4, n=24, k=6)
    with Session("fsim", "tiny", search="fast") as session, Session("fsim", "tiny") as plain:
        assert np.array_equal(session.multiply(x, x, shift=4), plain.multiply(x, x, shift=4))
        assert session.program(op).cycles() < plain.program(op).cycles()
    with pytest.raises(vtaops.errors.ScheduleError, match="search is 'slow'; it must be one of"):
        Session(search="slow")  # type: ignore[arg-type]


def test_threads_may_share_a_loaded_program():
    """The buffers of a program are there once: runs take turns."""
    from concurrent.futures import ThreadPoolExecutor

    from vtaops.runtime import LoadedProgram
    from vtaops.runtime.fsim import Fsim

    op = Gemm(m=4, n=64, k=64, shift=0, clip=None)
    weights = np.eye(64, dtype=np.int8)

    def run(number):
        data = np.full((4, 64), number, np.int8)
        return (loaded.run(data, weights) == number).all()

    with (
        Fsim("pynq") as device,
        LoadedProgram(vtaops.compile(op), device) as loaded,
        ThreadPoolExecutor(8) as pool,
    ):
        assert all(pool.map(run, range(-100, 100)))


def test_unknown_devices_and_configurations():
    with pytest.raises(vtaops.errors.DeviceError, match=r"no device 'gpu'; known devices: .*fsim"):
        Session("gpu")
    with pytest.raises(vtaops.errors.ConfigError, match="no hardware configuration 'pink'"):
        Session("fsim", "pink")


def test_a_program_for_another_configuration_is_refused():
    from vtaops.runtime.fsim import Fsim

    op = Gemm(m=1, n=8, k=8)
    program = vtaops.compile(op, "tiny")
    with pytest.raises(vtaops.errors.ConfigError, match="compiled for 1x8_i8w8a32_8_10_13_11"):
        program.run(Fsim("pynq"), *random_arguments(op, np.random.default_rng(0)))


def test_programs_check_their_arguments():
    from vtaops.runtime.fsim import Fsim

    program, device = vtaops.compile(Gemm(m=2, n=8, k=8), "tiny"), Fsim("tiny")
    with pytest.raises(
        vtaops.errors.ShapeError, match="1 arrays given; the program takes 2: data, weight"
    ):
        program.run(device, int8(2, 8))
    with pytest.raises(vtaops.errors.ShapeError, match=r"data has shape \(3, 8\)"):
        program.run(device, int8(3, 8), int8(8, 8))


# ---------------------------------------------------------------------- what users really pass

X, W = int8(1, 5, 6, 6), int8(7, 5, 3, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.conv2d(X, W, strides=np.int64(1), padding=np.int32(0), shift=np.int64(8)),
        lambda s: s.conv2d(X, W, strides=[1, 1], padding=[0, 0, 0, 0], clip=[-128, 127]),
        lambda s: s.conv2d(X, W, groups=np.int64(1), clip=np.array([-128, 127])),
        lambda s: s.run(
            Conv2d(
                batch=np.int64(1),
                in_channels=5,
                out_channels=7,
                height=6,
                width=6,
                kernel=3,
                padding=[0],
            ),
            X,
            W,
        ),
    ],
)
def test_numpy_numbers_and_lists_are_parameters(session, call):
    np.testing.assert_array_equal(call(session), session.conv2d(X, W))
    assert (
        session.program(Conv2d(in_channels=5, out_channels=7, height=6, width=6, kernel=3))
        .operators[0]
        .parameters["batch"]
        == 1
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.conv2d(X, W, strides=1.0), "strides is 1.0; it must consist of integers"),
        (lambda s: s.conv2d(X, W, strides=None), "strides is None"),
        (lambda s: s.conv2d(X, W, strides="1"), "strides is '1'"),
        (lambda s: s.conv2d(X, W, strides=2**70), "no parameter may exceed 2147483647"),
        (lambda s: s.conv2d(X, W, padding="SAME"), "padding is 'SAME'"),
        (lambda s: s.conv2d(X, W, padding=True), "padding is True"),
        (lambda s: s.conv2d(X, W, shift=8.0), "shift is 8.0"),
        (lambda s: s.conv2d(X, W, shift=True), "shift is True"),
        (lambda s: s.conv2d(X, W, clip=5), "clip is 5; it must be"),
        (lambda s: s.conv2d(X, W, clip=(0.5, 127)), "clip is 0.5"),
        (lambda s: s.conv2d(X, W, clip=(None, 3)), "clip is None"),
        (lambda s: s.conv2d(X, W, rounding=["half_up"]), "rounding is 'half_up'"),
        (lambda s: s.conv2d(X, W, groups="1"), "groups is '1'"),
        (lambda s: s.conv2d(X, W, bias=[[1], [2, 3]]), "bias is not an array"),
        (lambda s: s.conv2d([[1], [2, 3]], W), "data is not an array"),
        (lambda s: s.conv2d(None, W), "data has dtype object"),
        (lambda s: s.max_pool2d(X, 2.0), "kernel is 2.0"),
        (lambda s: s.run(None, X), "the operator is None"),
        (lambda s: s.run(Conv2d, X, W), "the operator is <class"),
        (lambda s: s.program("conv2d"), "the operator is 'conv2d'"),
        (lambda s: vtaops.compile(None), "the operator is None"),
        (lambda s: vtaops.Elementwise(function="add", shape=5), "shape is 5"),
    ],
)
def test_wrong_types_are_explained(session, call, message):
    with pytest.raises(vtaops.errors.ShapeError, match=message):
        call(session)


def test_wrong_objects_are_explained(session):
    with pytest.raises(vtaops.errors.ScheduleError, match=r"the tiling is \(8, 8\)"):
        session.run(vtaops.Gemm(m=1, n=8, k=8), X, W, tiling=(8, 8))
    with pytest.raises(vtaops.errors.ConfigError, match="a configuration is None"):
        Session("fsim", None)
    for device in (None, 5):
        with pytest.raises(vtaops.errors.DeviceError, match=f"the device is {device}"):
            Session(device)
    with pytest.raises(vtaops.errors.DeviceError, match="timeout is 'a'"):
        Session("fsim", timeout="a")


LAYER = {"batch", "height", "width", "in_channels", "out_channels", "channels", "m", "n", "k"}
LAYER |= {"kernel", "strides", "padding", "shape", "function", "fold_columns", "bias_tiles"}
LAYER |= {"wide", "weight_bits"}
"""Parameters that methods read from arrays, or whose defaults are those of a real layer."""

FIXED_POINT = {"multiplier", "zero_point", "constant", "nudge", "fine", "data_zero_point"}
FIXED_POINT |= {"other_zero_point", "data_offset", "other_offset", "by_channel", "offset"}
FIXED_POINT |= {"division", "shift"}
"""Parameters of fixed-point scaling, which only descriptions of operators without weights have."""


@pytest.mark.parametrize(
    ("method", "description"),
    [
        ("conv2d", vtaops.Conv2d),
        ("conv2d_transpose", vtaops.Conv2dTranspose),
        ("gemm", vtaops.Gemm),
        ("batch_matmul", vtaops.BatchMatmul),
        ("max_pool2d", vtaops.MaxPool2d),
        ("avg_pool2d", vtaops.AvgPool2d),
        ("add", vtaops.Elementwise),
        ("sub", vtaops.Elementwise),
    ],
)
def test_methods_and_descriptions_have_one_set_of_parameters(method, description):
    """The signatures are written out for people and their tools; here is what keeps them equal."""
    signature = inspect.signature(getattr(Session, method)).parameters
    stated = {f.name: f.default for f in fields(description) if f.name not in LAYER}
    for name, default in stated.items():
        if name not in signature and name in FIXED_POINT:
            continue
        own = signature[name].default
        assert own == default or (default is False and own is None), name  # an array, or none
    doc = inspect.getdoc(getattr(Session, method))
    if "Parameters" in doc:
        assert all(name in doc for name in signature if name != "self")
