"""Processes killed at random moments: nothing is damaged, and the next start sweeps what is left.

Each case starts a command (a compilation, a search for tilings, a sweep, an export) with caches,
results and temporaries in folders of its own, kills it and all that it has started, and looks at
what is there: every file under the name of a result is whole. Then the same command runs to its
end: its result is that of a run that nobody killed, and no temporary file is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from trials.campaign import Campaign, Result, result
from vtaops import VTAError, load_model
from vtaops.base.cache import checksum_ok
from vtaops.explore import ResultStore

NETWORK = """
import sys
import numpy as np
import vtaops
from vtaops.graph import Convolution, Requantization
graph = vtaops.Graph("network")
x = graph.input("x", (1, 16, 12, 12))
for seed in range(3):
    weight = np.random.default_rng(seed).integers(-9, 9, (16, 16, 3, 3)).astype(np.int8)
    x = graph.add(Convolution(weight, None, Requantization(1, 8), padding=(1, 1, 1, 1)), x)
graph.output(x)
vtaops.compile_model(graph, "pynq", prove=False).save("result.vtam")  # primes are drawn
"""

KERNELS = """
import numpy as np
from vtaops import cpu
a = np.arange(32 * 32, dtype=np.float32).reshape(32, 32)
for size in range(1, 5):
    assert np.array_equal(cpu.matmul(a[:size], a.T), cpu.matmul(a[:size], a.T))
open("result.txt", "w").write("done")
"""

VTAOPS = (sys.executable, "-m", "vtaops")
DESIGNS = ("--config", "pynq", "--vary", "LOG_ACC_BUFF_SIZE=16,17", "--estimate")
SWEEP = ("sweep", "--layer", "resnet18.C11", *DESIGNS, "--store", "store.db", "-j", "1")
COMMANDS = {
    "compile": (sys.executable, "-c", NETWORK),
    "kernels": (sys.executable, "-c", KERNELS),
    "sweep": (*VTAOPS, *SWEEP, "-o", "result.csv"),
    "export": (*VTAOPS, "report", "program", "--layer", "resnet18.C4", "-o", "result.html"),
}
"""By name: a command that leaves result.* in its working folder."""


def kill(case: str) -> Result:
    """Kill a command at a moment that the case draws, look at what it left, and run it again."""
    name = case.partition("/")[0]
    expected, seconds = _undisturbed(name)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        process = _start(name, root)
        time.sleep(random.Random(case).uniform(0.0, 1.1) * seconds)
        killed = process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        left = [str(path.relative_to(root)) for path in _temporaries(root)]
        wrong = _damaged(root)
        again = _start(name, root)
        if again.wait():
            wrong += [f"the next start ended with {again.returncode}"]
        if _result(root) != expected:
            wrong += ["the next start has another result"]
        wrong += _damaged(root)
        wrong += [f"{path.relative_to(root)} is left" for path in _temporaries(root)]
    return result(name, wrong, kills=1, before_the_end=killed, left=bool(left))


@cache
def _undisturbed(name: str) -> tuple[bytes, float]:
    """Return the result of a command that nobody kills, and how long it takes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        if _start(name, Path(folder)).wait():
            raise RuntimeError(f"the command {name} does not run")
        return _result(Path(folder)), time.monotonic() - start


def _start(name: str, root: Path) -> subprocess.Popen[bytes]:
    for part in ("work", "tmp", "cache"):
        (root / part).mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "TMPDIR": str(root / "tmp"),
        "XDG_CACHE_HOME": str(root / "cache"),
        "VTAOPS_KERNEL_CACHE": "",
    }
    return subprocess.Popen(
        COMMANDS[name],
        cwd=root / "work",
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _result(root: Path) -> bytes:
    found = list((root / "work").glob("result.*"))
    return found[0].read_bytes() if len(found) == 1 else b""


def _temporaries(root: Path) -> list[Path]:
    """Return all that is neither a result nor a file of a cache."""
    return [
        path
        for path in root.rglob("*")
        if path.name.endswith((".tmp", "-wal", "-shm", "-journal")) or path.parent == root / "tmp"
    ]


def _damaged(root: Path) -> list[str]:
    """Return the files under the names of results that are not whole."""
    found = [path for path in root.rglob("*.so") if "cache" in path.parts and not _is_whole(path)]
    found += [path for path in root.rglob("*.json") if not _is_json(path)]
    for path in (root / "work").glob("*"):
        try:
            if path.suffix == ".vtam":
                load_model(path)
            elif path.suffix == ".db":
                ResultStore(path).close()
        except VTAError:
            found.append(path)
    return [f"{path.relative_to(root)} is damaged" for path in found]


def _is_whole(path: Path) -> bool:
    return ".tmp" in str(path) or checksum_ok(path)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


CAMPAIGN = Campaign(
    lambda count: [f"{name}/{n}" for n in range(-(-count // len(COMMANDS))) for name in COMMANDS],
    kill,
    count=200,
)
