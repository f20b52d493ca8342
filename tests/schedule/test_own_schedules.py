"""Schedules that users write: random ones are exact; wrong ones are refused with what to write."""

import random
from itertools import permutations, product

import numpy as np
import pytest
import tvm
from helpers.tsim_support import needs_tools
from tvm import te, tirx

import vtaops
from trials.own_operators import RANDOM, random_schedule
from trials.own_schedules import Convolution, Plan, random_convolution, random_plan
from trials.random_cases import random_conv2d, random_gemm
from vtaops import HardwareConfig
from vtaops import schedule as vta
from vtaops.errors import ScheduleError, ShapeError, VerificationError
from vtaops.lowering import Capacity
from vtaops.machine.layout import data_layout, kernel_layout
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program import Buffer, Role
from vtaops.runtime import Fsim, Tsim

TINY = HardwareConfig.load("tiny")

# ---------------------------------------------------------------------------- right ones


def case(name, config):
    """Return a random operator whose schedule fits, its program and arrays."""
    rng = random.Random(f"own {name}")
    while True:
        op = random_convolution(rng, config)
        if min(op.out_size) < 1:
            continue
        plan, capacity = random_plan(rng, op), Capacity(*rng.choices([1, 2], k=3))
        try:
            how = {"capacity": capacity, "capabilities": "fsim"}
            program = vtaops.compile_schedule(plan.schedule(op), config, **how)
        except ScheduleError as error:
            if "too many" in str(error):
                continue
            raise
        return op, program, op.arrays(np.random.default_rng(rng.getrandbits(32)))


@pytest.mark.parametrize("config", ["tiny", "pynq"])
@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_equal_numpy(seed, config):
    op, program, arrays = case(seed, HardwareConfig.load(config))
    for order in (None, seed):
        with Fsim(config, seed=order) as device:
            np.testing.assert_array_equal(program.run(device, *arrays), op.expected(*arrays))
            assert device.stats() == program.stats()


def tutorial_product(tiles, order, attach, reset):
    """Schedule the product of the first tutorial: loops in an order, copies and reset at one."""
    rows, outputs, inputs = tiles
    a = te.placeholder((rows, inputs, 1, 16), "int8", name="a")
    b = te.placeholder((outputs, inputs, 16, 16), "int8", name="b")
    a_buf = te.compute(a.shape, lambda *i: a(*i), name="a_buf")
    b_buf = te.compute(b.shape, lambda *i: b(*i), name="b_buf")
    ko, ki = te.reduce_axis((0, inputs), name="ko"), te.reduce_axis((0, 16), name="ki")
    c_acc = te.compute(
        (rows, outputs, 1, 16),
        lambda m, n, mi, ni: te.sum(
            a_buf[m, ko, mi, ki].astype("int32") * b_buf[n, ko, ni, ki].astype("int32"), [ko, ki]
        ),
        name="c_acc",
    )
    c = te.compute(c_acc.shape, lambda *i: c_acc(*i).astype("int8"), name="c")
    s = vta.Schedule([a, b, c])
    for block, scope in (("a_buf", "inp_scope"), ("b_buf", "wgt_scope"), ("c_acc", "acc_scope")):
        s.set_scope(s.get_sblock(block), 0, getattr(vta, scope))
    m, n, mi, ni, step, ki = s.get_loops(s.get_sblock("c_acc"))
    loops = dict(zip("mnk", (m, n, step), strict=True))
    s.reorder(*(loops[name] for name in order), mi, ni, ki)
    for block in ("a_buf", "b_buf"):
        s.compute_at(s.get_sblock(block), loops[order[attach]], preserve_unit_loops=True)
    s.decompose_reduction(s.get_sblock("c_acc"), loops[order[reset]])
    config = HardwareConfig.load("pynq")
    s.tensorize(s.get_loops(s.get_sblock("c_acc_init"))[-1], vta.reset(config))
    s.tensorize(s.get_loops(s.get_sblock("c_acc_update"))[-2], vta.gemm(config))
    return s, config


@pytest.mark.parametrize("order", [*map("".join, permutations("mnk"))])
def test_the_tutorial_in_any_order_of_its_loops_is_right(order):
    """Once the accumulators of all n were the same, and only the last were stored."""
    rng = np.random.default_rng(0)
    for tiles in ((2, 2, 1), (3, 2, 2)):
        rows, outputs, inputs = tiles
        x = rng.integers(-128, 128, (rows, inputs, 1, 16)).astype(np.int8)
        w = rng.integers(-128, 128, (outputs, inputs, 16, 16)).astype(np.int8)
        sums = np.einsum("mkrc,nkoc->mnro", x.astype(np.int32), w.astype(np.int32))
        for attach, reset in product(range(3), range(order.index("k") + 1)):
            program = vtaops.compile_schedule(*tutorial_product(tiles, order, attach, reset))
            np.testing.assert_array_equal(program.run("fsim", x, w), sums.astype(np.int8))


@needs_tools
def test_random_schedules_equal_numpy_on_the_rtl():
    with Tsim("tiny") as device:
        for seed in range(16):
            op, program, arrays = case(f"tsim {seed}", TINY)
            np.testing.assert_array_equal(program.run(device, *arrays), op.expected(*arrays))


def own_case(kind, name, config):
    """Return a random operator of a kind, and the program of a random schedule that fits."""
    rng = random.Random(f"{kind} {name}")
    while True:
        own = RANDOM[kind](rng, config)
        try:
            s, capacity = random_schedule(rng, own), Capacity(*rng.choices([1, 2], k=3))
            return own, vtaops.compile_schedule(s, config, capacity=capacity, capabilities="fsim")
        except ScheduleError as error:
            if "too many" not in str(error):
                raise


@pytest.mark.parametrize("config", ["tiny", "pynq"])
@pytest.mark.parametrize("kind", RANDOM)
def test_random_operators_with_random_schedules_equal_numpy(kind, config):
    with Fsim(config, seed=1) as device:
        for seed in range(8):
            own, program = own_case(kind, seed, HardwareConfig.load(config))
            device.reset_stats()
            np.testing.assert_array_equal(program.run(device, *own.arrays), own.expected)
            assert device.stats() == program.stats()


@needs_tools
@pytest.mark.parametrize("kind", RANDOM)
def test_random_operators_with_random_schedules_equal_numpy_on_the_rtl(kind):
    with Tsim("tiny") as device:
        for seed in range(6):
            own, program = own_case(kind, f"tsim {seed}", TINY)
            np.testing.assert_array_equal(program.run(device, *own.arrays), own.expected)


def test_buffers_with_layouts_take_plain_arrays():
    op = Convolution(
        TINY,
        out_blocks=2,
        in_blocks=1,
        stages=(("shr", "shr", 4), ("low", "max", 0), ("high", "min", 127)),
    )
    block, size = TINY.block_out, op.out_size
    buffers = [
        Buffer("x", Role.INPUT, (1, block, 6, 5), "int8", data_layout(TINY)),
        Buffer("w", Role.PARAMETER, (2 * block, block, 3, 3), "int8", kernel_layout(TINY)),
        Buffer("y", Role.OUTPUT, (1, 2 * block, *size), "int8", data_layout(TINY)),
    ]
    program = vtaops.compile_schedule(Plan().schedule(op), TINY, buffers=buffers)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, b.shape).astype(np.int8) for b in buffers[:2])
    with Fsim("tiny") as device:
        own = program.run(device, x, w)
    with vtaops.Session("fsim", "tiny") as session:
        expected = session.conv2d(x, w, padding=1, shift=4, clip=(0, 127))
    np.testing.assert_array_equal(own, expected)


SCHEDULED = {
    "gemm": random_gemm,
    "conv2d": random_conv2d,
}


@pytest.mark.parametrize("config", ["tiny", "pynq_ext"])
@pytest.mark.parametrize("family", SCHEDULED)
def test_the_schedule_of_an_operator_takes_its_buffers(family, config):
    hardware = HardwareConfig.load(config)
    for seed in range(2):
        rng = random.Random(f"{family} {seed}")
        op = SCHEDULED[family](rng)
        try:
            schedule = op.schedule(hardware)
        except ScheduleError:  # nothing fits, or rows are skipped
            continue
        buffers = op.buffers(hardware)
        program = vtaops.compile_schedule(schedule, hardware, buffers=buffers, capabilities="fsim")
        arrays = random_arguments(op, np.random.default_rng(seed))
        with Fsim(hardware) as device:
            np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))


def test_a_mark_says_how_much_one_store_moves():
    """As in the tutorial, where the mark inside the tile makes a STORE for every tile."""
    op = Convolution(TINY, 1, 1, 4, 4)
    schedules = [Plan(y=4, x=4, marked=marked).schedule(op) for marked in (False, True)]
    texts = [vtaops.compile_schedule(s, TINY).disassemble() for s in schedules]
    assert [text.count("STORE OUT") for text in texts] == [1, 16]


# ---------------------------------------------------------------------------- wrong ones


def adder(value=lambda x: x + 1, dtype="int32", result="int8", pixel=None, rows=4):
    """Return ``res = int8(value(x))`` on packed rows, unscheduled: blocks x_buf, y, res."""
    shape = (rows, TINY.batch, TINY.block_out)
    x = te.placeholder(shape, dtype, name="x")
    pixel = pixel or (lambda x, *index: x(*index))
    x_buf = te.compute(shape, lambda i, b, v: pixel(x, i, b, v), name="x_buf")
    y = te.compute(shape, lambda *i: value(x_buf(*i)), name="y")
    res = te.compute(shape, lambda *i: y(*i).astype(result), name="res")
    return vta.Schedule([x, res])


def placed(*arguments, scopes=("x_buf", "y"), **options):
    s = adder(*arguments, **options)
    for block in scopes:
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    return s


def finished(*arguments, **options):
    s = placed(*arguments, **options)
    vta.tensorize(s, "y", vta.alu(TINY, "add", 1))
    return s


def loops(s, block):
    return s.get_loops(s.get_sblock(block))


def test_the_schedule_that_the_wrong_ones_vary_is_right():
    program = vtaops.compile_schedule(finished(), TINY)
    x = np.arange(4 * TINY.acc.lanes, dtype=np.int32).reshape(4, *TINY.acc.shape)
    with Fsim("tiny") as device:
        np.testing.assert_array_equal(program.run(device, x), x + 1)


def scope(name, block="x_buf", dtype="int32"):
    s = adder(dtype=dtype)
    s.set_scope(s.get_sblock(block), 0, name)
    return s


def bound(block, tags):
    s = finished()
    for loop, tag in zip(loops(s, block), tags, strict=False):
        s.bind(loop, tag)
    return s


def kind(block, primitive):
    s = finished()
    getattr(s, primitive)(loops(s, block)[0])
    return s


def mark(block, number):
    s = finished()
    s.annotate(loops(s, block)[number], vta.dma_copy, True)
    return s


def marked_lanes():
    s = finished()
    _, inner = s.split(loops(s, "res")[-1], [2, None])
    s.annotate(inner, vta.dma_copy, True)
    return s


def crossed():
    s = finished()
    row, _, lane = loops(s, "x_buf")
    outer, inner = s.split(lane, [2, None])
    s.reorder(outer, row, inner)
    return s


def copied(*scopes, dtype="int8", pads=None):
    """Return ``res = x`` by way of a block x_buf in some scope."""
    shape = (4, TINY.batch, TINY.block_out)
    x = te.placeholder(shape, dtype, name="x")
    last = te.compute(shape, lambda *i: x(*i), name="x_buf") if scopes else x
    res = te.compute(shape, lambda *i: last(*i).astype("int8"), name="res")
    s = vta.Schedule([x, res])
    for name in scopes:
        s.set_scope(s.get_sblock("x_buf"), 0, name)
    return s


def subtraction():
    shape = (4, TINY.batch, TINY.block_out)
    x, z = (te.placeholder(shape, "int32", name=name) for name in "xz")
    x_buf = te.compute(shape, lambda *i: x(*i), name="x_buf")
    z_buf = te.compute(shape, lambda *i: z(*i), name="z_buf")
    y = te.compute(shape, lambda *i: x_buf(*i) - z_buf(*i), name="y")
    res = te.compute(shape, lambda *i: y(*i).astype("int8"), name="res")
    s = vta.Schedule([x, z, res])
    for block in ("x_buf", "z_buf", "y"):
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    return s


def five_around(x, i, b, v):
    inside = tirx.all(i >= 1, i < 3)
    return tirx.if_then_else(inside, x(i, b, v), tirx.const(5, "int32"))


def decomposed():
    op = Convolution(TINY)
    s = Plan(until="reset").schedule(op)
    s.decompose_reduction(s.get_sblock("conv"), loops(s, "conv")[-10])
    return s


def reset_only():
    s = decomposed()
    vta.tensorize(s, "conv_init", vta.reset(TINY))
    return s


def shared_load():
    s = adder(rows=8)
    for block in ("x_buf", "y"):
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    outer, _ = s.split(loops(s, "res")[0], [2, None])
    s.compute_at(s.get_sblock("y"), outer, preserve_unit_loops=True)
    s.bind(outer, vta.vthread)
    vta.tensorize(s, "y", vta.alu(TINY, "add", 1))
    return s


def dynamic():
    n = tirx.Var("n", "int32")
    shape = (n, TINY.batch, TINY.block_out)
    x = te.placeholder(shape, "int32", name="x")
    res = te.compute(shape, lambda *i: x(*i).astype("int8"), name="res")
    return vta.Schedule([x, res])


def two_functions():
    function = adder().mod["main"]
    return tvm.IRModule({"main": function, "other": function})


def split_lanes():
    s = placed()
    s.split(loops(s, "y")[-1], [None, 2])
    vta.tensorize(s, "y", vta.alu(TINY, "add", 1))


WRONG = {
    "nothing scheduled": (adder, "block 'x_buf' writes x_buf in DRAM.* s.set_scope"),
    "result of a stage in DRAM": (
        lambda: placed(scopes=["x_buf"]),
        "block 'y' writes y in DRAM.*vta.acc_scope",
    ),
    "not tensorized": (
        placed,
        r"block 'y' is not tensorized: `y\[...\] = .*`; write vta.tensorize\(s, 'y', "
        r"vta.alu\(config, 'add', 1\)\)",
    ),
    "maximum not tensorized": (
        lambda: placed(lambda x: tirx.max(x, 3)),
        r"vta.alu\(config, 'max', 3\)",
    ),
    "left shift not tensorized": (lambda: placed(lambda x: x << 2), r"'shr', -2\)"),
    "difference with a number": (lambda: placed(lambda x: x - 3), r"declare x \+ \(-y\)"),
    "difference of tensors": (subtraction, "VTA cannot subtract tensors; .* -1"),
    "division": (
        lambda: placed(lambda x: tirx.floordiv(x, 3)),
        "the ALU adds, multiplies, shifts to the right",
    ),
    "int32 among the inputs": (
        lambda: scope(vta.inp_scope),
        "'x_buf' writes int32 to the inp scratchpad, which holds int8",
    ),
    "a scope of GPUs": (lambda: scope("shared"), "scope 'shared'; VTA has vta.inp_scope"),
    "threads of GPUs": (lambda: bound("res", ["threadIdx.x"]), "bound to 'threadIdx.x'.*vthread"),
    "virtual threads in virtual threads": (
        lambda: bound("res", [vta.vthread, vta.vthread]),
        "both bound to virtual threads; fuse them",
    ),
    "vectors": (lambda: kind("res", "vectorize"), "is vectorized; VTA runs loops in order"),
    "cores": (lambda: kind("res", "parallel"), "is parallel; VTA runs loops in order"),
    "a computation marked as a copy": (
        lambda: mark("y_o", 0),
        "'y_o', which is no copy; mark a loop",
    ),
    "a mark on lanes": (
        marked_lanes,
        "'res' is marked as a copy at loop .*, inside a tile of lanes",
    ),
    "a load in parts": (
        lambda: mark("x_buf", 1),
        "x_buf.* is loaded piece by piece.*; load it at once",
    ),
    "lanes apart": (crossed, "tiles of .* lanes|whole tiles|crosses lanes"),
    "lanes in another order": (
        lambda: finished(pixel=lambda x, i, b, v: x(i, b, TINY.block_out - 1 - v)),
        "crosses lanes",
    ),
    "result of 32 bits": (
        lambda: finished(result="int32"),
        "'res' writes int32 to DRAM, which holds int8",
    ),
    "float": (
        lambda: placed(dtype="float32"),
        "'x_buf' writes float32 to the acc scratchpad, which holds int32",
    ),
    "DRAM to DRAM": (copied, "'res' copies DRAM to DRAM; stage it on chip"),
    "a store of inputs": (
        lambda: copied(vta.inp_scope),
        "'res' stores from the inp scratchpad; STORE reads the accumulators alone",
    ),
    "a copy on chip": (
        lambda: placed(lambda x: x),
        r"'y' copies x_buf from the acc scratchpad to the acc scratchpad; .* 'add', 0\)",
    ),
    "padding with fives": (lambda: finished(pixel=five_around), "'x_buf' pads with 5; LOAD pads"),
    "a sum with its reset": (
        lambda: Plan(until="reset").schedule(Convolution(TINY)),
        r"'conv' still holds its reset: .*s.decompose_reduction\(s.get_sblock\('conv'\)",
    ),
    "a reset not tensorized": (
        decomposed,
        r"'conv_init' is not tensorized.*this is a reset: .*vta.reset\(config\)",
    ),
    "a product not tensorized": (
        reset_only,
        r"'conv_update' is not tensorized.*vta.tensorize\(s, 'conv_update', vta.gemm\(config\)\)",
    ),
    "ALU stages not tensorized": (
        lambda: Plan(until="alu").schedule(Convolution(TINY)),
        r"'shr' is not tensorized: .*vta.alu\(config, 'shr', 6\)",
    ),
    "tiles too large": (
        lambda: Plan(oc=9, y=30, x=30).schedule(Convolution(TINY, 9, 1, 30, 30)),
        r"needs \d+ elements of the inp scratchpad, which has \d+: \d+ too many \(data_buf \d+\)",
    ),
    "a load outside of the threads": (
        shared_load,
        "'x_buf' stands outside of the loop of virtual threads in which 'y_o' uses",
    ),
    "an unknown shape": (dynamic, "shapes must be known when a program is built"),
    "two functions": (two_functions, r"it must have one, main"),
    "no schedule": (lambda: "conv2d", "give a Schedule, such as"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_schedules_are_refused_with_what_to_write(name):
    make, message = WRONG[name]
    with pytest.raises(ScheduleError, match=message):
        vtaops.compile_schedule(make(), TINY)


def neighbours():
    x = te.placeholder((8, TINY.batch, TINY.block_out), "int32", name="x")
    x_buf = te.compute(x.shape, lambda *i: x(*i), name="x_buf")
    shape = (4, *TINY.acc.shape)
    y = te.compute(shape, lambda i, *v: tirx.max(x_buf(2 * i, *v), x_buf(2 * i + 1, *v)), name="y")
    res = te.compute(shape, lambda *i: y(*i).astype("int8"), name="res")
    s = vta.Schedule([x, res])
    for block in ("x_buf", "y"):
        s.set_scope(s.get_sblock(block), 0, vta.acc_scope)
    vta.tensorize(s, "y", vta.alu(TINY, "max"))


INTRINSICS = {
    "one buffer at two places": (
        neighbours,
        r"reads x_buf\S* at two places.* \+ 0\), or declare a reduction",
    ),
    "an operation that is not there": (
        lambda: vta.alu(TINY, "sub"),
        "the ALU has no 'sub'; it has min, max, add, shr, mul",
    ),
    "an immediate of 17 bits": (lambda: vta.alu(TINY, "add", 40000), "takes -32768..32767"),
    "a reset to 17 bits": (lambda: vta.reset(TINY, -40000), "the immediate is -40000"),
    "another operation": (
        lambda: vta.tensorize(placed(), "y", vta.alu(TINY, "max", 1)),
        r"block 'y' is not what vta.alu.max.1.\w+ does: `.* \+ 1`",
    ),
    "no scratchpad yet": (
        lambda: vta.tensorize(adder(), "y", vta.alu(TINY, "add", 1)),
        "x_buf and y lie in DRAM; give them a scratchpad first",
    ),
    "lanes cut in two": (split_lanes, r"extents \[.*2\]; vta.alu.add.1.\w+ replaces"),
}


@pytest.mark.parametrize("name", INTRINSICS)
def test_intrinsics_say_what_they_do_not_replace(name):
    make, message = INTRINSICS[name]
    with pytest.raises(ScheduleError, match=message):
        make()


def test_a_schedule_for_other_tiles_is_refused():
    with pytest.raises(
        ScheduleError, match=r"pynq moves whole tiles of 16.* for this configuration"
    ):
        vtaops.compile_schedule(finished(), "pynq")


def test_what_the_board_lacks_is_refused():
    config = HardwareConfig.load("pynq")
    op = Convolution(config, 1, 1, stages=(("scaled", "mul", 3), ("shr", "shr", 8)))
    with pytest.raises(VerificationError, match="mul"):
        vtaops.compile_schedule(Plan().schedule(op), config)
    vtaops.compile_schedule(Plan().schedule(op), config, capabilities="fsim")


def test_buffers_must_be_those_of_the_function():
    s, image = finished(), Buffer("x", Role.INPUT, (1, 16, 3, 3), "int8", data_layout(TINY))
    with pytest.raises(
        ShapeError,
        match=r"buffers are argument int8\[.*\] when packed; the function takes .*: x, res",
    ):
        vtaops.compile_schedule(s, TINY, buffers=[image])
    with pytest.raises(ShapeError, match=r"buffers are argument int8\[.*\], argument"):
        vtaops.compile_schedule(s, TINY, buffers=[image, image])
