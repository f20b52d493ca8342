"""Kernels that leave their arrays are found: here is shown how `trials/guarded_memory.py` does.

A fault ends the process, so those that are meant to happen here have processes of their own.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from trials import guarded_memory
from trials.kernel_reference import random
from vtaops import cpu

PROGRAM = """
    import ctypes, sys
    import numpy as np
    from trials.guarded_memory import guarded

    def run(x, y):
        read, written = (4 * int(text) for text in sys.argv[1:])
        ctypes.memmove(y.ctypes.data + written, x.ctypes.data + read, x.nbytes)

    x = np.arange(100, dtype="float32")
    y = np.zeros_like(x)
    guarded(run)(x, y)
    sys.exit(not np.array_equal(x, y))
"""


@pytest.mark.parametrize(("read", "written"), [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
def test_an_element_outside_an_array_is_a_fault(read, written):
    """A copy that reads or writes so many elements too far."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(read), str(written)]
    done = subprocess.run(command, env=environment, timeout=60, capture_output=True)
    assert done.returncode == (-signal.SIGSEGV if read or written else 0), done.stderr.decode()


def test_all_arrays_of_a_kernel_are_placed(monkeypatch):
    placed, place = [], guarded_memory.place
    monkeypatch.setattr(
        guarded_memory, "place", lambda a, *given: placed.append(a.size) or place(a, *given)
    )
    x, w, added = random((1, 2, 5, 5)), random((3, 2, 3, 3), at=1), random((1, 3, 3, 3), at=2)
    cpu.conv2d(x, w, residual=added)
    assert sorted(placed) == sorted(2 * [x.size, w.size, added.size, added.size])
