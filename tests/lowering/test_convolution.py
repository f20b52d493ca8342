"""Trees of loops: those written down are TVM's, and each is emitted as often as one likes."""

import random
from dataclasses import replace

import pytest

from trials.random_cases import (
    CONFIGS,
    FAMILIES,
    random_batch_matmul,
    random_conv2d,
    random_extensions,
    random_scaled,
    random_tiling,
)
from vtaops import Conv2d, Elementwise, Gemm, HardwareConfig, Tiling
from vtaops.base.errors import ScheduleError, ShapeError
from vtaops.lowering import LoweringOptions, convolution_tree, emit, link, whole
from vtaops.lowering.tree.nodes import parse
from vtaops.machine.capabilities import of_target
from vtaops.schedule import default_tiling

PYNQ = HardwareConfig.load("pynq")


def words(function, op, config, tiling):
    """Return all that a program consists of, or why there is none."""
    depth = of_target(config).micro_op_depth(config)
    options = LoweringOptions.of(tiling, alu_passes=bool(op.stages), micro_op_depth=depth)
    try:
        fragment = emit(function, op.buffers(config), config, options)
    except ScheduleError as error:
        return str(error)
    program = link([whole(fragment)], fragment.buffers, {})
    parts = program.instructions, program.micro_ops, program.relocations
    return tuple(part.tobytes() for part in parts)


def drawn(rng):
    """Return a convolution, a configuration and a tiling that are written down."""
    while True:
        name, scaled = rng.choice([*CONFIGS, "pynq_ext"]), rng.random() < 0.4
        extensions = random_extensions(rng, 0.3, *["post"] * scaled)
        config = replace(HardwareConfig.load(name), target="sim", extensions=extensions)
        op = random_conv2d(rng)
        try:
            if rng.random() < 0.3:
                op = replace(op, in_channels=op.out_channels, groups=op.out_channels)
            op = replace(op, fold_columns=op.groups == 1 and rng.random() < 0.2)
            if scaled:
                clip, fine = op.clip or (-128, 127), rng.randint(1, 3) * ("exact" in extensions)
                zero_point = rng.randint(-128, 127)
                op = replace(op, scales=True, zero_point=zero_point, shift=0, clip=clip, fine=fine)
            else:
                op = replace(op, multiplier=rng.random() < 0.2)
        except ShapeError:
            continue
        tiling = replace(random_tiling(rng, op, config, "all"), oc_threads=1, h_threads=1)
        if convolution_tree(op, config, tiling) is not None:
            return op, config, tiling


@pytest.mark.parametrize("seed", range(30))
def test_programs_equal_those_that_tvm_lowers(seed):
    rng = random.Random(f"written {seed}")
    op, config, tiling = drawn(rng)
    written = words(convolution_tree(op, config, tiling), op, config, tiling)
    assert written == words(op.lower(config, tiling), op, config, tiling)


LAYER = Conv2d(in_channels=32, out_channels=48, height=9, width=9, kernel=3, padding=1)
SMALL = Tiling(oc=16, ic=16, h=3, w=9)


def test_layers_of_networks_are_written_down():
    depthwise = replace(LAYER, out_channels=32, groups=32)
    gathered = replace(LAYER, kernel=1, strides=2, padding=0)
    scaled = replace(LAYER, scales=True, shift=0, clip=(-128, 127))
    for op in (LAYER, depthwise, gathered, scaled, replace(LAYER, bias=True)):
        tiling = replace(SMALL, w=op.out_size[1])
        assert convolution_tree(op, PYNQ, tiling) is not None


@pytest.mark.parametrize(
    ("op", "tiling"),
    [
        (Gemm(m=16, n=16, k=16), Tiling(oc=16, ic=16)),
        (replace(LAYER, residual=True), SMALL),
        (replace(LAYER, in_channels=64, out_channels=64, groups=2), SMALL),
        (replace(LAYER, kernel=2, strides=3), SMALL),
        (LAYER, replace(SMALL, h_threads=2)),
        (LAYER, replace(SMALL, taps="row")),
        (LAYER, replace(SMALL, h=10)),
    ],
)
def test_others_are_left_to_tvm(op, tiling):
    assert convolution_tree(op, PYNQ, tiling) is None


def folded(rng):
    """Return an operator whose additions of products fall away: a pass changes its tree."""
    if rng.random() < 0.5:
        return replace(random_batch_matmul(rng), coarse=8)
    shape = rng.randint(1, 4), rng.randint(1, 40), 6, 7
    return Elementwise(function="add", shape=shape, shift=1)


REUSED = {**FAMILIES, "scaled": random_scaled, "folded": folded}


@pytest.mark.parametrize("kind", REUSED)
def test_a_tree_emitted_twice_gives_one_program(kind):
    rng = random.Random(f"twice {kind}")
    for _ in range(2):
        op = REUSED[kind](rng)
        extensions = ("post", "exact") if kind == "scaled" else ()
        config = replace(PYNQ, target="sim", extensions=extensions)
        tiling = default_tiling(op, config)
        tree = parse(op.lower(config, tiling)["main"], config)
        first = words(tree, op, config, tiling)
        assert isinstance(first, tuple)
        assert words(tree, op, config, tiling) == first
