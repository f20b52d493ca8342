"""The extension ``pairs``: what a step is, what the compiler makes of it, and what it saves."""

from dataclasses import replace

import numpy as np
import pytest

import vtaops
from vtaops import Conv2d, HardwareConfig, Tiling
from vtaops.graph import Add, Requantization
from vtaops.lowering.emission.microcode import AffineLoop, kernels
from vtaops.machine.accesses import paired
from vtaops.machine.config import Extension
from vtaops.machine.isa import Depthwise, Gemm
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.program.interpreter import Interpreter, interpret
from vtaops.program.timing.work import GEMM, work_of
from vtaops.runtime import Fsim

TINY = HardwareConfig.load("tiny")
PAIRS = replace(TINY, extensions=tuple(Extension))
PLAIN = replace(TINY, extensions=tuple(set(Extension) - {"pairs"}))


@pytest.mark.parametrize(
    ("accumulators", "shared"),
    [
        ([5], [0]),
        ([5, 5], [0, 1]),
        ([5, 6], [0, 0]),
        ([5, 6, 6, 5], [0, 0, 1, 0]),
        ([5, 6, 6, 6], [0, 0, 1, 1]),
        ([5, 6, 7, 7], [0, 0, 0, 1]),
        ([5, 5, 5, 6, 6, 6], [0, 1, 0, 0, 1, 1]),
        ([5, 6, 6, 7, 7], [0, 0, 1, 0, 1]),
        ([5, 5, 5], [0, 1, 0]),
        ([5, 5, 5, 5, 6, 6], [0, 1, 0, 1, 0, 1]),
    ],
)
def test_micro_ops_are_taken_by_two(accumulators, shared):
    micro_ops = np.array([(dst, 0, 0) for dst in accumulators])
    assert paired(PAIRS, Gemm(), micro_ops).tolist() == [bool(s) for s in shared]
    assert not paired(PLAIN, Gemm(), micro_ops).any()


@pytest.mark.parametrize("overwrite", [0, 1])
@pytest.mark.parametrize("kind", [Gemm, Depthwise])
def test_a_step_adds_or_writes_the_sum_of_its_products(kind, overwrite):
    """Neighbours are one sum: 0 to 2, then 3, carried to 4, and then 5; 6 replaces the first."""
    found = {}
    for config in (PLAIN, PAIRS):
        machine = Interpreter(config, 0)
        for memory in (machine.inp, machine.wgt, machine.acc):
            memory[:] = np.random.default_rng(3).integers(-128, 128, memory.shape)
        machine.uop[:7] = [(dst, u, u) for u, dst in enumerate([1, 1, 1, 2, 2, 3, 1])]
        before = machine.acc.copy()
        single = {}
        for u, (dst, src, wgt) in enumerate(machine.uop[:7].tolist()):
            product = machine.inp[src] @ machine.wgt[wgt].T
            single[u] = machine._window(src, wgt) if kind is Depthwise else product
            before[dst] = (0 if overwrite else before[dst]) + single[u]
        machine.execute(kind(uop_end=7, iter_out=1, iter_in=1, overwrite=overwrite))
        if overwrite and config is PAIRS:
            before[2] = single[3] + single[4]
        np.testing.assert_array_equal(machine.acc, before)
        found[config] = machine.counters["gemm_counter"]
    assert set(found.values()) == {7}


SUMS = [
    ([AffineLoop(4, (0, 9, 1)), AffineLoop(3, (1, 1, 0))], 6),
    ([AffineLoop(3, (0, 9, 1)), AffineLoop(3, (0, 1, 5)), AffineLoop(7, (1, 1, 0))], 35),
    ([AffineLoop(3, (0, 9, 1)), AffineLoop(5, (1, 1, 0)), AffineLoop(2, (5, 0, 30))], 16),
    ([AffineLoop(6, (1, 1, 0)), AffineLoop(2, (6, 0, 9))], 12),
    ([AffineLoop(2, (0, 30, 9)), AffineLoop(3, (0, 1, 1)), AffineLoop(4, (7, 0, 18))], 12),
    ([AffineLoop(4, (20, 50, 0)), AffineLoop(3, (0, 9, 1)), AffineLoop(12, (1, 1, 0))], 72),
]


def executed(kernel):
    """Return the (dst, src, wgt) of a kernel, in order, shape (iterations, micro-ops, 3)."""
    steps = [
        np.arange(loop.extent)[:, None] * np.array(loop.strides)
        for loop in (kernel.outer, kernel.inner)
    ]
    loops = (steps[0][:, None] + steps[1]).reshape(-1, 3)
    return loops[:, None] + kernel.micro_ops


@pytest.mark.parametrize(("loops", "fewest"), SUMS)
@pytest.mark.parametrize("most", [2, 64])
def test_the_same_products_in_as_few_steps_as_there_are(loops, fewest, most):
    products, steps = [], 0
    for kernel in kernels((2, 3, 4), loops, most, pairs=True):
        found = executed(kernel)
        shared = paired(PAIRS, Gemm(), kernel.micro_ops)
        products += map(tuple, found.reshape(-1, 3).tolist())
        steps += len(found) * int((~shared).sum())
    plain = [row for k in kernels((2, 3, 4), loops, 64) for row in executed(k).reshape(-1, 3)]
    assert sorted(products) == sorted(map(tuple, np.array(plain).tolist()))
    if most == 64:
        assert steps == fewest


@pytest.mark.parametrize("ic", [8, 16])
def test_a_convolution_takes_half_the_steps(ic):
    op = Conv2d(in_channels=32, out_channels=16, height=9, width=8, kernel=3, padding=1, bias=True)
    tiling = Tiling(oc=16, ic=ic, h=3, w=8)
    program = vtaops.compile(op, PAIRS, tiling)
    work = work_of(program, 8)
    products, steps = program.stats().gemm_counter, work.steps[work.kind == GEMM].sum()
    assert program.stats().gemm_counter == vtaops.compile(op, PLAIN, tiling).stats().gemm_counter
    assert steps == products / 2
    arrays = random_arguments(op, np.random.default_rng(0))
    expected = evaluate(op, arrays)
    np.testing.assert_array_equal(interpret(program, *arrays), expected)
    with Fsim(PAIRS) as device:
        np.testing.assert_array_equal(program.run(device, *arrays), expected)
    assert program.prove().unproven == ()


@pytest.mark.parametrize(("factors", "products", "steps"), [((3, -5), 2, 1), ((300, 517), 4, 2)])
def test_the_terms_of_a_sum_share_a_step(factors, products, steps):
    """Both tensors, and both digits of each factor, are products of the same accumulators."""
    graph = vtaops.Graph("sum")
    a, b = (graph.input(name, (1, 16, 6, 5)) for name in "ab")
    graph.output(graph.add(Add(factors, Requantization(77, 20)), a, b))
    model = vtaops.compile_model(graph, PAIRS)
    (program,) = model.programs
    work = work_of(program, 8)
    tiles = 2 * 6 * 5
    assert program.stats().gemm_counter == products * tiles
    assert work.steps[work.kind == GEMM].sum() == steps * tiles
    assert model.prove().unproven == ()
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-128, 128, (1, 16, 6, 5)).astype(np.int8) for _ in "ab"]
    np.testing.assert_array_equal(model.run(*arrays), model.reference(*arrays))
