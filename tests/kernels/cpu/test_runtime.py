"""The kernel runtime: the cache of compiled kernels, detection of the CPU, readable schedules."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from vtaops import cpu
from vtaops.base.errors import UnsupportedError
from vtaops.kernels import KernelCache, cache, cache_directory
from vtaops.kernels.build import compile_schedule
from vtaops.kernels.cpu.kernel import CpuKernel
from vtaops.kernels.cpu.schedule import schedule
from vtaops.kernels.cpu.target import CpuTarget
from vtaops.kernels.ops import Conv2dOp, MatmulOp, PackedConv2dOp, Window

OP = MatmulOp(3, 5, 7)


@pytest.fixture
def compiled():
    """Count the compilations of `OP`."""
    target = CpuTarget.detect()
    calls = []

    def compile():
        calls.append(1)
        return compile_schedule(schedule(OP, target), target.tvm)

    return calls, compile


def product(function):
    a, b = np.ones((3, 7), "float32"), np.full((7, 5), 2, "float32")
    out = np.zeros((3, 5), "float32")
    function(a, b, out)
    return out


def test_a_kernel_is_compiled_once_per_machine(tmp_path, compiled):
    calls, compile = compiled
    target = CpuTarget.detect()
    for _ in range(2):
        kernels = KernelCache(tmp_path)
        for _ in range(2):
            assert (product(kernels.get(OP, target, compile)) == 14).all()
    assert len(calls) == 1
    assert [path.name for path in tmp_path.iterdir()] == [kernels.path(OP, target).name]


def test_a_damaged_file_is_compiled_anew(tmp_path, compiled):
    calls, compile = compiled
    target = CpuTarget.detect()
    kernels = KernelCache(tmp_path)
    kernels.path(OP, target).write_bytes(b"no shared library")
    assert (product(kernels.get(OP, target, compile)) == 14).all()
    assert len(calls) == 1
    assert kernels.path(OP, target).stat().st_size > 1000


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_compiled_anew(tmp_path, compiled, part):
    """The system's loader would crash on it."""
    calls, compile = compiled
    target = CpuTarget.detect()
    KernelCache(tmp_path).get(OP, target, compile)
    path = KernelCache(tmp_path).path(OP, target)
    whole = path.read_bytes()
    path.unlink()  # the first kernel is mapped from it
    path.write_bytes(whole[: int(len(whole) * part)])
    assert (product(KernelCache(tmp_path).get(OP, target, compile)) == 14).all()
    assert len(calls) == 2
    assert len(path.read_bytes()) == len(whole)


def test_the_key_tells_operators_targets_and_versions_apart(monkeypatch):
    target = CpuTarget.detect()
    keys = {
        cache.kernel_key(OP, target),
        cache.kernel_key(replace(OP, m=4), target),
        cache.kernel_key(OP, replace(target, cores=target.cores + 1)),
        cache.kernel_key(OP, replace(target, mcpu="x86-64")),
    }
    monkeypatch.setattr(cache, "_toolchain", lambda _: "another version")
    keys.add(cache.kernel_key(OP, target))
    assert len(keys) == 5


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path, compiled):
    calls, compile = compiled
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    kernels = KernelCache(blocked)
    assert (product(kernels.get(OP, CpuTarget.detect(), compile)) == 14).all()
    assert len(calls) == 1


def test_threads_share_one_compilation(tmp_path, compiled):
    calls, compile = compiled
    kernels, target = KernelCache(tmp_path), CpuTarget.detect()
    with ThreadPoolExecutor(4) as pool:
        functions = list(pool.map(lambda _: kernels.get(OP, target, compile), range(8)))
    assert len(calls) == 1
    assert all((product(function) == 14).all() for function in functions)


def test_processes_share_the_folder(tmp_path):
    program = textwrap.dedent(
        """
        import numpy as np
        from vtaops import cpu
        a = np.ones((3, 7), "float32")
        assert (cpu.matmul(a, a.T) == 7).all()
        """
    )
    environment = {
        **os.environ,
        "VTAOPS_KERNEL_CACHE": str(tmp_path),
        "PYTHONPATH": ":".join(sys.path),
    }
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 1


def test_clear_forgets_everything(tmp_path, compiled):
    calls, compile = compiled
    kernels, target = KernelCache(tmp_path), CpuTarget.detect()
    kernels.get(OP, target, compile)
    kernels.clear()
    assert not list(tmp_path.iterdir())
    kernels.get(OP, target, compile)
    assert len(calls) == 2


def test_the_folder_follows_the_xdg_standard(monkeypatch, tmp_path):
    monkeypatch.delenv("VTAOPS_KERNEL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "vtaops" / "kernels"


def test_threads_follow_the_environment(monkeypatch):
    from vtaops.kernels.cpu.target import thread_count

    monkeypatch.setenv("TVM_NUM_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.setenv("TVM_NUM_THREADS", "many")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert thread_count() == 2


@pytest.mark.parametrize(
    "target",
    [
        CpuTarget("x86-64", (), (), 1),
        CpuTarget("x86-64-v3", ("avx2", "fma"), (), 2),
        CpuTarget("cortex-a72", ("neon",), (), 4),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_schedules_suit_smaller_processors(target, dtype):
    """A kernel for a poorer x86-64 runs here as well; one for aarch64 must at least schedule."""
    op = Conv2dOp(1, 5, 9, 11, 18, Window((3, 3), padding=(1, 1, 1, 1)), dtype=dtype)
    scheduled = schedule(op, target)
    if target.mcpu == "cortex-a72" or not x86():
        assert "sblock" in scheduled.mod.script()
        return
    function = compile_schedule(scheduled, target.tvm)["main"]
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (1, 5, 9, 11)).astype(dtype)
    w = rng.integers(-9, 9, (18, 5, 3, 3)).astype(dtype)
    out = np.zeros(op.output.shape, op.output.dtype)
    function(x, w, out)
    assert np.array_equal(out, cpu.conv2d(x, w, padding=1))


BYTES = {
    "matmul": MatmulOp(13, 37, 70, "int8", "int8"),
    "unsigned": MatmulOp(5, 64, 9, "uint8", "int8", transposed_b=True),
    "conv2d": Conv2dOp(1, 21, 9, 11, 18, Window((3, 3), padding=(1, 1, 1, 1)), dtype="int8"),
    "packed": PackedConv2dOp(1, 2, 7, 9, 2, Window((3, 3)), dtype="uint8"),
}


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("op", BYTES.values(), ids=BYTES)
def test_bytes_widened_for_pmaddwd_are_exact(op, lanes):
    """Bytes at the ends of their ranges, of which two products exceed 16 bits."""
    wide = ("avx512f", "avx512vl", "avx512bw", "avx512dq") * (lanes == 16)
    target = CpuTarget("skylake-avx512" if wide else "x86-64-v3", (*wide, "avx2", "fma"), (), 1)
    if not set(target.features) <= set(CpuTarget.detect().features):
        pytest.skip(f"this processor lacks some of {', '.join(target.features)}")
    assert (target.dot_instruction, target.dot_lanes) == ("pmaddwd", lanes)
    rng = np.random.default_rng(0)
    arrays = []
    for spec in op.inputs:
        ends = np.iinfo(spec.dtype)
        values = [ends.min, ends.min + 1, ends.max - 1, ends.max]
        arrays.append(rng.choice(values, spec.shape).astype(spec.dtype))
    results = []
    for machine in (target, CpuTarget("x86-64", (), (), 1)):  # plain loops
        results.append(np.zeros(op.output.shape, op.output.dtype))
        compile_schedule(schedule(op, machine), machine.tvm)["main"](*arrays, results[-1])
    assert np.array_equal(*results)


def test_products_of_16_bit_matrices_are_refused():
    with pytest.raises(UnsupportedError, match="unsupported product of float16; give float32"):
        schedule(MatmulOp(4, 4, 4, "float16", "float16"), CpuTarget.detect())


def x86():
    import platform

    return platform.machine() == "x86_64"


def test_a_kernel_shows_its_schedule():
    kernel = CpuKernel(OP, CpuTarget.detect())
    assert "T.vectorized" in kernel.script()
    assert "def main" in kernel.script()
