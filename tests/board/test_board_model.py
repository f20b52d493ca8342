"""A compiled model loads and runs where a board's wheel lacks TVM and every native module."""

import os
import subprocess
import sys
from pathlib import Path

MODEL = Path(__file__).parent / "armv7" / "model.py"
AS_ON_A_BOARD = """
import runpy, sys
native = "vtaops._fsim", "vtaops._proof", "vtaops._steps", "vtaops._timing", "vtaops._uses"
for name in ("tvm", "tvm_ffi", "typer", "rich", *native):
    sys.modules[name] = None  # importing them fails
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
from vtaops.errors import UnsupportedError
try:
    import vtaops.proof
except UnsupportedError as error:
    print(error)
"""


def test_a_model_needs_nothing_native(tmp_path):
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    for code in ([MODEL, "write"], ["-c", AS_ON_A_BOARD, MODEL, "run"]):
        done = subprocess.run(
            [sys.executable, *code, tmp_path], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
    assert "results are equal" in done.stdout
    assert "a proof needs native code, which is not in the wheel for boards" in done.stdout
