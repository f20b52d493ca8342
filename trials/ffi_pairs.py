"""What of TVM works with a version of its ffi, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

CASES = {
    "import": "import tvm",
    "save_json": "import tvm; tvm.ir.save_json(tvm.tirx.IntImm('int32', 1))",
    "a convolution": """
import numpy as np
import vtaops
x, w = np.ones((1, 16, 4, 4), np.int8), np.ones((16, 16, 1, 1), np.int8)
assert (vtaops.conv2d(x, w, shift=0) == 16).all()
""",
}
"""From the least to the whole: `save_json` is the minimal case of the crash."""


def outcome(code: str, paths: list[str]) -> str:
    """Run code with folders in front of the installed packages: `works`, or how it ended."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return "works"
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return (done.stderr.strip().splitlines() or ["fails"])[-1].split(":")[0]


def try_pair(paths: list[str]) -> dict[str, str]:
    """Return the outcome of each case with the packages in `paths`."""
    return {name: outcome(code, paths) for name, code in CASES.items()}
