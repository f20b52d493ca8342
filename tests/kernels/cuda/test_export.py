"""Exported CUDA kernels: what kernels.json says of them, run by the emulator in place of a GPU."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.kernel_cases import inputs_of, matches, reference

from examples.kernels import cuda_run
from examples.kernels.export import Candidate, Case, export
from vtaops.base.errors import UnsupportedError
from vtaops.kernels import ops
from vtaops.kernels.cuda.emulate import Emulated, compiler
from vtaops.kernels.cuda.kernel import CudaKernel
from vtaops.kernels.cuda.resources import find_nvcc
from vtaops.kernels.cuda.schedule.matmul import MatmulTile, schedule_matmul
from vtaops.kernels.cuda.schedule.window import WindowTile, schedule_window
from vtaops.kernels.cuda.target import Launch, entry_points

SAME = ops.Window((3, 3), padding=(1, 1, 1, 1))
RELU = ops.Epilogue(activation="relu")
OPERATORS = {
    "matmul": ops.MatmulOp(20, 33, 17, epilogue=ops.Epilogue(bias=True, activation="relu")),
    "matmul_fp16": ops.MatmulOp(32, 32, 64, "float16", "float16"),
    "matmul_parts": ops.MatmulOp(8, 16, 2048),
    "dense_int8": ops.MatmulOp(17, 20, 32, "int8", "int8", True),
    "conv2d": ops.Conv2dOp(1, 4, 8, 9, 8, SAME, epilogue=ops.Epilogue(batch_norm=1e-5)),
    "depthwise": ops.DepthwiseOp(1, 2, 9, 10, SAME, 2),
    "max_pool": ops.PoolOp("max", 1, 2, 9, 10, SAME),
    "softmax": ops.SoftmaxOp(3, 40),
    "add": ops.BroadcastOp("add", (4, 1), (4, 8)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Kernels as source; one of the candidates is one that no block can hold."""
    path = tmp_path_factory.mktemp("kernels")
    huge = partial(schedule_matmul, tile=MatmulTile((128, 128), (8, 8), step=64))
    cases = []
    for name, op in OPERATORS.items():
        candidates = [Candidate("chosen", CudaKernel(op))]
        if name == "matmul":
            candidates.append(Candidate("huge", CudaKernel(op, schedule=huge)))
        cases.append(Case(name, "small", op, tuple(candidates)))
    export(cases, path, machine_code=False)
    return path


class EmulatedGpu:
    """What `cuda_run` needs of a GPU, on the CPU."""

    device = "cpu"

    def load(self, path, function):
        source = path.read_text()
        entries = entry_points(source)
        return source, entries, [entry.name for entry in entries].index(function)

    empty = staticmethod(np.empty)

    def launch(self, handle, grid, block, tensors):
        source, entries, number = handle
        launches = [Launch(tuple(grid), tuple(block))] * len(entries)
        arrays = {name: np.zeros(1, "int8") for entry in entries for name in entry.parameters}
        given = map(np.asarray, tensors)
        arrays.update(zip(entries[number].parameters, given, strict=True))
        Emulated(source, *launches)(arrays, only=number)

    def synchronize(self):
        pass

    def warm(self, call, budget=0.05):
        return 1e-3

    def cold(self, call):
        return 2e-3


def cases_of(folder):
    return json.loads((folder / "kernels.json").read_text())["cases"]


@pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")
@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=OPERATORS)
def test_an_exported_kernel_runs_by_its_description(folder, number):
    case, op = cases_of(folder)[number], list(OPERATORS.values())[number]
    tensors = inputs_of(op)
    shapes = [tuple(spec["shape"]) for spec in case["arguments"]]
    assert shapes == [array.shape for array in tensors.values()] + [op.output.shape]
    result = np.zeros(op.output.shape, op.output.dtype)
    named = {**tensors, case["arguments"][-1]["name"]: result}
    cuda_run.bind(EmulatedGpu(), case["candidates"][0], folder, named)()
    assert matches(result, reference(op, tensors))


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_kernels_that_spill_are_not_exported(tmp_path):
    op = ops.DepthwiseOp(1, 1, 32, 32, ops.Window((5, 5), padding=(2, 2, 2, 2)))
    crowded = partial(schedule_window, tile=WindowTile((32, 32), (1, 32)))
    case = Case("depthwise", "small", op, (Candidate("crowded", CudaKernel(op, schedule=crowded)),))
    export([case], tmp_path, ("sm_90",))
    (case,) = cases_of(tmp_path)
    assert case["candidates"] == []
    assert "sm_90" in case["refused"][0]["why"]


def test_what_cannot_be_built_is_listed(folder):
    (case,) = (case for case in cases_of(folder) if case["refused"])
    assert case["refused"][0]["tile"] == "huge"
    assert "shared memory" in case["refused"][0]["why"]
    assert len(case["candidates"]) == 1


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
def test_machine_code_comes_with_its_resources(tmp_path):
    op = OPERATORS["add"]
    export([Case("add", "small", op, (Candidate("chosen", CudaKernel(op)),))], tmp_path)
    (case,) = cases_of(tmp_path)
    (candidate,) = case["candidates"]
    assert (tmp_path / candidate["file"]).read_bytes()[:4] == b"\x50\xed\x55\xba"  # a fatbin
    assert set(candidate["resources"]) == {"sm_80", "sm_90"}
    assert all(used["registers"] > 0 for used in candidate["resources"].values())


def test_source_without_a_kernel_is_refused():
    with pytest.raises(UnsupportedError, match="no kernels"):
        entry_points("int x;")


@pytest.mark.skipif(compiler() is None, reason="the emulator needs a C++ compiler")
@pytest.mark.parametrize("number", range(len(OPERATORS)), ids=OPERATORS)
def test_cases_are_checked_against_pytorch(folder, number):
    pytest.importorskip("torch")
    gpu, case, told = EmulatedGpu(), cases_of(folder)[number], []
    row = cuda_run.run_case(gpu, case, folder, 1, set(), told.append)
    assert (row["warm"], row["cold"], row["failed"], told) == (1e-3, 2e-3, [], [0, 0, -1])
    gpu.launch = lambda *_: None
    row = cuda_run.run_case(gpu, case, folder, 1, set(), told.append)
    assert "warm" not in row
    assert len(row["failed"]) == 1


WORKER = """
import json, sys, threading
arguments = dict(a.lstrip("-").split("=") for a in sys.argv[1:])
first, skip = int(arguments["first"]), arguments["skip"].split(",")
say = lambda **m: print(json.dumps(m), flush=True)
say(card={"copy_gigabytes_per_second": 1000})
print("a library's chatter")
for case in range(first, 3):
    say(case=case)
    for candidate in range(2):
        if case == 1 and str(candidate) not in skip:
            say(candidate=candidate)
            if candidate == 0:
                sys.exit("illegal address")
            threading.Event().wait()  # a kernel that hangs
        say(candidate=candidate)
    if case == 2:
        sys.exit("PyTorch failed") if first == 2 else say(candidate=None)
        sys.exit("PyTorch failed")
    times = dict.fromkeys(("warm", "cold", "torch_warm"), 1e-3)
    say(row=dict(operator="x", size=str(case), flops=1, bytes=1, tried=1, of=2, failed=[], **times))
"""


def test_kernels_that_end_the_worker_or_hang_are_left_out_and_the_rest_goes_on(tmp_path, capsys):
    cases = [{"operator": "x", "size": str(number)} for number in range(3)]
    (tmp_path / "kernels.json").write_text(json.dumps({"cases": cases}))
    results = cuda_run.run(tmp_path, 60, None, [sys.executable, "-c", WORKER], silence=5)
    assert [row["size"] for row in results["rows"]] == ["0", "1", "2"]
    assert "warm" in results["rows"][1]
    assert "PyTorch failed" in results["rows"][2]["failed"][0]["why"]
    assert any("illegal address" in note for note in results["notes"])
    assert any("exit code -9" in note for note in results["notes"])
    assert "1.00 of PyTorch" in capsys.readouterr().out


DRIVER = """
extern "C" {
static long seen[12];
int cuModuleLoadData(void** m, const void* image) { *m = (void*)image; return 0; }
int cuModuleGetFunction(void** f, void*, const char* name) {
  *f = (void*)0x5678;
  return *name != 'k';
}
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** p, void** extra) {
  long all[] = {(long)f, gx, gy, gz, bx, by, bz, shared, (long)stream, *(long*)p[0], *(long*)p[1],
                (long)extra};
  for (int i = 0; i < 12; ++i) seen[i] = all[i];
  return gx == 9 ? 700 : 0;
}
int cuGetErrorString(int, const char** text) { *text = "illegal address"; return 0; }
long launched(int i) { return seen[i]; }
}
"""


@pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
def test_kernels_are_launched_by_the_driver(tmp_path):
    code, library = tmp_path / "driver.cpp", tmp_path / "driver.so"
    code.write_text(DRIVER)
    subprocess.run([compiler(), "-shared", "-fPIC", "-o", library, code], check=True)
    gpu = cuda_run.Gpu.__new__(cuda_run.Gpu)
    gpu.driver = ctypes.CDLL(str(library))
    stream = SimpleNamespace(cuda_stream=0x7F0000001234)
    gpu.torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=lambda: stream))
    tensors = [SimpleNamespace(data_ptr=lambda at=at: at) for at in (0x7FDEADBEEF00, 64)]
    handle = gpu.load(code, "kernel")
    gpu.launch(handle, [2, 3, 4], [32, 8, 1], tensors)
    gpu.driver.launched.restype = ctypes.c_long
    seen = [gpu.driver.launched(i) for i in range(12)]
    assert seen == [0x5678, 2, 3, 4, 32, 8, 1, 0, 0x7F0000001234, 0x7FDEADBEEF00, 64, 0]
    with pytest.raises(cuda_run.DriverError, match="illegal address"):
        gpu.launch(handle, [9, 1, 1], [1, 1, 1], tensors)


def test_without_a_gpu_one_worker_is_enough(tmp_path):
    (tmp_path / "kernels.json").write_text(json.dumps({"cases": [{}, {}]}))
    results = cuda_run.run(tmp_path, 60, None, [sys.executable, "-c", "raise SystemExit('no GPU')"])
    assert results["rows"] == []
    assert len(results["notes"]) == 1
