"""What VTA does not run: the kernels of the host compute every operator as NumPy does."""

import random

import numpy as np
import pytest
from tvm import tirx

import vtaops
from trials.random_cases import (
    FAMILIES,
    random_arguments,
    random_conv2d,
    random_fine,
    random_gemm,
    random_scaled,
)
from vtaops import AvgPool2d, BatchMatmul, Conv2d, Conv2dTranspose, Gemm, cuda
from vtaops.kernels.cuda.emulate import Emulated, compiler
from vtaops.ops.reference import evaluate
from vtaops.session import fallback as host

ALL = {**FAMILIES, "conv2d": random_conv2d, "gemm": random_gemm, "scaled": random_scaled}
ALL["fine"] = random_fine


def check(op, seed=0):
    arrays = random_arguments(op, np.random.default_rng(seed))
    np.testing.assert_array_equal(host.run(op, arrays), evaluate(op, arrays), op.summary)


def overflowing(tensor):
    """Return the int32 additions and products in the value of a te stage, but for its indices."""
    found, waiting = [], [*tensor.op.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tirx.Add | tirx.Mul) and str(node.expr_ty()) == "int32":
            found.append(node)
        if not hasattr(node, "indices"):
            children = [getattr(node, name, None) for name in ("a", "b", "value")]
            waiting += [c for c in [*children, *getattr(node, "args", ())] if c is not None]
    return found


@pytest.mark.parametrize(
    "op",
    [
        Gemm(m=1, n=8, k=16, bias=True, shift=15, rounding="half_up"),
        Conv2d(
            in_channels=3,
            out_channels=5,
            height=6,
            width=6,
            kernel=3,
            bias=True,
            scales=True,
            shift=0,
        ),
        BatchMatmul(batch=1, m=2, n=8, k=16, shift=15, rounding="half_up"),
    ],
)
def test_no_pass_over_int32_is_undefined_where_it_wraps(op):
    """LLVM may assume that int32 does not overflow: what wraps is a cast of int64."""
    *_, result = host.host_op(op).declare()
    assert overflowing(result) == []


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("seed", range(3))
def test_random(family, seed):
    """A sample; `trials/random_operators.py` has more."""
    check(ALL[family](random.Random(f"{family} {seed}")), seed)


@pytest.mark.parametrize(
    "op",
    [
        Gemm(m=3, n=17, k=131072 + 64, shift=0, clip=None),  # accumulators wrap
        Gemm(m=40, n=17, k=131072 + 64, shift=4, clip=None),
        Conv2d(
            in_channels=3,
            out_channels=5,
            height=6,
            width=6,
            kernel=3,
            padding=1,
            bias=True,
            rounding="half_up",
            residual=True,
        ),
        Conv2d(
            in_channels=3,
            out_channels=8,
            height=9,
            width=9,
            kernel=5,
            strides=2,
            padding=2,
            fold_columns=True,
        ),
        Conv2dTranspose(
            in_channels=3, out_channels=5, height=4, width=3, kernel=2, strides=4, output_padding=3
        ),
        Conv2dTranspose(
            in_channels=3,
            out_channels=5,
            height=4,
            width=3,
            kernel=3,
            strides=2,
            padding=(4, 3, 1, 0),
            bias=True,
        ),
        AvgPool2d(channels=3, height=5, width=5, kernel=3, strides=1, padding=1),
        AvgPool2d(
            batch=2,
            channels=3,
            height=4,
            width=41,
            kernel=2,
            padding=(3, 0, 2, 1),
            rounding="truncate",
            clip=(-9, 9),
        ),
        AvgPool2d(channels=2, height=70, width=70, kernel=70, strides=1),
        Conv2dTranspose(
            in_channels=3,
            out_channels=5,
            height=4,
            width=3,
            kernel=2,
            strides=2,
            scales=True,
            fine=2,
            shift=0,
        ),
        Conv2d(
            in_channels=3, out_channels=5, height=6, width=6, kernel=3, padding=1, bias_tiles=True
        ),
    ],
    ids=lambda op: op.summary,
)
def test_corner_cases(op):
    check(op)


def test_extreme_values_wrap_as_on_vta():
    op = Conv2d(
        in_channels=4,
        out_channels=4,
        height=3,
        width=3,
        kernel=3,
        padding=1,
        bias=True,
        shift=1,
        clip=None,
    )
    data, kernel = np.full((1, 4, 3, 3), -128, np.int8), np.full((4, 4, 3, 3), -128, np.int8)
    arrays = [data, kernel, np.array([2**31 - 1, -(2**31), 2**31 - 1, -1], np.int32)]
    np.testing.assert_array_equal(host.run(op, arrays), evaluate(op, arrays))


def test_arguments_are_checked_as_on_vta():
    x = np.zeros((3, 4), np.int8)
    with pytest.raises(vtaops.errors.ShapeError, match="1 arrays given; the operator takes 2"):
        host.run(Gemm(m=3, n=5, k=4), [x])
    with pytest.raises(vtaops.errors.ShapeError, match=r"weight has shape \(3, 4\)"):
        host.run(Gemm(m=3, n=5, k=4), [x, x])
    with pytest.raises(vtaops.errors.ShapeError, match="dtype float64"):
        host.run(Gemm(m=3, n=5, k=4), [x, np.zeros((5, 4))])


class EmulatedKernel:
    """A CUDA kernel that runs on the CPU, thread by thread."""

    def __init__(self, op, schedule, sources):
        self.op = op
        found = cuda.CudaKernel(op, None, schedule, sources)
        self._emulated = Emulated.of(found)

    def __call__(self, *arrays):
        output = self.op.output
        named = {spec.name: a for spec, a in zip(self.op.inputs, arrays, strict=True)}
        named[output.name] = np.full(output.shape, 77, output.dtype)
        self._emulated(named, 1)
        return named[output.name]


@pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")
@pytest.mark.parametrize("family", ALL)
def test_cuda_kernels_of_the_session(family, monkeypatch):
    monkeypatch.setattr(cuda, "kernel", EmulatedKernel)
    monkeypatch.setattr(host, "kernel", host.kernel.__wrapped__)
    op = ALL[family](random.Random(f"cuda {family}"))
    arrays = random_arguments(op, np.random.default_rng(0))
    with vtaops.Session("fsim", "tiny", fallback="cuda") as session:
        monkeypatch.setattr(
            session, "_compiled", lambda *_: vtaops.errors.UnsupportedError("a test")
        )
        result = session.run(op, *arrays)
        assert [p.where for p in session.placements] == ["cuda"]
    np.testing.assert_array_equal(result, evaluate(op, arrays), op.summary)


@pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")
@pytest.mark.parametrize("family", ["conv2d", "gemm"])
def test_the_gpu_runs_tuned_kernels(family):
    op = ALL[family](random.Random(f"cuda {family}"))
    found = host.host_op(op)
    assert not isinstance(found, host.PlainOp)
    scheduled = cuda.CudaKernel(found).source()
    assert "__shared__" in scheduled
