"""The operators of TVM's VTA tutorials: the published counters, and results equal to NumPy."""

import numpy as np
import pytest

import vtaops
from vtaops.ops.reference import evaluate, random_arguments
from vtaops.runtime.fsim import Fsim
from vtaops.schedule.workloads import WORKLOADS

# inp, wgt, acc, out bytes, GEMM and ALU counts as published; micro-op bytes must not exceed theirs.
PUBLISHED = {
    "tutorial.convolution_opt": (114688, 1179648, 0, 50176, 451584, 9408, 1144),
    "tutorial.matrix_multiply": (256, 65536, 0, 256, 256, 0, 8),
    "tutorial.matrix_multiply_opt": (4096, 1048576, 0, 1024, 4096, 192, 20),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counters_are_the_published_ones(name):
    workload = WORKLOADS[name]
    program = vtaops.compile(workload.op, "pynq", workload.tiling)
    arrays = random_arguments(workload.op, np.random.default_rng(1))
    with_device = Fsim("pynq")
    result = program.run(with_device, *arrays)
    stats = with_device.stats()
    *exact, uop_limit = PUBLISHED[name]
    assert exact == [
        stats.inp_load_nbytes,
        stats.wgt_load_nbytes,
        stats.acc_load_nbytes,
        stats.out_store_nbytes,
        stats.gemm_counter,
        stats.alu_counter,
    ]
    assert 0 < stats.uop_load_nbytes <= uop_limit
    assert program.stats() == stats
    np.testing.assert_array_equal(result, evaluate(workload.op, arrays))


def test_the_call_of_the_readme():
    rng = np.random.default_rng(2)
    x = rng.integers(-128, 128, (1, 256, 14, 14)).astype(np.int8)
    w = rng.integers(-128, 128, (256, 256, 3, 3)).astype(np.int8)
    y = vtaops.conv2d(x, w, padding=1, shift=8, clip=(0, 127))
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    acc = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64), optimize=True)
    np.testing.assert_array_equal(y, np.clip(acc >> 8, 0, 127).astype(np.int8))


@pytest.mark.parametrize("layer", [name for name in WORKLOADS if name.startswith("resnet18.")])
def test_resnet18_layers(layer):
    op = WORKLOADS[layer].op
    program = vtaops.compile(op, "pynq")
    arrays = random_arguments(op, np.random.default_rng(3))
    device = Fsim("pynq", seed=3)
    np.testing.assert_array_equal(program.run(device, *arrays), evaluate(op, arrays))
    assert device.stats() == program.stats()
