"""CUDA kernels run by the emulator, held against NumPy."""

import numpy as np
import pytest

from helpers.kernel_cases import inputs_of, matches, reference
from vtaops.kernels import ops
from vtaops.kernels.cuda import CudaKernel
from vtaops.kernels.cuda.emulate import IN_ORDER, REVERSED, Emulated, KernelFault, compiler

emulated = pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")
PADDED = ops.Window((3, 3), padding=(1, 1, 1, 1))
STRIDED = ops.Window((3, 2), (2, 3), (1, 0, 2, 1), (1, 2))


def run(emulator, op, order=IN_ORDER, without=-1):
    """Return the kernel's result for `inputs_of(op)`."""
    arrays = inputs_of(op)
    spec = op.output
    filler = np.nan if spec.dtype == "float32" else 77
    arrays[spec.name] = np.full(spec.shape, filler, spec.dtype)
    emulator(arrays, order, without, results=(spec.name,))
    return arrays[spec.name]


def check(op, schedule=None, orders=(IN_ORDER, REVERSED, 2), *, needed=True):
    """Compare a kernel with its reference under several orders.

    Each barrier must be `needed`; where a tile has one element, some are not.
    """
    kernel = CudaKernel(op, schedule=schedule)
    emulator = Emulated.of(kernel)
    expected = reference(op, inputs_of(op))
    for order in orders:
        assert matches(run(emulator, op, order), expected), order
    passed = [emulator.passed(barrier) for barrier in range(emulator.barriers)]
    assert all(passed)
    assert not (needed and needless(emulator, op))


def needless(emulator, op):
    """Return the numbers of the barriers that order nothing, each taken out alone.

    Without such a barrier no two threads of a block touch the same element in one interval, one of
    them writing. That is a property of the accesses, not of the order of the threads, so one run
    without the barrier decides.
    """
    found = set()
    for barrier in range(emulator.barriers):
        try:
            run(emulator, op, without=barrier)
        except KernelFault:
            continue
        found.add(barrier)
    return found
