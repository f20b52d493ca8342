"""Rounding at the limits of int32: one meaning on devices, on the host and in the reference."""

from __future__ import annotations

import numpy as np
import pytest

from vtaops import Conv2d, Conv2dTranspose, Gemm, Session
from vtaops.base.errors import ShapeError
from vtaops.errors import DeviceError
from vtaops.ops import Operator
from vtaops.ops.reference import evaluate
from vtaops.program import Role
from vtaops.session.fallback import run as run_on_host

MAX, MIN = (1 << 31) - 1, -(1 << 31)
SHIFTS = (0, 1, 8, 15, 16, 24, 30, 31)


def operators(shift: int, clip: tuple[int, int] | None) -> dict[str, Operator]:
    """One small operator of each family with a bias of 16 channels."""
    post = {"bias": True, "shift": shift, "clip": clip, "rounding": "half_up"}
    image = {"height": 1, "width": 2}
    channels = {"in_channels": 3, "out_channels": 16}
    return {
        "gemm": Gemm(m=1, n=16, k=3, **post),
        "packed_gemm": Gemm(m=33, n=16, k=3, **post),
        "conv2d": Conv2d(**channels, **image, kernel=1, **post),
        "residual": Conv2d(**channels, **image, kernel=1, **post, residual=True),
        "transpose": Conv2dTranspose(**channels, **image, kernel=2, strides=2, **post),
    }


def limits(half: int) -> np.ndarray:
    """Sixteen biases at the limits of int32 to which `half` can be added."""
    top = [MAX - half - i for i in (0, 1, 2, 1000, 48387, 48388)]
    bottom = [MIN, MIN + 1, MIN + half, MIN + 48387]
    return np.array([*top, *bottom, 0, -1, 1 << 30, -(1 << 30), (1 << 30) - 1, half], np.int32)


@pytest.mark.parametrize("family", operators(8, None))
def test_all_paths_agree_at_the_limits(family):
    """Each shift, every other one with a clip; families begin alternately with and without one."""
    rng = np.random.default_rng(18)
    first = [*operators(8, None)].index(family)
    with Session() as session:
        for number, shift in enumerate(SHIFTS, first):
            op = operators(shift, (-128, 127) if number % 2 else None)[family]
            half = 1 << (shift - 1) if 0 < shift <= 15 else 0
            arrays = [
                rng.choice(np.array([0, 127, -128], np.int8), buffer.shape)
                if buffer.dtype == "int8"
                else limits(half)
                for buffer in op.buffers(session.config)
                if buffer.role in (Role.INPUT, Role.PARAMETER)
            ]
            expected = evaluate(op, arrays)
            assert np.array_equal(session.run(op, *arrays), expected), shift
            assert np.array_equal(run_on_host(op, arrays), expected), shift


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_bias_is_rounded_exactly_or_refused(shift):
    """Zeros times zeros plus the largest int32: what is not refused is the true quotient."""
    op = Gemm(m=1, n=16, k=16, bias=True, shift=shift, clip=(-128, 127), rounding="half_up")
    arrays = [np.zeros((1, 16), np.int8), np.zeros((16, 16), np.int8), np.full(16, MAX, np.int32)]
    with Session() as session:
        if 0 < shift <= 15:
            for run in (session.run, lambda op, *arrays: run_on_host(op, arrays)):
                with pytest.raises(ShapeError, match=r"a bias of 2147483647 cannot be rounded"):
                    run(op, *arrays)
            return
        true = min(127, (MAX + ((1 << shift) >> 1)) >> shift)
        for found in (session.run(op, *arrays), run_on_host(op, arrays), evaluate(op, arrays)):
            assert (found == true).all()


@pytest.mark.parametrize("shift", [1, 8, 15])
def test_a_sum_that_wraps_by_its_rounding_is_an_overflow(shift):
    """The products reach the limit that the bias alone does not."""
    op = Gemm(m=1, n=16, k=16, bias=True, shift=shift, clip=(-128, 127), rounding="half_up")
    half = 1 << (shift - 1)
    data, weight = np.zeros((1, 16), np.int8), np.zeros((16, 16), np.int8)
    data[0, 0] = weight[:, 0] = 1
    bias = np.full(16, MAX - half, np.int32)
    with Session(check_overflow=True) as careful, Session() as session:
        assert (careful.run(op, data * 0, weight, bias) == min(127, MAX >> shift)).all()
        with pytest.raises(DeviceError, match="overflow"):
            careful.run(op, data, weight, bias)
        wrapped = evaluate(op, [data, weight, bias])
        assert (wrapped == -128).all()
        assert np.array_equal(session.run(op, data, weight, bias), wrapped)
