"""Trees of tiles: those built are TVM's, and each is emitted as often as one likes."""

import random
from dataclasses import replace

import pytest

from trials.random_cases import (
    CONFIGS,
    FAMILIES,
    random_conv2d,
    random_extensions,
    random_gemm,
    random_scaled,
    random_tiling,
)
from vtaops import Conv2d, Elementwise, HardwareConfig
from vtaops.base.errors import ScheduleError
from vtaops.lowering import LoweringOptions, build_tree, emit, link, whole
from vtaops.lowering.tree.tir import parse
from vtaops.machine.capabilities import of_target
from vtaops.schedule import default_tiling

PYNQ = HardwareConfig.load("pynq")


def words(tree, op, config, tiling):
    """Return all that a program consists of, or why there is none."""
    depth = of_target(config).micro_op_depth(config)
    options = LoweringOptions.of(tiling, alu_passes=bool(op.stages), micro_op_depth=depth)
    try:
        fragment = emit(tree, op.buffers(config), config, options)
    except ScheduleError as error:
        return str(error)
    program = link([whole(fragment)], fragment.buffers, {})
    parts = program.instructions, program.micro_ops, program.relocations
    return tuple(part.tobytes() for part in parts)


def drawn(rng):
    """Return a matrix product or a convolution that TVM schedules, a configuration and a tiling."""
    while True:
        name, extensions = rng.choice([*CONFIGS, "pynq_ext"]), random_extensions(rng, 0.3)
        config = replace(HardwareConfig.load(name), target="sim", extensions=extensions)
        op = rng.choice([random_gemm, random_conv2d])(rng)
        if isinstance(op, Conv2d):
            op = replace(op, residual=False)
            if op.gathers_rows:
                continue
        return op, config, random_tiling(rng, op, config)


@pytest.mark.parametrize("seed", range(20))
def test_programs_equal_those_that_tvm_lowers(seed):
    op, config, tiling = drawn(random.Random(f"trees {seed}"))
    built = words(build_tree(op, config, tiling), op, config, tiling)
    parsed = parse(op.lower(config, tiling)["main"], config)
    assert built == words(parsed, op, config, tiling)


def folded(rng):
    """Return an operator whose additions of products fall away."""
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
        tree = build_tree(op, config, tiling)
        first = words(tree, op, config, tiling)
        assert isinstance(first, tuple)
        assert words(tree, op, config, tiling) == first
